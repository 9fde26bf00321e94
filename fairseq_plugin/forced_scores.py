"""Log-probabilities of given translations, by fairseq and by CTranslate2."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ctranslate2
import torch
from fairseq.data.language_pair_dataset import collate
from fairseq.models.transformer import TransformerModel
from torch import Tensor

from fairseq_plugin.ctranslate2_spec import vocabulary
from fairseq_plugin.loading import load_split

_BATCH = 16
_RANDOM_LENGTH = 20


@dataclass(frozen=True)
class Pair:
    """A source and its translation: token numbers, </s> at the end of both."""

    source: Tensor
    target: Tensor


def pairs_of(
    task: Any, model: TransformerModel, *, number: int, data: Path
) -> tuple[list[Pair], str]:
    """Sentence pairs, and where they come from.

    They are spread over the valid or the test set of the task's data; where there is neither,
    they are random tokens.

    Args:
        data: the folder of the data, to begin error messages with.

    Raises:
        DataError: a split that is truncated, damaged, or of another dictionary.
    """
    longest = min(model.max_positions())
    for split in ("valid", "test"):
        try:
            items = load_split(
                task, split, data, choose=lambda size: range(0, size, max(1, size // number))
            )
        except FileNotFoundError:
            continue
        pairs = [
            Pair(item["source"], item["target"])
            for item in items
            if max(len(item["source"]), len(item["target"])) <= longest
        ]
        if pairs:
            return pairs[:number], f"the {split} set"
    return _random_pairs(task, number=number, longest=longest), "random tokens"


def _random_pairs(task: Any, *, number: int, longest: int) -> list[Pair]:
    generator = torch.Generator().manual_seed(1)

    def sentence(dictionary: Any) -> Tensor:
        most = min(_RANDOM_LENGTH, longest - 1)
        length = int(torch.randint(1, most + 1, (1,), generator=generator))
        words = torch.randint(dictionary.nspecial, len(dictionary), (length,), generator=generator)
        return torch.cat([words, torch.tensor([dictionary.eos()])])

    return [
        Pair(sentence(task.source_dictionary), sentence(task.target_dictionary))
        for _ in range(number)
    ]


@torch.no_grad()
def fairseq_scores(model: TransformerModel, pairs: Sequence[Pair]) -> list[list[float]]:
    """The log-probability of each target token and </s>, given the preceding tokens."""
    dictionary = model.decoder.dictionary
    scores: list[list[float]] = [[] for _ in pairs]
    samples = [
        {"id": number, "source": pair.source, "target": pair.target}
        for number, pair in enumerate(pairs)
    ]
    for start in range(0, len(samples), _BATCH):
        batch = collate(
            samples[start : start + _BATCH], pad_idx=dictionary.pad(), eos_idx=dictionary.eos()
        )
        output = model(**batch["net_input"])
        log_probs = model.get_normalized_probs(output, log_probs=True)  # B x T x V
        taken = log_probs.gather(2, batch["target"].unsqueeze(2)).squeeze(2)  # B x T
        for number, row in zip(batch["id"].tolist(), taken, strict=True):
            scores[number] = row[: len(pairs[number].target)].tolist()
    return scores


def ctranslate2_scores(
    folder: Path, model: TransformerModel, pairs: Sequence[Pair]
) -> list[list[float]]:
    """The log-probabilities by the CTranslate2 model in ``folder``, on the CPU.

    Args:
        model: the fairseq model, for its dictionaries.
    """
    level = ctranslate2.get_log_level()
    ctranslate2.set_log_level(logging.ERROR)  # a CPU computes with float16 weights in float32
    translator = ctranslate2.Translator(str(folder), device="cpu")
    ctranslate2.set_log_level(level)
    source, target = (vocabulary(side.dictionary) for side in (model.encoder, model.decoder))
    eos = model.decoder.dictionary.eos()
    results = translator.score_batch(
        [_tokens(pair.source, source, eos) for pair in pairs],
        [_tokens(pair.target, target, eos) for pair in pairs],
        max_batch_size=_BATCH,
        max_input_length=0,
    )
    return [list(result.log_probs) for result in results]


def _tokens(numbers: Tensor, symbols: list[str], eos: int) -> list[str]:
    """Remove </s> at the end, as CTranslate2 adds it."""
    token_numbers = numbers.tolist()
    if token_numbers[-1] == eos:
        token_numbers = token_numbers[:-1]
    return [symbols[number] for number in token_numbers]


@dataclass(frozen=True)
class Difference:
    """Absolute differences of log-probabilities, over all tokens."""

    largest: float
    mean: float

    @classmethod
    def between(cls, one: list[list[float]], other: list[list[float]]) -> Difference:
        """Compute the differences; raises a ValueError if the tokens differ."""
        differences = torch.tensor(
            [
                abs(a - b)
                for one_sentence, other_sentence in zip(one, other, strict=True)
                for a, b in zip(one_sentence, other_sentence, strict=True)
            ]
        )
        # A NaN is a difference, and not one that any comparison finds.
        differences = differences.nan_to_num(nan=float("inf"), posinf=float("inf"))
        return cls(largest=differences.max().item(), mean=differences.mean().item())
