"""Translate lines of text with a model in any runtime."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeVar, runtime_checkable

from headprune.errors import UsageError

if TYPE_CHECKING:
    import torch

    from data_prep.lib.text import TextProcessing

LONGEST_TRANSLATION = 200
"""Length limit in tokens; the default of fairseq-generate's ``--max-len-b``."""

Source = TypeVar("Source")

BEAM = 5
"""The width of the beam where neither the user nor the model says it."""

_BATCHES_AT_ONCE = 16
"""Number of batches that are read at a time; engines sort their sentences by length."""


@dataclass(frozen=True, kw_only=True)
class EngineSettings:
    """The settings of an engine, in any runtime.

    Attributes:
        device: ``cpu``, ``cuda`` or ``auto``: a GPU where there is one.
        threads: number of cores that a CPU translates on.
        beam: width of the beam search; None: that of the model's own settings, or ``BEAM``. The
            other settings are those of the model, or fairseq-generate's defaults.
        batch_size: number of sentences that are translated together.
        shortlist: a file with the target words to choose among; None: choose among all.
    """

    device: str
    threads: int
    beam: int | None
    batch_size: int
    shortlist: Path | None = None

    @property
    def beam_width(self) -> int:
        """The width of the beam of a model that has no settings of its own."""
        return BEAM if self.beam is None else self.beam


class Translator(Protocol):
    """A model that translates lines of text."""

    def translate(self, lines: Iterable[str]) -> Iterator[str]:
        """Translate lines, in order; the translation of an empty line is empty."""


@runtime_checkable
class TranslatesLines(Protocol):
    """A backend whose models translate lines of text."""

    def line_translator(
        self, path: Path, settings: EngineSettings, *, raw: bool | None, data: Path | None
    ) -> Translator:
        """Load a model.

        Args:
            raw: True for plain text, False for the model's sub-words with spaces between them;
                None: raw where the model knows how its text was prepared.
            data: the folder of the model's data, or of its dictionaries.

        Raises:
            UsageError: the model does not translate, has no such option, or there is no such
                device.
            DataError: the model cannot be read.
        """


class Engine(Protocol):
    """A translation model in a runtime."""

    @property
    def longest_source(self) -> int:
        """The largest number of tokens of a source sentence, without the end token."""

    def knows(self, token: str) -> bool:
        """Tell if the source dictionary has a token."""

    def translate(self, sources: Sequence[list[str]]) -> list[list[str]]:
        """The best translation of each source sentence, which is not empty, as tokens."""


@dataclass(kw_only=True)
class LineTranslator:
    """A translation model with the functions that convert between lines and tokens.

    Attributes:
        engine: translates tokens.
        split: splits a source line into tokens.
        join: joins the tokens of a translation into a line.
        batch_size: number of sentences that are translated together.
        unknown: tokens that the model does not know, in the order of their first occurrence.
        lines_with_unknown: the number of lines with such a token.
        lines: the number of lines translated.
    """

    engine: Engine
    split: Callable[[str], list[str]]
    join: Callable[[Sequence[str]], str]
    batch_size: int
    unknown: dict[str, None] = field(default_factory=dict)
    lines_with_unknown: int = 0
    lines: int = 0

    def translate(self, lines: Iterable[str]) -> Iterator[str]:
        """Translate lines, in order; the translation of an empty line is empty.

        A line that is longer than the model allows is cut, with a warning on standard error. At
        the end a warning says in how many lines words were unknown to the model.
        """
        yield from in_order(
            lines,
            batch_size=self.batch_size,
            prepare=self._prepared,
            translate=lambda sources: map(self.join, self.engine.translate(sources)),
        )
        if self.lines_with_unknown:
            print(f"warning: {self._unknown_message()}", file=sys.stderr)

    def _prepared(self, line_number: int, line: str) -> list[str]:
        """The tokens of a line, cut to the model's length; unknown ones are counted."""
        tokens = self.split(line)
        longest = self.engine.longest_source
        if len(tokens) > longest:
            warn_of_cut(line_number, length=len(tokens), longest=longest)
            tokens = tokens[:longest]
        unknown = [token for token in tokens if not self.engine.knows(token)]
        self.lines += 1
        self.lines_with_unknown += bool(unknown)
        self.unknown.update(dict.fromkeys(unknown))
        return tokens

    def _unknown_message(self) -> str:
        shown = ", ".join(repr(token) for token in islice(self.unknown, 5))
        shown += ", ..." if len(self.unknown) > 5 else ""
        return (
            f"{self.lines_with_unknown} of {self.lines} lines have words that the model does not "
            f"know ({shown}); it reads <unk> there. Text has to be prepared as in training"
        )


def in_order(
    lines: Iterable[str],
    *,
    batch_size: int,
    prepare: Callable[[int, str], Source | None],
    translate: Callable[[list[Source]], Iterable[str]],
) -> Iterator[str]:
    """Translate lines some batches at a time, in order; empty ones have an empty translation.

    Args:
        lines: the source lines.
        batch_size: number of sentences that are translated together.
        prepare: makes the source of a line and its number, from 1; None or empty for an empty line.
        translate: gives the translations of sources that are not empty.
    """
    numbered = enumerate(lines, start=1)
    while chunk := list(islice(numbered, batch_size * _BATCHES_AT_ONCE)):
        sources = [prepare(number, line) for number, line in chunk]
        not_empty = [source for source in sources if source]
        places = [index for index, source in enumerate(sources) if source]
        found = translate(not_empty) if not_empty else ()
        translations = dict(zip(places, found, strict=True))
        yield from (translations.get(index, "") for index in range(len(sources)))


def warn_of_cut(line_number: int, *, length: int, longest: int) -> None:
    """Warn on standard error of a line of ``length`` tokens where a model takes ``longest``."""
    print(
        f"warning: line {line_number}: {length} tokens, cut to the model's {longest}",
        file=sys.stderr,
    )


def line_translator(
    engine: Engine,
    processing: TextProcessing | None,
    *,
    raw: bool | None,
    name: Path,
    batch_size: int,
) -> LineTranslator:
    """Give a model of tokens the functions that convert between them and lines.

    Args:
        processing: how the model's text was prepared; None if that is not known.
        raw: see ``TranslatesLines.line_translator``.
        name: the model's file or folder, for messages.

    Raises:
        UsageError: raw text was asked for, and the preparation is not known.
    """
    if raw and processing is None:
        raise UsageError(
            f"--raw: {name} does not know how its text was prepared; give text that is split into "
            "tokens, and --tokens"
        )
    if raw is False:
        processing = None
    return LineTranslator(
        engine=engine,
        split=processing.splitter() if processing else str.split,
        join=processing.joiner() if processing else " ".join,
        batch_size=batch_size,
    )


def torch_device(device: str) -> torch.device:
    """The place of a model in PyTorch: ``cpu``, ``cuda``, or ``auto``.

    Raises:
        UsageError: PyTorch finds no GPU.
    """
    import torch

    has_gpu = torch.cuda.is_available()
    if device == "cuda" and not has_gpu:
        raise UsageError("--device cuda: PyTorch finds no GPU")
    return torch.device("cuda" if device != "cpu" and has_gpu else "cpu")
