"""Tiny checkpoint files for the tests, as fairseq writes them."""

from __future__ import annotations

from argparse import Namespace
from functools import cache
from pathlib import Path
from typing import Any

import torch

from fairseq_plugin.checkpoints import Checkpoint, Options
from headprune import HeadPlan
from tests.fairseq_plugin.models import SHAPE, SIZES, build

PLAN = HeadPlan(kept={"ES": [(1, 3), ()], "ED": [(2,), ()], "DS": [(), (0, 1, 2)]}, heads=SHAPE)


def content(*, plan: HeadPlan | None = None, form: str = "remove") -> dict[str, Any]:
    """The content of a checkpoint of a tiny stock transformer, pruned if a plan is given."""
    options = Namespace(arch="transformer", task="translation", data="data", **SIZES)
    state = {"args": options, "model": dict(_weights()), "extra_state": {"epoch": 1}}
    if plan is None:
        return state
    whole = Checkpoint(state=state, options=Options(options), path=Path("whole"))
    return whole.prune(plan, form=form).state


def write(path: Path, **arguments: Any) -> Path:
    """Write such a file."""
    torch.save(content(**arguments), path)
    return path


@cache
def _weights() -> dict[str, torch.Tensor]:
    weights: dict[str, torch.Tensor] = build("transformer").state_dict()
    return weights
