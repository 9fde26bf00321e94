"""Classifiers of words: files, labels of sub-words, metrics, and the commands on them."""

from __future__ import annotations

import csv
import json
import random
from collections.abc import Sequence
from pathlib import Path

import datasets
import pytest
import torch
from tokenizers import ByteLevelBPETokenizer
from transformers import AutoConfig, RobertaConfig, RobertaTokenizer
from transformers.modeling_outputs import MaskedLMOutput, TokenClassifierOutput

import headprune
import hf_plugin
from headprune import HeadPlan
from headprune.cli.compare import app as compare_app
from headprune.cli.iterate import app as iterate_app
from headprune.cli.scores import app as scores_app
from headprune.errors import DataError, HeadpruneError
from headprune.results.predictions import read_predictions
from headprune.results.record import Record
from headprune.scores import HeadScores
from hf_plugin.finetuning.metrics import measure_task
from hf_plugin.finetuning.training import encode, labels_of
from hf_plugin.scores.losses import correct_predictions
from hf_plugin.tasks.entities import entities, entity_f1, name_entities
from hf_plugin.tasks.examples import Examples
from hf_plugin.tasks.predictions import predicted
from hf_plugin.tasks.tables import Columns, read_table
from hf_plugin.tasks.task import Task, TaskType
from hf_plugin.tokenizers import load_tokenizer
from tests.hf_plugin.made import SHAPE, write_model

from .test_commands import QUICK, finetune, measure, run

KINDS = {"dog": "ANIMAL", "cat": "ANIMAL", "man": "PERSON"}
NAMES = ("B-ANIMAL", "B-PERSON", "I-ANIMAL", "I-PERSON", "O")
COLUMNS = Columns(text=("words",), label="tags", of_words=True)
OPTIONS = ("--text", "words", "--label", "tags", "--task-type", "tokens", "--max-length", 24)

Row = dict[str, list[str]]


def sentences(size: int, *, seed: int = 1) -> list[Row]:
    """Sentences in which "old" before a noun is a part of the entity."""
    rng = random.Random(seed)
    rows = []
    for number in range(size):
        noun, other = rng.sample(list(KINDS), 2) if number else ("man", "dog")
        old = not number or rng.random() < 0.5
        words = ["the", *(["old"] if old else []), noun, rng.choice(["sees", "hears"]), "a", other]
        entity = [f"B-{KINDS[noun]}", f"I-{KINDS[noun]}"] if old else [f"B-{KINDS[noun]}"]
        rows.append({"words": words, "tags": ["O", *entity, "O", "O", f"B-{KINDS[other]}"]})
    rows[1] = {"words": ["old", "dog"], "tags": ["B-ANIMAL", "I-ANIMAL"]}
    return rows


def write_jsonl(path: Path, rows: Sequence[object]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def write_as(kind: str, folder: Path, rows: Sequence[Row]) -> Path:
    path = folder / f"train.{kind}"
    if kind == "jsonl":
        write_jsonl(path, rows)
    elif kind == "parquet":
        names = datasets.List(datasets.ClassLabel(names=list(NAMES)))
        features = datasets.Features(words=datasets.List(datasets.Value("string")), tags=names)
        datasets.Dataset.from_list(list(rows), features=features).to_parquet(path)
    elif kind == "csv":
        with path.open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerows([["words", "tags"]])
            writer.writerows([" ".join(row["words"]), " ".join(row["tags"])] for row in rows)
    else:
        texts = [
            "".join(f"{word} - x {tag}\n" for word, tag in zip(*row.values(), strict=True))
            for row in rows
        ]
        path.write_text("-DOCSTART- - x O\n\n" + "\n".join(texts) + "\n\n")
    return path


@pytest.mark.parametrize("kind", ["jsonl", "parquet", "csv", "conll"])
def test_every_kind_of_file_has_the_same_words_and_labels(kind, tmp_path):
    rows = sentences(5)
    table = read_table(str(write_as(kind, tmp_path, rows)), COLUMNS, split="train")
    assert list(table.texts) == [tuple(row["words"]) for row in rows]
    assert list(table.labels) == [row["tags"] for row in rows]
    assert table.label_names == (NAMES if kind == "parquet" else ())
    wanted = read_table(str(write_jsonl(tmp_path / "b.jsonl", rows)), COLUMNS, split="train")
    assert table.fingerprint == wanted.fingerprint


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.jsonl", '{"words": ["a", "b"], "tags": ["O"]}', "line 1: 2 words, 1 labels"),
        ("a.jsonl", '{"words": [], "tags": []}', "line 1: column 'words' is empty"),
        ("a.jsonl", '{"words": ["a"], "tags": "O"}', "line 1: column 'tags' is 'O', no list"),
        ("a.jsonl", '{"words": "a", "tags": ["O"]}', "line 1: column 'words' is 'a', no list"),
        ("a.jsonl", '{"words": [" "], "tags": ["O"]}', "column 'words' has ' ', no word"),
        ("a.jsonl", '{"words": ["a"], "tags": [null]}', "column 'tags' has None, no label"),
        ("a.csv", "words,tags\na b,O O\na b,O", "line 3: 2 words, 1 labels"),
        ("a.csv", "words,tags\n ,O", "line 2: column 'words' is empty"),
        ("a.conll", "the O\n\ndog\n", "line 3: no word and its label in 'dog'"),
        ("a.conll", "the DT O\ndog O\n", "line 2: no 3 columns in 'dog O'"),
    ],
)
def test_damage_is_one_line(name, content, message, tmp_path):
    (tmp_path / name).write_text(content)
    with pytest.raises(DataError, match=message) as caught:
        read_table(str(tmp_path / name), COLUMNS, split="train")
    assert "\n" not in str(caught.value) and str(tmp_path / name) in str(caught.value)


def test_words_of_another_type_of_task(tmp_path):
    texts = Columns(text=("words",), label="tags")
    with pytest.raises(DataError, match="no text; lists of words need --task-type tokens"):
        read_table(str(write_as("jsonl", tmp_path, sentences(2))), texts, split="train")
    with pytest.raises(DataError, match="label for each word; give --task-type tokens"):
        read_table(str(write_as("conll", tmp_path, sentences(2))), texts, split="train")


def test_the_first_token_of_a_word_has_its_label(tmp_path, capsys):
    tokenizer = load_tokenizer(str(write_model(tmp_path)), of_words=True)
    examples = Examples(
        [("the", "old-dog", "sees"), ("a", "\u00ad", "cat")], [(4, 0, 4), (4, 4, 1)], of_words=True
    )  # old, -, dog; and a word that this tokenizer may drop
    data = encode(examples, tokenizer, max_length=7)
    assert data["labels"][0] == [-100, 4, 0, -100, -100, 4, -100]
    assert labels_of(examples, data)[0] == (4, 0, 4)
    capsys.readouterr()
    data = encode(examples, tokenizer, max_length=4)
    assert data["labels"][0] == [-100, 4, 0, -100] and labels_of(examples, data)[0] == (4, 0)
    assert "of 6 words, in 2 of 2 texts, are left out" in capsys.readouterr().err


def test_words_of_a_byte_level_tokenizer_begin_with_a_space(tmp_path):
    trained = ByteLevelBPETokenizer()
    trained.train_from_iterator(
        ["the old dog"] * 9, vocab_size=300, special_tokens=["<s>", "<pad>", "</s>", "<unk>"]
    )
    trained.save_model(str(tmp_path))
    files = {"vocab": str(tmp_path / "vocab.json"), "merges": str(tmp_path / "merges.txt")}
    RobertaTokenizer(**files).save_pretrained(tmp_path)
    RobertaConfig().save_pretrained(tmp_path)
    tokenizer = load_tokenizer(str(tmp_path), of_words=True)
    data = encode(Examples([("old", "dog")], [(0, 1)], of_words=True), tokenizer, max_length=9)
    assert data["input_ids"][0] == tokenizer(" old dog")["input_ids"]
    assert data["labels"][0] == [-100, 0, 1, -100]


def test_only_first_tokens_are_predictions():
    logits = torch.eye(3)[torch.tensor([[0, 1, 2, 0], [2, 2, 1, 0]])]
    labels = torch.tensor([[-100, 1, -100, 2], [-100, 2, 1, -100]])
    assert predicted(logits, TaskType.tokens, labels=labels) == [(1, 0), (2, 1)]
    right = correct_predictions(TokenClassifierOutput(logits=logits), labels)
    assert right.tolist() == [0.5, 1.0]
    assert correct_predictions(MaskedLMOutput(logits=logits), labels) is None


def test_entities_by_hand():
    assert entities(["B-A", "I-A", "O", "B-B", "B-B"]) == [(0, 2, "A"), (3, 4, "B"), (4, 5, "B")]
    assert entities(["I-A", "I-B", "I-B", "O"]) == [(0, 1, "A"), (1, 3, "B")]  # begun without B-
    labels, predictions = ([["B-A", "I-A", "O", "B-B"]], [["B-A", "O", "B-A", "B-B"]])
    assert entity_f1(labels, predictions) == pytest.approx(2 * 1 / (2 + 3))
    assert entity_f1([["O"]], [["O"]]) == 0
    assert name_entities(NAMES) and name_entities(["O", "B-X"])
    assert not name_entities(["NN", "O"]) and not name_entities(["O", "I-X"])


def test_metrics_count_words_of_all_sentences():
    task = Task(
        name="some",
        type=TaskType.tokens,
        text=("words",),
        labels=("B-A", "I-A", "O"),
        metrics=("entity-f1", "token-accuracy", "macro-f1"),
    )
    labels, predictions = [(0, 1, 2), (2,)], [(0, 2, 2), (2,)]
    measured = measure_task(task, labels=labels, predictions=predictions)
    assert measured == pytest.approx(
        {"entity-f1": 0, "token-accuracy": 75, "macro-f1": 100 * (1 + 0 + 0.8) / 3}
    )


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> tuple[object, ...]:
    folder = tmp_path_factory.mktemp("files")
    train = write_as("conll", folder, sentences(24))
    dev = write_jsonl(folder / "dev.jsonl", sentences(8, seed=2))
    return ("--train", train, "--dev", dev)


@pytest.fixture(scope="module")
def trained(files: tuple[object, ...], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a classifier of words, which starts from one of texts."""
    folder = tmp_path_factory.mktemp("trained")
    model = write_model(folder / "model", num_labels=2)
    out = folder / "out"
    options = ("--batch-size", 4, "--learning-rate", 5e-3, "--epochs", 3, "--hold-out", 25)
    finetune(model, *files, *OPTIONS, *options, "-o", out)
    return out


def test_a_classifier_of_words_is_trained_and_measured(trained, files, tmp_path):
    record = Record.load(trained / "result.json")
    assert list(record.metrics) == ["entity-f1", "token-accuracy"] and record.task == "dev.tags"
    assert "|data:train.conll@" in record.signature and "[-25%]+dev.jsonl@" in record.signature
    config = AutoConfig.from_pretrained(trained / "model")
    assert config.id2label == dict(enumerate(NAMES))
    assert config.architectures == ["BertForTokenClassification"]
    pairs = read_predictions(trained / "predictions.tsv")
    rows = sentences(8, seed=2)
    assert [label for _, label in pairs] == [" ".join(row["tags"]) for row in rows]
    words = [each for pair in pairs for each in zip(*(part.split() for part in pair), strict=True)]
    right = sum(one == other for one, other in words)
    assert record.metrics["token-accuracy"] == pytest.approx(100 * right / len(words))
    # The type of the task is known from the model's config.
    options = (*files[2:], *OPTIONS[:4], "--max-length", 24, "--metric", "token-accuracy")
    measure(trained / "model", *options, "-o", tmp_path / "again.json")
    again = Record.load(tmp_path / "again.json")
    assert again.metrics == pytest.approx(record.metrics) and again.metric == "token-accuracy"


def test_scores_and_refit(trained, files, tmp_path):
    names = [f"--score={name}" for name in ("gradient", "fisher", "ablation")]
    done = run(scores_app, trained / "model", *files[:2], *OPTIONS, *names, "-o", tmp_path)
    assert "warning" not in done.stderr
    ablation = HeadScores.load(tmp_path / "ablation.json")
    assert ablation.settings["metric"] == "accuracy" and ablation.settings["trained-on"] == "no"
    assert 0 <= ablation.settings["base"] <= 100
    for name in ("gradient", "fisher"):
        assert HeadScores.load(tmp_path / f"{name}.json").scored.is_full
    given = {"train": str(files[1]), "dev": str(files[3]), "text": "words", "label": "tags"}
    model = headprune.open_task_model(trained / "model", **given, max_length=24)
    refitted = model.refitted(headprune.select.at_random(SHAPE, percent=50, seed=1))
    assert "train.conll@" in refitted.data


def test_distillation_compare_and_iterate(trained, files, tmp_path):
    HeadPlan(kept={"ES": [(0,), (1, 3), (2,)]}, heads=SHAPE).save(tmp_path / "plan.json")
    options = (*files, *OPTIONS, *QUICK, "--plan", tmp_path / "plan.json", "--epochs", 1)
    teacher = ("--distill-from", trained / "model")
    finetune(trained / "model", *options, *teacher, "-o", tmp_path / "out")
    record = Record.load(tmp_path / "out" / "result.json")
    assert "distill" in record.signature and record.kind == "pruned"
    common = (*files, *OPTIONS, "--epochs", 0, "--percent", 50, "--score", "magnitude")
    folder = tmp_path / "compared"
    run(compare_app, trained / "model", *common, "--seeds", 1, "--rounds", 0, "-o", folder)
    assert json.loads((folder / "compare.json").read_text())["metric"] == "entity-f1"
    steps = ("--steps", 1, "-o", tmp_path / "iterated")
    done = run(iterate_app, trained / "model", *common, *steps)
    assert "step 1 of 1: 50.0% pruned, entity-f1 " in done.stdout


@pytest.mark.parametrize(
    ("rows", "options", "message"),
    [
        ([{"words": ["a"], "tags": ["B-CAR"]}], (), "line 1: label 'B-CAR' is none of .*model's"),
        (sentences(2), ("--task-type", "single-label"), "need --task-type tokens"),
        (sentences(2), ("--text2", "other"), "--text2: words with labels are in one column"),
        (sentences(2), ("--metric", "f1"), "a tokens task is measured by entity-f1, token-acc"),
    ],
)
def test_mistakes_are_one_line(rows, options, message, trained, tmp_path):
    dev = write_jsonl(tmp_path / "dev.jsonl", rows)
    with pytest.raises(HeadpruneError, match=message) as caught:
        measure(trained / "model", "--dev", dev, *OPTIONS, *options)
    assert "\n" not in str(caught.value)


def test_labels_of_words_and_of_texts_are_told_apart(trained, files, tmp_path):
    labels = ("--labels", ",".join(NAMES))
    texts = write_model(tmp_path / "texts", num_labels=5)
    with pytest.raises(HeadpruneError, match="classifier .Bert.* is for texts, the task has"):
        measure(texts, *files[2:], *OPTIONS, *labels)
    dev = write_jsonl(tmp_path / "dev.jsonl", [{"words": "the dog", "tags": "O"}] * 2)
    with pytest.raises(HeadpruneError, match="is for words, the task has labels of texts"):
        measure(trained / "model", "--dev", dev, *OPTIONS, "--task-type", "single-label")


def test_labels_that_name_no_entities(tmp_path):
    texts = [["a", "dog", *row["words"]] for row in sentences(9)]
    rows = [{"words": words, "tags": [word[:1] for word in words]} for words in texts]
    model = write_model(tmp_path / "model")
    train = write_jsonl(tmp_path / "a.jsonl", rows[:5])
    dev = write_jsonl(tmp_path / "b.jsonl", rows[5:])
    options = ("--train", train, "--dev", dev, *OPTIONS, *QUICK, "--hold-out", 0, "--epochs", 1)
    with pytest.raises(HeadpruneError, match="--metric entity-f1: is of labels such as"):
        finetune(model, *options, "--metric", "entity-f1", "-o", tmp_path / "none")
    finetune(model, *options, "--max-length", 8, "-o", tmp_path / "out")  # 6 words each
    record = Record.load(tmp_path / "out" / "result.json")
    assert list(record.metrics) == ["token-accuracy", "macro-f1"]
    missing = [sum(max(0, len(row["words"]) - 6) for row in part) for part in (rows[:5], rows[5:])]
    assert record.training["words_left_out"] == dict(zip(("train", "dev"), missing, strict=True))


def test_a_model_that_predicts_one_label_for_every_word(trained, files, tmp_path):
    model = hf_plugin.from_pretrained(trained / "model")
    model.classifier.weight.data.zero_()
    model.save_pretrained(tmp_path / "model")
    load_tokenizer(str(trained / "model")).save_pretrained(tmp_path / "model")
    said = measure(tmp_path / "model", *files[2:], *OPTIONS).stderr
    assert f"warning: {tmp_path}/model: gives the same output for every example" in said
    options = (*files, *OPTIONS, "--epochs", 0)
    said = finetune(tmp_path / "model", *options, "-o", tmp_path / "out").stderr
    assert "predicts the same for every word" in said
    assert Record.load(tmp_path / "out" / "result.json").training["constant_prediction"] is True
