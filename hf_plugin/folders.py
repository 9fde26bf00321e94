"""Models in Hugging Face folders, for the command line: looked at, pruned, written again."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers import AutoModel, PreTrainedConfig, PreTrainedModel

from headprune.cost import Sizes
from headprune.errors import DataError, UsageError
from headprune.folders import new_folder, require_outside
from headprune.plan import HeadPlan
from hf_plugin.families import Attention, attentions, form_of
from hf_plugin.fingerprints import model_fingerprint
from hf_plugin.folder_check import check_weights
from hf_plugin.folder_files import copy_files, named_as
from hf_plugin.loading import class_that_saved, from_pretrained, read_config
from hf_plugin.modeling import prune_heads
from hf_plugin.places import reporting
from hf_plugin.quiet import quieten
from hf_plugin.surgery import head_plan

_WEIGHTS = ("*.safetensors", "*.bin", "*.pt", "*.pth", "*.h5", "*.msgpack", "*.onnx")
NOT_COPIED = (*_WEIGHTS, "*.ot", "*.gguf", "*.index.json", "openvino_*", "checkpoint-*", ".git")
"""Files and folders beside a model that do not belong to another form of it."""


@dataclass(frozen=True)
class Folder:
    """A model's folder, as ``save_pretrained`` writes it.

    Attributes:
        outline: the model without values, on torch's meta device.
    """

    path: Path
    outline: PreTrainedModel

    @classmethod
    def load(cls, path: Path) -> Folder:
        """Read what the folder's config says, and check it and the weights in the folder.

        Raises:
            DataError: no config, one that makes no sense, or weights that do not fit it.
            UsageError: a family that cannot be pruned.
        """
        quieten()
        with reporting(f"{path}: cannot read the model"):
            config, _ = read_config(path)
            outline = _outline(config, where=str(path))
        attentions(outline)
        check_weights(path, outline)
        return cls(path, outline)

    @property
    def plan(self) -> HeadPlan:
        """The heads that the model keeps."""
        return head_plan(self.outline)

    @property
    def form(self) -> str:
        """How heads are pruned; see ``form_of``."""
        return form_of(self.outline)

    @property
    def parameters(self) -> int:
        """Weights of the model; those that are tied to one another count once."""
        return sum(parameter.numel() for parameter in self.outline.parameters())

    @property
    def unpruned_parameters(self) -> int:
        """Weights that the model had before anything was removed."""
        return self.parameters + sum(
            (attention.heads - len(attention.present)) * attention.head_parameters
            for layers in attentions(self.outline).values()
            for attention in layers
        )

    @property
    def sizes(self) -> Sizes:
        """The widths of the model.

        The feed-forward width is that of a plain layer with as many weights, since some families
        have a gated one.
        """
        found = attentions(self.outline)
        side = {"ES": "encoder", "ED": "decoder", "DS": "decoder"}
        sizes: dict[str, int] = {}
        for component, layers in found.items():
            name, attention = side[component], layers[0]
            width = attention.output.out_features
            sizes[f"{name}_width"] = width
            sizes[f"{name}_head_dim"] = attention.head_size
            sizes[f"{name}_feed_forward"] = self._feed_forward(component, attention) // (2 * width)
        if "ES" not in found:  # ED attends to an encoder as wide as the decoder
            sizes["encoder_width"] = sizes["decoder_width"]
        head = self.outline.get_output_embeddings()
        return Sizes(**sizes, vocabulary=getattr(head, "out_features", 0) if "DS" in found else 0)

    def _feed_forward(self, component: str, attention: Attention) -> int:
        """Weights of the lowest layer's linear modules that belong to no attention."""
        layers = self.outline.base_model.get_submodule(attention.names.layers)
        layer = layers.get_submodule("0")
        mine = [a.names for a in (found[0] for found in attentions(self.outline).values())]
        inside = (
            *(
                prefix
                for names in mine
                if names.layers == attention.names.layers
                for prefix in (f"{names.attention}.", names.output)
            ),
            "crossattention.",  # of a BERT that is a decoder, which is not pruned
        )
        return sum(
            module.weight.numel()
            for name, module in layer.named_modules()
            if isinstance(module, nn.Linear) and not name.startswith(inside)
        )

    def prune(self, plan: HeadPlan, *, form: str) -> Pruned:
        """The model with the heads of ``plan`` alone, its weights read.

        Raises:
            UsageError: a plan for another shape, or a form that a folder cannot hold.
            DataError: no weights, or not those of the config.
        """
        if form == "mask":
            raise UsageError(
                "form: mask is not written to a Hugging Face folder; remove computes the same, "
                "and in Python there is hf_plugin.masked"
            )
        plan.require_shape(self.plan.heads, of=str(self.path))
        return Pruned(self.path, prune_heads(self.load_model(), plan, form=form))

    @property
    def fingerprint(self) -> str:
        """What tells the weights from others; they are read for it.

        Raises:
            DataError: no weights, or not those of the config.
        """
        return model_fingerprint(self.load_model())

    def load_model(self) -> PreTrainedModel:
        """The model with its weights, every one of them from the folder's files.

        Raises:
            DataError: no weights, or not those of the config.
        """
        with reporting(f"{self.path}: cannot read the weights"):
            loaded: Any = from_pretrained(
                self.path,
                None if self.outline.config.architectures else AutoModel,
                output_loading_info=True,
            )
        model: PreTrainedModel
        model, info = loaded
        lost = [*info["missing_keys"], *(key for key, *_ in info["mismatched_keys"])]
        if lost:
            raise DataError(f"{self.path}: its files do not hold {min(lost)} as its config says")
        return model


@dataclass(frozen=True)
class Pruned:
    """A pruned model, and the folder that it comes from."""

    source: Path
    model: PreTrainedModel

    @property
    def plan(self) -> HeadPlan:
        """The heads that the model keeps."""
        return head_plan(self.model)

    @property
    def parameters(self) -> int:
        """Weights of the model."""
        return sum(parameter.numel() for parameter in self.model.parameters())

    def save(self, path: Path) -> None:
        """Write the model, and beside it the tokenizer and what else lay in the source's folder.

        The folder appears whole or not at all.

        Raises:
            UsageError: ``path`` lies in the source's folder.
            DataError: ``path`` exists and is not empty, or cannot be written; or a link in the
                source's folder points to a place outside it.
        """
        require_outside(path, self.source)
        with new_folder(path) as temporary:
            unwanted = named_as(*NOT_COPIED)
            copy_files(self.source, temporary, wanted=lambda name: not unwanted(name))
            self.model.save_pretrained(temporary)


def _outline(config: PreTrainedConfig, *, where: str) -> PreTrainedModel:
    with torch.device("meta"):
        if not config.architectures:
            model: PreTrainedModel = AutoModel.from_config(config, trust_remote_code=False)
            return model
        return class_that_saved(config, where=where)(config)  # type: ignore[no-any-return]
