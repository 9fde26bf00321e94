"""The claim of Voita et al. 2019 that specialised heads of the encoder are pruned last."""

from __future__ import annotations

from collections.abc import Sequence

from headprune.claims.claim import Measurement, Part
from headprune.claims.contrasts import Contrast, part
from headprune.claims.runs import Matches, Runs
from headprune.plan import PruningPlan
from headprune.results.record import Record
from headprune.results.tasks import TRANSLATION
from headprune.scores.head_scores import HeadScores
from headprune.scores.names import DIRECTIONS
from headprune.select.ranking import Unit
from headprune.subnetworks.elements import units_of

POSITIONAL = 0.9
"""Share of queries whose largest weight is on the token before, or on the one after, from which
Voita et al. call a head positional."""
RARE = 0.5
"""Share of queries whose largest weight is on the rarest token. Voita et al. name no number."""
ABOVE_BASELINE = 0.1
"""By how much a syntactic head follows a dependency more often than a head that always looks at the
dependency's most frequent distance. Voita et al. ask for 10%; here these are points."""

_ES = "ES"
"""The component whose heads have these roles."""


def specialised_heads_kept(runs: Runs, is_by_gates: Matches) -> Measurement | None:
    """The share of specialised heads among the kept ones less their share among all ES heads.

    Args:
        runs: records of plans by gates, and scores of the heads' roles.
        is_by_gates: True for the record of a plan by gates.
    """
    roles = {each.name: each for each in runs.scores if _threshold(each) is not None}
    rows = {
        label: row
        for kind in ("before-finetune", "pruned")
        for label, row in runs.matching(
            TRANSLATION, lambda record: is_by_gates(record) and _prunes_es(record), kind=kind
        ).items()
    }
    if not roles or not rows:
        return None
    specialised = specialised_in(list(roles.values()))
    total = sum(next(iter(roles.values())).units[_ES])
    count = f"{len(specialised)} of {total} ES heads are specialised ({', '.join(roles)})"
    name = f"specialised heads among the kept - among all, {', '.join(rows)}"
    if not specialised:
        nothing = Part(name=name, effect=0, estimate=None, needed="a specialised head")
        return Measurement(parts=[nothing], counts=[count])
    strata = [
        Contrast(
            differences={
                seed: 100 * (share - len(specialised) / total)
                for seed, (_, record) in row.items()
                if (share := _share(record.plan, specialised)) is not None
            },
            models=[],
        )
        for row in rows.values()
    ]
    return Measurement(parts=[part(name, strata)], counts=[count])


def specialised_in(roles: Sequence[HeadScores]) -> set[Unit]:
    """The ES heads with a role: positional, syntactic or of rare tokens."""
    return {
        (_ES, layer, head)
        for scores in roles
        if (threshold := _threshold(scores)) is not None
        for layer, values in enumerate(scores.values[_ES])
        for head, value in enumerate(values)
        if value is not None and value >= threshold
    }


def _threshold(scores: HeadScores) -> float | None:
    """The score from which a head has the role; None for scores of no role of ES heads."""
    if _ES not in scores.values:
        return None
    if scores.name.endswith(DIRECTIONS):
        baseline = scores.settings.get("positional_baseline")
        return None if baseline is None else float(baseline) + ABOVE_BASELINE
    return {"previous": POSITIONAL, "next": POSITIONAL, "rare": RARE}.get(scores.name)


def _prunes_es(record: Record) -> bool:
    plan = record.plan
    return _ES in plan.units and 0 < sum(plan.counts[_ES]) < sum(plan.units[_ES])


def _share(plan: PruningPlan, specialised: set[Unit]) -> float | None:
    """The share of the kept ES heads that are specialised."""
    kept = {unit for unit in units_of(plan) if unit[0] == _ES}
    return len(kept & specialised) / len(kept) if kept else None
