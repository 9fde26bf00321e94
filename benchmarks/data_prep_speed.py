"""Data preparation on several cores, against the plain tools in one process.

    python -m benchmarks.data_prep_speed --text FOLDER [--pairs 100000] [--workers 2] [--rounds 3]
        [--output FOLDER]

FOLDER holds raw English and German (train.en, train.de; `data_prep/multi30k.sh` leaves such a
raw/). A corpus of the size asked for is made by drawing its lines and misspelling words, so that
the number of different words grows with the number of lines, as it does in real text. Then
`data_prep/wmt14.sh --from-dir` and `benchmarks.plain_data_prep` prepare it in turns, and what they
made is compared byte by byte: tokens, codes, sub-words and binarised text. All of it lies in TMPDIR
meanwhile. Peak memory is the sum of the proportional set sizes of all processes of a run, read a
few times a second.
"""

from __future__ import annotations

import argparse
import filecmp
import random
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import psutil

from benchmarks.measuring import figures_of, in_turns, parser, report
from benchmarks.plain_data_prep import LANGUAGES, SPLITS

ROOT = Path(__file__).resolve().parents[1]
MISSPELT = 0.02
PLAIN, OURS = "one process", "data_prep"


def make_corpus(text: Path, out: Path, *, pairs: int) -> None:
    """train, valid and test in both languages, with ``pairs`` pairs to train on."""
    sides = [(text / f"train.{lang}").read_text("utf-8").splitlines() for lang in LANGUAGES]
    rng = random.Random(1)
    out.mkdir(parents=True)
    for split, number in zip(SPLITS, (pairs, 1000, 1000), strict=True):
        with (
            open(out / f"{split}.{LANGUAGES[0]}", "w", encoding="utf-8") as source,
            open(out / f"{split}.{LANGUAGES[1]}", "w", encoding="utf-8") as target,
        ):
            for _ in range(number):
                line = rng.randrange(len(sides[0]))
                for side, file in zip(sides, (source, target), strict=True):
                    file.write(_misspelt(side[line], rng) + "\n")


def _misspelt(line: str, rng: random.Random) -> str:
    words = line.split()
    for number, word in enumerate(words):
        if rng.random() < MISSPELT:
            letters = list(word)
            letters.insert(rng.randrange(len(letters)), rng.choice("abcdefghijklmnopqrstuvwxyz"))
            rng.shuffle(letters)
            words[number] = "".join(letters)
    return " ".join(words)


@contextmanager
def peak_memory() -> Iterator[list[int]]:
    """Record the peak memory of child processes, in bytes, in a list of one item."""
    peak, done = [0], threading.Event()

    def watch() -> None:
        while not done.wait(0.3):
            peak[0] = max(peak[0], _memory_of_children())

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield peak
    finally:
        done.set()
        thread.join()


def _memory_of_children() -> int:
    total = 0
    for process in psutil.Process().children(recursive=True):
        try:
            total += process.memory_full_info().pss  # what is shared counts once
        except psutil.Error:  # it has just ended
            continue
    return total


def differing(own_folder: Path, other: Path) -> list[str]:
    """List the files that differ between the two preparations."""
    texts = [f"{split}.{lang}" for split in SPLITS for lang in LANGUAGES]
    names = [f"{folder}/{text}" for folder in ("bpe", "tok") for text in texts]
    names += ["bpe/codes"]
    names += [f"bin/{path.name}" for path in (other / "bin").iterdir() if path.suffix != ".log"]
    return [
        name
        for name in names
        if not (own_folder / name).exists()
        or not filecmp.cmp(own_folder / name, other / name, shallow=False)
    ]


def main() -> None:
    """Make a corpus, measure and compare."""
    arguments = parser(__doc__, rounds=3, torch_threads=False)
    arguments.add_argument("--text", type=Path, required=True, help="raw train.en and train.de")
    arguments.add_argument("--pairs", type=int, default=100_000)
    arguments.add_argument("--workers", type=int, default=2)
    arguments.add_argument("--merges", type=int, default=32_000)
    options = arguments.parse_args()
    with tempfile.TemporaryDirectory(prefix="data-prep-") as folder:
        measure(Path(folder), options)


def measure(work: Path, options: argparse.Namespace) -> None:
    """Make a corpus in the folder ``work`` and prepare it both ways."""
    corpus = work / "corpus"
    make_corpus(options.text, corpus, pairs=options.pairs)
    outs = {PLAIN: work / "plain", OURS: work / "ours"}
    commands = {
        PLAIN: [sys.executable, "-m", "benchmarks.plain_data_prep", corpus, outs[PLAIN]],
        OURS: ["data_prep/wmt14.sh", "--from-dir", corpus, "--out", outs[OURS], "--pairs", "all"]
        + ["--workers", str(options.workers), "--python", sys.executable],
    }
    peaks = dict.fromkeys(commands, 0)

    def prepare(name: str) -> None:
        shutil.rmtree(outs[name], ignore_errors=True)
        command = [*map(str, commands[name]), "--merges", str(options.merges)]
        with peak_memory() as peak:
            subprocess.run(command, cwd=ROOT, check=True, stderr=subprocess.DEVNULL)
        peaks[name] = max(peaks[name], peak[0])

    seconds = in_turns(
        {name: partial(prepare, name) for name in commands},
        rounds=options.rounds,
        warm_up=False,
        label="preparing",
    )
    if differ := differing(outs[OURS], outs[PLAIN]):
        raise SystemExit(f"not the same bytes: {', '.join(differ)}")
    title = (
        f"Data preparation, {options.pairs} pairs, {options.workers} workers,"
        f" {options.rounds} rounds; all files the same. Peak memory: "
        + ", ".join(f"{name} {size / 2**20:.0f} MiB" for name, size in peaks.items())
    )
    figures = figures_of(seconds, job=f"{options.pairs} pairs", alternative=PLAIN)
    report(figures, title=title, versus=PLAIN, name="data_prep_speed", options=options)


if __name__ == "__main__":
    main()
