"""The command `headprune compare`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from headprune.backends import backend_of, open_model
from headprune.budget import SPEED, Budget
from headprune.cli.options import (
    BUDGET,
    DistillationOptions,
    PruningOptions,
    TaskModelOptions,
    budgets_given,
    in_panel,
    parse_components,
    trained_model,
    with_option_groups,
)
from headprune.cli.progress import progress
from headprune.components import HEADS
from headprune.errors import UsageError, needing
from headprune.locks import locked_folder
from headprune.methods.adversarial import IMPORTANT_FIRST
from headprune.methods.method import is_training
from headprune.methods.registry import method_named
from headprune.methods.registry import registered as registered_methods
from headprune.recovery.kinds import Recovery
from headprune.scores.names import all_scores, scores_by_default
from headprune.scores.registry import score_named
from headprune.speed.latency import latency_for

app = typer.Typer(add_completion=False)

_CHOICE = "What to compare"

_SCORE_FOR_SPEEDS = "fisher"
"""The score for speeds: it has heads and neurons on one scale."""


def _methods() -> list[str]:
    """The names of the methods that are not scores."""
    return [name for name in registered_methods() if name not in all_scores()]


@app.command()
@with_option_groups
def compare(
    model: Annotated[Path, trained_model()],
    output: Annotated[
        Path,
        typer.Option(
            "--output",
            "-o",
            help="Folder for tables, figures and scores; a run that was interrupted resumes there.",
        ),
    ],
    score: Annotated[
        list[str] | None,
        typer.Option(
            help="A score, or another method, to compare with random choice, repeatable: "
            f"{', '.join(all_scores())}; {', '.join(_methods())}; and SCORE{IMPORTANT_FIRST}, "
            "which prunes what a score holds most important.",
            show_default=", ".join(name for name in scores_by_default() if name != "random")
            + f"; {_SCORE_FOR_SPEEDS} with --speedup",
            rich_help_panel=_CHOICE,
        ),
    ] = None,
    percent: Annotated[
        list[float] | None,
        typer.Option(
            help="Percentage of heads (or of the units of --components) to prune, repeatable.",
            show_default="25, 50, 75",
            rich_help_panel=_CHOICE,
        ),
    ] = None,
    budget: Annotated[list[str] | None, in_panel(BUDGET, _CHOICE)] = None,
    speedup: Annotated[
        list[float] | None,
        typer.Option(
            min=1.0,
            help="Instead of --percent: the speed to reach, as a multiple of MODEL's, repeatable. "
            "Needs --latency.",
            rich_help_panel=_CHOICE,
        ),
    ] = None,
    latency: Annotated[
        Path | None,
        typer.Option(
            help="For --speedup: what units save, from `headprune latency`. All models are timed "
            "at its job.",
            rich_help_panel=_CHOICE,
        ),
    ] = None,
    verify: Annotated[
        int | None,
        typer.Option(
            min=0,
            help="With --speedup: measure each chosen plan, at most this number of times, and "
            "correct it where its speed differs by more than 2%. 1 corrects nothing, 0 trusts the "
            "predictions. Plans of methods that train are not corrected.",
            show_default="3",
            rich_help_panel=_CHOICE,
        ),
    ] = None,
    seeds: Annotated[
        int,
        typer.Option(
            min=1,
            help="Number of seeds: each is that of a fine-tuning of every pruned model, and of a "
            "draw of random heads.",
            rich_help_panel=_CHOICE,
        ),
    ] = 3,
    random_seeds: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Number of draws of random heads. Scores are tested against them, and three draws "
            "can show large differences only.",
            show_default="--seeds",
            rich_help_panel=_CHOICE,
        ),
    ] = None,
    tune: Annotated[
        list[str] | None,
        typer.Option(
            help="A score whose pruned models are fine-tuned, or re-fitted, repeatable; the random "
            "ones always are. Default: all scores that are compared.",
            rich_help_panel=_CHOICE,
        ),
    ] = None,
    recovery: Annotated[
        list[Recovery] | None,
        typer.Option(
            help="What is done after pruning, repeatable: finetune (with --epochs or --finetune); "
            "refit: the remaining weights are re-fitted by least squares on training examples "
            "(2000, or --max-examples), without training; refit-residual: the same, with the "
            "residual connection in their target; distill: fine-tuned as with finetune, "
            "and towards the outputs of MODEL; distill-sequences: fine-tuned on MODEL's "
            "translations of the training text; scratch: trained as with finetune, but from random "
            "weights in the pruned shape; none.",
            show_default="finetune",
            rich_help_panel=_CHOICE,
        ),
    ] = None,
    component: Annotated[
        str | None, typer.Option(help="The older name of --components.", hidden=True)
    ] = None,
    rounds: Annotated[
        int, typer.Option(min=0, help="Number of times that each model is timed; 0 times none.")
    ] = 7,
    title: Annotated[str | None, typer.Option(help="Title of the tables and figures.")] = None,
    *,
    pruning: PruningOptions,
    distillation: DistillationOptions,
    options: TaskModelOptions,
) -> None:
    """Compare scores with random choice: does a score say which heads can be pruned?

    The model is pruned by every score to every percentage, and by drawing heads at random. Each
    pruned model is measured right after pruning, and again after fine-tuning with several seeds
    (towards the unpruned model with --recovery distill, on its translations with
    --recovery distill-sequences), or after re-fitting (--recovery refit).
    Each score is also correlated with the ablation of single heads (of neurons, where --score
    ablation is given). Scores are computed on one half of the examples held out from training (of
    the validation set for checkpoints), ablation on the other half, and the metric on the
    development or the test set.

    Without options ten scores and random choice are compared at 25, 50 and 75% with three seeds:
    about a hundred fine-tunings of a classifier. Fewer --score, --percent or --seeds take less
    time, and --epochs 0 (or no --finetune, for checkpoints) trains nothing.

    Writes compare.md, .csv and .json, curves.png, speed.png (with --rounds) and correlations.png,
    and a record of each measurement in records/. A run that was interrupted resumes where it
    stopped.

    Examples:

      headprune compare runs/glue/entailment/model --task entailment --data-dir
      runs/glue/entailment/data --score gradient --percent 50 -o comparison

      headprune compare runs/glue/entailment/model --task entailment --data-dir
      runs/glue/entailment/data --components ES,EF,EL --speedup 1.5 --latency latency.json
      --score fisher --score kwon -o comparison-speed

      headprune compare runs/demo/baseline/model.pt --score gradient --percent 50
      -o comparison --finetune "--arch transformer_headpruned_small --encoder-layers 3
      --decoder-layers 3 --share-all-embeddings --optimizer adam --lr 1e-3 --max-tokens 2048
      --max-update 50"
    """
    with needing("comparing scores needs scipy", install="pip install scipy"):
        import scipy.stats  # noqa: F401
    from headprune.compare.report import Report
    from headprune.compare.run import compare as run
    from headprune.speed.verifying import DEFAULT_MEASUREMENTS

    recoveries = recovery or [Recovery.FINETUNE]
    distills = Recovery.DISTILL in recoveries
    weights = distillation.distillation(chosen=distills, where="--recovery distill")
    if component is not None and pruning.components is not None:
        raise UsageError("give --components alone; --component is its older name")
    components = pruning.component_names() if component is None else parse_components(component)
    if speedup and (percent or budget):
        raise UsageError("give one of --percent, --budget and --speedup")
    if (latency is None) is bool(speedup):
        raise UsageError(
            "--speedup and --latency go together; `headprune latency` measures what units save"
        )
    if verify is not None and not speedup:
        raise UsageError("--verify goes with --speedup")
    budgets = budgets_given(percent, budget) or [Budget(each) for each in (25.0, 50.0, 75.0)]
    table = None if latency is None else latency_for(open_model(model), latency)
    if table is not None and components is not None:
        table.require_components(components, where=latency)
    measurements = verify
    if measurements is None:
        measurements = DEFAULT_MEASUREMENTS if speedup else 0
    with locked_folder(output):
        task_model = backend_of(model).task_model(
            model,
            output=output,
            finetune=any(each.trains for each in recoveries)
            or any(is_training(method_named(name)) for name in score or ()),
            max_examples=pruning.max_examples,
            watch=progress,
            given=options.given() | ({"distillation": weights} if distills else {}),
        )
        comparison = run(
            task_model,
            scores=score
            or (_scores_of(components or HEADS) if table is None else [_SCORE_FOR_SPEEDS]),
            percents=sorted(set(speedup or [each.percent for each in budgets])),
            measure=SPEED if speedup else budgets[0].of,
            latency=table,
            verify=measurements,
            seeds=range(1, seeds + 1),
            random_seeds=None if random_seeds is None else range(1, random_seeds + 1),
            folder=output,
            tuned=tune,
            at_least=pruning.at_least,
            components=components,
            rounds=rounds,
            recoveries=recoveries,
            say=_print_step,
        )
        report = Report.of(comparison)
        report.save(output, title=title or f"Scores compared on {model}")
        for sentence in report.findings:
            print(sentence)
        names = [
            "compare.md",
            "curves.png",
            *(["speed.png"] if comparison.has_timed_methods else []),
        ]
        names += ["correlations.png"] if report.correlations else []
        print(", ".join(str(output / name) for name in names))


def _scores_of(components: Sequence[str]) -> list[str]:
    """The scores that are compared by default: those that score all the components."""
    return [
        name
        for name in scores_by_default(components)
        if name != "random" and set(components) <= set(score_named(name).components)
    ]


def _print_step(step: str, done: int, total: int) -> None:
    print(f"[{done} of {total}] {step}", file=sys.stderr, flush=True)
