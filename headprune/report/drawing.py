"""Common style of all figures, and functions to write them."""

from __future__ import annotations

import io
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headprune.errors import needing
from headprune.files import atomic_path
from headprune.results.stats import Spread

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe and Ito's colours, which colour-blind readers can tell apart.
BLUE, ORANGE, GREEN, PURPLE, SKY, AMBER, DARK, GREY = (
    *("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00"),
    *("#333333", "#888888"),
)
COLOURS = BLUE, ORANGE, GREEN, PURPLE, SKY, AMBER
MARKERS = "osD^vPX<>*hp"

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


def line_style(number: int, *, with_dark: bool = False) -> dict[str, Any]:
    """The colour, the marker and the dashes of one of a figure's lines, for ``pyplot.plot``.

    The markers differ for the first 12 lines; a second line of one colour is dashed.

    Args:
        number: the number of the line, from 0.
        with_dark: ``DARK`` is a colour of these lines, too.
    """
    colours = (*COLOURS, DARK) if with_dark else COLOURS
    return {
        "color": colours[number % len(colours)],
        "marker": MARKERS[number % len(MARKERS)],
        "linestyle": "-" if number < len(colours) else "-.",
    }


_TEXT_AS_TEXT: dict[Any, Any] = {"svg.fonttype": "none"}


def save_drawing(draw: Callable[[], Figure], *, png: Path | None, svg: Path) -> None:
    """Call `draw` with the common style and write the figure as PNG (150 dots an inch) and SVG.

    Without ``png``, as SVG alone.

    Raises:
        UsageError: matplotlib is not installed.
    """
    with _drawn(draw) as figure:
        for path, options in ((png, {"dpi": 150}), (svg, {"metadata": {"Date": None}})):
            if path is None:
                continue
            with atomic_path(path) as temporary:
                figure.savefig(temporary, format=path.suffix[1:], bbox_inches="tight", **options)


def svg_with_text(draw: Callable[[], Figure]) -> str:
    """Call `draw` with the common style; returns an SVG file whose letters are text, not outlines.

    Raises:
        UsageError: matplotlib is not installed.
    """
    with _drawn(draw, _TEXT_AS_TEXT) as figure:
        file = io.StringIO()
        figure.savefig(
            file, format="svg", bbox_inches="tight", transparent=True, metadata={"Date": None}
        )
    return file.getvalue()


@contextmanager
def _drawn(draw: Callable[[], Figure], style: Mapping[Any, Any] | None = None) -> Iterator[Figure]:
    """The figure in the common style, in which it is also to be written."""
    # fairseq sets the log level of every library to DEBUG.
    logging.getLogger("matplotlib").setLevel(logging.WARNING)
    with needing("drawing figures needs matplotlib", install="pip install matplotlib"):
        import matplotlib

        matplotlib.use("Agg")
        from matplotlib import pyplot

    with pyplot.style.context("default"), matplotlib.rc_context({**_STYLE, **(style or {})}):
        figure = draw()
        yield figure
        pyplot.close(figure)


def scale_logarithmically(axes: Axes) -> None:
    """Give the y axis a logarithmic scale, with plain numbers: formulas are not drawn."""
    from matplotlib.ticker import LogFormatter

    axes.set_yscale("log")
    axes.yaxis.set_major_formatter(LogFormatter())
    axes.yaxis.set_minor_formatter(LogFormatter())


def draw_level(
    axes: Axes, value: Spread, *, label: str, linestyle: str = "-", upright: bool = False
) -> None:
    """Draw a reference level: a line at the mean, and a band for the standard deviation."""
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
