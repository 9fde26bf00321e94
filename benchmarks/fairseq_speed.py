"""What pruned heads buy in time: training steps and beam search, against stock fairseq.

    python -m benchmarks.fairseq_speed [--rounds 9] [--threads 2] [--json FILE]

Models of Transformer-Base's sizes with random weights; each round times every model once, in turn,
so that what else the machine does meets all of them alike. Printed are medians over the rounds of
the ratio to stock fairseq in the same round, with the quartiles, and the ceiling: the ratio of
floating-point operations, worked out from the plan. It is what pruning alone can give; the
plugin's own translating is faster in other ways too. In beam search all models are held to the
same number of steps. Times depend on the machine; ratios are what to compare.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from argparse import Namespace
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import torch
from fairseq.data import Dictionary
from fairseq.models import ARCH_CONFIG_REGISTRY, ARCH_MODEL_REGISTRY
from fairseq.sequence_generator import SequenceGenerator
from rich.console import Console
from rich.progress import track
from rich.table import Table

import fairseq_plugin  # noqa: F401  (registers the architecture)
from headprune import HeadPlan, select
from headprune.cost import Sizes, forward_flops

SHAPE = dict.fromkeys(("ES", "ED", "DS"), (8,) * 6)
PLANS = {
    "stock fairseq": None,
    "all heads": HeadPlan.full(SHAPE),
    "50% pruned": select.at_random(SHAPE, percent=50, seed=1),
    "75% pruned": select.at_random(SHAPE, percent=75, seed=1),
    "one head a layer": select.at_random(SHAPE, keep=dict.fromkeys(SHAPE, "111111"), seed=1),
}
BFLOAT16 = ", bfloat16"
PLANS |= {name + BFLOAT16: PLANS[name] for name in ("all heads", "75% pruned")}

BEAM = 4


def build(plan: HeadPlan | None, words: Dictionary, device: str, *, autocast: str) -> Any:
    """Transformer-Base with random weights; None is stock fairseq's."""
    arch = "transformer" if plan is None else "transformer_headpruned"
    args = Namespace(arch=arch, share_all_embeddings=True, dropout=0.1)
    if plan is not None:
        args.head_plan = plan.to_json()
        args.autocast = autocast
    ARCH_CONFIG_REGISTRY[arch](args)
    task = SimpleNamespace(source_dictionary=words, target_dictionary=words)
    torch.manual_seed(1)
    return ARCH_MODEL_REGISTRY[arch].build_model(args, task).to(device)


def training_step(model: Any, sample: dict[str, torch.Tensor]) -> None:
    """Forward and backward pass over one batch."""
    model.zero_grad()
    logits = model(**sample)[0]
    torch.nn.functional.cross_entropy(
        logits.flatten(0, 1), sample["prev_output_tokens"].flatten()
    ).backward()


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--rounds", type=int, default=9, help="how often each model is timed")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--sentences", type=int, default=32, help="of a batch")
    parser.add_argument("--search", type=int, default=16, help="sentences of a beam search")
    parser.add_argument("--length", type=int, default=24, help="tokens of a sentence")
    parser.add_argument("--vocabulary", type=int, default=32000)
    parser.add_argument("--only", help="one of the jobs: training step, beam search")
    parser.add_argument("--json", help="write the figures here too")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    device = "cuda" if torch.cuda.is_available() else "cpu"

    words = Dictionary()
    for number in range(options.vocabulary - words.nspecial):
        words.add_symbol(str(number))
    generator = torch.Generator().manual_seed(1)
    source = torch.randint(
        words.nspecial, len(words), (options.sentences, options.length), generator=generator
    ).to(device)
    sample = {
        "src_tokens": source,
        "src_lengths": torch.full((options.sentences,), options.length, device=device),
        "prev_output_tokens": source.flip(1),
    }
    models = {
        name: build(plan, words, device, autocast="bf16" if name.endswith(BFLOAT16) else "none")
        for name, plan in PLANS.items()
    }

    def search(model: Any) -> None:
        length = options.length  # no longer and no shorter
        beam = SequenceGenerator(
            [model], words, beam_size=BEAM, max_len_b=length, max_len_a=0, min_len=length
        )
        net_input = {key: sample[key][: options.search] for key in ("src_tokens", "src_lengths")}
        with torch.no_grad():
            found = beam.generate([model], {"net_input": net_input})
        assert {len(best["tokens"]) for sentence in found for best in sentence} == {length + 1}

    jobs: dict[str, Callable[[Any], None]] = {
        "training step": lambda model: training_step(model.train(), sample),
        "beam search": lambda model: search(model.eval()),
    }
    jobs = {job: work for job, work in jobs.items() if options.only in (None, job)}
    seconds: dict[str, dict[str, list[float]]] = {
        job: {name: [] for name in models} for job in jobs
    }
    for round_ in track(range(options.rounds + 1), "measuring", console=Console(stderr=True)):
        for job, work in jobs.items():
            for name, model in models.items():
                if device == "cuda":
                    torch.cuda.synchronize()
                began = time.perf_counter()
                work(model)
                if device == "cuda":
                    torch.cuda.synchronize()
                if round_:  # the first warms up
                    seconds[job][name].append(time.perf_counter() - began)

    figures = summarise(seconds, options.length)
    show(figures, device=device, threads=options.threads, rounds=options.rounds)
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump({"device": device, **vars(options), "figures": figures}, file, indent=1)


def summarise(seconds: dict[str, dict[str, list[float]]], length: int) -> list[dict[str, Any]]:
    """Medians, and quartiles of the ratio to stock fairseq in the same round."""
    figures = []
    for job, by_model in seconds.items():
        sizes = {"source": length, "target": length, "beam": BEAM if job == "beam search" else 1}
        full = forward_flops(HeadPlan.full(SHAPE), Sizes(), **sizes)
        for name, times in by_model.items():
            ratios = [s / t for s, t in zip(by_model["stock fairseq"], times, strict=True)]
            low, median, high = statistics.quantiles(ratios, n=4, method="inclusive")
            plan = PLANS[name] or HeadPlan.full(SHAPE)
            ceiling = full / forward_flops(plan, Sizes(), **sizes)
            figures.append(
                {
                    "job": job,
                    "model": name,
                    "median_seconds": statistics.median(times),
                    "speedup": median,
                    "quartiles": [low, high],
                    "ceiling": ceiling,
                }
            )
    return figures


def show(figures: list[dict[str, Any]], *, device: str, threads: int, rounds: int) -> None:
    """Print the figures as a table."""
    table = Table(
        title=f"Transformer-Base, {device}, {threads} threads, {rounds} rounds",
        title_justify="left",
    )
    for column in ("job", "model", "median s", "x stock fairseq", "quartiles", "ceiling"):
        table.add_column(column, justify="left" if column in ("job", "model") else "right")
    for figure in figures:
        low, high = figure["quartiles"]
        table.add_row(
            figure["job"],
            figure["model"],
            f"{figure['median_seconds']:.3f}",
            f"{figure['speedup']:.2f}",
            f"{low:.2f} to {high:.2f}",
            f"{figure['ceiling']:.2f}",
        )
    Console().print(table)


if __name__ == "__main__":
    main()
