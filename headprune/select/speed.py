"""Heads, neurons and layers for the least loss of score at a given speed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

from headprune.budget import Speedup
from headprune.components import LAYERS, layers_of, side_of, unit_name
from headprune.errors import UsageError
from headprune.origin import Origin
from headprune.plan import PruningPlan, is_whole
from headprune.scores.head_scores import HeadScores
from headprune.select.knapsack import Option, least_loss, undominated
from headprune.select.score import require_one_scale
from headprune.speed.latency import Latency

_STEPS = 10_000
"""Steps that the unpruned model's time is divided into."""

_TIE = 1e-9
"""A small addition to the loss of each step of time saved, so that of two choices with the same
loss of scores the one that keeps more units is taken."""


@dataclass(frozen=True)
class _Choice:
    """The units that one layer keeps.

    Attributes:
        saved: steps of time that it saves.
        loss: the sum of the scores of its pruned units.
        counts: the number of kept units by component; None where the layer is dropped.
    """

    saved: int
    loss: float
    counts: Mapping[str, int] | None


@dataclass(frozen=True)
class _Steps:
    """Savings in whole steps of time.

    Attributes:
        latency: the savings in seconds.
        tie: the loss of all the time.
    """

    latency: Latency
    tie: float

    def choice(self, saved: float, loss: float, counts: Mapping[str, int] | None) -> _Choice:
        """A choice that saves these seconds; the tie is added to its loss."""
        number = round(_STEPS * saved / self.latency.seconds)
        return _Choice(number, loss + self.tie * number / _STEPS, counts)


def by_speed(
    scores: HeadScores,
    latency: Latency,
    speedup: Speedup,
    *,
    components: Sequence[str],
    keep: str = "high",
    at_least: int = 1,
    faster: float = 1.0,
) -> PruningPlan:
    """Choose the units whose pruning loses the least sum of scores at a predicted speed.

    A multiple-choice knapsack: each layer is dropped or keeps some number of units in each of its
    sub-layers, the best ones, among the numbers that were measured. A unit loses its score, at
    least 0; where low scores are kept, the distance to the largest one. A dropped layer loses the
    scores of all its units, whether or not they are among ``components``; its own score counts
    only in a file without scores of heads and neurons, as it is on another scale.

    Args:
        scores: of all heads and neurons of ``components``, on one scale.
        latency: the time that units save.
        speedup: the speed that is asked for.
        components: those whose units are chosen.
        keep: ``high`` or ``low``, as in ``by_score``.
        at_least: heads and neurons that every layer that is not dropped keeps. Unless it is 0, one
            layer of each side is kept too, as not every library runs a side without layers.
        faster: factor on the speed, to correct a prediction that was found too high.

    Raises:
        UsageError: ``at_least`` below 0, components that are not scored or not measured, scores on
            several scales, or a speed that cannot be reached; the message names the highest that
            can.
    """
    if not is_whole(at_least) or at_least < 0:
        raise UsageError(f"at_least is {at_least!r}, it has to be a whole number from 0")
    if not components:
        raise UsageError(f"the score {scores.name} is of no component that was measured")
    latency.require_components(components)
    names = [name for name in latency.shape if name in components]
    _require_scored(scores, latency, names)
    losses = _losses(scores, keep)
    order = {
        place: sorted(range(len(values)), key=lambda unit: -values[unit])
        for place, values in losses.items()
    }
    steps = _Steps(latency, tie=_TIE * (sum(map(sum, losses.values())) or 1.0))
    layers = list(_layers(names, latency))
    choices = [_choices(layer, names, steps, losses, order, at_least) for layer in layers]
    undropped = choices
    if at_least:
        sublayers = [name for name in names if name not in LAYERS]
        undropped = [_choices(layer, sublayers, steps, losses, order, at_least) for layer in layers]
    highest = _most_saved(layers, choices, undropped)
    needed = _STEPS - _STEPS / (speedup.times * faster)
    chosen = _least_loss(layers, choices, undropped, needed) if needed <= highest else None
    if chosen is None:
        highest_speed = _STEPS / max(_STEPS - highest, 1)
        raise UsageError(
            f"{speedup}: cannot be reached by pruning {', '.join(names)}; the best is "
            f"{int(100 * highest_speed / faster) / 100:g}x" + _advice(names, latency, at_least)
        )
    kept: dict[str, list[tuple[int, ...]]] = {
        name: [tuple(range(units)) for units in latency.shape[name]] for name in names
    }
    for (side, index), choice in zip(layers, chosen, strict=True):
        counts = choice.counts
        for name in names:
            if side_of(name) != side:
                continue
            if name in LAYERS:
                kept[name][index] = (0,) if counts is not None else ()
            elif counts is None:
                kept[name][index] = ()
            else:
                kept[name][index] = tuple(sorted(order[name, index][: counts[name]]))
    return PruningPlan(
        kept=kept,
        units={name: latency.shape[name] for name in names},
        origin=Origin(
            method=scores.name,
            budget=str(speedup),
            scores=scores.fingerprint or None,
            at_least=at_least,
        ),
    )


def _require_scored(scores: HeadScores, latency: Latency, names: Sequence[str]) -> None:
    for name in names:
        scored = any(layers_of(component) == layers_of(name) for component in scores.values)
        if name in LAYERS and scored:
            continue
        if name not in scores.values:
            raise UsageError(
                f"{name}: the score {scores.name} has no number for its {unit_name(name)}s; score "
                f"them too, or leave {name} out of --components"
            )
        if scores.units[name] != latency.shape[name]:
            raise UsageError(f"{name}: the score {scores.name} is of a model of another shape")
        if any(None in layer for layer in scores.values[name]):
            raise UsageError(f"{name}: the score {scores.name} is of a pruned model")
    require_one_scale(scores.name, names, normalised=scores.is_normalised)


def _losses(scores: HeadScores, keep: str) -> dict[tuple[str, int], list[float]]:
    """The loss of pruning each unit, by component and layer; 0 or more."""
    values = {
        (name, index): [value for value in layer if value is not None]
        for name, layers in scores.values.items()
        for index, layer in enumerate(layers)
    }
    if keep == "high":
        return {place: [max(0.0, value) for value in layer] for place, layer in values.items()}
    largest = max(max(layer) for layer in values.values())
    return {place: [largest - value for value in layer] for place, layer in values.items()}


def _layers(names: Sequence[str], latency: Latency) -> Iterator[tuple[str, int]]:
    """The layers of the sides that the components belong to."""
    for side in ("encoder", "decoder"):
        components = [name for name in names if side_of(name) == side]
        if components:
            yield from ((side, index) for index in range(len(latency.shape[components[0]])))


def _most_saved(
    layers: Sequence[tuple[str, int]],
    choices: Sequence[Sequence[_Choice]],
    undropped: Sequence[Sequence[_Choice]],
) -> int:
    """The most steps of time that can be saved if one layer of each side has an undropped choice.

    Args:
        layers: the side and number of each layer.
        choices, undropped: the choices for each layer: all, and those that do not drop it; the
            same ones where all layers may be dropped.
    """
    fastest = [max(choice.saved for choice in of_layer) for of_layer in choices]
    slower: dict[str, list[int]] = {}
    for (side, _), saved, of_layer in zip(layers, fastest, undropped, strict=True):
        slower.setdefault(side, []).append(saved - max(choice.saved for choice in of_layer))
    return sum(fastest) - sum(map(min, slower.values()))


def _least_loss(
    layers: Sequence[tuple[str, int]],
    choices: Sequence[Sequence[_Choice]],
    undropped: Sequence[Sequence[_Choice]],
    needed: float,
) -> list[_Choice] | None:
    """The choice for each layer with the least sum of losses that saves the needed steps of time.

    Where the best choices drop all layers of a side, the best ones that keep one of them are
    searched for each of its layers.

    Args:
        layers, choices, undropped: see ``_most_saved``.
        needed: steps of time.

    Returns:
        None if no choices save so much.
    """
    fastest = [max(choice.saved for choice in of_layer) for of_layer in choices]
    may_drop_all = undropped is choices

    def solve(allowed: list[Sequence[_Choice]]) -> list[_Choice] | None:
        groups: list[list[Option]] = [
            [(saved - choice.saved, choice.loss) for choice in of_layer]
            for saved, of_layer in zip(fastest, allowed, strict=True)
        ]
        numbers = least_loss(groups, most=int(sum(fastest) - needed))
        if numbers is None:
            return None
        chosen = [of_layer[number] for of_layer, number in zip(allowed, numbers, strict=True)]
        for side in () if may_drop_all else dict.fromkeys(side for side, _ in layers):
            places = [place for place, layer in enumerate(layers) if layer[0] == side]
            if any(chosen[place].counts is not None for place in places):
                continue
            solutions = [
                solve([*allowed[:place], undropped[place], *allowed[place + 1 :]])
                for place in places
            ]
            return min(
                (solution for solution in solutions if solution is not None),
                key=lambda solution: sum(choice.loss for choice in solution),
                default=None,
            )
        return chosen

    return solve(list(choices))


def _choices(
    layer: tuple[str, int],
    names: Sequence[str],
    steps: _Steps,
    losses: Mapping[tuple[str, int], Sequence[float]],
    order: Mapping[tuple[str, int], Sequence[int]],
    at_least: int,
) -> list[_Choice]:
    """The choices for one layer that no other makes superfluous."""
    side, index = layer
    choices = [_Choice(0, 0.0, {})]
    for name in names:
        if side_of(name) != side or name in LAYERS:
            continue
        unit_losses, best_first = losses[name, index], order[name, index]
        options = [
            steps.choice(saved, sum(unit_losses[unit] for unit in best_first[kept:]), {name: kept})
            for kept, saved in steps.latency.saved[name].items()
            if kept >= min(at_least, len(unit_losses))
        ]
        choices = _fastest_first(
            [
                _Choice(
                    a.saved + b.saved, a.loss + b.loss, {**(a.counts or {}), **(b.counts or {})}
                )
                for a, b in product(choices, options)
            ]
        )
    name = "EL" if side == "encoder" else "DL"
    if name in names:
        units = [
            sum(values)
            for (component, number), values in losses.items()
            if layers_of(component) == name and component not in LAYERS and number == index
        ]
        lost = sum(units) if units else losses[name, index][0]
        choices.append(steps.choice(steps.latency.layer_saving(name), lost, None))
    return _fastest_first(choices)


def _fastest_first(choices: Sequence[_Choice]) -> list[_Choice]:
    """The choices without those that are as slow as another and lose as much."""
    return [choices[number] for number in undominated([(-c.saved, c.loss) for c in choices])]


def _advice(names: Sequence[str], latency: Latency, at_least: int) -> str:
    """Advice on further units that could be pruned."""
    others = [name for name in latency.saved if name not in names]
    advice = [f"add {','.join(others)} to --components"] if others else []
    if at_least:
        advice.append("give --at-least 0")
    return f"; {' or '.join(advice)} for more" if advice else ""
