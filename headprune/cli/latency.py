"""The command `headprune latency`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headprune.cli.options import kinds_of_models, parse_components
from headprune.cli.progress import progress_of_rounds
from headprune.cli.timing import BATCH, BEAM, DEVICE, JOB, LENGTH, THREADS, Device, Job
from headprune.components import COMPONENT_NAMES, LAYERS
from headprune.files import require_separate, require_standard_output, require_writable

if TYPE_CHECKING:
    from headprune.speed.latency import Latency

app = typer.Typer(no_args_is_help=True, add_completion=False)


@app.command()
def latency(
    model: Annotated[Path, typer.Argument(help=f"The unpruned model: {kinds_of_models()}.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="Latency file (JSON).")],
    batch: Annotated[int, BATCH] = 8,
    length: Annotated[int, LENGTH] = 32,
    threads: Annotated[int | None, THREADS] = None,
    device: Annotated[Device, DEVICE] = Device.cpu,
    job: Annotated[
        Job | None, typer.Option(help=f"{JOB.help}", show_default="search for translation models")
    ] = None,
    beam: Annotated[int, BEAM] = 5,
    components: Annotated[
        str | None,
        typer.Option(
            help="Components to measure, with commas: heads ES,ED,DS, feed-forward neurons EF,DF, "
            "whole layers EL,DL.",
            show_default="all of the job",
        ),
    ] = None,
    steps: Annotated[
        int,
        typer.Option(
            min=1,
            help="Number of widths that are measured of feed-forward sub-layers. Numbers of heads "
            "are measured one by one.",
        ),
    ] = 8,
    rounds: Annotated[int, typer.Option(min=1, help="Number of times that a size is timed.")] = 10,
) -> None:
    """Measure what fewer heads, neurons and layers save in time, on this machine.

    The model is timed with 0 to all heads and with some feed-forward widths in all layers of a
    component, and with one layer, each in turns with the unpruned model. `headprune plan --speedup`
    reads the file. It holds for all unpruned models of the same shape, whatever their weights, on
    the same processor, for the same job, batch, length and threads.

    Example:

      headprune latency runs/reviews/model --batch 8 --length 32 --threads 1 -o latency.json
    """
    import torch

    from headprune.backends import open_model
    from headprune.speed.forward_pass import Conditions
    from headprune.speed.latency_measuring import job_of, measure_latency

    require_standard_output()
    require_separate({"--output": output}, inputs=(model,))
    require_writable(output)
    conditions = Conditions(
        batch=batch,
        length=length,
        threads=threads or torch.get_num_threads(),
        device=device.value,
        job=job.value if job else job_of(open_model(model).shape),
        beam=beam,
    )
    measured = measure_latency(
        model,
        conditions,
        components=None if components is None else parse_components(components),
        steps=steps,
        rounds=rounds,
        watch=progress_of_rounds,
    )
    measured.save(output)
    _show(measured)
    print(f"{output}: {measured.conditions}, {conditions.threads} threads; {measured.device}")


def _show(latency: Latency) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None)
    table.add_column("part", overflow="fold")
    for name in ("layers", "ms a layer", "of the time"):
        table.add_column(name, justify="right", no_wrap=True)
    parts = 0.0
    for name, savings in latency.saved.items():
        depth, most = len(latency.shape[name]), savings[min(savings)]
        if name in LAYERS:
            parts += depth * most
        table.add_row(
            f"{name}, {COMPONENT_NAMES[name]}",
            str(depth),
            f"{1000 * most:.3f}",
            f"{depth * most / latency.seconds:.1%}",
        )
    if set(LAYERS) & set(latency.saved):
        rest = latency.seconds - parts
        table.add_row(
            "outside of these layers", "", f"{1000 * rest:.3f}", f"{rest / latency.seconds:.1%}"
        )
    table.add_row("whole job", "", f"{1000 * latency.seconds:.3f}", "")
    Console(width=None if Console().is_terminal else 200, soft_wrap=True).print(table)
