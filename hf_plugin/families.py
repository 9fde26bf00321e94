"""The attentions of a Hugging Face model, found by the names of its family.

A family that is not in the table of ``head_names``, or cannot be pruned exactly, is refused by
name.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from torch import Tensor, nn
from transformers import PreTrainedModel

from headprune.errors import UsageError
from hf_plugin.head_names import FAMILIES, PREFIX, Names
from hf_plugin.headless import BiasAlone, NoHeads
from hf_plugin.pruned_files import store_by_head

_SHARED_BIAS = "its layers share one relative position bias, which has a value for every head"
_INEXACT = {
    "albert": "its layers share one set of weights, so no layer has heads of its own",
    "mpnet": _SHARED_BIAS,
    "t5": _SHARED_BIAS,
    "mt5": _SHARED_BIAS,
}
_COMPOSITE = ("encoder-decoder", "vision-encoder-decoder", "speech-encoder-decoder")


@dataclass(frozen=True, kw_only=True)
class Attention:
    """One attention of a model. What is left of it is written on ``module`` itself."""

    module: nn.Module
    inputs: tuple[nn.Linear, ...]
    queries: tuple[nn.Linear, ...]
    output: nn.Linear
    names: Names

    @property
    def head_size(self) -> int:
        """d, the width of one head, as the module has it."""
        return int(getattr(self.module, self.names.size))

    @property
    def head_parameters(self) -> int:
        """Weights and biases of one head."""
        rows = sum(linear.in_features + (linear.bias is not None) for linear in self.inputs)
        return self.head_size * (self.names.blocks * rows + self.output.out_features)

    @property
    def heads(self) -> int:
        """How many heads the attention had before anything was pruned."""
        return int(
            getattr(self.module, "unpruned_heads", self.output.in_features // self.head_size)
        )

    @property
    def kept(self) -> tuple[int, ...]:
        """The heads that are left, by their numbers in the unpruned model."""
        heads = range(self.output.in_features // self.head_size)
        return tuple(getattr(self.module, "kept_heads", heads))

    @property
    def uniform(self) -> tuple[int, ...]:
        """The pruned heads that still average the values of all tokens, by the same numbers."""
        return tuple(getattr(self.module, "uniform_heads", ()))

    @property
    def present(self) -> tuple[int, ...]:
        """The heads that have weights."""
        return tuple(sorted((*self.kept, *self.uniform)))

    def weights_by_head(self) -> Iterator[Tensor]:
        """The rows of W_q, W_k, W_v and the columns of W_o of each head: H' x any, each."""
        heads = len(self.present)
        for linear in self.inputs:
            for block in linear.weight.chunk(self.names.blocks):
                yield block.unflatten(0, (heads, -1)).flatten(1)
        yield self.output.weight.unflatten(1, (heads, -1)).transpose(0, 1).flatten(1)

    def set_heads(self, *, kept: tuple[int, ...], uniform: tuple[int, ...], heads: int) -> None:
        """Write down which of the unpruned attention's ``heads`` are left, and how many."""
        self.module.unpruned_heads = heads  # type: ignore[assignment]
        self.module.kept_heads = kept  # type: ignore[assignment]
        self.module.uniform_heads = uniform  # type: ignore[assignment]
        present = len(self.present)
        for attribute, value in (
            (self.names.count, present),
            (self.names.width, present * self.head_size),
        ):
            if attribute is not None:
                setattr(self.module, attribute, value)
        for linear in self.queries:
            store_by_head(linear, self.head_size if uniform else None)


def family_of(model: PreTrainedModel) -> str:
    """The model type of ``model``, that of the unpruned model where it is pruned.

    Raises:
        UsageError: not a transformers model, of a family that cannot be pruned exactly, or of one
            that is not known.
    """
    if not isinstance(model, PreTrainedModel):
        raise UsageError(
            f"{type(model).__name__} is no transformers model; prune the model itself, before it "
            "is compiled or wrapped"
        )
    return require_family(str(model.config.model_type))


def require_family(model_type: str) -> str:
    """The family of a model type, ``bert`` of ``headpruned-bert``.

    Raises:
        UsageError: a family that cannot be pruned exactly, or that is not known.
    """
    family = model_type.removeprefix(PREFIX)
    if family in _INEXACT:
        raise UsageError(f"{family} cannot be pruned exactly: {_INEXACT[family]}")
    if family in _COMPOSITE:
        raise UsageError(f"{family}: prune its encoder and decoder, then put them together")
    if family not in FAMILIES:
        raise UsageError(f"{family} is not a known family; known are {', '.join(FAMILIES)}")
    return family


def form_of(model: PreTrainedModel) -> str:
    """How the heads that ``model`` lacks are pruned: ``none``, ``remove``, ``uniform`` or both.

    Raises:
        UsageError: as of ``attentions``.
    """
    every = [attention for layers in attentions(model).values() for attention in layers]
    forms = {
        "remove": any(len(attention.present) < attention.heads for attention in every),
        "uniform": any(attention.uniform for attention in every),
    }
    return "+".join(name for name, there in forms.items() if there) or "none"


def is_decoder_alone(model: PreTrainedModel) -> bool:
    """Whether ``model`` is a decoder without its encoder, as causal language models are."""
    return bool(getattr(model.config, "is_decoder", False))


def attentions(model: PreTrainedModel) -> dict[str, tuple[Attention, ...]]:
    """For each component that ``model`` has, the attention of each layer, the bottom first.

    Args:
        model: a base model or one with a task head.

    Raises:
        UsageError: as of ``family_of``; a part of a model; or projections that are no plain
            ``nn.Linear`` (quantised, or with adapters), which must be pruned before.
    """
    family = family_of(model)
    base = model.base_model
    found = {}
    for component, names in FAMILIES[family].items():
        try:
            layers = base.get_submodule(names.layers)
        except AttributeError:
            continue  # a model with the decoder alone
        found[component] = tuple(
            _attention(layer, names, where=f"{component}: layer {number}")
            for number, layer in enumerate(layers.children())
        )
    if not found:
        raise UsageError(f"{type(model).__name__} is a part of a {family} model; give all of it")
    return found


def _attention(layer: nn.Module, names: Names, *, where: str) -> Attention:
    there = {name for name, _ in layer.named_modules()}
    inputs = {
        name: _linear(layer, name, where=where)
        for name in (*names.inputs, *names.optional)
        if name in names.inputs or name in there
    }
    return Attention(
        module=layer.get_submodule(names.attention),
        inputs=tuple(inputs.values()),
        queries=tuple(inputs[name] for name in names.queries if name in inputs),
        output=_linear(layer, names.output, where=where),
        names=names,
    )


def _linear(layer: nn.Module, name: str, *, where: str) -> nn.Linear:
    module = layer.get_submodule(name)
    # Quantised linears are subclasses of nn.Linear; torch's own pruning makes the weight something
    # that is worked out anew before each pass.
    empty = type(module) in (NoHeads, BiasAlone)
    plain = empty or (type(module) is nn.Linear and "weight" in module._parameters)
    if not isinstance(module, nn.Linear) or not plain:
        kind = f"{type(module).__module__}.{type(module).__name__}"
        raise UsageError(
            f"{where}: {name} is a {kind}; prune heads before quantising or adding adapters"
        )
    return module
