"""Components of a Transformer, and the units that each consists of."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from headprune.errors import UsageError

HEADS = ("ES", "ED", "DS")
"""Encoder self-attention, encoder-decoder attention, decoder self-attention. Units: heads."""

NEURONS = ("EF", "DF")
"""Feed-forward sub-layers of encoder and decoder. Units: neurons (intermediate dimensions)."""

LAYERS = ("EL", "DL")
"""The layers of encoder and decoder themselves. One unit for each layer, number 0."""

COMPONENTS = (*HEADS, *NEURONS, *LAYERS)
"""All components, in canonical order."""

COMPONENT_NAMES = {
    "ES": "encoder self-attention",
    "ED": "encoder-decoder attention",
    "DS": "decoder self-attention",
    "EF": "encoder feed-forward",
    "DF": "decoder feed-forward",
    "EL": "encoder layers",
    "DL": "decoder layers",
}

_UNIT_NAMES = {**dict.fromkeys(HEADS, "head"), **dict.fromkeys(NEURONS, "neuron")}


def unit_name(component: str) -> str:
    """The name of a component's unit: ``head``, ``neuron`` or ``layer``."""
    return _UNIT_NAMES.get(component, "layer")


def unit_names(components: Iterable[str]) -> str:
    """The plural of the unit's name; ``units`` for components with units of different kinds.

    >>> unit_names(["ES", "DS"]), unit_names(["EF"]), unit_names(["ES", "EL"])
    ('heads', 'neurons', 'units')
    """
    names = kinds_of_units(components)
    return f"{names.pop()}s" if len(names) == 1 else "units"


def kinds_of_units(components: Iterable[str]) -> set[str]:
    """The names of the units of some components.

    >>> sorted(kinds_of_units(["ES", "DS", "EF"]))
    ['head', 'neuron']
    """
    return {unit_name(component) for component in components}


def require_components(names: Iterable[str], known: Collection[str]) -> None:
    """Check that a model has the named components.

    Args:
        known: the components of the model.

    Raises:
        UsageError: it lacks one, or there is no such component.
    """
    for name in names:
        if name not in known:
            choices = ", ".join(known if name in COMPONENTS else COMPONENTS)
            raise UsageError(f"{name}: unknown component, it is one of {choices}")


def side_of(component: str) -> str:
    """The stack whose layers the component belongs to: ``encoder`` or ``decoder``."""
    return "encoder" if component in ("ES", "EF", "EL") else "decoder"


def layers_of(component: str) -> str:
    """The component of the layers that a component belongs to: ``EL`` or ``DL``."""
    return "EL" if side_of(component) == "encoder" else "DL"
