"""Which hypotheses of the last step go on, in which order."""

from __future__ import annotations

from functools import cached_property

import torch
from torch import Tensor


class BeamOrder:
    """What a beam search selects: row i of the batch continues what was row ``rows[i]``.

    Attributes:
        rows: numbers of rows of the last step.
    """

    def __init__(self, rows: Tensor) -> None:
        self.rows = rows
        self._sentences: dict[int, Tensor | None] = {}

    def keeps(self, rows: int) -> bool:
        """Whether all of ``rows`` rows stay where they are."""
        return len(self.rows) == rows and self._is_range

    @cached_property
    def _is_range(self) -> bool:
        return _is_range(self.rows)

    def sentences(self, beam: int) -> Tensor | None:
        """The sentences that go on, where each has ``beam`` rows side by side.

        None if sentences do not stay together: then there is no order of sentences.
        """
        if beam not in self._sentences:
            self._sentences[beam] = self._find_sentences(beam)
        return self._sentences[beam]

    def keeps_sentences(self, number: int, beam: int) -> bool:
        """Whether all of ``number`` sentences of ``beam`` rows each stay where they are."""
        sentences = self.sentences(beam)
        return sentences is not None and len(sentences) == number and _is_range(sentences)

    def _find_sentences(self, beam: int) -> Tensor | None:
        if len(self.rows) % beam:
            return None
        sentences = self.rows.view(-1, beam) // beam  # sentences x beam
        first = sentences[:, 0]
        return first if bool((sentences == first[:, None]).all()) else None


def _is_range(numbers: Tensor) -> bool:
    return torch.equal(numbers, torch.arange(len(numbers), device=numbers.device))
