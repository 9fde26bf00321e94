"""Syntactic roles: heads that attend along dependencies (Voita et al. 2019, section 5.2).

For a relation such as nsubj, a head's score is the share of dependents whose largest attention
weight is on their head word (`nsubj-to-head`), or of head words whose largest weight is on the
dependent (`nsubj-from-head`). Separators do not count ("excluding EOS"), the word itself does.
Where words are split, attention to a word is the sum over its tokens and attention from it the mean
(Clark et al. 2019, section 4.1). Encoder self-attention only.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from headprune.errors import DataError, UsageError, needing, reason_of
from headprune.model import Batch, RunnableModel
from headprune.scores.head_scores import Values
from headprune.scores.names import DIRECTIONS
from headprune.scores.values import means, no_sums

RELATIONS = ("nsubj", "obj", "amod", "advmod")
"""The relations that Voita et al. look at, as Universal Dependencies call them."""


@dataclass(frozen=True)
class Arc:
    """One dependency: numbers of words, from 0."""

    relation: str
    dependent: int
    head: int


@dataclass(frozen=True)
class Parse:
    """A sentence and its dependencies, the root's left out."""

    words: tuple[str, ...]
    arcs: tuple[Arc, ...]


@dataclass(frozen=True)
class ParsedBatch:
    """Parsed sentences as a batch for a model.

    Attributes:
        batch: the input of the model; labels are ignored.
        words: B x S, the number of the word that each token belongs to; -1 for tokens of none.
    """

    batch: Batch
    words: Tensor
    parses: Sequence[Parse]


def read_parses(path: Path) -> list[Parse]:
    """The sentences of a CoNLL-U file; subtypes of relations (nsubj:pass) count as the relation.

    Raises:
        UsageError: the package conllu is not installed.
        DataError: the file cannot be read, is no CoNLL-U, or has no sentence.
    """
    with needing("reading parses needs the package conllu", install="pip install conllu"):
        import conllu
    try:
        with path.open(encoding="utf-8") as file:
            sentences = [_parse(sentence) for sentence in conllu.parse_incr(file)]
    except OSError as problem:
        raise DataError(f"{path}: cannot be read: {problem.strerror}") from None
    except (conllu.exceptions.ParseException, UnicodeDecodeError, TypeError, KeyError) as problem:
        raise DataError(f"{path}: no CoNLL-U file ({reason_of(problem)})") from None
    if not sentences:
        raise DataError(f"{path}: no sentence in it")
    return sentences


def _parse(sentence: Sequence[dict[str, object]]) -> Parse:
    # Multi-word tokens (1-2) and empty nodes (1.1) have no number of their own.
    tokens = [token for token in sentence if isinstance(token["id"], int)]
    places = {token["id"]: place for place, token in enumerate(tokens)}
    return Parse(
        words=tuple(str(token["form"]) for token in tokens),
        arcs=tuple(
            Arc(str(token["deprel"]).split(":")[0], place, places[token["head"]])
            for place, token in enumerate(tokens)
            if token["head"] in places
        ),
    )


def syntactic_roles(
    scored: RunnableModel,
    batches: Iterable[ParsedBatch],
    *,
    relations: Sequence[str] = RELATIONS,
) -> dict[str, Values]:
    """The share of dependency arcs that each head follows, for each relation and direction.

    A head follows an arc if one of the two words attends most to the other.

    Args:
        scored: the model; it is evaluated without dropout and left as it was.
        batches: parsed sentences.
        relations: the relations to score; those that no sentence has are left out.

    Raises:
        UsageError: a model without encoder self-attention.
        DataError: none of the relations is in the sentences.
    """
    if "ES" not in scored.sublayers:
        raise UsageError("syntactic roles are of encoder self-attention, the model has none")
    attentions = {"ES": scored.sublayers["ES"]}
    sums = {f"{name}-{way}": no_sums(attentions) for name in relations for way in DIRECTIONS}
    counted: Counter[str] = Counter()
    parsed: ParsedBatch
    arcs: list[tuple[int, Arc]]

    def see(component: str, layer: int, weights: Tensor) -> None:
        if component != "ES":
            return
        largest = largest_words(weights.float(), parsed.words)  # B x H' x N
        for number, arc in arcs:
            pairs = ((arc.dependent, arc.head), (arc.head, arc.dependent))
            for way, (one, other) in zip(DIRECTIONS, pairs, strict=True):
                hit = largest[number, :, one] == other  # H'
                sums[f"{arc.relation}-{way}"]["ES"][layer] += hit.double().cpu()

    with scored.evaluating(), scored.attending(), torch.no_grad():
        for parsed in batches:
            arcs = list(_arcs(parsed, relations))
            counted.update(arc.relation for _, arc in arcs)
            scored.attend(parsed.batch, see)
    if not counted:
        raise DataError(f"none of the relations {', '.join(relations)} is in the parses")
    return {
        f"{name}-{way}": means(attentions, sums[f"{name}-{way}"], counted={"ES": counted[name]})
        for name in relations
        if counted[name]
        for way in DIRECTIONS
    }


def positional_baselines(parses: Iterable[Parse], relations: Sequence[str]) -> dict[str, float]:
    """The share of each relation's arcs that have the relation's most frequent distance.

    A head that always attends to a word at this distance reaches this share; a syntactic head must
    exceed it.
    """
    distances: dict[str, Counter[int]] = {}
    for parse in parses:
        for arc in parse.arcs:
            if arc.relation in relations:
                distances.setdefault(arc.relation, Counter())[arc.head - arc.dependent] += 1
    return {
        name: max(counts.values()) / counts.total() for name, counts in sorted(distances.items())
    }


def largest_words(weights: Tensor, words: Tensor) -> Tensor:
    """The word that each word attends to most: B x H' x N.

    Args:
        weights: B x H' x S x S.
        words: B x S, the number of each token's word, -1 for tokens of none.
    """
    number = int(words.max()) + 1
    member = torch.nn.functional.one_hot(words.clamp(min=0), max(number, 1)).to(weights)
    member = member * (words >= 0).unsqueeze(-1)  # B x S x N
    to_words = weights @ member.unsqueeze(1)  # B x H' x S x N
    # The mean over a word's tokens has its largest place where their sum has it.
    return (member.transpose(1, 2).unsqueeze(1) @ to_words).argmax(-1)


def _arcs(parsed: ParsedBatch, relations: Sequence[str]) -> Iterator[tuple[int, Arc]]:
    """Yield the arcs whose words are both in the batch, as long sentences are cut.

    Each arc comes with the number of its sentence.
    """
    for number, (parse, words) in enumerate(zip(parsed.parses, parsed.words.tolist(), strict=True)):
        present_words = set(words)
        for arc in parse.arcs:
            if arc.relation in relations and {arc.dependent, arc.head} <= present_words:
                yield number, arc
