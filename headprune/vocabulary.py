"""Trimming of vocabularies: tokens that a text never uses are removed from a model.

What is common to all backends: the text, the result, and the pieces that sub-word splitters need to
split kept words as before.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, runtime_checkable

from headprune.errors import DataError
from headprune.files import text_of

_TABLES = (".csv", ".tsv", ".json", ".jsonl", ".parquet")


@dataclass(frozen=True, kw_only=True)
class TokenCounts:
    """Tokens of a text.

    Attributes:
        tokens: their number, special tokens left out.
        unknown: the number of those that are the unknown token.
    """

    tokens: int
    unknown: int

    @property
    def unknown_share(self) -> float:
        """The share of unknown tokens."""
        return self.unknown / self.tokens if self.tokens else 0.0


@dataclass(frozen=True, kw_only=True)
class Trimmed:
    """The outcome of trimming a model's vocabulary.

    Attributes:
        sizes: for each vocabulary by name, the number of entries before and after.
        parameters: the number of parameters before and after.
        held_out: for each vocabulary by name, the tokens of a held-out text before and after, where
            the whole text is split and looked up as text of that vocabulary; empty without a text.
    """

    sizes: Mapping[str, tuple[int, int]]
    parameters: tuple[int, int]
    held_out: Mapping[str, tuple[TokenCounts, TokenCounts]] = field(default_factory=dict)


@runtime_checkable
class TrimsVocabularies(Protocol):
    """A backend whose models' vocabularies can be trimmed."""

    def trim_vocabulary(
        self,
        model: Path,
        output: Path,
        *,
        text: Sequence[str],
        held_out: Sequence[str],
        data: Path | None,
    ) -> Trimmed:
        """Write the model without the tokens that a text never uses.

        Args:
            model: the model's file or folder.
            output: the folder to write, whole or not at all.
            text: lines; of a translation model, of both languages.
            held_out: lines of which tokens are counted; may be empty.
            data: the folder of a checkpoint's dictionaries, if the user gave one.
        """

    def texts_of_table(self, path: Path, columns: tuple[str, ...]) -> Sequence[str]:
        """The texts in some columns of a table.

        Raises:
            UsageError: such models have no use for tables.
            DataError: the table cannot be read, or lacks a column.
        """


def read_lines(paths: Iterable[Path]) -> list[str]:
    """The lines of text files that are not empty.

    Raises:
        DataError: a file that cannot be read, is not UTF-8, or has no text.
    """
    lines: list[str] = []
    for path in paths:
        found = [line for line in text_of(path).splitlines() if line.strip()]
        if not found:
            raise DataError(f"{path}: no text in it")
        lines += found
    return lines


def is_table(path: Path) -> bool:
    """Check by its name if a file has columns, of which some are text."""
    return Path(path.name.removesuffix(".gz")).suffix.lower() in _TABLES


def with_parts(tokens: Iterable[str], pairs: Mapping[str, Collection[tuple[str, str]]]) -> set[str]:
    """Tokens with all tokens that they are merged from (byte-pair encoding).

    Byte-pair encoding applies the best merge of a word again and again. Removing merges that none
    of its tokens is made of leaves every step, and so the word's tokens, as they were.

    Args:
        tokens: the tokens to keep.
        pairs: for each token, the pairs whose merge it is.
    """
    kept: set[str] = set()
    waiting = list(tokens)
    while waiting:
        token = waiting.pop()
        if token not in kept:
            kept.add(token)
            waiting += [part for pair in pairs.get(token, ()) for part in pair]
    return kept


def splits_of(token: str, vocabulary: Collection[str]) -> list[tuple[str, str]]:
    """The pairs of entries of a vocabulary that make up a token."""
    pairs = ((token[:place], token[place:]) for place in range(1, len(token)))
    return [pair for pair in pairs if pair[0] in vocabulary and pair[1] in vocabulary]


def single_characters(
    vocabulary: Iterable[str], used: Iterable[str], *, marks: Sequence[str]
) -> set[str]:
    """The entries for single characters that occur in used tokens, to spell unseen words with.

    Args:
        marks: what an entry may begin with besides the character.
    """
    characters = {character for token in used for character in token}

    def bare(token: str) -> str:
        for mark in marks:
            token = token.removeprefix(mark)
        return token

    return {token for token in vocabulary if len(bare(token)) == 1 and bare(token) in characters}
