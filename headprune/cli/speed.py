"""The command `headprune speed`."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headprune.cli.options import kinds_of_models
from headprune.cli.progress import progress_of_rounds
from headprune.cli.timing import BATCH, BEAM, DEVICE, JOB, LENGTH, THREADS, Device, Job
from headprune.files import (
    require_separate,
    require_standard_output,
    require_writable,
    write_text_atomically,
)
from headprune.wording import counted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headprune.speed.measure import Speed

app = typer.Typer(add_completion=False)


@app.command()
def speed(
    models: Annotated[
        list[Path],
        typer.Argument(
            help=f"The models: {kinds_of_models()}, or a folder that `headprune export` wrote for "
            "CTranslate2 or ONNX."
        ),
    ],
    batch: Annotated[int, BATCH] = 8,
    length: Annotated[int, LENGTH] = 32,
    threads: Annotated[int | None, THREADS] = None,
    device: Annotated[Device, DEVICE] = Device.cpu,
    job: Annotated[Job, JOB] = Job.forward,
    beam: Annotated[int, BEAM] = 5,
    rounds: Annotated[int, typer.Option(min=1, help="Number of times that a model is timed.")] = 20,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="File for all times and sizes (JSON)."),
    ] = None,
) -> None:
    """Time models in turns, with their parameters, FLOPs and file sizes.

    What is timed is one forward pass over a batch of random tokens, or of random images of the size
    that the model takes; a translation model reads both sides at once, without a search, unless
    --job names another part of its work. In each round
    every model runs once, one after the other, so that other load on the machine affects all
    alike. The table shows the median time with the quartiles, and how many times as fast as the
    first model each one is in the same round.

    Example:

      headprune speed runs/reviews/model runs/reviews-half/model --batch 1 --threads 1
    """
    require_standard_output()
    require_separate({"--output": output}, inputs=models)
    require_writable(output)
    import torch

    from headprune.results.environment import device_name, versions_of
    from headprune.speed.forward_pass import Conditions
    from headprune.speed.measure import measure_speeds

    conditions = Conditions(
        batch=batch,
        length=length,
        threads=threads or torch.get_num_threads(),
        device=device.value,
        job=job.value,
        beam=beam,
    )
    speeds = measure_speeds(models, conditions, rounds=rounds, watch=progress_of_rounds)
    if output is not None:
        content = {
            "conditions": asdict(conditions),
            "device": device_name(device.value),
            "versions": versions_of("torch"),
            "models": [asdict(each) for each in speeds],
        }
        write_text_atomically(output, json.dumps(content, indent=1) + "\n")
    _show(speeds)
    threads_used = f", {conditions.threads} threads" if device is Device.cpu else ""
    jobs = dict.fromkeys(str(replace(conditions, inputs=each.inputs)) for each in speeds)
    print(
        f"{', '.join(jobs)}, {counted(rounds, 'round')}, median [quartiles]; "
        f"{device_name(device.value)}{threads_used}"
    )


def _show(speeds: Sequence[Speed]) -> None:
    import statistics

    from rich.console import Console
    from rich.table import Table

    table = Table(box=None)
    table.add_column("model", overflow="fold")
    for name in ("library", "ms", "times as fast", "parameters", "GFLOPs", "MB"):
        table.add_column(name, justify="right", no_wrap=True)
    for each in speeds:
        times = [1000 * second for second in each.seconds]
        low, _, high = (
            statistics.quantiles(times, n=4, method="inclusive") if len(times) > 1 else times * 3
        )
        middle, least, most = each.speedup
        table.add_row(
            each.model,
            each.library,
            f"{1000 * each.median:.2f} [{low:.2f}, {high:.2f}]",
            f"{middle:.2f} [{least:.2f}, {most:.2f}]",
            "-" if each.parameters is None else f"{each.parameters:,}",
            "-" if each.flops is None else f"{each.flops / 1e9:.3g}",
            f"{each.file_bytes / 1e6:.1f}",
        )
    Console(width=None if Console().is_terminal else 200, soft_wrap=True).print(table)
