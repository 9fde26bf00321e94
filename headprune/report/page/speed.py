"""The metric against the measured speed, for comparisons that took the time of their models."""

from __future__ import annotations

from headprune.compare.records import Outcomes
from headprune.compare.speed_figure import draw_speed
from headprune.report.document import Block, Figure, Section
from headprune.report.page.material import ComparisonResult


def against_speed(comparison: ComparisonResult) -> list[Block]:
    """A section with the figure; empty where no time was taken.

    Comparisons that timed every method have the figure among their own.
    """
    measured = comparison.report.comparison
    if not measured.speedups or measured.has_timed_methods:
        return []
    outcomes = Outcomes.of(measured)
    speeds = ", ".join(
        f"{percent:g}% pruned {times[0]:.2f} times"
        for percent, times in measured.speedups["random"].items()
    )
    figure = Figure(
        name="speed",
        draw=lambda: draw_speed(measured, outcomes),
        alt=f"{measured.metric} of each score against the speed: {speeds} as fast as the unpruned "
        "model.",
        caption=f"{measured.metric} against the measured speed, as a multiple of the unpruned "
        f"model's: medians, bars from the lower to the upper quartile. The speed is that of as "
        f"many random {measured.unit_names}, on the machine of the comparison.",
    )
    return [Section(title="Methods against speed", blocks=[figure])]
