"""The process group of a training, which this test's own process forms alone."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from fairseq.dataclass.configs import FairseqConfig
from fairseq.distributed import utils
from omegaconf import OmegaConf

import fairseq_plugin  # noqa: F401  (changes fairseq's functions)

TASKS = Path("/proc/self/task")


@pytest.fixture(autouse=True)
def own_logging_level() -> Iterator[None]:
    level = logging.getLogger().level
    yield
    logging.getLogger().setLevel(level)


def configuration(folder: Path) -> Any:
    cfg = OmegaConf.structured(FairseqConfig)
    cfg.model = None
    cfg.common.cpu = True
    distributed = cfg.distributed_training
    distributed.distributed_backend = "gloo"
    distributed.distributed_init_method = f"file://{folder}/store"
    distributed.distributed_world_size, distributed.distributed_rank = 1, 0
    return cfg


def threads_of_groups() -> int:
    """The number of this process's threads that serve process groups (torch's names for gloo's)."""
    return sum("gloo" in (task / "comm").read_text() for task in TASKS.iterdir())


@pytest.mark.skipif(not TASKS.is_dir(), reason="needs the threads in /proc (Linux)")
def test_no_thread_of_the_process_group_outlives_the_training(tmp_path: Path) -> None:
    """Such a thread could abort the process while Python ends."""
    threads = []

    def main(cfg: Any) -> None:
        torch.distributed.all_reduce(torch.ones(3), group=utils.get_global_group())
        # After it, since a thread has its name only once it runs.
        threads.append(threads_of_groups())

    utils.distributed_main(0, main, configuration(tmp_path), {})
    assert threads[0] > 0
    assert threads_of_groups() == 0
    assert not torch.distributed.is_initialized()


def test_an_error_keeps_the_process_group(tmp_path: Path) -> None:
    """The processes of a failed training end without waiting for each other."""

    def main(cfg: Any) -> None:
        raise ValueError("of one process")

    try:
        with pytest.raises(ValueError, match="of one process"):
            utils.distributed_main(0, main, configuration(tmp_path), {})
        assert torch.distributed.is_initialized()
    finally:
        torch.distributed.destroy_process_group()
