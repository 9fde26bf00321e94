"""Figures: text is drawn as it is written."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from headprune.report.drawing import save_drawing
from headprune.report.heat_map import save_heat_maps
from headprune.report.make import make_report

from .conftest import Make

TITLES = (r"costs $x_{y", r"a $\frac{1}$ b", r"{half", r"\alpha $ \beta $", "$", "100% of {0} $%")


def heat_maps(title: str, folder: Path) -> None:
    save_heat_maps(
        [(title, [[0.1, None], [0.2, 0.3]])],
        title=title,
        label=title,
        png=folder / "figure.png",
        svg=folder / "figure.svg",
    )


def labels(title: str, folder: Path) -> None:
    def draw():  # type: ignore[no-untyped-def]
        from matplotlib import pyplot

        figure, axes = pyplot.subplots()
        axes.plot([0, 1], [0, 1], label=title)
        axes.set_xticks([0, 1], [title, title])
        axes.set_ylabel(title)
        axes.text(0, 0, title)
        figure.legend()
        figure.suptitle(title)
        return figure

    save_drawing(draw, png=folder / "figure.png", svg=folder / "figure.svg")


@pytest.mark.parametrize("drawing", [heat_maps, labels])
def test_titles_are_no_formulas(drawing: Callable[[str, Path], None], tmp_path: Path) -> None:
    for number, title in enumerate(TITLES):
        drawing(title, tmp_path / str(number))
        assert (tmp_path / str(number) / "figure.png").stat().st_size
        assert (tmp_path / str(number) / "figure.svg").stat().st_size


def test_a_study_with_dollars_in_its_title_and_rows(make: Make, tmp_path: Path) -> None:
    results = [
        make("control", row="control", percent=0, wrong=2),
        make("pruned", row="$x_{y", percent=25, wrong=4),
    ]
    report = make_report([path for path, _ in results], title=TITLES[0], test=False)
    report.save(tmp_path / "report")
    assert (tmp_path / "report" / "figure.svg").stat().st_size
