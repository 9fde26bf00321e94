"""The command `headprune claims`."""

from __future__ import annotations

import sys
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from headprune.cli.named_folders import named_folders
from headprune.errors import UsageError, needing
from headprune.recovery.kinds import Recovery
from headprune.wording import counted

app = typer.Typer(add_completion=False)


class Training(StrEnum):
    """The recoveries after which models have records of the same kind."""

    FINETUNE = Recovery.FINETUNE
    DISTILL = Recovery.DISTILL
    DISTILL_SEQUENCES = Recovery.DISTILL_SEQUENCES


@app.command()
def claims(
    records: Annotated[
        list[Path] | None,
        typer.Argument(
            help="Records of one study or several, complete or not, from `headprune bleu`, "
            "`headprune glue` or `headprune compare`, or folders with records."
        ),
    ] = None,
    output_dir: Annotated[
        Path | None,
        typer.Option("--output-dir", "-o", help="Folder for claims.md, .html, .csv, .json."),
    ] = None,
    changes: Annotated[
        Path | None,
        typer.Option(
            help="The file changes.json of `headprune changes`, for the claim on changes of heads "
            "in fine-tuning."
        ),
    ] = None,
    scores: Annotated[
        list[Path] | None,
        typer.Option(
            help="A file of `headprune scores`, repeatable: two of the score `alone` on different "
            "examples, for the claim that one head in a layer is enough; roles of heads, for the "
            "claim on specialised heads."
        ),
    ] = None,
    recovery: Annotated[
        Training | None,
        typer.Option(help="Take the models after this recovery, where records are of both."),
    ] = None,
    study: Annotated[
        list[str] | None,
        typer.Option(
            help="NAME=FOLDER: the records of a folder are a study of that name; repeatable, also "
            "with several folders of one study. It tells apart studies of one name that begin with "
            "different baselines."
        ),
    ] = None,
    title: Annotated[str, typer.Option(help="Title of the document.")] = "Claims",
    test: Annotated[
        bool,
        typer.Option(
            help="Test the models that a claim compares on their outputs too; each test takes some "
            "seconds."
        ),
    ] = True,
    not_run: Annotated[
        bool,
        typer.Option(
            "--all", help="Print the claims without rows in these records too; files have them all."
        ),
    ] = False,
) -> None:
    """Decide which claims of papers hold on a set of records.

    Each claim of Budhraja et al. 2020 and of related papers holds, does not hold, or cannot be
    decided by these records. The table gives effect, interval, number of seeds, p-value after
    correction for the number of claims, and the smallest effect that would have been found. It is
    also printed on standard output. Claims whose rows are missing are in the files, and with --all
    on standard output, with the command that makes the rows. docs/claims.md explains the rules.
    """
    with needing("claims need scipy", install="pip install scipy"):
        import scipy.stats  # noqa: F401
    from headprune.claims.outcome import Outcome
    from headprune.claims.recoveries import after_recovery
    from headprune.claims.single_heads import require_comparable
    from headprune.report.claims import assess, document_of
    from headprune.report.render import renderers, save
    from headprune.results.changes import read_changes
    from headprune.results.record import Record
    from headprune.results.record_files import files_of_records
    from headprune.scores.head_scores import HeadScores

    folders = named_folders(study or [], option="--study", key="NAME")
    if not records and not folders and not scores:
        raise UsageError("give records, or folders with records")
    results = [(path, Record.load(path)) for path in files_of_records(records or [])]
    for name, folder in folders:
        results += [
            (path, replace(Record.load(path), study=name)) for path in files_of_records([folder])
        ]
    of_heads = [HeadScores.load(path) for path in scores or []]
    require_comparable(of_heads)
    assessed, all_runs = assess(
        after_recovery(results, recovery),
        changes=() if changes is None else read_changes(changes),
        scores=of_heads,
        test=test,
    )
    if output_dir is not None:
        save(document_of(assessed, all_runs, title=title), output_dir, name="claims")
    print(renderers()[".md"](document_of(assessed, all_runs, title=title, not_run=not_run)))
    if scores and not any(each.claim.on_scores and each.runs is not None for each in assessed):
        print(
            "note: --scores: no claim is decided by these files. One head in a layer needs two of "
            "`alone`, by bleu or accuracy, of one model; specialised heads need plans by gates, "
            "and the record of the unpruned model",
            file=sys.stderr,
        )
    left_out = sum(each.outcome is Outcome.NOT_RUN for each in assessed)
    if not not_run and 0 < left_out < len(assessed):
        print(
            f"{counted(left_out, 'other claim')} without rows in these records: --all lists them",
            file=sys.stderr,
        )
