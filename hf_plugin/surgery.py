"""Remove or mask heads, neurons and layers of a Hugging Face model.

``cut_to`` leaves out the weights of units, ``masked`` multiplies their outputs by xi (Budhraja et
al. 2020, equation 2); with the same units at 0 the two give the same outputs. ``make_uniform``
multiplies the attention *scores* by 0 before the softmax, so that a pruned head averages the values
of all tokens evenly, and still contributes. That paper's released code for BERT exists in two
versions: the upload of October 2020 (commit fce4ec0 of its repository) does what ``make_uniform``
does, the one of 1 November 2021 (commit ede5793) multiplies the probabilities after the softmax,
which is equation 2.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from headprune.errors import UsageError
from headprune.plan import PruningPlan
from hf_plugin.cutting import cut_units
from hf_plugin.dropped import can_be_dropped, make_dropped
from hf_plugin.families import attentions, family_of, feed_forwards, require_plain, stacks
from hf_plugin.headless import can_be_headless, make_headless, make_neuronless
from hf_plugin.sublayers import Attention, FeedForward, Sublayer

_Layer = TypeVar("_Layer")


def cut_to(model: PreTrainedModel, plan: PruningPlan, *, spare_uniform: bool = False) -> None:
    """Cut out of ``model``, in place, the weights of the units that ``plan`` does not keep.

    Parameters of changed layers are new objects: make the optimizer afterwards.

    Args:
        model: any that can be pruned.
        plan: one of ``plan_after(model, ...)``.
        spare_uniform: leave heads that were made uniform before as they are.

    Raises:
        UsageError: a layer would be dropped, or be left without heads, that is of a class of its
            own, neurons would be cut out of projections that are not plain, or accelerate has
            spread the model over devices; nothing was cut.
    """
    _require_one_device(model)
    heads = [
        (where, attention, kept, attention.uniform if spare_uniform else ())
        for where, attention, kept in _with_kept(attentions(model), plan)
    ]
    neurons = [
        (where, sublayer, kept)
        for where, sublayer, kept in _with_kept(feed_forwards(model), plan)
        if sublayer.kept != kept
    ]
    dropped = [(where, layer) for where, layer, kept in _with_kept(stacks(model), plan) if not kept]
    for where, attention, kept, uniform in heads:
        if not kept and not uniform and not can_be_headless(attention.module):
            kind = type(attention.module).__name__
            raise UsageError(f"{where}: all heads of a {kind} cannot be removed; keep one")
    for where, sublayer, _ in neurons:
        _require_plain(sublayer, where=where)
    for where, layer in dropped:
        if not can_be_dropped(layer.module):
            kind = type(layer.module).__name__
            raise UsageError(f"{where} is a {kind}, which cannot be dropped")
    for _, attention, kept, uniform in heads:
        if (attention.kept, attention.uniform) != (kept, uniform):
            _cut_heads(attention, kept, uniform)
    for _, sublayer, kept in neurons:
        _cut_neurons(sublayer, kept)
    for _, layer in dropped:
        make_dropped(layer.module)


def make_uniform(model: PreTrainedModel, plan: PruningPlan) -> None:
    """Let the heads that ``plan`` does not keep attend to all tokens evenly, in ``model`` itself.

    Their queries are multiplied by 0, and with them their scores before the softmax: the weights
    of such a head are 1 / (number of tokens that are no padding). W_q and W_k of these heads get no
    gradient; W_v and W_o are trained on.

    Args:
        model: any that can be pruned.
        plan: one of ``plan_after(model, ...)``.
    """
    for _, attention, kept in _with_kept(attentions(model), plan):
        if attention.kept == kept:
            continue
        if attention.names.bias:
            raise UsageError(
                f"form: uniform is not for the {family_of(model)} model, whose position biases "
                "are added to the scores; take form remove"
            )
        first = not attention.uniform
        attention.set_heads(
            kept=kept,
            uniform=tuple(head for head in attention.present if head not in kept),
            heads=attention.units,
        )
        if first:
            for linear in attention.queries:
                linear.register_forward_hook(_ZeroQueries(attention))


@dataclass(frozen=True)
class _ZeroQueries:
    """A hook on a projection to queries: those of uniform heads become 0. It can be pickled."""

    attention: Attention

    def __call__(self, linear: nn.Module, inputs: tuple[Any, ...], output: Tensor) -> Tensor:
        attention = self.attention
        kept = [float(head in attention.kept) for head in attention.present]
        rows = attention.rows_per_unit(linear)
        factors = output.new_tensor(kept).repeat_interleave(rows)  # H'd
        if attention.names.blocks > 1:  # queries are the first block
            rest = factors.new_ones((attention.names.blocks - 1) * len(factors))
            factors = torch.cat([factors, rest])
        return output * factors  # ... x H'd


def _require_one_device(model: PreTrainedModel) -> None:
    """Raise a UsageError if accelerate has spread the model over devices."""
    if any(hasattr(module, "_hf_hook") for module in model.modules()):
        # Their calls go past the changed classes, and offloaded weights come back uncut.
        raise UsageError(
            "the model is spread over devices (device_map): prune it on one device, save it, and "
            "load it again with device_map"
        )


def _with_kept(
    components: Mapping[str, Sequence[_Layer]], plan: PruningPlan
) -> list[tuple[str, _Layer, tuple[int, ...]]]:
    """Pair each layer with its place, for messages, and the units that the plan keeps in it.

    Components that are not in the plan are left out.
    """
    return [
        (f"{name}: layer {number}", layer, tuple(kept))
        for name, layers in components.items()
        if name in plan.kept
        for number, (layer, kept) in enumerate(zip(layers, plan.kept[name], strict=True))
    ]


def _require_plain(sublayer: FeedForward, *, where: str) -> None:
    names = (*sublayer.names.inputs, sublayer.names.output)
    for name, linear in zip(names, (*sublayer.inputs, sublayer.output), strict=True):
        require_plain(linear, where=f"{where}: {name}")


def _cut_heads(attention: Attention, kept: tuple[int, ...], uniform: tuple[int, ...]) -> None:
    heads = attention.units
    _cut(attention, sorted((*kept, *uniform)))
    attention.set_heads(kept=kept, uniform=uniform, heads=heads)
    if not attention.present:
        names = attention.names
        make_headless(
            attention.module,
            attention.inputs,
            attention.outputs,
            returns=names.returns,
            companion=names.companion.hidden_states if names.companion else None,
        )


def _cut_neurons(sublayer: FeedForward, kept: tuple[int, ...]) -> None:
    neurons = sublayer.units
    _cut(sublayer, kept)
    sublayer.set_neurons(kept=kept, neurons=neurons)
    if not kept:
        make_neuronless(sublayer.inputs, sublayer.output)


def _cut(sublayer: Sublayer, present: Sequence[int]) -> None:
    """Keep only the weights of these units, which must be present."""
    place_of = {unit: place for place, unit in enumerate(sublayer.present)}
    cut_units(
        sublayer.inputs,
        sublayer.outputs,
        places=[place_of[unit] for unit in present],
        units=len(place_of),
        blocks=sublayer.names.blocks,
    )
