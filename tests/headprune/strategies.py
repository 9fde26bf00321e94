"""Hypothesis strategies: shapes of models, plans for them, and values that are neither."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from headprune import COMPONENTS, HeadPlan
from headprune.components import HEADS, LAYERS, NEURONS

Shape = dict[str, tuple[int, ...]]

BASE: Shape = dict.fromkeys(HEADS, (8,) * 6)
"""Transformer-Base: six layers of eight heads."""

ALL = ", ".join(COMPONENTS)
"""As messages name them."""

BERT: Shape = {"ES": (12,) * 12}


def shapes(components: tuple[str, ...] = (*HEADS, *NEURONS)) -> st.SearchStrategy[Shape]:
    """One component or more, of one to three layers, each of one to twelve heads or neurons."""
    units = st.lists(st.integers(1, 12), min_size=1, max_size=3).map(tuple)
    whole_layers = st.integers(1, 3).map(lambda depth: (1,) * depth)
    by_component = {name: whole_layers if name in LAYERS else units for name in components}
    names = st.lists(st.sampled_from(components), min_size=1, unique=True)
    return names.flatmap(
        lambda chosen: st.fixed_dictionaries({name: by_component[name] for name in chosen})
    )


@st.composite
def plans(draw: st.DrawFn, shape: Shape | None = None) -> HeadPlan:
    """Any plan, or any plan for ``shape``."""
    if shape is None:
        shape = draw(shapes())

    def some_of(heads: int) -> list[int]:
        mask = draw(st.integers(0, 2**heads - 1))
        return [head for head in range(heads) if mask >> head & 1]

    kept = {name: [some_of(heads) for heads in layers] for name, layers in shape.items()}
    return HeadPlan(kept=kept, heads=shape)


def junk() -> st.SearchStrategy[Any]:
    """Values of JSON's kinds. Numbers are small: a model of 10**18 heads only fills the memory."""
    names = st.sampled_from([*COMPONENTS, "XX", ""])
    return st.recursive(
        st.none() | st.booleans() | st.integers(-3, 20) | st.floats() | st.text(max_size=8),
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(names, inner, max_size=4),
        max_leaves=8,
    )
