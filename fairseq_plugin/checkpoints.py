"""fairseq checkpoint files: reading, pruning, and export at full size."""

from __future__ import annotations

import copy
import re
from argparse import Namespace
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fairseq_plugin import checkpoint_check, checkpoint_file
from fairseq_plugin.checkpoint_check import NO_WEIGHTS
from fairseq_plugin.fitting import (
    HEAD_FORMS,
    KEPT_HEADS,
    HeadForm,
    fit_weights,
    require_blocks,
    stored_sublayers,
)
from fairseq_plugin.layers import SIDES
from fairseq_plugin.learned_gates import (
    GATE_OPTIONS,
    PREFIX,
    gates_of,
    stored_gates,
    target_in,
)
from fairseq_plugin.options import PLAN_OPTIONS
from fairseq_plugin.plain_state import make_plain
from fairseq_plugin.shape import (
    complete_plan,
    layers_present,
    model_shape,
    sizes_of,
    unit_sizes,
)
from headprune.budget import Budget
from headprune.components import NEURONS, side_of
from headprune.cost import Sizes, pruned_parameters
from headprune.errors import DataError, UsageError
from headprune.files import atomic_path
from headprune.gates.closing import closed, folded, gates_not_closed, warn_of_open_gates
from headprune.gates.learned import LearnedGates
from headprune.plan import PruningPlan
from headprune.scores.fingerprint import fingerprint
from headprune.surgery import uncut

_ARCH = "transformer_headpruned"
_MEANING: dict[str, object] = {
    "activation_fn": "relu",
    **dict.fromkeys(("encoder_normalize_before", "decoder_normalize_before"), False),
    **dict.fromkeys(("encoder_learned_pos", "decoder_learned_pos"), False),
    **dict.fromkeys(("layernorm_embedding", "no_scale_embedding"), False),
    "no_token_positional_embeddings": False,
}
"""Options that change the outputs of the same weights, with fairseq's defaults."""
_AVERAGED = ("ema", "ema_fp32_params")
"""Weights in ``extra_state`` that --store-ema averages over updates."""

_OWN_OPTIONS = (*PLAN_OPTIONS, "head_seed", "head_form", "autocast")
WITH_L0 = "_with_l0"
"""The end of the names of criteria that close gates, each of which fairseq has without it."""
_OWN_CRITERIA = {WITH_L0: "l0_", "_with_distillation": "distill_"}
"""Ends of the names of the plugin's criteria, and the beginnings of the names of their options."""


@dataclass
class Checkpoint:
    """A fairseq checkpoint of a Transformer, pruned or not.

    Implements ``headprune.model.PrunableModel``.

    Attributes:
        state: the file's content.
        options: the model's options in it; changes to them are changes of ``state``.
        path: the file that was read.
    """

    state: dict[str, Any]
    options: Options
    path: Path

    @classmethod
    def load(cls, path: str | Path) -> Checkpoint:
        """Read a checkpoint, executing nothing that is in it.

        Raises:
            DataError: no such file, not a whole checkpoint, not one of a Transformer with encoder
                and decoder, or one whose options, plan and weights do not fit each other.
        """
        state, options = read_model(path)
        width = options.get("decoder_output_dim")
        if isinstance(width, str) and re.fullmatch("[0-9]{1,9}", width):
            options["decoder_output_dim"] = int(width)  # fairseq's command line stores it as text
        checkpoint_check.split_fused(state["model"])
        checkpoint_check.check(options.values, state["model"], path=str(path))
        return cls(state=state, options=options, path=Path(path))

    @property
    def shape(self) -> dict[str, tuple[int, ...]]:
        """The units of each layer of the unpruned model, of all its components."""
        return model_shape(Namespace(**self.options.values))

    @property
    def plan(self) -> PruningPlan:
        """The units that the checkpoint keeps.

        The plan always has the components of heads, and those of neurons and layers if pruned.
        """
        text = self.options.get("head_plan")
        if not text:
            return PruningPlan.full(self.shape).normalised(self.shape)
        return PruningPlan.from_json(text, source=str(self.path)).normalised(self.shape)

    @property
    def form(self) -> HeadForm | None:
        """The form of the pruned units; None in a checkpoint that stock fairseq wrote."""
        return _known_form(str(self.options.get("head_form")))

    @property
    def computed_plan(self) -> PruningPlan:
        """The units that a forward pass computes: all of them in form mask."""
        return PruningPlan.full(self.plan.units) if self.form == "mask" else self.plan

    @property
    def sizes(self) -> Sizes:
        """The widths of the model."""
        embeddings = self.state["model"].get("decoder.embed_tokens.weight")
        vocabulary = 0 if embeddings is None else embeddings.size(0)
        return sizes_of(Namespace(**self.options.values), vocabulary=vocabulary)

    @property
    def architecture(self) -> dict[str, object]:
        """The options beside units and widths that decide what the weights mean, and vocabularies.

        Architectures of fairseq are names for such options.
        """
        weights = self.state["model"]
        words = {
            f"{side}_words": len(weights[name])
            for side in ("encoder", "decoder")
            if (name := f"{side}.embed_tokens.weight") in weights
        }
        return words | {
            name: self.options.get(name) or default for name, default in _MEANING.items()
        }

    def training_flags(self) -> tuple[str, dict[str, Any], float | None]:
        """The architecture, the model's other options and the highest learning rate.

        See ``fairseq_plugin.training_flags``.
        """
        from fairseq_plugin.training_flags import learning_rate, training_flags

        return *training_flags(self.options.values), learning_rate(self.state)

    def require_data(self, data: Path, *, languages: tuple[str, str], name: str) -> None:
        """Check that the model can be fine-tuned on data; see ``fairseq_plugin.baseline_model``."""
        from fairseq_plugin.baseline_model import require_data

        require_data(self, data, languages=languages, name=name)

    @property
    def parameters(self) -> int:
        """Parameters in the file; tensors that are tied to one another count once."""
        return sum(tensor.numel() for tensor in self._weights())

    @property
    def weight_bytes(self) -> int:
        """The size of the parameters in the file, without the state of the training."""
        return sum(tensor.nbytes for tensor in self._weights())

    def _weights(self) -> Iterable[Tensor]:
        """The model's weights, each set of tied tensors once."""
        unique: dict[int, Tensor] = {}
        for name, tensor in self.state["model"].items():
            if name.startswith(PREFIX) or name in self._copies:
                continue
            if tensor.is_floating_point() and not name.endswith(NO_WEIGHTS):
                # Tied tensors share their memory. Empty ones have none, and count as nothing.
                unique[tensor.data_ptr() or id(tensor)] = tensor
        return unique.values()

    @property
    def _copies(self) -> Collection[str]:
        """The names of weights that the options tie to another weight, such as shared embeddings.

        In an average of checkpoints they have a storage of their own.
        """
        output = "decoder.output_projection.weight"
        if self.options.get("share_all_embeddings"):
            return ("decoder.embed_tokens.weight", output)
        return (output,) if self.options.get("share_decoder_input_output_embed") else ()

    @property
    def unpruned_parameters(self) -> int:
        """Parameters of the model before units were removed."""
        if self.form != "remove":
            return self.parameters
        return self.parameters + pruned_parameters(self.complete_plan, self.sizes)

    def parameters_with(self, plan: PruningPlan) -> int:
        """The number of parameters after pruning to ``plan``; see ``prune``."""
        pruned = complete_plan(self.plan.replaced_by(plan), Namespace(**self.options.values))
        return self.unpruned_parameters - pruned_parameters(pruned, self.sizes)

    @property
    def complete_plan(self) -> PruningPlan:
        """The plan with all components of the model."""
        return complete_plan(self.plan, Namespace(**self.options.values))

    @property
    def fingerprint(self) -> str:
        """A hash that identifies the weights."""
        return fingerprint(self.state["model"])

    def prune(self, plan: PruningPlan, *, form: str = "remove") -> Checkpoint:
        """A checkpoint of ``transformer_headpruned`` that keeps the units of ``plan``.

        Components that the plan does not name stay as they are. The optimizer's state is dropped:
        it belongs to the weights as they were. Train on with ``--finetune-from-model``.

        Raises:
            UsageError: a plan for another shape, or a form that fairseq models do not have.
            DataError: a unit of the plan that the checkpoint has lost already.
        """
        self.require_no_gates()
        known = _known_form(form)
        if known is None:
            raise UsageError(f"form: {form} is for Hugging Face models; give remove or mask")
        plan.require_shape(self.shape, of=str(self.path))
        plan = self.plan.replaced_by(plan).normalised(self.shape)
        args = Namespace(**self.options.values)
        if known == "remove":
            self._require_blocks(complete_plan(plan, args))
        result = self._copy()
        # fairseq cannot begin the averages of --store-ema anew, so they are pruned too.
        extra = self.state.get("extra_state") or {}
        averages = {name: dict(extra[name]) for name in _AVERAGED if extra.get(name)}
        if averages:
            result.state["extra_state"] |= averages
        for weights in (result.state["model"], *averages.values()):
            fit_weights(
                weights,
                kept=complete_plan(plan, args),
                stored=self.plan,
                form=known,
                unit_sizes=unit_sizes(args),
            )
        if not str(self.options.get("arch", "")).startswith(_ARCH):
            result.options.name_architecture(_ARCH)
        for option in _OWN_OPTIONS:
            result.options[option] = None
        for side in SIDES:
            result.options[f"{side}_layers_to_keep"] = None
        result.options["head_seed"] = 1
        result.options["head_plan"] = plan.to_json()
        result.options["head_form"] = form
        result.options["autocast"] = self.options.get("autocast") or "none"
        return result

    def _require_blocks(self, plan: PruningPlan) -> None:
        """Check the neurons of a model with quantisation noise; see ``require_blocks``."""
        if not self.options.get("quant_noise_pq"):
            return
        block = int(self.options.get("quant_noise_pq_block_size") or 8)
        for sublayer in stored_sublayers(plan, "remove"):
            if sublayer.component in NEURONS:
                kept = len(plan.kept[sublayer.component][sublayer.layer])
                neurons = plan.units[sublayer.component][sublayer.layer]
                require_blocks(kept, neurons=neurons, block=block, name=sublayer.name)

    def export_to_fairseq(self) -> Checkpoint:
        """A checkpoint of stock ``transformer`` that computes the same.

        Pruned heads come back as zeros, so their outputs are zero as before. Neurons do too, unless
        each layer of a side keeps equally many: then that is the width of its feed-forward layers.
        Layers that are gone stay so, and the model is one of fewer layers. Options and the state of
        the training are written as plain values; see ``fairseq_plugin.plain_state``.

        Raises:
            UsageError: no layer is left in the encoder or in the decoder.
            DataError: fairseq cannot read the options of a checkpoint of version 0.10 or older.
        """
        self.require_no_gates()
        result = self if self.form != "mask" else self.prune(self.plan)
        result = result._copy()
        result._name_criterion_of_fairseq()
        plan, sizes = self.complete_plan, unit_sizes(Namespace(**self.options.values))
        weights: dict[str, Tensor] = result.state["model"]
        for name in [name for name in weights if name.endswith(KEPT_HEADS)]:
            del weights[name]
        widths = {component: _equal_width(plan, component) for component in NEURONS}
        for sublayer in stored_sublayers(plan, "remove"):
            component = sublayer.component
            kept = plan.kept[component][sublayer.layer]
            units = plan.units[component][sublayer.layer]
            if len(kept) == units or widths.get(component):
                continue
            bias = weights[f"{sublayer.output}.bias"]
            for key, dim in sublayer.dimensions.items():
                tensor = weights.get(sublayer.prefix + key)
                if tensor is None:  # of a sub-layer without units
                    tensor = bias.new_empty(self._empty_shape(component, key))
                weights[sublayer.prefix + key] = uncut(
                    tensor, kept, units=units, unit_size=sizes[component], dim=dim
                )
        for side, component in (("encoder", "EF"), ("decoder", "DF")):
            layers = len(layers_present(plan, component, "remove"))
            if not layers:
                raise UsageError(
                    f"{self.path}: fairseq's transformer needs a layer in the {side}, and all are "
                    "pruned"
                )
            result.options[f"{side}_layers"] = layers
            result.options[f"{side}_ffn_embed_dim"] = (
                widths[component] or self.options[f"{side}_ffn_embed_dim"]
            )
        result.options.name_architecture("transformer")
        for option in (*_OWN_OPTIONS, *GATE_OPTIONS):
            result.options.drop(option)
        make_plain(result.state, source=self.path)
        cfg = result.state["cfg"]
        if isinstance(cfg.get("common"), dict):
            cfg["common"]["user_dir"] = None  # stock fairseq shall not look for the plugin
        options = Options.of(result.state)
        assert options is not None
        return Checkpoint(state=result.state, options=options, path=self.path)

    @property
    def gates(self) -> LearnedGates | None:
        """The learned gates; None where the checkpoint has none.

        Raises:
            DataError: its gates are not those of its options and its plan.
        """
        stored = stored_gates(self.state["model"])
        gates = gates_of(Namespace(**self.options.values), self.plan)
        if gates is None and not stored:
            return None
        own = {} if gates is None else gates.state_dict()
        shapes = {PREFIX + name: tensor.shape for name, tensor in own.items()}
        if gates is None or shapes != {name: tensor.shape for name, tensor in stored.items()}:
            raise DataError(f"{self.path}: its gates are not those that its options name")
        gates.load_state_dict({name.removeprefix(PREFIX): t for name, t in stored.items()})
        return gates.eval()

    @property
    def gate_target(self) -> Budget | None:
        """The target that the gates were trained to; None without one.

        Raises:
            UsageError: the options of the checkpoint's criterion name no target.
        """
        cfg = self.state.get("cfg")
        criterion = cfg.get("criterion") if isinstance(cfg, dict) else self.state.get("args")
        return target_in(Namespace(**criterion) if isinstance(criterion, dict) else criterion)

    def with_gates_closed(self) -> Checkpoint:
        """The pruned checkpoint: units with closed gates are gone, other gates are in the weights.

        Raises:
            UsageError: the checkpoint has no gates.
        """
        gates = self.gates
        if gates is None:
            raise UsageError(f"{self.path}: no learned gates; train with --gates ES,ED,DS")
        target = self.gate_target
        warn_of_open_gates(gates, target=target, sizes=lambda: self.sizes, where=str(self.path))
        outcome = closed(gates, target=target, sizes=lambda: self.sizes)
        values = outcome.values
        result = self._copy()
        weights: dict[str, Tensor] = result.state["model"]
        for name in stored_gates(weights):
            del weights[name]
        for option in GATE_OPTIONS:
            result.options.drop(option)
        for sublayer in stored_sublayers(self.complete_plan, self.form):
            if sublayer.component in values:
                name = f"{sublayer.output}.weight"
                weights[name] = folded(weights[name], values[sublayer.component][sublayer.layer])
        result._name_criterion_of_fairseq()
        return result.prune(outcome.plan)

    def _name_criterion_of_fairseq(self) -> None:
        """Leave the options of fairseq's own criterion, so that it reads the checkpoint."""
        cfg, args = self.state.get("cfg"), self.state.get("args")
        criterion = cfg.get("criterion") if isinstance(cfg, dict) else args
        values = criterion if isinstance(criterion, dict) else vars(criterion or Namespace())
        for ending, options in _OWN_CRITERIA.items():
            for name in [name for name in values if name.startswith(options)]:
                del values[name]
            for name in ("_name", "criterion"):
                if isinstance(values.get(name), str):
                    values[name] = values[name].removesuffix(ending)

    def require_no_gates(self) -> None:
        """Raise a UsageError if the checkpoint has learned gates."""
        if stored_gates(self.state["model"]):
            raise gates_not_closed(self.path)

    def with_rows(self, rows: Mapping[str, Tensor]) -> Checkpoint:
        """A copy in which some weights, where the checkpoint has them, keep some rows alone.

        Args:
            rows: the numbers of rows by the name of the weight. Weights that are tied to one
                another stay tied.
        """
        result = self._copy()
        weights: dict[str, Tensor] = result.state["model"]
        cut: dict[int, Tensor] = {}
        for name, kept in rows.items():
            if name in weights:
                place = weights[name].data_ptr()
                cut.setdefault(place, weights[name].index_select(0, kept))
                weights[name] = cut[place]
        return result

    def save(self, path: str | Path) -> None:
        """Write the checkpoint, whole or not at all."""
        with atomic_path(path) as temporary:
            torch.save(self.state, temporary)

    def _empty_shape(self, component: str, key: str) -> tuple[int, ...]:
        """The shape of a projection to no unit."""
        if key.endswith("bias"):
            return (0,)
        side = "encoder" if component == "ED" and key[0] in "kv" else side_of(component)
        width = self.options[f"{side}_embed_dim"]
        return (width, 0) if key.startswith(("out_proj", "fc2")) else (0, width)

    def _copy(self) -> Checkpoint:
        """A copy that shares tensors, without the optimizer's state and averaged weights (EMA)."""
        state = {key: value for key, value in self.state.items() if key != "model"}
        state["last_optimizer_state"] = None
        if extra := state.get("extra_state"):
            state["extra_state"] = {key: extra[key] for key in extra if key not in _AVERAGED}
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
        """Remove the option if it exists."""
        self.values.pop(key, None)

    def name_architecture(self, arch: str) -> None:
        """Set the architecture to ``arch``; the options already have all sizes."""
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


def _equal_width(plan: PruningPlan, component: str) -> int | None:
    """The number of neurons per remaining layer if it is equal in all; else None."""
    layers = layers_present(plan, component, "remove")
    counts = {plan.counts[component][layer] for layer in layers}
    return (counts.pop() or None) if len(counts) == 1 else None


def _known_form(form: str) -> HeadForm | None:
    return next((known for known in HEAD_FORMS if known == form), None)
