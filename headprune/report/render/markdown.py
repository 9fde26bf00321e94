"""Documents as Markdown, for reading. A document's own figures are left out: they are files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from headprune.report.document import (
    Block,
    Commands,
    Document,
    Figure,
    HeadGrid,
    Notes,
    Section,
    Signatures,
    Table,
)

SUFFIX = ".md"


def render(document: Document) -> str:
    """Title and blocks, with a line between any two."""
    parts = [f"# {document.title}", *_parts(document.blocks, level=2)]
    return "\n\n".join(part for part in parts if part) + "\n"


def _parts(blocks: Sequence[Block], *, level: int) -> Iterator[str]:
    """The text of each block; sections are headings and the blocks below them."""
    for block in blocks:
        if isinstance(block, Section):
            yield f"{'#' * level} {block.title}"
            yield from _parts(block.blocks, level=level + 1)
        else:
            yield "\n".join(_lines(block))


def _lines(block: Block) -> list[str]:
    if isinstance(block, Notes):
        return [f"- {item}" for item in block.items]
    if isinstance(block, Signatures):
        return ["Signatures:", "", "```", *block.lines, "```"]
    if isinstance(block, Commands):
        caption = [block.caption, ""] if block.caption else []
        return [*caption, "```", *block.lines, "```"]
    if isinstance(block, HeadGrid):
        plans = [[model.row, str(model.seed), model.counts] for model in block.models]
        return _table([["model", "seed", "heads kept in each layer, layer 0 first"], *plans])
    if isinstance(block, Figure):
        caption = ["", block.caption] if block.caption else []
        return [f"![{_alt(block.alt)}]({block.name}.svg)", *caption]
    assert isinstance(block, Table)
    caption = [block.caption, ""] if block.caption else []
    return [*caption, *_table([[column.name for column in block.columns], *block.texts()])]


def _table(cells: Sequence[Sequence[str]]) -> list[str]:
    """The lines of a table, padded so that columns align; the first row is the header."""
    cells = [[_cell(text) for text in row] for row in cells]
    widths = [max(3, *(len(row[i]) for row in cells)) for i in range(len(cells[0]))]
    # The label to the left, figures to the right.
    lines = [
        "| "
        + " | ".join(
            cell.ljust(width) if i == 0 else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        + " |"
        for row in cells
    ]
    rule = "| " + " | ".join(
        "-" * w if i == 0 else "-" * (w - 1) + ":" for i, w in enumerate(widths)
    )
    return [lines[0], rule + " |", *lines[1:]]


def _cell(text: str) -> str:
    """The text of a cell, in which a bar or a new line would end the cell or the row."""
    return " ".join(text.split("\n")).replace("|", "\\|")


def _alt(text: str) -> str:
    return text.replace("[", "\\[").replace("]", "\\]")
