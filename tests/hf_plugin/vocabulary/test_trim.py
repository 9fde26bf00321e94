"""Vocabularies of tiny models, trimmed: the same tokens and the same outputs."""

from __future__ import annotations

import csv
import json

import pytest
import torch
from transformers import (
    AutoModelForMaskedLM,
    AutoModelForMultipleChoice,
    AutoModelForSeq2SeqLM,
    AutoModelForSequenceClassification,
    AutoTokenizer,
)
from typer.testing import CliRunner

import headprune
from headprune.cli import app
from headprune.errors import DataError, HeadpruneError
from headprune.vocabulary import read_lines, single_characters, splits_of, with_parts
from hf_plugin.vocabulary.trim import trim_vocabulary
from tests.hf_plugin.models import config_of
from tests.hf_plugin.small_models import small
from tests.hf_plugin.vocabulary.tiny import ALL, ALL_KINDS, SMALL, bert, roberta, sentences


@pytest.mark.parametrize("kind", ALL_KINDS)
def test_kept_tokens_have_the_same_outputs_token_by_token(kind, tmp_path):
    translates = kind in ("marian", "m2m_100")
    auto = AutoModelForSeq2SeqLM if translates else AutoModelForMaskedLM
    folder = ALL_KINDS[kind](tmp_path / kind)
    result = trim_vocabulary(folder, tmp_path / "smaller", text=SMALL, held_out=ALL)
    before, after = result.sizes["vocabulary"]
    assert after < before and result.parameters[1] < result.parameters[0]
    old, new = (AutoTokenizer.from_pretrained(path) for path in (folder, tmp_path / "smaller"))
    whole, smaller = (auto.from_pretrained(path).eval() for path in (folder, tmp_path / "smaller"))
    assert smaller.config.vocab_size == after == smaller.get_output_embeddings().weight.size(0)
    names = {number: token for token, number in new.get_vocab().items()}
    assert sorted(names) == list(range(len(names)))
    rows = [old.get_vocab()[names[number]] for number in range(after) if number in names]
    assert rows == sorted(rows)
    for token in old.all_special_tokens:
        assert token in new.get_vocab()
    for line in [*SMALL[:5], "the old dog likes the man"]:
        tokens = new(line)["input_ids"]
        assert new.convert_ids_to_tokens(tokens) == old.convert_ids_to_tokens(
            old(line)["input_ids"]
        )
        inputs = [
            {"input_ids": torch.tensor([tokenizer(line)["input_ids"]])} for tokenizer in (old, new)
        ]
        if translates:
            for each in inputs:
                each["decoder_input_ids"] = each["input_ids"]
        with torch.no_grad():
            expected, found = (
                model(**each).logits for model, each in zip((whole, smaller), inputs, strict=True)
            )
        torch.testing.assert_close(found[..., : len(rows)], expected[..., rows])


def test_classifiers_that_read_the_last_token(tmp_path):
    tokenizer = AutoTokenizer.from_pretrained(roberta(tmp_path / "roberta"))
    special = {"pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2}
    config = config_of("bart", vocab_size=len(tokenizer), max_position_embeddings=128, **special)
    AutoModelForSequenceClassification.from_config(config).save_pretrained(tmp_path / "bart")
    tokenizer.save_pretrained(tmp_path / "bart")
    text = [" ".join(SMALL[:6])]
    assert len(tokenizer(text[0])["input_ids"]) > 24  # longer than what is compared
    trimmed = trim_vocabulary(tmp_path / "bart", tmp_path / "smaller", text=text, held_out=[])
    assert trimmed.sizes["vocabulary"][1] < len(tokenizer)


@pytest.mark.parametrize(
    ("auto", "options"),
    [
        (AutoModelForMultipleChoice, {}),
        (AutoModelForMaskedLM, {"return_dict": False, "output_hidden_states": True}),
    ],
)
def test_the_outputs_of_any_task_and_config_are_compared(auto, options, tmp_path):
    folder = bert(tmp_path / "bert")
    auto.from_pretrained(folder, **options).save_pretrained(folder)
    trimmed = trim_vocabulary(folder, tmp_path / "smaller", text=SMALL, held_out=[])
    before, after = trimmed.sizes["vocabulary"]
    assert after < before
    assert AutoTokenizer.from_pretrained(tmp_path / "smaller").is_fast


def test_unseen_words_are_spelt_by_the_characters_of_the_text(tmp_path):
    folder = bert(tmp_path / "bert")
    result = trim_vocabulary(folder, tmp_path / "smaller", text=SMALL, held_out=["moon", "quixzz"])
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "smaller")
    assert tokenizer.unk_token not in tokenizer.tokenize("dogs heard")
    assert result.held_out["vocabulary"][1].unknown >= 1


def test_the_command_and_pruning_afterwards(tmp_path):
    folder = bert(tmp_path / "bert")
    (folder / "notes.txt").write_text("kept")
    (tmp_path / "text.txt").write_text("\n".join(SMALL))
    (tmp_path / "check.txt").write_text("\n".join(sentences(3, number=5)))
    options = ("--text", tmp_path / "text.txt", "--check", tmp_path / "check.txt")
    run = CliRunner().invoke(
        app, ["vocabulary", *map(str, (folder, *options, "-o", tmp_path / "smaller"))]
    )
    assert run.exception is None and "unknown: 0.00% ->" in run.stdout
    assert (tmp_path / "smaller" / "notes.txt").read_text() == "kept"
    opened = headprune.open_model(tmp_path / "smaller")
    plan = headprune.select.at_random(opened.shape, seed=1, percent=50)
    opened.prune(plan).save(tmp_path / "pruned")
    again = trim_vocabulary(tmp_path / "pruned", tmp_path / "both", text=SMALL[:2], held_out=[])
    assert headprune.open_model(tmp_path / "both").plan == opened.prune(plan).plan
    assert again.sizes["vocabulary"][0] > again.sizes["vocabulary"][1]


def test_mistakes_are_one_line_and_write_nothing(tmp_path):
    folder = bert(tmp_path / "bert")
    (tmp_path / "empty.txt").write_text("\n")
    for options, message in (
        (("--text", tmp_path / "empty.txt"), "no text in it"),
        (("--text", tmp_path / "absent.txt"), "cannot be read"),
    ):
        run = CliRunner().invoke(
            app, ["vocabulary", *map(str, (folder, *options, "-o", tmp_path / "out"))]
        )
        assert isinstance(run.exception, HeadpruneError) and message in str(run.exception)
    with pytest.raises(HeadpruneError, match="lies in the folder of the model"):
        trim_vocabulary(folder, folder / "smaller", text=SMALL, held_out=[])
    small("whisper").save_pretrained(tmp_path / "whisper")
    AutoTokenizer.from_pretrained(folder).save_pretrained(tmp_path / "whisper")
    few = config_of("bert", vocab_size=9)
    AutoModelForMaskedLM.from_config(few).save_pretrained(tmp_path / "few")
    AutoTokenizer.from_pretrained(folder).save_pretrained(tmp_path / "few")
    for name, message in (
        ("whisper", "WhisperModel reads input_features, not tokens; give a model that reads text"),
        ("few", "the tokenizer has more entries than the model's 9; give the model its own token"),
    ):
        with pytest.raises(HeadpruneError, match=f"^{tmp_path / name}: {message}"):
            trim_vocabulary(tmp_path / name, tmp_path / "out", text=SMALL, held_out=[])
    (tmp_path / "latin.txt").write_bytes(b"\xe9t\xe9")
    with pytest.raises(DataError, match="not UTF-8"):
        read_lines([tmp_path / "latin.txt"])
    assert not (tmp_path / "out").exists()


def test_texts_of_tables(tmp_path):
    folder = bert(tmp_path / "bert")
    (tmp_path / "train.txt").write_text("\n".join(SMALL))
    rows = [{"id": "zzz", "review": line, "label": 0} for line in SMALL]
    (tmp_path / "train.jsonl").write_text("\n".join(map(json.dumps, rows)))
    with (tmp_path / "train.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, ["id", "review", "label"])
        writer.writeheader()
        writer.writerows(rows)
    for name, options in (
        ("train.txt", ()),
        ("train.csv", ("--column", "review")),
        ("train.jsonl", ("--column", "review", "--check", tmp_path / "train.jsonl")),
    ):
        out = tmp_path / f"from-{name}"
        given = ("vocabulary", folder, "--text", tmp_path / name, "-o", out, *options)
        result = CliRunner().invoke(app, list(map(str, given)))
        assert result.exit_code == 0, result.output
        assert "warning" not in result.output
        vocabulary = AutoTokenizer.from_pretrained(out).get_vocab()
        if name == "train.txt":
            expected = vocabulary
        assert vocabulary == expected
    # Without the column, and for a table of a kind that nothing reads.
    (tmp_path / "train.json").write_text("[]")
    for name, options, message in (
        ("train.csv", (), "'text'"),
        ("train.json", (), "unknown kind of file"),
        ("train.txt", ("--column", "review"), "--column is for tables"),
    ):
        given = ("vocabulary", folder, "--text", tmp_path / name, "-o", tmp_path / "no", *options)
        result = CliRunner().invoke(app, list(map(str, given)))
        assert isinstance(result.exception, HeadpruneError) and message in str(result.exception)
        assert not (tmp_path / "no").exists()


def test_a_rising_share_of_unknown_tokens_is_a_warning(tmp_path):
    folder = bert(tmp_path / "bert")
    (tmp_path / "few.txt").write_text(SMALL[0])
    (tmp_path / "all.txt").write_text("\n".join(ALL))
    options = ("--text", tmp_path / "few.txt", "--check", tmp_path / "all.txt")
    given = ("vocabulary", folder, *options, "-o", tmp_path / "out")
    result = CliRunner().invoke(app, list(map(str, given)))
    assert "all.txt: more tokens are unknown than before; give more --text" in result.stderr


def test_parts_of_merged_tokens():
    pairs = {"abc": [("ab", "c"), ("a", "bc")], "ab": [("a", "b")], "xy": [("x", "y")]}
    assert with_parts(["abc"], pairs) == {"abc", "ab", "bc", "a", "b", "c"}
    assert splits_of("abc", {"a", "bc", "ab"}) == [("a", "bc")]
    assert single_characters(["##a", "b", "\u2581c", "ab"], ["abc"], marks=("##", "\u2581")) == {
        *("##a", "b", "\u2581c")
    }
