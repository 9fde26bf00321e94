"""The metric against the measured speed, for comparisons that took the time of their models."""

from __future__ import annotations

from headprune.compare.records import Outcomes
from headprune.compare.speed_figure import draw_speed
from headprune.report.document import Block, Figure, Section
from headprune.report.page.material import ComparisonResult


def against_speed(comparison: ComparisonResult) -> list[Block]:
    """A section with the figure; empty where no time was taken."""
    measured = comparison.report.comparison
    if not measured.speedups:
        return []
    outcomes = Outcomes.of(measured)
    speeds = ", ".join(
        f"{percent:g}% pruned {times[0]:.2f} times"
        for percent, times in measured.speedups["random"].items()
    )
    is_of_random = set(measured.speedups) == {"random"}
    figure = Figure(
        name="speed",
        draw=lambda: draw_speed(measured, outcomes),
        alt=f"{measured.metric} of each score against the speed: random plans with {speeds} as "
        "fast as the unpruned model.",
        caption=f"{measured.metric}, mean and standard deviation, against the measured speed, as a "
        "multiple of the unpruned model's: medians, bars from the lower to the upper quartile. "
        + (
            f"The speed is that of as many random {measured.unit_names}, on the machine of the "
            "comparison."
            if is_of_random
            else "The speed is that of each score's own plan, on the machine of the comparison."
        ),
    )
    return [Section(title="Methods against speed", blocks=[figure])]
