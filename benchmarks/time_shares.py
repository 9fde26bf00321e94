"""Time shares of operators in a training step or a beam search.

    python -m benchmarks.time_shares [--job "beam search"] [--threads 1] [--rounds 3]
        [--output FOLDER]

torch's profiler adds up the time of operators, in kinds: matrix products, softmax and losses,
choosing hypotheses, copying, and the rest. Beside them stands how fast the matrix products were,
by the operations that the model's plan needs, and how fast this processor multiplies two matrices
of 2048 x 2048: no other way of calling them could be faster than that.
"""

from __future__ import annotations

import re
import statistics
import time
from collections import defaultdict
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from torch.profiler import ProfilerActivity, profile

from benchmarks.measuring import device, keep_memory, parser, save
from benchmarks.transformer_base import (
    BEAM,
    BFLOAT16,
    FULL,
    PLANS,
    STOCK,
    UNPRUNED,
    beam_search,
    build_named,
    dictionary,
    random_batch,
    training_step,
)
from fairseq_plugin.decoding.linear import by_onednn, multiply
from headprune.cost import Sizes, forward_flops
from headprune.speed.turns import taking_turns

TRAINING, SEARCH = "training step", "beam search"
MODELS = (STOCK, FULL, "75% pruned", FULL + BFLOAT16)
REST = "the rest"
KINDS = {  # patterns of torch's names, tried in this order
    "matrix products": r"mm$|linear|attention",
    "softmax, loss, norm": r"softmax|nll_loss|layer_norm",
    "choosing hypotheses": r"topk|index_select|gather|masked_fill|^ne$|sort",
    "copying": r"copy_|^cat$|clone|fill_|zero_",
    "dropout, sums": r"bernoulli_|dropout|^(add|mul|div|sum)_?$",
}


def kind_of(operator: str) -> str:
    """The kind that an operator, such as ``aten::addmm``, counts among."""
    name = operator.split("::")[-1]
    return next((kind for kind, pattern in KINDS.items() if re.search(pattern, name)), REST)


def shares(work: Callable[[], object], *, rounds: int) -> dict[str, float]:
    """Seconds of each kind, in the median run of ``work``; the rest is what torch did not do.

    The profiler makes what calls many operators slower: its shares are of the time without it.
    """
    whole = statistics.median(taking_turns([work], rounds=rounds)[0])
    with profile(activities=[ProfilerActivity.CPU]) as profiled:
        work()
    found: dict[str, float] = defaultdict(float)
    for event in profiled.key_averages():
        if "::" in event.key:
            found[kind_of(event.key)] += event.self_cpu_time_total / 1e6
    busy = sum(found.values())
    scale = min(1.0, whole / busy)
    found[REST] += max(0.0, whole - busy)
    return {kind: seconds * scale for kind, seconds in found.items()}


def peak(dtype: torch.dtype) -> float:
    """Floating-point operations a second of a product of large matrices, by the faster library."""
    size, best = 2048, float("inf")
    x = torch.randn(size, size).to(device(), dtype)
    ways: list[Callable[[], object]] = [lambda: x @ x]
    with torch.no_grad():
        if by_onednn(x, x):
            ways.append(lambda: multiply(x, x, None))
        for way in ways * 5:
            began = time.perf_counter()
            way()
            best = min(best, time.perf_counter() - began)
    return 2 * size**3 / best


def main() -> None:
    """Profile and print."""
    if device() != "cpu":
        raise SystemExit("time_shares profiles processors; hide the GPU: CUDA_VISIBLE_DEVICES=")
    keep_memory()
    arguments = parser(__doc__, rounds=3)
    arguments.add_argument("--job", choices=(TRAINING, SEARCH), default=SEARCH)
    arguments.add_argument("--sentences", type=int, default=16, help="of a batch")
    arguments.add_argument("--length", type=int, default=24, help="tokens of a sentence")
    arguments.add_argument("--vocabulary", type=int, default=32000)
    options = arguments.parse_args()
    torch.set_num_threads(options.threads)
    words = dictionary(options.vocabulary)
    batch = random_batch(words, sentences=options.sentences, length=options.length)
    work: Callable[..., Any] = partial(beam_search, words=words)
    passes, beam = 1, BEAM
    if options.job == TRAINING:
        work, passes, beam = training_step, 3, 1  # backward takes two products for each forward

    found = {}
    for name in MODELS:
        model = build_named(name, words)
        seconds = shares(partial(work, model, batch), rounds=options.rounds)
        flops = passes * forward_flops(
            PLANS[name] or UNPRUNED,
            Sizes(vocabulary=options.vocabulary),
            source=options.length,
            target=options.length,
            beam=beam,
        )
        found[name] = {
            "seconds": seconds,
            "flops per second": options.sentences * flops / seconds["matrix products"],
        }
    peaks = {str(dtype): peak(dtype) for dtype in (torch.float32, torch.bfloat16)}
    title = (
        f"{options.job}, Transformer-Base, {options.sentences} x {options.length} tokens, "
        f"{device()}, {options.threads} threads. Large matrices: "
        + ", ".join(f"{name} {speed / 1e9:.0f} GFLOP/s" for name, speed in peaks.items())
    )
    table = Table(title=title, title_justify="left")
    table.add_column("seconds")
    for name in MODELS:
        table.add_column(name, justify="right")
    for kind in (*KINDS, REST):
        values = [found[name]["seconds"].get(kind, 0.0) for name in MODELS]
        table.add_row(kind, *(f"{value:.2f}" for value in values))
    table.add_row("all", *(f"{sum(found[name]['seconds'].values()):.2f}" for name in MODELS))
    speeds = [found[name]["flops per second"] / 1e9 for name in MODELS]
    table.add_row("products, GFLOP/s", *(f"{speed:.0f}" for speed in speeds))
    Console(width=max(110, Console().width)).print(table)
    if options.output is not None:
        name = f"time_shares-{options.job.replace(' ', '-')}"
        save({"models": found, "peaks": peaks}, title=title, name=name, options=options)


if __name__ == "__main__":
    main()
