"""Whisper's heads for word timestamps, which transformers names by their places."""

from __future__ import annotations

import pytest
from transformers import AutoModelForSpeechSeq2Seq

import hf_plugin
from headprune import PruningPlan
from tests.hf_plugin.small_models import small

ALL = (0, 1, 2, 3)


@pytest.mark.parametrize(
    ("component", "kept", "remains"),
    [("ED", [(0, 2), ALL], False), ("DL", [(), (0,)], False), ("DS", [(0, 2), ALL], True)],
)
def test_no_other_heads_are_read_after_pruning(
    component: str, kept: list[tuple[int, ...]], remains: bool
) -> None:
    model = small("whisper", AutoModelForSpeechSeq2Seq)
    model.generation_config.alignment_heads = [[0, 2], [1, 3]]
    units = (1, 1) if component == "DL" else (4, 4)
    hf_plugin.prune(model, PruningPlan(kept={component: kept}, units={component: units}))
    # transformers looks for the attribute, and refuses to make timestamps without it.
    assert hasattr(model.generation_config, "alignment_heads") == remains
