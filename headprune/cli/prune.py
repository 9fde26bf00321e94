"""The command `headprune prune`."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from headprune.backends import all_backends, backend_of, open_model
from headprune.cli.options import CalibrationOptions, kinds_of_models, with_option_groups
from headprune.cli.progress import progress
from headprune.components import unit_names
from headprune.errors import UsageError
from headprune.files import require_separate
from headprune.form import Form
from headprune.plan import PruningPlan
from headprune.provenance import Provenance, path_beside
from headprune.recovery.kinds import Recovery, refit_name

app = typer.Typer(add_completion=False)


class WithoutTraining(StrEnum):
    """The recoveries that train nothing."""

    NONE = Recovery.NONE.value
    REFIT = Recovery.REFIT.value
    REFIT_RESIDUAL = Recovery.REFIT_RESIDUAL.value


class RefitTarget(StrEnum):
    """The targets of re-fitting, for the older option ``--refit-target``."""

    OUTPUT = "output"
    RESIDUAL = "residual"


_CALIBRATION = "Calibration (--recovery refit)"


@with_option_groups
def prune(
    model: Annotated[Path, typer.Argument(help=f"The trained model: {kinds_of_models()}.")],
    plan: Annotated[Path, typer.Option(help="The plan, from `headprune plan`.")],
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Checkpoint, or folder, to write.")
    ],
    form: Annotated[
        Form,
        typer.Option(
            help="remove: the weights of pruned units are removed. mask: they stay, and the units' "
            "outputs are multiplied by 0 (fairseq). uniform: the heads' attention scores are "
            "multiplied by 0 (Hugging Face), as in the first version (October 2020) of the paper's "
            "BERT code."
        ),
    ] = Form.remove,
    recovery: Annotated[
        WithoutTraining,
        typer.Option(
            help="refit: the output projections of pruned sub-layers are re-fitted by least "
            "squares, without training, so that they reproduce the outputs of MODEL (form remove). "
            "It needs calibration examples, which are training examples, or text without labels. "
            "refit-residual: the same, "
            "with the outputs together with the residual connection, so that each sub-layer makes "
            "up for the errors of those below it, too. none: the remaining weights stay as they "
            "are. To train after pruning: `headprune finetune`, or "
            "fairseq-train --plan.",
        ),
    ] = WithoutTraining.NONE,
    max_examples: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Largest number of calibration examples, a random subset.",
            show_default="2000",
            rich_help_panel=_CALIBRATION,
        ),
    ] = None,
    without_labels: Annotated[
        bool,
        typer.Option(
            "--without-labels",
            help="Calibrate on text alone: --train takes a file .txt with one text a line, or a "
            "table. For every Hugging Face model that reads text, with or without a classifier.",
            rich_help_panel=_CALIBRATION,
        ),
    ] = False,
    refit_target: Annotated[
        RefitTarget | None,
        typer.Option(help="Older: residual stands for --recovery refit-residual.", hidden=True),
    ] = None,
    *,
    options: CalibrationOptions,
) -> None:
    """Prune heads, neurons and layers of a trained model, without training."""
    given = options.given()
    of_refit = (max_examples, refit_target)
    if recovery == WithoutTraining.REFIT and refit_target == RefitTarget.RESIDUAL:
        recovery = WithoutTraining.REFIT_RESIDUAL
    elif recovery == WithoutTraining.REFIT_RESIDUAL and refit_target == RefitTarget.OUTPUT:
        raise UsageError("--refit-target output: contradicts --recovery refit-residual")
    target = Recovery(recovery).refit_target
    if recovery == WithoutTraining.NONE and (given or without_labels or any(of_refit)):
        raise UsageError("options for calibration data go with --recovery refit")
    if target is not None and form != Form.remove:
        raise UsageError(f"--recovery {recovery}: for form remove, not {form.value}")
    require_separate({"--output": output}, inputs=(model, plan))
    opened = open_model(model)
    wanted = PruningPlan.load(plan)
    # Of a model that was pruned before, a fine-tuning or a re-fit since then would be forgotten.
    earlier = None if opened.plan.is_full else Provenance.of(opened)
    is_just_pruned = opened.plan.is_full or (earlier is not None and earlier.recovery is None)
    done = None
    if target is not None:
        backend = backend_of(model)
        if without_labels:
            refitted = backend.refit_on_text(
                model,
                wanted,
                target=target,
                max_examples=max_examples,
                watch=progress,
                given=given,
            )
        else:
            task_model = backend.task_model(
                model,
                output=output,
                finetune=False,
                max_examples=max_examples,
                watch=progress,
                given=given,
            )
            refitted = task_model.refitted(wanted, target=target)
        pruned = refitted.model
        done = refit_name(Recovery(recovery), refitted.examples)
        print(refitted)
    else:
        pruned = opened.prune(wanted, form=form.value)
    pruned.save(output)
    kept = pruned.plan
    if is_just_pruned:
        Provenance(
            plan=kept.with_origin(wanted.origin),
            recovery=done,
            fingerprint=pruned.fingerprint,
        ).save(output)
    else:
        path_beside(output).unlink(missing_ok=True)
    print(
        f"{output}: {kept} ({kept.percent_pruned:.1f}% of {unit_names(kept.units)} pruned, "
        f"{opened.parameters:,} -> {pruned.parameters:,} parameters)"
    )


app.command(help="\n\n".join([str(prune.__doc__), *(b.pruned_help for b in all_backends())]))(prune)
