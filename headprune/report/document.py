"""Documents: the content of a report, independent of the output format."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from headprune.counts import format_counts

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing


@dataclass(frozen=True)
class Column:
    """A column of a table: its heading, and the function that shows its values as text."""

    name: str
    show: Callable[[Any], str] = str

    def text(self, value: object) -> str:
        """The text of a cell; empty without a value."""
        return "" if value is None else self.show(value)


@dataclass(frozen=True, kw_only=True)
class Table:
    """A table of values.

    Attributes:
        rows: for each row, a value for each column; None where there is none.
        caption: a line above the table; empty without one.
    """

    columns: Sequence[Column]
    rows: Sequence[Sequence[object]]
    caption: str = ""

    def texts(self) -> list[list[str]]:
        """The rows as they are shown."""
        return [
            [column.text(value) for column, value in zip(self.columns, row, strict=True)]
            for row in self.rows
        ]

    def without_empty_columns(self) -> Table:
        """The same without the columns that have no value in any row."""
        filled = [
            place
            for place in range(len(self.columns))
            if any(row[place] is not None for row in self.rows)
        ]
        return replace(
            self,
            columns=[self.columns[place] for place in filled],
            rows=[[row[place] for place in filled] for row in self.rows],
        )


@dataclass(frozen=True)
class Notes:
    """Sentences, one an item: findings, or explanations of tables."""

    items: Sequence[str]


@dataclass(frozen=True)
class Signatures:
    """The signatures of the figures, one per line."""

    lines: Sequence[str]


@dataclass(frozen=True, kw_only=True)
class Figure:
    """A figure.

    Attributes:
        name: the name of its files, without a suffix.
        draw: draws it.
        alt: its content in words, for readers who do not see it.
        caption: a line below the figure; empty without one.
    """

    name: str
    draw: Callable[[], Drawing]
    alt: str
    caption: str = ""


@dataclass(frozen=True)
class Commands:
    """Commands for a terminal, one per line, below a sentence that says what they do."""

    lines: Sequence[str]
    caption: str = ""


Heads = Mapping[str, Sequence[Sequence[float | None]]]
"""For each component, for each layer from the bottom, a number for each head; None without one."""


@dataclass(frozen=True, kw_only=True)
class KeptHeads:
    """The heads that one model keeps.

    Attributes:
        row: the label of its row.
        seed: its seed.
        kept: for each component of the grid, for each layer from the bottom, the heads that it
            keeps.
        value: its figures in words, such as `BLEU 35.81`.
    """

    row: str
    seed: int
    kept: Mapping[str, Sequence[Sequence[int]]]
    value: str = ""

    @property
    def counts(self) -> str:
        """The number of kept heads of each layer: `ES=888444 ED=444888`."""
        return " ".join(
            f"{name}={format_counts([len(heads) for heads in layers])}"
            for name, layers in self.kept.items()
        )


@dataclass(frozen=True, kw_only=True)
class ScoredHeads:
    """The values of one score.

    Attributes:
        name: the name of the score.
        values: the numbers.
        p_values, adjusted: the p-value of each number, as it is and after Holm's correction;
            empty where the numbers are not tested.
        signature: the signature of the score.
    """

    name: str
    values: Heads
    p_values: Heads = field(default_factory=dict)
    adjusted: Heads = field(default_factory=dict)
    signature: str = ""


@dataclass(frozen=True, kw_only=True)
class HeadGrid:
    """Kept heads and scores as grids of layers by heads.

    Attributes:
        heads: for each component, the number of heads in each layer of the unpruned model.
        models: the models to choose from; the first pruned one is shown at first.
        scores: the scores to choose from.
    """

    heads: Mapping[str, Sequence[int]]
    models: Sequence[KeptHeads]
    scores: Sequence[ScoredHeads] = ()


@dataclass(frozen=True, kw_only=True)
class Section:
    """Blocks below a heading of their own; sections may hold sections.

    Attributes:
        title: the heading.
        blocks: the blocks.
        folded: web pages show the heading alone until a reader opens the section.
    """

    title: str
    blocks: Sequence[Block]
    folded: bool = False


Block = Table | Notes | Signatures | Commands | Figure | HeadGrid | Section


@dataclass(frozen=True, kw_only=True)
class Document:
    """The outcome of a study or a comparison.

    Attributes:
        blocks: what a reader sees below the title, in this order.
        sheet: the figures for spreadsheets, one measurement or group of seeds a row; empty in
            documents for readers alone.
        values: all figures for programs, as JSON values; empty in documents for readers alone.
        figures: drawn into files beside the document, besides the figures among the blocks.
    """

    title: str
    blocks: Sequence[Block]
    sheet: Table = field(default=Table(columns=(), rows=()))
    values: Mapping[str, Any] = field(default_factory=dict)
    figures: Sequence[Figure] = field(default=())


def with_own_figures(document: Document) -> list[Block]:
    """The blocks, with the document's own figures below its first table; at the end without one."""
    blocks = list(document.blocks)
    first = next((n for n, block in enumerate(blocks, 1) if isinstance(block, Table)), len(blocks))
    return [*blocks[:first], *document.figures, *blocks[first:]]


def with_inner(blocks: Sequence[Block]) -> Iterator[Block]:
    """The blocks, each section followed by the blocks inside it."""
    for block in blocks:
        yield block
        if isinstance(block, Section):
            yield from with_inner(block.blocks)
