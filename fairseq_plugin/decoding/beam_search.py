"""Beam search's choice of hypotheses, without looking for the best among all words at once.

fairseq adds each hypothesis's score to those of all words and searches the sums, of beam x V words
for every sentence, which on a CPU takes a tenth of the time that is spent in translating.
"""

from __future__ import annotations

from functools import wraps
from typing import Any

import torch
from fairseq.search import BeamSearch
from fairseq.sequence_generator import SequenceGenerator, SequenceGeneratorWithAlignment
from torch import Tensor, nn

from fairseq_plugin.scripting import Scriptable
from headprune.errors import UsageError

_BLOCK = 128
"""Words of which only the best counts at first; as many as make both searches short."""


def use_with(kind: type[nn.Module]) -> None:
    """Let fairseq's generators use QuickBeamSearch where one of their models is of this kind.

    Other strategies (sampling, diverse beams) stay what they are, and so do other models' searches.
    A generator that shall print alignments raises a UsageError where no model has a head to align
    by.
    """
    build = SequenceGenerator.__init__

    @wraps(build)
    def build_with_quick_search(self: Any, *args: Any, **options: Any) -> None:
        build(self, *args, **options)
        models = list(self.model.models)
        if isinstance(self, SequenceGeneratorWithAlignment):
            _require_alignment(models, kind)
        if any(isinstance(model, kind) for model in models) and type(self.search) is BeamSearch:
            self.search = QuickBeamSearch(self.tgt_dict)

    SequenceGenerator.__init__ = build_with_quick_search


def _require_alignment(models: list[Any], kind: type[nn.Module]) -> None:
    if all(type(m) is kind for m in models) and all(
        m.decoder.aligning_layer is None for m in models
    ):
        raise UsageError(
            "--print-alignment: no layer keeps a head of encoder-decoder attention (ED), so there "
            "are no alignments; leave the flag out"
        )


class QuickBeamSearch(BeamSearch, Scriptable):  # type: ignore[misc]  # fairseq has no types
    """fairseq's BeamSearch, shown only the words that it can choose: each hypothesis's own best."""

    stock_class = BeamSearch

    def step(
        self,
        step: int,
        lprobs: Tensor,
        scores: Tensor | None,
        prev_output_tokens: Tensor | None = None,
        original_batch_idxs: Tensor | None = None,
        candidate_multiple: int = 2,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """The best continuations of all hypotheses of a sentence: scores, words and hypotheses.

        Args:
            lprobs: B x beam x V, log-probabilities of words.
            scores: B x beam x steps, of the hypotheses so far.
        """
        # One more than it may choose: it leaves out one of all that it is shown.
        number = candidate_multiple * lprobs.size(1) + 1
        rest = (prev_output_tokens, original_batch_idxs, candidate_multiple)
        if lprobs.device.type != "cpu" or lprobs.size(-1) < number * _BLOCK:
            found: tuple[Tensor, Tensor, Tensor] = super().step(step, lprobs, scores, *rest)
            return found
        values, words = best_words(lprobs, number)  # B x beam x number
        best, places, beams = super().step(step, values, scores, *rest)  # B x candidates
        return best, words.flatten(1).gather(1, beams * number + places), beams


def best_words(scores: Tensor, number: int) -> tuple[Tensor, Tensor]:
    """``scores.topk(number)`` over the last dimension, V: values and indices, ... x number.

    Only blocks of words with the highest maxima can hold any of them.
    """
    blocks = scores.size(-1) // _BLOCK
    whole = scores[..., : blocks * _BLOCK].unflatten(-1, (blocks, _BLOCK))  # ... x blocks x block
    chosen = whole.amax(-1).topk(number, sorted=False).indices  # ... x number
    inside = whole.gather(-2, chosen.unsqueeze(-1).expand(*chosen.shape, _BLOCK)).flatten(-2)
    rest = scores[..., blocks * _BLOCK :]  # ... x fewer than a block
    values, places = torch.cat([inside, rest], -1).topk(number)
    first = number * _BLOCK  # of the rest
    block = chosen.gather(-1, (places // _BLOCK).clamp(max=number - 1))
    words = torch.where(
        places < first, block * _BLOCK + places % _BLOCK, places - first + blocks * _BLOCK
    )
    return values, words
