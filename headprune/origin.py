"""The origin of a plan: the method that chose the units, and its settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from numbers import Integral
from typing import Any

from headprune.errors import UsageError


@dataclass(frozen=True, kw_only=True)
class Origin:
    """The method and settings that a plan was made with.

    Attributes:
        method: the name of the method, such as ``random``, ``location`` or a score's name.
        seed: the seed of the method's random choices; None if it makes none.
        budget: the budget that was asked for, such as ``50%`` or ``50% of parameters``; None for
            plans of given counts or layers.
        scores: the fingerprint of the weights that the scores were computed from.
        target: the target that the method's training was steered to, where that is another one than
            ``budget``.
        at_least: the units that every layer keeps regardless, where some were asked for.
    """

    method: str
    seed: int | None = None
    budget: str | None = None
    scores: str | None = None
    target: str | None = None
    at_least: int | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.method, str) or not self.method:
            raise UsageError(f"origin: {self.method!r} is not the name of a method")
        for name, words in (("seed", "the seed"), ("at_least", "at_least")):
            value = getattr(self, name)
            if value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, Integral):
                raise UsageError(f"origin: {words} is {value!r}, not a whole number")
            object.__setattr__(self, name, int(value))  # NumPy's are no JSON
        if not self.at_least:
            object.__setattr__(self, "at_least", None)
        for name in ("budget", "scores", "target"):
            value = getattr(self, name)
            if value is not None and not isinstance(value, str):
                raise UsageError(f"origin: {name} is {value!r}, not text")

    def as_json(self) -> dict[str, Any]:
        """The fields that have a value."""
        return {name: value for name, value in asdict(self).items() if value is not None}

    @classmethod
    def from_json(cls, fields: object) -> Origin:
        """Read the output of ``as_json``; unknown fields (of later versions) are ignored.

        Raises:
            UsageError: the method is missing, or a field has the wrong type.
        """
        if not isinstance(fields, Mapping) or "method" not in fields:
            raise UsageError(f"origin: {fields!r} names no method")
        known = ("method", "seed", "budget", "scores", "target", "at_least")
        return cls(**{name: fields[name] for name in known if name in fields})
