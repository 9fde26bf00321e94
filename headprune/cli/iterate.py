"""The command `headprune iterate`."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headprune.backends import backend_of, find_backend
from headprune.cli.options import (
    BUDGET,
    DistillationOptions,
    PruningOptions,
    TaskModelOptions,
    budgets_given,
    trained_model,
    with_option_groups,
)
from headprune.cli.progress import progress
from headprune.errors import UsageError
from headprune.locks import locked_folder
from headprune.recovery.kinds import Recovery, words_for

if TYPE_CHECKING:
    from headprune.compare.iterate import Step

app = typer.Typer(add_completion=False)


@app.command()
@with_option_groups
def iterate(
    model: Annotated[Path, trained_model()],
    output: Annotated[
        Path,
        typer.Option(
            "--output",
            "-o",
            help="Folder for the models; a run that was interrupted resumes there.",
        ),
    ],
    percent: Annotated[
        float | None,
        typer.Option(
            help="Percentage of heads (or of the units of --components) that is pruned after the "
            "last step."
        ),
    ] = None,
    budget: Annotated[str | None, BUDGET] = None,
    score: Annotated[
        str, typer.Option(help="Score to rank heads by; see `headprune scores --help`.")
    ] = "gradient",
    steps: Annotated[int, typer.Option(min=1, help="Number of steps, of equal size.")] = 5,
    seed: Annotated[int, typer.Option(help="Seed of the fine-tuning and of the score random.")] = 1,
    recovery: Annotated[
        Recovery | None,
        typer.Option(
            help="What is done after each step: finetune (with --epochs or --finetune); distill: "
            "fine-tuned as with finetune, and towards the outputs of MODEL; refit: the remaining "
            "weights are re-fitted by least squares on training examples, without training; "
            "refit-residual: the same, with the residual connection in their target; none.",
            show_default="finetune with --epochs or --finetune, else none",
        ),
    ] = None,
    *,
    pruning: PruningOptions,
    distillation: DistillationOptions,
    options: TaskModelOptions,
) -> None:
    """Prune in steps: score the heads, prune the worst, score the remaining ones, and so on.

    With --epochs, or --finetune, the model is fine-tuned after each step; with --recovery refit it
    is re-fitted. The models of all steps
    are kept, in OUT/stepN, and OUT/records has a record of each measurement. A run that was
    interrupted resumes after the last complete step.

    Example:

      headprune iterate runs/glue/entailment/model --task entailment --data-dir
      runs/glue/entailment/data --percent 50 --steps 5 -o iterated
    """
    from headprune.compare.iterate import iterate as run
    from headprune.files import write_text_atomically

    budgets = budgets_given(
        None if percent is None else [percent], None if budget is None else [budget]
    )
    if not budgets:
        raise UsageError("give --percent or --budget")
    (goal,) = budgets

    given = options.given()
    distills = recovery is Recovery.DISTILL
    weights = distillation.distillation(chosen=distills, where="--recovery distill")
    if distills and not (given.get("epochs") or given.get("finetune")):
        raise UsageError("--recovery distill: give --epochs, or --finetune for a checkpoint")
    with locked_folder(output):
        task_model = backend_of(model).task_model(
            model,
            output=output,
            finetune=False,
            max_examples=pruning.max_examples,
            watch=progress,
            given=given | ({"distillation": weights} if distills else {}),
        )

        measure = "" if goal.of == "units" else f" of {goal.of}"

        def print_step(step: Step) -> None:
            words = words_for(step.recovery or Recovery.FINETUNE)
            after = "" if step.after is None else f", {step.after:.2f} {words}"
            print(
                f"step {step.number} of {steps}: {step.percent:.1f}%{measure} pruned, "
                f"{task_model.metric} "
                f"{step.before:.2f} right after pruning{after}",
                flush=True,
            )

        done = run(
            task_model,
            score=score,
            percent=goal.percent,
            measure=goal.of,
            steps=steps,
            folder=output,
            resume=lambda folder: task_model.opened(_model_in(folder)),
            seed=seed,
            at_least=pruning.at_least,
            components=pruning.component_names(),
            recovery=recovery,
            say=print_step,
        )
        done[-1].head_plan.save(output / "plan.json")
        content = json.dumps([asdict(step) for step in done], indent=1)
        write_text_atomically(output / "steps.json", content + "\n")
        print(f"{output / f'step{steps}'}, {output / 'plan.json'}")


def _model_in(folder: Path) -> Path:
    """The model of a step: the folder itself, or the checkpoint or the folder in it."""
    # First, as other files of the model that was given are copied with it.
    if find_backend(folder) is not None:
        return folder
    for name in ("model.pt", "model"):
        if (folder / name).exists():
            return folder / name
    return folder
