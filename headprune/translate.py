"""Translating lines with an exported model, in CTranslate2."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import ctranslate2

from headprune.errors import DataError, UsageError
from headprune.exported import ExportedModel

_LONGEST_TRANSLATION = 200
"""Tokens; fairseq-generate's default (``--max-len-b``)."""

_BATCHES_AT_ONCE = 16
"""Lines are read so many batches at a time, and sorted by length among them."""


@dataclass(frozen=True, kw_only=True)
class LineTranslator:
    """A model with what turns lines into its tokens and its tokens into lines.

    Attributes:
        split, join: of source lines and translations.
        beam: width of the beam search, which is fairseq-generate's.
        batch_size: sentences translated together.
    """

    translator: ctranslate2.Translator
    model: ExportedModel
    split: Callable[[str], list[str]]
    join: Callable[[Sequence[str]], str]
    beam: int
    batch_size: int

    def translate(self, lines: Iterable[str]) -> Iterator[str]:
        """The translations, in order; an empty line's is empty.

        A line of more tokens than the model has positions is cut, and standard error says so.
        """
        numbered = enumerate(lines, start=1)
        while chunk := list(islice(numbered, self.batch_size * _BATCHES_AT_ONCE)):
            sources = [self._fitting(number, self.split(line)) for number, line in chunk]
            wanted = [number for number, tokens in enumerate(sources) if tokens]
            results = self._results([sources[number] for number in wanted])
            translations = [""] * len(chunk)
            for number, result in zip(wanted, results, strict=True):
                tokens = [token for token in result.hypotheses[0] if token != "<s>"]
                translations[number] = self.join(tokens)
            yield from translations

    def _results(self, sources: list[list[str]]) -> list[ctranslate2.TranslationResult]:
        try:
            results: list[ctranslate2.TranslationResult] = self.translator.translate_batch(
                sources,
                max_batch_size=self.batch_size,
                max_input_length=0,
                beam_size=self.beam,
                max_decoding_length=min(_LONGEST_TRANSLATION, self.model.max_target - 1),
                suppress_sequences=[["<blank>"]],  # fairseq never generates padding either
            )
            return results
        except (RuntimeError, ValueError, MemoryError) as error:
            raise DataError(f"CTranslate2 cannot translate with this model ({error})") from None

    def _fitting(self, number: int, tokens: list[str]) -> list[str]:
        most = self.model.max_source - 1  # </s> is added
        if len(tokens) > most:
            print(
                f"warning: line {number}: {len(tokens)} tokens, cut to the model's {most}",
                file=sys.stderr,
            )
        return tokens[:most]


def load_translator(folder: Path, *, device: str, threads: int) -> ctranslate2.Translator:
    """The model of an exported folder.

    Args:
        device: ``cpu``, ``cuda`` or ``auto``.
        threads: how many batches a CPU translates at a time, each on one core.

    Raises:
        DataError: the folder's files are not a model.
        UsageError: no such device.
    """
    if device == "auto":
        device = "cuda" if ctranslate2.get_cuda_device_count() else "cpu"
    elif device == "cuda" and not ctranslate2.get_cuda_device_count():
        raise UsageError("--device cuda: CTranslate2 finds no GPU")
    parallel = {"inter_threads": threads, "intra_threads": 1} if device == "cpu" else {}
    try:
        return ctranslate2.Translator(str(folder), device=device, **parallel)
    except (RuntimeError, ValueError) as error:
        raise DataError(f"{folder}: CTranslate2 cannot load it ({error})") from None
