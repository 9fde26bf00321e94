"""Files of scores: one number for each head of a model, with their origin."""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from headprune.components import COMPONENTS
from headprune.errors import DataError, UsageError
from headprune.files import write_text_atomically
from headprune.json_files import json_object
from headprune.plan import HeadPlan, Shape
from headprune.results.significance import holm
from headprune.version import __version__

FORMAT = "headprune.scores"
_VERSION = 2
"""In version 1 the score that is now `gradient-raw` was called `gradient`."""
NORMALISED = "l2 per layer"
"""The setting of scores whose layers are divided by their l2 norms."""
SIGNED = (
    *("combines", "metric", "labels", "seed", "orders", "normalised", "part", "trained-on"),
    *("finetune", "batch_size", "learning_rate"),  # of movement; shapley has a batch size
)
"""The settings that signatures name."""

Values = Mapping[str, Sequence[Sequence[float | None]]]
"""For each component, for each layer from the bottom, a number for each head; None for pruned."""


@dataclass(frozen=True, kw_only=True)
class HeadScores:
    """The values of one score for each head of a model.

    Attributes:
        name: the published name of the score: `gradient`, `entropy`, ...
        values: see `Values`; heads are numbered as in the unpruned model.
        model: the folder, checkpoint or name that was scored.
        fingerprint: the fingerprint of the model's weights; scores are valid for these only.
        data: the name of the data in signatures; empty for scores that need no data.
        settings: all other settings that the numbers depend on.
        p_values: the p-value of each number, if the numbers are tested differences.
    """

    name: str
    values: Values
    model: str = ""
    fingerprint: str = ""
    data: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)
    p_values: Values = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "values", _frozen(self.values, of=self.name))
        object.__setattr__(self, "p_values", _frozen(self.p_values, of=f"{self.name}: p-values"))
        if self.p_values and _places(self.p_values) != _places(self.values):
            raise DataError(f"{self.name}: not a p-value for each number")

    @property
    def units(self) -> Shape:
        """The number of units in each layer of each component of the unpruned model."""
        return {
            name: tuple(len(numbers) for numbers in layers) for name, layers in self.values.items()
        }

    @property
    def heads(self) -> Shape:
        """The older name of ``units``."""
        return self.units

    @property
    def scored(self) -> HeadPlan:
        """The heads that have a number: those that the model kept."""
        return HeadPlan(
            kept={
                name: [
                    tuple(head for head, value in enumerate(numbers) if value is not None)
                    for numbers in layers
                ]
                for name, layers in self.values.items()
            },
            units=self.units,
        )

    @property
    def adjusted_p_values(self) -> Values:
        """The p-values corrected for their number by Holm's method (1979)."""
        places = [
            (name, layer, head)
            for name, layers in self.p_values.items()
            for layer, numbers in enumerate(layers)
            for head, value in enumerate(numbers)
            if value is not None
        ]
        given = [self.p_values[name][layer][head] for name, layer, head in places]
        adjusted = dict(zip(places, holm([p for p in given if p is not None]), strict=True))
        return {
            name: [
                [adjusted.get((name, layer, head)) for head in range(len(numbers))]
                for layer, numbers in enumerate(layers)
            ]
            for name, layers in self.p_values.items()
        }

    @property
    def signature(self) -> str:
        """The signature: one line that identifies the numbers."""
        fields = {
            "score": self.name,
            **{name: value for name, value in self.settings.items() if name in SIGNED},
            "data": self.data or "none",
            "weights": self.fingerprint[:12] or "unknown",
            "headprune": __version__,
        }
        return "|".join(f"{name}:{value}" for name, value in fields.items())

    @property
    def is_normalised(self) -> bool:
        """True if each layer is divided by its norm."""
        return "normalised" in self.settings

    def normalised(self) -> HeadScores:
        """Each layer's numbers divided by their l2 norm (Michel et al. 2019, footnote 6)."""
        return replace(
            self,
            values=normalised_by_layer(self.values),
            settings={**self.settings, "normalised": NORMALISED},
        )

    def of_components(self, components: Collection[str]) -> HeadScores:
        """The numbers of some components only."""
        return replace(
            self,
            values={name: rows for name, rows in self.values.items() if name in components},
            p_values={name: rows for name, rows in self.p_values.items() if name in components},
        )

    def save(self, path: str | Path) -> None:
        """Write the scores as JSON, whole or not at all."""
        content = {
            "format": FORMAT,
            "version": _VERSION,
            "name": self.name,
            "model": self.model,
            "fingerprint": self.fingerprint,
            "data": self.data,
            "settings": dict(self.settings),
            "values": _lists(self.values),
        }
        if self.p_values:
            content["p_values"] = _lists(self.p_values)
        write_text_atomically(path, json.dumps(content, indent=1) + "\n")

    @classmethod
    def load(cls, path: str | Path) -> HeadScores:
        """Read what ``save`` wrote.

        Raises:
            DataError: no such file, not a score file, one of a newer version, or numbers missing.
        """
        content = json_object(
            Path(path), expected="the JSON file of a score, as `headprune scores` writes it"
        )
        if content.get("format") != FORMAT:
            raise DataError(f'{path}: not a score file (no "format": "{FORMAT}")')
        version = content.get("version")
        if version not in (1, _VERSION):
            raise DataError(
                f"{path}: scores of version {version!r}, this headprune reads {_VERSION}"
            )
        try:
            name = str(content["name"])
            if version == 1 and name == "gradient" and "normalised" not in content["settings"]:
                name = "gradient-raw"
            return cls(
                name=name,
                values=content["values"],
                model=str(content["model"]),
                fingerprint=str(content["fingerprint"]),
                data=str(content["data"]),
                settings=dict(content["settings"]),
                p_values=content.get("p_values", {}),
            )
        except (KeyError, TypeError, ValueError, AttributeError, UsageError, DataError) as problem:
            raise DataError(f"{path}: not a whole score file ({problem})") from None


def normalised_by_layer(values: Values) -> Values:
    """Divide each layer's numbers by their l2 norm (Michel et al. 2019, footnote 6)."""
    return {name: [_unit(numbers) for numbers in layers] for name, layers in values.items()}


def _frozen(values: Values, *, of: str) -> Values:
    frozen: dict[str, tuple[tuple[float | None, ...], ...]] = {}
    for component, layers in values.items():
        if component not in COMPONENTS:
            raise UsageError(
                f"{component}: unknown component, it is one of {', '.join(COMPONENTS)}"
            )
        for layer, numbers in enumerate(layers):
            for head, value in enumerate(numbers):
                if value is not None and not math.isfinite(value):
                    raise DataError(
                        f"{of}: {component}: layer {layer}: head {head} is {value}, "
                        "no finite number"
                    )
        frozen[component] = tuple(
            tuple(None if value is None else float(value) for value in numbers)
            for numbers in layers
        )
    return MappingProxyType({name: frozen[name] for name in COMPONENTS if name in frozen})


def _places(values: Values) -> list[list[list[bool]]]:
    return [[[v is not None for v in row] for row in rows] for rows in values.values()]


def _lists(values: Values) -> dict[str, list[list[float | None]]]:
    return {name: [list(row) for row in rows] for name, rows in values.items()}


def _unit(numbers: Sequence[float | None]) -> list[float | None]:
    norm = math.sqrt(sum(value * value for value in numbers if value is not None))
    # A layer whose heads all score 0 stays so.
    return [None if value is None else value / (norm or 1.0) for value in numbers]
