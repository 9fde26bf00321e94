"""Tests of reading GLUE's files, intact and damaged, and the hub's data set."""

from __future__ import annotations

import gzip
from collections import Counter

import datasets
import pytest

from headprune import DataError
from hf_plugin.glue.data import Examples, GlueData, load_splits, read_tsv
from hf_plugin.glue.tasks import TASKS
from hf_plugin.tasks.task import dev_splits
from tests.hf_plugin.made import encoding_of, write_task

REAL = {
    "sst2": (67349, 872),
    "cola": (8551, 1043),
    "rte": (2490, 277),
    "mrpc": (3667, 408),
    "stsb": (5749, 1500),
    "qnli": (None, 5463),
}


def file_of(glue, name, split="train"):
    task = TASKS[name]
    return glue / task.folder / f"{task.files[split]}.tsv"


@pytest.fixture
def broken(glue, tmp_path):
    """Write a task's training file with one replacement."""

    def broken(name, old, new):
        text = file_of(glue, name).read_bytes()
        assert old in text
        path = tmp_path / "train.tsv"
        path.write_bytes(text.replace(old, new, 1))
        return TASKS[name], path

    return broken


@pytest.mark.parametrize("name", TASKS)
def test_every_task(glue, name):
    task = TASKS[name]
    splits = load_splits(task, glue, splits=("train", *dev_splits(GlueData(task))))
    train = splits["train"]
    assert len(train) == len(train.texts) == 24
    assert all(len(part) == 12 for split, part in splits.items() if split != "train")
    assert {len(texts) for texts in train.texts} == {len(task.text)}
    values = [n / 4 for n in range(21)] if task.range else range(len(task.labels))
    assert train.labels == [values[n % len(values)] for n in range(24)]
    words = file_of(glue, name).read_text(encoding_of(name)).splitlines()[-1].split("\t")
    assert set(train.texts[-1]) <= set(words)


def test_mnli_has_two_development_sets(glue):
    assert dev_splits(GlueData(TASKS["mnli"])) == ("dev", "dev_mismatched")


def test_own_folder_and_gzip(glue, tmp_path):
    task = TASKS["rte"]
    plain = load_splits(task, glue / "RTE", splits=["train"])
    (tmp_path / "train.tsv.gz").write_bytes(gzip.compress(file_of(glue, "rte").read_bytes()))
    assert load_splits(task, tmp_path, splits=["train"]) == plain


def test_quotes_are_characters(tmp_path):
    path = tmp_path / "dev.tsv"
    path.write_text('sentence\tlabel\n"an open quote\t1\n"" and others"\t0\n')
    assert read_tsv(TASKS["sst2"], path) == Examples(
        [('"an open quote',), ('"" and others"',)], [1, 0]
    )


def test_cola_has_no_header(tmp_path):
    path = tmp_path / "dev.tsv"
    path.write_text("gj04\t0\t*\tThey drank the pub.\n")
    assert read_tsv(TASKS["cola"], path) == Examples([("They drank the pub.",)], [0])


def test_missing_column(broken):
    task, path = broken("rte", b"sentence2", b"second")
    with pytest.raises(DataError, match=r"line 1: no column 'sentence2', there are index, sent"):
        read_tsv(task, path)


def test_unknown_label(broken):
    task, path = broken("mnli", b"contradiction", b"-")
    with pytest.raises(DataError, match="line 4: label '-' is none of entailment, neutral, contr"):
        read_tsv(task, path)


@pytest.mark.parametrize("score", [b"5.5", b"-1", b"nan", b"much"])
def test_score_outside(broken, score):
    task, path = broken("stsb", b"4.000", score)
    with pytest.raises(DataError, match=r"line 18: '.*' is no number from 0 to 5"):
        read_tsv(task, path)


def test_wrong_number_of_fields(broken):
    task, path = broken("sst2", b"\t0", b"\t\t0")
    with pytest.raises(DataError, match="line 2: 3 fields, there are 2 columns"):
        read_tsv(task, path)


def test_short_lines_of_qqp_are_left_out_and_counted(broken):
    task, path = broken("qqp", b"\t-\t", b"\t")
    examples = read_tsv(task, path)
    assert len(examples) == 23
    assert examples.left_out == 1


def test_not_utf8(broken):
    task, path = broken("sst2", b"\t1", b" \xe9\t1")
    with pytest.raises(DataError, match="line 3: not UTF-8"):
        read_tsv(task, path)


@pytest.mark.parametrize("content", [b"", b"sentence\tlabel\n"])
def test_empty(tmp_path, content):
    path = tmp_path / "train.tsv"
    path.write_bytes(content)
    with pytest.raises(DataError, match="no example in it"):
        read_tsv(TASKS["sst2"], path)


def test_broken_gzip(tmp_path):
    path = tmp_path / "train.tsv.gz"
    path.write_bytes(gzip.compress(b"sentence\tlabel\n" + b"good\t1\n" * 999)[:-9])
    with pytest.raises(DataError, match="cannot be read"):
        read_tsv(TASKS["sst2"], path)


def test_missing_file(tmp_path):
    with pytest.raises(DataError, match="no train.tsv or train.tsv.gz of sst2"):
        load_splits(TASKS["sst2"], tmp_path, splits=["train"])


def test_subset_is_random_but_always_the_same(glue):
    examples = read_tsv(TASKS["rte"], file_of(glue, "rte"))
    part = examples.subset(10)
    assert part == examples.subset(10)
    assert len(part) == 10
    assert part.texts != examples.texts[:10]
    assert set(part.texts) <= set(examples.texts)
    assert examples.subset(24) is examples


def test_hub(monkeypatch):
    """Tables as `datasets` loads them from the hub."""

    def load_dataset(where, name, *, split):
        assert (where, name, split) == ("nyu-mll/glue", "mnli", "validation_matched")
        label = datasets.ClassLabel(names=["entailment", "neutral", "contradiction"])
        text = datasets.Value("string")
        return datasets.Dataset.from_dict(
            {"premise": ["a"], "hypothesis": ["b"], "label": [2], "idx": [0]},
            features=datasets.Features(
                premise=text, hypothesis=text, label=label, idx=datasets.Value("int32")
            ),
        )

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    assert load_splits(TASKS["mnli"], None, splits=["dev"]) == {"dev": Examples([("a", "b")], [2])}


def test_no_hub(monkeypatch):
    def load_dataset(*_, **__):
        raise ConnectionError("no\nnetwork")

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    with pytest.raises(DataError, match=r"sst2: cannot be loaded .*no network.*--data-dir"):
        load_splits(TASKS["sst2"], None, splits=["dev"])


@pytest.mark.slow
@pytest.mark.parametrize("name", REAL)
def test_real_files(real_glue, name):
    task = TASKS[name]
    wanted = dict(zip(("train", "dev"), REAL[name], strict=True))
    for split in [split for split, count in wanted.items() if count]:
        examples = load_splits(task, real_glue, splits=[split])[split]
        assert len(examples) == wanted[split]
        assert examples.left_out == 0
        assert all(all(texts) for texts in examples.texts)
        if task.labels:
            assert set(Counter(examples.labels)) == set(range(len(task.labels)))


def test_damage_within_gzip(tmp_path):
    folder = write_task(tmp_path, "sst2", train=2000) / "SST-2"
    packed = bytearray(gzip.compress((folder / "train.tsv").read_bytes()))
    middle = len(packed) // 2
    packed[middle : middle + 40] = b"\0" * 40
    (folder / "train.tsv").unlink()
    (folder / "train.tsv.gz").write_bytes(packed)
    with pytest.raises(DataError, match="train.tsv.gz: (cannot be read|line)"):
        load_splits(TASKS["sst2"], folder, splits=["train"])


def test_an_empty_line_at_the_end(tmp_path):
    path = write_task(tmp_path, "rte") / "RTE" / "dev.tsv"
    path.write_text(path.read_text() + "\n")
    assert len(load_splits(TASKS["rte"], tmp_path, splits=["dev"])["dev"]) == 12
