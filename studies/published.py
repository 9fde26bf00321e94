"""The pages in docs/results, made of the published records, tables and comparisons.

    python -m studies.published [FOLDER ...]

Each folder receives report.html, report.md and those figures of it that the folder lacks. Without
arguments, all pages are made.
"""

from __future__ import annotations

import argparse
import sys
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from headprune.errors import UsageError, exit_status
from headprune.files import write_text_atomically
from headprune.report.document import Figure, with_inner
from headprune.report.drawing import save_drawing
from headprune.report.make import Report, report_of
from headprune.report.render import html, markdown

RESULTS = Path(__file__).resolve().parents[1] / "docs" / "results"
RECORDS = "runs.tar.gz"
"""The records of a study and the outputs of its models, in the folder of a page."""


@dataclass(frozen=True, kw_only=True)
class Page:
    """A page of docs/results.

    Attributes:
        sources: its files and folders, relative to docs/results.
        paper: the paper's tables whose numbers are in its first table.
        title: its title; if empty, that of its only source.
    """

    sources: Sequence[str]
    paper: Sequence[str] = ()
    title: str = ""


PAGES: Mapping[str, Page] = {
    "multi30k": Page(sources=["multi30k/table.json"]),
    "glue": Page(
        sources=["glue/runs.tar.gz", "glue/changes.json"],
        paper=["table4"],
        title="MiniLM (6 layers) on SST-2 and CoLA, heads pruned at random and by layer",
    ),
    "glue-whole": Page(
        sources=["glue-whole/runs.tar.gz"],
        paper=["table4"],
        title="MiniLM (6 layers) on five tasks of GLUE, the whole training sets of MRPC, CoLA, RTE "
        "and STS-B",
    ),
    "glue-mean": Page(
        sources=["glue-mean/runs.tar.gz"],
        paper=["table4"],
        title="MiniLM (6 layers) on SST-2, classified from the mean of all tokens",
    ),
    "subnetworks": Page(
        sources=["subnetworks/runs.tar.gz"],
        title="MiniLM on SST-2 and STS-B: sub-networks that survive",
    ),
    **{
        f"scores/{name}": Page(sources=[f"scores/{name}/compare.json"])
        for name in ("sst2-tuned", "sst2-right-after", "sst2")
    },
    **{
        name: Page(sources=[f"{name}/compare.json"])
        for name in (
            *("methods", "methods-long", "methods-layers", "methods-speed", "methods-speed-all"),
            "methods-speed-long",
            "attention-guided",
            *("methods-multi30k", "methods-multi30k-speed", "methods-multi30k-shipped"),
            *("methods-multi30k-speed-shipped", "methods-multi30k-layers"),
            *("methods-multi30k-shipped-short", "methods-multi30k-distilled"),
            *("refit/by-speed", "refit/layers"),
        )
    },
    "methods-long-scores": Page(
        sources=[
            "methods-long-scores/compare.json",
            *(f"methods-long-scores/scores/{name}.json" for name in ("shapley", "movement")),
            *(f"methods-long-scores/scores/{name}.json" for name in ("gradient", "ablation")),
        ]
    ),
    **{
        f"scores/multi30k{name}": Page(sources=[f"scores/multi30k{name}/compare.json"])
        for name in ("", "-ES", "-ED", "-DS")
    },
    "scores/multi30k-gradients": Page(
        sources=[
            "scores/multi30k-gradients/compare.json",
            "scores/multi30k-bleu/ablation.json",
            "scores/multi30k-bleu/alone.json",
        ]
    ),
}


def unpack(path: Path, folder: Path) -> None:
    """Unpack an archive of records into a folder."""
    # Python before 3.11.4 has no filters; these archives are the repository's own.
    options: dict[str, Any] = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
    with tarfile.open(path) as archive:
        archive.extractall(folder, **options)


def report(page: Page, *, scratch: Path) -> Report:
    """The report of a page; archives of records are unpacked into ``scratch``."""
    paths = []
    for source in page.sources:
        path = RESULTS / source
        if path.name.endswith(".tar.gz"):
            unpack(path, scratch)
            path = scratch
        paths.append(path)
    return report_of(paths, title=page.title, paper=page.paper)


def main(names: Sequence[str]) -> None:
    """Make the pages of these folders, or all.

    Raises:
        UsageError: a folder has no page; no page is made.
    """
    parser = argparse.ArgumentParser(
        prog="python -m studies.published",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("names", nargs="*", metavar="FOLDER", help=f"one of {', '.join(PAGES)}")
    names = parser.parse_args(names).names
    unknown = [name for name in names if name not in PAGES]
    if unknown:
        raise UsageError(f"{unknown[0]}: no page of docs/results; there are {', '.join(PAGES)}")
    for name in names or PAGES:
        with TemporaryDirectory() as scratch:
            document = report(PAGES[name], scratch=Path(scratch)).page
            for render in (html, markdown):
                path = RESULTS / name / f"report{render.SUFFIX}"
                write_text_atomically(path, render.render(document))
            for figure in with_inner(document.blocks):
                if isinstance(figure, Figure):
                    svg = RESULTS / name / f"{figure.name}.svg"
                    if not svg.exists():
                        save_drawing(figure.draw, png=None, svg=svg)
        print(RESULTS / name / "report.html")


if __name__ == "__main__":
    sys.exit(exit_status(main, sys.argv[1:]))
