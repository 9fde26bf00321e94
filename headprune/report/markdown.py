"""How figures and tables are written down."""

from __future__ import annotations

from collections.abc import Sequence

from headprune.stats import Spread

SIGNIFICANCE_LEVEL = 0.05


def markdown_rows(cells: Sequence[Sequence[str]]) -> list[str]:
    """The lines of a Markdown table, padded to be read as they are; the first row is the header."""
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


def signed(value: float | None) -> str:
    """A difference, with its sign; nothing where there is none."""
    return "" if value is None else f"{value:+.2f}"


def significant(p_values: Sequence[float]) -> str:
    """How many tests out of how many reject equality; nothing where there was none."""
    if not p_values:
        return ""
    return f"{sum(p < SIGNIFICANCE_LEVEL for p in p_values)} of {len(p_values)}"


def mean_and_sd(value: Spread) -> tuple[str, str | None]:
    """Both with four digits, for spreadsheets."""
    return f"{value.mean:.4f}", None if value.sd is None else f"{value.sd:.4f}"
