"""The claim of Michel et al. 2019 that in most layers one head is enough.

The score ``alone`` is the drop of the metric with no other head in a layer. Of eight such drops the
smallest is small by chance too. So each layer's best head is chosen on the examples of one file of
scores and its drop is taken from another file, and the other way round.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations, permutations
from statistics import fmean

from headprune.claims.claim import Claim, Measurement, Part, Source
from headprune.claims.classification import ONE_POINT
from headprune.claims.estimate import Share
from headprune.claims.gradient_importance import MICHEL
from headprune.claims.prunability import NO_LOSS
from headprune.claims.region import Region
from headprune.claims.runs import Runs
from headprune.errors import DataError
from headprune.results.significance import SIGNIFICANCE_LEVEL, holm
from headprune.scores.head_scores import HeadScores

ENOUGH: Mapping[str, float] = {"bleu": NO_LOSS, "accuracy": ONE_POINT}
"""The drop of each metric that is no loss."""

_UNITS = {"bleu": "BLEU", "accuracy": "points"}

_ROUNDING = 1e-9

Place = tuple[str, int]
"""Component and layer."""


def claims() -> list[Claim]:
    """The claim on layers with a single head."""
    return [
        Claim(
            name="one-head-is-enough",
            sentence="Most layers of attention can be reduced to a single head, one layer at a "
            "time, without a significant loss.",
            source=Source(paper=MICHEL, place="ablation of all heads but one", value=""),
            region=Region(low=50),
            unit="%",
            effect="share of layers that lose at most 0.15 BLEU, or 1 point of accuracy, with "
            "their best head alone",
            rows="two files of the score `alone`, of one model on different examples, for the "
            "option --scores",
            command="headprune scores MODEL --data DATA --score alone --metric bleu; again with "
            "--split test",
            measure=_one_head,
            on_scores=True,
        )
    ]


def _one_head(runs: Runs) -> Measurement | None:
    if runs.rows:  # scores have runs of their own
        return None
    tested = [each for each in runs.scores if is_tested(each)]
    of_one_metric = [each for each in tested if _metric(each) == _metric(tested[0])]
    files = list({_examples(each): each for each in of_one_metric}.values())
    if len(files) < 2:
        return None
    drops: dict[Place, list[float]] = {}
    p_values: list[tuple[float, float]] = []
    for chosen_on, measured_on in permutations(files, 2):
        for place, head in best_heads(chosen_on).items():
            component, layer = place
            drop = measured_on.values[component][layer][head]
            p_value = measured_on.p_values[component][layer][head]
            if drop is not None and p_value is not None:
                drops.setdefault(place, []).append(drop)
                p_values.append((drop, p_value))
    if not drops:
        return None
    metric = _metric(files[0])
    losses = {place: fmean(values) for place, values in drops.items()}
    enough = {place: loss <= ENOUGH[metric] + _ROUNDING for place, loss in losses.items()}
    adjusted = holm([p_value for _, p_value in p_values])
    significant = sum(
        drop > 0 and p_value < SIGNIFICANCE_LEVEL
        for (drop, _), p_value in zip(p_values, adjusted, strict=True)
    )
    component, layer = worst = max(losses, key=lambda place: losses[place])
    limit = f"{ENOUGH[metric]:g} {_UNITS[metric]}"
    return Measurement(
        parts=[_share(f"layers that lose at most {limit} with one head", enough)],
        details=[
            _share(name, {place: value for place, value in enough.items() if place[0] == name})
            for name in dict.fromkeys(place[0] for place in enough)
        ],
        counts=[
            f"a loss is significant in {significant} of {len(p_values)} tests (p < "
            f"{SIGNIFICANCE_LEVEL:g} after Holm's correction; {len(p_values) // len(losses)} tests "
            "of each layer)",
            f"the largest loss is {losses[worst]:.2f} {_UNITS[metric]}, in {component} layer "
            f"{layer}",
        ],
    )


def best_heads(scores: HeadScores) -> dict[Place, int]:
    """The head with the smallest drop in each layer of two heads or more."""
    best = {}
    for component, layers in scores.values.items():
        for layer, values in enumerate(layers):
            drops = {head: value for head, value in enumerate(values) if value is not None}
            if len(drops) > 1:
                best[component, layer] = min(drops, key=lambda head: drops[head])
    return best


def _share(name: str, having: Mapping[Place, bool]) -> Part:
    estimate = Share(having=sum(having.values()), n=len(having))
    return Part(name=name, effect=estimate.effect, estimate=estimate)


def is_tested(scores: HeadScores) -> bool:
    """True for scores ``alone`` by a metric that has a limit."""
    return scores.name == "alone" and _metric(scores) in ENOUGH and bool(scores.p_values)


def require_comparable(scores: Sequence[HeadScores]) -> None:
    """Check that the scores ``alone`` of a model are of one metric and of different examples.

    Raises:
        DataError: they are not.
    """
    for one, other in combinations(filter(is_tested, scores), 2):
        if one.fingerprint != other.fingerprint:
            continue
        if _metric(one) != _metric(other):
            raise DataError(
                f"scores alone of {one.model}: by {_metric(one)} and by {_metric(other)}; give "
                "those of one metric"
            )
        if _examples(one) == _examples(other):
            raise DataError(
                f"scores alone of {one.model}: two files of the same examples, {one.data}. A head "
                "is chosen on other examples than its drop is measured on; give scores of two "
                "splits"
            )


def _metric(scores: HeadScores) -> str:
    return str(scores.settings.get("metric"))


def _examples(scores: HeadScores) -> tuple[str, object]:
    """The split of the examples, and the part of it."""
    return scores.data.partition("[")[0], scores.settings.get("part")
