"""What pruned heads buy in time: training steps and beam search, against stock fairseq.

    python -m benchmarks.fairseq_speed [--rounds 9] [--threads 2] [--output FOLDER]

Models of Transformer-Base's sizes with random weights; each round times every model once, in turn,
so that what else the machine does meets all of them alike. Printed are medians over the rounds of
the ratio to stock fairseq in the same round, with the quartiles, and the ceiling: the ratio of
floating-point operations, worked out from the plan. It is what pruning alone can give; the
plugin's own translating is faster in other ways too. In beam search all models are held to the
same number of steps, and CTranslate2, where it is installed, does it as well. Times depend on the
machine; ratios are what to compare.
"""

from __future__ import annotations

import importlib.util
import tempfile
from argparse import Namespace
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import torch
from fairseq.data import Dictionary
from fairseq.models import ARCH_CONFIG_REGISTRY, ARCH_MODEL_REGISTRY
from fairseq.sequence_generator import SequenceGenerator

import fairseq_plugin  # noqa: F401  (registers the architecture)
from benchmarks.measuring import Figure, device, figures_of, in_turns, parser, report
from headprune import HeadPlan, select
from headprune.cost import Sizes, forward_flops

SHAPE = dict.fromkeys(("ES", "ED", "DS"), (8,) * 6)
STOCK = "stock fairseq"
JOBS = ("training step", "beam search")
PLANS = {
    STOCK: None,
    "all heads": HeadPlan.full(SHAPE),
    "50% pruned": select.at_random(SHAPE, percent=50, seed=1),
    "75% pruned": select.at_random(SHAPE, percent=75, seed=1),
    "one head a layer": select.at_random(SHAPE, keep=dict.fromkeys(SHAPE, "111111"), seed=1),
}
BFLOAT16 = ", bfloat16"
PLANS |= {name + BFLOAT16: PLANS[name] for name in ("all heads", "75% pruned")}

CTRANSLATE2 = [
    (name, quantization)
    for quantization in ("float32", "int8")
    for name in ("all heads", "75% pruned")
]
BEAM = 4


def build(plan: HeadPlan | None, words: Dictionary, *, autocast: str) -> Any:
    """Transformer-Base with random weights; None is stock fairseq's."""
    arch = "transformer" if plan is None else "transformer_headpruned"
    args = Namespace(arch=arch, share_all_embeddings=True, dropout=0.1)
    if plan is not None:
        args.head_plan = plan.to_json()
        args.autocast = autocast
    ARCH_CONFIG_REGISTRY[arch](args)
    task = SimpleNamespace(source_dictionary=words, target_dictionary=words)
    torch.manual_seed(1)
    return ARCH_MODEL_REGISTRY[arch].build_model(args, task).to(device())


def training_step(model: Any, sample: dict[str, torch.Tensor]) -> None:
    """Forward and backward pass over one batch."""
    model.zero_grad()
    logits = model(**sample)[0]
    torch.nn.functional.cross_entropy(
        logits.flatten(0, 1), sample["prev_output_tokens"].flatten()
    ).backward()


def by_ctranslate2(
    model: Any, words: Dictionary, source: torch.Tensor, *, quantization: str, options: Any
) -> Callable[[], None]:
    """The same beam search in CTranslate2."""
    import ctranslate2

    from fairseq_plugin.ctranslate2_spec import make_spec

    with tempfile.TemporaryDirectory() as folder:
        spec = make_spec(model)
        spec.validate()
        spec.optimize(quantization=quantization)
        spec.save(folder)
        translator = ctranslate2.Translator(
            folder, device=device(), inter_threads=1, intra_threads=options.threads
        )
    sentences = [[words[token] for token in row] for row in source[: options.search].tolist()]

    def search() -> None:
        found = translator.translate_batch(
            sentences,
            beam_size=BEAM,
            min_decoding_length=options.length,
            max_decoding_length=options.length,
        )
        assert {len(result.hypotheses[0]) for result in found} == {options.length}

    return search


def main() -> None:
    """Measure and print."""
    arguments = parser(__doc__, rounds=9)
    arguments.add_argument("--sentences", type=int, default=32, help="of a batch")
    arguments.add_argument("--search", type=int, default=16, help="sentences of a beam search")
    arguments.add_argument("--length", type=int, default=24, help="tokens of a sentence")
    arguments.add_argument("--vocabulary", type=int, default=32000)
    arguments.add_argument("--only", choices=JOBS, help="one of the jobs")
    options = arguments.parse_args()
    torch.set_num_threads(options.threads)

    words = Dictionary()
    for number in range(options.vocabulary - words.nspecial):
        words.add_symbol(str(number))
    generator = torch.Generator().manual_seed(1)
    source = torch.randint(
        words.nspecial, len(words), (options.sentences, options.length), generator=generator
    ).to(device())
    sample = {
        "src_tokens": source,
        "src_lengths": torch.full((options.sentences,), options.length, device=device()),
        "prev_output_tokens": source.flip(1),
    }
    models = {
        name: build(plan, words, autocast="bf16" if name.endswith(BFLOAT16) else "none")
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
    figures: list[Figure] = []
    for job in JOBS if options.only is None else (options.only,):
        work = jobs[job]
        turns: dict[str, Callable[[], None]] = {
            name: partial(work, model) for name, model in models.items()
        }
        if job == "beam search" and importlib.util.find_spec("ctranslate2"):
            for name, quantization in CTRANSLATE2:
                turns[f"{name}, CTranslate2 {quantization}"] = by_ctranslate2(
                    models[name], words, source, quantization=quantization, options=options
                )
        seconds = in_turns(turns, rounds=options.rounds, label=job)
        sizes = {
            "source": options.length,
            "target": options.length,
            "beam": BEAM if job == "beam search" else 1,
        }
        full = forward_flops(HeadPlan.full(SHAPE), Sizes(), **sizes)
        ceilings = {
            name: full / forward_flops(plan, Sizes(), **sizes)
            for name, plan in PLANS.items()
            if plan is not None
        }
        figures += figures_of(seconds, job=job, alternative=STOCK, ceilings=ceilings)
    title = f"Transformer-Base, {device()}, {options.threads} threads, {options.rounds} rounds"
    report(figures, title=title, versus=STOCK, name="fairseq_speed", options=options)


if __name__ == "__main__":
    main()
