"""Values of tables and how they are shown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from headprune.results.marks import CONSTANT_MARK
from headprune.results.significance import SIGNIFICANCE_LEVEL
from headprune.results.stats import Spread
from headprune.wording import counted


@dataclass(frozen=True)
class Marked:
    """A mean with its deviation, marked if a model gives the same output for every example."""

    value: Spread
    constant: bool

    def __str__(self) -> str:
        return f"{self.value} {CONSTANT_MARK}" if self.constant else str(self.value)


@dataclass(frozen=True)
class Kept:
    """The number of kept units (None if it differs between seeds) and of all units.

    Attributes:
        between: the smallest and the largest number, where it differs and they are known.
    """

    kept: int | None
    total: int
    between: tuple[int, int] | None = None

    def __str__(self) -> str:
        if self.kept is not None:
            return f"{self.kept} of {self.total}"
        if self.between is None:
            return "varies"
        return f"{self.between[0]} to {self.between[1]} of {self.total}"


def signed(value: float) -> str:
    """A difference, with its sign; +0.00 also for what rounds to zero from below."""
    return f"{value:+z.2f}"


@dataclass(frozen=True)
class Delta:
    """A difference to the control, with the number of its pairs where some seeds have none."""

    value: float
    pairs: int | None

    def __str__(self) -> str:
        if self.pairs is None:
            return signed(self.value)
        return f"{signed(self.value)} ({counted(self.pairs, 'pair')})"


def paired_note(pairs: Sequence[int | None]) -> str:
    """The end of the note on differences to the control of the same seed.

    Args:
        pairs: for each difference, see ``Delta``.
    """
    some = any(number is not None for number in pairs)
    return (
        f", over the seeds that have one{' (in brackets how many, if not all)' if some else ''}; "
        "where no seed has one, to the controls' mean"
    )


def rejections(p_values: Sequence[float]) -> str:
    """The number of significant tests and of all tests; empty without tests."""
    if not p_values:
        return ""
    return f"{sum(p < SIGNIFICANCE_LEVEL for p in p_values)} of {len(p_values)}"


def whole(value: float) -> str:
    """A mean of whole numbers, with separators: ``22,713,986``."""
    return f"{value:,.0f}"


def rounded(value: float) -> str:
    """A mean of whole numbers, for spreadsheets."""
    return str(round(value))


def millions(value: float) -> str:
    """``22.71M``."""
    return f"{value / 1e6:.2f}M"


def percentage(value: float) -> str:
    """``12.5%``."""
    return f"{value:g}%"


@dataclass(frozen=True)
class Decimals:
    """Shows numbers with a fixed number of decimals."""

    digits: int

    def __call__(self, value: float) -> str:
        return f"{value:.{self.digits}f}"


@dataclass(frozen=True)
class PValue:
    """Shows p-values with a fixed number of decimals, and those that round to zero as a bound."""

    digits: int

    def __call__(self, value: float) -> str:
        text = f"{value:.{self.digits}f}"
        return text if float(text) else f"< {10**-self.digits:.{self.digits}f}"


def spaced(values: Sequence[object]) -> str:
    """Several values in one cell of a spreadsheet."""
    return " ".join(map(str, values))


def spaced_p_values(values: Sequence[float]) -> str:
    """P-values in one cell of a spreadsheet: four decimals, or four digits if below 0.001."""
    return " ".join(f"{p:.4f}" if p >= 0.001 else f"{p:.4g}" for p in values)
