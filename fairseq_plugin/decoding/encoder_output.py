"""Encoder output that is reordered for the hypotheses only when it is read."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

EncoderOutput = Mapping[str, list[Any]]


class OrderedEncoderOutput(Mapping[str, list[Any]]):
    """Encoder output with one row for each hypothesis, copied lazily.

    fairseq's beam search reorders the output before every step, but a decoder that caches keys and
    values reads it in the first step only. The copy is therefore made when an entry is read.

    Attributes:
        source: the encoder's output, with one row for each sentence.
        rows: for each hypothesis, the row of its sentence in ``source``.
    """

    def __init__(
        self,
        source: EncoderOutput,
        rows: Tensor,
        *,
        copy: Callable[[EncoderOutput, Tensor], EncoderOutput],
    ) -> None:
        self.source = source
        self.rows = rows
        self._copy = copy
        self._copied: EncoderOutput | None = None

    def reordered(self, order: Tensor) -> OrderedEncoderOutput:
        """Select and reorder hypotheses; ``order`` contains their indices."""
        rows = self.rows.index_select(0, order)
        return OrderedEncoderOutput(self.source, rows, copy=self._copy)

    def by_sentence(self) -> EncoderOutput:
        """Return one row for each sentence if each has the same number of adjacent hypotheses.

        Otherwise return one row for each hypothesis.
        """
        encoded = self.source["encoder_out"]
        if encoded:
            sentences = encoded[0].size(1)  # S x B x C
            beam, rest = divmod(len(self.rows), sentences)
            numbers = torch.arange(sentences, device=self.rows.device)
            if not rest and torch.equal(self.rows, numbers.repeat_interleave(beam)):
                return self.source
        return self

    def _entries(self) -> EncoderOutput:
        if self._copied is None:
            self._copied = self._copy(self.source, self.rows)
        return self._copied

    def __getitem__(self, key: str) -> list[Any]:
        return self._entries()[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries())

    def __len__(self) -> int:
        return len(self._entries())
