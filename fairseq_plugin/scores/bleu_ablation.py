"""BLEU by beam search with units masked, one sub-layer or layer at a time.

The encoder's outputs are kept for masks of the decoder, which have no influence on them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import Tensor

from fairseq_plugin.scores.model import Batch, FairseqModel
from headprune.components import HEADS, LAYERS, side_of
from headprune.errors import DataError
from headprune.gates import gated, gated_layers
from headprune.results.bleu_tokenizers import DEFAULT
from headprune.scores.ablation import Ablation, cases_of, in_place
from headprune.scores.compute import Watch
from headprune.scores.registry import score_named

LEAST_TRIALS = 10_000
TRIALS_PER_TEST = 50
"""Trials of the randomisation test. Its smallest p-value is about one over their number; with
Holm's correction that must stay below 0.05 for one test per mask.
"""

_UNKNOWN = "UNKNOWN_IN_REFERENCE"

Join = Callable[[Sequence[str]], str]
"""From tokens to text."""


class Translator:
    """Beam search with fairseq's generator.

    Args:
        model: the model to translate with.
        generator: the result of ``task.build_generator``.
        dictionary: the dictionary of the target language.
        join: function that joins target tokens to text.
        tokenizer: sacreBLEU's tokeniser for the target language.
    """

    def __init__(
        self,
        model: FairseqModel,
        *,
        generator: Any,
        dictionary: Any,
        join: Join,
        tokenizer: str = DEFAULT,
    ) -> None:
        self.model = model
        self.generator = generator
        self.dictionary = dictionary
        self.join = join
        self.tokenizer = tokenizer

    @torch.no_grad()
    def translate(self, batch: Batch) -> list[str]:
        """The best hypothesis of each sentence, as text."""
        hypotheses_by_sentence = self.generator.generate([self.model.model], batch)
        return [self.text(hypotheses[0]["tokens"]) for hypotheses in hypotheses_by_sentence]

    def text(self, tokens: Tensor) -> str:
        """Text of token numbers, without </s> and padding."""
        special = {self.dictionary.eos(), self.dictionary.pad()}
        return self.join([self.dictionary[n] for n in tokens.tolist() if n not in special])

    def reference(self, tokens: Tensor) -> str:
        """The same for a reference, in which an unknown word matches no other word."""
        known = [n for n in tokens.tolist() if n != self.dictionary.pad()]
        words = [_UNKNOWN if n == self.dictionary.unk() else self.dictionary[n] for n in known]
        return self.join([word for word in words if word != self.dictionary.eos_word])


def bleu_ablation(
    translator: Translator,
    batches: Sequence[Batch],
    *,
    kinds: Sequence[str],
    components: Sequence[str] = HEADS,
    watch: Watch = lambda steps, *_: steps,
) -> dict[str, Ablation]:
    """Measure the drop in BLEU for each mask, tested by paired approximate randomisation.

    BLEU is computed on detokenised text, with the data's target sides as references.

    Args:
        translator: the beam search; its model is evaluated without dropout.
        batches: batches with targets.
        kinds: some of ``headprune.scores.names.ABLATIONS``.
        components: those whose units are masked.
        watch: function that wraps the masks, given their number, for a progress bar.

    Raises:
        DataError: no data.
    """
    if not batches:
        raise DataError("no example to compute scores on")
    scored = translator.model
    references = [translator.reference(row) for batch in batches for row in batch["target"]]
    result = {}
    with scored.evaluating():
        encoded = _Encoded(scored)
        base = [text for batch in batches for text in encoded.during(translator, batch)]
        for kind in kinds:
            scorable = [name for name in components if name in score_named(kind).components]
            cases = cases_of(scored, kind, scorable)
            masks = [(place, mask) for place, each in cases.items() for mask in each]
            translations = []
            for (component, layer), mask in watch(iter(masks), len(masks), f"{kind} by BLEU"):
                with _masked(scored, component, layer, mask):
                    translations.append(
                        [
                            text
                            for batch in batches
                            for text in (
                                translator.translate(batch)
                                if side_of(component) == "encoder"
                                else encoded.during(translator, batch)
                            )
                        ]
                    )
            result[kind] = _compare(
                scored,
                base,
                translations,
                references,
                cases,
                components=scorable,
                tokenizer=translator.tokenizer,
            )
    return result


def _masked(
    scored: FairseqModel, component: str, layer: int, mask: frozenset[int]
) -> AbstractContextManager[None]:
    """Within it, the units of ``mask`` alone are on in a sub-layer; or a whole layer is off."""
    if component in LAYERS:
        return gated_layers([(scored.layers[component][layer], torch.tensor(float(0 in mask)))])
    sublayer = scored.sublayers[component][layer]
    unit_mask = torch.tensor([float(unit in mask) for unit in range(sublayer.units)])
    return gated([(sublayer, unit_mask)])


class _Encoded:
    """The encoder's outputs, by batch."""

    def __init__(self, scored: FairseqModel) -> None:
        self.encoder = scored.model.encoder
        self.outputs: dict[int, Any] = {}

    def during(self, translator: Translator, batch: Batch) -> list[str]:
        """Translate; the encoder output of a batch is computed only once."""
        run = self.encoder.forward

        def forward(*inputs: Any, **options: Any) -> Any:
            if id(batch) not in self.outputs:
                self.outputs[id(batch)] = run(*inputs, **options)
            return self.outputs[id(batch)]

        self.encoder.forward = forward
        try:
            return translator.translate(batch)
        finally:
            del self.encoder.forward


def _compare(
    scored: FairseqModel,
    base: list[str],
    translations: list[list[str]],
    references: list[str],
    cases: Mapping[tuple[str, int], Sequence[frozenset[int]]],
    *,
    components: Sequence[str],
    tokenizer: str,
) -> Ablation:
    from headprune.results.stats import paired_randomisation

    trials = max(LEAST_TRIALS, TRIALS_PER_TEST * len(translations))
    test = paired_randomisation(base, translations, references, trials=trials, tokenizer=tokenizer)
    drops: dict[tuple[str, int], list[float]] = {}
    p_values: dict[tuple[str, int], list[float]] = {}
    done = 0
    for place, masks in cases.items():
        score_range = slice(done, done + len(masks))
        drops[place] = [test.base - score for score in test.scores[score_range]]
        p_values[place] = list(test.p_values[score_range])
        done += len(masks)
    return Ablation(
        base=test.base,
        drops=in_place(scored, drops, components),
        p_values=in_place(scored, p_values, components),
    )
