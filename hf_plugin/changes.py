"""How much each head's weights change while a model is fine-tuned (Budhraja et al. 2020, figure 2).

The change of a head is the mean of |after - before| over the weights that are the head's in W_q,
in W_k and in W_v (d rows of each, without biases), and of these three means the mean.
"""

from __future__ import annotations

import torch
from torch import Tensor
from transformers import AutoModel, PreTrainedModel

import hf_plugin.modeling  # noqa: F401  (the Auto classes must know the pruned models)
from headprune.errors import DataError, UsageError
from headprune.plan import HeadPlan
from headprune.report.changes import Values
from hf_plugin.families import Attention, attentions, family_of
from hf_plugin.folder_check import check_config, require_finite
from hf_plugin.places import place, reporting
from hf_plugin.quiet import quieten
from hf_plugin.surgery import head_plan


def load(model: str) -> PreTrainedModel:
    """Load the weights of a Hugging Face folder (or a model on the hub), pruned or not.

    They are loaded in float32, and without a task head.

    Raises:
        DataError: no model there, or one whose attention weights are not in its files or not
            finite.
    """
    quieten()  # the task head is left out, of which transformers would warn
    with reporting(f"{model}: cannot load the model"):
        check_config(place(model))
        loaded, report = AutoModel.from_pretrained(
            place(model), dtype=torch.float32, output_loading_info=True, trust_remote_code=False
        )
    wanted = {
        id(linear.weight)
        for layers in attentions(loaded).values()
        for attention in layers
        for linear in attention.inputs
    }
    require_finite(loaded, name=model)
    # transformers draws what it does not find at random, and that would count as change.
    for name, parameter in loaded.named_parameters():
        if id(parameter) in wanted and name in report["missing_keys"]:
            raise DataError(f"{model}: its files do not hold {name}")
    loaded.eval()
    return loaded  # type: ignore[no-any-return]


def head_changes(before: PreTrainedModel, after: PreTrainedModel) -> dict[str, Values]:
    """For each component, for each layer, each head's change; None for a head that `after` lacks.

    Args:
        before: the model that fine-tuning began with, or the unpruned one it was pruned from.
        after: the fine-tuned model. Heads are matched by their numbers in the unpruned model.

    Raises:
        UsageError: models of different families, shapes or widths, or `before` lacks heads that
            `after` has.
    """
    if family_of(before) != family_of(after):
        raise UsageError(f"one model is a {family_of(before)}, the other a {family_of(after)}")
    start, end = head_plan(before), head_plan(after)
    if start.heads != end.heads:
        raise UsageError(
            f"models of different shape: before {HeadPlan.full(start.heads)}, "
            f"after {HeadPlan.full(end.heads)}"
        )
    if not end.is_within(start):
        raise UsageError("the model after has heads that the one before has not")
    there, here = attentions(before), attentions(after)
    return {
        component: tuple(
            _of_layer(old, new, where=f"{component}: layer {number}")
            for number, (old, new) in enumerate(zip(there[component], layers, strict=True))
        )
        for component, layers in here.items()
    }


def _of_layer(old: Attention, new: Attention, *, where: str) -> tuple[float | None, ...]:
    changes: list[float | None] = [None] * new.heads
    for head in new.kept:
        before, after = _weights(old, head), _weights(new, head)
        if [w.shape for w in before] != [w.shape for w in after]:
            raise UsageError(f"{where}: the two models' heads are of different widths")
        means = [(b - a).abs().mean() for b, a in zip(after, before, strict=True)]
        changes[head] = float(torch.stack(means).mean())
    return tuple(changes)


def _weights(attention: Attention, head: int) -> list[Tensor]:
    """The rows of one head in W_q, W_k and W_v, each (d, D)."""
    place, present = attention.present.index(head), len(attention.present)
    # Some families have more projections than these three, such as DeBERTa's of positions.
    return [
        block.detach().unflatten(0, (present, -1))[place]
        for linear in attention.inputs[: len(attention.names.inputs)]
        for block in linear.weight.chunk(attention.names.blocks)
    ]
