"""Masks: heads, neurons and layers of a Hugging Face model that contribute nothing, or in part."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from torch import Tensor
from transformers import PreTrainedModel

from headprune.components import HEADS, unit_name
from headprune.errors import UsageError
from headprune.gates import gated_by_component, mask_of
from headprune.plan import PruningPlan, Shape
from hf_plugin.families import family_of, stacks, sublayers
from hf_plugin.plans import model_shape

Gates = Mapping[str, Tensor]
"""For some components, xi: a tensor (layers, units), for whole layers (layers, 1)."""


@contextmanager
def masked(
    model: PreTrainedModel, plan_or_xi: PruningPlan | Tensor | Gates
) -> Iterator[PreTrainedModel]:
    """Within this context, multiply the output of each head and neuron by xi, or skip layers.

    Heads and neurons are multiplied before the output projection. A layer gives xi times its output
    plus 1 - xi times its input. This works with every attention implementation, nests (the gates
    multiply), and leaves the model as it was. Gradients flow to xi; with gradient checkpointing,
    call ``backward`` within the context too, as the layers run again there.

    Args:
        model: any that can be pruned, not compiled. It may be pruned: gates of units that are gone
            do nothing; uniform heads still have an output, and a gate.
        plan_or_xi: a plan (kept units 1, others 0), or xi, a tensor (layers, heads) with the
            numbering of the unpruned model; or a dict of such tensors by component, (layers,
            neurons) for feed-forward sub-layers and (layers, 1) for whole layers. Components that
            are not named stay as they are.

    Raises:
        UsageError: a plan or xi of another shape, or a model that cannot be pruned, or is compiled:
            compiled code would not notice the gates. (What ``torch.compile(model)`` returned cannot
            be seen here; do not run it within.)

    Example:
        >>> with masked(model, xi):  # doctest: +SKIP
        ...     model(**batch).loss.backward()
    """
    if getattr(model, "_compiled_call_impl", None) is not None:
        raise UsageError("the model is compiled and would not notice gates; mask it uncompiled")
    gates = _gates(plan_or_xi, model_shape(model), family=family_of(model))
    with gated_by_component(gates, sublayers=sublayers(model), layers=stacks(model)):
        yield model


def _gates(
    given: PruningPlan | Tensor | Gates, shape: Shape, *, family: str
) -> dict[str, Sequence[Tensor]]:
    """The gates xi (units,) of each layer, for each gated component."""
    if isinstance(given, PruningPlan):
        given.require_shape(shape, of=f"the {family} model")
        return dict(mask_of(given))
    if isinstance(given, Tensor):
        with_heads = [name for name in shape if name in HEADS]
        if len(with_heads) > 1:
            raise UsageError(
                f"the {family} model has heads in {', '.join(with_heads)}: give xi as a dict of "
                "tensors by component"
            )
        given = dict.fromkeys(with_heads, given)
    if not isinstance(given, Mapping):
        raise UsageError(f"give a HeadPlan or xi as a tensor, not {type(given).__name__}")
    if not given or not set(given) <= set(shape):
        raise UsageError(
            f"xi is given for {', '.join(map(str, given)) or 'no component'}, the {family} model "
            f"has {', '.join(shape)}"
        )
    for name, xi in given.items():
        expected = (len(shape[name]), shape[name][0])
        if not isinstance(xi, Tensor) or tuple(xi.shape) != expected:
            what = tuple(xi.shape) if isinstance(xi, Tensor) else type(xi).__name__
            raise UsageError(
                f"{name}: xi is {what}, the {family} model has (layers, {unit_name(name)}s) = "
                f"{expected}"
            )
    return {name: xi.unbind(0) for name, xi in given.items()}
