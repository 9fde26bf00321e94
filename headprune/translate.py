"""Translate lines of text with an exported model in CTranslate2."""

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
"""Length limit in tokens; the default of fairseq-generate's ``--max-len-b``."""

_BATCHES_AT_ONCE = 16
"""Number of batches that are read at a time; CTranslate2 sorts their sentences by length."""


@dataclass(frozen=True, kw_only=True)
class LineTranslator:
    """A translation model with the functions that convert between lines and tokens.

    Attributes:
        split: splits a source line into tokens.
        join: joins the tokens of a translation into a line.
        beam: width of the beam search; its other settings are fairseq-generate's defaults.
        batch_size: number of sentences that are translated together.
    """

    translator: ctranslate2.Translator
    model: ExportedModel
    split: Callable[[str], list[str]]
    join: Callable[[Sequence[str]], str]
    beam: int
    batch_size: int

    def translate(self, lines: Iterable[str]) -> Iterator[str]:
        """Translate lines, in order; the translation of an empty line is empty.

        A line that is longer than the model allows is cut, with a warning on standard error.
        """
        numbered = enumerate(lines, start=1)
        while chunk := list(islice(numbered, self.batch_size * _BATCHES_AT_ONCE)):
            sources = [self._cut(self.split(line), line_number=number) for number, line in chunk]
            not_empty = [index for index, tokens in enumerate(sources) if tokens]
            results = self._results([sources[index] for index in not_empty])
            translations = [""] * len(chunk)
            for index, result in zip(not_empty, results, strict=True):
                tokens = [token for token in result.hypotheses[0] if token != "<s>"]
                translations[index] = self.join(tokens)
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

    def _cut(self, tokens: list[str], *, line_number: int) -> list[str]:
        longest = self.model.max_source - 1  # </s> is added
        if len(tokens) > longest:
            print(
                f"warning: line {line_number}: {len(tokens)} tokens, cut to the model's {longest}",
                file=sys.stderr,
            )
        return tokens[:longest]


def load_translator(folder: Path, *, device: str, threads: int) -> ctranslate2.Translator:
    """Load the model of an exported folder.

    Args:
        folder: written by `headprune export --to ctranslate2`.
        device: ``cpu``, ``cuda`` or ``auto``.
        threads: number of batches that a CPU translates in parallel, each on one core.

    Raises:
        DataError: the files in the folder are not a CTranslate2 model.
        UsageError: there is no such device.
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
