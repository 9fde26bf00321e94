"""Training in several processes without a GPU."""

from __future__ import annotations

import os
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
