"""The command `headprune finetune`."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headprune.cli.options import (
    DISTILL_FROM,
    HOLD_OUT,
    MAX_TRAIN_EXAMPLES,
    METRIC,
    OVERWRITE,
    STUDY_LABELS,
    THREADS,
    DistillationOptions,
    LabelledDataOptions,
    StudyLabelOptions,
    in_panel,
    with_option_groups,
)
from headprune.errors import UsageError, needing
from headprune.files import require_separate
from headprune.folders import require_outside
from headprune.form import Form
from headprune.locks import locked_folder

if TYPE_CHECKING:
    from headprune.recovery.variant import GateTraining

app = typer.Typer(add_completion=False)

_TRAINING = "Fine-tuning"
_WHILE = "Pruning while training"


@app.command()
@with_option_groups
def finetune(
    model: Annotated[
        str,
        typer.Argument(
            help="The model: a Hugging Face folder with its tokenizer, or a name on the hub. If "
            "the model already has a classifier with the data's number of labels, this classifier "
            "is trained further; otherwise the model gets a new classifier."
        ),
    ],
    output: Annotated[
        Path,
        typer.Option(
            "--output",
            "-o",
            help="Folder for result.json, predictions.tsv and the folder model; an interrupted run "
            "resumes there.",
        ),
    ],
    plan: Annotated[
        Path | None,
        typer.Option(help="Plan of the heads to keep; the model is pruned before it is trained."),
    ] = None,
    form: Annotated[
        Form,
        typer.Option(help="Form of the pruned heads; see `headprune glue --help`."),
    ] = Form.remove,
    metric: Annotated[str | None, METRIC] = None,
    overwrite: Annotated[bool, OVERWRITE] = False,
    epochs: Annotated[
        float, typer.Option(min=0, help="Number of epochs.", rich_help_panel=_TRAINING)
    ] = 3.0,
    batch_size: Annotated[
        int, typer.Option(min=1, help="Batch size.", rich_help_panel=_TRAINING)
    ] = 32,
    learning_rate: Annotated[
        float,
        typer.Option(
            help="Peak learning rate: the rate rises over the first 10% of the updates and falls "
            "to 0.",
            rich_help_panel=_TRAINING,
        ),
    ] = 5e-5,
    seed: Annotated[
        int,
        typer.Option(
            min=0,
            help="Seed of a new classifier's weights, the data order and dropout.",
            rich_help_panel=_TRAINING,
        ),
    ] = 1,
    max_train_examples: Annotated[int | None, in_panel(MAX_TRAIN_EXAMPLES, _TRAINING)] = None,
    hold_out: Annotated[float | None, in_panel(HOLD_OUT, _TRAINING)] = None,
    bf16: Annotated[
        bool,
        typer.Option(
            "--bf16",
            help="Compute in bfloat16 where that is precise enough; for GPUs, and for CPUs that "
            "have instructions for it.",
            rich_help_panel=_TRAINING,
        ),
    ] = False,
    threads: Annotated[int | None, in_panel(THREADS, _TRAINING)] = None,
    tensorboard: Annotated[
        Path | None,
        typer.Option(
            help="Folder for the curves of the training, for TensorBoard: the loss, the learning "
            "rate and, with --gates, the number of open units, once an epoch.",
            rich_help_panel=_TRAINING,
        ),
    ] = None,
    distill_from: Annotated[str | None, DISTILL_FROM] = None,
    gates: Annotated[
        str | None,
        typer.Option(
            help="Components whose units get learned gates, with commas: ES,EF. They are trained "
            "with an L0 penalty (--l0-target or --l0-lambda) and closed after the last epoch.",
            rich_help_panel=_WHILE,
        ),
    ] = None,
    l0_target: Annotated[
        str | None,
        typer.Option(
            help="With --gates, the share of their units to prune: '60%', or of these units' "
            "parameters or FLOPs: '60% of parameters', '60% of flops', '60% of flops at 65 "
            "tokens'.",
            rich_help_panel=_WHILE,
        ),
    ] = None,
    l0_lambda: Annotated[
        float | None,
        typer.Option(
            help="With --gates, instead of --l0-target: the weight of the expected number of open "
            "units in the loss, as in Voita et al. 2019. A higher value leaves fewer units.",
            rich_help_panel=_WHILE,
        ),
    ] = None,
    gates_speed: Annotated[
        float | None,
        typer.Option(
            help="With --gates: the learning rate of the gates in multiples of the weights'. "
            "A short training may need more than the default to close them.",
            show_default="1000",
            rich_help_panel=_WHILE,
        ),
    ] = None,
    layerdrop: Annotated[
        float,
        typer.Option(
            help="LayerDrop: the probability with which each layer is skipped in training, so that "
            "layers can be dropped later.",
            rich_help_panel=_WHILE,
        ),
    ] = 0.0,
    task_name: Annotated[
        str | None,
        typer.Option(
            help="Name of the task. Default: that of the file or data set that is measured on, "
            "and of the column of labels.",
            rich_help_panel=STUDY_LABELS,
        ),
    ] = None,
    *,
    distillation: DistillationOptions,
    labelling: StudyLabelOptions,
    options: LabelledDataOptions,
) -> None:
    """Fine-tune a model on examples of your own: a classifier, language model or translator.

    It is pruned first if there is a plan. Reads texts (or pairs of texts) with labels, with numbers
    to predict or with translations from csv, tsv, jsonl and parquet files and from data sets. The
    names of the labels are kept in the model's config.
    The metrics are measured on --dev after the last epoch; after the
    others the first of them is printed.

    Writes to OUT: result.json (metrics, plan, signature with the files and their fingerprints),
    predictions.tsv (of translations result.hyp.txt), and the folder model, which transformers'
    Auto classes read after `import hf_plugin`.

    Examples:

      headprune finetune bert-base-uncased --train train.csv --dev dev.csv --text review --label
      category -o runs/reviews

      headprune finetune runs/reviews/model --train train.csv --dev dev.csv --text review --label
      category --plan half.json --epochs 1 -o runs/reviews-half

      headprune finetune opus --train train.en,train.de --dev dev.en,dev.de --plan half.json
      --epochs 1 -o runs/opus-half
    """
    from headprune.plan import PruningPlan
    from headprune.recovery.variant import Variant

    models = [Path(name) for name in (model, distill_from) if name is not None]
    require_separate({"--output": output / "model", "--tensorboard": tensorboard}, inputs=models)
    for folder in filter(Path.is_dir, models):
        require_outside(output, folder)
    kept = None if plan is None else PruningPlan.load(plan)
    weights = distillation.distillation(chosen=distill_from is not None, where="--distill-from")
    with needing("headprune finetune needs transformers", install="pip install -e '.[hf]'"):
        from hf_plugin.cli.glue import show_result
        from hf_plugin.finetuning.held_out import part_given
        from hf_plugin.finetuning.run import run
        from hf_plugin.finetuning.settings import Labels, Settings
        from hf_plugin.quiet import quieten
        from hf_plugin.tasks.given import data_given, max_length_given
        from hf_plugin.tasks.own import OwnData
        from hf_plugin.tasks.task import require_dev
    if tensorboard is not None:
        with needing("--tensorboard needs its package", install="pip install -e '.[tensorboard]'"):
            import torch.utils.tensorboard
    import torch

    if threads is not None:
        torch.set_num_threads(threads)
    quieten()
    given = options.given()
    data = data_given(given, model=model, untrained=epochs > 0, metric=metric)
    require_dev(data)
    part = part_given(data, output, max_examples=max_train_examples, hold_out=hold_out)
    settings = Settings(
        task=data.task.name,
        own=data if isinstance(data, OwnData) else None,
        model=model,
        plan=kept,
        form=form.value,
        epochs=epochs,
        batch_size=batch_size,
        learning_rate=learning_rate,
        max_length=max_length_given(given, model=model),
        seed=seed,
        data_dir=given.get("data_dir"),
        max_train_examples=part.max_examples,
        hold_out=part.hold_out,
        bf16=bf16,
        distill_from=distill_from,
        distillation=weights,
        variant=Variant(
            gates=gate_training(gates, l0_target, l0_lambda, gates_speed), layerdrop=layerdrop
        ),
    )
    labels = Labels(**asdict(labelling), task=task_name)
    with locked_folder(output):
        result = run(
            settings, labels, output, overwrite=overwrite, announce=True, tensorboard=tensorboard
        )
    show_result(result, output)


def gate_training(
    gates: str | None, l0_target: str | None, l0_lambda: float | None, speed: float | None
) -> GateTraining | None:
    """The training of gates that the options ask for; None without --gates.

    Raises:
        UsageError: options that cannot be read, or that go with --gates.
    """
    from headprune.budget import Budget
    from headprune.cli.options import parse_components
    from headprune.recovery.variant import GateTraining

    if gates is None:
        if l0_target is not None or l0_lambda is not None:
            raise UsageError("--l0-target and --l0-lambda go with --gates")
        if speed is not None:
            raise UsageError("--gates-speed goes with --gates")
        return None
    return GateTraining(
        components=tuple(parse_components(gates, option="--gates")),
        budget=None if l0_target is None else Budget.parse(l0_target, option="--l0-target"),
        l0_lambda=l0_lambda,
        speed=speed,
    )
