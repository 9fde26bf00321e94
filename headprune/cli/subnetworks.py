"""The command `headprune subnetworks`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from headprune.backends import backend_of
from headprune.cli.options import (
    MaxExamples,
    TaskModelOptions,
    kinds_of_models,
    parse_components,
    with_option_groups,
)
from headprune.cli.progress import progress
from headprune.errors import UsageError
from headprune.locks import locked_folder

app = typer.Typer(add_completion=False)


@app.command()
@with_option_groups
def subnetworks(
    models: Annotated[
        list[Path],
        typer.Argument(
            metavar="MODEL...",
            help="Fine-tunings of one model with different seeds, on one task: each is "
            f"{kinds_of_models()}.",
        ),
    ],
    output: Annotated[
        Path,
        typer.Option(
            "--output",
            "-o",
            help="Folder for plans, records, tables and the heat map; a run that was interrupted "
            "resumes there.",
        ),
    ],
    threshold: Annotated[
        float,
        typer.Option(
            help="Percentage of the unpruned model's metric to stay at or above. For perplexity, "
            "loss and mse: the unpruned model's value divided by the pruned model's, in percent, "
            "must be at least this."
        ),
    ] = 90.0,
    step: Annotated[
        float,
        typer.Option(help="Percentage of the heads (and of the MLPs) that a step prunes."),
    ] = 10.0,
    score: Annotated[
        str, typer.Option(help="Score to rank heads by; see `headprune scores --help`.")
    ] = "gradient",
    components: Annotated[
        str | None,
        typer.Option(
            help="Components that are pruned, with commas: heads ES,ED,DS, and MLPs EF,DF, each as "
            "a whole.",
            show_default="all heads",
        ),
    ] = None,
    restart_from: Annotated[
        Path | None,
        typer.Option(
            help="The model that the models were fine-tuned from: fine-tuning after pruning begins "
            "with its weights, as in Prasanna et al. (2020). Default: it continues from those of "
            "the models.",
        ),
    ] = None,
    max_examples: MaxExamples = None,
    title: Annotated[str | None, typer.Option(help="Title of the tables and figures.")] = None,
    *,
    options: TaskModelOptions,
) -> None:
    """Find good, random and bad sub-networks of several fine-tunings of one model.

    Heads are pruned in steps, by a score that is computed again after each step, as long as the
    metric is at least --threshold percent of the unpruned model's. The survivors are the good
    sub-network. The random and the bad sub-network have the same number of heads. The bad one
    consists of heads that did not survive, the least important first. Each is measured right after
    pruning and, with --epochs or --finetune, after further fine-tuning (Prasanna et al. 2020).

    With --components ES,EF, MLPs are pruned too, each as a whole, by the gradient of one gate of
    all its neurons. A step then prunes both; after one below the threshold, heads alone are pruned
    further, and then MLPs alone.

    Scores are computed on one half of the held-out examples (of the validation set for
    checkpoints), the metric that ends the pruning on the other half, and the reported one on the
    development or the test set. --max-examples limits both halves.

    Writes subnetworks.md, .csv and .json with the overlap of the models' survivors beside its
    chance level; survival.png, the number of models in which each head survives; the plans, in
    plans/seedN; and a record of each measurement, in records. `headprune overlap` compares tasks.

    Example:

      headprune subnetworks runs/seed1/model runs/seed2/model runs/seed3/model --task entailment
      --data-dir runs/glue/entailment/data --components ES,EF -o subnetworks
    """
    from headprune.report.render import save
    from headprune.subnetworks.report import document_of, findings
    from headprune.subnetworks.run import find_subnetworks
    from headprune.subnetworks.search import Rules

    rules = Rules(score=score, threshold=threshold, step=step)
    names = None if components is None else parse_components(components)
    if restart_from is not None and backend_of(restart_from) is not backend_of(models[0]):
        raise UsageError(f"--restart-from {restart_from}: of another library than {models[0]}")
    with locked_folder(output):
        found = find_subnetworks(
            [
                backend_of(path).task_model(
                    path,
                    output=output,
                    finetune=False,
                    max_examples=max_examples,
                    watch=progress,
                    given=options.given(),
                )
                for path in models
            ],
            rules=rules,
            folder=output,
            components=names,
            restart_from=restart_from,
            say=lambda message: print(message, file=sys.stderr, flush=True),
        )
        document = document_of(found, title=title or f"Sub-networks of {models[0]}")
        save(document, output, name="subnetworks")
        for sentence in findings(found):
            print(sentence)
        print(f"{output / 'subnetworks.md'}, {output / 'survival.png'}")
