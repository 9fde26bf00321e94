"""GLUE's metrics, in percent, with scikit-learn and SciPy.

A correlation with constant predictions is not defined. It counts as 0, since such a model has
learnt nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from scipy.stats import pearsonr, spearmanr
from sklearn.metrics import accuracy_score, f1_score, matthews_corrcoef

Metric = Callable[[Sequence[float], Sequence[float]], float]
"""Function of the labels and the predictions, in this order."""


def _f1(labels: Sequence[float], predictions: Sequence[float]) -> float:
    return float(f1_score(labels, predictions, zero_division=0.0))


def _correlation(function: Callable[..., tuple[float, float]]) -> Metric:
    def correlation(labels: Sequence[float], predictions: Sequence[float]) -> float:
        if np.ptp(labels) == 0 or np.ptp(predictions) == 0:
            return 0.0
        return float(function(labels, predictions)[0])

    return correlation


_METRICS: Mapping[str, Metric] = {
    "accuracy": lambda labels, predictions: float(accuracy_score(labels, predictions)),
    "f1": _f1,
    "matthews": lambda labels, predictions: float(matthews_corrcoef(labels, predictions)),
    "pearson": _correlation(pearsonr),
    "spearman": _correlation(spearmanr),
}


def measure(
    names: Sequence[str], *, labels: Sequence[float], predictions: Sequence[float]
) -> dict[str, float]:
    """Compute metrics, from 0 to 100 or, for matthews, pearson and spearman, from -100 to 100.

    Args:
        names: names of metrics: accuracy, f1 (of label 1), matthews, pearson, spearman.
        labels: the correct labels, as indices, or the numbers to predict.
        predictions: the predictions of the model, in the same order.
    """
    values = {name: 100 * _METRICS[name](labels, predictions) for name in names}
    # SciPy returns NaN for values that are nearly constant.
    return {name: 0.0 if math.isnan(value) else value for name, value in values.items()}
