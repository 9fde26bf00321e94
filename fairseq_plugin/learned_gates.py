"""Learned gates (see ``headprune.gates.learned``) in fairseq models and among their weights."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from torch import Tensor

from fairseq_plugin.shape import complete_plan, model_shape, sizes_of
from headprune.budget import Budget, base_measure
from headprune.components import COMPONENTS
from headprune.errors import DataError, UsageError
from headprune.gates.learned import LearnedGates, attach
from headprune.gates.penalty import expected_share
from headprune.plan import PruningPlan

logger = logging.getLogger(__name__)

PREFIX = "gates."
"""The beginning of the names of gate parameters among a model's weights."""

_SPEED, _SCALED = f"{PREFIX}speed", f"{PREFIX}scaled."

GATE_OPTIONS = ("gates", "gates_speed", "gates_only")
"""The model's options that concern learned gates."""


def gates_of(args: Any, plan: PruningPlan) -> LearnedGates | None:
    """The untrained gates that a model's options ask for; None where they ask for none.

    Args:
        args: the model's options.
        plan: the units that the model keeps.

    Raises:
        UsageError: unknown components, components without units, form ``mask``, or no speed; or
            the option to train gates alone without gates.
    """
    text = getattr(args, "gates", None)
    if not text:
        if getattr(args, "gates_only", False):
            raise UsageError("--gates-only goes with --gates, for example --gates ES,ED,DS")
        return None
    shape = model_shape(args)
    names = [name.strip().upper() for name in text.split(",")]
    for name in names:
        if name not in shape:
            raise UsageError(f"--gates {text}: {name!r} is not one of {', '.join(shape)}")
    if str(args.head_form) == "mask":
        raise UsageError("--gates needs --head-form remove: masked units have no gates")
    kept = complete_plan(plan, args).part(names)
    assert kept is not None
    for name, units in kept.kept.items():
        if not any(units):
            raise UsageError(f"--gates {text}: the plan keeps no unit of {name}")
    speed = getattr(args, "gates_speed", None)
    return LearnedGates(kept, speed=1.0 if speed is None else float(speed))


def add_gates(model: Any) -> None:
    """Give a model the gates that its options ask for, as ``model.gates``.

    Raises:
        UsageError: see ``gates_of``; or the plan prunes more than the target of the training.
    """
    gates = gates_of(model.args, model.plan)
    if gates is None:
        return
    # Before the first update: for errors in it fairseq writes crash.pt. The model's options are
    # all of the training's, those of the criterion among them.
    if target := target_in(model.args):
        expected_share(gates.plan, target, sizes=lambda: sizes_of(model.args))
    from fairseq_plugin.scores.model import FairseqModel

    parts = FairseqModel(model)
    attach(gates, sublayers=parts.sublayers, layers=parts.layers)
    if getattr(model.args, "gates_only", False):
        for parameter in model.parameters():
            parameter.requires_grad_(False)
    model.gates = gates


def fit_gates(weights: dict[str, Tensor], gates: LearnedGates | None) -> None:
    """Add untrained gates to the weights of a checkpoint without gates, in place.

    Gates that it has get the speed of the model's, and stay as open as they are.

    Raises:
        DataError: the weights have gates and the model has none, or gates on other units.
    """
    stored = stored_gates(weights)
    if gates is None:
        if stored:
            raise DataError(
                f"the checkpoint has learned gates on {_components(stored)}, the model has none; "
                "close them first with `headprune gates CHECKPOINT -o plan.json --model OUT`, or "
                f"train with --gates {_components(stored)}"
            )
        return
    wanted = {PREFIX + name: tensor for name, tensor in gates.state_dict().items()}
    if not stored:
        logger.info(f"the checkpoint has no gates: {','.join(gates.components)} start open")
        weights.update(wanted)
        return
    if stored.keys() != wanted.keys() or any(
        stored[name].shape != tensor.shape for name, tensor in wanted.items()
    ):
        raise DataError(
            f"the checkpoint has learned gates on {_components(stored)} that are not those of "
            f"--gates {','.join(gates.components)} on the units of this plan; close them first "
            "with `headprune gates`"
        )
    ratio = float(stored[_SPEED]) / float(gates.speed)
    if ratio != 1:  # log alpha is the product of the speed and the parameters
        weights[_SPEED] = gates.speed.clone()
        for name, tensor in stored.items():
            if name.startswith(_SCALED):
                weights[name] = tensor * ratio


def stored_gates(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors of gates among a model's weights, by their names in these."""
    return {name: tensor for name, tensor in weights.items() if name.startswith(PREFIX)}


def target_budget(text: str, measure: str) -> Budget:
    """The budget of ``--l0-target`` and ``--l0-target-of``.

    Raises:
        UsageError: no percentage, or two measures that contradict each other.
    """
    budget = Budget.parse(text, option="--l0-target")
    if measure == "units" or base_measure(budget.of) == measure:
        return budget
    if budget.of != "units":
        raise UsageError(f"--l0-target {text!r} contradicts --l0-target-of {measure}")
    return Budget(budget.percent, measure)


def target_in(options: Any) -> Budget | None:
    """The target of the gates' training in options of a criterion; None without one.

    Raises:
        UsageError: see ``target_budget``.
    """
    text = getattr(options, "l0_target", None)
    if not isinstance(text, str):
        return None
    return target_budget(text, str(getattr(options, "l0_target_of", None) or "units"))


def _components(stored: Mapping[str, Tensor]) -> str:
    names = {name.rpartition(".")[2].partition("_")[0] for name in stored if ".scaled." in name}
    return ",".join(component for component in COMPONENTS if component in names)
