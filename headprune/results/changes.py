"""Changes of heads in fine-tuning, and a check of the paper's claim of even changes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from headprune.errors import DataError
from headprune.json_files import json_object, known_values

FORMAT = "headprune.changes"

Values = Sequence[Sequence[float | None]]
"""For each layer, a value for each head; None for a head that is pruned."""

CLAIM = 0.10
"""The paper's claim on BERT: the mean changes of any two layers differ by less than this."""


@dataclass(frozen=True, kw_only=True)
class Changes:
    """One fine-tuned model.

    Attributes:
        label: its name in tables and figures.
        components: for each component, each head's change.
    """

    label: str
    components: Mapping[str, Values]


@dataclass(frozen=True, kw_only=True)
class Evenness:
    """The largest difference between the layers of one component.

    Attributes:
        lowest, highest: the layers with the smallest and the largest mean.
        difference: how much the largest mean is above the smallest, as a share of the smallest.
    """

    label: str
    component: str
    lowest: int
    highest: int
    difference: float

    @property
    def holds(self) -> bool:
        """True if any two layers differ by less than the paper claims."""
        return self.difference < CLAIM


def read_changes(path: Path) -> list[Changes]:
    """Read the file `changes.json` of `headprune changes`.

    Raises:
        DataError: the file cannot be read or has another content.
    """
    content = json_object(path)
    if content.get("format") != FORMAT:
        raise DataError(f'{path}: not changes of heads (no "format": "{FORMAT}")')
    models = content.get("models")
    if not isinstance(models, list) or not models:
        raise DataError(f"{path}: not changes of heads: no model")
    return [_changes_of(model, source=f"{path}: not changes of heads") for model in models]


@dataclass
class _Model:
    """The fields of a model in a file, for their types."""

    label: str
    heads: dict[str, list[list[float | None]]]


def _changes_of(model: object, *, source: str) -> Changes:
    if not isinstance(model, dict):
        raise DataError(f"{source}: a model is no object")
    fields = _Model(**known_values(_Model, model, source=source))
    if not fields.heads or not all(any(layers) for layers in fields.heads.values()):
        raise DataError(f"{source}: {fields.label!r} has a component without heads")
    return Changes(label=fields.label, components=fields.heads)


def layer_means(values: Values) -> list[float | None]:
    """Each layer's mean over its remaining heads; None for a layer without heads."""
    remaining = [[value for value in layer if value is not None] for layer in values]
    return [fmean(layer) if layer else None for layer in remaining]


def evenness(changes: Sequence[Changes]) -> list[Evenness]:
    """The differences of each model and component that has heads in two layers or more."""
    differences = []
    for model in changes:
        for component, values in model.components.items():
            means = {
                layer: mean for layer, mean in enumerate(layer_means(values)) if mean is not None
            }
            if len(means) < 2:
                continue
            lowest, highest = min(means, key=lambda k: means[k]), max(means, key=lambda k: means[k])
            above = means[highest] - means[lowest]
            differences.append(
                Evenness(
                    label=model.label,
                    component=component,
                    lowest=lowest,
                    highest=highest,
                    # Layers that are frozen do not change at all.
                    difference=above / means[lowest]
                    if means[lowest]
                    else (math.inf if above else 0.0),
                )
            )
    return differences
