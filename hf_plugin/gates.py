"""Learned gates in Hugging Face models: a Trainer that closes them, and their closing.

>>> trainer = L0Trainer(model, arguments, gates="ES,EF", l0_target="60%", train_dataset=data)
... # doctest: +SKIP
>>> trainer.train()  # doctest: +SKIP
>>> close_gates(model).save_pretrained("pruned")  # doctest: +SKIP

The gates are a module of the model, so that the Trainer's checkpoints contain them and a resumed
training continues with them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from headprune.budget import Budget
from headprune.components import COMPONENTS
from headprune.cost import Sizes
from headprune.errors import DataError, UsageError, reason_of
from headprune.gates.closing import closed, folded, warn_of_open_gates
from headprune.gates.hooks import CompanionGate, Gate, LayerGate
from headprune.gates.learned import LearnedFactors, LearnedGates, attach, require_speed
from headprune.gates.penalty import L0Penalty, Penalty, TargetPenalty, require_warmup
from headprune.model import streams_of
from headprune.plan import PruningPlan
from hf_plugin.families import passes_through_layers, stacks, sublayers
from hf_plugin.modeling import GATES, prune
from hf_plugin.plans import model_shape
from hf_plugin.plans import plan as plan_of_model
from hf_plugin.trainer import ResumableTrainer

TARGET = "headprune_gate_target"
"""The entry of a config with the target that the gates were trained to."""


def add_gates(model: PreTrainedModel, components: str, *, speed: float = 1.0) -> LearnedGates:
    """Add learned gates to a model, in place; they start open and leave it unchanged.

    Args:
        model: any that can be pruned.
        components: those whose units get gates, with commas: ``ES,EF``.
        speed: see ``LearnedGates``.

    Raises:
        UsageError: a component that the model does not have or that has no units, or a model that
            has gates already.
    """
    if gates_of(model) is not None:
        raise UsageError("the model has learned gates already; close them first")
    if any(part.present != part.kept for parts in sublayers(model).values() for part in parts):
        raise UsageError("a model with uniform heads cannot have gates; remove these heads")
    gates = LearnedGates(_gated_plan(model, components.split(",")), speed=speed)
    gates.to(model.device)
    gates.train(model.training)
    model.add_module(GATES, gates)
    setattr(model.config, GATES, ",".join(gates.components))
    attach(gates, sublayers=sublayers(model), layers=stacks(model))
    if passes_through_layers(model) is not None:
        gates.draw_once_a_pass(model)
    return gates


def gates_of(model: PreTrainedModel) -> LearnedGates | None:
    """The learned gates of a model; None where it has none."""
    gates: LearnedGates | None = getattr(model, GATES, None)
    return gates


def close_gates(model: PreTrainedModel) -> PreTrainedModel:
    """Prune a model, in place, to the units with open gates, and fold these into its weights.

    Raises:
        UsageError: the model has no gates, or a layer that cannot be pruned.
    """
    gates = gates_of(model)
    if gates is None:
        raise UsageError("the model has no learned gates")
    target = target_of(model)
    warn_of_open_gates(gates, target=target, sizes=lambda: _sizes(model), where="the model")
    outcome = closed(gates, target=target, sizes=lambda: _sizes(model))
    parts = sublayers(model)
    with torch.no_grad():
        for component, layers in outcome.values.items():
            for layer, values in enumerate(layers):
                if component in parts:
                    for stream in streams_of(parts[component][layer]):
                        columns = stream.as_columns(stream.output.weight)  # C x U'd
                        columns.copy_(folded(columns, values))
    _remove_gates(model)
    for entry in (GATES, TARGET):
        if hasattr(model.config, entry):
            delattr(model.config, entry)
    return prune(model, outcome.plan)


def target_of(model: PreTrainedModel) -> Budget | None:
    """The target that a model's gates were trained to; None without one.

    Raises:
        UsageError: the config's entry is no target.
    """
    target = getattr(model.config, TARGET, None)
    return Budget.parse(target) if isinstance(target, str) else None


def _remove_gates(model: PreTrainedModel) -> None:
    for module in model.modules():
        hooks: list[dict[int, Any]] = [module._forward_pre_hooks, module._forward_hooks]
        for registered in hooks:
            for key, hook in list(registered.items()):
                is_gate = isinstance(hook, (Gate, CompanionGate, LayerGate))
                if is_gate and isinstance(hook.factors, LearnedFactors):
                    del registered[key]
                    module._forward_hooks_with_kwargs.pop(key, None)
    delattr(model, GATES)


def _gated_plan(model: PreTrainedModel, components: list[str]) -> PruningPlan:
    shape = model_shape(model)
    names = [name.strip().upper() for name in components]
    for name in names:
        if name not in shape:
            raise UsageError(f"gates: {name!r} is not one of {', '.join(shape)}")
    plan = plan_of_model(model).units_left(shape).part(names)
    assert plan is not None
    for name, layers in plan.kept.items():
        if not any(layers):
            raise UsageError(f"gates: the model has no unit of {name} left")
    return plan


def stored_gates(model: PreTrainedModel, weights: Mapping[str, Tensor]) -> LearnedGates | None:
    """The gates in the weights of a folder; None where there are none.

    Args:
        model: the model of the folder's config, without gates.
        weights: the tensors of the folder whose names begin with ``GATES``.

    Raises:
        DataError: they do not fit the model.
    """
    if not weights:
        return None
    own = {name.removeprefix(f"{GATES}."): tensor for name, tensor in weights.items()}
    names = {name.split(".")[1].partition("_")[0] for name in own if name.startswith("scaled.")}
    try:
        gates = LearnedGates(_gated_plan(model, [name for name in COMPONENTS if name in names]))
        gates.load_state_dict(own)
    except (UsageError, RuntimeError) as error:
        raise DataError(f"the gates do not fit the model ({reason_of(error)})") from None
    return gates.eval()


class L0Trainer(ResumableTrainer):
    """transformers' Trainer for a model with learned gates.

    The log has the expected number of open units of each component (``open_ES``). Its training loss
    contains the penalty, the losses of evaluations do not. The gates are trained by the Trainer's
    own optimizer, ``gates_speed`` times faster than the weights. With a target, evaluations also
    have the metrics after closing (``eval_closed_loss``).

    Args:
        model: any that can be pruned; gates are added to it.
        gates: the components with gates, with commas: ``ES,EF``. Default: those of the model's
            gates if it has some, else ``ES``.
        l0_lambda: the weight of the expected number of open units in the loss.
        l0_target: instead: the share to prune, such as ``60%`` or ``60% of parameters``.
        l0_warmup_updates: updates during which the target rises evenly from the share that is
            pruned already.
        gates_speed: the learning rate of the gates in multiples of that of the weights.
        gates_only: leave all weights as they are.
        options: all other arguments of the Trainer.

    Raises:
        UsageError: not one of ``l0_lambda`` and ``l0_target``, numbers out of range, gates that the
            model cannot have, or a model that has gates on other components.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        *arguments: Any,
        gates: str | None = None,
        l0_lambda: float | None = None,
        l0_target: str | None = None,
        l0_warmup_updates: int = 0,
        gates_speed: float = 1000.0,
        gates_only: bool = False,
        **options: Any,
    ) -> None:
        if (l0_lambda is None) == (l0_target is None):
            raise UsageError("give one of l0_lambda and l0_target")
        if l0_target is None and l0_warmup_updates:
            raise UsageError("l0_warmup_updates goes with l0_target")
        require_warmup(l0_warmup_updates)
        require_speed(gates_speed)
        learned = gates_of(model) or add_gates(model, gates or "ES")
        asked = learned.components if gates is None else gates.upper().split(",")
        if {name.strip() for name in asked} != set(learned.components):
            raise UsageError(
                f"gates {gates}: the model has gates on {','.join(learned.components)}; close them "
                "first"
            )
        self.gates_speed = gates_speed
        self.l0_penalty: Penalty
        if l0_target is None:
            assert l0_lambda is not None
            self.l0_penalty = L0Penalty(l0_lambda)
            if hasattr(model.config, TARGET):  # of an earlier training; it would close gates
                delattr(model.config, TARGET)
        else:
            budget = Budget.parse(l0_target, option="l0_target")
            self.l0_penalty = TargetPenalty.of_plan(
                learned.plan, budget, warmup=l0_warmup_updates, sizes=lambda: _sizes(model)
            )
            setattr(model.config, TARGET, l0_target)
        learned.requires_grad_(True)
        self.gates_only = gates_only
        self.learned_gates, self.learned_model = learned, model
        super().__init__(model, *arguments, **options)

    def train(self, *arguments: Any, **options: Any) -> Any:
        """Train. With ``gates_only`` the weights are frozen meanwhile.

        Weights that were frozen before stay frozen in any case.
        """
        gates = set(self.learned_gates.parameters())
        frozen = [
            weight
            for weight in self.learned_model.parameters()
            if self.gates_only and weight.requires_grad and weight not in gates
        ]
        for weight in frozen:
            weight.requires_grad_(False)
        try:
            return super().train(*arguments, **options)
        finally:
            for weight in frozen:
                weight.requires_grad_(True)

    def create_optimizer(self, *arguments: Any, **options: Any) -> torch.optim.Optimizer:
        """Create the Trainer's optimizer, in which the gates have a learning rate of their own.

        Gradients that were scaled instead would count in the norm that ``max_grad_norm`` limits,
        and slow the weights down.
        """
        if self.optimizer is not None:
            return self.optimizer  # the user's
        optimizer: torch.optim.Optimizer = super().create_optimizer(*arguments, **options)
        gates = set(self.learned_gates.parameters())
        for group in optimizer.param_groups:
            group["params"] = [p for p in group["params"] if p not in gates]
        rate = optimizer.defaults["lr"] * self.gates_speed / float(self.learned_gates.speed)
        own = {"params": list(self.learned_gates.parameters()), "lr": rate, "weight_decay": 0.0}
        optimizer.add_param_group(own)
        return optimizer

    def compute_loss(
        self,
        model: torch.nn.Module,
        inputs: dict[str, Tensor | Any],
        return_outputs: bool = False,
        num_items_in_batch: Tensor | int | None = None,
    ) -> Any:
        """The loss of the task; in training, plus the penalty."""
        gates = self.learned_gates
        if gates.training:
            gates.constrain()
        outcome: Any = super().compute_loss(model, inputs, return_outputs, num_items_in_batch)
        if not gates.training:
            return outcome
        penalty = self.l0_penalty(gates, update=self.state.global_step)
        penalty = self.scaled_like_task_loss(penalty, num_items_in_batch)
        if return_outputs:
            return outcome[0] + penalty, outcome[1]
        return outcome + penalty

    def evaluate(
        self,
        eval_dataset: Any = None,
        ignore_keys: list[str] | None = None,
        metric_key_prefix: str = "eval",
    ) -> dict[str, float]:
        """Evaluate with the deterministic gates, and with a target also after closing.

        A target closes more gates or fewer than the deterministic ones. The metrics of the model
        that ``close_gates`` would make now are called ``eval_closed_...``.
        """
        metrics: dict[str, float] = super().evaluate(eval_dataset, ignore_keys, metric_key_prefix)
        target = target_of(self.learned_model)
        dataset = self.eval_dataset if eval_dataset is None else eval_dataset
        if target is None or isinstance(dataset, dict):  # super() evaluates each of several sets
            return metrics
        outcome = closed(
            self.learned_gates, target=target, sizes=lambda: _sizes(self.learned_model)
        )
        with self.learned_gates.set_to(outcome.values):
            output = self.evaluation_loop(
                self.get_eval_dataloader(eval_dataset),
                description="Evaluation with closed gates",
                prediction_loss_only=True if self.compute_metrics is None else None,
                ignore_keys=ignore_keys,
                metric_key_prefix=f"{metric_key_prefix}_closed",
            )
        closed_metrics = output.metrics or {}
        self.log(closed_metrics)
        metrics |= closed_metrics
        return metrics

    def log(self, logs: dict[str, float], *arguments: Any, **options: Any) -> None:
        """Log the expected number of open units too."""
        if any(name == "loss" or name.endswith("_loss") for name in logs):
            for component, number in self.learned_gates.expected_open().items():
                logs[f"open_{component}"] = round(float(number.detach()), 3)
            if isinstance(self.l0_penalty, TargetPenalty):
                share = self.l0_penalty.share(self.learned_gates.probabilities())
                logs["l0_pruned"] = round(100 * (1 - float(share.detach())), 3)
                logs["l0_multiplier"] = round(float(self.learned_gates.multiplier), 3)
        super().log(logs, *arguments, **options)


def _sizes(model: PreTrainedModel) -> Sizes:
    from pathlib import Path

    from hf_plugin.folders import Folder

    return Folder(Path(), model).sizes
