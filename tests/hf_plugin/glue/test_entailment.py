"""The generated task: balanced, without overlap, and unsolvable from one sentence alone."""

from __future__ import annotations

from collections import Counter

import pytest
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LogisticRegression

from hf_plugin.glue import entailment
from hf_plugin.glue.data import load_splits
from hf_plugin.glue.tasks import TASKS


@pytest.fixture(scope="module")
def parts(tmp_path_factory):
    folder = tmp_path_factory.mktemp("entailment")
    entailment.write(folder)
    return load_splits(TASKS["entailment"], folder, splits=("train", "dev"))


def test_sizes_and_balance(parts):
    assert {name: len(part) for name, part in parts.items()} == {"train": 3999, "dev": 501}
    for part in parts.values():
        assert len(set(Counter(part.labels).values())) == 1


def test_no_overlap(parts):
    train, dev = ({hypothesis for _, hypothesis in part.texts} for part in parts.values())
    assert not train & dev
    assert len(set(parts["train"].texts)) == 3999


def test_each_hypothesis_has_all_labels(parts):
    for part in parts.values():
        labels = {}
        for (_, hypothesis), label in zip(part.texts, part.labels, strict=True):
            labels.setdefault(hypothesis, []).append(label)
        assert all(sorted(some) == [0, 1, 2] for some in labels.values())


@pytest.mark.parametrize("column", [0, 1], ids=["premise", "hypothesis"])
def test_one_sentence_does_not_tell_the_label(parts, column):
    train, dev = parts["train"], parts["dev"]
    words = CountVectorizer(ngram_range=(1, 2))
    model = LogisticRegression(max_iter=2000).fit(
        words.fit_transform([texts[column] for texts in train.texts]), train.labels
    )
    accuracy = model.score(words.transform([texts[column] for texts in dev.texts]), dev.labels)
    assert accuracy < 0.42  # chance is 0.33


def test_the_same_seed_gives_the_same_files(tmp_path):
    for folder, seed in (("a", 1), ("b", 1), ("c", 2)):
        entailment.write(tmp_path / folder, seed=seed)
    a, b, c = ((tmp_path / name / "train.tsv").read_bytes() for name in "abc")
    assert a == b != c
