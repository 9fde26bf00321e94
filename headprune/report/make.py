"""Reports: the table of a study, and the page of any set of records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from headprune.errors import DataError, UsageError
from headprune.report import glue, translation
from headprune.report.document import Document
from headprune.report.page.compose import page_of
from headprune.report.page.gather import Gathered, gather
from headprune.report.page.material import Material, StudyResult
from headprune.report.render import html, markdown, renderers, save
from headprune.report.table import summarise
from headprune.results.control_tests import Located
from headprune.results.merging import merged
from headprune.results.paper import GLUE_TABLES, paper_glue_table, paper_table
from headprune.results.record import Record
from headprune.results.signature import fields_of
from headprune.results.tasks import TRANSLATION

_PAGE = (html.SUFFIX, markdown.SUFFIX)
"""The formats of a page."""


@dataclass(frozen=True, kw_only=True)
class Report:
    """Studies, comparisons and scores, and the page of all of them.

    Attributes:
        material: the studies, comparisons and scores.
        title: the title of the page; if empty, that of its only study.
        command: the command that makes the page.
        test: test the models that claims compare on the examples of their test set.
    """

    material: Material
    title: str = ""
    command: str = ""
    test: bool = True

    @property
    def document(self) -> Document:
        """The table of the first study."""
        return self.material.studies[0].document

    @property
    def markdown(self) -> str:
        """The tables of all studies as Markdown; the page without any study."""
        documents = [study.document for study in self.material.studies] or [self.page]
        return "\n".join(map(markdown.render, documents))

    @cached_property
    def page(self) -> Document:
        """The document of the page."""
        return page_of(self.material, title=self.title, command=self.command, test=self.test)

    def save(self, folder: Path) -> None:
        """Write the table of each study and the page.

        The table of the only study is table.md, .csv and .json, with its figure beside it; those
        of several studies are in folders with the names of the studies. The page is report.html
        and report.md.
        """
        suffixes = renderers().keys() - {html.SUFFIX}
        studies = [study for study in self.material.studies if study.results]
        names = _folders(studies)
        for study, name in zip(studies, names, strict=True):
            save(study.document, folder / name, name="table", suffixes=suffixes)
        # The figure of the only study is one of the page's too.
        drawn = [f.name for study in studies for f in study.document.figures if names == [""]]
        save(self.page, folder, name="report", suffixes=_PAGE, drawn=drawn)


def make_report(
    paths: Sequence[Path], *, title: str = "", paper: Sequence[str] = (), test: bool = True
) -> Report:
    """Gather the records of one study.

    Args:
        paths: records.
        title: the title of table and figure; if empty, the study's name.
        paper: names of the paper's tables to set beside the results.
        test: test each model against the control of its seed.

    Raises:
        DataError: a file that cannot be read, or records that cannot be in one table.
        UsageError: the paper has no such table on these tasks.
    """
    if not paths:
        raise UsageError("no result file given")
    results = [(path, Record.load(path)) for path in paths]
    first_path, first = results[0]
    for path, record in results:
        if (record.task == TRANSLATION) != (first.task == TRANSLATION):
            raise DataError(
                f"{path}: a result of {record.task}, but {first_path} is one of {first.task}: not "
                "for one table"
            )
    study = _study(results, title=title, paper=paper, test=test)
    return Report(material=Material(studies=[study]), title=title, test=test)


def report_of(
    paths: Sequence[Path],
    *,
    named: Mapping[str, Path] | None = None,
    title: str = "",
    paper: Sequence[str] = (),
    test: bool = True,
    command: str = "",
) -> Report:
    """Gather any set of records, tables, comparisons, changes and scores.

    Args:
        paths: files, or folders that are searched for such files.
        named: see ``gather``.
        title: the title of the page, and of the table and figure of its only study.
        paper: see ``make_report``; a table of GLUE is for the studies on GLUE alone.
        test: see ``make_report``.
        command: the command that makes the page.

    Raises:
        DataError: a file that cannot be read, or records of a study that cannot be in one table.
        UsageError: a folder without results, scores alone, or the paper has no such table.
    """
    if not paths and not named:
        raise UsageError("no result file given")
    gathered = gather(paths, named=named)
    if not (gathered.records or gathered.tables or gathered.comparisons or gathered.changes):
        raise UsageError(
            "scores alone: give the records or the comparison of the model too; an interrupted "
            "comparison has no compare.json until it is complete"
        )
    groups = gathered.studies
    if len(groups) == 1:
        studies = [_study(groups[0], title=title, paper=paper, test=test)]
    else:
        studies = [
            _study(group, title="", paper=_fitting(paper, group), test=test) for group in groups
        ]
    return Report(material=_material(gathered, studies), title=title, command=command, test=test)


def _material(gathered: Gathered, studies: Sequence[StudyResult]) -> Material:
    return Material(
        studies=[*studies, *gathered.tables],
        comparisons=gathered.comparisons,
        changes=gathered.changes,
        scores=gathered.scores,
    )


def _fitting(paper: Sequence[str], group: Sequence[Located]) -> list[str]:
    """The tables of the paper that are on the task of a study."""
    is_translation = group[0][1].task == TRANSLATION
    return [name for name in paper if (name in GLUE_TABLES) != is_translation]


def _study(
    results: Sequence[Located], *, title: str, paper: Sequence[str], test: bool
) -> StudyResult:
    results = merged(results)
    first = results[0][1]
    own_title = title or first.study
    if first.task == TRANSLATION:
        papers = [paper_table(name) for name in paper]
        table = summarise(results, paper=papers, test=test)
        document = translation.document(table, title=own_title, paper=papers)
    else:
        glue_papers = [paper_glue_table(name) for name in paper]
        table = summarise(results, paper=glue_papers, test=test)
        study = glue.study_of(table, results, title=own_title, paper=glue_papers)
        document = glue.document(study)
    name = own_title or _subject(first)
    return StudyResult(title=name, table=table, document=document, results=results)


def _subject(record: Record) -> str:
    """A title for records of no study: the model or the data."""
    fields = fields_of(record.signature)
    return record.model or fields.get("data") or record.task


def _folders(studies: Sequence[StudyResult]) -> list[str]:
    """The folder of each study's table: none for the only one, else its name."""
    if len(studies) == 1:
        return [""]
    names: list[str] = []
    for study in studies:
        name = "".join(c if c.isalnum() or c in "-_." else "-" for c in study.title).strip(".")
        name = name or "study"
        repeated = sum(other == name for other in names)
        names.append(f"{name}-{repeated + 1}" if repeated else name)
    return names
