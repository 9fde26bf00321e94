"""Units pruned by the place of their layer in the model."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from headprune.components import require_components
from headprune.errors import UsageError
from headprune.origin import Origin
from headprune.plan import PruningPlan, Shape, validate_shape

_HELP = "it is 'top k', 'bottom k', 'middle k', 'odd', 'even' or layer numbers such as '0,2-4'"


def by_location(
    shape: Shape, *, prune: str | Mapping[str, str], components: Sequence[str] | None = None
) -> PruningPlan:
    """Prune all units of the named layers (Budhraja et al. 2020, tables 5 and 6).

    ``prune`` joins its parts with ``+``; each part is one of

    - ``top k``: the k layers farthest from the embeddings; ``bottom k``: the k next to them;
    - ``middle k``: the k layers in the middle (where that is not symmetric, the lower ones);
    - ``odd``, ``even``: every second layer. Table 6 speaks of the 12 layers of BERT as "odd 6"
      and "even 6" without giving indices. Papers on BERT count its layers from 1 at the
      embeddings to 12 at the top, and so does this: ``odd`` is the 1st, 3rd, 5th ... layer
      (indices 0, 2, 4, ...), ``even`` the 2nd, 4th, ... (indices 1, 3, 5, ..., the top layer of
      12 among them). Name the indices where the difference matters. ``odd 6`` and ``even 6``, as
      in the table, are accepted when the number agrees;
    - layer indices from 0 at the embeddings: ``0,2,4``, ``3-5``, also ``layers 0,2``;
    - ``none``.

    Args:
        shape: for each component, the units of each layer of the unpruned model.
        prune: one text for several components, or a text for each.
        components: those that a single text is for (default: all of ``shape``).

    Raises:
        UsageError: a text that cannot be read, or a layer that the component does not have.

    >>> print(by_location({"ES": (12,) * 6}, prune="top 1 + bottom 2"))
    ES=0,0,12,12,12,0
    """
    shape = validate_shape(shape)
    if isinstance(prune, str):
        prune = dict.fromkeys(shape if components is None else components, prune)
    elif components is not None:
        raise UsageError("components are given twice: as keys of prune and as components")
    if not isinstance(prune, Mapping):
        raise UsageError(f"give the layers to prune as text, not {prune!r}; {_HELP}")
    require_components(prune, shape)
    pruned = {name: _layers(prune.get(name, "none"), len(shape[name]), name) for name in shape}
    return PruningPlan(
        kept={
            name: [() if i in pruned[name] else range(n) for i, n in enumerate(layers)]
            for name, layers in shape.items()
        },
        units=shape,
        origin=Origin(method="location"),
    )


def _layers(text: str, depth: int, component: str) -> set[int]:
    if not isinstance(text, str):
        raise UsageError(f"{component}: give the layers as text, not {text!r}; {_HELP}")
    layers: set[int] = set()
    for part in text.split("+"):
        layers |= _part(part.strip().lower(), depth, component)
    return layers


def _part(part: str, depth: int, component: str) -> set[int]:
    """The layer indices in one part of the text, for a component with ``depth`` layers."""
    if part == "none":
        return set()
    if match := re.fullmatch(r"(top|bottom|middle)\s*([0-9]{1,9})", part):
        where, k = match[1], int(match[2])
        if k > depth:
            raise UsageError(f"{component}: '{part}' asks for {k} layers, the model has {depth}")
        start = {"bottom": 0, "middle": (depth - k) // 2, "top": depth - k}[where]
        return set(range(start, start + k))
    if match := re.fullmatch(r"(odd|even)(?:\s*([0-9]{1,9}))?", part):
        layers = set(range(0 if match[1] == "odd" else 1, depth, 2))
        if match[2] is not None and int(match[2]) != len(layers):
            raise UsageError(
                f"{component}: '{part}', but {len(layers)} of {depth} layers are {match[1]}"
            )
        return layers
    numbers = re.sub(r"^layers?\s+", "", part)
    item = r"[0-9]{1,9}(\s*-\s*[0-9]{1,9})?"
    if not re.fullmatch(rf"{item}(\s*,\s*{item})*", numbers):
        raise UsageError(f"{component}: cannot read '{part}'; {_HELP}")
    layers = set()
    for item in numbers.split(","):
        first, _, last = (n.strip() for n in item.partition("-"))
        if last and int(last) < int(first):
            raise UsageError(f"{component}: '{item.strip()}' runs backwards")
        if int(last or first) >= depth:
            raise UsageError(
                f"{component}: no layer {last or first}, the model has {depth} (0 to {depth - 1})"
            )
        layers |= set(range(int(first), int(last or first) + 1))
    return layers
