"""Layers to keep: ``--encoder-layers-kept``, ``--decoder-layers-kept`` and fairseq's options.

fairseq reads its own, ``--encoder-layers-to-keep`` and ``--decoder-layers-to-keep``, as model
overrides only. Here they mean the same as ours, and serve training too.
"""

from __future__ import annotations

from typing import Any

from headprune.errors import UsageError

SIDES = ("encoder", "decoder")


def layers_to_keep(args: Any, side: str) -> tuple[int, ...] | None:
    """The sorted numbers of encoder or decoder layers that the options keep; None for all.

    Raises:
        UsageError: invalid numbers, or layers that the model does not have.
    """
    names = (f"{side}_layers_kept", f"{side}_layers_to_keep")
    values = {name: getattr(args, name, None) for name in names}
    given = {name: value for name, value in values.items() if value not in ("", [], None)}
    if not given:
        return None
    if len(given) == 2:
        raise UsageError(f"give {_flag(names[0])} or {_flag(names[1])}, not both")
    ((name, value),) = given.items()
    flag = _flag(name)
    numbers = value.split(",") if isinstance(value, str) else value
    try:
        kept = sorted({int(n) for n in ([numbers] if isinstance(numbers, int) else numbers)})
    except (TypeError, ValueError):
        raise UsageError(f"{flag}: {value!r}; give numbers with commas, 0,2,4") from None
    depth = getattr(args, f"{side}_layers")
    for number in kept:
        if not 0 <= number < depth:
            raise UsageError(f"{flag}: no layer {number}, the {side} has {depth}")
    return tuple(kept)


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"
