"""Peak memory of training steps, against stock fairseq, and what keeping memory gives on a CPU.

    python -m benchmarks.fairseq_memory [--sentences 64] [--length 32] [--output FOLDER]

Each model (Transformer-Base's sizes, random weights) trains some steps with Adam in a process of
its own. Peak memory on a GPU is what torch has allocated at the most; on a CPU the largest resident
set beyond that of the process before the model was made. On a CPU each model does so a second time
in the environment `headprune.memory.KEEP_MEMORY`, and is timed in both.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import resource
import statistics
import sys
from dataclasses import asdict, dataclass, field

import torch
from rich.console import Console
from rich.progress import track
from rich.table import Table

from benchmarks.measuring import device, parser, save
from benchmarks.transformer_base import (
    PLANS,
    STOCK,
    build_named,
    dictionary,
    random_batch,
    training_step,
)
from headprune.memory import KEEP_MEMORY
from headprune.speed.turns import speedup, taking_turns

DEFAULT, KEPT = "as it is", "kept"


@dataclass(frozen=True)
class Measured:
    """Of one model: bytes, and seconds of a step, in each round."""

    peaks: list[int] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)


def train(name: str, options: argparse.Namespace) -> tuple[int, float]:
    """Peak memory in bytes, and the median of a step's seconds in the later half of the steps.

    To be called in a new process, as a process's peak never falls.
    """
    torch.set_num_threads(options.threads)
    words = dictionary(options.vocabulary)
    before = _largest_resident_set()
    model = build_named(name, words)
    batch = random_batch(words, sentences=options.sentences, length=options.length)
    optimizer = torch.optim.Adam(model.parameters())

    def step() -> None:
        training_step(model, batch)
        optimizer.step()

    seconds = taking_turns([step], rounds=options.steps, warm_up=False)[0]
    used = _largest_resident_set() - before
    if torch.cuda.is_available():
        used = torch.cuda.max_memory_allocated()
    return used, statistics.median(seconds[len(seconds) // 2 :])


def _largest_resident_set() -> int:
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def main() -> None:
    """Measure and print."""
    arguments = parser(__doc__, rounds=3)
    arguments.add_argument("--sentences", type=int, default=64, help="of a batch")
    arguments.add_argument("--length", type=int, default=32, help="tokens of a sentence")
    arguments.add_argument("--steps", type=int, default=10, help="of training, two at least")
    arguments.add_argument("--vocabulary", type=int, default=32000)
    options = arguments.parse_args()
    context = multiprocessing.get_context("spawn")
    environments = {DEFAULT: {}} if torch.cuda.is_available() else {DEFAULT: {}, KEPT: KEEP_MEMORY}
    found: dict[str, dict[str, Measured]] = {
        memory: {name: Measured() for name in PLANS} for memory in environments
    }
    for variable in KEEP_MEMORY:
        os.environ.pop(variable, None)
    for _ in track(range(options.rounds), "measuring", console=Console(stderr=True)):
        for name in PLANS:
            for memory, environment in environments.items():
                os.environ.update(environment)
                with context.Pool(1) as pool:
                    size, seconds = pool.apply(train, (name, options))
                for variable in environment:
                    del os.environ[variable]
                found[memory][name].peaks.append(size)
                found[memory][name].seconds.append(seconds)

    title = (
        f"Peak memory of training, Transformer-Base, {options.sentences} x {options.length} tokens,"
        f" {device()}, {options.threads} threads, {options.rounds} rounds"
    )
    stock = statistics.median(found[DEFAULT][STOCK].peaks)
    table = Table(title=title, title_justify="left")
    table.add_column("memory")
    table.add_column("model")
    for column in ("median MiB", "lowest", "highest", f"share of {STOCK}", "times as fast"):
        table.add_column(column, justify="right")
    for memory, models in found.items():
        for name, measured in models.items():
            middle, peaks = statistics.median(measured.peaks), measured.peaks
            table.add_row(
                memory,
                name,
                *(f"{size / 2**20:.0f}" for size in (middle, min(peaks), max(peaks))),
                f"{middle / stock:.2f}",
                f"{speedup(found[DEFAULT][name].seconds, measured.seconds)[0]:.2f}",
            )
    Console(width=max(100, Console().width)).print(table)
    if options.output is not None:
        content = {
            memory: {name: asdict(measured) for name, measured in models.items()}
            for memory, models in found.items()
        }
        save(content, title=title, name="fairseq_memory", options=options)


if __name__ == "__main__":
    main()
