"""Settings of distillation: fine-tuning towards the unpruned model."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from headprune.errors import UsageError

_PREFIX = "distill_"

TEACHER = "teacher_fingerprint"
"""The fact about a training that names the weights of its teacher."""


@dataclass(frozen=True, kw_only=True)
class Distillation:
    """The weights of the parts of the loss.

    The loss is ``(1 - weight) task + weight divergence + hidden difference``: the loss of the task,
    the divergence of the model's outputs from its teacher's, and the mean squared difference of
    their hidden states; see ``headprune.recovery.distillation_loss``.

    Attributes:
        weight: the share of the divergence, from 0 to 1.
        temperature: both models' logits are divided by it (Hinton et al. 2015).
        hidden: the weight of hidden states, 0 or more.

    Raises:
        UsageError: a number out of its range.
    """

    weight: float = 0.5
    temperature: float = 2.0
    hidden: float = 0.0

    def __post_init__(self) -> None:
        for name, value, good, wanted in (
            ("weight", self.weight, 0 <= self.weight <= 1, "a share of the loss, from 0 to 1"),
            ("temperature", self.temperature, self.temperature > 0, "a number above 0"),
            ("hidden", self.hidden, self.hidden >= 0, "a number from 0"),
        ):
            if not good or math.isinf(value):
                raise UsageError(f"--distill-{name} {value:g}: give {wanted}")

    @property
    def needs_teacher(self) -> bool:
        """False if both weights are 0: then the loss is that of the task alone."""
        return self.weight > 0 or self.hidden > 0

    def as_settings(self) -> dict[str, float]:
        """The values by the names of their options: ``distill_weight``, ..."""
        return {f"{_PREFIX}{name}": value for name, value in asdict(self).items()}

    @classmethod
    def of_settings(cls, settings: Mapping[str, Any]) -> Distillation | None:
        """The inverse of ``as_settings``; None where no value is given.

        Args:
            settings: may have other entries, and lack some values, which then are the default.
        """
        names = [field.name for field in fields(cls)]
        given = {name: settings.get(f"{_PREFIX}{name}") for name in names}
        known = {name: float(value) for name, value in given.items() if value is not None}
        return cls(**known) if known else None

    def name(self, teacher: str | None) -> str:
        """The distillation in signatures: ``distill[weight=0.5,temperature=2,from=0123456789ab]``.

        Args:
            teacher: the fingerprint of the teacher's weights; None where it is not known.
        """
        hidden = f",hidden={self.hidden:g}" if self.hidden else ""
        source = f",from={teacher[:12]}" if teacher else ""
        return f"distill[weight={self.weight:g},temperature={self.temperature:g}{hidden}{source}]"


def distillation_name(facts: Mapping[str, Any], settings: Mapping[str, Any]) -> str | None:
    """The distillation of a training in signatures; None where it had no teacher.

    Args:
        facts: the facts about the training, which name the teacher.
        settings: its settings, with those of the distillation.
    """
    if TEACHER not in facts:
        return None
    return (Distillation.of_settings(settings) or Distillation()).name(facts[TEACHER])


DISTILL_SETTINGS = tuple(Distillation().as_settings())
"""The names of ``Distillation.as_settings``."""
