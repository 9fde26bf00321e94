"""Training in several processes: without a GPU, and with an orderly end."""

from __future__ import annotations

import gc
import os
from functools import wraps
from typing import Any

import torch
from fairseq.distributed import utils
from omegaconf import open_dict


def allow_torchrun_without_gpu() -> None:
    """Let fairseq-train run under torchrun on a CPU (``--distributed-backend gloo``).

    fairseq assigns GPUs to processes by ``rank % number of GPUs``, which divides by zero on a
    machine without one. On other machines fairseq's own function stays.
    """
    if torch.cuda.device_count() == 0:
        utils._infer_torch_distributed_launch_init = _infer_from_environment


def _infer_from_environment(cfg: Any) -> None:
    """Read torchrun's environment variables into the configuration, as fairseq's function does."""
    with open_dict(cfg):
        cfg.distributed_init_method = "env://"
        cfg.distributed_world_size = int(os.environ["WORLD_SIZE"])
        cfg.distributed_rank = int(os.environ["RANK"])
        cfg.device_id = 0
        cfg.distributed_no_spawn = True


def leave_process_group() -> None:
    """Let each process of fairseq's programs leave the process group before Python ends.

    fairseq never does. A thread of the group (gloo's) that still holds a tensor while the
    interpreter is torn down then aborts the process, now and then, after a training that
    succeeded: "terminate called without an active exception", SIGABRT.
    """
    utils.distributed_main = _leaving_the_group(utils.distributed_main)


def _leaving_the_group(distributed_main: Any) -> Any:
    @wraps(distributed_main)
    def run(*arguments: Any, **options: Any) -> None:
        # Its functions would keep the group that exists when it is first imported, as defaults.
        import torch.distributed.nn.functional  # noqa: F401

        distributed_main(*arguments, **options)
        # Not after an error: the others may wait for this process in a collective operation, and
        # destroying the group could then wait for them.
        if torch.distributed.is_initialized():
            # The threads of a group end with the last reference to it; fairseq keeps one here.
            vars(utils.get_global_group).pop("_global_group", None)
            torch.distributed.destroy_process_group()
            gc.collect()

    return run
