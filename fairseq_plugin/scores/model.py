"""A fairseq Transformer as the scores of headprune see it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from fairseq.models.transformer import TransformerEncoderBase, TransformerModel
from torch import Tensor, nn

from fairseq_plugin.modules.headpruned_attention import HeadPrunedAttention
from headprune.scores import scored_model
from headprune.scores.scored_model import Outcome, See, evaluating

Batch = Mapping[str, Any]
"""A sample of fairseq's LanguagePairDataset."""


@dataclass(frozen=True)
class Attention:
    """One attention of the model; implements ``headprune.scores.scored_model.Attention``."""

    module: HeadPrunedAttention

    @property
    def output(self) -> nn.Linear:
        """The output projection."""
        projection: nn.Linear = self.module.out_proj
        return projection

    @property
    def head_size(self) -> int:
        """d, the width of one head."""
        return int(self.module.head_dim)

    @property
    def heads(self) -> int:
        """H of the unpruned attention."""
        return int(self.module.num_heads)

    @property
    def kept(self) -> tuple[int, ...]:
        """The heads that are left."""
        return tuple(self.module.kept_heads.tolist())

    @property
    def present(self) -> tuple[int, ...]:
        """The heads that are computed: masked ones too."""
        return tuple(range(self.heads)) if self.module.form == "mask" else self.kept

    def weights_by_head(self) -> Iterator[Tensor]:
        """The rows of W_q, W_k, W_v and the columns of W_o of each head: H' x any, each."""
        heads = len(self.present)
        for projection in (self.module.q_proj, self.module.k_proj, self.module.v_proj):
            yield projection.weight.unflatten(0, (heads, -1)).flatten(1)
        yield self.output.weight.unflatten(1, (heads, -1)).transpose(0, 1).flatten(1)


class FairseqModel:
    """Implements ``headprune.scores.scored_model.ScoredModel``.

    The loss of a sentence is the mean over its target's tokens, </s> among them, of the negative
    log-probability, without label smoothing.

    Args:
        model: ``transformer_headpruned``, in float32.
    """

    batch_dim = 1

    def __init__(self, model: TransformerModel) -> None:
        self.model = model
        self._padding = model.encoder.padding_idx
        encoder, decoder = model.encoder.layers, model.decoder.layers
        self.attentions: Mapping[str, Sequence[scored_model.Attention]] = {
            "ES": [Attention(layer.self_attn) for layer in encoder],
            "ED": [Attention(layer.encoder_attn) for layer in decoder],
            "DS": [Attention(layer.self_attn) for layer in decoder],
        }

    @property
    def special_tokens(self) -> frozenset[int]:
        """<s>, <pad> and </s>."""
        words = self.model.encoder.dictionary
        return frozenset({words.bos(), words.pad(), words.eos()})

    def evaluating(self) -> AbstractContextManager[None]:
        """The model without dropout, within this context."""
        return evaluating(self.model)

    def outcome(self, batch: Batch) -> Outcome:
        """Each sentence's loss, its translation being given."""
        logits = self.model(**batch["net_input"])[0]  # B x T x V
        target = batch["target"]  # B x T
        losses = nn.functional.cross_entropy(
            logits.flatten(0, 1).float(),
            target.flatten(),
            reduction="none",
            ignore_index=self._padding,
        ).view_as(target)
        return Outcome(losses.sum(1) / target.ne(self._padding).sum(1))

    @contextmanager
    def attending(self) -> Iterator[None]:
        """Nothing is to be done: the attention works weights out when asked for them."""
        yield

    def attend(self, batch: Batch, see: See) -> None:
        """Run the model and show the weights of every attention that has heads."""
        with ExitStack() as hooks:
            for component, layers in self.attentions.items():
                for layer, attention in enumerate(layers):
                    if attention.present:
                        module = attention.module
                        ask = module.register_forward_pre_hook(_ask, with_kwargs=True)
                        watch = module.register_forward_hook(_watch(component, layer, see))
                        hooks.callback(ask.remove)
                        hooks.callback(watch.remove)
            self.model(**batch["net_input"])

    def queries(self, component: str, batch: Batch) -> Tensor:
        """Which positions are real tokens, on the side of the component's queries: B x T, bool."""
        return self._tokens(decoder=component != "ES", batch=batch).ne(self._padding)

    def keys(self, component: str, batch: Batch) -> Tensor:
        """Token numbers of the component's keys, B x S; -1 where there is padding."""
        tokens = self._tokens(decoder=component == "DS", batch=batch)
        return tokens.masked_fill(tokens.eq(self._padding), -1)

    def _tokens(self, *, decoder: bool, batch: Batch) -> Tensor:
        tokens: Tensor = batch["net_input"]["prev_output_tokens" if decoder else "src_tokens"]
        return tokens

    def skipped(self, component: str, layer: int) -> Sequence[nn.Module]:
        """All layers below the one below."""
        return self._layers(component)[: max(layer - 1, 0)]

    def reused(self, component: str, layer: int) -> Sequence[nn.Module]:
        """The layer below; for the decoder the encoder, for ED the self-attention before it."""
        modules = self._layers(component)[max(layer - 1, 0) : layer]
        if component != "ES":
            modules.append(self.model.encoder)
        if component == "ED":
            modules.append(self.attentions["DS"][layer].module)
        return modules

    def _layers(self, component: str) -> list[nn.Module]:
        return list((self.model.encoder if component == "ES" else self.model.decoder).layers)

    def last_mixing(self) -> nn.Module | None:
        """None: the loss is of all tokens."""
        return None

    def repeat_batch(self, batch: Batch, times: int) -> Batch:
        """The batch that holds ``batch`` so many times, one after the other."""
        net_input = {
            name: tensor.repeat(times, *[1] * (tensor.dim() - 1))
            for name, tensor in batch["net_input"].items()
        }
        return {"net_input": net_input, "target": batch["target"].repeat(times, 1)}

    def repeat_output(self, module: nn.Module, output: Any, times: int) -> Any:
        """The like for the output of an encoder, a layer or an attention, without its weights."""
        if module is self.model.encoder:
            batch = output["encoder_out"][0].size(1)
            order = torch.arange(batch, device=output["encoder_out"][0].device).repeat(times)
            return TransformerEncoderBase.reorder_encoder_out(module, output, order)
        if isinstance(output, Tensor):  # T x B x C
            return output.repeat(1, times, 1)
        return (output[0].repeat(1, times, 1), *[None] * (len(output) - 1))


def _ask(_: nn.Module, inputs: Any, options: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    return inputs, {**options, "need_head_weights": True}


def _watch(component: str, layer: int, see: See) -> Callable[[nn.Module, Any, Any], None]:
    def watch(_: nn.Module, inputs: Any, outputs: Any) -> None:
        see(component, layer, outputs[1].transpose(0, 1))  # H' x B x T x S

    return watch
