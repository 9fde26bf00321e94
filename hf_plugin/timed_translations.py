"""Translations for measurements of time, by scores that are drawn at random."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from transformers import LogitsProcessor, LogitsProcessorList, PreTrainedModel

from hf_plugin.one_translation import ONE_TRANSLATION

_SEED = 1


def translate_to_length(
    model: PreTrainedModel, source: Mapping[str, Tensor], *, length: int, **options: Any
) -> Tensor:
    """Translate for a measurement of time, by scores that are drawn at random.

    All translations have ``length`` tokens, as bad models write longer ones than good models.

    Args:
        model: a model that translates.
        source: the inputs of its encoder.
        options: further options of ``generate``, such as ``num_beams``.

    Returns:
        The tokens, B x (1 + length), with the one that a translation begins with.
    """
    assert model.generation_config is not None
    drawn = DrawnScores(model.generation_config.eos_token_id)
    found: Tensor = model.generate(  # type: ignore[operator]
        **source,
        **options,
        min_new_tokens=length,
        max_new_tokens=length,
        **ONE_TRANSLATION,
        logits_processor=LogitsProcessorList([drawn]),
    )
    return found


class DrawnScores(LogitsProcessor):
    """Scores of the next tokens that are drawn, so that all models continue the same hypotheses.

    A model that repeats one word keeps the order of the hypotheses, and would be timed too fast.
    """

    def __init__(self, ends: int | list[int] | None) -> None:
        self._ends = [] if ends is None else [ends] if isinstance(ends, int) else list(ends)
        self._drawn: Tensor | None = None

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        """Replace scores, beam*B x V, for hypotheses beam*B x t; no hypothesis ends."""
        if self._drawn is None:  # once, as drawing takes longer than a step of a small model
            generator = torch.Generator().manual_seed(_SEED)
            self._drawn = torch.randn(scores.shape, generator=generator).to(scores)
        drawn = self._drawn.roll(input_ids.size(1), dims=(-1,))  # other tokens at each step
        drawn[:, self._ends] = -torch.inf
        return drawn
