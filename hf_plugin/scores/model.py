"""Implementation of ``headprune.model.RunnableModel`` for Hugging Face models."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from transformers import MODEL_FOR_CAUSAL_LM_MAPPING, PreTrainedModel
from transformers.utils.generic import ModelOutput

from headprune.components import HEADS, side_of
from headprune.errors import DataError, UsageError
from headprune.gates import masked_units
from headprune.model import Outcome, PrunableLayer, PrunableSublayer, See, evaluating
from hf_plugin.families import attentions, family_of, feed_forwards, is_decoder_alone, stacks
from hf_plugin.head_names import FAMILIES, FEED_FORWARD, has_one_stack
from hf_plugin.headless import LIST, ON_REQUEST
from hf_plugin.scores.losses import (
    correct_predictions,
    example_losses,
    has_several_labels,
    labels_of_tokens_after,
    labels_of_tokens_before,
)
from hf_plugin.scores.own_outputs import are_weighted, divergences, logits_of, own_labels
from hf_plugin.sublayers import Attention, FeedForward
from hf_plugin.tasks.heads import UNREAD
from hf_plugin.tasks.predictions import IGNORED

Batch = Mapping[str, Tensor]

_OWN, _WEIGHTED = "own_logits", "weighted_labels"
"""Entries of a batch that are no inputs: the model's logits, and a mark of labels that count by
their probability.
"""

_BEYOND_CHARACTERS = 0x110000
"""A number that no character has; CANINE's tokens are characters."""

_ON_REQUEST = ("deberta-v2",)
"""Families whose attention modules return their weights only when the model is asked for them,
beside those whose names say so."""


class _ScoredAttention(Attention):
    """An attention without the heads that are masked at the moment."""

    @property
    def kept(self) -> tuple[int, ...]:
        """The heads that are neither pruned nor masked, by their numbers in the unpruned model."""
        masked = masked_units(self)
        return tuple(head for head in super().kept if head not in masked)

    @property
    def present(self) -> tuple[int, ...]:
        """The heads that have weights, masked ones included."""
        return tuple(sorted((*super().kept, *self.uniform)))


class _ScoredFeedForward(FeedForward):
    """A feed-forward sub-layer without the neurons that are masked at the moment."""

    @property
    def kept(self) -> tuple[int, ...]:
        """The neurons that are neither pruned nor masked, by their numbers in the model."""
        masked = masked_units(self)
        return tuple(neuron for neuron in super().kept if neuron not in masked)

    @property
    def present(self) -> tuple[int, ...]:
        """The neurons that have weights, masked ones included."""
        return super().kept


class HuggingFaceModel:
    """Implements ``headprune.model.RunnableModel``.

    Args:
        model: any that can be pruned, with a task head where scores need labels. Within
            ``hf_plugin.masked``, heads whose gate is 0 count as pruned.
        special_tokens: numbers of tokens that stand for no text.

    Raises:
        UsageError: a model that cannot be pruned, or whose layers cannot be told apart by tokens.
    """

    batch_dim = 0

    def __init__(
        self, model: PreTrainedModel, *, special_tokens: frozenset[int] = frozenset()
    ) -> None:
        self.model = model
        self.sublayers: Mapping[str, Sequence[PrunableSublayer]] = {
            name: [_ScoredAttention(**vars(attention)) for attention in layers]
            for name, layers in attentions(model).items()
        } | {
            name: [_ScoredFeedForward(**vars(feed_forward)) for feed_forward in layers]
            for name, layers in feed_forwards(model).items()
        }
        self.layers: Mapping[str, Sequence[PrunableLayer]] = stacks(model)
        self._require_whole(model)
        self._predicts_next = is_language_model(model)
        self._reads_images = model.main_input_name == "pixel_values"
        self._special_tokens = special_tokens
        # A cache of keys would be filled by layers that scoring leaves out.
        caches = "use_cache" in inspect.signature(model.forward).parameters
        self._options: dict[str, Any] = {"use_cache": False} if caches else {}

    def _require_whole(self, model: PreTrainedModel) -> None:
        """Refuse parts of models.

        Raises:
            UsageError: see the class.
        """
        family, name = family_of(model), type(model).__name__
        if not _is_causal(model) or "ES" not in FAMILIES[family]:
            return
        if not has_one_stack(family) or not is_decoder_alone(model):
            raise UsageError(
                f"{name} is a causal language model or a decoder alone of a family of encoders, "
                "whose heads cannot be scored; give an encoder, an encoder with its decoder, or a "
                "model of a family of decoders, such as GPT-2, or a BERT with is_decoder"
            )
        if "ED" in self.sublayers:
            raise UsageError(
                f"{name} cannot be scored: it attends to an encoder (add_cross_attention), whose "
                "outputs texts do not have"
            )

    def is_causal(self, component: str) -> bool:
        """True for the self-attention of a decoder, which is ES in a BERT as decoder."""
        return component == "DS" or (component == "ES" and is_decoder_alone(self.model))

    @property
    def special_tokens(self) -> frozenset[int]:
        """Numbers of tokens that stand for no text."""
        return self._special_tokens

    def evaluating(self) -> AbstractContextManager[None]:
        """The model without dropout, within this context."""
        return evaluating(self.model)

    def run(self, batch: Batch) -> None:
        """Run the model on the inputs of its forward pass."""
        self._outputs(batch)

    def _outputs(self, batch: Batch, **options: Any) -> Any:
        if (reason := UNREAD.get(family_of(self.model))) is not None:
            raise UsageError(f"{type(self.model).__name__} cannot be scored on data: {reason}")
        # The labels of a language model serve its own loss alone, which takes as long as the rest.
        others = (_OWN, _WEIGHTED, *(["labels"] if self._predicts_next else []))
        inputs = {name: value for name, value in batch.items() if name not in others}
        return self.model(**on_device_of(self.model, inputs), **options, **self._options)

    def outcome(self, batch: Batch) -> Outcome:
        """Run the model on inputs with ``labels``, or with the outputs of ``with_own_outputs``."""
        batch = on_device_of(self.model, batch)
        if _OWN in batch:
            logits = logits_of(self._outputs(batch))
            return Outcome(divergences(self.model, batch[_OWN], logits, self._counted(batch)))
        if "labels" not in batch:
            raise DataError("the score needs labels, the batches have none")
        outputs = self._outputs(batch)
        labels = batch["labels"]
        if self._predicts_next:
            labels = labels_of_tokens_before(labels)
        losses = example_losses(outputs, labels)
        return Outcome(
            losses=losses,
            correct=correct_predictions(outputs, labels),
            # The probability of each label, as the loss is its negative logarithm.
            weights=torch.exp(-losses.detach()) if _WEIGHTED in batch else None,
        )

    def own_labels(self, batch: Batch, generator: torch.Generator) -> Iterator[Batch]:
        """The batch with each class as the label, or with labels drawn from the outputs."""
        logits = self._own_logits(batch)
        weighted = {_WEIGHTED: torch.ones(len(logits))} if are_weighted(self.model, logits) else {}
        counted = self._counted(batch)
        for labels in own_labels(self.model, logits, counted, generator):
            if self._predicts_next:
                # The last token of a text predicts nothing, whether padding follows it or not.
                labels = labels_of_tokens_after(labels).masked_fill(~counted, IGNORED)
            yield {**batch, **weighted, "labels": labels}

    def with_own_outputs(self, batch: Batch) -> Batch:
        """The batch with the model's logits."""
        return {**batch, _OWN: self._own_logits(batch)}

    def _own_logits(self, batch: Batch) -> Tensor:
        with self.evaluating(), torch.no_grad():
            return logits_of(self._outputs(batch))

    def _counted(self, batch: Batch) -> Tensor:
        """The tokens that a language model's outputs are for: B x T, bool."""
        tokens = self._tokens(decoder="DS" in self.sublayers, batch=batch)
        return tokens.to(self.model.device) >= 0

    @contextmanager
    def attending(self) -> Iterator[None]:
        """A context with eager attention, as other implementations do not return weights."""
        before = self.model.config._attn_implementation
        if before == "eager":
            yield
            return
        self.model.set_attn_implementation("eager")
        try:
            yield
        finally:
            self.model.set_attn_implementation(before)

    def attend(self, batch: Batch, see: See) -> None:
        """Run the model and show the weights of every attention that has heads."""
        family = family_of(self.model)
        kinds = {names.returns for names in FAMILIES[family].values()}
        on_request = family in _ON_REQUEST or bool({ON_REQUEST, LIST} & kinds)
        options = {"output_attentions": True} if on_request else {}
        with ExitStack() as hooks:
            for name, layers in self.sublayers.items():
                for layer, attention in enumerate(layers if name in HEADS else ()):
                    if attention.present:
                        watch = _watch(name, layer, see)
                        hooks.callback(attention.module.register_forward_hook(watch).remove)
            self._outputs(batch, **options)

    def queries(self, component: str, batch: Batch) -> Tensor:
        """Mask of the component's queries: B x T, bool; true for real tokens, false for padding."""
        tokens = self._positions(decoder=side_of(component) == "decoder", batch=batch)
        return tokens.to(self.model.device) >= 0

    def keys(self, component: str, batch: Batch) -> Tensor:
        """Token numbers of the component's keys, B x S; -1 where there is padding."""
        return self._positions(decoder=component == "DS", batch=batch).to(self.model.device)

    def _positions(self, *, decoder: bool, batch: Batch) -> Tensor:
        """The numbers of what layers work on, B x T: tokens, patches, or groups of characters."""
        if self._reads_images:
            return self._patches(batch)
        tokens = self._tokens(decoder=decoder, batch=batch)
        rate = getattr(self.model.config, "downsampling_rate", 1)
        return tokens if rate == 1 else _molecules(tokens, rate)

    def _patches(self, batch: Batch) -> Tensor:
        """The numbers of the patches (and tokens beside them) of images: B x T."""
        images = batch["pixel_values"]
        # Of one image, since the numbers are those of all. BEiT returns more than embeddings.
        embeddings = self.model.base_model.get_submodule("embeddings")
        with torch.no_grad():
            embedded = embeddings(images[:1].to(self.model.device))
        states = embedded if isinstance(embedded, Tensor) else embedded[0]  # 1 x T x C
        return torch.arange(states.size(1)).expand(len(images), -1)

    def _tokens(self, *, decoder: bool, batch: Batch) -> Tensor:
        if not decoder or "ES" not in self.sublayers:
            mask = batch.get("attention_mask")
            tokens = batch["input_ids"]
            return tokens if mask is None else tokens.masked_fill(~mask.bool(), -1)
        if "decoder_input_ids" in batch:
            tokens = batch["decoder_input_ids"]
            mask = batch.get("decoder_attention_mask")
            if mask is None and "labels" in batch and batch["labels"].shape == tokens.shape:
                mask = batch["labels"].ne(IGNORED)
            return tokens if mask is None else tokens.masked_fill(~mask.bool(), -1)
        labels = batch.get("labels")
        if labels is None or labels.dim() == 1 or has_several_labels(labels):
            # A classifier's decoder reads the input once more.
            source = self._tokens(decoder=False, batch=batch)
            return self._shifted(source).masked_fill(source < 0, -1)
        return self._shifted(labels).masked_fill(labels.eq(IGNORED), -1)

    def _shifted(self, tokens: Tensor) -> Tensor:
        """The input of the decoder: its start token, then ``tokens`` without the last."""
        start = self.model.config.decoder_start_token_id
        return torch.cat([torch.full_like(tokens[:, :1], start), tokens[:, :-1]], dim=1)

    def skipped(self, component: str, layer: int) -> Sequence[nn.Module]:
        """All layers from the bottom up to two below this one."""
        if not self.layers:  # parts of layers in separate lists, or layers that are shared
            return []
        skipped = self._layers(component)[: max(layer - 1, 0)]
        # DeBERTa-v2's larger models have a convolution beside their lowest layer.
        convolution = getattr(getattr(self.model.base_model, "encoder", None), "conv", None)
        return [*skipped, convolution] if skipped and convolution is not None else skipped

    def reused(self, component: str, layer: int) -> Sequence[nn.Module]:
        """The layer below, for a decoder the encoder, and the attentions before the sub-layer."""
        if not self.layers:
            return []
        modules = list(self._layers(component)[max(layer - 1, 0) : layer])
        if side_of(component) == "decoder" and "ES" in self.sublayers:
            modules.append(self.model.base_model.get_submodule("encoder"))
        before = {"ED": ("DS",), "EF": ("ES",), "DF": ("DS", "ED")}.get(component, ())
        present = [name for name in before if name in self.sublayers]
        return [*modules, *(self.sublayers[name][layer].module for name in present)]

    def _layers(self, component: str) -> list[nn.Module]:
        names: Any = {
            **FAMILIES[family_of(self.model)],
            **FEED_FORWARD[family_of(self.model)],
        }
        return list(self.model.base_model.get_submodule(names[component].layers).children())

    def last_mixing(self) -> nn.Module | None:
        """The norm after the top layer's attention, in families that have one."""
        components = [name for name in self.sublayers if name in HEADS]
        if len(components) > 1:
            return None
        (component,) = components
        name = FAMILIES[family_of(self.model)][component].norm
        return None if name is None else self._layers(component)[-1].get_submodule(name)

    def repeat_batch(self, batch: Batch, times: int) -> Batch:
        """The batch that holds ``batch`` ``times`` times, one copy after the other."""
        return {
            name: tensor.repeat(times, *[1] * (tensor.dim() - 1)) for name, tensor in batch.items()
        }

    def repeat_output(self, module: nn.Module, output: Any, times: int) -> Any:
        """The same for a module's output: a tensor, or a container of tensors."""
        if isinstance(output, Tensor):
            return output.repeat(times, *[1] * (output.dim() - 1))
        if isinstance(output, ModelOutput):
            return type(output)(
                **{name: self.repeat_output(module, part, times) for name, part in output.items()}
            )
        if isinstance(output, (tuple, list)):
            # T5's position biases, after its hidden states, are the same for all examples.
            states = output[0] if output and isinstance(output[0], Tensor) else None
            shared = [
                states is not None and isinstance(part, Tensor) and part.size(0) < states.size(0)
                for part in output
            ]
            return type(output)(
                part if is_shared else self.repeat_output(module, part, times)
                for part, is_shared in zip(output, shared, strict=True)
            )
        return output


def _molecules(tokens: Tensor, rate: int) -> Tensor:
    """The numbers of CANINE's groups of characters, B x T'; -1 where there is padding.

    The first position is that of the first character, which stands for the text. Each other one is
    for ``rate`` characters, those of the group before it.

    Args:
        tokens: B x T, the characters, -1 where there is padding.
        rate: the number of characters of a group.
    """
    groups = tokens[:, : tokens.size(1) // rate * rate].unflatten(1, (-1, rate))  # B x T' x rate
    real = groups.amax(-1) >= 0  # B x T'
    places = torch.arange(real.size(1), device=tokens.device) + _BEYOND_CHARACTERS
    numbers = torch.cat([tokens[:, :1], places[1:].expand(len(tokens), -1)], dim=1)
    return numbers.masked_fill(~real, -1)


def _is_causal(model: PreTrainedModel) -> bool:
    """Check if the model is a causal language model or a decoder without encoder."""
    language_model: Any = MODEL_FOR_CAUSAL_LM_MAPPING.get(type(model.config), ())
    return is_decoder_alone(model) or isinstance(model, language_model)


def is_language_model(model: PreTrainedModel) -> bool:
    """Check if a model predicts each token of a text from those before it."""
    return is_decoder_alone(model) and bool(model.can_generate())


def on_device_of(model: PreTrainedModel, batch: Batch) -> dict[str, Tensor]:
    """The batch on the device of the model."""
    return {name: tensor.to(model.device) for name, tensor in batch.items()}


def _watch(name: str, layer: int, see: See) -> Callable[[nn.Module, Any, Any], None]:
    def watch(_: nn.Module, inputs: Any, outputs: Any) -> None:
        if not isinstance(outputs, (tuple, list)) or len(outputs) < 2 or outputs[-1] is None:
            raise UsageError(
                f"{name}: layer {layer}: its attention gives no weights; scores from weights need "
                "an implementation that does (eager)"
            )
        see(name, layer, outputs[-1])

    return watch
