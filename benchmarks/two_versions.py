"""Times of two versions of this project, in turns: does a change make anything slower?

    git worktree add ../before REVISION
    python benchmarks/two_versions.py ../before . [--rounds 15] [--threads 1] [--output FOLDER]

Each version runs in a process of its own, which builds the same models with random weights, from
the same seeds. The two processes never work at the same time: in each round both do the same work,
and the order changes from round to round. The table has the processor time of the second version
over that of the first, in the same round: medians and quartiles. Processor time, since other
programs on the machine change it much less than the time on a clock.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

if __name__ == "__main__":
    # A worker measures the checkout that it is started in; this file may belong to another one.
    sys.path[0] = os.getcwd()

from benchmarks.measuring import keep_memory, parser, save

WORKER = "--worker"


def jobs() -> dict[str, Callable[[], object]]:
    """The work by name. Only what all versions of `benchmarks` have is used."""
    import torch
    from transformers import BertConfig, BertModel

    import hf_plugin
    from benchmarks import scoring_speed
    from benchmarks.bert_speed import PLANS as BERT_PLANS
    from benchmarks.transformer_base import (
        FULL,
        STOCK,
        beam_search,
        build_named,
        dictionary,
        random_batch,
        training_step,
    )

    words = dictionary(4000)
    work: dict[str, Callable[[], object]] = {}
    for name in (STOCK, FULL, "75% pruned"):
        model = build_named(name, words)
        batch = random_batch(words, sentences=8, length=16)
        work[f"training step, {name}"] = partial(training_step, model, batch)
    for name in (STOCK, FULL, "75% pruned"):
        model = build_named(name, words)
        batch = random_batch(words, sentences=4, length=12)
        work[f"beam search, {name}"] = partial(beam_search, model, batch, words)
    torch.manual_seed(1)
    for name in ("all heads", "75% pruned"):
        bert = BertModel(BertConfig(), add_pooling_layer=False).eval()
        hf_plugin.prune_heads(bert, BERT_PLANS[name])
        ids = torch.randint(1000, 20000, (4, 64))
        work[f"BERT, {name}"] = partial(torch.inference_mode()(bert), ids)
    classifier, examples = scoring_speed.model_and_batch("minilm", examples=8, length=32)
    work["ablation of every head"] = partial(scoring_speed.shared, classifier, examples)
    return work


def work_on_demand(threads: int) -> None:
    """Run the jobs whose names stand on standard input, and print the seconds of each."""
    import torch

    torch.set_num_threads(threads)
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print is no answer
    work = jobs()
    print(*work, sep="\t", file=answers, flush=True)
    for line in sys.stdin:
        start = time.process_time()
        work[line.rstrip("\n")]()
        print(time.process_time() - start, file=answers, flush=True)


class Worker:
    """One version's process."""

    def __init__(self, checkout: Path, *, threads: int) -> None:
        self._process = subprocess.Popen(
            [sys.executable, str(Path(__file__).resolve()), WORKER, str(threads)],
            cwd=checkout,
            env={**os.environ, "PYTHONPATH": str(checkout.resolve())},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.jobs = self._answer().split("\t")

    def seconds(self, job: str) -> float:
        """Do the job once."""
        assert self._process.stdin is not None
        print(job, file=self._process.stdin, flush=True)
        return float(self._answer())

    def _answer(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit(f"the benchmark's process ended: exit status {self._process.wait()}")
        return line.rstrip("\n")


def ratios(workers: Sequence[Worker], job: str, *, rounds: int) -> list[float]:
    """Times of the second version over the first's, one a round; the order alternates."""
    for worker in workers:
        worker.seconds(job)
    result = []
    for number in range(rounds):
        order = (0, 1) if number % 2 == 0 else (1, 0)
        times = {index: workers[index].seconds(job) for index in order}
        result.append(times[1] / times[0])
    return result


def main() -> None:
    """Measure and print."""
    from rich.console import Console
    from rich.progress import track
    from rich.table import Table

    keep_memory()
    options = parser(__doc__, rounds=15)
    options.add_argument("before", type=Path, help="checkout of the first version")
    options.add_argument("after", type=Path, help="checkout of the second version")
    chosen = options.parse_args()
    workers = [Worker(path, threads=chosen.threads) for path in (chosen.before, chosen.after)]
    table = Table("job", "median", "quartiles", "rounds", title="time after / before")
    figures = []
    for job in track(workers[0].jobs, "measuring", console=Console(stderr=True)):
        values = ratios(workers, job, rounds=chosen.rounds)
        low, middle, high = statistics.quantiles(values, n=4)
        table.add_row(job, f"{middle:.3f}", f"{low:.3f} to {high:.3f}", str(len(values)))
        figures.append({"job": job, "ratio": middle, "quartiles": (low, high), "ratios": values})
    Console(width=100).print(table)
    if chosen.output is not None:
        save(
            {"figures": figures},
            title=str(table.title),
            name="two_versions",
            options=chosen,
        )


if __name__ == "__main__":
    if sys.argv[1:2] == [WORKER]:
        work_on_demand(int(sys.argv[2]))
    else:
        main()
