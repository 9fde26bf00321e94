"""Taking heads out of a Hugging Face model, and masking them.

``cut_to`` leaves out the weights of heads, ``masked`` multiplies their outputs by xi (Budhraja et
al. 2020, equation 2); with the same heads at 0 the two give the same outputs. ``make_uniform``
multiplies the attention *scores* by 0 before the softmax, so that a pruned head averages the values
of all tokens evenly, and still contributes. That paper's released code for BERT exists in two
versions: the upload of October 2020 (commit fce4ec0 of its repository) does what ``make_uniform``
does, the one of 1 November 2021 (commit ede5793) multiplies the probabilities after the softmax,
which is equation 2.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from headprune.errors import UsageError
from headprune.plan import HeadPlan, is_whole
from headprune.surgery import COLUMNS, ROWS, cut
from hf_plugin.families import Attention, attentions, family_of
from hf_plugin.headless import can_be_headless, make_headless

Heads = Mapping[int, Iterable[int]]
"""For some layers, the heads to prune; layers below 0 count from the top."""

Gates = Mapping[str, Tensor]
"""For each component, xi: a tensor (layers, heads)."""


def head_plan(model: PreTrainedModel) -> HeadPlan:
    """Which heads of ``model`` are left, in the unpruned model's numbering.

    Raises:
        UsageError: a model that cannot be pruned.
    """
    found = attentions(model)
    return HeadPlan(
        kept={name: [attention.kept for attention in layers] for name, layers in found.items()},
        heads={name: [attention.heads for attention in layers] for name, layers in found.items()},
    )


def plan_after(
    model: PreTrainedModel, request: HeadPlan | Heads, *, form: str = "remove"
) -> HeadPlan:
    """The heads that ``model`` keeps when ``request`` has been carried out.

    Args:
        model: any that can be pruned; it may have been pruned before.
        request: the plan to arrive at, or the heads to take away besides those that are gone.
            Heads that are gone already may be among them, as in transformers 4.
        form: ``remove`` or ``uniform``, the form in which it will be carried out.

    Raises:
        UsageError: a plan of another shape, a layer or head that does not exist, a head to remove
            that is uniform, or a dict for a model with more components than one.
    """
    now = head_plan(model)
    if isinstance(request, HeadPlan):
        request.require_shape(now.heads, of=f"the {family_of(model)} model")
        for name, layers in request.kept.items():
            for layer, kept in enumerate(layers):
                gone = sorted(set(kept) - set(now.kept[name][layer]))
                if gone:
                    raise UsageError(
                        f"{name}: layer {layer}: the plan keeps head {gone[0]}, which was pruned "
                        "before; a pruned head does not come back"
                    )
        return request
    if not isinstance(request, Mapping):
        raise UsageError(
            f"give a HeadPlan or a dict {{layer: [heads]}}, not {type(request).__name__}"
        )
    if len(now.kept) > 1:
        raise UsageError(
            f"the {family_of(model)} model has heads in {', '.join(now.kept)}: say which with a "
            "HeadPlan, a dict of layers does not"
        )
    (component,) = now.kept
    left = list(now.kept[component])
    seen: dict[int, object] = {}
    for given, heads in request.items():
        layer = _layer(given, layers=len(left), component=component)
        if layer in seen:
            raise UsageError(
                f"{component}: layer {layer} is given twice, as {seen[layer]} and {given}"
            )
        seen[layer] = given
        total = now.heads[component][layer]
        where = f"{component}: layer {layer}"
        pruned = _heads(heads, total=total, where=where)
        uniform = pruned.intersection(attentions(model)[component][layer].uniform)
        if uniform and form == "remove":
            raise UsageError(
                f"{where}: head {min(uniform)} is uniform; to remove uniform heads give a HeadPlan"
            )
        left[layer] = tuple(head for head in left[layer] if head not in pruned)
    return HeadPlan(kept={component: left}, heads=now.heads)


def cut_to(model: PreTrainedModel, plan: HeadPlan, *, spare_uniform: bool = False) -> None:
    """Cut out of ``model``, in place, the weights of the heads that ``plan`` does not keep.

    Parameters of changed layers are new objects: make the optimizer afterwards.

    Args:
        model: any that can be pruned.
        plan: one of ``plan_after(model, ...)``.
        spare_uniform: leave heads that were made uniform before as they are.

    Raises:
        UsageError: a layer would be left without heads whose attention is of a class of its own;
            nothing was cut.
    """
    found = attentions(model)
    for name, layers in found.items():
        for layer, (attention, kept) in enumerate(zip(layers, plan.kept[name], strict=True)):
            spared = attention.uniform if spare_uniform else ()
            if not kept and not spared and not can_be_headless(attention.module):
                kind = type(attention.module).__name__
                raise UsageError(
                    f"{name}: layer {layer}: all heads of a {kind} cannot be removed; keep one"
                )
    for name, layers in found.items():
        for attention, kept in zip(layers, plan.kept[name], strict=True):
            uniform = attention.uniform if spare_uniform else ()
            if (attention.kept, attention.uniform) != (kept, uniform):
                _cut_attention(attention, tuple(kept), uniform)


def make_uniform(model: PreTrainedModel, plan: HeadPlan) -> None:
    """Let the heads that ``plan`` does not keep attend to all tokens evenly, in ``model`` itself.

    Their queries are multiplied by 0, and with them their scores before the softmax: the weights
    of such a head are 1 / (number of tokens that are no padding). W_q and W_k of these heads get no
    gradient; W_v and W_o are trained on.

    Args:
        model: any that can be pruned.
        plan: one of ``plan_after(model, ...)``.
    """
    for name, layers in attentions(model).items():
        for attention, kept in zip(layers, plan.kept[name], strict=True):
            if attention.kept == kept:
                continue
            first = not attention.uniform
            attention.set_heads(
                kept=tuple(kept),
                uniform=tuple(head for head in attention.present if head not in kept),
                heads=attention.heads,
            )
            if first:
                for linear in attention.queries:
                    linear.register_forward_hook(_ZeroQueries(attention))


@dataclass(frozen=True)
class _ZeroQueries:
    """A hook on a projection to queries: those of uniform heads become 0. It can be pickled."""

    attention: Attention

    def __call__(self, _: nn.Module, inputs: tuple[Any, ...], output: Tensor) -> Tensor:
        attention = self.attention
        kept = [float(head in attention.kept) for head in attention.present]
        factors = output.new_tensor(kept).repeat_interleave(attention.head_size)  # H'd
        if attention.names.blocks > 1:  # queries are the first block
            rest = factors.new_ones((attention.names.blocks - 1) * len(factors))
            factors = torch.cat([factors, rest])
        return output * factors  # ... x H'd


@contextmanager
def masked(
    model: PreTrainedModel, plan_or_xi: HeadPlan | Tensor | Gates
) -> Iterator[PreTrainedModel]:
    """Within this context, multiply each head's output by xi, before the output projection.

    Works with every attention implementation, nests (the gates multiply), and leaves the model as
    it was. Gradients flow to xi; with gradient checkpointing, call ``backward`` within the
    context too, as the layers run again there.

    Args:
        model: any that can be pruned, not compiled. It may be pruned: gates of heads that are gone
            do nothing; uniform heads still have an output, and a gate.
        plan_or_xi: a plan (kept heads 1, others 0), or xi, a tensor (layers, heads) with the
            numbering of the unpruned model; for a model with more than one component, a dict of
            them by component.

    Raises:
        UsageError: a plan or xi of another shape, or a model that cannot be pruned, or is compiled:
            compiled code would not notice the gates. (What ``torch.compile(model)`` returned cannot
            be seen here; do not run it within.)

    Example:
        >>> with masked(model, xi):  # doctest: +SKIP
        ...     model(**batch).loss.backward()
    """
    found = attentions(model)
    if getattr(model, "_compiled_call_impl", None) is not None:
        raise UsageError("the model is compiled and would not notice gates; mask it uncompiled")
    gates = _gates(plan_or_xi, head_plan(model), family=family_of(model))
    with ExitStack() as hooks:
        for name, layers in found.items():
            for attention, xi in zip(layers, gates[name], strict=True):
                hook = attention.output.register_forward_pre_hook(_Gate(attention, xi))
                hooks.callback(hook.remove)
        yield model


def masked_heads(attention: Attention) -> frozenset[int]:
    """The heads whose outputs are multiplied by 0 at the moment, within ``masked``."""
    gates = [hook for hook in attention.output._forward_pre_hooks.values() if type(hook) is _Gate]
    return frozenset(
        head for gate in gates for head in (gate.xi.detach() == 0).nonzero().flatten().tolist()
    )


@dataclass(frozen=True)
class _Gate:
    """A hook on an output projection: multiplies each head's part of the input by its xi."""

    attention: Attention
    xi: Tensor  # heads of the unpruned model

    def __call__(self, _: nn.Module, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        x = inputs[0]  # ... x H'd, the heads' outputs side by side
        xi = self.xi.to(device=x.device, dtype=x.dtype)[list(self.attention.present)]  # H'
        return (x * xi.repeat_interleave(self.attention.head_size), *inputs[1:])


def _gates(
    given: HeadPlan | Tensor | Gates, now: HeadPlan, *, family: str
) -> dict[str, Sequence[Tensor]]:
    """For each component, for each layer, xi (heads,)."""
    if isinstance(given, HeadPlan):
        given.require_shape(now.heads, of=f"the {family} model")
        return {
            name: [
                torch.zeros(heads).index_fill_(0, torch.tensor(kept, dtype=torch.long), 1.0)
                for kept, heads in zip(layers, given.heads[name], strict=True)
            ]
            for name, layers in given.kept.items()
        }
    if isinstance(given, Tensor):
        if len(now.kept) > 1:
            raise UsageError(
                f"the {family} model has heads in {', '.join(now.kept)}: give xi as a dict of "
                "tensors by component"
            )
        given = dict.fromkeys(now.kept, given)
    if not isinstance(given, Mapping):
        raise UsageError(f"give a HeadPlan or xi as a tensor, not {type(given).__name__}")
    if set(given) != set(now.kept):
        raise UsageError(
            f"xi is given for {', '.join(map(str, given)) or 'no component'}, the {family} model "
            f"has {', '.join(now.kept)}"
        )
    for name, xi in given.items():
        shape = (len(now.heads[name]), now.heads[name][0])
        if not isinstance(xi, Tensor) or tuple(xi.shape) != shape:
            what = tuple(xi.shape) if isinstance(xi, Tensor) else type(xi).__name__
            raise UsageError(
                f"{name}: xi is {what}, the {family} model has (layers, heads) = {shape}"
            )
    return {name: xi.unbind(0) for name, xi in given.items()}


def _layer(given: object, *, layers: int, component: str) -> int:
    if not is_whole(given):
        raise UsageError(f"{component}: {given!r} is no layer number")
    if not -layers <= given < layers:
        raise UsageError(
            f"{component}: there is no layer {given}, the model has {layers} ({-layers} to "
            f"{layers - 1})"
        )
    return int(given) % layers


def numbers_of(given: Any) -> Any:
    """A list of numbers where they are given as a tensor, an array, or a list of such scalars."""
    if isinstance(given, (Tensor, np.ndarray)):
        return given.tolist()
    if isinstance(given, (list, tuple)):
        return [each.item() if isinstance(each, Tensor) else each for each in given]
    return given


def _heads(given: object, *, total: int, where: str) -> set[int]:
    """The heads to prune, each of which must exist in the unpruned model."""
    numbers = numbers_of(given)
    if isinstance(numbers, (str, bytes)) or not isinstance(numbers, Iterable):
        raise UsageError(f"{where}: give heads as a list, not {given!r}")
    heads = set()
    for head in numbers:
        if not is_whole(head) or not 0 <= head < total:
            raise UsageError(
                f"{where} has no head {head!r}, the unpruned model has {total} (0 to {total - 1})"
            )
        heads.add(int(head))
    return heads


def _cut_attention(attention: Attention, kept: tuple[int, ...], uniform: tuple[int, ...]) -> None:
    now, heads = attention.present, attention.heads
    positions = [now.index(head) for head in sorted((*kept, *uniform))]
    blocks = attention.names.blocks
    rows = [block * len(now) + position for block in range(blocks) for position in positions]
    for linear in attention.inputs:
        linear.weight = _cut_parameter(linear.weight, rows, heads=blocks * len(now), dim=ROWS)
        if linear.bias is not None:
            linear.bias = _cut_parameter(linear.bias, rows, heads=blocks * len(now), dim=ROWS)
        linear.out_features = linear.weight.size(ROWS)
    output = attention.output
    output.weight = _cut_parameter(output.weight, positions, heads=len(now), dim=COLUMNS)
    output.in_features = output.weight.size(COLUMNS)
    attention.set_heads(kept=kept, uniform=uniform, heads=heads)
    if not attention.present:
        make_headless(attention.module, attention.inputs, output)


def _cut_parameter(parameter: Tensor, kept: Sequence[int], *, heads: int, dim: int) -> nn.Parameter:
    part = cut(parameter.detach(), kept, heads=heads, dim=dim)
    return nn.Parameter(part, requires_grad=parameter.requires_grad)
