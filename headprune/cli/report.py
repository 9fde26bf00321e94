"""The command `headprune report`."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from headprune.cli.named_folders import parse_folders

app = typer.Typer(add_completion=False)


@app.command()
def report(
    output_dir: Annotated[
        Path,
        typer.Option(
            "--output-dir",
            "-o",
            help="Folder for report.html, report.md and its figures, and for the tables.",
        ),
    ],
    results: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="RESULTS",
            help="Records (result.json), or folders that are searched for them: the run folder of "
            "a study, the folder of a comparison. Also score files (for the grid of heads), "
            "changes.json (figure 2) and the table.json of an earlier report.",
        ),
    ] = None,
    study: Annotated[
        list[str] | None,
        typer.Option(
            help="NAME=FOLDER: the records of a folder are a study of that name; repeatable. It "
            "tells apart studies of one name that begin with different baselines."
        ),
    ] = None,
    title: Annotated[
        str, typer.Option(help="Title of the page, the table and the figure.", show_default="study")
    ] = "",
    paper: Annotated[
        list[str] | None,
        typer.Option(
            help="Table of Budhraja et al. 2020 whose numbers are set beside the results in table "
            "and figure: table1:en-de, table1:en-ru, table2 or table3; for GLUE table4, table5 or "
            "table6. Repeatable. The page sets all of them beside the rows that they have."
        ),
    ] = None,
    test: Annotated[
        bool,
        typer.Option(
            help="Test each model against the control of its seed; each test takes some seconds."
        ),
    ] = True,
) -> None:
    """Gather results into a web page and tables.

    report.html is one file that loads nothing from elsewhere: claims, tables beside the paper's,
    figures 1 and 2, a grid of the heads that each model keeps, training curves, and the commands
    that make the numbers again. report.md is the same as Markdown.

    The records of one study also give table.md, table.csv, table.json, figure.png and figure.svg:
    means and sample standard deviations over the seeds, beside the control (the unpruned model,
    fine-tuned for as long), each with its signature. With records of several studies, each study
    has a folder of its own for them. The tables are also printed on standard output.

    Examples:

      headprune report runs/demo -o runs/demo/report

      headprune report runs/multi30k/finetuned/*/*/result.json --paper table1:en-de -o report

      headprune report runs/multi30k runs/glue comparison scores/gradient.json -o report
    """
    from headprune.report.make import report_of

    named = parse_folders(study or [], option="--study", key="NAME")
    report_files = report_of(
        results or [],
        named=named,
        title=title,
        paper=paper or [],
        test=test,
        command=report_command(
            results or [], named=named, title=title, paper=paper or [], test=test
        ),
    )
    report_files.save(output_dir)
    print(report_files.markdown)


def _shown(path: Path) -> str:
    """A path inside the working folder as it is; of others the name alone."""
    is_inside = path.name and not path.is_absolute() and ".." not in path.parts
    return str(path) if is_inside else path.resolve().name


def report_command(
    results: list[Path],
    *,
    named: Mapping[str, Path] | None = None,
    title: str,
    paper: list[str],
    test: bool,
) -> str:
    """The command that makes a page again; RESULTS stands for more than three folders."""
    names = [_shown(path) for path in results]
    are_clear = len(names) <= 3 and all(names) and len(set(names)) == len(names)
    files = names if are_clear else ["RESULTS"]
    named = named or {}
    folders = [_shown(path) for path in named.values()]
    if len(set(folders)) < len(folders):
        folders = ["FOLDER"] * len(folders)
    return shlex.join(
        [
            *("headprune", "report", *files),
            *(f"--study={name}={path}" for name, path in zip(named, folders, strict=True)),
            *([f"--title={title}"] if title else []),
            *(f"--paper={name}" for name in paper),
            *([] if test else ["--no-test"]),
            *("-o", "report"),
        ]
    )
