"""Translate with an exported model in CTranslate2."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import ctranslate2

from headprune.errors import DataError, UsageError
from headprune.exported import ExportedModel
from headprune.json_files import parse_json
from headprune.translate import LONGEST_TRANSLATION

_VOCABULARIES = ("source_vocabulary.json", "shared_vocabulary.json")


@dataclass(frozen=True, kw_only=True)
class CTranslate2Engine:
    """An exported model; implements ``headprune.translate.Engine``.

    Attributes:
        translator: the loaded model.
        model: its description.
        vocabulary: the tokens of the source language.
        beam: width of the beam search; its other settings are fairseq-generate's defaults.
        batch_size: number of sentences that are translated together.
    """

    translator: ctranslate2.Translator
    model: ExportedModel
    vocabulary: frozenset[str]
    beam: int
    batch_size: int

    @property
    def longest_source(self) -> int:
        """The model's length limit without </s>, which is added."""
        return self.model.max_source - 1

    def knows(self, token: str) -> bool:
        """Tell if the source vocabulary has a token."""
        return token in self.vocabulary

    def translate(self, sources: Sequence[list[str]]) -> list[list[str]]:
        """The best translation of each source sentence.

        Raises:
            DataError: CTranslate2 fails, such as for an empty vocabulary.
        """
        try:
            results = self.translator.translate_batch(
                list(sources),
                max_batch_size=self.batch_size,
                max_input_length=0,
                beam_size=self.beam,
                max_decoding_length=min(LONGEST_TRANSLATION, self.model.max_target - 1),
                suppress_sequences=[["<blank>"]],  # fairseq never generates padding either
            )
        except (RuntimeError, ValueError, MemoryError) as error:
            raise DataError(f"CTranslate2 cannot translate with this model ({error})") from None
        return [
            [token for token in result.hypotheses[0] if token != "<s>"]  # noqa: S105
            for result in results
        ]


def load_engine(
    folder: Path, model: ExportedModel, *, device: str, threads: int, beam: int, batch_size: int
) -> CTranslate2Engine:
    """Load the model of an exported folder.

    Args:
        folder: written by `headprune export --to ctranslate2`.
        model: its description.
        device: ``cpu``, ``cuda`` or ``auto``.
        threads: number of batches that a CPU translates in parallel, each on one core.
        beam, batch_size: see ``CTranslate2Engine``.

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
        translator = ctranslate2.Translator(str(folder), device=device, **parallel)
    except (RuntimeError, ValueError) as error:
        raise DataError(f"{folder}: CTranslate2 cannot load it ({error})") from None
    return CTranslate2Engine(
        translator=translator,
        model=model,
        vocabulary=_vocabulary(folder),
        beam=beam,
        batch_size=batch_size,
    )


def _vocabulary(folder: Path) -> frozenset[str]:
    """The source tokens of a model that CTranslate2 has loaded."""
    for name in _VOCABULARIES:
        path = folder / name
        if path.is_file():
            tokens = parse_json(path.read_text(encoding="utf-8"), source=str(path))
            return frozenset(map(str, tokens))
    raise DataError(f"{folder}: no {' or '.join(_VOCABULARIES)}")
