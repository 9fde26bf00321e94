"""Layers to keep: ``--encoder-layers-to-keep`` and ``--decoder-layers-to-keep``.

fairseq reads them as model overrides only. Here they also serve training: the layers are taken
when the model is built and when full weights are loaded, and the checkpoint is one of the smaller
model.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

from headprune.errors import UsageError

SIDES = ("encoder", "decoder")
_LAYER = re.compile(r"(encoder|decoder)\.layers\.(\d+)\.(.*)")


def layers_to_keep(args: Any, side: str) -> tuple[int, ...] | None:
    """The numbers of the layers that the options keep of a side, sorted; None for all.

    Raises:
        UsageError: not numbers, or not of layers that the model has.
    """
    given = getattr(args, f"{side}_layers_to_keep", None)
    if given is None or given == "" or given == []:
        return None
    flag = f"--{side}-layers-to-keep"
    numbers = given.split(",") if isinstance(given, str) else given
    try:
        kept = sorted({int(n) for n in ([numbers] if isinstance(numbers, int) else numbers)})
    except (TypeError, ValueError):
        raise UsageError(f"{flag}: {given!r}; give numbers with commas, 0,2,4") from None
    depth = getattr(args, f"{side}_layers")
    for number in kept:
        if not 0 <= number < depth:
            raise UsageError(f"{flag}: no layer {number}, the {side} has {depth}")
    return tuple(kept)


def keep_layers(
    state: Mapping[str, Tensor], kept: Mapping[str, Sequence[int] | None]
) -> dict[str, Tensor]:
    """The weights without the other layers, the kept ones renumbered from 0.

    Weights of a side that has no more layers than are kept stay as they are: they were renumbered
    before, in the checkpoint of an interrupted training.

    Args:
        state: a checkpoint's weights by name.
        kept: the layers to keep of each side; None for all.
    """
    places = {name: match for name in state if (match := _LAYER.match(name))}
    depths = {
        side: 1 + max((int(m[2]) for m in places.values() if m[1] == side), default=-1)
        for side in SIDES
    }
    result = {}
    for name, tensor in state.items():
        if (match := places.get(name)) is not None:
            side, number, rest = match[1], int(match[2]), match[3]
            layers = kept.get(side)
            if layers is not None and depths[side] > len(layers):
                if number not in layers:
                    continue
                name = f"{side}.layers.{list(layers).index(number)}.{rest}"
        result[name] = tensor
    return result
