"""Keeping the heads that come first in some order, as many as are asked for."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from itertools import chain
from numbers import Real
from typing import Any

from headprune.counts import parse_counts
from headprune.errors import UsageError
from headprune.plan import COMPONENTS, HeadPlan, Shape, is_whole, validate_shape

Head = tuple[str, int, int]
"""Component, layer, head."""

Order = Callable[[Head], Any]
"""What heads are sorted by; those with the smallest come first."""

Keep = Mapping[str, int | str | Sequence[int]]
"""For each component: a number of heads, or one number a layer (``"888444"`` or a list)."""


def keep_first(
    shape: Shape,
    *,
    order: Order,
    percent: float | None = None,
    keep: Keep | None = None,
    at_least: int | None = 0,
    within: HeadPlan | None = None,
) -> HeadPlan:
    """Keep the heads that come first in ``order``. Give one of ``percent`` and ``keep``.

    Args:
        shape: for each component, the heads of each layer of the unpruned model.
        order: no two heads may be equal in it.
        percent: share of all the model's heads to prune, 0 to 100, as the nearest whole number of
            heads (halves are pruned). Table 1 of the paper.
        keep: heads to keep in a component, as one number over all its layers (table 3) or one
            number a layer (table 2). A component that is not named keeps all its heads.
        at_least: heads that every layer keeps wherever they come; None: one, if it has any, where
            layers compete for a percentage or a component's number, else 0.
        within: choose among the heads that this plan keeps; for pruning in steps. Percentages
            stay those of the unpruned model.

    Raises:
        UsageError: what is asked for cannot be had; the message says where and why.
    """
    shape = validate_shape(shape)
    if (percent is None) == (keep is None):
        raise UsageError("give either a percentage or the heads to keep, one of the two")
    if at_least is not None and (not is_whole(at_least) or at_least < 0):
        raise UsageError(f"at_least is {at_least!r}, it has to be a whole number from 0")
    alone = at_least or 0  # where layers do not compete
    pool = HeadPlan.full(shape) if within is None else within
    pool.require_shape(shape)

    if percent is not None:
        number = _number_kept(percent, total=pool.total)
        if number > pool.total_kept:
            raise UsageError(
                f"{float(percent):g}% pruned keeps {number} heads, only {pool.total_kept} are left"
            )
        chosen = _choose(pool, tuple(shape), number, order=order, at_least=at_least)
    else:
        if not isinstance(keep, Mapping):
            raise UsageError(f"give the heads to keep by component, not {keep!r}")
        for name in keep:
            if name not in shape:
                known = ", ".join(shape) if name in COMPONENTS else ", ".join(COMPONENTS)
                raise UsageError(f"{name}: unknown component, it is one of {known}")
        chosen = set()
        for name in shape:
            wanted = keep.get(name, len(_heads(pool, name)))
            if is_whole(wanted):
                least = at_least if name in keep else alone
                chosen |= _choose(pool, (name,), wanted, order=order, at_least=least)
            else:
                chosen |= _choose_per_layer(pool, name, wanted, order=order, at_least=alone)
    kept: dict[str, list[list[int]]] = {
        name: [[] for _ in layers] for name, layers in shape.items()
    }
    for name, layer, head in chosen:
        kept[name][layer].append(head)
    return HeadPlan(kept=kept, heads=shape)


def _heads(pool: HeadPlan, component: str) -> list[Head]:
    return [
        (component, layer, head) for layer, kept in enumerate(pool.kept[component]) for head in kept
    ]


def _number_kept(percent: float, *, total: int) -> int:
    if isinstance(percent, bool) or not isinstance(percent, Real):
        raise UsageError(f"percent is {percent!r}, it has to be a number")
    if not 0 <= percent <= 100:  # NaN fails too
        raise UsageError(f"{percent}% is not between 0 and 100")
    # Fractions of the decimal text: 12.5% of 4 heads is a half exactly, whatever the machine.
    pruned = int(Fraction(str(percent)) * total / 100 + Fraction(1, 2))
    return total - pruned


def _choose(
    pool: HeadPlan, components: Sequence[str], number: int, *, order: Order, at_least: int | None
) -> set[Head]:
    """The ``number`` heads of ``components`` that come first, ``at_least`` in each layer.

    None: one in each layer that has any.
    """
    candidates = list(chain.from_iterable(_heads(pool, name) for name in components))
    where = components[0] if len(components) == 1 else "all components"
    if not 0 <= number <= len(candidates):
        have = "the model has" if pool.is_full else "the plan leaves"
        raise UsageError(f"{where}: {number} heads asked for, {have} {len(candidates)}")
    candidates.sort(key=order)
    by_layer: dict[tuple[str, int], list[Head]] = {}
    for candidate in candidates:
        by_layer.setdefault(candidate[:2], []).append(candidate)
    chosen: set[Head] = set()
    for name in components:
        for layer, kept in enumerate(pool.kept[name]):
            least = min(1, len(kept)) if at_least is None else at_least
            if least > len(kept):
                raise UsageError(
                    f"{name}: layer {layer} has {len(kept)} heads, at_least asks for {least}"
                )
            chosen.update(by_layer.get((name, layer), [])[:least])
    if len(chosen) > number and at_least is None:
        raise UsageError(
            f"{where}: one head in every layer makes {len(chosen)}, but only {number} are to stay; "
            "at_least 0 allows layers without heads"
        )
    if len(chosen) > number:
        raise UsageError(
            f"{where}: at_least={at_least} keeps {len(chosen)} heads, but only {number} are to stay"
        )
    rest = (head for head in candidates if head not in chosen)
    chosen.update(head for head, _ in zip(rest, range(number - len(chosen)), strict=False))
    return chosen


def _choose_per_layer(
    pool: HeadPlan, name: str, wanted: int | str | Sequence[int], *, order: Order, at_least: int
) -> set[Head]:
    counts = parse_counts(wanted, component=name) if isinstance(wanted, str) else wanted
    if not isinstance(counts, Sequence):
        raise UsageError(f"{name}: {counts!r} is no number of heads, and not one a layer")
    if len(counts) != len(pool.kept[name]):
        raise UsageError(
            f"{name}: head counts for {len(counts)} layers, the model has {len(pool.kept[name])}"
        )
    chosen: set[Head] = set()
    for layer, (count, kept) in enumerate(zip(counts, pool.kept[name], strict=True)):
        if not is_whole(count) or not 0 <= count <= len(kept):
            have = "the model has" if pool.is_full else "the plan leaves"
            raise UsageError(f"{name}: layer {layer} asks for {count} heads, {have} {len(kept)}")
        if count < at_least:
            raise UsageError(
                f"{name}: layer {layer} asks for {count} heads, at_least for {at_least}"
            )
        layer_heads: list[Head] = [(name, layer, head) for head in kept]
        chosen.update(sorted(layer_heads, key=order)[:count])
    return chosen
