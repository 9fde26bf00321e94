"""From fairseq's options to the HeadPlan of a model."""

# No `from __future__ import annotations`: fairseq reads the fields' types as types, not as text.
from argparse import ArgumentParser
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Optional

from fairseq.dataclass import ChoiceEnum
from fairseq.dataclass.utils import gen_parser_from_dataclass
from fairseq.models.transformer import TransformerConfig
from omegaconf import OmegaConf, open_dict

from fairseq_plugin.autocast import AUTOCAST_TYPES
from fairseq_plugin.fitting import HEAD_FORMS
from fairseq_plugin.layers import SIDES, layers_to_keep
from fairseq_plugin.shape import model_shape
from headprune import HeadPlan, UsageError, select

COUNT_OPTIONS = {"ES": "es_heads", "ED": "ed_heads", "DS": "ds_heads"}


def _counts_field(component: str) -> Any:
    return field(
        default=None,
        metadata={
            "help": f"heads kept in each layer of {component}, from the layer next to the "
            "embeddings to the top: 888444, or with commas 16,16,12,8,4,4 (default: all)"
        },
    )


@dataclass
class HeadPrunedTransformerConfig(TransformerConfig):
    """TransformerConfig and which heads of which component are kept."""

    es_heads: Optional[str] = _counts_field("encoder self-attention")
    ed_heads: Optional[str] = _counts_field("encoder-decoder attention")
    ds_heads: Optional[str] = _counts_field("decoder self-attention")
    head_seed: int = field(
        default=1,
        metadata={"help": "chooses at random which heads of each layer stay, given their number"},
    )
    head_plan: Optional[str] = field(
        default=None,
        metadata={
            "help": "a plan file (from `headprune plan`) that says exactly which heads stay; "
            "with head counts as well, they choose among its heads"
        },
    )
    head_form: ChoiceEnum(HEAD_FORMS) = field(  # type: ignore[valid-type]
        default="remove",
        metadata={
            "help": "remove: pruned heads' weights are gone; mask: they stay, and the heads' "
            "outputs are multiplied by 0. Both compute the same"
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


def resolve_plan(args: Any) -> HeadPlan:
    """The plan that ``args`` ask for.

    ``head_plan`` is a file's path, or a plan's JSON, as checkpoints have it. Head counts choose
    among its heads, or among all. ``encoder_layers_to_keep`` and its twin take layers out, of the
    model and of the plan.

    Raises:
        HeadpruneError: the plan or the counts do not fit the model.
    """
    shape = model_shape(args)
    plan = HeadPlan.full(shape)
    given = getattr(args, "head_plan", None)
    if given:
        plan = read_plan(given)
        plan.require_shape(shape)
    keep = {}
    for component, option in COUNT_OPTIONS.items():
        counts = getattr(args, option, None)
        if counts is not None:
            if component not in shape:
                raise UsageError(f"{component}: heads are given, but the model has no {component}")
            keep[component] = str(counts)
    if keep:
        plan = select.at_random(shape, keep=keep, seed=args.head_seed, within=plan)
    for component in shape:
        side = "encoder" if component == "ES" else "decoder"
        layers = layers_to_keep(args, side)
        if layers is not None:
            plan = _take_layers(plan, component, layers)
    return plan


def read_plan(given: str) -> HeadPlan:
    """A plan from its JSON text or the path of its file."""
    if given.lstrip().startswith("{"):
        return HeadPlan.from_json(given, source="head plan")
    return HeadPlan.load(given)


def store_plan(args: Any, plan: HeadPlan) -> None:
    """Write the plan itself into the model's options, which fairseq saves in the checkpoint."""
    with open_dict(args) if OmegaConf.is_config(args) else nullcontext():
        args.head_plan = plan.to_json()
        for option in COUNT_OPTIONS.values():
            setattr(args, option, None)  # they are in the plan now
        args.encoder_layers = len(plan.heads["ES"])
        args.decoder_layers = len(plan.heads["DS"])
        for side in SIDES:
            setattr(args, f"{side}_layers_to_keep", None)  # done


def check_types(args: Any) -> None:
    """Raise a UsageError for an option of the model of the wrong type.

    The command line has checked them; ``--model-overrides`` and configuration files have not.
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
    plan = getattr(args, "head_plan", None)
    if plan is not None and not isinstance(plan, str):
        raise UsageError(f"head_plan: {plan!r} is not a file's path")
    for name, choices in (("head_form", HEAD_FORMS), ("autocast", AUTOCAST_TYPES)):
        value = getattr(args, name, None)
        if value is not None and str(value) not in choices:
            raise UsageError(f"{name}: {value!r}; give {' or '.join(choices)}")


@cache
def _option_types() -> dict[str, type]:
    """The type of each option of the model, as the command line takes it."""
    parser = ArgumentParser()
    gen_parser_from_dataclass(
        parser, HeadPrunedTransformerConfig(), delete_default=True, with_prefix=""
    )
    return {action.dest: action.type for action in parser._actions if type(action.type) is type}


def _take_layers(plan: HeadPlan, component: str, layers: Sequence[int]) -> HeadPlan:
    return HeadPlan(
        kept={**plan.kept, component: [plan.kept[component][n] for n in layers]},
        heads={**plan.heads, component: [plan.heads[component][n] for n in layers]},
    )
