"""Fields of older result files, under the names that records have for them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Protocol

from headprune.json_files import known_values
from headprune.results.signature import fields_of
from headprune.results.tasks import TRANSLATION

_DERIVED = ("percent", "counts", "heads_kept")
"""Fields that repeated what the plan says."""


class Convert(Protocol):
    """Takes the fields of an older format to those of a record; ``source`` begins messages."""

    def __call__(self, values: Mapping[str, Any], *, source: str) -> dict[str, Any]: ...


@dataclass(frozen=True, kw_only=True)
class _Translation:
    """The fields that the format ``headprune.result`` had under other names."""

    bleu: float
    chrf: float
    sacrebleu: dict[str, str]
    sentences: int
    hypotheses: str
    reference: str


@dataclass(frozen=True, kw_only=True)
class _Glue:
    """The fields that the format ``headprune.glue-result`` had under other names."""

    metric: str
    value: float
    metrics: dict[str, float]
    epochs: float
    batch_size: int
    learning_rate: float
    max_length: int
    predictions: str
    training: dict[str, Any]


def _from_translation(values: Mapping[str, Any], *, source: str) -> dict[str, Any]:
    old = _Translation(**known_values(_Translation, values, source=source))
    signature = fields_of(str(values.get("signature")))
    return {
        **_others(values, _Translation),
        "task": TRANSLATION,
        "metrics": {"bleu": old.bleu, "chrf": old.chrf},
        "metric_signatures": old.sacrebleu,
        "form": signature.get("form", "remove"),
        "examples": {"test": old.sentences},
        "files": {"hypotheses": old.hypotheses, "reference": old.reference},
    }


def _from_glue(values: Mapping[str, Any], *, source: str) -> dict[str, Any]:
    old = _Glue(**known_values(_Glue, values, source=source))
    settings = old.training.get("settings")
    schedule = {
        "epochs": old.epochs,
        "batch_size": old.batch_size,
        "learning_rate": old.learning_rate,
        "max_length": old.max_length,
    }
    return {
        **_others(values, _Glue),
        "metrics": {old.metric: old.value, **old.metrics},
        "files": {"predictions": old.predictions},
        "training": {
            **old.training,
            "settings": {**schedule, **(settings if isinstance(settings, dict) else {})},
        },
    }


def _others(values: Mapping[str, Any], renamed: type[_Translation | _Glue]) -> dict[str, Any]:
    """The fields that kept their names, and those that are not known."""
    left_out = {*_DERIVED, *(item.name for item in fields(renamed))}
    return {name: value for name, value in values.items() if name not in left_out}


CONVERTERS: Mapping[str, Convert] = {
    "headprune.result": _from_translation,
    "headprune.glue-result": _from_glue,
}
"""The older formats by name."""
