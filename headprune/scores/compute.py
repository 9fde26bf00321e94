"""Computation of all chosen scores of a model, in as few passes over the data as possible."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from headprune.components import HEADS
from headprune.errors import UsageError
from headprune.model import Batch, RunnableModel
from headprune.scores.ablation import Ablation, require_possible
from headprune.scores.combination import ATTENTION_GUIDED, combined
from headprune.scores.head_scores import HeadScores
from headprune.scores.movement import FineTune
from headprune.scores.names import COMBINATION, require_known, with_combined
from headprune.scores.own_outputs import without_labels
from headprune.scores.registry import (
    ABLATION,
    Compute,
    Computed,
    Need,
    Score,
    Scoring,
    score_named,
)
from headprune.scores.syntax import (
    RELATIONS,
    Parse,
    ParsedBatch,
    positional_baselines,
    syntactic_roles,
)

Watch = Callable[[Iterator[Any], int, str], Iterator[Any]]
"""Wraps the batches of a pass; it is given their number and the purpose of the pass."""


def unwatched(batches: Iterator[Any], *_: object) -> Iterator[Any]:
    """The batches of a pass, without a progress bar."""
    return batches


Ablate = Callable[[Sequence[str]], Mapping[str, Ablation]]
"""Computes some of ``names.ABLATIONS``."""


@dataclass(frozen=True, kw_only=True)
class Origin:
    """The model and the data of scores; see ``HeadScores``."""

    model: str
    fingerprint: str
    data: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)


def compute_scores(
    model: RunnableModel,
    names: Sequence[str],
    *,
    batches: Callable[[str], Iterable[Batch]],
    origin: Origin,
    metric: str,
    seed: int,
    components: Sequence[str] | None = None,
    weights: Mapping[str, float] = ATTENTION_GUIDED,
    ablate: Ablate | None = None,
    ablation_origin: Origin | None = None,
    own_outputs: bool = False,
    fine_tune: FineTune | None = None,
    permutations: int = 200,
    watch: Watch = unwatched,
) -> dict[str, HeadScores]:
    """Compute the scores called ``names``.

    Args:
        model: the model.
        names: the names of registered scores, or ``COMBINATION``.
        batches: function that returns the batches for one pass. Its argument is the purpose of
            the pass: ``ABLATION`` for the examples that scores are judged on.
        origin: the origin of the scores.
        metric: the metric of ablation.
        seed: the seed of the score ``random``.
        components: those whose units are scored (default: all attention of the model).
        weights: the weights of the score ``COMBINATION``.
        ablate: ablation by a metric that needs more than a pass over the batches.
        ablation_origin: the origin of the ablations, if computed on other data.
        own_outputs: score by the model's own outputs in the place of labels, which the batches do
            not have (see ``headprune.scores.own_outputs``); the metric is then ``divergence``.
        fine_tune: fine-tunes a copy of the model, for the score ``movement``.
        permutations: the largest number of random orders of the score ``shapley``.
        watch: wraps these orders, for a progress bar.

    Raises:
        UsageError: no such score or metric, a score that does not score these components, or a
            model without what the score needs.
        DataError: no data, or numbers that are not finite.
    """
    require_known(names)
    if components is None:
        components = [name for name in model.sublayers if name in HEADS]
    missing = [name for name in components if name not in {*model.sublayers, *model.layers}]
    if missing:
        have = ", ".join((*model.sublayers, *model.layers))
        raise UsageError(f"{missing[0]}: the model has no such component; it has {have}")
    needed = with_combined(names, weights)
    require_known(needed)
    scores = [score_named(name) for name in needed if name != COMBINATION]
    for score in scores:
        if not set(components) & set(score.components):
            raise UsageError(
                f"{score.name} scores {', '.join(score.components)}, not {', '.join(components)}"
            )
    if ablate is None:
        require_possible(metric, [score.name for score in scores if score.part == ABLATION])
    scoring = Scoring(
        model=model,
        components=components,
        batches=without_labels(model, batches, seed=seed) if own_outputs else batches,
        seed=seed,
        metric=metric,
        ablate=ablate,
        fine_tune=fine_tune,
        permutations=permutations,
        watch=watch,
    )
    by_function: dict[Compute, list[Score]] = {}
    for score in scores:
        by_function.setdefault(score.function(), []).append(score)
    computed: dict[str, Computed] = {}
    for function, together in by_function.items():
        scored = [name for name in components if any(name in each.components for each in together)]
        outcomes = function(replace(scoring, components=scored), [each.name for each in together])
        computed |= {each.name: outcomes[each.name].part(each.components) for each in together}
    complete = {}
    for score in scores:
        source = origin
        if score.part == ABLATION and ablation_origin is not None:
            source = ablation_origin
        has_data = Need.DATA in score.needs
        outcome = computed[score.name]
        labels = {"labels": "own", "label_seed": seed}
        complete[score.name] = HeadScores(
            name=score.name,
            values=outcome.values,
            model=origin.model,
            fingerprint=origin.fingerprint,
            data=(outcome.data or source.data) if has_data else "",
            settings={
                # A score with data of its own does not depend on those of the passes.
                **(source.settings if has_data and not outcome.data else {}),
                **(labels if own_outputs and Need.LABELS in score.needs else {}),
                **outcome.settings,
            },
            p_values=outcome.p_values,
        )
    if COMBINATION in names:
        complete[COMBINATION] = combined(complete, weights)
    return {name: complete[name] for name in names}


def syntactic_scores(
    scored: RunnableModel,
    batches: Iterable[ParsedBatch],
    *,
    parses: Sequence[Parse],
    origin: Origin,
    relations: Sequence[str] = RELATIONS,
) -> dict[str, HeadScores]:
    """The syntactic roles of heads, as scores.

    Args:
        scored: the model.
        batches: the parsed sentences as inputs of the model.
        parses: the same sentences, for the positional baselines.
        origin: the origin of the scores.
        relations: the dependency relations to score.

    Raises:
        UsageError: a model without encoder self-attention.
        DataError: none of the relations is in the sentences.
    """
    baselines = positional_baselines(parses, relations)
    roles = syntactic_roles(scored, batches, relations=relations)
    return {
        name: HeadScores(
            name=name,
            values=values,
            model=origin.model,
            fingerprint=origin.fingerprint,
            data=origin.data,
            settings={**origin.settings, "positional_baseline": baselines[name.split("-")[0]]},
        )
        for name, values in roles.items()
    }
