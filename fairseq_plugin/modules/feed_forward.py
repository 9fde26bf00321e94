"""Feed-forward sub-layers with pruned neurons.

For a sub-layer with F neurons:

    out = sum over n of xi_n activation(x . W_1^n + b_1^n) W_2^n + b_2,    xi_n in {0, 1}

``mask`` computes just that. ``remove`` leaves out the rows of W_1 and b_1 and the columns of W_2
where xi_n = 0, and gives the same output. With no neuron left, both give b_2 at every position.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from fairseq_plugin.fitting import NEURON_DIMENSION, HeadForm, require_blocks
from headprune.errors import UsageError
from headprune.gates import Gate
from headprune.surgery import cut


@dataclass(frozen=True)
class FeedForward:
    """One feed-forward sub-layer; implements ``headprune.model.PrunableSublayer``.

    Attributes:
        layer: fairseq's layer, with the projections ``fc1`` and ``fc2``.
        units: the number of neurons of the unpruned sub-layer.
        kept: the neurons that are kept.
        form: the form of the model.
    """

    layer: Any
    units: int
    kept: tuple[int, ...]
    form: str
    unit_size: int = 1

    @property
    def module(self) -> nn.Module:
        """The first projection: the activation follows, and then the output projection."""
        projection: nn.Module = self.layer.fc1
        return projection

    @property
    def output(self) -> nn.Linear:
        """The output projection."""
        projection: nn.Linear = self.layer.fc2
        return projection

    @property
    def present(self) -> tuple[int, ...]:
        """The neurons that are computed, masked ones included."""
        return tuple(range(self.units)) if self.form == "mask" else self.kept

    def as_columns(self, weight: Tensor) -> Tensor:
        """The tensor as it is: projections are not transposed."""
        return weight

    def weights_by_unit(self) -> Iterator[Tensor]:
        """The rows of W_1 and the columns of W_2 of each neuron: U' x any, each."""
        yield self.layer.fc1.weight
        yield self.output.weight.transpose(0, 1)


class NoNeurons(nn.Module):
    """Replacement of a projection to zero neurons, T x B x C -> T x B x 0.

    Its weights would be parameters that no output depends on, and distributed training waits for
    the gradient of each parameter.
    """

    def forward(self, x: Tensor) -> Tensor:
        """The input without its entries; they get a gradient of zeros."""
        return x[:, :, :0]


def prune_neurons(layer: Any, kept: Sequence[int], *, form: HeadForm, name: str) -> None:
    """Prune the neurons of a layer of fairseq's that are not among ``kept``.

    Args:
        layer: a layer with the projections ``fc1`` and ``fc2`` of the unpruned sub-layer.
        kept: the numbers of the neurons that stay, sorted.
        form: ``remove`` or ``mask``.
        name: the component and layer (``EF: layer 3``), to begin error messages with.

    Raises:
        UsageError: the layer has something that depends on the number of neurons.
    """
    neurons = layer.fc1.out_features
    if len(kept) == neurons:
        return
    if getattr(layer, "ffn_layernorm", None) is not None:
        raise UsageError(f"{name}: a layer norm over the neurons (scale_fc) forbids pruning them")
    if form == "mask":
        xi = torch.zeros(neurons)
        xi[list(kept)] = 1
        layer.fc2.register_forward_pre_hook(
            Gate(FeedForward(layer, neurons, tuple(kept), form), xi)
        )
        return
    if layer.quant_noise > 0:
        block = layer.quant_noise_block_size
        require_blocks(len(kept), neurons=neurons, block=block, name=name)
    remove_neurons(layer, kept)


def remove_neurons(layer: Any, kept: Sequence[int]) -> None:
    """Cut the weights of ``fc1`` and ``fc2`` to those of the neurons ``kept``."""
    neurons = layer.fc1.out_features
    for key, dim in NEURON_DIMENSION.items():
        projection, attribute = key.split(".")
        linear = getattr(layer, projection)
        weight = getattr(linear, attribute).detach()
        setattr(linear, attribute, nn.Parameter(cut(weight, kept, units=neurons, dim=dim)))
    layer.fc1.out_features = layer.fc2.in_features = len(kept)
    if not kept:
        layer.fc1 = NoNeurons()


def remove_masked_neurons(layer: Any) -> None:
    """Bring a layer of form ``mask`` into form ``remove``."""
    for key, hook in list(layer.fc2._forward_pre_hooks.items()):
        if isinstance(hook, Gate):
            del layer.fc2._forward_pre_hooks[key]
            remove_neurons(layer, hook.sublayer.kept)
