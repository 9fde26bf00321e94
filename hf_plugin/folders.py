"""Models in Hugging Face folders for the command line: reading, pruning, writing."""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import torch
from transformers import AutoModel, PreTrainedConfig, PreTrainedModel

from headprune.budget import Budget
from headprune.cost import Sizes
from headprune.errors import DataError, UsageError
from headprune.folders import new_folder, require_outside
from headprune.gates.closing import gates_not_closed
from headprune.gates.learned import LearnedGates
from headprune.plan import PruningPlan, Shape
from headprune.provenance import NAME as PROVENANCE
from hf_plugin.families import attentions, form_of, require_family
from hf_plugin.fingerprints import model_fingerprint
from hf_plugin.folder_check import check_weights, weights_named
from hf_plugin.folder_files import copy_files, named_as
from hf_plugin.gates import close_gates, stored_gates, target_of
from hf_plugin.loading import class_that_saved, complete_model, read_config
from hf_plugin.modeling import (
    GATES,
    HeadPrunedModel,
    prune,
    reading_gates,
    stock_class,
    stock_config,
)
from hf_plugin.places import reporting
from hf_plugin.plans import model_shape
from hf_plugin.plans import plan as plan_of_model
from hf_plugin.quiet import quieten
from hf_plugin.sizes import count_parameters, sizes_of

_WEIGHTS = ("*.safetensors", "*.bin", "*.pt", "*.pth", "*.h5", "*.msgpack", "*.onnx")
_TRAINING = ("checkpoint-*", "trainer_state.json")
NOT_COPIED = (
    *(*_WEIGHTS, *_TRAINING, PROVENANCE),
    *("*.ot", "*.gguf", "*.index.json", "openvino_*", ".git"),
)
"""Files and folders beside a model that do not belong to another form of it."""

_SIZES = ("_size", "_dim", "_embeddings", "_positions")
"""Endings of the names of sizes in configs."""

_ACTIVATIONS = ("hidden_act", "hidden_activation", "activation", "activation_function")
"""Names of the activation function in configs. With the sizes, they tell architectures with the
same units apart."""


@dataclass(frozen=True)
class Folder:
    """A model's folder, as ``save_pretrained`` writes it, or a pruned model that was read from one.

    Implements ``headprune.model.PrunableModel``.

    Attributes:
        path: the folder that was read.
        model: the model. Before it is pruned it has no values: it is on torch's meta device.
    """

    path: Path
    model: PreTrainedModel

    @classmethod
    def load(cls, path: Path) -> Folder:
        """Read the folder's config, and check it and the weights.

        Raises:
            DataError: no config, one that makes no sense, or weights that do not fit it.
            UsageError: a family that cannot be pruned.
        """
        quieten()
        with reporting(f"{path}: cannot read the model"):
            config, _ = read_config(path)
            require_family(config.model_type)
            model = outline_of(config, where=str(path))
        attentions(model)
        check_weights(path, model)
        return cls(path, model)

    @property
    def shape(self) -> Shape:
        """The units of each layer of the unpruned model, of every component that it has."""
        return model_shape(self.model)

    @property
    def plan(self) -> PruningPlan:
        """The units that are kept: all components of heads, others where some are pruned."""
        return plan_of_model(self.model)

    @property
    def computed_plan(self) -> PruningPlan:
        """The units that a forward pass computes: those that are kept, and uniform heads."""
        heads = {
            name: [attention.present for attention in by_layer]
            for name, by_layer in attentions(self.model).items()
        }
        return replace(self.plan, kept={**self.plan.kept, **heads})

    @property
    def dtype(self) -> str | None:
        """The type of the weights, which the config names; None where it does not."""
        dtype = self.model.config.dtype if self._is_outline else self.model.dtype
        return None if dtype is None else str(dtype).removeprefix("torch.")

    @property
    def form(self) -> str:
        """The form of the pruned units; see ``form_of``."""
        return form_of(self.model)

    @property
    def parameters(self) -> int:
        """The number of parameters; those that are tied to one another count once."""
        return count_parameters(self.model)

    @property
    def unpruned_parameters(self) -> int:
        """The number of parameters before anything was removed."""
        return count_parameters(self._unpruned)

    def parameters_with(self, plan: PruningPlan) -> int:
        """The number of parameters after pruning to ``plan``; see ``prune``."""
        pruned = prune(copy.deepcopy(self._unpruned), self.plan.replaced_by(plan))
        return count_parameters(pruned)

    @cached_property
    def _unpruned(self) -> PreTrainedModel:
        """The unpruned model, without values."""
        if not isinstance(self.model, HeadPrunedModel):
            return self.model
        with torch.device("meta"):
            return stock_class(type(self.model))(stock_config(self.model.config))

    @cached_property
    def sizes(self) -> Sizes:
        """The widths of the unpruned model, and the parameters of its units."""
        return sizes_of(self._unpruned)

    @property
    def architecture(self) -> dict[str, object]:
        """The type, sizes and activations of the unpruned model's config."""
        config = self._unpruned.config
        values = {
            name: value
            for name, value in config.to_dict().items()
            if (type(value) is int and name.endswith(_SIZES))
            or (isinstance(value, str) and name in _ACTIVATIONS)
        }
        return {"model_type": config.model_type, **values}

    def prune(self, plan: PruningPlan, *, form: str = "remove") -> Folder:
        """The model in memory with only the units of ``plan``; the folder is not changed.

        Components that the plan does not name stay as they are.

        Raises:
            UsageError: a plan for another shape, or a form that a folder cannot hold.
            DataError: no weights, or not those of the config.
        """
        if form == "mask":
            raise UsageError(
                "form: mask is not written to a Hugging Face folder; remove computes the same, "
                "and in Python there is hf_plugin.masked"
            )
        self._require_no_gates()
        plan.require_shape(self.shape, of=str(self.path))
        return Folder(self.path, prune(self.load_model(), plan, form=form))

    @cached_property
    def gates(self) -> LearnedGates | None:
        """The learned gates; None where the folder has none.

        Raises:
            DataError: they do not fit the model.
        """
        if not self._is_outline:
            return None
        try:
            return stored_gates(self.model, weights_named(self.path, f"{GATES}."))
        except DataError as error:
            raise DataError(f"{self.path}: {error}") from None

    @property
    def gate_target(self) -> Budget | None:
        """The target that the gates were trained to; None without one."""
        return target_of(self.model)

    def with_gates_closed(self) -> Folder:
        """The pruned model: units with closed gates are gone, other gates are in the weights.

        Raises:
            UsageError: the folder has no gates.
        """
        gates = self.gates
        if gates is None:
            raise UsageError(f"{self.path}: no learned gates; train with hf_plugin.gates.L0Trainer")
        token = reading_gates.set(True)
        try:
            model = self.load_model()
        finally:
            reading_gates.reset(token)
        model.add_module(GATES, gates)
        return Folder(self.path, close_gates(model))

    def _require_no_gates(self) -> None:
        if self.gates is not None:
            raise gates_not_closed(self.path)

    def save(self, path: Path) -> None:
        """Write the model, its tokenizer and the other files of the folder that was read.

        The new folder appears whole or not at all.

        Raises:
            UsageError: ``path`` lies in the folder that was read.
            DataError: ``path`` exists and is not empty, or cannot be written; or a link in the
                folder points to a place outside it.
        """
        require_outside(path, self.path)
        with new_folder(path) as temporary:
            unwanted = named_as(*NOT_COPIED)
            copy_files(self.path, temporary, wanted=lambda name: not unwanted(name))
            (self.load_model() if self._is_outline else self.model).save_pretrained(temporary)

    @property
    def fingerprint(self) -> str:
        """A hash that identifies the weights, which are read for it.

        Raises:
            DataError: the weights are missing or do not fit the config.
        """
        return model_fingerprint(self.load_model() if self._is_outline else self.model)

    @property
    def _is_outline(self) -> bool:
        return self.model.device.type == "meta"

    def load_model(self) -> PreTrainedModel:
        """A copy of the model with its weights; of an unpruned one, all from the folder's files.

        Raises:
            DataError: no weights, or not those of the config.
        """
        if not self._is_outline:
            return copy.deepcopy(self.model)
        return complete_model(self.path, name=str(self.path))


def outline_of(config: PreTrainedConfig, *, where: str) -> PreTrainedModel:
    """The model of a config without values, on torch's meta device.

    Args:
        where: the model's name, for messages.
    """
    with torch.device("meta"):
        if not config.architectures:
            model: PreTrainedModel = AutoModel.from_config(config, trust_remote_code=False)
            return model
        return class_that_saved(config, where=where)(config)  # type: ignore[no-any-return]
