"""Metrics compared with values computed by hand, and undefined metrics."""

from __future__ import annotations

import pytest

from hf_plugin.finetuning.metrics import measure
from hf_plugin.glue.tasks import TASKS


def test_classification():
    # true positives 2, false positives 1, false negatives 1, true negatives 1
    labels, predictions = [1, 1, 1, 0, 0], [1, 1, 0, 1, 0]
    values = measure(["accuracy", "f1", "matthews"], labels=labels, predictions=predictions)
    assert values["accuracy"] == pytest.approx(60)
    assert values["f1"] == pytest.approx(100 * 4 / 6)  # 2 tp / (2 tp + fp + fn)
    assert values["matthews"] == pytest.approx(100 * (2 * 1 - 1 * 1) / (3 * 2 * 3 * 2) ** 0.5)
    assert list(values) == ["accuracy", "f1", "matthews"]


def test_regression():
    labels, predictions = [1.0, 2.0, 3.0, 4.0], [1.0, 3.0, 2.0, 9.0]
    values = measure(["pearson", "spearman"], labels=labels, predictions=predictions)
    # deviations -1.5 -.5 .5 1.5 and -2.75 -.75 -1.75 5.25
    assert values["pearson"] == pytest.approx(100 * 11.5 / (5 * 38.75) ** 0.5)
    assert values["spearman"] == pytest.approx(80)  # 1 - 6 * 2 / (4 * 15)


def test_perfect_and_reversed():
    assert measure(["matthews"], labels=[0, 1, 1], predictions=[0, 1, 1]) == {"matthews": 100}
    assert measure(["pearson"], labels=[0, 1, 2], predictions=[2, 1, 0])[
        "pearson"
    ] == pytest.approx(-100)


@pytest.mark.parametrize("metric", ["matthews", "pearson", "spearman"])
def test_correlation_with_a_constant_is_zero(metric):
    assert measure([metric], labels=[0, 1, 1, 0], predictions=[1, 1, 1, 1]) == {metric: 0}
    assert measure([metric], labels=[1, 1, 1, 1], predictions=[0, 1, 1, 0]) == {metric: 0}


def test_f1_without_a_positive_is_zero():
    assert measure(["f1"], labels=[1, 1, 0], predictions=[0, 0, 0]) == {"f1": 0}


def test_every_task_has_metrics_that_are_known():
    for task in TASKS.values():
        values = measure(task.metrics, labels=[0, 1], predictions=[1, 0])
        assert tuple(values) == tuple(task.metrics)


def test_macro_f1_and_squared_error():
    # f1 of each label: 1, 2 / 3, 0
    values = measure(["macro-f1"], labels=[0, 1, 2, 0], predictions=[0, 1, 1, 0])
    assert values["macro-f1"] == pytest.approx(100 * (1 + 2 / 3 + 0) / 3)
    assert measure(["mse"], labels=[1.0, 2.0], predictions=[3.0, 2.0]) == {"mse": 2.0}


def test_examples_with_several_labels():
    labels, predictions = [(1, 0), (1, 1), (0, 0)], [(1, 0), (1, 0), (0, 1)]
    values = measure(["accuracy", "f1", "macro-f1"], labels=labels, predictions=predictions)
    assert values["accuracy"] == pytest.approx(100 / 3)  # all labels of one example are right
    assert values["f1"] == pytest.approx(100 * 4 / 6)  # 2 tp, 1 fp, 1 fn of both labels
    assert values["macro-f1"] == pytest.approx(100 * (1 + 0) / 2)
