"""Budgets: the share of units, parameters or floating-point operations to prune, or a speed."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from numbers import Real

from headprune.errors import UsageError

MEASURES = ("units", "parameters", "flops")
"""Quantities that a budget can be a share of; ``flops`` also as ``flops at 65 tokens``."""

USUAL_LENGTH = 30
"""The tokens of the text whose FLOPs count where none are given."""

SPEED = "speed"
"""The measure of a ``Speedup``, where comparisons name one."""

NEAR = 0.05
"""A speed that differs from the one asked for by more than this share was not reached."""

_SHORT_NAMES = {"params": "parameters"}

_TEXT = re.compile(
    r"\s*([0-9]+(?:\.[0-9]+)?)\s*%?\s*(?:of\s+)?([a-z]*)(?:\s+at\s+([0-9]{1,9})\s+tokens?)?\s*",
    re.ASCII,
)

_FLOPS_AT = re.compile(r"flops at ([1-9][0-9]{0,8}) tokens", re.ASCII)

_SPEED = re.compile(r"([0-9]+(?:\.[0-9]+)?)x speed", re.ASCII)


def percent_text(percent: float) -> str:
    """A percentage with all its digits, so that ``float`` reads the same number: ``25``, ``12.5``.

    >>> percent_text(25.0), percent_text(33.333333)
    ('25', '33.333333')
    """
    return repr(float(percent)).removesuffix(".0")


@dataclass(frozen=True)
class Budget:
    """The amount to prune.

    The percentage refers to the sum over the components to prune, not to the whole model: 50% of
    parameters for all heads is half of the parameters of all heads, embeddings not included.

    Attributes:
        percent: 0 to 100.
        of: one of ``MEASURES``, or ``flops at 65 tokens``: the FLOPs of a text of that length. A
            longer text makes heads more expensive beside neurons.

    Raises:
        UsageError: a percentage out of range, or no such measure.

    >>> str(Budget.parse("50%")), str(Budget.parse("60% of parameters"))
    ('50%', '60% of parameters')
    >>> str(Budget.parse("50% of flops at 65 tokens")), str(Budget.parse("50% flops at 30 tokens"))
    ('50% of flops at 65 tokens', '50% of flops')
    """

    percent: float
    of: str = "units"

    def __post_init__(self) -> None:
        if isinstance(self.percent, bool) or not isinstance(self.percent, Real):
            raise UsageError(f"percent is {self.percent!r}, it has to be a number")
        if not 0 <= self.percent <= 100:  # NaN fails too
            raise UsageError(f"{self.percent}% is not between 0 and 100")
        if self.of not in MEASURES and not _FLOPS_AT.fullmatch(self.of):
            raise UsageError(f"budget: {self.of!r} is not one of {', '.join(MEASURES)}")

    @classmethod
    def parse(cls, text: str, *, option: str = "budget") -> Budget:
        """Read ``50%``, ``50% of parameters``, ``50%params`` or ``50% of flops at 65 tokens``.

        Args:
            option: the beginning of error messages.

        Raises:
            UsageError: another text, or a percentage out of range.
        """
        match = _TEXT.fullmatch(text.lower())
        measure = _SHORT_NAMES.get(match[2], match[2] or "units") if match else ""
        if not match or measure not in MEASURES:
            raise UsageError(
                f"{option}: {text!r} cannot be read; write 50%, '50% of parameters', '50% of "
                "flops' or '50% of flops at 65 tokens'"
            )
        if match[3] is not None:
            if measure != "flops" or int(match[3]) == 0:
                raise UsageError(
                    f"{option}: {text!r}: a length, from 1 token, goes with flops alone"
                )
            if int(match[3]) != USUAL_LENGTH:
                measure = f"flops at {int(match[3])} tokens"
        if 0 < float(match[1]) < 1 and "%" not in text:
            raise UsageError(
                f"{option}: {text!r} is a share, or less than one percent; write "
                f"{float(match[1]) * 100:g}% or {match[1]}%"
            )
        try:
            return cls(float(match[1]), measure)
        except UsageError as problem:
            raise UsageError(f"{option}: {problem}") from None

    def kept_share(self, total: int) -> Fraction:
        """The part of ``total`` that is kept, as an exact fraction.

        Fractions of the decimal text: 12.5% of 4 heads is exactly a half on every machine.
        """
        return total - Fraction(str(self.percent)) * total / 100

    def number_kept(self, total: int) -> int:
        """The number of kept units out of ``total`` for a share of units; halves are pruned."""
        pruned = int(Fraction(str(self.percent)) * total / 100 + Fraction(1, 2))
        return total - pruned

    def __str__(self) -> str:
        # All digits and no exponent, which `parse` does not read.
        percent = f"{Decimal(percent_text(abs(self.percent))):f}"
        return f"{percent}%" + ("" if self.of == "units" else f" of {self.of}")


def length_of_flops(measure: str) -> int | None:
    """The tokens of the text whose FLOPs a measure counts; None for another measure.

    >>> length_of_flops("flops at 65 tokens"), length_of_flops("flops"), length_of_flops("units")
    (65, 30, None)
    """
    if measure == "flops":
        return USUAL_LENGTH
    match = _FLOPS_AT.fullmatch(measure)
    return int(match[1]) if match else None


def base_measure(measure: str) -> str:
    """The one of ``MEASURES`` that a measure belongs to.

    >>> base_measure("flops at 65 tokens"), base_measure("units")
    ('flops', 'units')
    """
    return measure.split()[0]


def measure_label(measure: str) -> str:
    """A measure in names of files: ``flops-at-65-tokens``."""
    return measure.replace(" ", "-")


@dataclass(frozen=True)
class Speedup:
    """The speed to reach, as a multiple of the unpruned model's.

    Attributes:
        times: from 1.

    Raises:
        UsageError: less than 1, or no finite number.

    >>> str(Speedup(1.5)), str(Speedup(1.2345678)), Speedup.parse("2x speed").times
    ('1.5x speed', '1.2345678x speed', 2.0)
    """

    times: float

    def __post_init__(self) -> None:
        if not 1 <= self.times < math.inf:  # NaN fails too
            raise UsageError(
                f"--speedup {self.times:g}: give how many times as fast as the unpruned model, "
                "from 1"
            )

    def is_reached(self, times: float) -> bool:
        """True if a predicted speed is at least this one; rounding errors are allowed."""
        return times >= self.times * (1 - 1e-9)

    def is_near(self, times: float) -> bool:
        """True if a speed differs from this one by a share of ``NEAR`` or less."""
        return abs(times / self.times - 1) <= NEAR

    @classmethod
    def parse(cls, text: str) -> Speedup | None:
        """Read the output of ``str``; None for other budgets."""
        match = _SPEED.fullmatch(text)
        return cls(float(match[1])) if match else None

    def __str__(self) -> str:
        # All digits and no exponent, so that `parse` reads the same number.
        return f"{Decimal(percent_text(self.times)):f}x speed"


Goal = Budget | Speedup
"""The amount to prune: a share, or as much as a speed takes."""


def goal_of(amount: float, measure: str) -> Goal:
    """The goal of an amount: a percentage of a measure, or a speed.

    >>> str(goal_of(50, "flops")), str(goal_of(1.5, "speed"))
    ('50% of flops', '1.5x speed')
    """
    return Speedup(amount) if measure == SPEED else Budget(amount, measure)


def file_label(goal: Goal) -> str:
    """A goal in names of files.

    >>> file_label(Budget(50)), file_label(Budget(50, "flops")), file_label(Speedup(1.5))
    ('50', '50-flops', '1.5x')
    """
    if isinstance(goal, Speedup):
        return f"{percent_text(goal.times)}x"
    return percent_text(goal.percent) + ("" if goal.of == "units" else f"-{measure_label(goal.of)}")
