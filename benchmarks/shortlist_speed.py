"""Beam search with shortlists of target words, against the search among all words.

    python -m benchmarks.shortlist_speed MODEL [MODEL ...] --shortlist FILE --input TOKENS
        [--data FOLDER] [--sentences 320] [--batch-size 32] [--beam 5] [--rounds 7] [--threads 1]

Each round translates the same sentences, which are split into sub-words, once by each model and
way, in turn. The measure is processor time. Printed are the medians over the rounds of the ratio to
the first model's search among all words in the same round, with the quartiles.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from benchmarks.measuring import figures_of, in_turns, parser, report
from fairseq_plugin.checkpoints import Checkpoint
from fairseq_plugin.engine import load_engine
from fairseq_plugin.loading import trained_on
from headprune.translate import EngineSettings

JOB = "translation"


def main() -> None:
    """Measure and print."""
    options = parser(__doc__, rounds=7)
    options.add_argument("models", nargs="+", type=Path)
    options.add_argument("--shortlist", action="append", type=Path, default=[])
    options.add_argument("--input", type=Path, required=True, help="sub-words, a line a sentence")
    options.add_argument("--data", type=Path, help="default: the data of the training")
    options.add_argument("--sentences", type=int, default=320)
    options.add_argument("--batch-size", type=int, default=32)
    options.add_argument("--beam", type=int, default=5)
    chosen = options.parse_args()
    jobs = _jobs(chosen)
    seconds = in_turns(jobs, rounds=chosen.rounds, clock=time.process_time)
    first = next(iter(jobs))
    title = (
        f"Beam {chosen.beam}, {chosen.sentences} sentences in batches of {chosen.batch_size}, "
        f"{chosen.threads} threads, {chosen.rounds} rounds"
    )
    figures = figures_of(seconds, job=JOB, alternative=first)
    report(figures, title=title, versus=first, name="shortlist_speed", options=chosen)


def _jobs(options: argparse.Namespace) -> dict[str, Callable[[], object]]:
    lines = options.input.read_text(encoding="utf-8").splitlines()[: options.sentences]
    sources = [line.split() for line in lines]
    jobs: dict[str, Callable[[], object]] = {}
    for model in options.models:
        checkpoint = Checkpoint.load(model)
        for shortlist in (None, *options.shortlist):
            engine, _ = load_engine(
                checkpoint,
                options.data or trained_on(checkpoint),
                EngineSettings(
                    device="cpu",
                    threads=options.threads,
                    beam=options.beam,
                    batch_size=options.batch_size,
                    shortlist=shortlist,
                ),
            )
            words = shortlist.name if shortlist else "all words"
            name = f"{model.parent.name}/{model.name}, {words}"
            jobs[name] = partial(engine.translate, sources)
    return jobs


if __name__ == "__main__":
    main()
