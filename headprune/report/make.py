"""Which report a set of result files makes: one on translation or one on GLUE."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from headprune.errors import DataError, UsageError
from headprune.files import write_text_atomically
from headprune.json_files import json_object
from headprune.report.glue_results import GlueResult
from headprune.report.paper import paper_glue_table, paper_table
from headprune.report.results import Result


@dataclass(frozen=True, kw_only=True)
class Report:
    """A study's outcome as text, and what draws its figure into a PNG and an SVG file."""

    markdown: str
    csv: str
    json: str
    save_figures: Callable[[Path, Path], None]

    def save(self, folder: Path) -> None:
        """Write table.md, table.csv, table.json, figure.png and figure.svg."""
        write_text_atomically(folder / "table.csv", self.csv)
        write_text_atomically(folder / "table.json", self.json)
        write_text_atomically(folder / "table.md", self.markdown)
        self.save_figures(folder / "figure.png", folder / "figure.svg")


def make_report(
    paths: Sequence[Path], *, title: str = "", paper: Sequence[str] = (), test: bool = True
) -> Report:
    """Gather the result files of one study; their format says on what.

    Args:
        paths: result files.
        title: of table and figure; the study's name where it is empty.
        paper: names of the paper's tables to set beside the results.
        test: test each model against the control of its seed.

    Raises:
        DataError: a file that cannot be read, or files that cannot stand in one table.
        UsageError: the paper has no such table on what the results are of.
    """
    if not paths:
        raise UsageError("no result file given")
    formats = {path: json_object(path).get("format") for path in paths}
    for path, found in formats.items():
        if found != formats[paths[0]]:
            raise DataError(
                f"{path}: a {found}, but {paths[0]} is a {formats[paths[0]]}: not for one table"
            )
    make = _on_glue if formats[paths[0]] == GlueResult.format else _on_translation
    return make(paths, title=title, paper=paper, test=test)


def _on_translation(
    paths: Sequence[Path], *, title: str, paper: Sequence[str], test: bool
) -> Report:
    from headprune.report import figure, table

    loaded = [(path, Result.load(path)) for path in paths]
    made = table.summarise(
        loaded,
        title=title or loaded[0][1].study,
        paper=[paper_table(name) for name in paper],
        test=test,
    )
    return Report(
        markdown=table.to_markdown(made),
        csv=table.to_csv(made),
        json=table.to_json(made),
        save_figures=lambda png, svg: figure.save_figures(made, png=png, svg=svg),
    )


def _on_glue(paths: Sequence[Path], *, title: str, paper: Sequence[str], test: bool) -> Report:
    from headprune.report import glue_figure, glue_table

    loaded = [(path, GlueResult.load(path)) for path in paths]
    made = glue_table.summarise(
        loaded,
        title=title or loaded[0][1].study,
        paper=[paper_glue_table(name) for name in paper],
        test=test,
    )
    return Report(
        markdown=glue_table.to_markdown(made),
        csv=glue_table.to_csv(made),
        json=glue_table.to_json(made),
        save_figures=lambda png, svg: glue_figure.save_figures(made, png=png, svg=svg),
    )
