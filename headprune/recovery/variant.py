"""Variants of a fine-tuning: with learned gates, with LayerDrop, or from random weights."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from headprune.budget import Budget
from headprune.errors import UsageError

L0_GATES = "l0-gates"
"""The name of the method in the origin of plans."""


@dataclass(frozen=True, kw_only=True)
class GateTraining:
    """The units that get learned gates, and what closes them: a target, or a fixed penalty.

    Attributes:
        components: those whose units have gates.
        budget: the share of these units of the unpruned model to prune.
        l0_lambda: instead: the weight of the expected number of open units in the loss.
        speed: the learning rate of the gates in multiples of that of the weights; None for the
            default of the library.

    Raises:
        UsageError: not one of ``budget`` and ``l0_lambda``.
    """

    components: tuple[str, ...]
    budget: Budget | None = None
    l0_lambda: float | None = None
    speed: float | None = None

    def __post_init__(self) -> None:
        if (self.budget is None) == (self.l0_lambda is None):
            raise UsageError("--gates goes with one of --l0-target and --l0-lambda; give one")

    def as_settings(self) -> dict[str, object]:
        """The values by the names of their options."""
        gates: dict[str, object] = {"gates": ",".join(self.components)}
        if self.speed is not None:
            gates["gates_speed"] = self.speed
        if self.budget is None:
            return {**gates, "l0_lambda": self.l0_lambda}
        return {**gates, "l0_target": str(self.budget)}


@dataclass(frozen=True, kw_only=True)
class Variant:
    """A fine-tuning that differs from the one of the settings.

    Attributes:
        gates: train with learned gates, and close them afterwards.
        layerdrop: the probability with which each layer is skipped (Fan et al. 2020).
        from_scratch: begin with random weights in place of the model's (Liu et al. 2019).
        distilled: learn from the outputs of the model as it was given too.
        translations: a folder for the training text's translations by the model as it was given,
            which take the place of the references: sequence-level distillation.

    Raises:
        UsageError: no probability, or two variants that exclude each other.
    """

    gates: GateTraining | None = None
    layerdrop: float = 0.0
    from_scratch: bool = False
    distilled: bool = False
    translations: Path | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.layerdrop < 1:
            raise UsageError(f"--layerdrop {self.layerdrop:g}: give a probability from 0, below 1")
        if self.gates is not None and self.distilled:
            raise UsageError("--gates and --distill-from exclude each other; give one")

    @property
    def gates_speed(self) -> float | None:
        """See ``GateTraining``; None without gates too."""
        return None if self.gates is None else self.gates.speed

    @property
    def l0_lambda(self) -> float | None:
        """The fixed penalty of learned gates; None without gates, and with a target."""
        return None if self.gates is None else self.gates.l0_lambda

    def as_settings(self) -> dict[str, object]:
        """The values that differ from a plain fine-tuning, by the names of their options."""
        return {
            **({} if self.gates is None else self.gates.as_settings()),
            **({"layerdrop": self.layerdrop} if self.layerdrop else {}),
            **({"from_scratch": True} if self.from_scratch else {}),
        }


VARIANT_SETTINGS = (
    *("gates", "gates_speed", "l0_target", "l0_lambda"),
    *("layerdrop", "from_scratch"),
)
"""The names of ``Variant.as_settings``."""

PLAIN = Variant()
"""A fine-tuning as the settings say."""
