"""Beam search among a shortlist of target words for each sentence.

The output layer is computed for the words in the shortlists of a batch's sentences. Of these, each
sentence has only its own words: the others get the probability 0. A translation therefore does not
depend on the other sentences of its batch.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import torch
from fairseq.data import Dictionary
from fairseq.search import BeamSearch
from fairseq.sequence_generator import SequenceGenerator, SequenceGeneratorWithAlignment
from torch import Tensor, nn

from fairseq_plugin.decoding.beam_order import BeamOrder
from fairseq_plugin.decoding.beam_search import QuickBeamSearch
from fairseq_plugin.decoding.linear import InferenceLinear
from fairseq_plugin.decoding.projection import project
from fairseq_plugin.decoding.recycling import Recycler
from headprune.errors import UsageError
from headprune.shortlist import Shortlist

_KEY = "shortlisted"


@dataclass(frozen=True, kw_only=True)
class Candidates:
    """The target words of a batch of B sentences.

    Attributes:
        words: U word numbers in ascending order, fairseq's special ones first.
        excluded: B x U, those that are not in a sentence's own shortlist.
        vocabulary: the number of all words.
    """

    words: Tensor
    excluded: Tensor
    vocabulary: int


_candidates: ContextVar[Candidates | None] = ContextVar("candidates", default=None)


class ShortlistTable:
    """A shortlist as word numbers of two dictionaries."""

    def __init__(self, shortlist: Shortlist, source: Dictionary, target: Dictionary) -> None:
        longest = max(map(len, shortlist.best.values()), default=0)
        filler = target.eos()  # a candidate of all sentences
        # source vocabulary x longest list
        self._best = torch.full((len(source), longest), filler, dtype=torch.int32)
        for word, words in shortlist.best.items():
            numbers = [target.index(each) for each in words]
            self._best[source.index(word), : len(words)] = torch.tensor(numbers, dtype=torch.int32)
        always = [*range(target.nspecial), *map(target.index, shortlist.frequent)]
        self._always = torch.zeros(len(target), dtype=torch.bool)
        self._always[always] = True

    def candidates(self, source: Tensor) -> Candidates:
        """The target words of a batch.

        Args:
            source: B x S, word numbers; special ones have no shortlist.
        """
        if self._always.device != source.device:
            self._always, self._best = (
                tensor.to(source.device) for tensor in (self._always, self._best)
            )
        allowed = self._always.repeat(len(source), 1)  # B x V
        allowed.scatter_(1, self._best[source].flatten(1).long(), True)
        words = allowed.any(0).nonzero()[:, 0]
        return Candidates(words=words, excluded=~allowed[:, words], vocabulary=allowed.size(1))


class ShortlistProjection:
    """The output layer of one search, for the candidates of its batch.

    Attributes:
        linear: the rows of the output layer for the candidates.
    """

    def __init__(self, linear: nn.Linear, candidates: Candidates) -> None:
        self.linear = linear
        if len(candidates.words) < candidates.vocabulary:
            self.linear = _with_rows(linear, candidates.words)
        self._penalty: Tensor | None = None  # B' x 1 x U, 0 or -infinity
        if candidates.excluded.any():
            zeros = torch.zeros(
                candidates.excluded.shape, device=linear.weight.device, dtype=linear.weight.dtype
            )
            self._penalty = zeros.masked_fill_(candidates.excluded, -torch.inf).unsqueeze(1)
        self._rows = 0

    @classmethod
    def of(cls, incremental_state: dict[str, Any], linear: nn.Linear) -> ShortlistProjection | None:
        """The projection of a search, created in its first step; None without a shortlist."""
        candidates = _candidates.get()
        if candidates is None:
            return None
        entry = incremental_state.setdefault(_KEY, {})
        if _KEY not in entry:
            entry[_KEY] = cls(linear, candidates)
        projection: ShortlistProjection = entry[_KEY]
        return projection

    @staticmethod
    def reorder(incremental_state: dict[str, Any], order: BeamOrder) -> None:
        """Select the sentences that are continued."""
        if _KEY in incremental_state:
            incremental_state[_KEY][_KEY]._select(order)

    def __call__(self, x: Tensor, recycler: Recycler) -> Tensor:
        """Rows x T x C -> rows x T x U, scores; -infinity for words of other sentences."""
        scores = project(self.linear, x, recycler)
        self._rows = len(scores)
        if self._penalty is not None:
            sentences = len(self._penalty)
            scores.view(sentences, -1, scores.size(-1)).add_(self._penalty)
        return scores

    def _select(self, order: BeamOrder) -> None:
        if self._penalty is None:
            return
        beam = self._rows // len(self._penalty)
        if order.keeps_sentences(len(self._penalty), beam):
            return
        sentences = order.sentences(beam)
        # Rows of several sentences in a place of one: each row has a penalty of its own.
        rows = order.rows // beam if sentences is None else sentences
        self._penalty = self._penalty.index_select(0, rows)


def _with_rows(linear: nn.Linear, rows: Tensor) -> nn.Linear:
    """A layer with some of the outputs."""
    has_bias = linear.bias is not None
    part = InferenceLinear(linear.in_features, len(rows), bias=has_bias, device="meta")
    part.weight = nn.Parameter(linear.weight[rows], requires_grad=False)
    if has_bias:
        part.bias = nn.Parameter(linear.bias[rows], requires_grad=False)
    return part


class ShortlistSearch(QuickBeamSearch):
    """Beam search whose columns are the candidates of a batch.

    Attributes:
        words: the word number of each column; None for a column for each word.
    """

    words: Tensor | None = None

    def step(self, *inputs: Any, **options: Any) -> tuple[Tensor, Tensor, Tensor]:
        """Select the best continuations: their scores, words and hypotheses."""
        scores, columns, beams = super().step(*inputs, **options)
        return scores, columns if self.words is None else self.words[columns], beams


class ShortlistGenerator(SequenceGenerator):  # type: ignore[misc]  # fairseq has no types
    """fairseq's generator, with a shortlist.

    Attributes:
        table: the shortlist.
    """

    table: ShortlistTable

    def _generate(
        self,
        sample: Any,
        prefix_tokens: Tensor | None = None,
        constraints: Tensor | None = None,
        bos_token: int | None = None,
    ) -> Any:
        if prefix_tokens is not None or constraints is not None:
            raise UsageError("--shortlist: does not go with --prefix-size or --constraints")
        source = sample["net_input"]["src_tokens"]
        with self._candidates(self.table.candidates(source)):
            return super()._generate(sample, bos_token=bos_token)

    @contextmanager
    def _candidates(self, candidates: Candidates) -> Iterator[None]:
        token = _candidates.set(candidates)
        self.vocab_size, self.search.words = len(candidates.words), candidates.words
        try:
            yield
        finally:
            self.vocab_size, self.search.words = candidates.vocabulary, None
            _candidates.reset(token)


class ShortlistGeneratorWithAlignment(SequenceGeneratorWithAlignment, ShortlistGenerator):
    """fairseq's generator with alignments, with a shortlist."""


_CLASSES: dict[type, type] = {
    SequenceGenerator: ShortlistGenerator,
    SequenceGeneratorWithAlignment: ShortlistGeneratorWithAlignment,
}


def use_shortlist(
    generator: Any, shortlist: Shortlist, *, kind: type[nn.Module], name: object
) -> None:
    """Let a generator choose among the words of a shortlist.

    Args:
        generator: fairseq's, for models of the class ``kind``, with a plain beam search.
        name: of the shortlist, for messages.

    Raises:
        UsageError: another search or model, or a shortlist too short for the beam.
        DataError: a shortlist of other dictionaries.
    """
    models: list[Any] = list(generator.model.models)
    for model in models:
        if not isinstance(model, kind):
            raise UsageError(
                "--shortlist: for models of the architecture transformer_headpruned; `headprune "
                "prune` writes one, also with all units kept"
            )
        decoder: Any = model.decoder
        if decoder.adaptive_softmax is not None:
            raise UsageError("--shortlist: not for models with --adaptive-softmax-cutoff")
    if type(generator.search) not in (BeamSearch, QuickBeamSearch):
        raise UsageError("--shortlist: for plain beam search, without sampling or other searches")
    if generator.lm_model is not None or generator.repeat_ngram_blocker is not None:
        raise UsageError("--shortlist: does not go with --lm-path or --no-repeat-ngram-size")
    if generator.token_indices_to_suppress is not None:
        raise UsageError("--shortlist: does not go with tokens to suppress")
    source, target = models[0].encoder.dictionary, generator.tgt_dict
    shortlist.require_words(source=source.__contains__, target=target.__contains__, name=name)
    shortlist.require_beam(generator.beam_size, name=name)
    generator.search = ShortlistSearch(target)
    generator.__class__ = _CLASSES[type(generator)]
    generator.table = ShortlistTable(shortlist, source, target)
