"""Dictionaries and checkpoints without words that a text never uses."""

from __future__ import annotations

import json
from argparse import Namespace
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from data_prep.lib.text import TextProcessing
from fairseq_plugin.checkpoints import Checkpoint
from fairseq_plugin.loading import languages_of, load_model
from fairseq_plugin.vocabulary import trim_vocabulary
from headprune import HeadPlan, UsageError
from headprune.cli import app
from tests.fairseq_plugin.checkpoints import PLAN
from tests.fairseq_plugin.models import SIZES, build, dictionary

TEXT = ["w1 w3 w5 w7", "w3 w2 w19 w4", "w11 w1 strange"]
KEPT = [0, 1, 2, 3, *(number + 4 for number in (1, 2, 3, 4, 5, 7, 11, 19))]


def write(folder: Path, *, plan: HeadPlan | None = None, **options: object) -> Path:
    """A checkpoint, and the dictionaries of its data."""
    data = folder / "data"
    data.mkdir(parents=True)
    for language in ("de", "en"):
        dictionary().save(str(data / f"dict.{language}.txt"))
    values = {**SIZES, **options, "arch": "transformer", "task": "translation"}
    languages = {"source_lang": "de", "target_lang": "en", "data": str(data)}
    state = {
        "args": Namespace(**values, **languages, criterion="cross_entropy"),
        "model": build("transformer", **options).state_dict(),
        "extra_state": {"epoch": 1},
    }
    path = folder / "model.pt"
    torch.save(state, path)
    if plan is not None:
        Checkpoint.load(path).prune(plan).save(path)
    return path


@pytest.mark.parametrize("tied", [True, False], ids=["shared", "separate"])
@pytest.mark.parametrize("plan", [None, PLAN], ids=["whole", "pruned"])
def test_kept_words_have_the_same_outputs(tied, plan, tmp_path):
    path = write(tmp_path, plan=plan, share_all_embeddings=tied)
    result = trim_vocabulary(
        path, tmp_path / "smaller", text=TEXT, held_out=["w1 w6 w6", "strange"]
    )
    assert result.sizes == dict.fromkeys(("dict.de.txt", "dict.en.txt"), (24, 12))
    width, matrices = SIZES["encoder_embed_dim"], 1 if tied else 3
    assert result.parameters[0] - result.parameters[1] == 12 * width * matrices
    for before, after in (result.held_out[name] for name in ("dict.de.txt", "dict.en.txt")):
        assert (before.tokens, before.unknown, after.unknown) == (4, 1, 3)
    old, _ = load_model(Checkpoint.load(path), tmp_path / "data")
    checkpoint = Checkpoint.load(tmp_path / "smaller" / "model.pt")
    new, task = load_model(checkpoint, tmp_path / "smaller")
    assert [task.source_dictionary[n] for n in range(4, 12)] == [f"w{n - 4}" for n in KEPT[4:]]
    tokens = torch.tensor([[5, 11, 4, 2], [8, 6, 10, 2]])
    with torch.no_grad():
        found = new(tokens, torch.tensor([4, 4]), tokens.roll(1, 1))[0]
        tokens = torch.tensor(KEPT)[tokens]
        expected = old(tokens, torch.tensor([4, 4]), tokens.roll(1, 1))[0][..., KEPT]
    torch.testing.assert_close(found, expected)


CODES = """#version: 0.2
w 1
w 1</w>
w1 9</w>
w1 1</w>
w 2</w>
w 3</w>
w 4</w>
w 5</w>
w 7</w>
"""


def test_a_trimmed_model_splits_text_as_before_and_can_be_trimmed_again(tmp_path):
    path = write(tmp_path / "prepared", share_all_embeddings=True)
    (tmp_path / "prepared" / "codes").write_text(CODES)
    facts = {"tokenizer": "moses", "bpe": "subword_nmt", "bpe_codes": "codes", "corpus": "made-up"}
    (tmp_path / "prepared" / "prep.json").write_text(json.dumps(facts))
    text = [line.replace(" ", "  ") for line in TEXT]
    for source, output in ((path, "once"), (tmp_path / "once" / "model.pt", "twice")):
        result = trim_vocabulary(source, tmp_path / output, text=text, held_out=[])
        assert set(result.sizes.values()) == {(24 if output == "once" else 12, 12)}
    processing = TextProcessing.of_preparation(
        tmp_path / "twice", source_lang="de", target_lang="en"
    )
    assert processing.file == tmp_path / "twice" / "codes"
    assert processing.splitter()("w19  w6") == ["w19", "w@@", "6"]


def test_languages_that_the_names_of_the_data_tell_are_written_down(tmp_path):
    path = write(tmp_path, share_all_embeddings=True)
    state = torch.load(path, weights_only=False)
    del state["args"].source_lang, state["args"].target_lang
    torch.save(state, path)
    (tmp_path / "data" / "train.de-en.de.idx").touch()
    trim_vocabulary(path, tmp_path / "smaller", text=TEXT, held_out=[])
    trimmed = Checkpoint.load(tmp_path / "smaller" / "model.pt")
    assert languages_of(trimmed, tmp_path / "smaller") == ("de", "en")


def test_held_out_words_are_counted_with_the_splitter_and_dictionary_of_each_side(
    tmp_path, monkeypatch
):
    path = write(tmp_path, share_all_embeddings=False)
    target = tmp_path / "data" / "dict.en.txt"
    target.write_text(target.read_text().replace("w7 ", "only-target "))
    splitters = [str.split, lambda line: line.replace("_", " ").split()]
    monkeypatch.setattr("fairseq_plugin.vocabulary._splitters", lambda *_: splitters)
    text, held_out = ["w1 w7 only-target"], ["w1 w7 w7_only-target w9"]
    result = trim_vocabulary(path, tmp_path / "smaller", text=text, held_out=held_out)
    counts = {
        name: [(each.tokens, each.unknown) for each in pair]
        for name, pair in result.held_out.items()
    }
    assert counts == {"dict.de.txt": [(4, 1), (4, 2)], "dict.en.txt": [(5, 2), (5, 3)]}


def test_a_vocabulary_in_parts_is_refused(tmp_path):
    path = write(tmp_path, adaptive_softmax_cutoff="8,16")
    with pytest.raises(UsageError, match="--adaptive-softmax-cutoff .* cannot be trimmed"):
        trim_vocabulary(path, tmp_path / "smaller", text=TEXT, held_out=[])
    assert not (tmp_path / "smaller").exists()


def test_the_command(tmp_path):
    path = write(tmp_path, share_all_embeddings=True)
    (tmp_path / "text").write_text("\n".join(TEXT))
    options = ("--text", tmp_path / "text", "--check", tmp_path / "text", "-o", tmp_path / "out")
    run = CliRunner().invoke(app, ["vocabulary", *map(str, (path, *options))])
    assert run.exception is None
    assert "dict.de.txt: 24 -> 12 entries" in run.stdout
    for name in ("dict.de.txt", "dict.en.txt"):
        counts = f"text with {name}: 11 -> 11 tokens, unknown: 9.09% -> 9.09%"
        assert counts in run.stdout
    assert Checkpoint.load(tmp_path / "out" / "model.pt").state["args"].data == str(
        tmp_path / "out"
    )
    run = CliRunner().invoke(
        app,
        ["vocabulary", *map(str, (path, *options[:2], "--data", tmp_path / "no", "-o", "out2"))],
    )
    assert run.exception is not None and "\n" not in str(run.exception)
    assert not Path("out2").exists()
