"""Speed of pruned BERT models relative to transformers' unpruned model.

    python -m benchmarks.bert_speed [--rounds 9] [--threads 2] [--output FOLDER]

BERT-base with random weights, its own attention (sdpa), batches of 32 x 128 tokens and single
sentences of 128. Where torch-pruning is installed, the same heads are cut by it too. The ceiling is
the ratio of floating-point operations, worked out from the plan.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from transformers import BertConfig, BertModel

import hf_plugin
from benchmarks.measuring import Figure, device, figures_of, in_turns, keep_memory, parser, report
from headprune import HeadPlan, select
from headprune.cost import Sizes, forward_flops

SHAPE = {"ES": (12,) * 12}
PLANS = {
    "all heads": HeadPlan.full(SHAPE),
    "50% pruned": select.at_random(SHAPE, percent=50, seed=1, at_least=1),
    "75% pruned": select.at_random(SHAPE, percent=75, seed=1, at_least=1),
    "one head a layer": select.at_random(SHAPE, keep={"ES": "1" * 12}, seed=1),
}
SIZES = Sizes(encoder_width=768, encoder_feed_forward=3072, encoder_head_dim=64, vocabulary=0)
UNPRUNED = "transformers, unpruned"


def main() -> None:
    """Measure and print."""
    keep_memory()
    options = parser(__doc__, rounds=9)
    options.add_argument("--length", type=int, default=128, help="tokens of a sentence")
    options.add_argument("--batches", type=int, nargs="+", default=[32, 1], help="sentences of one")
    chosen = options.parse_args()
    torch.set_num_threads(chosen.threads)
    torch.manual_seed(1)
    stock = BertModel(BertConfig(), add_pooling_layer=False).eval().to(device())
    models = {UNPRUNED: stock}
    for name, plan in PLANS.items():
        models[name] = hf_plugin.prune_heads(copy.deepcopy(stock), plan)
        by_other = torch_pruning(copy.deepcopy(stock), plan)
        if by_other is not None and not plan.is_full:
            models[f"{name}, torch-pruning"] = by_other
    figures: list[Figure] = []
    for size in chosen.batches:
        ids = torch.randint(1000, 20000, (size, chosen.length), device=device())

        def run(model: BertModel, ids: torch.Tensor = ids) -> None:
            with torch.no_grad():
                model(ids)

        full = forward_flops(HeadPlan.full(SHAPE), SIZES, source=chosen.length)
        seconds = in_turns(
            {name: partial(run, model) for name, model in models.items()},
            rounds=chosen.rounds,
            label=f"batch of {size}",
        )
        ceilings = {
            name: full / forward_flops(PLANS[name.split(",")[0]], SIZES, source=chosen.length)
            for name in models
            if name != UNPRUNED
        }
        figures += figures_of(
            seconds, job=f"{size} x {chosen.length} tokens", alternative=UNPRUNED, ceilings=ceilings
        )
    title = f"BERT-base, {device()}, {chosen.threads} threads, {chosen.rounds} rounds"
    report(figures, title=title, versus="unpruned", name="bert_speed", options=chosen)


def torch_pruning(model: BertModel, plan: HeadPlan) -> BertModel | None:
    """The same heads cut by torch-pruning; None where it is not installed."""
    try:
        from torch_pruning.pruner import function
    except ImportError:
        return None
    for number, kept in enumerate(plan.kept["ES"]):
        attention: Any = model.encoder.layer[number].attention
        gone = _rows([head for head in range(12) if head not in kept], size=64)
        for part in (attention.self.query, attention.self.key, attention.self.value):
            function.prune_linear_out_channels(part, gone)
        function.prune_linear_in_channels(attention.output.dense, gone)
        attention.self.num_attention_heads = len(kept)
        attention.self.all_head_size = 64 * len(kept)
    return model


def _rows(heads: Sequence[int], *, size: int) -> list[int]:
    return [row for head in heads for row in range(head * size, (head + 1) * size)]


if __name__ == "__main__":
    main()
