"""One number for every head of a model, and where it comes from."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

from headprune.errors import DataError, UsageError
from headprune.files import write_text_atomically
from headprune.plan import COMPONENTS, HeadPlan, Shape

_FORMAT = "headprune.scores"
_VERSION = 1

Values = Mapping[str, Sequence[Sequence[float | None]]]
"""For each component, for each layer from the bottom, a number for each head; None for pruned."""


@dataclass(frozen=True, kw_only=True)
class HeadScores:
    """What a score says of each head of a model.

    Attributes:
        name: of the score, as published: `gradient`, `entropy`, ...
        values: see `Values`; heads are numbered as in the unpruned model.
        model: the folder, checkpoint or name that was scored.
        fingerprint: of the model's weights; scores of other weights say nothing of a model.
        data: what it was computed on, as signatures write it; empty for scores that need none.
        settings: all else that the numbers depend on.
    """

    name: str
    values: Values
    model: str = ""
    fingerprint: str = ""
    data: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        frozen: dict[str, tuple[tuple[float | None, ...], ...]] = {}
        for component, layers in self.values.items():
            if component not in COMPONENTS:
                raise UsageError(
                    f"{component}: unknown component, it is one of {', '.join(COMPONENTS)}"
                )
            for layer, numbers in enumerate(layers):
                for head, value in enumerate(numbers):
                    if value is not None and not math.isfinite(value):
                        raise DataError(
                            f"{self.name}: {component}: layer {layer}: head {head} is {value}, "
                            "no finite number"
                        )
            frozen[component] = tuple(
                tuple(None if value is None else float(value) for value in numbers)
                for numbers in layers
            )
        ordered = {name: frozen[name] for name in COMPONENTS if name in frozen}
        object.__setattr__(self, "values", MappingProxyType(ordered))

    @property
    def heads(self) -> Shape:
        """For each component, the heads of each layer of the unpruned model."""
        return {
            name: tuple(len(numbers) for numbers in layers) for name, layers in self.values.items()
        }

    @property
    def scored(self) -> HeadPlan:
        """The heads that have a number: those that the model had left."""
        return HeadPlan(
            kept={
                name: [
                    tuple(head for head, value in enumerate(numbers) if value is not None)
                    for numbers in layers
                ]
                for name, layers in self.values.items()
            },
            heads=self.heads,
        )

    def normalised(self) -> HeadScores:
        """Each layer's numbers divided by their l2 norm (Michel et al. 2019, footnote 6)."""
        values = {
            name: [_unit(numbers) for numbers in layers] for name, layers in self.values.items()
        }
        return HeadScores(
            name=self.name,
            values=values,
            model=self.model,
            fingerprint=self.fingerprint,
            data=self.data,
            settings={**self.settings, "normalised": "l2 per layer"},
        )

    def save(self, path: str | Path) -> None:
        """Write the scores as JSON, whole or not at all."""
        content = {
            "format": _FORMAT,
            "version": _VERSION,
            "name": self.name,
            "model": self.model,
            "fingerprint": self.fingerprint,
            "data": self.data,
            "settings": dict(self.settings),
            "values": {name: [list(row) for row in rows] for name, rows in self.values.items()},
        }
        write_text_atomically(path, json.dumps(content, indent=1) + "\n")

    @classmethod
    def load(cls, path: str | Path) -> HeadScores:
        """Read what ``save`` wrote.

        Raises:
            DataError: no such file, not a score file, one of a newer version, or numbers missing.
        """
        from headprune.report.record import json_object

        content = json_object(Path(path))
        if content.get("format") != _FORMAT:
            raise DataError(f'{path}: not a score file (no "format": "{_FORMAT}")')
        if content.get("version") != _VERSION:
            raise DataError(
                f"{path}: scores of version {content.get('version')!r}, this headprune reads "
                f"{_VERSION}"
            )
        try:
            return cls(
                name=str(content["name"]),
                values=content["values"],
                model=str(content["model"]),
                fingerprint=str(content["fingerprint"]),
                data=str(content["data"]),
                settings=dict(content["settings"]),
            )
        except (KeyError, TypeError, ValueError, AttributeError, UsageError, DataError) as problem:
            raise DataError(f"{path}: not a whole score file ({problem})") from None


def _unit(numbers: Sequence[float | None]) -> list[float | None]:
    norm = math.sqrt(sum(value * value for value in numbers if value is not None))
    # A layer whose heads all score 0 stays so.
    return [None if value is None else value / (norm or 1.0) for value in numbers]
