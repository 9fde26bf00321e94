"""Heat maps: a value for each head of a model, layers by heads."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from headprune.report.drawing import save_drawing

if TYPE_CHECKING:
    import numpy as np
    from matplotlib.figure import Figure
    from numpy.typing import NDArray

_COLUMNS = 3
_NARROWEST = 4
"""The number of columns whose room a panel has at least, for its title and labels."""
_PRUNED = "#d0d0d0"

Panel = tuple[str, Sequence[Sequence[float | None]]]
"""A title, and for each layer, from the bottom, a value for each head; None for a pruned head."""


def save_heat_maps(
    panels: Sequence[Panel],
    *,
    title: str,
    label: str,
    png: Path,
    svg: Path,
    columns: int = _COLUMNS,
) -> None:
    """Draw the panels and write them as PNG (150 dots an inch) and SVG."""
    save_drawing(lambda: draw(panels, title=title, label=label, columns=columns), png=png, svg=svg)


def draw(
    panels: Sequence[Panel],
    *,
    title: str,
    label: str,
    columns: int = _COLUMNS,
    limits: tuple[float, float] | None = None,
) -> Figure:
    """Draw one heat map for each panel, with a common colour scale; pruned heads are grey.

    Args:
        panels: the panels to draw.
        title: the title of the figure.
        label: the label of the colour scale: the name of the values.
        columns: the number of panels in a row.
        limits: the ends of the colour scale; None: the smallest and the largest value.
    """
    import numpy as np
    from matplotlib import pyplot
    from matplotlib.colors import Normalize
    from matplotlib.ticker import MaxNLocator

    maps = [_grid(values) for _, values in panels]
    values = np.concatenate([grid[~np.isnan(grid)] for grid in maps])
    if limits is None:
        label += "\n(grey: pruned)"
        limits = (values.min(), values.max()) if values.size else (0.0, 1.0)
    scale = Normalize(*limits)
    columns = min(columns, len(panels))
    rows = -(-len(panels) // columns)
    layers = max(grid.shape[0] for grid in maps)
    widths = [max(grid.shape[1] for grid in maps[place::columns]) for place in range(columns)]
    figure, places = pyplot.subplots(
        rows,
        columns,
        # Not too small for the title and the scale's label.
        figsize=(
            max(8.0, 1.6 + sum(1.1 + 0.26 * heads for heads in widths)),
            max(4.5, 1.0 + rows * (1.1 + 0.26 * layers)),
        ),
        squeeze=False,
        width_ratios=[max(heads, _NARROWEST) for heads in widths],
        layout="constrained",
    )
    colours = pyplot.colormaps["viridis"].with_extremes(bad=_PRUNED)
    for axes in places.flat[len(panels) :]:
        axes.set_visible(False)
    for axes, (name, _), grid in zip(places.flat, panels, maps, strict=False):
        image = axes.imshow(grid, cmap=colours, norm=scale, origin="lower", aspect="equal")
        is_narrow = grid.shape[1] < _NARROWEST
        axes.set_title(name, fontsize=12, loc="left" if is_narrow else "center")
        axes.set_xlabel("head")
        axes.set_ylabel("layer")
        axes.grid(False)
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_locator(MaxNLocator(integer=True, steps=[1, 2, 5, 10]))
        if grid.shape[1] == 1:  # a sub-layer, or a layer, as a whole
            axes.set_xticks([])
            axes.set_xlabel("")
        if is_narrow:  # cells of the same size as in wider panels
            axes.set_xlim(-0.5, _NARROWEST - 0.5)
            axes.spines[:].set_visible(False)
    are_counts = bool((values == values.round()).all())
    ticks = MaxNLocator(integer=True) if are_counts else None
    figure.colorbar(image, ax=places, label=label, shrink=0.8, ticks=ticks)
    figure.suptitle(title)
    return figure


def _grid(values: Sequence[Sequence[float | None]]) -> NDArray[np.float64]:
    """Layers by heads, NaN where there is no value or no head."""
    import numpy as np

    grid = np.full((len(values), max(len(layer) for layer in values)), np.nan)
    for layer, heads in enumerate(values):
        grid[layer, : len(heads)] = [np.nan if value is None else value for value in heads]
    return grid
