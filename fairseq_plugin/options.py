"""Conversion of fairseq's options to the plan of a model."""

# No `from __future__ import annotations`: fairseq reads the fields' types as types, not as text.
from argparse import ArgumentParser
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import cache, lru_cache
from typing import Any, Optional

from fairseq.dataclass import ChoiceEnum
from fairseq.dataclass.utils import gen_parser_from_dataclass
from fairseq.models.transformer import TransformerConfig
from omegaconf import OmegaConf, open_dict

from fairseq_plugin.autocast import AUTOCAST_TYPES
from fairseq_plugin.fitting import HEAD_FORMS
from fairseq_plugin.layers import SIDES, layers_to_keep
from fairseq_plugin.shape import model_shape
from headprune import PruningPlan, UsageError, select
from headprune.components import NEURONS, layers_of

COUNT_OPTIONS = {
    "ES": "es_heads",
    "ED": "ed_heads",
    "DS": "ds_heads",
    "EF": "ef_neurons",
    "DF": "df_neurons",
}
"""For each component of heads and neurons, the option with the numbers to keep."""

PLAN_OPTIONS = (
    "plan",
    "head_plan",
    *COUNT_OPTIONS.values(),
    *("encoder_layers_kept", "decoder_layers_kept"),
)
"""All options that say which units are kept. Of these, checkpoints have ``head_plan`` alone."""


def _heads_field(component: str) -> Any:
    return field(
        default=None,
        metadata={
            "help": f"heads kept in each layer of {component}, from the layer next to the "
            "embeddings to the top: 888444, or with commas 16,16,12,8,4,4 (default: all)"
        },
    )


def _neurons_field(side: str) -> Any:
    return field(
        default=None,
        metadata={
            "help": f"neurons kept in the feed-forward sub-layer of each layer of the {side}: one "
            "number for all layers, or one for each, 2048,1024,512 (default: all)"
        },
    )


def _layers_field(side: str) -> Any:
    return field(
        default=None,
        metadata={
            "help": f"the numbers of the {side}'s layers that are kept, with commas: 0,2,4. Layer "
            "0 is next to the embeddings (default: all)"
        },
    )


@dataclass
class HeadPrunedTransformerConfig(TransformerConfig):
    """TransformerConfig, and the heads, neurons and layers that are kept."""

    plan: Optional[str] = field(
        default=None,
        metadata={
            "help": "a plan file (from `headprune plan`) with the heads, neurons and layers that "
            "are kept; with counts as well, these choose among its heads and neurons"
        },
    )
    head_plan: Optional[str] = field(
        default=None, metadata={"help": "the same as --plan, under its older name"}
    )
    es_heads: Optional[str] = _heads_field("encoder self-attention")
    ed_heads: Optional[str] = _heads_field("encoder-decoder attention")
    ds_heads: Optional[str] = _heads_field("decoder self-attention")
    ef_neurons: Optional[str] = _neurons_field("encoder")
    df_neurons: Optional[str] = _neurons_field("decoder")
    encoder_layers_kept: Optional[str] = _layers_field("encoder")
    decoder_layers_kept: Optional[str] = _layers_field("decoder")
    gates: Optional[str] = field(
        default=None,
        metadata={
            "help": "learn gates on the units of these components, with commas: ES,ED,DS,EF,DF,EL,"
            "DL; for --criterion label_smoothed_cross_entropy_with_l0"
        },
    )
    gates_speed: float = field(
        default=100.0,
        metadata={
            "help": "gates learn this many times faster than the weights (with Adam); their "
            "gradients are multiplied by it too, so that --clip-norm would slow the weights down"
        },
    )
    gates_only: bool = field(
        default=False, metadata={"help": "train the gates alone; all weights stay as they are"}
    )
    head_seed: int = field(
        default=1,
        metadata={
            "help": "seed of the random choice of the heads and neurons kept in each layer, where "
            "their numbers are given"
        },
    )
    head_form: ChoiceEnum(HEAD_FORMS) = field(  # type: ignore[valid-type]
        default="remove",
        metadata={
            "help": "remove: the weights of pruned heads, neurons and layers are gone; mask: they "
            "stay, and the outputs of pruned heads and neurons are multiplied by 0, those of "
            "pruned layers replaced by their inputs. Both compute the same"
        },
    )
    autocast: ChoiceEnum(AUTOCAST_TYPES) = field(  # type: ignore[valid-type]
        default="none",
        metadata={
            "help": "bf16: multiply matrices in bfloat16, faster on CPUs with units for it; "
            "weights, sums and losses stay float32. It goes into the checkpoint, for translating "
            "too"
        },
    )


def resolve_plan(args: Any) -> PruningPlan:
    """The plan that ``args`` ask for, normalised.

    ``plan`` and ``head_plan`` are a file's path, or a plan's JSON, as checkpoints have it. Numbers
    of heads and neurons choose among its units, or among all.

    Raises:
        HeadpruneError: the plan, numbers or layers do not fit the model.
    """
    shape = model_shape(args)
    plan = PruningPlan.full(shape)
    given = _given_plan(args)
    if given:
        plan = read_plan(given)
        plan.require_shape(shape)
        plan = plan.completed(shape)
    keep = {}
    for component, option in COUNT_OPTIONS.items():
        counts = getattr(args, option, None)
        if counts is not None:
            if component not in shape:
                raise UsageError(f"{component}: heads are given, but the model has no {component}")
            keep[component] = str(counts)
            if component in NEURONS and "," not in keep[component]:
                keep[component] = f"{counts}," * len(shape[component])
    if keep:
        chosen = select.at_random(
            {component: shape[component] for component in keep},
            keep=keep,
            seed=args.head_seed,
            within=plan.part(keep),
        )
        plan = plan.replaced_by(chosen)
    layers = {}
    for side in SIDES:
        kept = layers_to_keep(args, side)
        if kept is not None:
            component = layers_of("ES" if side == "encoder" else "DS")
            layers[component] = [
                units if layer in kept else () for layer, units in enumerate(plan.kept[component])
            ]
    plan = PruningPlan(kept={**plan.kept, **layers}, units=plan.units, origin=plan.origin)
    return plan.normalised(shape)


def _given_plan(args: Any) -> str | None:
    """The option with the plan; ``plan`` takes precedence over the plan of the checkpoint."""
    plan: str | None = getattr(args, "plan", None)
    head_plan: str | None = getattr(args, "head_plan", None)
    if plan and head_plan and not _is_json(head_plan):
        raise UsageError("give --plan or --head-plan, not both: they mean the same")
    return plan or head_plan


def _is_json(given: str) -> bool:
    return given.lstrip().startswith("{")


def read_plan(given: str) -> PruningPlan:
    """A plan from its JSON text or the path of its file."""
    if _is_json(given):
        return _parsed(given)
    return PruningPlan.load(given)


@lru_cache(maxsize=4)
def _parsed(text: str) -> PruningPlan:
    # Every layer of a model asks for the plan.
    return PruningPlan.from_json(text, source="plan")


def stored_plan(args: Any) -> PruningPlan:
    """The plan of a model whose options have been through ``store_plan``."""
    return read_plan(args.head_plan)


def store_plan(args: Any, plan: PruningPlan) -> None:
    """Write the plan itself into the model's options, which fairseq saves in the checkpoint."""
    with open_dict(args) if OmegaConf.is_config(args) else nullcontext():
        for option in PLAN_OPTIONS:
            setattr(args, option, None)  # they are in the plan now
        args.head_plan = plan.to_json()
        for side in SIDES:
            setattr(args, f"{side}_layers_to_keep", None)  # fairseq would take layers out again


def check_types(args: Any) -> None:
    """Raise a UsageError if an option of the model has the wrong type.

    Types are checked on the command line, but not in ``--model-overrides`` and configuration files.
    """
    kinds: dict[type, tuple[tuple[type, ...], str]] = {
        int: ((int,), "a whole number"),
        float: ((int, float), "a number"),
    }
    for name, kind in _option_types().items():
        value = getattr(args, name, None)
        accepted, description = kinds.get(kind, ((object,), ""))
        if value is not None and not isinstance(value, accepted):
            raise UsageError(f"{name}: {value!r} is not {description}")
    for name in ("plan", "head_plan"):
        plan = getattr(args, name, None)
        if plan is not None and not isinstance(plan, str):
            raise UsageError(f"{name}: {plan!r} is not a file's path")
    for name, choices in (("head_form", HEAD_FORMS), ("autocast", AUTOCAST_TYPES)):
        value = getattr(args, name, None)
        if value is not None and str(value) not in choices:
            raise UsageError(f"{name}: {value!r}; give {' or '.join(choices)}")


def option_names() -> frozenset[str]:
    """The names of all options of the model."""
    return frozenset(action.dest for action in _parser()._actions)


@cache
def _option_types() -> dict[str, type]:
    """The type of each option of the model on the command line."""
    return {action.dest: action.type for action in _parser()._actions if type(action.type) is type}


def _parser() -> ArgumentParser:
    parser = ArgumentParser()
    gen_parser_from_dataclass(
        parser, HeadPrunedTransformerConfig(), delete_default=True, with_prefix=""
    )
    return parser
