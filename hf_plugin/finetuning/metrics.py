"""Metrics of classifiers, in percent, with scikit-learn and SciPy.

A correlation with constant predictions is not defined. It counts as 0, since such a model has
learnt nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from scipy.stats import pearsonr, spearmanr
from sklearn.metrics import accuracy_score, f1_score, matthews_corrcoef, mean_squared_error

from headprune.results.bleu import bleu_and_chrf
from hf_plugin.tasks.entities import entity_f1
from hf_plugin.tasks.predictions import single
from hf_plugin.tasks.task import Task

ENTITY_F1 = "entity-f1"

Metric = Callable[[Any, Any], float]
"""Function of the labels and the predictions, in this order: arrays of N, or of N x labels."""


def _f1(labels: Any, predictions: Any) -> float:
    average = "micro" if np.ndim(labels) == 2 else "binary"
    return float(f1_score(labels, predictions, average=average, zero_division=0.0))


def _macro_f1(labels: Sequence[float], predictions: Sequence[float]) -> float:
    return float(f1_score(labels, predictions, average="macro", zero_division=0.0))


def _mean_squared_error(labels: Sequence[float], predictions: Sequence[float]) -> float:
    return float(mean_squared_error(labels, predictions))


def _correlation(function: Callable[..., tuple[float, float]]) -> Metric:
    def correlation(labels: Sequence[float], predictions: Sequence[float]) -> float:
        if np.ptp(labels) == 0 or np.ptp(predictions) == 0:
            return 0.0
        return float(function(labels, predictions)[0])

    return correlation


_METRICS: Mapping[str, Metric] = {
    "accuracy": lambda labels, predictions: float(accuracy_score(labels, predictions)),
    "f1": _f1,
    "macro-f1": _macro_f1,
    "matthews": lambda labels, predictions: float(matthews_corrcoef(labels, predictions)),
    "pearson": _correlation(pearsonr),
    "spearman": _correlation(spearmanr),
    "mse": _mean_squared_error,
}


def measure_task(
    task: Task, *, labels: Sequence[Any], predictions: Sequence[Any]
) -> dict[str, float]:
    """Compute the metrics of a task, the first one first; see ``measure``.

    Where words have labels, token-accuracy and macro-f1 are of all words together.

    Args:
        task: the task.
        labels, predictions: as ``hf_plugin.tasks.predictions.predicted`` returns them.
    """
    if task.is_of_text:
        of_text = _of_text(labels=labels, predictions=predictions)
        return {name: of_text[name] for name in task.metrics}
    if task.is_translation:
        scored = bleu_and_chrf(list(predictions), list(labels), tokenizer=task.bleu_tokenizer)
        return {name: {"bleu": scored.bleu, "chrf": scored.chrf}[name] for name in task.metrics}
    if not task.is_of_words:
        return measure(task.metrics, labels=labels, predictions=predictions)
    of_words = {name: name for name in task.metrics if name != ENTITY_F1}
    if "token-accuracy" in of_words:
        of_words["token-accuracy"] = "accuracy"
    values = measure(
        list(of_words.values()), labels=single(labels, task), predictions=single(predictions, task)
    )
    values = {name: values[other] for name, other in of_words.items()}
    if ENTITY_F1 in task.metrics:
        named = ([[task.labels[n] for n in row] for row in rows] for rows in (labels, predictions))
        values[ENTITY_F1] = 100 * entity_f1(*named)
    return {name: values[name] for name in task.metrics}


def signatures_of(task: Task) -> dict[str, str]:
    """sacreBLEU's signatures of the metrics of a translation; of other tasks, none."""
    if not task.is_translation:
        return {}
    scored = bleu_and_chrf(["a"], ["a"], tokenizer=task.bleu_tokenizer)  # which depend on no text
    return {"bleu": scored.bleu_signature, "chrf": scored.chrf_signature}


def _of_text(*, labels: Sequence[int], predictions: Sequence[float]) -> dict[str, float]:
    """The perplexity, exp of the loss, and the loss: the mean over all tokens, in nats.

    Args:
        labels: the number of predicted tokens of each text.
        predictions: the sum of -log p over these tokens.
    """
    loss = math.fsum(predictions) / max(1, sum(labels))
    try:
        perplexity = math.exp(loss)
    except OverflowError:
        perplexity = math.inf
    return {"perplexity": perplexity, "loss": loss}


def measure(
    names: Sequence[str], *, labels: Sequence[Any], predictions: Sequence[Any]
) -> dict[str, float]:
    """Compute metrics, from 0 to 100 or, for matthews, pearson and spearman, from -100 to 100.

    The mean squared error, mse, is in the squared units of the labels.

    Args:
        names: names of metrics: accuracy (where examples have several labels, of all of them
            together), f1 (of label 1; there micro-averaged), macro-f1 (the mean of the labels' f1),
            matthews, pearson, spearman, mse.
        labels: the correct labels, as indices, tuples of 0 and 1, or the numbers to predict.
        predictions: the predictions of the model, in the same order.
    """
    given, output = np.asarray(labels), np.asarray(predictions)
    values = {name: (1 if name == "mse" else 100) * _METRICS[name](given, output) for name in names}
    # SciPy returns NaN for values that are nearly constant.
    return {name: 0.0 if math.isnan(value) else value for name, value in values.items()}
