"""Efficient evaluation of many masks: computation that masks do not affect runs once.

With heads of one layer masked, everything below that layer stays as it was, and so does the
attention itself up to its output projection, which is a sum over heads:

    out = b_o + sum over h of xi_h head_h W_o^h      (Budhraja et al. 2020, equation 2)

So one run without masks is recorded; then, for each attention, the layers from its output
projection on run once for several masks together, which stand side by side in the batch.

Many classifiers look at the first token alone: behind the top layer's attention all other tokens
can be left out. Whether a model is such a one is found by leaving them out in a run without masks.

A sub-layer that runs several times in a pass, as it serves several layers, affects what it reads
itself, and one with companion streams has several output projections. The whole model then runs for
each mask, with gates.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from headprune.components import NEURONS
from headprune.gates import gated
from headprune.model import Batch, Outcome, PrunableSublayer, RunnableModel, companions_of

Cases = Mapping[tuple[str, int], Sequence[frozenset[int]]]
"""For components and layers, sets of heads: each is a mask, of the heads that stay on."""

_SAME = 1e-6
_FEW_UNITS = 64
"""Sub-layers of at most this number of units: the output of each unit is computed once."""

AT_ONCE = 256
"""Examples, times masks, that run together."""


@torch.no_grad()
def masked_outcomes(
    scored: RunnableModel, batch: Batch, cases: Cases, *, at_once: int = AT_ONCE
) -> tuple[Outcome, dict[tuple[str, int], list[Outcome]]]:
    """Compute the losses of a batch without masks and with each mask.

    Args:
        scored: the model, in evaluation mode.
        batch: a batch with labels.
        cases: the masks; they do not change heads that are already pruned.
        at_once: see ``AT_ONCE``.
    """
    record = _Record()
    with record.of(scored, cases):
        base = scored.outcome(batch)
    first_token_only = _first_token_only(scored, batch, base)
    examples = len(base.losses)
    masks_per_run = max(1, at_once // examples)
    masked: dict[tuple[str, int], list[Outcome]] = {}
    for (component, layer), masks in cases.items():
        attention = scored.sublayers[component][layer]
        if attention.output in record.repeated or companions_of(attention):
            masked[component, layer] = _with_gates(scored, batch, attention, masks, masks_per_run)
            continue
        x = record.inputs[attention.output]  # B x T x U'd, or T x B x U'd
        variants_of = _variants(attention, x, record.outputs[attention.output])
        masked[component, layer] = []
        for start in range(0, len(masks), masks_per_run):
            mask_chunk = masks[start : start + masks_per_run]
            unit_masks = _mask_tensor(attention, mask_chunk).to(x)  # m x U'
            variants = variants_of(unit_masks)  # m x B x T x C
            variants = variants.movedim(0, scored.batch_dim).flatten(
                scored.batch_dim, scored.batch_dim + 1
            )  # mB x T x C, or T x mB x C
            with (
                first_token_only(),
                _replaced(scored, component, layer, record, variants, times=len(mask_chunk)),
            ):
                outcome = scored.outcome(scored.repeat_batch(batch, len(mask_chunk)))
            masked[component, layer] += _split_outcome(outcome, number=len(mask_chunk))
    return base, masked


def _with_gates(
    scored: RunnableModel,
    batch: Batch,
    sublayer: PrunableSublayer,
    masks: Sequence[frozenset[int]],
    masks_per_run: int,
) -> list[Outcome]:
    """The outcome with each mask: the whole model runs on ``masks_per_run`` copies of a batch."""
    outcomes: list[Outcome] = []
    for start in range(0, len(masks), masks_per_run):
        mask_chunk = masks[start : start + masks_per_run]
        factors = factors_of_copies(_mask_tensor(sublayer, mask_chunk), batch_dim=scored.batch_dim)
        with gated([(sublayer, factors)]):
            outcome = scored.outcome(scored.repeat_batch(batch, len(mask_chunk)))
        outcomes += _split_outcome(outcome, number=len(mask_chunk))
    return outcomes


def factors_of_copies(masks: Tensor, *, batch_dim: int) -> Callable[[Tensor], Tensor]:
    """Gates for a batch that holds its examples once for each mask, one copy after the other.

    Args:
        masks: m x U', 1 where a unit stays on.
        batch_dim: see ``RunnableModel``.
    """

    def factors(x: Tensor) -> Tensor:  # mB x T x U'd, or T x mB x U'd
        rows = masks.to(x).repeat_interleave(x.size(batch_dim) // len(masks), dim=0)  # mB x U'
        return rows.unsqueeze(1 - batch_dim)

    return factors


def _first_token_only(
    scored: RunnableModel, batch: Batch, base: Outcome
) -> Callable[[], AbstractContextManager[None]]:
    """A context in which only the first token is computed after the top layer's attention.

    Where that would change the outcome, the context does nothing.
    """
    module = scored.last_mixing()
    if module is None:
        return nullcontext

    def keep_first_token(_: nn.Module, inputs: tuple[Any, ...], output: Tensor) -> Tensor:
        return output.narrow(1 - scored.batch_dim, 0, 1)

    @contextmanager
    def first_token_only() -> Iterator[None]:
        hook = module.register_forward_hook(keep_first_token)
        try:
            yield
        finally:
            hook.remove()

    try:
        with first_token_only():
            losses = scored.outcome(batch).losses
    except (RuntimeError, IndexError, ValueError):  # something looks at tokens that are not there
        return nullcontext
    same = losses.shape == base.losses.shape and torch.allclose(losses, base.losses, atol=_SAME)
    return first_token_only if same else nullcontext


class _Record:
    """Inputs and outputs of modules in the run without masks, and those that ran repeatedly."""

    def __init__(self) -> None:
        self.inputs: dict[nn.Module, Tensor] = {}
        self.outputs: dict[nn.Module, Any] = {}
        self.repeated: set[nn.Module] = set()
        self._projections: set[nn.Module] = set()

    @contextmanager
    def of(self, scored: RunnableModel, cases: Cases) -> Iterator[None]:
        """Within this context, the model's run is recorded."""
        modules: set[nn.Module] = set()
        for component, layer in cases:
            attention = scored.sublayers[component][layer]
            self._projections.add(attention.output)
            modules |= {attention.module, attention.output}
            modules |= {*scored.skipped(component, layer), *scored.reused(component, layer)}
        with ExitStack() as hooks:
            for module in modules:
                hooks.callback(module.register_forward_hook(self._keep).remove)
            yield

    def _keep(self, module: nn.Module, inputs: tuple[Any, ...], output: Any) -> None:
        if module in self.outputs:
            self.repeated.add(module)
        if module in self._projections:
            self.inputs[module] = inputs[0]
        self.outputs[module] = output


def _variants(sublayer: PrunableSublayer, x: Tensor, output: Tensor) -> Callable[[Tensor], Tensor]:
    """A function from masks, m x U', to the sub-layer's outputs with them, m x B x T x C.

    Args:
        x: input of the output projection, B x T x U'd.
        output: its output without masks.
    """
    if len(sublayer.present) > _FEW_UNITS:  # the outputs of single neurons would fill the memory
        weight = sublayer.as_columns(sublayer.output.weight)  # C x U'd
        bias = sublayer.output.bias

        def multiplied(unit_masks: Tensor) -> Tensor:
            factors = unit_masks.repeat_interleave(sublayer.unit_size, dim=-1)  # m x U'd
            masked = x * factors.view(len(unit_masks), *[1] * (x.dim() - 1), -1)  # m x B x T x U'd
            return nn.functional.linear(masked, weight, bias)

        return multiplied
    contributions = _contributions(sublayer, x)  # U' x B x T x C
    constant = output - contributions.sum(0)  # the bias
    return lambda unit_masks: constant + torch.einsum("mh,h...->m...", unit_masks, contributions)


def _contributions(attention: PrunableSublayer, x: Tensor) -> Tensor:
    """The summand of each head in the output: H' x B x T x C, from x, B x T x H'd."""
    heads = len(attention.present)
    by_head = x.unflatten(-1, (heads, attention.unit_size))  # B x T x H' x d
    weight = attention.as_columns(attention.output.weight)  # C x H'd
    weight = weight.unflatten(1, (heads, attention.unit_size))  # C x H' x d
    return torch.einsum("...hd,chd->h...c", by_head, weight)


def _mask_tensor(attention: PrunableSublayer, masks: Sequence[frozenset[int]]) -> Tensor:
    """m x H': 1 where a head stays on; uniform heads always do."""
    return torch.tensor(
        [
            [head in mask or head not in attention.kept for head in attention.present]
            for mask in masks
        ]
    )


@contextmanager
def _replaced(
    scored: RunnableModel,
    component: str,
    layer: int,
    record: _Record,
    variants: Tensor,
    *,
    times: int,
) -> Iterator[None]:
    """Within this context, modules return recorded outputs, repeated ``times`` times.

    The sub-layer returns ``variants``: its outputs with masked units.
    """
    attention = scored.sublayers[component][layer]
    replacements = {module: record.outputs[module] for module in scored.skipped(component, layer)}
    for module in scored.reused(component, layer):
        replacements[module] = scored.repeat_output(module, record.outputs[module], times)
    before = record.outputs[attention.module]
    if component in NEURONS:  # what comes before the output projection is computed in vain
        replacements[attention.output] = variants
    elif any(part is attention.output for part in attention.module.modules()):
        replacements[attention.module] = _with_first(before, variants)
    else:
        replacements |= {attention.module: before, attention.output: variants}
    with ExitStack() as stack:
        for module, output in replacements.items():
            stack.enter_context(_giving(module, output))
        yield


def _with_first(output: Any, first: Tensor) -> Any:
    return first if isinstance(output, Tensor) else type(output)([first, *output[1:]])


@contextmanager
def _giving(module: nn.Module, output: Any) -> Iterator[None]:
    """Within this context, ``module`` returns ``output`` without computing it."""

    def forward(*_: Any, **__: Any) -> Any:
        return output

    before: Callable[..., Any] | None = module.__dict__.get("forward")
    module.forward = forward
    try:
        yield
    finally:
        if before is None:
            del module.forward
        else:
            module.forward = before


def _split_outcome(outcome: Outcome, *, number: int) -> list[Outcome]:
    losses = outcome.losses.chunk(number)
    if outcome.correct is None:
        return [Outcome(part) for part in losses]
    pairs = zip(losses, outcome.correct.chunk(number), strict=True)
    return [Outcome(part, right) for part, right in pairs]
