"""Cache of the keys and values of an attention during incremental decoding."""

from __future__ import annotations

import torch
from torch import Tensor

from fairseq_plugin.decoding.beam_order import BeamOrder
from fairseq_plugin.decoding.recycling import Recycler

_NAMES = ("prev_key", "prev_value", "prev_key_padding_mask")
_LEAST_CAPACITY = 16


class KeyValueCache(dict[str, Tensor | None]):
    """fairseq's saved state of an attention, which grows without being copied.

    Its entries are those of fairseq: ``prev_key`` and ``prev_value``, B' x H' x S x d, and
    ``prev_key_padding_mask``, B' x S. Keys and values are the filled part of a larger tensor, so
    that a step writes only the new positions. Reordering copies the filled part into memory that an
    earlier step of the search no longer uses.

    When gradients are computed, every step creates new tensors, since the backward pass needs the
    old ones.

    Attributes:
        beam: the number of adjacent rows of queries that share one row of keys and values.
    """

    def __init__(self, entries: dict[str, Tensor | None] | None = None, *, beam: int = 1) -> None:
        super().__init__(entries or {})
        self.beam = beam
        self._stores: dict[str, _Store] = {}

    @classmethod
    def of(cls, entries: dict[str, Tensor | None]) -> KeyValueCache:
        """Return ``entries`` if it is a cache, else a cache with these entries."""
        return entries if isinstance(entries, cls) else cls(entries)

    def append(self, name: str, new: Tensor, recycler: Recycler) -> Tensor:
        """Append ``new``, B' x H' x T x d, to an entry; return the entry, B' x H' x S+T x d."""
        old = self.get(name)
        if old is None:
            # The positions of a head are adjacent in memory, because every step reads them.
            result = new.contiguous()
        elif torch.is_grad_enabled():
            result = torch.cat([old, new], dim=2)
        else:
            store = self._stores.get(name)
            if store is None or store.filled is not old:
                store = self._stores[name] = _Store(old)
            result = store.append(new, recycler)
        self[name] = result
        return result

    def reorder(self, order: BeamOrder, recycler: Recycler) -> None:
        """Select the rows of the hypotheses that are continued."""
        keys = self.get("prev_key")
        if keys is None:
            return
        if self.beam == 1:
            if not order.keeps(keys.size(0)):
                self._select(order.rows, recycler)
            return
        if order.keeps_sentences(keys.size(0), self.beam):
            return
        sentences = order.sentences(self.beam)
        if sentences is not None:
            self._select(sentences, recycler)
        else:
            self._select(order.rows // self.beam, recycler)
            self.beam = 1  # each row may have come from any sentence

    def _select(self, rows: Tensor, recycler: Recycler) -> None:
        for name in _NAMES:
            old = self.get(name)
            if old is None:
                continue
            store = self._stores.get(name)
            if store is None or store.filled is not old or torch.is_grad_enabled():
                self[name] = old.index_select(0, rows)
            else:
                self[name] = store.select(rows, recycler)


class _Store:
    """A tensor B' x H' x S x d with free capacity for more positions.

    Attributes:
        filled: the used part.
    """

    def __init__(self, filled: Tensor) -> None:
        self.filled = filled
        self._whole: Tensor | None = None  # B' x H' x capacity x d

    def append(self, new: Tensor, recycler: Recycler) -> Tensor:
        """Append ``new``, B' x H' x T x d, to the filled part, and return the filled part."""
        rows, heads, before, width = self.filled.shape
        after = before + new.size(2)
        if self._whole is None or self._whole.size(2) < after:
            capacity = max(_LEAST_CAPACITY, 2 * after)
            whole = recycler.take(torch.Size((rows, heads, capacity, width)), like=new)
            whole[:, :, :before] = self.filled
            self._replace_by(whole, recycler)
        assert self._whole is not None
        self._whole[:, :, before:after] = new
        self.filled = self._whole[:, :, :after]
        return self.filled

    def select(self, rows: Tensor, recycler: Recycler) -> Tensor:
        """Select ``rows`` in this order, and return the filled part."""
        assert self._whole is not None
        shape = torch.Size((len(rows), *self._whole.shape[1:]))
        whole = recycler.take(shape, like=self._whole)
        filled = whole[:, :, : self.filled.size(2)]
        torch.index_select(self.filled, 0, rows, out=filled)
        self.filled = filled
        self._replace_by(whole, recycler)
        return filled

    def _replace_by(self, whole: Tensor, recycler: Recycler) -> None:
        if self._whole is not None:
            recycler.give_back(self._whole)
        self._whole = whole
