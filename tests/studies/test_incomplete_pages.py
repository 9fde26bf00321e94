"""A page that lacks a figure is removed, so that it is made again."""

from __future__ import annotations

from pathlib import Path

from headprune.report.document import Document, Figure
from headprune.report.render import save
from studies.incomplete_pages import remove_incomplete


def draw() -> object:
    from matplotlib import pyplot

    return pyplot.figure()


def test_a_page_goes_with_its_figures(tmp_path: Path) -> None:
    page = tmp_path / "report.md"
    assert not remove_incomplete(page)
    figures = [Figure(name=name, draw=draw, alt=f"({name}) [a]", caption="c") for name in "ab"]
    save(Document(title="t", blocks=figures), tmp_path, name="report")
    assert not remove_incomplete(page) and page.exists()
    (tmp_path / "b.svg").unlink()
    assert remove_incomplete(page) and not page.exists()
