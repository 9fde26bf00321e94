"""A user's task: its type, its labels in the model's order, and its metrics."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from transformers import AutoModelForSequenceClassification

from headprune.errors import HeadpruneError, UsageError
from hf_plugin.finetuning.models import load_classifier
from hf_plugin.tasks.own import Description, OwnData, own_data
from hf_plugin.tasks.tables import Columns
from hf_plugin.tasks.task import TaskType
from tests.hf_plugin.made import write_model
from tests.hf_plugin.small_models import small

from .files import LABELS, examples, write_csv


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("files")
    write_csv(folder / "train.csv", examples(12))
    write_csv(folder / "dev.csv", examples(6, seed=2))
    return folder


@pytest.fixture(scope="module")
def unnamed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of three outputs without names."""
    return write_model(tmp_path_factory.mktemp("unnamed"), num_labels=3)


@pytest.fixture(scope="module")
def named(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of the files' labels, in an order of its own."""
    names = dict(enumerate(LABELS))
    return write_model(tmp_path_factory.mktemp("named"), num_labels=3, id2label=names)


def described(
    files: Path, model: Path, *, untrained: bool, label: str = "category", **changes: object
) -> OwnData:
    values: dict[str, object] = {
        "train": str(files / "train.csv"),
        "dev": str(files / "dev.csv"),
        "columns": Columns(text=("text",), label=label),
    }
    description = Description(**{**values, **changes})  # type: ignore[arg-type]
    return own_data(description, model=str(model), untrained=untrained)


def test_labels_of_a_new_classifier_are_those_of_the_data(files, unnamed):
    data = described(files, unnamed, untrained=True)
    assert data.task.labels == ("food", "music", "sports")
    assert data.load("train").labels[:3] == [2, 1, 0]
    assert data.task.metrics == ("accuracy", "macro-f1")
    assert data.task.name == "dev.category" and data.splits == ("train", "dev")


def test_a_classifier_keeps_its_order(files, named):
    for untrained in (True, False):
        data = described(files, named, untrained=untrained)
        assert data.task.labels == LABELS and data.load("dev").labels == [0, 1, 2] * 2


def test_signatures_name_files_and_fingerprints(files, named):
    data = described(files, named, untrained=False)
    train, dev = data.names["train"], data.names["dev"]
    assert train.startswith("train.csv@") and dev.startswith("dev.csv@")
    assert data.name(part="[-10%]") == f"{train}[-10%]+{dev}"
    assert data.name_of("dev") == dev and len(dev) == len("dev.csv@") + 12
    assert described(files, named, untrained=False, label="stars", type=TaskType.regression).names[
        "dev"
    ] not in (train, dev)


def test_numbers_that_are_not_whole_are_predicted(files, unnamed, tmp_path):
    data = described(files, unnamed, untrained=True, label="stars")
    assert data.task.is_regression and data.load("dev").labels == [0.5, 1.5, 2.5, 3.5, 0.5, 1.5]
    assert data.task.metrics == ("pearson", "spearman") and data.task.labels == ()
    whole = write_csv(tmp_path / "whole.csv", [{"text": "a", "stars": n % 3} for n in range(9)])
    options = {"train": str(whole), "dev": None, "label": "stars"}
    assert described(files, unnamed, untrained=True, **options).task.labels == ("0", "1", "2")
    by_metric = described(files, unnamed, untrained=True, metric="mse", **options)
    assert by_metric.task.metrics == ("mse", "pearson", "spearman")


def test_numbers_and_other_spellings_of_the_labels(named, unnamed, tmp_path, capsys):
    path = str(write_csv(tmp_path / "n.csv", [{"text": "a", "category": n} for n in (2, 0)]))
    options = {"train": None, "dev": path}
    assert described(tmp_path, named, untrained=False, **options).load("dev").labels == [2, 0]
    assert "0 = sports, 1 = music, 2 = food" in capsys.readouterr().err
    assert described(tmp_path, unnamed, untrained=False, **options).load("dev").labels == [2, 0]
    loud = str(write_csv(tmp_path / "l.csv", [{"text": "a", "category": "FOOD"}]))
    assert described(tmp_path, named, untrained=False, train=None, dev=loud).load("dev").labels == [
        2
    ]


def test_labels_in_a_given_order(files, unnamed):
    data = described(files, unnamed, untrained=False, labels=("food", "sports", "music"))
    assert data.load("dev").labels[:3] == [1, 2, 0]


def test_a_classifier_that_is_trained_further_keeps_the_order_of_its_labels(files, named):
    given = tuple(reversed(LABELS))
    with pytest.raises(UsageError, match="has these labels in another order, sports, music, food"):
        described(files, named, untrained=True, labels=given)
    data = described(files, named, untrained=True, labels=LABELS)
    assert data.task.labels == LABELS


def test_labels_that_differ_in_case_alone_are_a_warning(files, unnamed, tmp_path, capsys):
    rows = [{"text": "a", "category": label} for label in ("yes", "no", "Yes")]
    train = write_csv(tmp_path / "train.csv", rows)
    data = described(files, unnamed, untrained=True, train=str(train), dev=None)
    assert data.task.labels == ("Yes", "no", "yes")
    expected = f"warning: {train}: 'yes' and 'Yes' are two labels, which differ in upper and lower"
    assert expected in capsys.readouterr().err
    described(files, unnamed, untrained=True)
    assert "warning" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"untrained": False}, "its labels have no names .LABEL_0, .*'sports'; give --labels"),
        ({"untrained": True, "metric": "f1"}, "--metric f1 is of .* two labels, there are 3"),
        (
            {"untrained": True, "metric": "rouge"},
            "--metric rouge: it is one of accuracy, macro-f1",
        ),
        (
            {"untrained": True, "metric": "bleu"},
            "--metric bleu: a single-label task is measured by accuracy, macro-f1",
        ),
        (
            {"untrained": True, "type": TaskType.regression},
            "train.csv: line 2: label 'sports' is no number",
        ),
        (
            {"untrained": True, "type": TaskType.single_label, "metric": "mse"},
            "--metric mse: a single-label task is measured by accuracy, macro-f1",
        ),
        ({"untrained": True, "train": None}, "give --train"),
        (
            {"untrained": False, "labels": ("food", "music")},
            "train.csv: line 2: label 'sports' is none of --labels': food, music",
        ),
        ({"untrained": False, "labels": ("food", "food")}, "a label is named twice"),
        ({"untrained": True, "label": "text"}, "no column 'nothing'"),
    ],
)
def test_contradictions_are_one_line(options, message, files, unnamed):
    if options.get("label") == "text":
        options = {**options, "columns": Columns(text=("nothing",), label="text")}
    with pytest.raises(HeadpruneError, match=message) as caught:
        described(files, unnamed, **options)
    assert "\n" not in str(caught.value)


def test_a_label_that_the_model_does_not_have(named, tmp_path):
    rows = [*examples(4), {**examples(1)[0], "category": "weather"}]
    path = write_csv(tmp_path / "dev.csv", rows)
    with pytest.raises(
        HeadpruneError, match="line 6: label 'weather' is none of .*: sports, music, food"
    ):
        described(tmp_path, named, untrained=False, train=None, dev=str(path))
    train = str(write_csv(tmp_path / "train.csv", examples(12)))
    with pytest.raises(HeadpruneError, match="dev.csv: line 6: label 'weather' is none of .*train"):
        described(tmp_path, named, untrained=True, train=train, dev=str(path))


def test_a_column_that_is_no_label(unnamed, tmp_path):
    rows = [{"text": f"text {n}", "category": "one"} for n in range(30)]
    path = str(write_csv(tmp_path / "train.csv", rows))
    options = {"train": path, "dev": None, "untrained": True}
    with pytest.raises(HeadpruneError, match="all examples have one label, 'one'"):
        described(tmp_path, unnamed, **options)
    columns = Columns(text=("category",), label="text")
    with pytest.raises(HeadpruneError, match="30 labels in 30 examples; name the column"):
        described(tmp_path, unnamed, columns=columns, **options)


def test_any_number_of_labels(unnamed, tmp_path):
    rows = [("a", ["sports", "music"]), ("b", []), ("c", ["food"]), ("d", ["music"])]
    lists = tmp_path / "lists.jsonl"
    lists.write_text("".join(json.dumps({"text": t, "category": c}) + "\n" for t, c in rows))
    spelled = [{"text": t, "category": "|".join(c)} for t, c in rows]
    words = write_csv(tmp_path / "words.csv", spelled)
    columns = Columns(text=("text",), label="category", may_lack_label=True)
    for path, type_ in ((lists, None), (words, TaskType.multi_label)):
        options = {"train": str(path), "dev": None, "type": type_, "columns": columns}
        data = described(tmp_path, unnamed, untrained=True, **options)
        assert data.task.type is TaskType.multi_label
        assert data.task.labels == ("food", "music", "sports")
        assert data.task.metrics == ("f1", "macro-f1")
        assert data.load("train").labels == [(0, 1, 1), (0, 0, 0), (1, 0, 0), (0, 1, 0)]
    other = write_csv(tmp_path / "other.csv", [{"text": "a", "category": "music|weather"}])
    options = {"train": str(lists), "dev": str(other), "columns": columns}
    with pytest.raises(HeadpruneError, match="other.csv: line 2: label 'weather' is none of"):
        described(tmp_path, unnamed, untrained=True, **options)


def labelled(folder: Path, *labels: object, name: str = "some") -> str:
    """A file of different texts with these labels."""
    rows = [{"text": f"{name} {number}", "category": each} for number, each in enumerate(labels)]
    return str(write_csv(folder / f"{name}.csv", rows))


def test_a_classifier_keeps_its_order_in_any_spelling(named, tmp_path):
    path = labelled(tmp_path, *map(str.upper, LABELS))
    data = described(tmp_path, named, untrained=True, train=path, dev=None)
    assert data.task.labels == LABELS and data.load("train").labels == [0, 1, 2]


def test_a_classifier_of_other_labels_is_kept_with_a_warning(named, unnamed, tmp_path, capsys):
    other = labelled(tmp_path, "a", "b", "c")
    for model, path, warned in (
        (named, other, True),
        (unnamed, other, False),
        (named, labelled(tmp_path, *LABELS, name="same"), False),
    ):
        task = described(tmp_path, model, untrained=True, train=path, dev=None).task
        load_classifier(str(model), task, untrained=True)
        warning = "classifier is for sports, music, food; fine-tuning for a, b, c starts from its"
        assert (warning in capsys.readouterr().err) is warned


def test_an_xmod_that_knows_no_language(files, unnamed, tmp_path):
    """Published X-MODs name no language; the user's choice is in the config."""
    task = described(files, unnamed, untrained=True).task
    model = small("xmod", AutoModelForSequenceClassification)
    model.save_pretrained(tmp_path / "chosen")
    load_classifier(str(tmp_path / "chosen"), task, untrained=True)
    model.config.default_language = None
    model.save_pretrained(tmp_path / "open")
    message = r"open: the language of the texts is not known; .* to one of en_XX$"
    with pytest.raises(UsageError, match=message):
        load_classifier(str(tmp_path / "open"), task, untrained=True)


def test_dev_examples_that_are_in_train(unnamed, tmp_path, capsys):
    rows = examples(12)
    train = str(write_csv(tmp_path / "train.csv", rows))
    dev = str(write_csv(tmp_path / "dev.csv", [*rows[:2], *examples(4, seed=2)]))
    described(tmp_path, unnamed, untrained=True, train=train, dev=dev)
    assert "warning: 2 of 6 dev examples are in --train too" in capsys.readouterr().err
    copy = str(write_csv(tmp_path / "copy.csv", rows))
    with pytest.raises(HeadpruneError, match="train.csv and --dev .*copy.csv have the same exampl"):
        described(tmp_path, unnamed, untrained=True, train=train, dev=copy)


def test_numbers_without_0_are_no_indices(named, unnamed, tmp_path):
    options = {"train": None, "dev": labelled(tmp_path, 1, 2), "untrained": False}
    for model in (named, unnamed):
        with pytest.raises(HeadpruneError, match="numbers without 0, 1, 2, .*give --labels"):
            described(tmp_path, model, **options)
    data = described(tmp_path, named, labels=("1", "2", "3"), **options)
    assert data.task.labels == LABELS and data.load("dev").labels == [0, 1]
    options["train"] = labelled(tmp_path, 0, 1, 2, name="train")
    assert described(tmp_path, named, **options).load("dev").labels == [1, 2]


def test_labels_that_are_called_as_transformers_calls_them(unnamed, tmp_path):
    path = labelled(tmp_path, "LABEL_2", "LABEL_0", "LABEL_1")
    for untrained in (True, False):
        data = described(tmp_path, unnamed, untrained=untrained, train=path, dev=None)
        assert data.load("train").labels == [2, 0, 1]


def test_whole_numbers_with_a_decimal_point_are_labels(unnamed, tmp_path):
    for number, labels in enumerate((("0.0", "1.0", "2.0"), ("0", "1", "2"))):
        path = labelled(tmp_path, *labels, name=f"file{number}")
        data = described(tmp_path, unnamed, untrained=True, train=path, dev=None)
        assert data.task.labels == ("0", "1", "2") and data.load("train").labels == [0, 1, 2]
