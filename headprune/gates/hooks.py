"""Gates: factors on the outputs of units, for masks, ablation and gradients.

With h_u the output of unit u of a sub-layer and W_o^u its columns of the output projection,

    out = b_o + sum over u of xi_u h_u W_o^u      (Budhraja et al. 2020, equation 2, for heads)

so a gate multiplies the input of the output projection: a unit whose gate is 0 contributes what a
removed one does, for every implementation of attention and of the feed-forward network, and
gradients flow to xi. A unit that writes to several streams (of LiLT: text and layout) has one gate
for all of them. A layer's gate mixes its output with its input; at 0 the layer is skipped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from threading import get_ident
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from headprune.components import LAYERS
from headprune.model import (
    HIDDEN_STATES,
    PrunableLayer,
    PrunableSublayer,
    Stream,
    companions_of,
    hidden_states_of,
)
from headprune.plan import PruningPlan

Factors = Tensor | Callable[[Tensor], Tensor]
"""xi of all units of the unpruned sub-layer, (U,); or a function from the input of the output
projection (of a layer: its input), ... x U'd, to factors of the units present, ... x U'.
"""


@dataclass(frozen=True)
class Gate:
    """A forward-pre-hook on the output projection of a sub-layer."""

    sublayer: PrunableSublayer
    factors: Factors
    shared_factors: dict[int, list[Tensor]] = field(default_factory=dict, compare=False)
    """Factors that gates of companion streams have not used yet, of the pass in each thread."""

    def __getstate__(self) -> dict[str, Any]:
        """The gate without the factors of a running pass, which no copy needs."""
        return {**self.__dict__, "shared_factors": {}}

    def __call__(self, _: nn.Module, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        x: Tensor = inputs[0]  # ... x U'd, the units' outputs side by side
        if isinstance(self.factors, Tensor):
            xi = self.factors.to(device=x.device, dtype=x.dtype)[list(self.sublayer.present)]
        else:
            xi = self.factors(x)
        if companions := companions_of(self.sublayer):
            self.shared_factors[get_ident()] = [xi] * len(companions)
        return (x * xi.repeat_interleave(self.sublayer.unit_size, dim=-1), *inputs[1:])


@dataclass(frozen=True)
class CompanionGate:
    """A forward-pre-hook on the output projection of a sub-layer's companion stream.

    It takes the factors of the sub-layer's own gate: functions may draw others in each call.
    """

    gate: Gate
    stream: Stream

    @property
    def factors(self) -> Factors:
        """The factors of the sub-layer's own gate."""
        return self.gate.factors

    def __call__(self, _: nn.Module, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        x: Tensor = inputs[0]  # ... x U'd, the units' outputs side by side
        xi = self.gate.shared_factors[get_ident()].pop()
        return (x * xi.repeat_interleave(self.stream.unit_size, dim=-1), *inputs[1:])


def add_gates(sublayer: PrunableSublayer, factors: Factors) -> list[RemovableHandle]:
    """Multiply the outputs of a sub-layer's units, in all streams, until the hooks are removed."""
    gate = Gate(sublayer, factors)
    hooks = [sublayer.output.register_forward_pre_hook(gate)]
    for stream in companions_of(sublayer):
        hooks.append(stream.output.register_forward_pre_hook(CompanionGate(gate, stream)))
    return hooks


@dataclass(frozen=True)
class LayerGate:
    """A forward hook on a layer: xi times its output plus 1 - xi times its input.

    Attributes:
        factors: xi.
        hidden_states: see ``headprune.model.hidden_states_of``.
    """

    factors: Factors
    hidden_states: tuple[str, ...] = HIDDEN_STATES

    def __call__(
        self, _: nn.Module, inputs: tuple[Any, ...], options: Mapping[str, Any], output: Any
    ) -> Any:
        positional = inputs[: len(self.hidden_states)]
        before = (*positional, *(options[name] for name in self.hidden_states[len(positional) :]))
        x: Tensor = before[0]
        if isinstance(self.factors, Tensor):
            xi = self.factors.to(device=x.device, dtype=x.dtype)
        else:
            xi = self.factors(x)  # ... x 1
        if isinstance(output, Tensor):
            return xi * output + (1 - xi) * x  # exact at 0 and 1
        after = output[: len(before)]
        mixed = (xi * y + (1 - xi) * x for x, y in zip(before, after, strict=True))
        return (*mixed, *output[len(before) :])


def is_skipped(layer: nn.Module) -> bool:
    """Check if LayerDrop has skipped a layer in its last forward pass.

    Functions that draw the factor of a layer say so in an attribute ``skipped``.
    """
    hooks = layer._forward_hooks.values()
    return any(isinstance(h, LayerGate) and getattr(h.factors, "skipped", False) for h in hooks)


@contextmanager
def gated(gates: Iterable[tuple[PrunableSublayer, Factors]]) -> Iterator[None]:
    """Within this context, multiply the outputs of units; nested gates multiply."""
    with ExitStack() as hooks:
        for sublayer, factors in gates:
            for hook in add_gates(sublayer, factors):
                hooks.callback(hook.remove)
        yield


@contextmanager
def gated_layers(gates: Iterable[tuple[PrunableLayer, Factors]]) -> Iterator[None]:
    """Within this context, mix the outputs of layers with their inputs."""
    with ExitStack() as hooks:
        for layer, factors in gates:
            # Hooks that record hidden states run later and see the gated ones.
            gate = LayerGate(factors, hidden_states_of(layer))
            hook = layer.module.register_forward_hook(gate, with_kwargs=True, prepend=True)
            hooks.callback(hook.remove)
        yield


@contextmanager
def gated_by_component(
    xi: Mapping[str, Sequence[Tensor]],
    *,
    sublayers: Mapping[str, Sequence[PrunableSublayer]],
    layers: Mapping[str, Sequence[PrunableLayer]],
) -> Iterator[None]:
    """Within this context, gate the units of some components of a model.

    Args:
        xi: for each gated component, for each layer, (U,); (1,) for whole layers.
        sublayers, layers: the model's, by component.
    """
    with ExitStack() as stack:
        for component, by_layer in xi.items():
            if component in LAYERS:
                stack.enter_context(gated_layers(zip(layers[component], by_layer, strict=True)))
            else:
                stack.enter_context(gated(zip(sublayers[component], by_layer, strict=True)))
        yield


def mask_of(plan: PruningPlan) -> dict[str, list[Tensor]]:
    """The gates xi (U,) of each component and layer: 1 for kept units, 0 for all others."""
    return {
        component: [
            torch.zeros(units).index_fill_(0, torch.tensor(kept, dtype=torch.long), 1.0)
            for kept, units in zip(layers, plan.units[component], strict=True)
        ]
        for component, layers in plan.kept.items()
    }


def masked_units(sublayer: PrunableSublayer) -> frozenset[int]:
    """The units whose gate is 0 at the moment, by their numbers in the unpruned model."""
    hooks = sublayer.output._forward_pre_hooks.values()
    return frozenset(
        unit
        for gate in hooks
        if isinstance(gate, Gate) and isinstance(gate.factors, Tensor)
        for unit in (gate.factors.detach() == 0).nonzero().flatten().tolist()
    )
