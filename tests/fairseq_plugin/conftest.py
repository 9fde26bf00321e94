"""A toy corpus, and fairseq's own command lines on it."""

from __future__ import annotations

import os
import random
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests import warm_process

ROOT = Path(__file__).resolve().parents[2]
PLUGIN = str(ROOT / "fairseq_plugin")

TRAIN = [
    "--cpu",
    "--optimizer=adam",
    "--lr=3e-3",
    "--max-tokens=400",
    "--share-all-embeddings",
    # Toy models hardly learn where a sentence ends: no translation is longer.
    "--max-target-positions=64",
    "--seed=1",
    "--no-epoch-checkpoints",
    "--log-format=json",
    "--log-interval=1",
    "--num-workers=0",
    "--dropout=0",
]


def run(*command: str | Path, status: int = 0, text: str | None = None, **environment: str) -> str:
    """Run a program of this environment; its output, standard error included.

    The toy models are small: one thread, so that tests side by side do not slow each other down.
    """
    words = tuple(map(str, command))
    variables = {**os.environ, "OMP_NUM_THREADS": "1", **environment}
    if warm_process.can_run(words):
        ended, output = warm_process.run(
            words, text=text, folder=ROOT, environment=variables, timeout=600
        )
    else:
        done = subprocess.run(
            [Path(sys.executable).with_name(words[0]), *words[1:]],
            input=text,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=ROOT,
            env=variables,
            timeout=600,
        )
        ended, output = done.returncode, done.stdout
    assert ended == status, output[-3000:]
    return output


def fork_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    """fairseq's jobs run in forked processes, which need not import torch and fairseq again."""
    # Tests of studies load this module without its package, which then lacks an attribute for it.
    from fairseq_plugin import running

    names = ("PIPE", "STDOUT", "DEVNULL")
    constants = {name: getattr(subprocess, name) for name in names}
    programs = SimpleNamespace(Popen=warm_process.WarmPopen, **constants)
    monkeypatch.setattr(running, "subprocess", programs)


def train(data: Path, save: Path, *options: str | Path, status: int = 0, epochs: int = 1) -> str:
    return run(
        *("fairseq-train", data, "--user-dir", PLUGIN, "--save-dir", save),
        *(f"--max-epoch={epochs}", *TRAIN, *options),
        status=status,
    )


def generate(data: Path, *options: str | Path, status: int = 0, plugin: bool = True) -> str:
    return run(
        *("fairseq-generate", data, *(["--user-dir", PLUGIN] if plugin else [])),
        *("--cpu", "--beam=3", "--max-len-b=12", "--max-len-a=0", "--num-workers=0", *options),
        status=status,
    )


def hypotheses(output: str) -> dict[str, tuple[float, str]]:
    """Score and words of each sentence of fairseq-generate's output."""
    found = re.findall(r"^H-(\d+)\t(\S+)\t(.*)$", output, flags=re.M)
    assert found
    return {number: (float(score), words) for number, score, words in found}


def assert_same(first: str, second: str) -> None:
    """The same hypotheses, with the same scores to 1e-4."""
    one, other = hypotheses(first), hypotheses(second)
    assert {n: words for n, (_, words) in one.items()} == {n: w for n, (_, w) in other.items()}
    for number, (score, _) in one.items():
        assert score == pytest.approx(other[number][0], abs=1e-4)


@pytest.fixture(scope="session")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A binarised corpus: 300 sentences of 30 words, and their reversal."""
    folder = tmp_path_factory.mktemp("corpus")
    numbers = random.Random(0)
    for split, size in (("train", 300), ("valid", 20), ("test", 20)):
        source = [
            [f"w{numbers.randrange(30)}" for _ in range(numbers.randint(2, 9))] for _ in range(size)
        ]
        lines = [" ".join(words) + "\n" for words in source]
        (folder / f"{split}.en").write_text("".join(lines))
        lines = [" ".join(reversed(words)) + "\n" for words in source]
        (folder / f"{split}.de").write_text("".join(lines))
    run(
        *("fairseq-preprocess", "-s", "en", "-t", "de", "--joined-dictionary", "--workers=1"),
        *("--trainpref", folder / "train", "--validpref", folder / "valid"),
        *("--testpref", folder / "test", "--destdir", folder / "bin"),
    )
    return folder / "bin"


@pytest.fixture(scope="session")
def full(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A trained checkpoint of transformer_headpruned with all heads."""
    save = tmp_path_factory.mktemp("full")
    train(corpus, save, "--arch=transformer_headpruned_tiny", epochs=2)
    return save / "checkpoint_last.pt"


STOCK_TINY = [
    "--arch=transformer",
    *(f"--{s}-layers=2" for s in ("encoder", "decoder")),
    *(f"--{s}-embed-dim=32" for s in ("encoder", "decoder")),
    *(f"--{s}-ffn-embed-dim=64" for s in ("encoder", "decoder")),
    *(f"--{s}-attention-heads=4" for s in ("encoder", "decoder")),
]


@pytest.fixture(scope="session")
def stock(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A trained checkpoint of fairseq's own transformer, of the same sizes."""
    save = tmp_path_factory.mktemp("stock")
    train(corpus, save, *STOCK_TINY, epochs=2)
    return save / "checkpoint_last.pt"
