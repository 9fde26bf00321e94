"""Peak memory of training steps, against stock fairseq.

    python -m benchmarks.fairseq_memory [--sentences 64] [--length 32] [--output FOLDER]

Each model (Transformer-Base's sizes, random weights) trains some steps with Adam in a process of
its own. On a GPU it is what torch has allocated at the most; on a CPU the largest resident set
beyond that of the process before the model was made.
"""

from __future__ import annotations

import argparse
import multiprocessing
import resource
import statistics
import sys

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

STEPS = 2  # from the second on, Adam has its averages


def peak_of_training(name: str, options: argparse.Namespace) -> int:
    """Bytes. To be called in a new process, as a process's peak never falls."""
    torch.set_num_threads(options.threads)
    words = dictionary(options.vocabulary)
    before = _largest_resident_set()
    model = build_named(name, words)
    batch = random_batch(words, sentences=options.sentences, length=options.length)
    optimizer = torch.optim.Adam(model.parameters())
    for _ in range(STEPS):
        training_step(model, batch)
        optimizer.step()
    if torch.cuda.is_available():
        return torch.cuda.max_memory_allocated()
    return _largest_resident_set() - before


def _largest_resident_set() -> int:
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def main() -> None:
    """Measure and print."""
    arguments = parser(__doc__, rounds=3)
    arguments.add_argument("--sentences", type=int, default=64, help="of a batch")
    arguments.add_argument("--length", type=int, default=32, help="tokens of a sentence")
    arguments.add_argument("--vocabulary", type=int, default=32000)
    options = arguments.parse_args()
    context = multiprocessing.get_context("spawn")
    peaks: dict[str, list[int]] = {name: [] for name in PLANS}
    for _ in track(range(options.rounds), "measuring", console=Console(stderr=True)):
        for name, found in peaks.items():
            with context.Pool(1) as pool:
                found.append(pool.apply(peak_of_training, (name, options)))

    title = (
        f"Peak memory of training, Transformer-Base, {options.sentences} x {options.length} tokens,"
        f" {device()}, {options.rounds} rounds"
    )
    medians = {name: statistics.median(found) for name, found in peaks.items()}
    table = Table(title=title, title_justify="left")
    for column in ("model", "median MiB", "lowest", "highest", f"share of {STOCK}"):
        table.add_column(column, justify="left" if column == "model" else "right")
    for name, found in peaks.items():
        table.add_row(
            name,
            *(f"{size / 2**20:.0f}" for size in (medians[name], min(found), max(found))),
            f"{medians[name] / medians[STOCK]:.2f}",
        )
    Console(width=max(100, Console().width)).print(table)
    if options.output is not None:
        save({"bytes": peaks}, title=title, name="fairseq_memory", options=options)


if __name__ == "__main__":
    main()
