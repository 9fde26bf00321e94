"""The look that all figures share, and how they are written."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headprune.errors import needing
from headprune.files import atomic_path
from headprune.stats import Spread

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe and Ito's colours, which colour-blind readers can tell apart.
BLUE, ORANGE, GREEN, PURPLE, SKY, AMBER, DARK, GREY = (
    *("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00"),
    *("#333333", "#888888"),
)
_STYLE: dict[Any, Any] = {
    "font.size": 12,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.3,
    "svg.hashsalt": "headprune",  # The same study gives the same file.
    # Titles and labels are text: a dollar sign in one begins no formula.
    "text.parse_math": False,
}


def save_drawing(draw: Callable[[], Figure], *, png: Path, svg: Path) -> None:
    """Call `draw` with the common style and write the figure as PNG (150 dots an inch) and SVG.

    Raises:
        UsageError: matplotlib is not installed.
    """
    # fairseq lets every library say all that it has to say for debugging.
    logging.getLogger("matplotlib").setLevel(logging.WARNING)
    with needing("drawing figures needs matplotlib", install="pip install matplotlib"):
        import matplotlib

        matplotlib.use("Agg")
        from matplotlib import pyplot

    with pyplot.style.context("default"), matplotlib.rc_context(_STYLE):
        figure = draw()
        for path, options in ((png, {"dpi": 150}), (svg, {"metadata": {"Date": None}})):
            with atomic_path(path) as temporary:
                figure.savefig(temporary, format=path.suffix[1:], bbox_inches="tight", **options)
        pyplot.close(figure)


def draw_level(
    axes: Axes, value: Spread, *, label: str, linestyle: str = "-", upright: bool = False
) -> None:
    """What the others are compared with: a line, and a band for its spread where it has one."""
    line = axes.axvline if upright else axes.axhline
    line(value.mean, color=DARK, linestyle=linestyle, label=label)
    if value.sd is not None:
        band = axes.axvspan if upright else axes.axhspan
        band(value.mean - value.sd, value.mean + value.sd, color=DARK, alpha=0.12, linewidth=0)


def over_seeds(what: str, spreads: Iterable[Spread]) -> str:
    """A legend's text that says over how many seeds `what` is the mean."""
    numbers = {value.n for value in spreads}
    if numbers == {1}:
        return f"{what} (one seed)"
    seeds = f"{min(numbers)}" if len(numbers) == 1 else f"{min(numbers)} to {max(numbers)}"
    return f"{what}: mean and standard deviation,\neach of {seeds} seeds"
