"""What sharing work buys in scoring: ablation of every head, against the plain loop over heads.

    python -m benchmarks.scoring_speed [--sizes minilm] [--rounds 5] [--threads 2] [--json FILE]

BERT-type classifiers with random weights; each round runs both ways once, in turn, so that what
else the machine does meets them alike. The plain loop masks one head at a time and runs the whole
model; the other (headprune/scores/reuse.py) runs only what the mask changes. Both must give the
same losses to 1e-5, or the benchmark fails. Printed are medians over the rounds of the ratio in the
same round, with the quartiles, and the ceiling: the ratio of floating-point operations.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Mapping
from typing import Any

import torch
from rich.console import Console
from rich.progress import track
from rich.table import Table
from torch import Tensor
from transformers import BertConfig, BertForSequenceClassification

import hf_plugin
from headprune import HeadPlan
from headprune.scores.ablation import cases_of
from headprune.scores.reuse import masked_outcomes
from hf_plugin.scores.model import HuggingFaceModel

SIZES = {
    "minilm": {"num_hidden_layers": 6, "hidden_size": 384, "intermediate_size": 1536},
    "distilbert": {"num_hidden_layers": 6, "hidden_size": 768, "intermediate_size": 3072},
    "bert-base": {"num_hidden_layers": 12, "hidden_size": 768, "intermediate_size": 3072},
}
Batch = Mapping[str, Tensor]
Losses = dict[tuple[str, int, int], Tensor]


def plain(model: BertForSequenceClassification, batch: Batch) -> Losses:
    """The losses without each head, by one run of the model a head."""
    full = hf_plugin.head_plan(model)
    scored = HuggingFaceModel(model)
    losses = {}
    for layer, kept in enumerate(full.kept["ES"]):
        for head in kept:
            layers = list(full.kept["ES"])
            layers[layer] = tuple(other for other in kept if other != head)
            plan = HeadPlan(kept={"ES": layers}, heads=full.heads)
            with torch.no_grad(), hf_plugin.masked(model, plan):
                losses["ES", layer, head] = scored.outcome(batch).losses
    return losses


def shared(model: BertForSequenceClassification, batch: Batch) -> Losses:
    """The same, sharing what masks do not change."""
    scored = HuggingFaceModel(model)
    _, found = masked_outcomes(scored, batch, cases_of(scored, "ablation"))
    return {
        (component, layer, head): outcome.losses
        for (component, layer), outcomes in found.items()
        for head, outcome in enumerate(outcomes)
    }


def ceiling(model: BertForSequenceClassification, length: int) -> float:
    """Operations of the plain loop over those of sharing: projections, attention, feed-forward.

    Masks of a layer run its feed-forward part and all that is above it, the top layer's for the
    first token alone; everything runs twice more without masks.
    """
    config = model.config
    layers, heads, width = (
        config.num_hidden_layers,
        config.num_attention_heads,
        config.hidden_size,
    )
    attention = 4 * width**2 + 2 * length * width
    feed_forward = 2 * width * config.intermediate_size
    layer = attention + feed_forward
    masked = sum(feed_forward + (layers - 2 - n) * layer + attention for n in range(layers - 1))
    return layers * heads * layers * layer / (heads * masked + 2 * layers * layer)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--sizes", choices=SIZES, nargs="+", default=["minilm"])
    parser.add_argument("--rounds", type=int, default=5, help="how often each way is timed")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--examples", type=int, default=32, help="of a batch")
    parser.add_argument("--length", type=int, default=32, help="tokens of an example")
    parser.add_argument("--json", help="write the figures here too")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    figures = [measure(name, options, device) for name in options.sizes]
    show(figures, device=device, options=options)
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump({"device": device, **vars(options), "figures": figures}, file, indent=1)


def measure(name: str, options: argparse.Namespace, device: str) -> dict[str, Any]:
    """Time both ways on a model of these sizes."""
    torch.manual_seed(1)
    config = BertConfig(num_attention_heads=12, **SIZES[name])
    model = BertForSequenceClassification(config).to(device).eval()
    ids = torch.randint(1000, 20000, (options.examples, options.length), device=device)
    batch = {
        "input_ids": ids,
        "attention_mask": torch.ones_like(ids),
        "labels": torch.arange(options.examples, device=device) % 2,
    }
    seconds: dict[str, list[float]] = {"plain": [], "shared": []}
    largest = 0.0
    console = Console(stderr=True)
    for round_ in track(range(options.rounds + 1), name, console=console):
        losses = {}
        for way, work in (("plain", plain), ("shared", shared)):
            _wait(device)
            began = time.perf_counter()
            losses[way] = work(model, batch)
            _wait(device)
            if round_:  # the first warms up
                seconds[way].append(time.perf_counter() - began)
        differences = [
            (losses["plain"][place] - losses["shared"][place]).abs().max().item()
            for place in losses["plain"]
        ]
        largest = max(largest, *differences)
    if not largest <= 1e-5:
        raise SystemExit(f"{name}: the two ways differ by {largest:.1e}")
    ratios = [a / b for a, b in zip(seconds["plain"], seconds["shared"], strict=True)]
    low, middle, high = statistics.quantiles(ratios, n=4, method="inclusive")
    return {
        "model": name,
        "heads": sum(map(len, hf_plugin.head_plan(model).kept["ES"])),
        "plain_seconds": statistics.median(seconds["plain"]),
        "shared_seconds": statistics.median(seconds["shared"]),
        "speedup": middle,
        "quartiles": [low, high],
        "ceiling": ceiling(model, options.length),
        "largest_difference": largest,
    }


def _wait(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def show(figures: list[dict[str, Any]], *, device: str, options: argparse.Namespace) -> None:
    """Print the figures as a table."""
    title = (
        f"Ablation of every head, {options.examples} x {options.length} tokens, {device}, "
        f"{options.threads} threads, {options.rounds} rounds"
    )
    table = Table(title=title, title_justify="left")
    for column in ("model", "heads", "plain s", "shared s", "speedup", "quartiles", "ceiling"):
        table.add_column(column, justify="left" if column == "model" else "right")
    table.add_column("largest difference", justify="right")
    for figure in figures:
        low, high = figure["quartiles"]
        table.add_row(
            figure["model"],
            str(figure["heads"]),
            f"{figure['plain_seconds']:.2f}",
            f"{figure['shared_seconds']:.2f}",
            f"{figure['speedup']:.2f}",
            f"{low:.2f} to {high:.2f}",
            f"{figure['ceiling']:.2f}",
            f"{figure['largest_difference']:.0e}",
        )
    Console().print(table)


if __name__ == "__main__":
    main()
