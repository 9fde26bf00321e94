"""Implementation of ``headprune.model.RunnableModel`` for fairseq Transformers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from fairseq.models.transformer import TransformerEncoderBase, TransformerModel
from fairseq.modules import AdaptiveSoftmax
from torch import Tensor, nn

from fairseq_plugin.modules.feed_forward import FeedForward
from fairseq_plugin.modules.headpruned_attention import HeadPrunedAttention
from fairseq_plugin.shape import ATTENTIONS, complete_plan, layers_present, unit_sizes
from headprune import model as protocols
from headprune.components import HEADS, LAYERS, side_of
from headprune.divergences import divergence
from headprune.model import Outcome, See, evaluating
from headprune.scores.own_outputs import drawn, mean_over_tokens

Batch = Mapping[str, Any]
"""A sample of fairseq's LanguagePairDataset."""

_OWN = "own_logits"
"""The entry of a batch with the model's logits, in place of its targets."""


@dataclass(frozen=True)
class Attention:
    """One attention of the model; implements ``headprune.model.PrunableSublayer``."""

    module: HeadPrunedAttention

    @property
    def output(self) -> nn.Linear:
        """The output projection."""
        projection: nn.Linear = self.module.out_proj
        return projection

    @property
    def unit_size(self) -> int:
        """d, the width of one head."""
        return int(self.module.head_dim)

    @property
    def units(self) -> int:
        """H of the unpruned attention."""
        return int(self.module.num_heads)

    @property
    def kept(self) -> tuple[int, ...]:
        """The heads that are left."""
        return tuple(self.module.kept_heads.tolist())

    @property
    def present(self) -> tuple[int, ...]:
        """The heads that are computed, masked ones included."""
        return tuple(range(self.units)) if self.module.form == "mask" else self.kept

    def as_columns(self, weight: Tensor) -> Tensor:
        """The tensor as it is: projections are not transposed."""
        return weight

    def weights_by_unit(self) -> Iterator[Tensor]:
        """The rows of W_q, W_k, W_v and the columns of W_o of each head: H' x any, each."""
        heads = len(self.present)
        for projection in (self.module.q_proj, self.module.k_proj, self.module.v_proj):
            yield projection.weight.unflatten(0, (heads, -1)).flatten(1)
        yield self.output.weight.unflatten(1, (heads, -1)).transpose(0, 1).flatten(1)


@dataclass(frozen=True)
class AbsentSublayer:
    """A sub-layer of a removed layer; it has no units and no weights."""

    units: int
    unit_size: int
    kept: tuple[int, ...] = ()
    present: tuple[int, ...] = ()

    @property
    def module(self) -> nn.Module:
        """There is none."""
        raise LookupError("the layer is not in the model")

    @property
    def output(self) -> nn.Linear:
        """There is none."""
        raise LookupError("the layer is not in the model")

    def as_columns(self, weight: Tensor) -> Tensor:
        """The tensor as it is."""
        return weight

    def weights_by_unit(self) -> Iterator[Tensor]:
        """No weights."""
        return iter(())


@dataclass(frozen=True)
class Layer:
    """One layer; implements ``headprune.model.PrunableLayer``.

    Attributes:
        block: the layer itself; None where it was removed.
        is_kept: whether its output is passed on.
    """

    block: nn.Module | None
    is_kept: bool

    @property
    def module(self) -> nn.Module:
        """The layer itself."""
        if self.block is None:
            raise LookupError("the layer is not in the model")
        return self.block


_BEFORE = {"ES": (), "DS": (), "ED": ("DS",), "EF": ("ES",), "DF": ("DS", "ED")}
"""For each component, the attentions that run before its sub-layer in the same layer."""


class FairseqModel:
    """Implements ``headprune.model.RunnableModel``.

    The loss of a sentence is the mean over its target's tokens, </s> among them, of the negative
    log-probability, without label smoothing.

    Args:
        model: ``transformer_headpruned``, in float32.
    """

    batch_dim = 1

    def __init__(self, model: TransformerModel) -> None:
        self.model = model
        self._padding = model.encoder.padding_idx
        self._plan = complete_plan(model.plan, model.args)
        self.sublayers: Mapping[str, Sequence[protocols.PrunableSublayer]] = {
            component: [self._sublayer(component, layer) for layer in range(len(units))]
            for component, units in self._plan.units.items()
            if component not in LAYERS
        }
        self.layers: Mapping[str, Sequence[protocols.PrunableLayer]] = {
            component: [
                Layer(self._layers(component).get(layer), is_kept=bool(units))
                for layer, units in enumerate(self._plan.kept[component])
            ]
            for component in LAYERS
        }

    def _sublayer(self, component: str, layer: int) -> protocols.PrunableSublayer:
        """A sub-layer by the number of its layer in the unpruned model."""
        module, units = self._layers(component).get(layer), self._plan.units[component][layer]
        if module is None:
            return AbsentSublayer(units, unit_sizes(self.model.args)[component])
        if component in HEADS:
            return Attention(getattr(module, ATTENTIONS[component][1]))
        form = str(self.model.cfg.head_form)
        return FeedForward(module, units, tuple(self._plan.kept[component][layer]), form)

    def _layers(self, component: str) -> dict[int, nn.Module]:
        """The layers of a stack that the model has, by their numbers in the unpruned model."""
        stack = getattr(self.model, side_of(component))
        present = layers_present(self._plan, component, str(self.model.cfg.head_form))
        # With --encoder-layerdrop, iteration leaves out layers at random while training.
        layers = [stack.layers[position] for position in range(len(stack.layers))]
        return dict(zip(present, layers, strict=True))

    @property
    def special_tokens(self) -> frozenset[int]:
        """<s>, <pad> and </s>."""
        words = self.model.encoder.dictionary
        return frozenset({words.bos(), words.pad(), words.eos()})

    def evaluating(self) -> AbstractContextManager[None]:
        """The model without dropout, within this context."""
        return evaluating(self.model)

    def run(self, batch: Batch) -> None:
        """Run encoder and decoder, teacher-forced."""
        self.model(**batch["net_input"])

    def outcome(self, batch: Batch) -> Outcome:
        """The loss of each sentence's reference translation.

        With the outputs of ``with_own_outputs``, the divergence from these.
        """
        logits = self._logits(batch)  # B x T x V
        target = batch["target"]  # B x T
        if _OWN in batch:
            counted = target.ne(self._padding)
            return Outcome(mean_over_tokens(divergence(logits, batch[_OWN]), counted))
        losses = nn.functional.cross_entropy(
            logits.flatten(0, 1).float(),
            target.flatten(),
            reduction="none",
            ignore_index=self._padding,
        ).view_as(target)
        return Outcome(losses.sum(1) / target.ne(self._padding).sum(1))

    def own_labels(self, batch: Batch, generator: torch.Generator) -> Iterator[Batch]:
        """The batch with target tokens drawn from the model's distribution at each position."""
        # In the order of the sentences over all batches (``batches_of``); fairseq sorts each anew.
        lengths = batch["net_input"]["src_lengths"]
        counted = batch["target"].ne(self._padding)  # B x T
        keys = zip(lengths.tolist(), counted.sum(1).tolist(), batch["id"].tolist(), strict=True)
        order = [row for _, row in sorted((key, row) for row, key in enumerate(keys))]
        counted = counted[order]
        labels = batch["target"][order]
        labels[counted] = drawn(self._own_logits(batch)[order][counted], generator).to(labels.dtype)
        target = torch.empty_like(labels)
        target[order] = labels
        yield {**batch, "target": target}

    def with_own_outputs(self, batch: Batch) -> Batch:
        """The batch with the model's logits."""
        return {**batch, _OWN: self._own_logits(batch)}

    def _own_logits(self, batch: Batch) -> Tensor:
        with self.evaluating(), torch.no_grad():
            return self._logits(batch)

    def _logits(self, batch: Batch) -> Tensor:
        """B x T x V: the model's outputs, or logarithms of probabilities, which do as well."""
        output = self.model(**batch["net_input"])
        if self.model.decoder.adaptive_softmax is None:
            logits: Tensor = output[0]
            return logits
        return _log_probabilities(self.model.decoder.adaptive_softmax, output[0])

    @contextmanager
    def attending(self) -> Iterator[None]:
        """An empty context: the attention always computes weights when requested."""
        yield

    def attend(self, batch: Batch, see: See) -> None:
        """Run the model and show the weights of every attention that has heads."""
        with ExitStack() as hooks:
            attentions = {name: self.sublayers[name] for name in HEADS if name in self.sublayers}
            for component, layers in attentions.items():
                for layer, attention in enumerate(layers):
                    if attention.present:
                        module = attention.module
                        ask = module.register_forward_pre_hook(_ask, with_kwargs=True)
                        watch = module.register_forward_hook(_watch(component, layer, see))
                        hooks.callback(ask.remove)
                        hooks.callback(watch.remove)
            self.model(**batch["net_input"])

    def is_causal(self, component: str) -> bool:
        """True for the decoder's self-attention."""
        return component == "DS"

    def queries(self, component: str, batch: Batch) -> Tensor:
        """Mask of the component's queries: B x T, bool; true for real tokens, false for padding."""
        return self._tokens(decoder=side_of(component) == "decoder", batch=batch).ne(self._padding)

    def keys(self, component: str, batch: Batch) -> Tensor:
        """Token numbers of the component's keys, B x S; -1 where there is padding."""
        tokens = self._tokens(decoder=component == "DS", batch=batch)
        return tokens.masked_fill(tokens.eq(self._padding), -1)

    def _tokens(self, *, decoder: bool, batch: Batch) -> Tensor:
        tokens: Tensor = batch["net_input"]["prev_output_tokens" if decoder else "src_tokens"]
        return tokens

    def skipped(self, component: str, layer: int) -> Sequence[nn.Module]:
        """All layers below the next lower one, whose output is recorded."""
        layers, below = self._layers(component), self._layer_below(component, layer)
        return [module for number, module in layers.items() if below is not None and number < below]

    def reused(self, component: str, layer: int) -> Sequence[nn.Module]:
        """The layer below, for the decoder the encoder, and the attentions before the sub-layer."""
        below = self._layer_below(component, layer)
        modules = [] if below is None else [self._layers(component)[below]]
        if side_of(component) == "decoder":
            modules.append(self.model.encoder)
        modules += [
            self.sublayers[name][layer].module
            for name in _BEFORE[component]
            if name in self.sublayers
        ]
        return modules

    def _layer_below(self, component: str, layer: int) -> int | None:
        """The number of the next layer below that is kept; masked layers only pass on its output.

        None if this is the lowest kept layer.
        """
        kept = layers_present(self._plan, component, "remove")
        return max((number for number in kept if number < layer), default=None)

    def last_mixing(self) -> nn.Module | None:
        """None, as the loss depends on all tokens."""
        return None

    def repeat_batch(self, batch: Batch, times: int) -> Batch:
        """The batch that holds ``batch`` ``times`` times, one copy after the other."""
        net_input = {
            name: tensor.repeat(times, *[1] * (tensor.dim() - 1))
            for name, tensor in batch["net_input"].items()
        }
        repeated = {"net_input": net_input, "target": batch["target"].repeat(times, 1)}
        if _OWN in batch:
            repeated[_OWN] = batch[_OWN].repeat(times, 1, 1)
        return repeated

    def repeat_output(self, module: nn.Module, output: Any, times: int) -> Any:
        """The same for the output of an encoder, layer or attention, without attention weights."""
        if module is self.model.encoder:
            batch = output["encoder_out"][0].size(1)
            order = torch.arange(batch, device=output["encoder_out"][0].device).repeat(times)
            return TransformerEncoderBase.reorder_encoder_out(module, output, order)
        if isinstance(output, Tensor):  # T x B x C
            return output.repeat(1, times, 1)
        return (output[0].repeat(1, times, 1), *[None] * (len(output) - 1))


def _log_probabilities(softmax: AdaptiveSoftmax, hidden: Tensor) -> Tensor:
    """Logarithms of the probabilities of an adaptive softmax, B x T x V, with gradients.

    fairseq's own function writes into its results, through which no gradient can be computed.

    Args:
        softmax: the output layer: a softmax over frequent words and the groups of rarer ones, and
            one in each group.
        hidden: the decoder's outputs, B x T x C.
    """
    frequent, flat = softmax.cutoff[0], hidden.flatten(0, 1)  # BT x C
    head = softmax.head(flat).log_softmax(-1)  # BT x (frequent words + groups)
    groups = [
        head[:, frequent + number, None] + tail(flat).log_softmax(-1)  # BT x words of the group
        for number, tail in enumerate(softmax.tail)
    ]
    return torch.cat([head[:, :frequent], *groups], dim=-1).view(*hidden.shape[:2], -1)


def _ask(_: nn.Module, inputs: Any, options: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    return inputs, {**options, "need_head_weights": True}


def _watch(component: str, layer: int, see: See) -> Callable[[nn.Module, Any, Any], None]:
    def watch(_: nn.Module, inputs: Any, outputs: Any) -> None:
        see(component, layer, outputs[1].transpose(0, 1))  # H' x B x T x S

    return watch
