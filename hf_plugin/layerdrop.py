"""LayerDrop (Fan et al. 2020): layers that are skipped at random during training.

>>> hooks = add_layerdrop(model, 0.2)  # doctest: +SKIP
>>> trainer.train()  # doctest: +SKIP
>>> for hook in hooks:  # doctest: +SKIP
...     hook.remove()

A model that was trained in this way loses little when layers are dropped by a plan, without
fine-tuning. Evaluation uses all layers.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle
from transformers import PreTrainedModel

from headprune.errors import UsageError
from headprune.gates import LayerGate
from hf_plugin.families import family_of, stacks


@dataclass
class _Dropped:
    """The gate of a layer for one forward pass: 0 with a probability while it is trained.

    Attributes:
        skipped: whether it was 0 in the last pass; see ``headprune.gates.hooks.is_skipped``.
    """

    layer: nn.Module
    probability: float
    skipped: bool = False

    def __call__(self, x: Tensor) -> Tensor:
        """0 or 1, ()."""
        self.skipped = self.layer.training and bool(torch.rand(()) < self.probability)
        return x.new_zeros(()) if self.skipped else x.new_ones(())


def add_layerdrop(model: PreTrainedModel, probability: float) -> list[RemovableHandle]:
    """Skip each layer of a model with a probability, in every forward pass of training.

    A skipped layer passes on its input. It is computed all the same: this makes a model robust, not
    its training faster. Layers that a plan has dropped stay so.

    Args:
        model: any that can be pruned.
        probability: that a layer is skipped; Fan et al. use 0.2.

    Returns:
        The hooks; ``remove()`` of each ends LayerDrop.

    Raises:
        UsageError: no probability, or a model that cannot be pruned, or ``require_layers``.
    """
    if not 0 <= probability <= 1:
        raise UsageError(f"LayerDrop: {probability} is no probability; give a number from 0 to 1")
    if probability:
        require_layers(model)
    return [
        layer.module.register_forward_hook(
            LayerGate(_Dropped(layer.module, probability), layer.hidden_states),
            with_kwargs=True,
            prepend=True,
        )
        for layers in stacks(model).values()
        for layer in layers
        if layer.is_kept
    ]


def require_layers(model: PreTrainedModel) -> None:
    """Check that a model has layers that can be dropped.

    Raises:
        UsageError: it has none, as in ALBERT, whose layers share weights; or see ``stacks``.
    """
    if not stacks(model):
        raise UsageError(
            f"LayerDrop: the {family_of(model)} model has no layers that can be dropped"
        )
