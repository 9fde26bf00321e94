"""The claim of Budhraja et al. 2020 that fine-tuning changes all layers evenly (figure 2)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, combinations
from math import comb
from statistics import fmean

from headprune.claims.claim import Claim, Measurement, Part, Source
from headprune.claims.estimate import Largest, relative_difference
from headprune.claims.region import Region
from headprune.claims.runs import Runs
from headprune.results.changes import CLAIM, Changes, Evenness, Values, evenness
from headprune.results.paper import SOURCE
from headprune.wording import counted

_NEEDED = "two layers with two heads or more each, whose changes differ"


def claims() -> list[Claim]:
    """The claim on the changes of weights.

    The heads of a layer are taken for a sample: with few heads, two layers differ by chance.
    """
    return [
        Claim(
            name="even-compensation",
            sentence="The heads that remain compensate evenly: the mean changes of any two layers "
            "in fine-tuning differ by less than 10%.",
            source=Source(
                paper=SOURCE,
                place="figure 2",
                value="below 10% in every configuration of tables 5 and 6",
            ),
            region=Region(high=100 * CLAIM),
            unit="%",
            effect="by how much the highest mean change of a layer is above the lowest; for each "
            "fine-tuned model",
            rows="the file changes.json of `headprune changes`",
            command="make study STUDY=figure2 SETTING=glue.bert-base",
            measure=_measure,
        )
    ]


def _measure(runs: Runs) -> Measurement | None:
    compared = [
        (row, values)
        for model in runs.changes
        for component, values in model.components.items()
        for row in evenness([Changes(label=model.label, components={component: values})])
    ]
    if not compared:
        return None
    below = sum(row.holds for row, _ in compared)
    parts = [_part(row, values) for row, values in compared]
    return Measurement(
        parts=parts,
        counts=[
            f"the difference is below {CLAIM:.0%} in {below} of {counted(len(parts), 'model')}",
            *_incomplete(parts),
        ],
    )


def _part(row: Evenness, values: Values) -> Part:
    """The largest difference between two layers.

    It is that of the layers whose difference has an interval, as far as any have one. A layer of
    one head has none, so that a model with such a layer can refute the claim and not support it.
    """
    layers = {
        layer_index: heads
        for layer_index, layer in enumerate(values)
        if (heads := [value for value in layer if value is not None])
    }
    estimates = {
        (one, other): estimate
        for one, other in combinations(layers, 2)
        if (estimate := relative_difference(layers[one], layers[other])) is not None
    }
    name = f"{row.label} {row.component}"
    if not estimates:
        return Part(
            name=f"{name}: layer {row.highest} - layer {row.lowest}",
            effect=100 * row.difference,
            estimate=None,
            needed=_NEEDED,
        )
    largest = Largest(
        estimates=list(estimates.values()),
        n=sum(len(layers[layer_index]) for layer_index in set(chain(*estimates))),
        complete=len(estimates) == comb(len(layers), 2),
    )
    pair = max(estimates, key=lambda pair: estimates[pair].effect)
    low, high = sorted(pair, key=lambda layer_index: fmean(layers[layer_index]))
    return Part(name=f"{name}: layer {high} - layer {low}", effect=largest.effect, estimate=largest)


def _incomplete(parts: Sequence[Part]) -> list[str]:
    """The models that cannot show that the claim holds, in words."""
    names = [
        part.name.rpartition(": layer ")[0]
        for part in parts
        if isinstance(part.estimate, Largest) and not part.estimate.complete
    ]
    if not names:
        return []
    return [
        "layers of one head, or that did not change, have no interval, so that "
        f"{', '.join(names)} can refute the claim and not support it"
    ]
