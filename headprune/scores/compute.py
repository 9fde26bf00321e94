"""All chosen scores of a model, with as few passes over the data as there are kinds of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from headprune.plan import HeadPlan
from headprune.scores.ablation import Ablation, ablation, require_possible
from headprune.scores.attention_statistics import attention_statistics
from headprune.scores.combination import ATTENTION_GUIDED, combined
from headprune.scores.gradients import gradient_scores
from headprune.scores.head_scores import HeadScores, Values
from headprune.scores.magnitude import magnitude
from headprune.scores.names import (
    ABLATIONS,
    COMBINATION,
    GRADIENTS,
    ROLES,
    STATISTICS,
    WITHOUT_DATA,
    require_known,
)
from headprune.scores.roles import Rarity, rarity_of
from headprune.scores.scored_model import Batch, ScoredModel
from headprune.scores.syntax import (
    RELATIONS,
    Parse,
    ParsedBatch,
    positional_baselines,
    syntactic_roles,
)
from headprune.select.random import lot

Watch = Callable[[Iterator[Any], int, str], Iterator[Any]]
"""Wraps the batches of a pass, of which there are so many, and what the pass is for."""

ABLATION = "ablation"
"""The pass over the data on which scores are judged."""

Ablate = Callable[[Sequence[str]], Mapping[str, Ablation]]
"""Works out some of ``ABLATIONS``."""


@dataclass(frozen=True, kw_only=True)
class Origin:
    """Where scores come from; see ``HeadScores``."""

    model: str
    fingerprint: str
    data: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)


def needs_data(names: Sequence[str]) -> bool:
    """Whether any of the scores is computed on data."""
    return any(name not in WITHOUT_DATA for name in names)


def compute_scores(
    scored: ScoredModel,
    names: Sequence[str],
    *,
    batches: Callable[[str], Iterable[Batch]],
    origin: Origin,
    metric: str,
    seed: int,
    weights: Mapping[str, float] = ATTENTION_GUIDED,
    ablate: Ablate | None = None,
    ablation_origin: Origin | None = None,
) -> dict[str, HeadScores]:
    """The scores called ``names``.

    Args:
        scored: the model.
        names: of ``SCORES`` or ``COMBINATION``.
        batches: gives the data, anew for each pass; it is told what the pass is for:
            ``ABLATION`` or something else.
        origin: of the scores.
        metric: of ``ABLATIONS``.
        seed: of the score ``random``.
        weights: of the score ``COMBINATION``.
        ablate: works out ablations of a metric that needs more than a pass over the batches.
        ablation_origin: of the ablations, where they are computed on other data.

    Raises:
        UsageError: no such score or metric, or a model without what the score needs.
        DataError: no data, or numbers that are not finite.
    """
    require_known(names)
    wanted = set(names) | (set(weights) if COMBINATION in names else set())
    require_known(list(wanted))
    kinds = [kind for kind in ABLATIONS if kind in wanted]
    if ablate is None:
        require_possible(metric, kinds)  # before the first pass
    values: dict[str, Values] = {}
    ablations: dict[str, Ablation] = {}
    if wanted & {*GRADIENTS}:
        found = gradient_scores(scored, batches("gradients"))
        values |= {
            "gradient": found.gradient_raw,  # normalised below, and signed as such
            "gradient-raw": found.gradient_raw,
            "taylor": found.taylor,
            "taylor-molchanov": found.taylor_molchanov,
        }
    if wanted & {*STATISTICS, *ROLES}:
        rarity = _rarity(scored, batches("counting tokens")) if "rare" in wanted else None
        values |= attention_statistics(scored, batches("attention"), rarity=rarity)
    if kinds:
        if ablate is not None:
            ablations |= ablate(kinds)
        else:
            ablations |= ablation(scored, batches(ABLATION), metric=metric, kinds=kinds)
        values |= {kind: each.drops for kind, each in ablations.items()}
    if "magnitude" in wanted:
        values["magnitude"] = magnitude(scored.attentions)
    if "random" in wanted:
        values["random"] = random_values(plan_of(scored), seed=seed)
    made = {}
    for name in wanted - {COMBINATION}:
        of = ablation_origin if name in ablations and ablation_origin is not None else origin
        settings: dict[str, Any] = {**of.settings} if name not in WITHOUT_DATA else {}
        if name == "random":
            settings = {"seed": seed}
        if name in ablations:
            settings |= {"metric": metric, "base": ablations[name].base}
        made[name] = HeadScores(
            name=name,
            values=values[name],
            model=origin.model,
            fingerprint=origin.fingerprint,
            data="" if name in WITHOUT_DATA else of.data,
            settings=settings,
            p_values=ablations[name].p_values if name in ablations else {},
        )
    if "gradient" in made:
        made["gradient"] = made["gradient"].normalised()
    if COMBINATION in names:
        made[COMBINATION] = combined(made, weights)
    return {name: made[name] for name in names}


def syntactic_scores(
    scored: ScoredModel,
    batches: Iterable[ParsedBatch],
    *,
    parses: Sequence[Parse],
    origin: Origin,
    relations: Sequence[str] = RELATIONS,
) -> dict[str, HeadScores]:
    """The syntactic roles of heads, as scores.

    Args:
        scored: the model.
        batches: the parsed sentences as the model takes them.
        parses: the same, for the baselines.
        origin: of the scores.
        relations: which.

    Raises:
        UsageError: a model without encoder self-attention.
        DataError: none of the relations is in the sentences.
    """
    baselines = positional_baselines(parses, relations)
    found = syntactic_roles(scored, batches, relations=relations)
    return {
        name: HeadScores(
            name=name,
            values=values,
            model=origin.model,
            fingerprint=origin.fingerprint,
            data=origin.data,
            settings={**origin.settings, "positional_baseline": baselines[name.split("-")[0]]},
        )
        for name, values in found.items()
    }


def plan_of(scored: ScoredModel) -> HeadPlan:
    """The heads that the model has left."""
    return HeadPlan(
        kept={name: [a.kept for a in layers] for name, layers in scored.attentions.items()},
        heads={name: [a.heads for a in layers] for name, layers in scored.attentions.items()},
    )


def random_values(plan: HeadPlan, *, seed: int) -> Values:
    """The lots of ``select.at_random``, from 0 to 1; the heads that it keeps have the highest."""
    return {
        name: [
            [
                1 - lot(seed, (name, layer, head)) / 2**256 if head in kept else None
                for head in range(plan.heads[name][layer])
            ]
            for layer, kept in enumerate(layers)
        ]
        for name, layers in plan.kept.items()
    }


def _rarity(scored: ScoredModel, batches: Iterable[Batch]) -> Rarity:
    """Counts over what is read by the first component's queries: the source's tokens."""
    component = "ES" if "ES" in scored.attentions else next(iter(scored.attentions))
    return rarity_of(
        (scored.keys(component, batch) for batch in batches), special=scored.special_tokens
    )
