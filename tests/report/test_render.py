"""Documents and their renderers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from matplotlib.figure import Figure as Drawing

from headprune.report import render
from headprune.report.document import Column, Document, Figure, Notes, Signatures, Table
from headprune.report.render import html, json_values, markdown, renderers, save, spreadsheet
from headprune.report.shown import Decimals, Kept, Marked, PValue, rejections, signed
from headprune.results.stats import Spread

DOCUMENT = Document(
    title="Made up",
    blocks=[
        Notes([]),
        Table(
            caption="Figures:",
            columns=[
                *(Column("model"), Column("heads kept"), Column("BLEU"), Column("Δ", signed)),
                Column("p < 0.05", rejections),
            ],
            rows=[
                ["control", Kept(24, 24), Marked(Spread(30.0, None, 1), False), None, None],
                ["50%", Kept(None, 24), Marked(Spread(1.5, 0.25, 3), True), -28.5, (0.01, 0.2)],
            ],
        ),
        Notes(["one", "two"]),
        Signatures(["plan:ES=44|seed:*"]),
    ],
    sheet=Table(
        columns=[Column("model"), Column("mean", Decimals(4)), Column("seeds")],
        rows=[["control", 30.0, None], ["a, b", 1.5, 3]],
    ),
    values={"format": "made-up", "rows": [{"mean": 1.5, "sd": None}], "Δ": -28.5},
    figures=[Figure(name="curve", draw=Drawing, alt="a curve")],
)


def test_markdown_has_tables_notes_and_signatures() -> None:
    assert markdown.render(DOCUMENT) == (
        "# Made up\n"
        "\n"
        "Figures:\n"
        "\n"
        "| model   | heads kept |          BLEU |      Δ | p < 0.05 |\n"
        "| ------- | ---------: | ------------: | -----: | -------: |\n"
        "| control |   24 of 24 |         30.00 |        |          |\n"
        "| 50%     |     varies | 1.50 ± 0.25 † | -28.50 |   1 of 2 |\n"
        "\n"
        "- one\n"
        "- two\n"
        "\n"
        "Signatures:\n"
        "\n"
        "```\n"
        "plan:ES=44|seed:*\n"
        "```\n"
    )


def test_markdown_escapes_what_would_end_a_cell_or_a_description() -> None:
    blocks = [
        Table(columns=[Column("a|b"), Column("n")], rows=[["two\nlines", 1]]),
        Figure(name="curve", draw=Drawing, alt="of [5] heads"),
    ]
    assert markdown.render(Document(title="T", blocks=blocks)) == (
        "# T\n\n| a\\|b      |   n |\n| --------- | --: |\n| two lines |   1 |\n"
        "\n![of \\[5\\] heads](curve.svg)\n"
    )


def test_csv_is_the_sheet_and_json_the_values() -> None:
    assert spreadsheet.render(DOCUMENT) == 'model,mean,seeds\ncontrol,30.0000,\n"a, b",1.5000,3\n'
    assert json.loads(json_values.render(DOCUMENT)) == DOCUMENT.values


def test_a_document_is_saved_in_every_format_with_its_figures(tmp_path: Path) -> None:
    save(DOCUMENT, tmp_path, name="table")
    formats = {".md": markdown, ".csv": spreadsheet, ".json": json_values, ".html": html}
    assert set(renderers()) == set(formats)
    for suffix, module in formats.items():
        assert (tmp_path / f"table{suffix}").read_text() == module.render(DOCUMENT)
    assert (tmp_path / "curve.png").read_bytes().startswith(b"\x89PNG")
    assert "</svg>" in (tmp_path / "curve.svg").read_text()
    assert len(list(tmp_path.iterdir())) == 6


def test_a_new_format_is_one_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "plain_titles.py").write_text(
        'SUFFIX = ".txt"\n\n\ndef render(document):\n    return document.title\n'
    )
    monkeypatch.setattr(render, "__path__", [*render.__path__, str(tmp_path)])
    renderers.cache_clear()
    try:
        save(DOCUMENT, tmp_path / "out", name="table")
    finally:
        renderers.cache_clear()
    assert (tmp_path / "out" / "table.txt").read_text() == "Made up"


def test_a_difference_that_rounds_to_zero_has_one_sign() -> None:
    assert (signed(-0.001), signed(0.0), signed(-0.01)) == ("+0.00", "+0.00", "-0.01")


def test_a_p_value_that_rounds_to_zero_is_shown_as_a_bound() -> None:
    assert [PValue(4)(p) for p in (0.00004, 0.00005, 0.2, 1.0)] == [
        *("< 0.0001", "0.0001", "0.2000", "1.0000")
    ]
