"""Growth of the cost with pruned heads, length, batch, beam and number of scored heads.

    python -m benchmarks.growth [--rounds 3] [--threads 2] [--only "training step"]
        [--output FOLDER]

Training steps and beam search of Transformer-Base's sizes, one of percent pruned, source length,
batch and beam changed and the others left as they are, against stock fairseq; scoring of BERT-type
classifiers with more and more heads, against the plain loop over heads. Random weights; in turns,
medians. The figure shows seconds.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from rich.console import Console
from rich.table import Table

from benchmarks import scoring_speed
from benchmarks.measuring import device, in_turns, keep_memory, parser, save
from benchmarks.transformer_base import (
    FULL,
    SHAPE,
    STOCK,
    beam_search,
    build,
    dictionary,
    random_batch,
    training_step,
)
from headprune import select
from headprune.scores.gradients import gradient_scores
from headprune.speed.turns import speedup
from hf_plugin.scores.model import HuggingFaceModel

if TYPE_CHECKING:
    import matplotlib.figure

TRAINING, SEARCH, SCORING = JOBS = ("training step", "beam search", "scoring")
PERCENTS = (0, 25, 50, 75, 87.5)
LENGTHS = (8, 16, 32, 64, 128)
BATCHES = (1, 4, 16, 64)
BEAMS = (1, 2, 4, 8)
HEADS = (2, 4, 8, 16)  # of each of 6 layers
BATCH, LENGTH = 8, 24  # where they are not what is changed
QUARTER = "75% pruned"
GRADIENT = "gradient of every head"


@dataclass(frozen=True, kw_only=True)
class Point:
    """One time.

    Attributes:
        job: what was done.
        axis: what was changed.
        value: to what.
        name: by what.
        seconds: the median.
        speedup: the median ratio to the alternative, with the quartiles.
    """

    job: str
    axis: str
    value: float
    name: str
    seconds: float
    speedup: tuple[float, float, float]


def points(
    turns: Mapping[str, Callable[[], object]],
    *,
    job: str,
    axis: str,
    value: float,
    alternative: str,
    rounds: int,
) -> Iterator[Point]:
    """Time each job."""
    seconds = in_turns(turns, rounds=rounds, label=f"{job}, {axis} {value:g}")
    for name, times in seconds.items():
        yield Point(
            job=job,
            axis=axis,
            value=value,
            name=name,
            seconds=statistics.median(times),
            speedup=speedup(seconds[alternative], times),
        )


def translation(job: str, *, rounds: int) -> Iterator[Point]:
    """Training steps or beam search."""
    words = dictionary(32000)
    work = training_step if job == TRAINING else partial(beam_search, words=words)
    stock = build(None, words)
    pruned = {
        percent: build(select.at_random(SHAPE, percent=percent, seed=1), words)
        for percent in PERCENTS
    }
    measured = partial(points, job=job, alternative=STOCK, rounds=rounds)
    batch_of = partial(random_batch, words)

    # Before anything is timed the process takes the memory that it will keep.
    work(stock, batch_of(sentences=max(BATCHES), length=LENGTH))
    usual = batch_of(sentences=BATCH, length=LENGTH)
    for percent, model in pruned.items():
        turns = {STOCK: partial(work, stock, usual), "headprune": partial(work, model, usual)}
        yield from measured(turns, axis="percent pruned", value=percent)

    models = {STOCK: stock, FULL: pruned[0], QUARTER: pruned[75]}

    def all_models(axis: str, value: float, batch: Any, **options: int) -> Iterator[Point]:
        turns = {name: partial(work, model, batch, **options) for name, model in models.items()}
        yield from measured(turns, axis=axis, value=value)

    for length in LENGTHS:
        yield from all_models("source length", length, batch_of(sentences=BATCH, length=length))
    for size in BATCHES:
        yield from all_models("sentences of a batch", size, batch_of(sentences=size, length=LENGTH))
    if job == SEARCH:
        for beam in BEAMS:
            yield from all_models("beam", beam, usual, beam=beam)


def scoring(*, rounds: int) -> Iterator[Point]:
    """Ablation of every head, both ways, and the gradient of all."""
    for heads in HEADS:
        model, batch = scoring_speed.model_and_batch("minilm", heads=heads, examples=16, length=32)
        turns: dict[str, Callable[[], object]] = {
            scoring_speed.PLAIN: partial(scoring_speed.plain, model, batch),
            scoring_speed.SHARED: partial(scoring_speed.shared, model, batch),
            GRADIENT: partial(gradient_scores, HuggingFaceModel(model), [batch]),
        }
        yield from points(
            turns,
            job=SCORING,
            axis="heads of the model",
            value=heads * model.config.num_hidden_layers,
            alternative=scoring_speed.PLAIN,
            rounds=rounds,
        )


def show(found: Sequence[Point], *, title: str) -> None:
    """Print a table."""
    table = Table(title=title, title_justify="left")
    for column in ("job", "axis", "value", "by", "median s", "x the alternative", "quartiles"):
        table.add_column(column, justify="left" if column in ("job", "axis", "by") else "right")
    for point in found:
        middle, low, high = point.speedup
        table.add_row(
            *(point.job, point.axis, f"{point.value:g}", point.name, f"{point.seconds:.3f}"),
            *(f"{middle:.2f}", f"{low:.2f} to {high:.2f}"),
        )
    Console(width=max(120, Console().width)).print(table)


def draw(found: Sequence[Point], *, title: str, place: Path) -> None:
    """One panel for each job and axis."""
    from headprune.report.drawing import BLUE, GREEN, GREY, ORANGE, save_drawing

    panels = list(dict.fromkeys((point.job, point.axis) for point in found))
    colours = {STOCK: GREY, FULL: BLUE, "headprune": BLUE, QUARTER: ORANGE}
    colours |= {scoring_speed.PLAIN: GREY, scoring_speed.SHARED: BLUE, GRADIENT: GREEN}

    def drawn() -> matplotlib.figure.Figure:
        from matplotlib import pyplot  # not before save_drawing has made it quiet

        columns = 4
        rows = -(-len(panels) // columns)
        figure, places = pyplot.subplots(
            rows, columns, squeeze=False, figsize=(16, 4.2 * rows), layout="constrained"
        )
        for axes in places.flat[len(panels) :]:
            axes.set_visible(False)
        for axes, (job, axis) in zip(places.flat, panels, strict=False):
            panel_points = [point for point in found if (point.job, point.axis) == (job, axis)]
            for name in dict.fromkeys(point.name for point in panel_points):
                line = [point for point in panel_points if point.name == name]
                values = [point.value for point in line]
                seconds = [point.seconds for point in line]
                axes.plot(values, seconds, "o-", color=colours[name], label=name)
            if axis == "percent pruned":
                axes.set_ylim(bottom=0)
            else:
                axes.set_xscale("log", base=2)
                axes.set_yscale("log", base=2)
                axes.set_xticks(sorted({point.value for point in panel_points}))
                axes.xaxis.set_major_formatter("{x:g}")
                axes.yaxis.set_major_formatter("{x:.3g}")
            axes.set_title(job, fontsize=12)
            axes.set_xlabel(axis)
            axes.set_ylabel("seconds")
            axes.legend(fontsize=9)
        figure.suptitle(title)
        return figure

    save_drawing(drawn, png=place.with_suffix(".png"), svg=place.with_suffix(".svg"))


def main() -> None:
    """Measure, print and draw."""
    keep_memory()
    arguments: argparse.ArgumentParser = parser(__doc__, rounds=3)
    arguments.add_argument("--only", choices=JOBS, help="one of the jobs")
    options = arguments.parse_args()
    torch.set_num_threads(options.threads)
    found: list[Point] = []
    for job in JOBS if options.only is None else (options.only,):
        rounds = options.rounds
        found += scoring(rounds=rounds) if job == SCORING else translation(job, rounds=rounds)
    title = f"How cost grows, {device()}, {options.threads} threads, {options.rounds} rounds"
    show(found, title=title)
    if options.output is not None:
        save({"points": [asdict(p) for p in found]}, title=title, name="growth", options=options)
        draw(found, title=title, place=options.output / "growth")


if __name__ == "__main__":
    main()
