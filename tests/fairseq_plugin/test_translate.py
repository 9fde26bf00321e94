"""`headprune translate` with a checkpoint, and warnings of unknown words."""

from __future__ import annotations

import shutil
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner, Result

from fairseq_plugin.engine import FairseqEngine
from fairseq_plugin.unknown_words import Counter
from headprune import DataError, UsageError
from headprune.cli.translate import app
from tests.fairseq_plugin.conftest import generate, hypotheses
from tests.fairseq_plugin.models import Task, dictionary


def translate(*arguments: str | Path, text: str = "") -> Result:
    # More threads would wait for the cores of other tests.
    return CliRunner().invoke(app, [*map(str, arguments), "--threads=1"], input=text)


def test_a_checkpoint_translates_as_fairseq_generate(corpus: Path, full: Path):
    out = generate(
        *(corpus, "--path", full, "--beam=3", "--max-len-b=200"),
        "--required-batch-size-multiple=1",
    )
    expected = [words for _, (_, words) in sorted(hypotheses(out).items(), key=_number)]
    lines = (corpus.parent / "test.en").read_text().splitlines()
    done = translate(full, "--beam=3", "--batch-size=7", text="\n\n".join(lines))
    assert done.stdout.split("\n")[:-1:2] == expected and not done.stderr
    assert set(done.stdout.split("\n")[1::2]) == {""}  # of the empty lines between them

    cut = translate(full, "--beam=1", text="w1 w2\n" + "w1 other " * 600)
    assert cut.stderr.splitlines() == [
        "warning: line 2: 1200 tokens, cut to the model's 1023",
        "warning: 1 of 2 lines have words that the model does not know ('other'); it reads <unk> "
        "there. Text has to be prepared as in training",
    ]


def _number(item: tuple[str, object]) -> int:
    return int(item[0])


def test_special_tokens_are_left_out_as_in_fairseq_generate():
    words = dictionary()
    tokens = torch.tensor([words.bos(), 4, words.bos(), 5, words.eos()])
    search = Namespace(generate=lambda *_: [[{"tokens": tokens}]])
    device = torch.device("cpu")
    engine = FairseqEngine(
        model=None, generator=search, source=words, target=words, batch_size=1, device=device
    )
    assert engine.translate([["w1"]]) == [words.string(tokens).split()] == [["w0", "w1"]]


def test_mistakes(full: Path, tmp_path: Path):
    trimmed = tmp_path / "trimmed"  # a folder as `headprune vocabulary` writes it
    trimmed.mkdir()
    shutil.copy(full, trimmed / "model.pt")
    mistakes = [
        ([tmp_path / "none.pt"], DataError, "none.pt: no such file"),
        ([full, "--raw"], UsageError, "does not know how its text was prepared"),
        ([full, "--data", tmp_path], UsageError, "does not name its languages, and no file"),
        ([tmp_path], DataError, "not the folder of a model; give a Hugging Face folder"),
        ([trimmed], DataError, f"give the model in it, {trimmed / 'model.pt'}"),
    ]
    for arguments, kind, message in mistakes:
        error = translate(*arguments).exception
        assert isinstance(error, kind) and message in str(error), (arguments, error)


def test_fairseq_interactive_warns_of_unknown_words(capsys: pytest.CaptureFixture[str]):
    words = dictionary()

    def make_batches(lines: list[str], *_: object) -> Iterator[Namespace]:
        """Batches of one line, as ``fairseq_cli.interactive.make_batches`` makes them."""
        for number, line in enumerate(lines):
            tokens = words.encode_line(line, add_if_not_exist=False).long()
            yield Namespace(ids=torch.tensor([number]), src_tokens=tokens[None])

    counter, task = Counter(), Task(words, words)
    watched = counter.watching(make_batches)
    for lines in (["w1 w2"], ["Raw text", "w1 <unk>", "w3"], ["again"]):
        assert len(list(watched(lines, None, task))) == len(lines)
    counter.summarise()
    warnings = capsys.readouterr().err.splitlines()
    assert len(warnings) == 2 and "words that the model does not know" in warnings[0]
    assert warnings[1].startswith("warning: 2 of 5 lines")
