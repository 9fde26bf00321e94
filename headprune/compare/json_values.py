"""The figures of a comparison as JSON values, for compare.json."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from headprune.budget import percent_text
from headprune.compare.against_random import CellTest
from headprune.compare.comparison import Comparison
from headprune.compare.correlations import Correlation
from headprune.compare.findings import all_tests
from headprune.compare.records import Outcomes
from headprune.recovery.kinds import BEFORE, Recovery
from headprune.results.significance import SIGNIFICANCE_LEVEL
from headprune.speed.turns import Quartiles


def values_of(
    comparison: Comparison,
    outcomes: Outcomes,
    *,
    title: str,
    findings: Sequence[str],
    correlations: Mapping[str, Correlation],
    among: tuple[list[str], list[list[float]]],
) -> dict[str, Any]:
    """All figures of a comparison.

    Args:
        title, findings, correlations, among: see ``Report``.
    """
    names, values = among
    return {
        "title": title,
        "metric": comparison.metric,
        **_task_values(comparison),
        **_pruned_values(comparison),
        "base": comparison.base,
        "constant": comparison.constant,
        "settings": comparison.settings,
        "claims": [*findings],
        "tests": [
            _test_values(moment, percent, test) for moment, percent, test in all_tests(outcomes)
        ],
        "rows": [row.as_json() for row in comparison.rows],
        "speedups": _speedups(comparison.speedups.get("random", {})),
        **({"timed_all_plans": True} if comparison.timed_all_plans else {}),
        **_method_values(comparison),
        **_pair_values(comparison),
        **_environment_values(comparison, outcomes),
        "correlations": {
            name: {
                "spearman": _number(each.value),
                "interval": [_number(each.low), _number(each.high)],
                "heads": each.heads,
            }
            for name, each in correlations.items()
        },
        "among": {
            name: dict(zip(names, map(_number, row), strict=True))
            for name, row in zip(names, values, strict=True)
        },
    }


def _task_values(comparison: Comparison) -> dict[str, Any]:
    """The task, the model and the names in signatures; None where they are not known."""
    plan = None if comparison.plan is None else json.loads(comparison.plan.to_json())
    return {
        "task": comparison.task,
        "data_name": comparison.data_name,
        "finetune_name": comparison.finetune_name,
        "metric_signature": comparison.metric_signature,
        "score_signatures": [score.signature for score in comparison.scores.values()],
        "model": comparison.model,
        "fingerprint": comparison.fingerprint,
        "plan": plan,
        "at_least": comparison.at_least,
    }


def _pruned_values(comparison: Comparison) -> dict[str, Any]:
    """The components, measure and recoveries; ``component`` is the only one, or null."""
    components = comparison.components or ()
    values: dict[str, Any] = {"component": components[0] if len(components) == 1 else None}
    if len(components) > 1:
        values["components"] = list(components)
    if comparison.measure != "units":
        values["measure"] = comparison.measure
    if comparison.timed_job is not None:
        values["timed_job"] = comparison.timed_job
    if comparison.verify:
        values["verify"] = comparison.verify
    if comparison.positions is not None:
        values["positions"] = comparison.positions
    if comparison.recoveries != (Recovery.FINETUNE,):
        values["recoveries"] = [str(each) for each in comparison.recoveries]
    return values


def _method_values(comparison: Comparison) -> dict[str, Any]:
    """The speed-ups and costs of all methods; older versions have neither."""
    speedups, costs = comparison.speedups, comparison.costs
    values: dict[str, Any] = {}
    if comparison.has_timed_methods:
        values["speedups_by_method"] = {
            method: _speedups(by_percent) for method, by_percent in speedups.items()
        }
    if costs:
        values["costs"] = {name: round(cost, 2) for name, cost in costs.items()}
    if comparison.recovery_seconds:
        values["recovery_seconds"] = {
            name: round(seconds, 2) for name, seconds in comparison.recovery_seconds.items()
        }
    return values


def _pair_values(comparison: Comparison) -> dict[str, Any]:
    """All tests of methods against each other; older versions have none."""
    pairs = comparison.pairs
    return {"pairs": [test.as_json() for test in pairs]} if pairs else {}


def _environment_values(comparison: Comparison, outcomes: Outcomes) -> dict[str, Any]:
    """The environments of the measurements; older versions left them to the records."""
    known = comparison.environments or outcomes.environments
    return {"environments": asdict(known)} if known.timed else {}


def _test_values(moment: str, percent: float, test: CellTest) -> dict[str, Any]:
    return {
        "when": BEFORE if moment == BEFORE else "after",
        **({} if moment == BEFORE else {"recovery": moment}),
        "percent": percent,
        "random": asdict(test.random),
        "level": SIGNIFICANCE_LEVEL,
        "smallest_difference": test.smallest,
        "scores": {
            name: {"difference": each.difference, "p_value": each.p_value, "holm": each.adjusted}
            for name, each in test.scores.items()
        },
    }


def _speedups(by_percent: Mapping[float, Quartiles]) -> dict[str, list[float]]:
    """Speed-ups as JSON values."""
    return {percent_text(percent): list(each) for percent, each in by_percent.items()}


def _number(value: float) -> float | None:
    """Replace NaN, which JSON does not have."""
    return None if value != value else value
