"""The option --speedup of `headprune plan`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from headprune.backends import open_model
from headprune.budget import NEAR, Speedup
from headprune.cli.progress import progress_of_rounds
from headprune.errors import DataError, UsageError
from headprune.plan import PruningPlan
from headprune.select.speed import by_speed
from headprune.speed.latency import latency_for

if TYPE_CHECKING:
    from headprune.speed.verifying import Measured


def plan_by_speed(
    model: Path,
    times: float,
    *,
    latency: Path,
    scores: Path,
    components: Sequence[str] | None,
    best: str | None,
    at_least: int,
    verify: int,
) -> PruningPlan:
    """Read the files, choose the units, and verify the speed.

    Args:
        model: the unpruned model.
        times: the speed that is asked for, as a multiple of the unpruned model's.
        latency, scores: files.
        components: those to prune; None: those that are scored and measured.
        best: ``high`` or ``low``; None: the score's own direction.
        at_least: heads and neurons that every layer keeps; unless it is 0, one layer of each side
            is kept too.
        verify: number of measurements at most; 0 for none.

    Raises:
        UsageError: files of another device or model, or a speed that cannot be reached.
        DataError: files that cannot be read.
    """
    from headprune.scores import HeadScores
    from headprune.scores.names import keep_of

    asked = Speedup(times)
    opened = open_model(model)
    table = latency_for(opened, latency)
    if not opened.plan.is_full:
        raise UsageError(f"{model}: is pruned already; --speedup takes an unpruned model")
    ranked = HeadScores.load(scores)
    if ranked.fingerprint and ranked.fingerprint != opened.fingerprint:
        raise DataError(
            f"{scores}: scores of other weights than those of {model}; score this model"
        )

    def choose(faster: float) -> PruningPlan:
        return by_speed(
            ranked,
            table,
            asked,
            components=[name for name in table.saved if name in ranked.values]
            if components is None
            else components,
            keep=best or keep_of(ranked.name),
            at_least=at_least,
            faster=faster,
        )

    plan = choose(1.0)
    words = f"{table.conditions}, {table.conditions.threads} threads"
    if not verify:
        _say(f"predicted {table.speedup_of(plan):.2f} times as fast ({words}), not measured")
        return plan
    from headprune.speed.verifying import verified

    def tell(plan: PruningPlan, measured: Measured) -> None:
        middle, low, high = measured
        _say(
            f"predicted {table.speedup_of(plan):.2f}, measured {middle:.2f} [{low:.2f}, {high:.2f}]"
            f" times as fast ({words})"
        )

    plan, reached = verified(
        plan,
        choose,
        opened,
        table.conditions,
        asked,
        tries=verify,
        tell=tell,
        watch=progress_of_rounds,
    )
    if asked.is_near(reached):
        _say(f"the plan that was measured at {reached:.2f} times as fast is written")
    else:
        _say(
            f"warning: {asked} was not reached within {NEAR:.0%}; the nearest plan is "
            f"{reached:.2f}x"
        )
    return plan


def _say(text: str) -> None:
    print(text, file=sys.stderr)
