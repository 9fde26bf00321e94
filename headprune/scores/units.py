"""The parts of a model whose units are scored: sub-layers, and whole layers as units."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from torch import Tensor

from headprune.components import LAYERS
from headprune.model import Part, PrunableLayer, RunnableModel

Parts = Mapping[str, Sequence[Part]]
"""For each component, the part of each layer, the bottom first."""


@dataclass(frozen=True)
class WholeLayer:
    """A layer as a part with one unit, number 0."""

    layer: PrunableLayer
    units: int = 1

    @property
    def kept(self) -> tuple[int, ...]:
        """The layer, unless it is dropped."""
        return (0,) if self.layer.is_kept else ()

    @property
    def present(self) -> tuple[int, ...]:
        """The layer, unless it is dropped: it then has no weights."""
        return self.kept

    def weights_by_unit(self) -> Iterable[Tensor]:
        """All parameters of the layer: 1 x any, each."""
        for parameter in self.layer.module.parameters():
            yield parameter.flatten().unsqueeze(0)


def parts_of(model: RunnableModel, components: Sequence[str]) -> Parts:
    """The parts of the model that belong to some components, in the order of the model."""
    parts: dict[str, Sequence[Part]] = {
        name: sublayers for name, sublayers in model.sublayers.items() if name in components
    }
    for name in LAYERS:
        if name in components and name in model.layers:
            parts[name] = [WholeLayer(layer) for layer in model.layers[name]]
    return parts
