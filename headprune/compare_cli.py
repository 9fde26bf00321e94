"""The commands `headprune compare` and `headprune iterate`."""

from __future__ import annotations

import json
import shlex
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headprune.errors import UsageError, needing
from headprune.folders import require_outside
from headprune.locks import locked_folder
from headprune.scores_cli import progress, refuse

if TYPE_CHECKING:
    from headprune.compare.iterate import Step
    from headprune.compare.subject import Subject

app = typer.Typer()

_CLASSIFIER, _TRANSLATOR, _CHOICE = "Classifiers", "fairseq checkpoints", "What to compare"

Model = Annotated[
    Path,
    typer.Argument(
        help="A fine-tuned classifier (a Hugging Face folder) or a fairseq checkpoint (.pt)."
    ),
]
Task = Annotated[
    str | None, typer.Option(help="Task of GLUE that it is for.", rich_help_panel=_CLASSIFIER)
]
DataDir = Annotated[
    Path | None,
    typer.Option(
        help="Folder with GLUE's tsv files. Without it: the hub.", rich_help_panel=_CLASSIFIER
    ),
]
Epochs = Annotated[
    float | None,
    typer.Option(
        min=0, help="Fine-tune pruned models for so long; 0: not.", rich_help_panel=_CLASSIFIER
    ),
]
BatchSize = Annotated[
    int | None,
    typer.Option(
        min=1, help="Of fine-tuning. Default: 32.", show_default=False, rich_help_panel=_CLASSIFIER
    ),
]
LearningRate = Annotated[
    float | None,
    typer.Option(
        help="Highest rate of fine-tuning. Default: 2e-5.",
        show_default=False,
        rich_help_panel=_CLASSIFIER,
    ),
]
MaxTrainExamples = Annotated[
    int | None,
    typer.Option(
        min=1, help="Fine-tune on a random subset of so many.", rich_help_panel=_CLASSIFIER
    ),
]
HoldOut = Annotated[
    float | None,
    typer.Option(
        min=0,
        help="Percentage of the training set to fine-tune without; scores and ablation are "
        "computed on it. Default: 10, or 0 with --max-train-examples, which leaves examples out "
        "by itself.",
        show_default=False,
        rich_help_panel=_CLASSIFIER,
    ),
]
MaxLength = Annotated[
    int | None,
    typer.Option(
        min=8,
        help="Tokens of an example, at most. Default: 128.",
        show_default=False,
        rich_help_panel=_CLASSIFIER,
    ),
]
Bf16 = Annotated[
    bool | None, typer.Option("--bf16", help="Fine-tune in bfloat16.", rich_help_panel=_CLASSIFIER)
]
Data = Annotated[
    Path | None,
    typer.Option(
        help="The binarised data. Default: what it was trained on.", rich_help_panel=_TRANSLATOR
    ),
]
Finetune = Annotated[
    str | None,
    typer.Option(
        help="Flags of fairseq-train, in quotes, to fine-tune pruned models with; --arch and the "
        "model's options among them. Without: not.",
        rich_help_panel=_TRANSLATOR,
    ),
]
Metric = Annotated[
    str | None,
    typer.Option(
        help="Of ablation: loss (default), or bleu by beam search, which takes much longer.",
        rich_help_panel=_TRANSLATOR,
    ),
]
Beam = Annotated[int | None, typer.Option(min=1, help="Default: 5.", rich_help_panel=_TRANSLATOR)]
MaxExamples = Annotated[
    int | None, typer.Option(min=1, help="Compute scores on a random subset of so many.")
]
AtLeast = Annotated[int, typer.Option(min=0, help="Heads that every layer keeps.")]


@dataclass(frozen=True, kw_only=True)
class _Options:
    """What tells how a model is scored, measured and fine-tuned, and where it is written."""

    output: Path
    task: str | None
    data_dir: Path | None
    epochs: float | None
    batch_size: int | None
    learning_rate: float | None
    max_train_examples: int | None
    hold_out: float | None
    max_length: int | None
    bf16: bool | None
    data: Path | None
    finetune: str | None
    metric: str | None
    beam: int | None
    max_examples: int | None


@app.command()
def compare(
    model: Model,
    output: Annotated[
        Path,
        typer.Option(
            "--output", "-o", help="Folder for tables, figures and scores; a run goes on there."
        ),
    ],
    score: Annotated[
        list[str] | None,
        typer.Option(
            help="Scores to compare with random, repeatable; see `headprune scores --help`. "
            "Default: gradient, gradient-raw, taylor, taylor-molchanov, confidence, entropy, "
            "sparsity, hoyer, distribution and magnitude.",
            rich_help_panel=_CHOICE,
        ),
    ] = None,
    percent: Annotated[
        list[float] | None,
        typer.Option(
            help="Shares of heads to prune, repeatable.",
            show_default="25, 50, 75",
            rich_help_panel=_CHOICE,
        ),
    ] = None,
    seeds: Annotated[
        int,
        typer.Option(
            min=1,
            help="How many fine-tunings, and draws of random heads.",
            rich_help_panel=_CHOICE,
        ),
    ] = 3,
    random_seeds: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="How many draws of random heads, if more are wanted: scores are tested against "
            "them, and with three draws only large differences can be found.",
            show_default="--seeds",
            rich_help_panel=_CHOICE,
        ),
    ] = None,
    tune: Annotated[
        list[str] | None,
        typer.Option(
            help="Fine-tune the models of these scores (and the random ones) only, repeatable. "
            "Default: of all scores compared.",
            rich_help_panel=_CHOICE,
        ),
    ] = None,
    at_least: AtLeast = 1,
    component: Annotated[
        str | None,
        typer.Option(
            help="Prune heads of this component only: ES, ED or DS. The percentages are of its "
            "heads then.",
            rich_help_panel=_CHOICE,
        ),
    ] = None,
    max_examples: MaxExamples = None,
    rounds: Annotated[int, typer.Option(min=0, help="How often times are taken; 0: not.")] = 7,
    title: Annotated[str | None, typer.Option(help="Of tables and figures.")] = None,
    task: Task = None,
    data_dir: DataDir = None,
    epochs: Epochs = None,
    batch_size: BatchSize = None,
    learning_rate: LearningRate = None,
    max_train_examples: MaxTrainExamples = None,
    hold_out: HoldOut = None,
    max_length: MaxLength = None,
    bf16: Bf16 = None,
    data: Data = None,
    finetune: Finetune = None,
    metric: Metric = None,
    beam: Beam = None,
) -> None:
    """Does a score say which heads can be pruned? Compare scores with random choice.

    Every score prunes the model to every percentage; the pruned models are measured at once, and
    again after fine-tuning, with several seeds, beside heads drawn at random. Each score is also
    correlated with what ablation measures head by head. Scores are computed on one half of the
    examples held out from training (of the valid set for checkpoints), ablation on the other half,
    the metric on the development or the test set.

    Writes compare.md, .csv and .json, curves.png and correlations.png; a run that was killed goes
    on where it was.

    Examples:

      headprune compare runs/glue/entailment/model --task entailment --data-dir
      runs/glue/entailment/data --score gradient --percent 50 -o comparison

      headprune compare runs/demo/baseline/model.pt --score gradient --percent 50 --finetune
      "--arch transformer_headpruned_small ..." -o comparison
    """
    with needing("comparing scores needs scipy", install="pip install scipy"):
        import scipy.stats  # noqa: F401
    from headprune.compare.report import Report
    from headprune.compare.run import compare as run
    from headprune.scores.names import IMPORTANCE

    with locked_folder(output):
        subject = _subject(
            model,
            epochs_by_default=1,
            options=_Options(
                output=output,
                task=task,
                data_dir=data_dir,
                epochs=epochs,
                batch_size=batch_size,
                learning_rate=learning_rate,
                max_train_examples=max_train_examples,
                hold_out=hold_out,
                max_length=max_length,
                bf16=bf16,
                data=data,
                finetune=finetune,
                metric=metric,
                beam=beam,
                max_examples=max_examples,
            ),
        )
        comparison = run(
            subject,
            scores=score or [name for name in IMPORTANCE if name != "random"],
            percents=sorted(set(percent or (25.0, 50.0, 75.0))),
            seeds=range(1, seeds + 1),
            random_seeds=None if random_seeds is None else range(1, random_seeds + 1),
            folder=output,
            tuned=tune,
            at_least=at_least,
            component=component,
            rounds=rounds,
            say=_say,
        )
        report = Report.of(comparison)
        report.save(output, title=title or f"Scores compared on {model}")
        for sentence in report.claims:
            print(sentence)
        print(f"{output / 'compare.md'}, {output / 'curves.png'}, {output / 'correlations.png'}")


@app.command()
def iterate(
    model: Model,
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Folder for the models; a run goes on there.")
    ],
    percent: Annotated[float, typer.Option(help="Share of heads to prune in the end.")],
    score: Annotated[
        str, typer.Option(help="What to rank heads by; see `headprune scores --help`.")
    ] = "gradient",
    steps: Annotated[int, typer.Option(min=1, help="Steps of equal size.")] = 5,
    seed: Annotated[int, typer.Option(help="Of fine-tuning and of the score random.")] = 1,
    at_least: AtLeast = 1,
    max_examples: MaxExamples = None,
    task: Task = None,
    data_dir: DataDir = None,
    epochs: Epochs = None,
    batch_size: BatchSize = None,
    learning_rate: LearningRate = None,
    max_train_examples: MaxTrainExamples = None,
    hold_out: HoldOut = None,
    max_length: MaxLength = None,
    bf16: Bf16 = None,
    data: Data = None,
    finetune: Finetune = None,
    metric: Metric = None,
    beam: Beam = None,
) -> None:
    """Prune in steps: score the heads, prune the worst, score what is left, and so on.

    With --epochs, or --finetune, the model is fine-tuned after each step. Each step's model stays
    in OUT/stepN; a run that was killed goes on after the last whole step.

    Example:

      headprune iterate runs/glue/entailment/model --task entailment --data-dir
      runs/glue/entailment/data --percent 50 --steps 5 -o iterated
    """
    from headprune.compare.iterate import iterate as run
    from headprune.files import write_text_atomically

    options = _Options(
        output=output,
        task=task,
        data_dir=data_dir,
        epochs=epochs,
        batch_size=batch_size,
        learning_rate=learning_rate,
        max_train_examples=max_train_examples,
        hold_out=hold_out,
        max_length=max_length,
        bf16=bf16,
        data=data,
        finetune=finetune,
        metric=metric,
        beam=beam,
        max_examples=max_examples,
    )
    with locked_folder(output):
        subject = _subject(model, options=options, epochs_by_default=0)

        def told(step: Step) -> None:
            after = "" if step.after is None else f", {step.after:.2f} after fine-tuning"
            print(
                f"step {step.number} of {steps}: {step.percent:.1f}% pruned, {subject.metric} "
                f"{step.before:.2f} right after pruning{after}",
                flush=True,
            )

        done = run(
            subject,
            score=score,
            percent=percent,
            steps=steps,
            folder=output,
            resume=lambda place: _subject(_model_in(place), options=options, epochs_by_default=0),
            seed=seed,
            at_least=at_least,
            say=told,
        )
        done[-1].head_plan.save(output / "plan.json")
        content = json.dumps([asdict(step) for step in done], indent=1)
        write_text_atomically(output / "steps.json", content + "\n")
        print(f"{output / f'step{steps}'}, {output / 'plan.json'}")


def _model_in(place: Path) -> Path:
    """The model that a step left: a checkpoint, or a folder, which fine-tuning puts further in."""
    for name in ("model.pt", "model"):
        if (place / name).exists():
            return place / name
    return place


def _subject(model: Path, *, options: _Options, epochs_by_default: float) -> Subject:
    if model.is_file():
        return _translator(model, options)
    if not model.is_dir():
        raise UsageError(f"{model}: no such folder or checkpoint")
    epochs = epochs_by_default if options.epochs is None else options.epochs
    return _classifier(model, options, epochs=epochs)


def _classifier(model: Path, options: _Options, *, epochs: float) -> Subject:
    others = ("data", "finetune", "metric", "beam")
    refuse(f"{model} is no fairseq checkpoint", **{n: getattr(options, n) for n in others})
    require_outside(options.output, model)
    if options.task is None:
        raise UsageError(f"{model}: give --task, the task of GLUE that the model is for")
    with needing("comparing Hugging Face models needs transformers"):
        from hf_plugin.glue.held_out import default_hold_out
        from hf_plugin.glue.settings import Settings
        from hf_plugin.quiet import quieten
        from hf_plugin.scores.subject import Classifier
    quieten()
    hold_out = options.hold_out
    if hold_out is None:
        hold_out = default_hold_out(options.output, options.max_train_examples)
    settings = Settings(
        task=options.task,
        model=str(model),
        epochs=epochs,
        batch_size=options.batch_size or 32,
        learning_rate=2e-5 if options.learning_rate is None else options.learning_rate,
        max_length=options.max_length or 128,
        data_dir=options.data_dir,
        max_train_examples=options.max_train_examples,
        hold_out=hold_out,
        bf16=bool(options.bf16),
    )
    settings.check()
    return Classifier(
        path=model, finetuning=settings, max_examples=options.max_examples, watch=progress
    )


def _translator(model: Path, options: _Options) -> Subject:
    others = (
        *("task", "data_dir", "epochs", "batch_size", "learning_rate", "max_train_examples"),
        *("hold_out", "max_length", "bf16"),
    )
    refuse(f"{model} is a fairseq checkpoint", **{n: getattr(options, n) for n in others})
    try:
        finetuning = tuple(shlex.split(options.finetune or ""))
    except ValueError as problem:
        raise UsageError(f"--finetune: {problem} in {options.finetune!r}") from None
    with needing("comparing checkpoints needs fairseq"):
        from fairseq_plugin.checkpoints import Checkpoint
        from fairseq_plugin.flags import check_flags
        from fairseq_plugin.loading import trained_on
        from fairseq_plugin.scores.run import METRICS
        from fairseq_plugin.scores.subject import TranslationModel, require_finetuning
    # Before any pass over the data.
    if options.metric not in (None, *METRICS):
        raise UsageError(f"--metric {options.metric}: it is one of {', '.join(METRICS)}")
    require_finetuning(finetuning)
    if finetuning:
        try:
            check_flags("train", finetuning)
        except UsageError as problem:
            raise UsageError(f"--finetune: {problem}") from None
    data = options.data or trained_on(Checkpoint.load(model))
    return TranslationModel(
        path=model,
        data=data,
        finetuning=finetuning,
        max_examples=options.max_examples,
        metric_of_ablation=options.metric or "loss",
        beam=options.beam or 5,
        watch=progress,
    )


def _say(step: str, done: int, total: int) -> None:
    print(f"[{done} of {total}] {step}", file=sys.stderr, flush=True)
