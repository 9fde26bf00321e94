"""The fields of a pruned model's config: which units are kept, and which heads are uniform."""

from __future__ import annotations

from typing import Any

from transformers import PreTrainedConfig, PreTrainedModel

from headprune.components import COMPONENTS, HEADS, LAYERS, NEURONS
from headprune.errors import DataError, UsageError
from headprune.plan import PruningPlan
from headprune.ranges import format_ranges, parse_ranges
from hf_plugin.families import attentions, family_of
from hf_plugin.head_names import FAMILIES, FEED_FORWARD, layer_lists
from hf_plugin.plans import full_plan, model_shape, without_units_of_dropped_layers
from hf_plugin.plans import plan as plan_of_model
from hf_plugin.pruned_files import BY_HEAD

FIELDS: dict[str, Any] = {
    "kept_heads": dict[str, list[list[int]]] | None,
    "kept_neurons": dict[str, list[str]] | None,
    "kept_layers": dict[str, list[int]] | None,
    "uniform_heads": dict[str, list[list[int]]] | None,
    "uniform_layout": str | None,
}
"""The types of the fields. Neurons are ranges such as ``0-511,600``, one text for each layer."""


def describe(model: PreTrainedModel, config: PreTrainedConfig) -> None:
    """Write the kept and uniform units of ``model`` into ``config``."""
    plan = plan_of_model(model)
    uniform = {
        name: [list(attention.uniform) for attention in by_layer]
        for name, by_layer in attentions(model).items()
    }
    config.kept_heads = kept_lists(plan)
    config.kept_neurons = {
        name: [format_ranges(neurons) for neurons in by_layer]
        for name, by_layer in plan.kept.items()
        if name in NEURONS
    } or None
    config.kept_layers = {
        name: [number for number, kept in enumerate(by_layer) if kept]
        for name, by_layer in plan.kept.items()
        if name in LAYERS
    } or None
    config.uniform_heads = uniform if any(map(any, uniform.values())) else None
    config.uniform_layout = BY_HEAD


def kept_lists(plan: PruningPlan) -> dict[str, list[list[int]]]:
    """The heads that a plan keeps, as a config's ``kept_heads`` holds them."""
    return {
        name: [list(heads) for heads in by_layer]
        for name, by_layer in plan.kept.items()
        if name in HEADS
    }


def configured_plans(
    config: PreTrainedConfig, model: PreTrainedModel
) -> tuple[PruningPlan, PruningPlan]:
    """Two plans: the kept units, and the units with weights, including uniform heads.

    A model may have fewer components than the one that was saved (a decoder alone), and then takes
    what concerns it.

    Raises:
        DataError: the config describes no plan for the model.
    """
    # Most models lack heads alone; a plan of all neurons takes longer to check.
    heads_alone = not (config.kept_neurons or config.kept_layers)
    full = full_plan(model, HEADS if heads_alone else COMPONENTS)
    kept = dict(full.kept)
    present = dict(full.kept)
    family = family_of(model)
    known = {*FAMILIES[family], *FEED_FORWARD[family], *layer_lists(family)}
    elsewhere = known - set(model_shape(model))
    field = "kept_heads"
    try:
        heads = _by_component(config, "kept_heads", elsewhere=elsewhere)
        uniform = _by_component(config, "uniform_heads", elsewhere=elsewhere)
        for name in {**heads, **uniform}:
            kept[name] = heads.get(name, full.kept.get(name, ()))
            both = zip(kept[name], uniform.get(name) or [()] * len(kept[name]), strict=True)
            present[name] = tuple(tuple(sorted((*heads, *more))) for heads, more in both)
        PruningPlan(kept=kept, units=full.units)
        field = "kept_neurons"
        for name, ranges in _by_component(config, field, elsewhere=elsewhere).items():
            kept[name] = present[name] = [parse_ranges(text) for text in ranges]
        PruningPlan(kept=kept, units=full.units)
        field = "kept_layers"
        for name, numbers in _by_component(config, field, elsewhere=elsewhere).items():
            _check_layers(name, numbers, layers=len(full.kept.get(name, ())))
            kept[name] = present[name] = [
                (0,) if number in numbers else () for number in range(len(full.kept[name]))
            ]
        plans = (
            without_units_of_dropped_layers(PruningPlan(kept=each, units=full.units), family)
            for each in (kept, present)
        )
        return next(plans), next(plans)
    except (UsageError, TypeError, ValueError, AttributeError) as error:
        where = config.name_or_path or type(config).__name__
        raise DataError(f"{where}: {field} of the configuration: {error}") from None


def _by_component(config: PreTrainedConfig, key: str, *, elsewhere: set[str]) -> dict[str, Any]:
    given = getattr(config, key, None) or {}
    if not isinstance(given, dict):
        raise UsageError(f"{key} is a {type(given).__name__}, it has to name components")
    return {name: layers for name, layers in given.items() if name not in elsewhere}


def _check_layers(name: str, numbers: Any, *, layers: int) -> None:
    """Check that ``numbers`` are numbers of the model's layers."""
    if name not in LAYERS or not isinstance(numbers, list):
        raise UsageError(f"{name}: {numbers!r} is no list of layers")
    for number in numbers:
        if type(number) is not int or not 0 <= number < layers:
            raise UsageError(f"{name}: there is no layer {number!r}, the model has {layers}")
