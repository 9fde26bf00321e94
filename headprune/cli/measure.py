"""The command `headprune measure`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from headprune.backends import backend_of
from headprune.cli.options import (
    BEAM,
    CHECKPOINTS,
    DATA,
    METRIC,
    OWN_DATA,
    LabelledDataOptions,
    in_panel,
    trained_model,
    with_option_groups,
)
from headprune.cli.progress import progress
from headprune.files import require_separate, require_writable

app = typer.Typer(add_completion=False)


@dataclass(frozen=True, kw_only=True)
class _MeasuringOptions(LabelledDataOptions):
    """The data to measure on."""

    metric: Annotated[str | None, in_panel(METRIC, OWN_DATA)] = None
    data: Annotated[Path | None, in_panel(DATA, CHECKPOINTS)] = None
    beam: Annotated[int | None, in_panel(BEAM, CHECKPOINTS)] = None


@app.command()
@with_option_groups
def measure(
    model: Annotated[Path, trained_model()],
    plan: Annotated[
        Path | None,
        typer.Option(
            help="Plan: measure the model right after pruning it to these units. The model is not "
            "changed."
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            help="File for the record (JSON); the model's outputs are written beside it. Default: "
            "none.",
        ),
    ] = None,
    finetune: Annotated[
        str | None,
        typer.Option(
            help="Length of the model's fine-tuning, for the signature: 30ep, 200up, or none.",
            show_default="unknown for a pruned model that headprune prune did not write, else none",
        ),
    ] = None,
    recovery: Annotated[
        str | None,
        typer.Option(
            help="What was done after pruning besides fine-tuning, for the signature, with the "
            "number of examples: 'refit[500]'.",
            show_default="as headprune prune did it, where it wrote the model",
        ),
    ] = None,
    *,
    options: _MeasuringOptions,
) -> None:
    """Measure a trained model on labelled examples, or on a translation's test set.

    Prints the metrics and their signature, which names the files and their fingerprints.

    Examples:

      headprune measure runs/reviews/model --dev dev.csv --text review --label mood

      headprune measure runs/reviews/model --dev dev.csv --text review --label mood --plan
      half.json -o half-measured.json
    """
    from headprune.compare.measuring import measure_and_save
    from headprune.errors import UsageError
    from headprune.plan import PruningPlan
    from headprune.results.record_files import beside, output_files
    from headprune.results.signature import require_field

    for option, value in (("--finetune", finetune), ("--recovery", recovery)):
        if value is not None:
            if plan is not None:
                raise UsageError(f"{option}: with --plan the model is measured right after pruning")
            require_field(value, name=option)

    examples = [Path(name) for name in (options.train, options.dev) if name is not None]
    outputs = {} if output is None else output_files(output)
    require_separate(
        {
            "--output": output,
            **{f"the {name} beside --output,": path for name, path in outputs.items()},
        },
        inputs=(model, plan, *examples),
    )
    require_writable(output)
    kept = None if plan is None else PruningPlan.load(plan)
    task_model = backend_of(model).task_model(
        model,
        output=None if output is None else beside(output, ""),
        finetune=False,
        max_examples=None,
        watch=progress,
        given=options.given(),
    )
    record = measure_and_save(task_model, kept, finetune=finetune, recovery=recovery, output=output)
    figures = "  ".join(f"{name} {value:.2f}" for name, value in record.metrics.items())
    print(f"{record.task}: {figures}  {record.signature}")
