"""The plan of a checkpoint, beside its weights while fairseq carries them to the model.

A checkpoint holds its plan in the options alone, and fairseq hands only the weights to the model
that they are loaded into. So the plan is put among these when the file has been read, as the bytes
of its JSON, and taken out before the weights are fitted. It is never written to a file.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from headprune.plan import PruningPlan

_KEY = "headprune.plan"


def with_plan(weights: Mapping[str, Tensor], plan: PruningPlan) -> dict[str, Tensor]:
    """The weights with their plan beside them."""
    text = plan.to_json(with_origin=False).encode("ascii")
    return {**weights, _KEY: torch.frombuffer(bytearray(text), dtype=torch.uint8)}


def take_plan(weights: dict[str, Any]) -> PruningPlan | None:
    """Remove the plan from the weights; None where there is none."""
    stored = weights.pop(_KEY, None)
    if stored is None:
        return None
    return PruningPlan.from_json(bytes(stored.tolist()).decode("ascii"), source="the checkpoint")
