"""From fairseq's options to the HeadPlan of a model."""

# No `from __future__ import annotations`: fairseq reads the fields' types as types, not as text.
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any, Optional

from fairseq.dataclass import ChoiceEnum
from fairseq.models.transformer import TransformerConfig
from omegaconf import OmegaConf, open_dict

from fairseq_plugin.autocast import AUTOCAST_TYPES
from fairseq_plugin.fitting import HEAD_FORMS
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
        layers = getattr(args, f"{side}_layers_to_keep", None)
        if layers:
            plan = _take_layers(plan, component, str(layers))
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


def _take_layers(plan: HeadPlan, component: str, layers: str) -> HeadPlan:
    depth = len(plan.heads[component])
    try:
        numbers = sorted(int(layer) for layer in layers.split(","))
    except ValueError:
        raise UsageError(f"layers to keep: {layers!r}; give numbers with commas, 0,2,4") from None
    for number in numbers:
        if not 0 <= number < depth:
            raise UsageError(f"{component}: no layer {number} to keep, the model has {depth}")
    return HeadPlan(
        kept={**plan.kept, component: [plan.kept[component][n] for n in numbers]},
        heads={**plan.heads, component: [plan.heads[component][n] for n in numbers]},
    )
