"""Speed of ablation with shared work relative to the plain loop over heads.

    python -m benchmarks.scoring_speed [--sizes minilm] [--rounds 5] [--threads 2] [--output FOLDER]

BERT-type classifiers with random weights; each round runs both ways once, in turn, so that what
else the machine does meets them alike. The plain loop masks one head at a time and runs the whole
model; the other (headprune/scores/reuse.py) runs only what the mask changes. Both must give the
same losses to 1e-5, or the benchmark fails. Printed are medians over the rounds of the ratio in the
same round, with the quartiles, and the ceiling: the ratio of floating-point operations.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping

import torch
from torch import Tensor
from transformers import BertConfig, BertForSequenceClassification

import hf_plugin
from benchmarks.measuring import Figure, device, figures_of, in_turns, keep_memory, parser, report
from headprune import HeadPlan
from headprune.scores.ablation import cases_of
from headprune.scores.reuse import masked_outcomes
from hf_plugin.scores.model import HuggingFaceModel

PLAIN, SHARED = "plain loop over heads", "shared work"
SIZES = {
    "minilm": {"num_hidden_layers": 6, "hidden_size": 384, "intermediate_size": 1536},
    "distilbert": {"num_hidden_layers": 6, "hidden_size": 768, "intermediate_size": 3072},
    "bert-base": {"num_hidden_layers": 12, "hidden_size": 768, "intermediate_size": 3072},
}
Batch = Mapping[str, Tensor]
Losses = dict[tuple[str, int, int], Tensor]


def model_and_batch(
    name: str, *, examples: int, length: int, heads: int = 12
) -> tuple[BertForSequenceClassification, Batch]:
    """A classifier of these sizes, and random examples with labels."""
    torch.manual_seed(1)
    config = BertConfig.from_dict({**SIZES[name], "num_attention_heads": heads})
    model = BertForSequenceClassification(config).eval()
    model.to(device())  # type: ignore[arg-type]
    ids = torch.randint(1000, 20000, (examples, length), device=device())
    labels = torch.arange(examples, device=device()) % 2
    batch = {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": labels}
    return model, batch


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
    keep_memory()
    options = parser(__doc__, rounds=5)
    options.add_argument("--sizes", choices=SIZES, nargs="+", default=["minilm"])
    options.add_argument("--examples", type=int, default=32, help="of a batch")
    options.add_argument("--length", type=int, default=32, help="tokens of an example")
    chosen = options.parse_args()
    torch.set_num_threads(chosen.threads)
    figures: list[Figure] = []
    for name in chosen.sizes:
        figures += measure(name, chosen)
    title = (
        f"Ablation of every head, {chosen.examples} x {chosen.length} tokens, {device()}, "
        f"{chosen.threads} threads, {chosen.rounds} rounds"
    )
    report(figures, title=title, versus=PLAIN, name="scoring_speed", options=chosen)


def measure(name: str, options: argparse.Namespace) -> list[Figure]:
    """Time both ways on a model of these sizes."""
    model, batch = model_and_batch(name, examples=options.examples, length=options.length)
    losses: dict[str, Losses] = {}

    def run(way: str, work: Callable[[BertForSequenceClassification, Batch], Losses]) -> None:
        losses[way] = work(model, batch)

    seconds = in_turns(
        {PLAIN: lambda: run(PLAIN, plain), SHARED: lambda: run(SHARED, shared)},
        rounds=options.rounds,
        label=name,
    )
    largest = max(
        (losses[PLAIN][place] - losses[SHARED][place]).abs().max().item() for place in losses[PLAIN]
    )
    if not largest <= 1e-5:
        raise SystemExit(f"{name}: the two ways differ by {largest:.1e}")
    ceilings = {SHARED: ceiling(model, options.length)}
    return figures_of(seconds, job=name, alternative=PLAIN, ceilings=ceilings)


if __name__ == "__main__":
    main()
