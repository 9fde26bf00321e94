"""Learned gates of a model's units: a module with their parameters, and hooks that apply them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from headprune.components import LAYERS
from headprune.errors import UsageError
from headprune.gates import hard_concrete
from headprune.gates.hooks import LayerGate, add_gates
from headprune.model import PrunableLayer, PrunableSublayer, hidden_states_of
from headprune.plan import PruningPlan

INITIAL = 2.5
"""log alpha before training. The deterministic gate is exactly 1, so that a converged model starts
unchanged, and P(z > 0) is 0.964."""


LIMIT = 4.6
"""The largest absolute value of log alpha: beyond it gradients vanish and no gate could reopen."""


class LearnedGates(nn.Module):
    """The parameters of a Hard Concrete gate for each unit that a plan keeps.

    In training mode every forward pass draws the gates of each layer anew (Voita et al. 2019, one
    draw for all examples of a batch). A layer that a pass runs several times, since its weights are
    shared (ALBERT), has one draw a pass after ``draw_once_a_pass``. In evaluation mode the gates
    are deterministic. A layer's gate cannot be folded into weights, so the deterministic gate of a
    layer is rounded to 0 or 1.

    Args:
        plan: the components with gates, and the units of each layer that the model still has.
        speed: factor between the stored parameters and log alpha. With Adam, whose steps do not
            depend on the size of gradients, the gates then learn this many times faster than the
            weights.

    Raises:
        UsageError: a speed that is not positive or not finite.
    """

    speed: Tensor
    multiplier: Tensor  # lambda, the Lagrange multiplier of a target
    last_update: Tensor  # the update at which the multiplier last moved

    def __init__(self, plan: PruningPlan, *, speed: float = 1.0) -> None:
        super().__init__()
        require_speed(speed)
        self.plan = plan
        self.register_buffer("speed", torch.tensor(float(speed)))
        self.scaled = nn.ParameterDict(
            {
                _key(component, layer): nn.Parameter(torch.full((len(kept),), INITIAL / speed))
                for component, layers in plan.kept.items()
                for layer, kept in enumerate(layers)
                if kept
            }
        )
        self.register_buffer("multiplier", torch.zeros(()))
        self.register_buffer("last_update", torch.tensor(-1))
        self._given: Mapping[str, Sequence[Sequence[float]]] | None = None
        self._drawn: dict[str, Tensor] | None = None

    @property
    def components(self) -> tuple[str, ...]:
        """The components with gates."""
        return tuple(self.plan.kept)

    def log_alpha(self, component: str, layer: int) -> Tensor:
        """The parameters of the gates of one layer's units, (U',); empty where it has none."""
        key = _key(component, layer)
        if key not in self.scaled:
            return self.speed.new_zeros(0)
        log_alpha: Tensor = self.scaled[key].float() * self.speed
        return log_alpha

    @torch.no_grad()
    def constrain(self) -> None:
        """Bring every log alpha within ``LIMIT``; call it before each update."""
        limit = float(LIMIT / self.speed)
        for parameter in self.scaled.values():
            parameter.clamp_(-limit, limit)

    @torch.no_grad()
    def raise_multiplier(self, step: float, *, update: int) -> None:
        """Add ``step`` to the multiplier, once for each update, of however many batches it is.

        An earlier update than the last one begins a new training: the multiplier starts from 0.
        """
        if update < int(self.last_update):
            self.multiplier.zero_()
        if int(self.last_update) != update:
            self.multiplier += step
            self.last_update.fill_(update)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> LearnedGates:
        # In half precision the multiplier could not rise by small steps.
        super()._apply(fn, recurse)
        self.speed, self.multiplier = self.speed.float(), self.multiplier.float()
        return self

    def factors(self, component: str, layer: int) -> Tensor:
        """The gates of one layer's units for one forward pass, (U',)."""
        if not self.training:
            return self._fixed(component, layer)
        key = _key(component, layer)
        if self._drawn is not None and key in self._drawn:
            return self._drawn[key]
        gates = hard_concrete.sample(self.log_alpha(component, layer))
        if self._drawn is not None:
            self._drawn[key] = gates
        return gates

    def draw_once_a_pass(self, model: nn.Module) -> None:
        """Draw the gates of layers that ``model`` runs several times once for each forward pass."""
        self._drawn = {}
        model.register_forward_pre_hook(_NewPass(self))

    def forget_draws(self) -> None:
        """Let the next forward pass draw its gates."""
        if self._drawn is not None:
            self._drawn.clear()

    def __getstate__(self) -> dict[str, Any]:
        """The gates without the draws of a running pass, which cannot be copied."""
        return {**self.__dict__, "_drawn": None if self._drawn is None else {}}

    @contextmanager
    def set_to(self, values: Mapping[str, Sequence[Sequence[float]]]) -> Iterator[None]:
        """Let evaluations use these gates within this context.

        Args:
            values: the gates of the units that the plan keeps, by component and layer.
        """
        self._given = values
        try:
            yield
        finally:
            self._given = None

    def _fixed(self, component: str, layer: int) -> Tensor:
        if self._given is not None:
            return self.speed.new_tensor(self._given[component][layer])
        gates = hard_concrete.deterministic(self.log_alpha(component, layer))
        return (gates >= 0.5).to(gates.dtype) if component in LAYERS else gates

    def probabilities(self) -> dict[str, list[Tensor]]:
        """P(z > 0) of each unit, by component and layer."""
        return {
            component: [
                hard_concrete.probability_open(self.log_alpha(component, layer))
                for layer in range(len(layers))
            ]
            for component, layers in self.plan.kept.items()
        }

    def expected_open(self) -> dict[str, Tensor]:
        """The expected number of open units of each component: the L0 norm's expectation."""
        return {
            component: torch.stack([layer.sum() for layer in layers]).sum()
            for component, layers in self.probabilities().items()
        }

    @torch.no_grad()
    def values(self) -> dict[str, list[list[float]]]:
        """The deterministic gates of the units that the plan keeps, by component and layer."""
        return {
            component: [self._fixed(component, layer).tolist() for layer in range(len(layers))]
            for component, layers in self.plan.kept.items()
        }


def require_speed(speed: float) -> None:
    """Check the speed of gates.

    Raises:
        UsageError: it is not positive, or not finite.
    """
    if not 0 < speed < math.inf:
        raise UsageError(f"the speed of the gates is {speed}, it has to be positive")


def _key(component: str, layer: int) -> str:
    return f"{component}_{layer}"  # names of parameters cannot contain a dot


@dataclass(frozen=True)
class _NewPass:
    """A forward-pre-hook on a model: a new pass draws its gates anew."""

    gates: LearnedGates

    def __call__(self, _: nn.Module, inputs: Any) -> None:
        self.gates.forget_draws()


@dataclass(frozen=True)
class LearnedFactors:
    """Implements ``headprune.gates.Factors`` for one layer's learned gates."""

    gates: LearnedGates
    component: str
    layer: int

    def __call__(self, x: Tensor) -> Tensor:
        """The gates of the units present, (U',); () for a layer."""
        factors = self.gates.factors(self.component, self.layer).to(device=x.device, dtype=x.dtype)
        return factors.squeeze(0) if self.component in LAYERS else factors


def attach(
    gates: LearnedGates,
    *,
    sublayers: Mapping[str, Sequence[PrunableSublayer]],
    layers: Mapping[str, Sequence[PrunableLayer]],
) -> list[RemovableHandle]:
    """Let learned gates multiply the outputs of a model's units, until the hooks are removed.

    Args:
        sublayers, layers: the model's, by component. Units present are those of the gates' plan.
    """
    hooks: list[RemovableHandle] = []
    for component, kept in gates.plan.kept.items():
        for layer, units in enumerate(kept):
            if not units:
                continue
            factors = LearnedFactors(gates, component, layer)
            if component in LAYERS:
                whole_layer = layers[component][layer]
                gate = LayerGate(factors, hidden_states_of(whole_layer))
                hooks.append(
                    whole_layer.module.register_forward_hook(gate, with_kwargs=True, prepend=True)
                )
            else:
                hooks.extend(add_gates(sublayers[component][layer], factors))
    return hooks
