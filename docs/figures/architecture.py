"""Draw docs/figures/architecture.svg and .png: `python docs/figures/architecture.py`."""

from __future__ import annotations

from pathlib import Path

from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.patches import FancyBboxPatch

FOLDER = Path(__file__).parent
COLOURS = {"top": "#dbe9f6", "plugin": "#e3f2df", "core": "#f7ead3", "outside": "#ffffff"}


def box(
    axes: Axes, x: float, y: float, width: float, height: float, title: str, text: str, kind: str
) -> None:
    """A titled box with a few lines of text."""
    style = "--" if kind == "outside" else "-"
    axes.add_patch(
        FancyBboxPatch(
            (x, y),
            width,
            height,
            boxstyle="round,pad=0,rounding_size=0.12",
            facecolor=COLOURS[kind],
            edgecolor="#555555",
            linestyle=style,
        )
    )
    middle = x + width / 2
    axes.text(middle, y + height - 0.22, title, ha="center", va="center", weight="bold", size=10)
    axes.text(middle, y + (height - 0.4) / 2, text, ha="center", va="center", size=8.5)


def arrow(axes: Axes, start: tuple[float, float], end: tuple[float, float], style: str) -> None:
    """An arrow: solid for an import, dashed for an entry point."""
    axes.annotate(
        "",
        xy=end,
        xytext=start,
        arrowprops={"arrowstyle": "-|>", "linestyle": style, "color": "#333333"},
    )


def main() -> None:
    """Draw and save."""
    figure, axes = plt.subplots(figsize=(9.2, 6.2))
    box(axes, 0, 4.9, 4.4, 1.1, "studies/", "Snakefile, one YAML file a study", "top")
    box(axes, 4.8, 4.9, 4.4, 1.1, "headprune/cli/", "one module a command", "top")
    plugins = (
        (0, "fairseq_plugin/", "backend, model, decoding,\nscores, export", "plugin"),
        (3.2, "hf_plugin/", "backend, families, surgery,\nGLUE, scores, export", "plugin"),
        (6.4, "another package", "a backend, command,\nscore or method", "outside"),
    )
    for x, title, text, kind in plugins:
        box(axes, x, 3.0, 2.8, 1.2, title, text, kind)
    parts = (
        (0, "plans", "PruningPlan, Origin\nBudget, cost"),
        (1.86, "choosing", "select/, methods/"),
        (3.72, "models", "model, gates\nsurgery, backends"),
        (5.58, "measuring", "scores/, compare/"),
        (7.44, "results", "results/ records, tests\nreport/ documents"),
    )
    for x, title, text in parts:
        box(axes, x, 0.3, 1.76, 1.4, title, text, "core")
    axes.text(4.6, 1.95, "headprune: the core, which imports no plugin", ha="center", size=9)
    for start, end in ((1.0, 1.0), (4.0, 4.0)):
        arrow(axes, (start, 4.88), (end, 4.22), "-")
    for start, end in ((5.0, 2.4), (6.2, 5.4), (7.8, 7.8)):
        arrow(axes, (start, 4.88), (end, 4.22), "--")
    for x in (1.4, 4.6, 7.8):
        arrow(axes, (x, 2.98), (x, 2.2), "-")
    axes.text(0.9, 4.55, "imports", size=8.5, va="center", ha="right")
    axes.text(7.95, 4.55, "entry points", size=8.5, va="center")
    axes.set_xlim(-0.1, 9.3)
    axes.set_ylim(0.1, 6.1)
    axes.axis("off")
    figure.tight_layout(pad=0.2)
    plt.rcParams["svg.hashsalt"] = "headprune"
    figure.savefig(FOLDER / "architecture.svg", metadata={"Date": None})
    figure.savefig(FOLDER / "architecture.png", dpi=110)


if __name__ == "__main__":
    main()
