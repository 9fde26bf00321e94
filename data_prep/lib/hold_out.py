"""Hold sentences out for validation and testing.

Sentences are held out, not pairs: no sentence of a held-out set, on either side, occurs in another
set. Sentences are compared without regard to case and spacing. A hash of the seed and the sentence
decides which sentences are held out. The result therefore does not depend on the order of the
corpus, and the use of memory not on its length.
"""

from __future__ import annotations

import hashlib
import heapq
from collections.abc import Collection, Iterable, Sequence

from headprune.errors import DataError

Pair = tuple[str, str]


def key(sentence: str) -> str:
    """The sentence in the form in which sentences are compared."""
    return " ".join(sentence.casefold().split())


def _rank(sentence: str, seed: int) -> tuple[bytes, str]:
    compared = key(sentence)
    return hashlib.blake2b(f"{seed} {compared}".encode(), digest_size=16).digest(), compared


def hold_out(
    pairs: Sequence[Iterable[Pair]], sizes: Sequence[int], *, seed: int
) -> list[list[Pair]]:
    """Draw sets of pairs, of the given sizes, that share no sentence on either side.

    Pairs with an empty side are not drawn.

    Args:
        pairs: the whole corpus, to be read twice: two iterators over it.
        sizes: the sizes of the sets.
        seed: the seed of the draw.

    Raises:
        DataError: there are too few different sentences.
    """
    wanted = sum(sizes)
    # A few more than needed, because all translations of a sentence may be taken already.
    spare = wanted // 10 + 20
    ranks: set[tuple[bytes, str]] = set()
    heap: list[tuple[int, tuple[bytes, str]]] = []
    for source, target in pairs[0]:
        if not source.strip() or not target.strip():
            continue
        rank = _rank(source, seed)
        if rank in ranks:
            continue
        # a heap of the smallest ranks, with the largest of them on top
        entry = (-int.from_bytes(rank[0]), rank)
        if len(heap) < wanted + spare:
            heapq.heappush(heap, entry)
            ranks.add(rank)
        elif entry > heap[0]:
            ranks.discard(heapq.heapreplace(heap, entry)[1])
            ranks.add(rank)

    translations: dict[str, list[Pair]] = {compared: [] for _, compared in sorted(ranks)}
    for pair in pairs[1]:
        candidates = translations.get(key(pair[0]))
        if candidates is not None and pair[1].strip():
            candidates.append(pair)

    drawn: list[Pair] = []
    taken: set[str] = set()
    for candidates in translations.values():
        # Of several translations, the one with the smallest rank is preferred.
        for pair in sorted(candidates, key=lambda pair: _rank(pair[1], seed)):
            if key(pair[1]) not in taken and len(drawn) < wanted:
                taken.add(key(pair[1]))
                drawn.append(pair)
                break
    if len(drawn) < wanted:
        raise DataError(
            f"only {len(drawn)} different sentences can be held out of the {wanted} asked for"
        )
    sets = []
    for size in sizes:
        sets.append(drawn[:size])
        drawn = drawn[size:]
    return sets


class HeldOut:
    """The sentences of held-out sets, on each side."""

    def __init__(self, pairs: Iterable[Pair] = ()) -> None:
        self._sides: tuple[set[str], set[str]] = (set(), set())
        self.add(pairs)

    def add(self, pairs: Iterable[Pair]) -> None:
        """Add the sentences of a set; an empty one is none."""
        for pair in pairs:
            for side, sentence in zip(self._sides, pair, strict=True):
                if compared := key(sentence):
                    side.add(compared)

    def __contains__(self, pair: Collection[str]) -> bool:
        """Tell if either sentence of a pair is held out."""
        return any(
            side and key(sentence) in side  # the key costs time
            for side, sentence in zip(self._sides, pair, strict=True)
        )


def count_leaked(pairs: Sequence[Pair], corpus: Iterable[Pair]) -> int:
    """Count the pairs of a test set of which a sentence, on its side, is in a training corpus."""
    wanted = HeldOut(pairs)
    found = HeldOut(pair for pair in corpus if pair in wanted)
    return sum(pair in found for pair in pairs)
