"""fairseq checkpoint files: looking into them, pruning heads, and making them whole again."""

from __future__ import annotations

import copy
from argparse import Namespace
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fairseq_plugin import checkpoint_check, checkpoint_file
from fairseq_plugin.checkpoint_check import NO_WEIGHTS
from fairseq_plugin.fitting import HEAD_DIMENSION, HEAD_FORMS, HeadForm, fit_attention
from fairseq_plugin.shape import ATTENTIONS, model_shape
from headprune.cost import Sizes, pruned_parameters
from headprune.errors import DataError, UsageError
from headprune.files import atomic_path
from headprune.plan import HeadPlan
from headprune.scores.fingerprint import fingerprint
from headprune.surgery import cut, uncut

_ARCH = "transformer_headpruned"
_OWN_OPTIONS = (
    *("es_heads", "ed_heads", "ds_heads", "head_seed", "head_plan", "head_form"),
    "autocast",
)


@dataclass
class Checkpoint:
    """A fairseq checkpoint of a Transformer, head-pruned or not.

    Attributes:
        state: the file's content.
        options: the model's options in it; changes to them are changes of ``state``.
    """

    state: dict[str, Any]
    options: Options
    path: str

    @classmethod
    def load(cls, path: str | Path) -> Checkpoint:
        """Read a checkpoint, executing nothing that is in it.

        Raises:
            DataError: no such file, not a whole checkpoint, not one of a Transformer with encoder
                and decoder, or one whose options, plan and weights do not fit each other.
        """
        state, options = read_model(path)
        checkpoint_check.split_fused(state["model"])
        checkpoint_check.check(options.values, state["model"], path=str(path))
        return cls(state=state, options=options, path=str(path))

    @property
    def shape(self) -> dict[str, tuple[int, ...]]:
        """The heads of each layer of the unpruned model."""
        return model_shape(Namespace(**self.options.values))

    @property
    def plan(self) -> HeadPlan:
        """The heads that the checkpoint keeps."""
        text = self.options.get("head_plan")
        return HeadPlan.from_json(text, source=self.path) if text else HeadPlan.full(self.shape)

    @property
    def form(self) -> HeadForm | None:
        """How heads are pruned; None in a checkpoint that stock fairseq wrote."""
        return _known_form(str(self.options.get("head_form")))

    @property
    def sizes(self) -> Sizes:
        """The widths of the model."""
        side = self.options
        embeddings = self.state["model"].get("decoder.embed_tokens.weight")
        return Sizes(
            encoder_width=side["encoder_embed_dim"],
            decoder_width=side["decoder_embed_dim"],
            encoder_feed_forward=side["encoder_ffn_embed_dim"],
            decoder_feed_forward=side["decoder_ffn_embed_dim"],
            encoder_head_dim=side["encoder_embed_dim"] // side["encoder_attention_heads"],
            decoder_head_dim=side["decoder_embed_dim"] // side["decoder_attention_heads"],
            vocabulary=0 if embeddings is None else embeddings.size(0),
        )

    @property
    def parameters(self) -> int:
        """Parameters in the file; tensors that are tied to one another count once."""
        unique: dict[int, int] = {}
        for name, tensor in self.state["model"].items():
            if tensor.is_floating_point() and not name.endswith(NO_WEIGHTS):
                unique[tensor.data_ptr() or -len(unique) - 1] = tensor.numel()
        return sum(unique.values())

    @property
    def unpruned_parameters(self) -> int:
        """Parameters that the model had before heads were removed."""
        removed = self.form == "remove"
        return self.parameters + (pruned_parameters(self.plan, self.sizes) if removed else 0)

    @property
    def fingerprint(self) -> str:
        """What tells the weights from others."""
        return fingerprint(self.state["model"])

    def attentions(self) -> Iterator[tuple[str, int, str]]:
        """Component, layer and the prefix of its weights' names, for every attention."""
        for component, layers in self.shape.items():
            side, module = ATTENTIONS[component]
            for layer in range(len(layers)):
                yield component, layer, f"{side}.layers.{layer}.{module}."

    def prune(self, plan: HeadPlan, *, form: str = "remove") -> Checkpoint:
        """A checkpoint of ``transformer_headpruned`` that keeps the heads of ``plan``.

        The optimizer's state is dropped: it belongs to the weights as they were. Train on with
        ``--finetune-from-model``.

        Raises:
            UsageError: a plan for another shape, or a form that fairseq models do not have.
            DataError: a head of the plan that the checkpoint has lost already.
        """
        known = _known_form(form)
        if known is None:
            raise UsageError(f"form: {form} is for Hugging Face models; give remove or mask")
        plan.require_shape(self.shape, of=self.path)
        result = self._copy()
        for component, layer, prefix in self.attentions():
            fit_attention(
                result.state["model"],
                prefix,
                kept=plan.kept[component][layer],
                num_heads=self.shape[component][layer],
                head_dim=self._head_dim(component),
                form=known,
                name=f"{component}: layer {layer}",
            )
        if not str(self.options.get("arch", "")).startswith(_ARCH):
            result.options.name_architecture(_ARCH)
        for option in _OWN_OPTIONS:
            result.options[option] = None
        result.options["head_seed"] = 1
        result.options["head_plan"] = plan.to_json()
        result.options["head_form"] = form
        result.options["autocast"] = self.options.get("autocast") or "none"
        return result

    def export_to_fairseq(self) -> Checkpoint:
        """A full-size checkpoint of stock ``transformer`` that computes the same.

        Pruned heads come back as zeros, so their outputs are zero as before. The options are
        written as plain values: with torch 2.6 and later, fairseq without the plugin cannot read
        the Namespace that it writes itself.
        """
        result = self._copy()
        weights: dict[str, Tensor] = result.state["model"]
        plan = self.plan
        for component, layer, prefix in self.attentions():
            kept, heads = plan.kept[component][layer], self.shape[component][layer]
            weights.pop(f"{prefix}kept_heads", None)
            if len(kept) == heads:
                continue
            bias = weights[f"{prefix}out_proj.bias"]
            for key, dim in HEAD_DIMENSION.items():
                tensor = weights.get(prefix + key)
                if tensor is None:  # of an attention without heads
                    tensor = bias.new_empty(self._empty_shape(component, key))
                if self.form == "mask":
                    tensor = cut(tensor, kept, heads=heads, dim=dim)
                weights[prefix + key] = uncut(
                    tensor, kept, heads=heads, head_dim=self._head_dim(component), dim=dim
                )
        result.options.name_architecture("transformer")
        for option in _OWN_OPTIONS:
            result.options.drop(option)
        cfg = result.state.get("cfg")
        if isinstance(cfg, dict):
            cfg["model"] = dict(result.options.values)
            if isinstance(cfg.get("common"), dict):
                cfg["common"]["user_dir"] = None  # stock fairseq shall not look for the plugin
        return result

    def save(self, path: str | Path) -> None:
        """Write the checkpoint, whole or not at all."""
        with atomic_path(path) as temporary:
            torch.save(self.state, temporary)

    def _head_dim(self, component: str) -> int:
        sizes = self.sizes
        return sizes.encoder_head_dim if component == "ES" else sizes.decoder_head_dim

    def _empty_shape(self, component: str, key: str) -> tuple[int, ...]:
        if key.endswith("bias"):
            return (0,)
        side = "encoder" if component == "ES" or key[0] in "kv" and component == "ED" else "decoder"
        return (0, self.options[f"{side}_embed_dim"])

    def _copy(self) -> Checkpoint:
        """A copy that shares tensors, without the optimizer's state."""
        state = {key: value for key, value in self.state.items() if key != "model"}
        state["last_optimizer_state"] = None
        state = copy.deepcopy(state)
        state["model"] = dict(self.state["model"])
        options = Options.of(state)
        assert options is not None
        return Checkpoint(state=state, options=options, path=self.path)


class Options:
    """The model's options in a checkpoint, which fairseq keeps in one of several forms.

    Attributes:
        values: the options by name; changes to them are changes of the checkpoint.
    """

    def __init__(self, holder: dict[str, Any] | Namespace) -> None:
        self.values: dict[str, Any] = holder if isinstance(holder, dict) else vars(holder)

    @classmethod
    def of(cls, state: dict[str, Any]) -> Options | None:
        """The options in a checkpoint: its config's ``model``, or the older ``args``."""
        cfg, args = state.get("cfg"), state.get("args")
        if isinstance(cfg, dict) and isinstance(cfg.get("model"), (dict, Namespace)):
            return cls(cfg["model"])
        return cls(args) if isinstance(args, Namespace) else None

    def __getitem__(self, key: str) -> Any:
        return self.values[key]

    def __setitem__(self, key: str, value: Any) -> None:
        self.values[key] = value

    def get(self, key: str, default: Any = None) -> Any:
        """The option, or ``default`` where the checkpoint does not have it."""
        return self.values.get(key, default)

    def drop(self, key: str) -> None:
        """Remove the option if it is there."""
        self.values.pop(key, None)

    def name_architecture(self, arch: str) -> None:
        """Make it a model of ``arch``; all sizes stand in the options already."""
        for key in ("arch", "_name"):
            if key in self.values:
                self[key] = arch


def read_model(path: str | Path) -> tuple[dict[str, Any], Options]:
    """The content of a checkpoint file of any model of fairseq, and the model's options.

    Raises:
        DataError: no such file, a damaged one, or one that is no checkpoint of fairseq.
    """
    state = checkpoint_file.read(path)
    options = Options.of(state)
    if options is None or not isinstance(state.get("model"), dict):
        raise DataError(f"{path}: not a checkpoint of fairseq (no model in it)")
    return state, options


def _known_form(form: str) -> HeadForm | None:
    return next((known for known in HEAD_FORMS if known == form), None)
