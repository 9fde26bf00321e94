"""Changes of the heads' weights during fine-tuning (Budhraja et al. 2020, figure 2).

For each of W_q, W_k and W_v, the mean of |after - before| over the d rows of a head is computed,
without biases. The change of the head is the mean of these three numbers.
"""

from __future__ import annotations

import torch
from torch import Tensor
from transformers import AutoModel, PreTrainedModel

import hf_plugin.modeling  # noqa: F401  (the Auto classes must know the pruned models)
from headprune.errors import DataError, UsageError
from headprune.plan import HeadPlan
from headprune.results.changes import Values
from hf_plugin.cutting import rows_of
from hf_plugin.families import attentions, family_of
from hf_plugin.folder_check import check_config, require_finite
from hf_plugin.places import place, reporting
from hf_plugin.plans import head_plan
from hf_plugin.quiet import quieten
from hf_plugin.sublayers import Attention


def load(model: str) -> PreTrainedModel:
    """Load the encoder of a Hugging Face folder (or of a model on the hub) in float32.

    Raises:
        DataError: there is no model, or its attention weights are missing or not finite.
    """
    quieten()  # transformers would warn that the task head is not loaded
    with reporting(f"{model}: cannot load the model"):
        check_config(place(model))
        loaded, report = AutoModel.from_pretrained(
            place(model), dtype=torch.float32, output_loading_info=True, trust_remote_code=False
        )
    projections = {
        id(linear.weight)
        for layers in attentions(loaded).values()
        for attention in layers
        for linear in attention.inputs
    }
    require_finite(loaded, name=model)
    # transformers draws what it does not find at random, and that would count as change.
    for name, parameter in loaded.named_parameters():
        if id(parameter) in projections and name in report["missing_keys"]:
            raise DataError(f"{model}: its files do not hold {name}")
    loaded.eval()
    return loaded  # type: ignore[no-any-return]


def head_changes(before: PreTrainedModel, after: PreTrainedModel) -> dict[str, Values]:
    """Compute the change of each head, by component and layer; None for heads pruned in `after`.

    Args:
        before: the model that fine-tuning began with, or the unpruned model that was pruned before.
        after: the fine-tuned model. Heads are matched by their numbers in the unpruned model.

    Raises:
        UsageError: the models differ in family, shape or width, or `before` lacks heads that
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
        raise UsageError("the fine-tuned model has heads that the model before fine-tuning lacks")
    old_attentions = attentions(before)
    return {
        component: tuple(
            _of_layer(old, new, where=f"{component}: layer {layer_index}")
            for layer_index, (old, new) in enumerate(
                zip(old_attentions[component], layers, strict=True)
            )
        )
        for component, layers in attentions(after).items()
    }


def _of_layer(old: Attention, new: Attention, *, where: str) -> tuple[float | None, ...]:
    changes: list[float | None] = [None] * new.units
    for head in new.kept:
        before, after = _weights(old, head), _weights(new, head)
        if [w.shape for w in before] != [w.shape for w in after]:
            raise UsageError(f"{where}: the two models' heads are of different widths")
        means = [(b - a).abs().mean() for b, a in zip(after, before, strict=True)]
        changes[head] = float(torch.stack(means).mean())
    return tuple(changes)


def _weights(attention: Attention, head: int) -> list[Tensor]:
    """Select the rows of one head in W_q, W_k and W_v, each d x D."""
    place, present = attention.present.index(head), len(attention.present)
    # Some families have more projections than these three; DeBERTa has some for positions.
    return [
        block.detach().unflatten(0, (present, -1))[place]
        for linear in attention.inputs[: len(attention.names.inputs)]
        for block in rows_of(linear).chunk(attention.names.blocks)
    ]
