"""The selection and order of the hypotheses that a beam search continues."""

from __future__ import annotations

from functools import cached_property

import torch
from torch import Tensor


class BeamOrder:
    """Selection of hypotheses for the next step: its row i continues row ``rows[i]``.

    Attributes:
        rows: row indices of the previous step.
    """

    def __init__(self, rows: Tensor) -> None:
        self.rows = rows
        self._sentences: dict[int, Tensor | None] = {}

    def keeps(self, rows: int) -> bool:
        """Check that all of the ``rows`` rows keep their places."""
        return len(self.rows) == rows and self._is_range

    @cached_property
    def _is_range(self) -> bool:
        return _is_range(self.rows)

    def sentences(self, beam: int) -> Tensor | None:
        """Return, for each block of ``beam`` rows, the index of the sentence that it continues.

        None if a block continues rows of several sentences.
        """
        if beam not in self._sentences:
            self._sentences[beam] = self._find_sentences(beam)
        return self._sentences[beam]

    def keeps_sentences(self, number: int, beam: int) -> bool:
        """Check that all ``number`` sentences, with ``beam`` rows each, keep their places."""
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
