"""Speed of training steps and beam search relative to stock fairseq.

    python -m benchmarks.fairseq_speed [--rounds 9] [--threads 2] [--output FOLDER]

Models of Transformer-Base's sizes with random weights; each round times every model once, in turn,
so that what else the machine does meets all of them alike. Printed are medians over the rounds of
the ratio to stock fairseq in the same round, with the quartiles, and the ceiling: the ratio of
floating-point operations, worked out from the plan. It is what pruning alone can give; the
plugin's own translating is faster in other ways too. What masks cost is told against the plugin's
training step with all heads. In beam search all models are held to the same number of steps, and
CTranslate2, where it is installed, does it as well. Times depend on the machine; ratios are what to
compare.
"""

from __future__ import annotations

import importlib.util
import tempfile
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
from fairseq.data import Dictionary

from benchmarks.measuring import Figure, device, figures_of, in_turns, keep_memory, parser, report
from benchmarks.transformer_base import (
    BEAM,
    FULL,
    PLANS,
    STOCK,
    UNPRUNED,
    beam_search,
    build,
    build_named,
    dictionary,
    random_batch,
    training_step,
)
from headprune.cost import Sizes, forward_flops

MASKS = "masks, against all heads"
JOBS = ("training step", MASKS, "beam search")
MASKED = "75% masked"

CTRANSLATE2 = [
    (name, quantization) for quantization in ("float32", "int8") for name in (FULL, "75% pruned")
]


def by_ctranslate2(
    models: Mapping[str, Any], words: Dictionary, source: torch.Tensor, *, threads: int
) -> dict[str, Callable[[], None]]:
    """The same beam search in CTranslate2, where it is installed; ``source`` is B x S."""
    if not importlib.util.find_spec("ctranslate2"):
        return {}
    import ctranslate2

    from fairseq_plugin.ctranslate2_spec import make_spec

    # fairseq takes one more step for the </s> of a hypothesis, CTranslate2 ends at the longest;
    # and it gives the source an </s>.
    length = source.size(1)
    steps = length + 1
    sentences = [[words[token] for token in row] for row in source[:, :-1].tolist()]

    def search(translator: ctranslate2.Translator) -> None:
        found = translator.translate_batch(
            sentences, beam_size=BEAM, min_decoding_length=steps, max_decoding_length=steps
        )
        assert {len(result.hypotheses[0]) for result in found} == {steps}

    turns: dict[str, Callable[[], None]] = {}
    for name, quantization in CTRANSLATE2:
        with tempfile.TemporaryDirectory() as folder:
            spec = make_spec(models[name])
            spec.validate()
            spec.optimize(quantization=quantization)
            spec.save(folder)
            translator = ctranslate2.Translator(
                folder, device=device(), inter_threads=1, intra_threads=threads
            )
        turns[f"{name}, CTranslate2 {quantization}"] = partial(search, translator)
    return turns


def main() -> None:
    """Measure and print."""
    keep_memory()
    arguments = parser(__doc__, rounds=9)
    arguments.add_argument("--sentences", type=int, default=32, help="of a batch")
    arguments.add_argument("--search", type=int, default=16, help="sentences of a beam search")
    arguments.add_argument("--length", type=int, default=24, help="tokens of a sentence")
    arguments.add_argument("--vocabulary", type=int, default=32000)
    arguments.add_argument("--only", choices=JOBS, help="one of the jobs")
    options = arguments.parse_args()
    torch.set_num_threads(options.threads)

    words = dictionary(options.vocabulary)
    batch = random_batch(words, sentences=options.sentences, length=options.length)
    searched = {key: value[: options.search] for key, value in batch.items()}
    models = {name: build_named(name, words) for name in PLANS}
    masked = build(PLANS["75% pruned"], words, head_form="mask")
    figures: list[Figure] = []
    for job in JOBS if options.only is None else (options.only,):
        alternative, beam = STOCK, 1
        turns: dict[str, Callable[[], None]]
        if job == "training step":
            turns = {name: partial(training_step, model, batch) for name, model in models.items()}
        elif job == MASKS:
            alternative = FULL
            turns = {
                name: partial(training_step, model, batch)
                for name, model in ((FULL, models[FULL]), (MASKED, masked))
            }
        else:
            beam = BEAM
            turns = {
                name: partial(beam_search, model, searched, words) for name, model in models.items()
            }
            turns |= by_ctranslate2(models, words, searched["src_tokens"], threads=options.threads)
        seconds = in_turns(turns, rounds=options.rounds, label=job)
        flops = partial(
            forward_flops,
            sizes=Sizes(vocabulary=options.vocabulary),
            source=options.length,
            target=options.length,
            beam=beam,
        )
        ceilings = {
            name: flops(UNPRUNED) / flops(plan)
            for name, plan in PLANS.items()
            if name in turns and plan is not None
        }
        figures += figures_of(seconds, job=job, alternative=alternative, ceilings=ceilings)
    title = f"Transformer-Base, {device()}, {options.threads} threads, {options.rounds} rounds"
    report(figures, title=title, versus=STOCK, name="fairseq_speed", options=options)


if __name__ == "__main__":
    main()
