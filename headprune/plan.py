"""PruningPlan: the units of a Transformer that are kept."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from numbers import Integral
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeGuard

from headprune.components import COMPONENTS, HEADS, LAYERS, NEURONS, layers_of, unit_name
from headprune.counts import format_counts
from headprune.errors import DataError, UsageError
from headprune.files import write_text_atomically
from headprune.json_files import parse_json, read_limited
from headprune.origin import Origin
from headprune.ranges import format_ranges, parse_ranges

MOST_UNITS = 10_000_000
"""The units of the largest model: a plan of more would fill the memory."""

Shape = Mapping[str, Sequence[int]]
"""For each component, the number of units of each layer of the unpruned model."""

_FORMAT = "headprune.plan"
_VERSION = 2
"""Version 1 holds heads alone, and is written where a plan has no other units."""


@dataclass(frozen=True, init=False)
class PruningPlan:
    """The units of a model that are kept, by component and layer.

    A plan names the components that it decides on; the units of all others are kept. Layer 0 is
    next to the embeddings. Numbers of units and layers are those of the unpruned model, always: a
    plan never renumbers. Plans are immutable, hashable and validated when made.

    Attributes:
        kept: for each component, for each layer, the sorted numbers of the units that are kept.
        units: for each component, for each layer, the number of units of the unpruned layer; 1
            for the components of whole layers.
        origin: how the plan was made, where that is known; equality and hash ignore it.

    Raises:
        UsageError: an unknown component, a unit that does not exist, or a layer count that does
            not agree; the message names the component, the layer and the two numbers.

    >>> plan = PruningPlan(kept={"ES": [(0, 2), ()]}, units={"ES": (4, 4)})
    >>> str(plan), plan.percent_pruned
    ('ES=20', 75.0)
    """

    kept: Mapping[str, Sequence[Sequence[int]]]
    units: Shape
    origin: Origin | None = field(default=None, compare=False)

    def __init__(
        self,
        kept: Mapping[str, Sequence[Sequence[int]]],
        units: Shape | None = None,
        origin: Origin | None = None,
        *,
        heads: Shape | None = None,  # the older name of units
    ) -> None:
        if (units is None) == (heads is None):
            raise UsageError("give the units of the model, as in units={'ES': (12, 12)}")
        shape = validate_shape(units if heads is None else heads)  # type: ignore[arg-type]
        if not isinstance(kept, Mapping):
            raise UsageError(f"give the kept units by component, not {kept!r}")
        unknown = [name for name in kept if name not in shape]
        missing = [name for name in shape if name not in kept]
        if unknown or missing:
            component = (unknown or missing)[0]
            problem = "no" if unknown else "no kept"
            raise UsageError(
                f"{component}: {problem} {_units(component)} are given for this component"
            )
        checked = {name: _validate_kept(name, kept[name], shape[name]) for name in shape}
        object.__setattr__(self, "units", MappingProxyType(shape))
        object.__setattr__(self, "kept", MappingProxyType(checked))
        object.__setattr__(self, "origin", origin)

    @classmethod
    def full(cls, shape: Shape) -> PruningPlan:
        """The plan that keeps every unit of ``shape``."""
        shape = validate_shape(shape)
        return cls(
            kept={name: [range(n) for n in layers] for name, layers in shape.items()}, units=shape
        )

    @property
    def heads(self) -> Shape:
        """The number of heads of each unpruned layer, for the components of attention."""
        return MappingProxyType({name: self.units[name] for name in HEADS if name in self.units})

    @property
    def prunes_heads_alone(self) -> bool:
        """True if all neurons and layers are kept."""
        return all(
            len(kept) == units
            for name, layers in self.units.items()
            if name not in HEADS
            for kept, units in zip(self.kept[name], layers, strict=True)
        )

    @property
    def counts(self) -> dict[str, tuple[int, ...]]:
        """The number of kept units in each layer of each component."""
        return {name: tuple(len(layer) for layer in layers) for name, layers in self.kept.items()}

    @property
    def empty_components(self) -> list[str]:
        """The components of which no unit is kept."""
        return [name for name, counts in self.counts.items() if not any(counts)]

    @property
    def total(self) -> int:
        """The number of units, in the unpruned model, of the plan's components."""
        return sum(sum(layers) for layers in self.units.values())

    @property
    def total_kept(self) -> int:
        """The number of units that are kept."""
        return sum(sum(layers) for layers in self.counts.values())

    @property
    def percent_pruned(self) -> float:
        """The share of the unpruned model's units that are pruned, in percent."""
        return 100.0 * (self.total - self.total_kept) / self.total

    @property
    def is_full(self) -> bool:
        """True if no unit is pruned."""
        return self.total_kept == self.total

    @property
    def signature(self) -> str:
        """The counts in the notation of signatures: ``ES=888444,ED=444888,DS=888444``."""
        return ",".join(f"{name}={format_counts(counts)}" for name, counts in self.counts.items())

    def is_within(self, other: PruningPlan) -> bool:
        """Check that ``other`` has the same shape and keeps all units that this plan keeps."""
        return self.units == other.units and all(
            set(own_units) <= set(other_units)
            for name in self.kept
            for own_units, other_units in zip(self.kept[name], other.kept[name], strict=True)
        )

    def part(self, components: Iterable[str]) -> PruningPlan | None:
        """The plan restricted to the given components; None if it decides on none of them."""
        names = [name for name in components if name in self.units]
        if not names:
            return None
        return PruningPlan(
            kept={name: self.kept[name] for name in names},
            units={name: self.units[name] for name in names},
            origin=self.origin,
        )

    def completed(self, shape: Shape) -> PruningPlan:
        """The same plan, with all units of the components of ``shape`` that it does not name."""
        missing = {name: layers for name, layers in shape.items() if name not in self.units}
        if not missing:
            return self
        whole = PruningPlan.full(missing)
        return PruningPlan(
            kept={**self.kept, **whole.kept},
            units={**self.units, **whole.units},
            origin=self.origin,
        )

    def units_left(self, shape: Shape) -> PruningPlan:
        """The units that this plan leaves a model of ``shape``, for all its components.

        Dropped layers keep no heads and no neurons, though the plan may not name these.
        """
        return self.completed(shape).without_units_of_dropped_layers()

    def normalised(self, shape: Shape) -> PruningPlan:
        """The equivalent plan with the components that a model of ``shape`` reports.

        Heads are always named, neurons and layers only where some are pruned, and layers that are
        dropped keep no unit. Plans that leave a model the same units have the same such form.
        """
        plan = self.completed(shape)
        names = [
            name
            for name, layers in plan.kept.items()
            if name in HEADS
            or any(
                len(kept) < plan.units[name][layer]
                for layer, kept in enumerate(layers)
                if name in LAYERS or not plan._is_dropped(name, layer)
            )
        ]
        return (plan.part(names) or plan).without_units_of_dropped_layers()

    def replaced_by(self, other: PruningPlan) -> PruningPlan:
        """This plan with the components of ``other`` in place of its own; the origin is other's."""
        return PruningPlan(
            kept={**self.kept, **other.kept},
            units={**self.units, **other.units},
            origin=other.origin,
        )

    def without_units_of_dropped_layers(self) -> PruningPlan:
        """The same plan without the heads and neurons of dropped layers."""
        kept = {
            name: [
                () if name not in LAYERS and self._is_dropped(name, layer) else units
                for layer, units in enumerate(layers)
            ]
            for name, layers in self.kept.items()
        }
        return PruningPlan(kept=kept, units=self.units, origin=self.origin)

    def _is_dropped(self, component: str, layer: int) -> bool:
        layers = self.kept.get(layers_of(component))
        return layers is not None and not layers[layer]

    def with_origin(self, origin: Origin | None) -> PruningPlan:
        """The same plan of another origin."""
        return replace(self, origin=origin)

    def require_shape(self, shape: Shape, *, of: str = "the model") -> None:
        """Check that this is a plan for a model of ``shape``, which may have further components.

        Raises:
            UsageError: it is not; the message calls the model ``of``.
        """
        wanted = validate_shape(shape)
        for name, layers in self.units.items():
            if name not in wanted:
                raise UsageError(f"{name}: present in the plan but missing from {of}")
            if len(layers) != len(wanted[name]):
                raise UsageError(
                    f"{name}: the plan is for {len(layers)} layers, {of} has {len(wanted[name])}"
                )
            for layer, (planned, present) in enumerate(zip(layers, wanted[name], strict=True)):
                if planned != present:
                    raise UsageError(
                        f"{name}: layer {layer}: the plan is for {planned} {_units(name)}, "
                        f"{of} has {present}"
                    )

    def to_json(self, *, indent: int | None = None, with_origin: bool = True) -> str:
        """The plan as JSON; ``from_json`` reads it back.

        Args:
            indent: as for ``json.dumps``.
            with_origin: write the origin too, where there is one.
        """
        heads_alone = all(name in HEADS for name in self.units)
        content: dict[str, Any] = {
            "format": _FORMAT,
            "version": 1 if heads_alone else _VERSION,
            "heads" if heads_alone else "units": {
                name: list(layers) for name, layers in self.units.items()
            },
            "kept": {
                name: [format_ranges(layer) if name in NEURONS else list(layer) for layer in layers]
                for name, layers in self.kept.items()
            },
        }
        if with_origin and self.origin is not None:
            content["origin"] = self.origin.as_json()
        return json.dumps(content, indent=indent)

    @classmethod
    def from_json(cls, text: str, *, source: str = "plan") -> PruningPlan:
        """Read ``to_json``'s text. ``source`` (a file's name, say) begins the error messages.

        Raises:
            DataError: not JSON, not a plan, of a newer version, or not a valid plan.
        """
        fields = parse_json(text, source=source, expected="a plan, as `headprune plan` writes it")
        if not isinstance(fields, dict) or fields.get("format") != _FORMAT:
            raise DataError(f'{source}: not a head plan (no "format": "{_FORMAT}")')
        version = fields.get("version")
        if type(version) is not int or version < 1:
            raise DataError(f"{source}: plan version {version!r} is not a whole number from 1")
        if version > _VERSION:
            raise DataError(
                f"{source}: plan of version {version}, this headprune reads up to {_VERSION}; "
                "update headprune"
            )
        key = "units" if "units" in fields else "heads"
        if not all(isinstance(fields.get(name), dict) for name in (key, "kept")):
            raise DataError(f'{source}: a plan needs "{key}" and "kept", each by component')
        try:
            kept = {name: _from_ranges(name, layers) for name, layers in fields["kept"].items()}
            origin = Origin.from_json(fields["origin"]) if fields.get("origin") else None
            return cls(kept=kept, units=fields[key], origin=origin)
        except UsageError as error:
            raise DataError(f"{source}: {error}") from None

    @classmethod
    def load(cls, path: str | Path) -> PruningPlan:
        """Read a plan file.

        Raises:
            DataError: the file cannot be read, or is no plan.
        """
        text = read_limited(Path(path), what="the plan")
        return cls.from_json(text, source=str(path))

    def save(self, path: str | Path) -> None:
        """Write the plan as JSON, whole or not at all."""
        write_text_atomically(path, self.to_json(indent=1) + "\n")

    def __str__(self) -> str:
        return " ".join(f"{name}={format_counts(counts)}" for name, counts in self.counts.items())

    def __hash__(self) -> int:
        return hash((tuple(self.units.items()), tuple(self.kept.items())))

    def __reduce__(self) -> tuple[Any, ...]:
        # Mapping proxies do not pickle; plans travel to worker processes all the same.
        return (PruningPlan, (dict(self.kept), dict(self.units), self.origin))


HeadPlan = PruningPlan
"""The name from when heads were the only units; ``heads=`` is its name for ``units=``."""


def validate_shape(shape: Shape) -> dict[str, tuple[int, ...]]:
    """``shape`` with its components in canonical order.

    Raises:
        UsageError: no component or an unknown one, a number of units below one, or more than
            ``MOST_UNITS`` in all.
    """
    if not isinstance(shape, Mapping) or not shape:
        raise UsageError(f"no component given; a model has one or more of {', '.join(COMPONENTS)}")
    for name, layers in shape.items():
        if name not in COMPONENTS:
            raise UsageError(f"{name}: unknown component, it is one of {', '.join(COMPONENTS)}")
        if isinstance(layers, (str, bytes)) or not isinstance(layers, Sequence):
            raise UsageError(
                f"{name}: give the {_units(name)} of each layer as a list, not {layers!r}"
            )
        if not layers:
            raise UsageError(f"{name}: has no layer")
        for layer, units in enumerate(layers):
            if not is_whole(units) or units < 1:
                raise UsageError(f"{name}: layer {layer}: {units!r} is no number of {_units(name)}")
            if name in LAYERS and units != 1:
                raise UsageError(f"{name}: layer {layer}: {units!r} units; a layer is one unit")
    total = sum(sum(layers) for layers in shape.values())
    if total > MOST_UNITS:
        units_text = _units(next(iter(shape))) if len(shape) == 1 else "units"
        if all(name in HEADS for name in shape):
            units_text = "heads"
        raise UsageError(
            f"a model of {total:,} {units_text} is larger than the {MOST_UNITS:,} supported"
        )
    return {
        name: tuple(int(units) for units in shape[name]) for name in COMPONENTS if name in shape
    }


def _units(component: str) -> str:
    return f"{unit_name(component)}s"


def _from_ranges(component: str, layers: Any) -> Any:
    """The kept units of a JSON file, in which those of neurons are text."""
    if component not in NEURONS or not isinstance(layers, list):
        return layers
    numbers = []
    for layer, text in enumerate(layers):
        try:
            numbers.append(parse_ranges(text) if isinstance(text, str) else text)
        except UsageError as error:
            raise UsageError(f"{component}: layer {layer}: {error}") from None
    return numbers


def _validate_kept(
    name: str, kept: Sequence[Sequence[int]], units: tuple[int, ...]
) -> tuple[tuple[int, ...], ...]:
    if not isinstance(kept, Sequence) or len(kept) != len(units):
        given = len(kept) if isinstance(kept, Sequence) else repr(kept)
        raise UsageError(
            f"{name}: kept {_units(name)} for {given} layers, the model has {len(units)}"
        )
    result = []
    for layer, (numbers, total) in enumerate(zip(kept, units, strict=True)):
        if isinstance(numbers, str) or not isinstance(numbers, Sequence):
            raise UsageError(f"{name}: layer {layer}: {numbers!r} is no list of {_units(name)}")
        for number in _impossible(numbers, total):
            raise UsageError(
                f"{name}: layer {layer} has no {unit_name(name)} {number!r}, the model has {total} "
                f"(0 to {total - 1})"
            )
        if len(set(numbers)) != len(numbers):
            raise UsageError(f"{name}: layer {layer} names a {unit_name(name)} twice")
        result.append(tuple(sorted(map(int, numbers))))
    return tuple(result)


def _impossible(numbers: Sequence[int], total: int) -> Iterable[int]:
    """The numbers that do not belong to any unit of the layer."""
    if not numbers or (
        set(map(type, numbers)) == {int} and min(numbers) >= 0 and max(numbers) < total
    ):
        return ()  # the common case: a layer may have thousands of neurons
    return [number for number in numbers if not is_whole(number) or not 0 <= number < total]


def is_whole(number: object) -> TypeGuard[int]:
    """Check that ``number`` is an integer; NumPy's integers are, booleans are not."""
    if type(number) is int:  # the common case, and a faster test
        return True
    return isinstance(number, Integral) and not isinstance(number, bool)
