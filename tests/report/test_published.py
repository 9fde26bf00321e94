"""The published tables come out to the byte from what they were made of."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from headprune.compare.saved import load_report
from headprune.errors import UsageError
from headprune.report.changes import document as document_of_changes
from headprune.report.claims import claims_document
from headprune.report.make import make_report
from headprune.report.render import html, json_values, markdown, spreadsheet
from headprune.results.changes import Changes, read_changes
from headprune.results.record import Record
from headprune.results.record_files import files_of_records
from headprune.scores import HeadScores
from studies.published import PAGES, unpack
from studies.published import main as make_pages
from studies.published import report as published_report

PUBLISHED = Path(__file__).parents[2] / "docs" / "results"
STUDY = Path(__file__).parent / "translation_study"
COMPARISONS = Path(__file__).parent / "comparisons"


def text(path: Path) -> str:
    return path.read_bytes().decode()


def test_the_table_of_a_translation_study() -> None:
    """`translation_study` was written by the first version of the record format."""
    files = [STUDY / name for name in json.loads(text(STUDY / "order.json"))]
    report = make_report(files, title="Made up", paper=["table1:en-ru"])
    assert report.markdown == text(STUDY / "table.md")
    assert spreadsheet.render(report.document) == text(STUDY / "table.csv")
    assert json_values.render(report.document) == text(STUDY / "table.json")


def test_the_table_on_glue(tmp_path: Path) -> None:
    folder = PUBLISHED / "glue"
    unpack(folder / "runs.tar.gz", tmp_path)
    expected = json.loads(text(folder / "table.json"))
    rows = [("control", "none"), *((row["label"], row["form"]) for row in expected["rows"])]
    order = {name: number for number, name in enumerate(rows)}
    files = []
    for path in tmp_path.glob("models/*/*/*/*/result.json"):
        content = json.loads(text(path))
        task = list(expected["tasks"]).index(content["task"])
        files.append((task, order[content["row"], content["form"]], content["seed"], path))
    assert len(files) == 156
    paper = [name.replace(" ", "") for name in expected["paper"]["tables"]]
    report = make_report([path for *_, path in sorted(files)], title=expected["title"], paper=paper)
    assert report.markdown == text(folder / "table.md")
    assert spreadsheet.render(report.document) == text(folder / "table.csv")
    assert has_all_of(json.loads(json_values.render(report.document)), expected)


def test_the_claims_on_glue(tmp_path: Path) -> None:
    folder = PUBLISHED / "glue"
    unpack(folder / "runs.tar.gz", tmp_path)
    expected = json.loads(text(folder / "claims.json"))
    document = claims_document(
        [(path, Record.load(path)) for path in sorted(tmp_path.glob("models/*/*/*/*/result.json"))],
        changes=read_changes(folder / "changes.json"),
        title=expected["title"],
    )
    assert markdown.render(document) == text(folder / "claims.md")
    assert spreadsheet.render(document) == text(folder / "claims.csv")


def test_the_claim_on_one_head_in_a_layer() -> None:
    folder = PUBLISHED / "scores" / "multi30k-one-head"
    document = claims_document(
        [],
        scores=[HeadScores.load(folder / split / "alone.json") for split in ("valid", "test")],
        title=json.loads(text(folder / "claims.json"))["title"],
    )
    assert markdown.render(document) == text(folder / "claims.md")
    assert spreadsheet.render(document) == text(folder / "claims.csv")


@pytest.mark.parametrize("name", ["sst2", "multi30k-gradients", "multi30k", "multi30k-DS"])
def test_the_tables_of_a_comparison(name: str) -> None:
    """The Markdown of the last two is older than the tests; COMPARISONS has it with them."""
    folder = PUBLISHED / "scores" / name
    expected = json.loads(text(folder / "compare.json"))
    later = COMPARISONS / f"{name}.md"
    if later.exists():
        del expected["claims"]
    title, report = load_report(folder)
    assert title == expected["title"]
    assert report.markdown(title=title) == text(later if later.exists() else folder / "compare.md")
    document = report.document(title=title)
    assert spreadsheet.render(document) == text(folder / "compare.csv")
    assert has_all_of(json.loads(json_values.render(document)), expected)


def test_the_claims_on_all_studies(tmp_path: Path) -> None:
    folder = PUBLISHED / "all-claims"
    command = re.search(
        r"^headprune claims (.*) --changes", text(folder / "README.md"), re.MULTILINE
    )
    assert command is not None
    results = []
    for word in command[1].replace("--study ", "").split():
        name, is_named, named_folder = word.partition("=")
        records = named_folder or name
        archive = records.partition("/")[0]
        if not (tmp_path / archive).exists():
            unpack(PUBLISHED / archive / "runs.tar.gz", tmp_path / archive)
        for path in files_of_records([tmp_path / records]):
            record = Record.load(path)
            results.append((path, replace(record, study=name) if is_named else record))
    document = claims_document(
        results,
        changes=read_changes(PUBLISHED / "glue" / "changes.json"),
        scores=[
            HeadScores.load(PUBLISHED / path)
            for path in re.findall(r"--scores (\S+)", text(folder / "README.md"))
        ],
        title="Claims on all published studies",
        test=False,
    )
    assert markdown.render(document) == text(folder / "claims.md")
    assert spreadsheet.render(document) == text(folder / "claims.csv")


def test_the_table_of_changes() -> None:
    folder = PUBLISHED / "glue"
    models = json.loads(text(folder / "changes.json"))["models"]
    changes = [Changes(label=model["label"], components=model["heads"]) for model in models]
    title = text(folder / "changes.md").splitlines()[0].removeprefix("# ")
    document = document_of_changes(changes, title=title)
    assert markdown.render(document) == text(folder / "changes.md")
    assert spreadsheet.render(document) == text(folder / "changes.csv")
    assert json_values.render(document) == text(folder / "changes.json")


@pytest.mark.parametrize(
    "name",
    [
        name
        if name in ("multi30k", "glue-mean", "scores/multi30k-DS")
        else pytest.param(name, marks=pytest.mark.slow)
        for name in PAGES
    ],
)
def test_the_pages(name: str, tmp_path: Path) -> None:
    """All but the figures, whose coordinates depend on matplotlib's version, and the claims."""
    folder = PUBLISHED / name
    page = published_report(PAGES[name], scratch=tmp_path).page
    assert without_claims(markdown.render(page)) == without_claims(text(folder / "report.md"))
    assert without_drawings(html.render(page)) == without_drawings(text(folder / "report.html"))
    assert len(text(folder / "report.html").encode()) < 3_000_000
    for image in re.findall(r"!\[[^]]*\]\(([^)]*)\)", text(folder / "report.md")):
        assert (folder / image).is_file()


def without_drawings(page: str) -> str:
    """A page with the descriptions of its figures in their places, and without its claims."""
    page = re.sub('<section aria-labelledby="claims">.*?</section>', "", page, flags=re.DOTALL)
    return re.sub(r'<svg[^>]*aria-label="([^"]*)".*?</svg>', r"[\1]", page, flags=re.DOTALL)


def without_claims(text: str) -> str:
    """Markdown without the claims, which have a test of their own."""
    return re.sub("\n### Claims\n.*?\n## ", "\n## ", text, flags=re.DOTALL)


def has_all_of(content: Any, expected: Any) -> bool:
    """Tell if JSON has every expected value; objects may have more fields."""
    if isinstance(expected, dict):
        return isinstance(content, dict) and all(
            name in content and has_all_of(content[name], value) for name, value in expected.items()
        )
    if isinstance(expected, list):
        return (
            isinstance(content, list)
            and len(content) == len(expected)
            and all(map(has_all_of, content, expected))
        )
    return bool(content == expected)


def test_a_folder_without_a_page_is_refused_before_any_page_is_made() -> None:
    before = (PUBLISHED / "multi30k" / "report.html").stat().st_mtime_ns
    with pytest.raises(UsageError, match="nowhere: no page of docs/results; there are mult"):
        make_pages(["multi30k", "nowhere"])
    assert (PUBLISHED / "multi30k" / "report.html").stat().st_mtime_ns == before
