"""Measuring and reporting for all benchmarks: jobs in turns, ratios with quartiles.

Machines are noisy: so each round runs every job once, one after the other, and what counts is the
ratio to the alternative in the same round; its median, and its quartiles.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from rich.console import Console
from rich.progress import track
from rich.table import Table

from headprune.files import write_text_atomically
from headprune.memory import KEEP_MEMORY
from headprune.results.environment import device_name
from headprune.speed.turns import speedup, taking_turns

if TYPE_CHECKING:
    import matplotlib.figure


@dataclass(frozen=True, kw_only=True)
class Figure:
    """One job's time beside its alternative's.

    Attributes:
        job: what was done.
        name: by what.
        seconds: the median of its times.
        speedup: the median of the alternative's time over its time, in the same round.
        quartiles: of the same.
        ceiling: the ratio of floating-point operations, where that says something.
    """

    job: str
    name: str
    seconds: float
    speedup: float
    quartiles: tuple[float, float]
    ceiling: float | None = None


def parser(doc: str | None, *, rounds: int, torch_threads: bool = True) -> argparse.ArgumentParser:
    """The options that all benchmarks have; ``--threads`` where torch is what is measured."""
    arguments_parser = argparse.ArgumentParser(description=(doc or "").split("\n")[0])
    arguments_parser.add_argument(
        "--rounds", type=int, default=rounds, help="how often each job is timed"
    )
    if torch_threads:
        arguments_parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    arguments_parser.add_argument(
        "--output", type=Path, help="write NAME.json, .png and .svg to this folder"
    )
    return arguments_parser


def keep_memory() -> None:
    """Start this program anew with `headprune.memory.KEEP_MEMORY`, unless it was started so.

    Without, a training step's time is the system's, for giving and taking back memory, as much as
    the model's, and two copies of one model differ by a tenth.
    """
    if not KEEP_MEMORY.keys() <= os.environ.keys():
        os.execve(
            sys.executable, [sys.executable, *sys.orig_argv[1:]], {**KEEP_MEMORY, **os.environ}
        )


def in_turns(
    jobs: Mapping[str, Callable[[], object]],
    *,
    rounds: int,
    label: str = "measuring",
    warm_up: bool = True,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, list[float]]:
    """Seconds of each job in each round; see `taking_turns`."""
    times = taking_turns(
        list(jobs.values()),
        rounds=rounds,
        warm_up=warm_up,
        clock=clock,
        watch=lambda numbers: track(numbers, label, console=Console(stderr=True)),
    )
    return dict(zip(jobs, times, strict=True))


def figures_of(
    seconds: Mapping[str, Sequence[float]],
    *,
    job: str,
    alternative: str,
    ceilings: Mapping[str, float] | None = None,
) -> list[Figure]:
    """Medians and ratios to ``alternative``, one of the names."""
    found = []
    for name, times in seconds.items():
        middle, low, high = speedup(seconds[alternative], times)
        found.append(
            Figure(
                job=job,
                name=name,
                seconds=statistics.median(times),
                speedup=middle,
                quartiles=(low, high),
                ceiling=(ceilings or {}).get(name),
            )
        )
    return found


def report(
    figures: Sequence[Figure], *, title: str, versus: str, name: str, options: argparse.Namespace
) -> None:
    """Print the figures as a table; with ``--output`` write them, and draw them.

    Args:
        figures: see ``figures_of``.
        title: what was measured, on what.
        versus: the alternative, for the header.
        name: of the files.
        options: the command line's.
    """
    table = Table(title=title, title_justify="left")
    for column in ("job", "by", "median s", f"x {versus}", "quartiles", "ceiling"):
        table.add_column(column, justify="left" if column in ("job", "by") else "right")
    for figure in figures:
        low, high = figure.quartiles
        table.add_row(
            figure.job,
            figure.name,
            f"{figure.seconds:.3f}",
            f"{figure.speedup:.2f}",
            f"{low:.2f} to {high:.2f}",
            f"{figure.ceiling:.2f}" if figure.ceiling else "",
        )
    Console(width=max(100, Console().width)).print(table)
    if options.output is not None:
        content = {"versus": versus, "figures": [asdict(figure) for figure in figures]}
        save(content, title=title, name=name, options=options)
        _draw(figures, title=title, versus=versus, place=options.output / name)


def save(content: Mapping[str, Any], *, title: str, name: str, options: argparse.Namespace) -> None:
    """Write NAME.json to the folder ``--output``, with what it was measured on."""
    options.output.mkdir(parents=True, exist_ok=True)
    described = {
        "title": title,
        "device": device(),
        "processor": device_name(device()),
        "torch": torch.__version__,
        "options": {key: str(value) for key, value in vars(options).items()},
        **content,
    }
    write_text_atomically(options.output / f"{name}.json", json.dumps(described, indent=1) + "\n")


def device() -> str:
    """The device of the computations: ``cuda`` if there is a GPU, else ``cpu``."""
    return "cuda" if torch.cuda.is_available() else "cpu"


def _draw(figures: Sequence[Figure], *, title: str, versus: str, place: Path) -> None:
    from headprune.report.drawing import BLUE, DARK, ORANGE, save_drawing

    def draw() -> matplotlib.figure.Figure:
        from matplotlib import pyplot  # not before save_drawing has made it quiet

        jobs = list(dict.fromkeys(figure.job for figure in figures))
        heights = [sum(figure.job == job for figure in figures) for job in jobs]
        drawn, places = pyplot.subplots(
            len(jobs),
            1,
            sharex=True,
            squeeze=False,
            figsize=(9, 1.8 + 0.45 * sum(heights) + 0.5 * len(jobs)),
            height_ratios=heights,
            layout="constrained",
        )
        for axes, job in zip(places.flat, jobs, strict=True):
            job_figures = [figure for figure in figures if figure.job == job]
            rows = range(len(job_figures))
            axes.barh(rows, [figure.speedup for figure in job_figures], color=BLUE, height=0.6)
            for row, figure in zip(rows, job_figures, strict=True):
                axes.plot(figure.quartiles, [row, row], color=DARK, linewidth=2)
                if figure.ceiling:
                    axes.plot(figure.ceiling, row, "|", color=ORANGE, markersize=16, mew=3)
            axes.set_yticks(rows, [figure.name for figure in job_figures])
            axes.invert_yaxis()
            axes.axvline(1, color=DARK, linewidth=1)
            axes.set_title(job, fontsize=12)
        places.flat[-1].set_xlabel(
            f"times as fast as {versus}\n(dark: quartiles; orange: ratio of operations)"
        )
        drawn.suptitle(title)
        return drawn

    save_drawing(draw, png=place.with_suffix(".png"), svg=place.with_suffix(".svg"))
