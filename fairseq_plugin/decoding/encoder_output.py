"""The encoder's output, put into the order of the hypotheses only if someone looks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

EncoderOutput = Mapping[str, list[Any]]


class OrderedEncoderOutput(Mapping[str, list[Any]]):
    """What an encoder returned, with rows chosen and repeated: each hypothesis has its source.

    fairseq's beam search reorders it before every step, and a decoder that remembers keys and
    values looks at it before the first one only. So the copy is made when an entry is read.

    Attributes:
        source: the encoder's output as it was.
        rows: for each hypothesis the row of ``source`` that it is of.
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
        """The output of the hypotheses ``order`` of these."""
        rows = self.rows.index_select(0, order)
        return OrderedEncoderOutput(self.source, rows, copy=self._copy)

    def by_sentence(self) -> EncoderOutput:
        """One row a sentence if each has equally many hypotheses side by side, else all rows."""
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
