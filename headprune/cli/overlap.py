"""The command `headprune overlap`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from headprune.cli.named_folders import parse_folders
from headprune.errors import UsageError
from headprune.files import require_separate

app = typer.Typer(add_completion=False)


@app.command()
def overlap(
    of: Annotated[
        list[str],
        typer.Option(
            help="A task and its folder of `headprune subnetworks`: TASK=FOLDER, repeatable."
        ),
    ],
    output: Annotated[
        Path,
        typer.Option("--output", "-o", help="Folder for the tables and the heat map."),
    ],
    title: Annotated[str, typer.Option(help="Title of the tables and figures.")] = "Survival",
) -> None:
    """Compare the survivors of `headprune subnetworks` over tasks and seeds.

    Writes overlap.md, .csv and .json: the overlap of the models of each task and of each two tasks,
    beside its chance level, and survival.png: for each head (and MLP) the number of tasks in which
    it survives, as the mean over seeds, with deviations.

    Example:

      headprune overlap --of sst2=subnetworks-sst2 --of rte=subnetworks-rte -o overlap
    """
    from headprune.report.render import renderers, save
    from headprune.subnetworks.tasks import document_of_tasks, notes_on_rules, pool_in, read_tasks

    folders = parse_folders(of, option="--of", key="TASK")
    require_separate({"--output": output}, inputs=[*folders.values()])
    for file in ("settings.json", "result.json"):
        if (output / file).exists():
            raise UsageError(
                f"--output {output}: has files of another command ({file}); give another folder"
            )
    by_task = read_tasks(folders)
    task, folder = next(iter(folders.items()))
    pool = pool_in(folder, by_task[task][0])
    notes = notes_on_rules(folders)
    document = document_of_tasks(by_task, title=title, pool=pool, notes=notes)
    save(document, output, name="overlap")
    print(renderers()[".md"](document))
