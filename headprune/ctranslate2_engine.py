"""Translate with an exported model in CTranslate2."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import ctranslate2

from headprune.ctranslate2_files import available_device, open_translator, vocabulary
from headprune.errors import DataError
from headprune.exported import ExportedModel
from headprune.shortlist import Shortlist
from headprune.translate import LONGEST_TRANSLATION, EngineSettings

SHORTLIST = "vmap.txt"
"""The file of a model's folder where CTranslate2 looks for a shortlist."""


@dataclass(frozen=True, kw_only=True)
class CTranslate2Engine:
    """An exported model; implements ``headprune.translate.Engine``.

    Attributes:
        translator: the loaded model.
        model: its description.
        vocabulary: the tokens of the source language.
        beam: width of the beam search; its other settings are fairseq-generate's defaults.
        batch_size: number of sentences that are translated together.
        has_shortlist: whether it chooses among the target words of a shortlist.
    """

    translator: ctranslate2.Translator
    model: ExportedModel
    vocabulary: frozenset[str]
    beam: int
    batch_size: int
    has_shortlist: bool = False

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
                use_vmap=self.has_shortlist,
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
    folder: Path,
    model: ExportedModel,
    settings: EngineSettings,
) -> CTranslate2Engine:
    """Load the model of an exported folder.

    Args:
        folder: written by `headprune export --to ctranslate2`.
        model: its description.
        settings: the threads are batches that a CPU translates in parallel, each on one core.

    Raises:
        DataError: the files in the folder are not a CTranslate2 model, or the shortlist is of other
            vocabularies.
        UsageError: there is no such device, or the shortlist is too short for the beam.
    """
    device, shortlist = available_device(settings.device), settings.shortlist
    parallel = {"inter_threads": settings.threads, "intra_threads": 1} if device == "cpu" else {}
    if shortlist is not None:
        check_shortlist(shortlist, folder, beam=settings.beam_width)
    with _with_shortlist(folder, shortlist) as place:
        translator = open_translator(place, device=device, name=folder, **parallel)
    return CTranslate2Engine(
        translator=translator,
        model=model,
        vocabulary=frozenset(vocabulary(folder, "source")),
        beam=settings.beam_width,
        batch_size=settings.batch_size,
        has_shortlist=shortlist is not None,
    )


def check_shortlist(path: Path, folder: Path, *, beam: int | None = None) -> None:
    """Check that a shortlist has words of an exported model alone, and enough for a beam.

    Raises:
        DataError: it has words of other vocabularies, or cannot be read.
        UsageError: it is too short for the beam.
    """
    words = Shortlist.load(path)
    source, target = (frozenset(vocabulary(folder, side)) for side in ("source", "target"))
    words.require_words(source=source.__contains__, target=target.__contains__, name=path)
    if beam is not None:
        words.require_beam(beam, name=path)


@contextmanager
def _with_shortlist(folder: Path, shortlist: Path | None) -> Iterator[Path]:
    """A folder with the model and the shortlist, where CTranslate2 looks for it."""
    if shortlist is None:
        yield folder
        return
    with TemporaryDirectory() as name:
        place = Path(name)
        for file in folder.iterdir():
            (place / file.name).symlink_to(file.absolute())
        (place / SHORTLIST).unlink(missing_ok=True)
        (place / SHORTLIST).symlink_to(shortlist.absolute())
        yield place
