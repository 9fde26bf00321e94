"""Latency files: the time that each sub-layer takes with some of its units, on one device."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headprune.components import LAYERS, layers_of, unit_name
from headprune.cost import Sizes
from headprune.errors import DataError, UsageError
from headprune.files import write_text_atomically
from headprune.json_files import json_object, known_values
from headprune.plan import PruningPlan, Shape, validate_shape
from headprune.results.environment import device_name
from headprune.speed.forward_pass import JOBS, Conditions

if TYPE_CHECKING:  # it imports torch, and plans are made without it
    from headprune.model import PrunableModel

FORMAT = "headprune.latency"
_VERSION = 1

_IDENTIFYING = ("batch", "length", "threads", "device", "job", "beam")
"""The conditions of the first version. They are always a part of a file's identity."""

_WIDTHS = ("width", "head_dim", "key_dim", "projections", "vocabulary")
"""Endings of the names of sizes that the run time of a model of a given shape depends on.

Numbers of heads and neurons are not among them, as they are in the shape. Widths of gated
feed-forward layers and numbers of parameters are not compared either: older versions wrote other
widths, and no numbers of parameters.
"""

Savings = Mapping[str, Mapping[int, float]]
"""For each component, the seconds that one layer saves by the number of units that it keeps."""


@dataclass(frozen=True, kw_only=True)
class Latency:
    """The time of a model's job, and what it saves to prune units.

    The time of a pruned model is predicted as the unpruned model's less the savings of its
    sub-layers and of its dropped layers. What no plan prunes (embeddings, output projection, the
    choice of hypotheses) is thus a constant.

    Attributes:
        conditions: the job, the batch and the number of threads.
        device: the name of the processor.
        dtype: the type of the weights.
        model, fingerprint: the model that was measured; other weights of its shape take as long.
        library: the library that ran it.
        shape: its units.
        sizes: its widths by the names that ``Sizes`` has for them; files of older versions have
            fewer.
        seconds: the median time of the job with all units.
        saved: see ``Savings``; 0 with all units. Of a component of layers, what it saves to drop
            one.
        rounds: number of times that each size was timed.
        versions: the versions of packages.
    """

    conditions: Conditions
    device: str
    dtype: str | None
    model: str
    fingerprint: str
    library: str
    shape: Shape
    sizes: Mapping[str, object]
    seconds: float
    saved: Savings
    rounds: int
    versions: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "shape", validate_shape(self.shape))
        if self.conditions.job not in JOBS:
            raise UsageError(f"{self.conditions.job!r} is not one of the jobs {', '.join(JOBS)}")
        if self.conditions.device not in ("cpu", "cuda"):
            raise UsageError(f"{self.conditions.device!r} is not one of the devices cpu, cuda")
        if self.seconds <= 0:
            raise UsageError(f"a time of {self.seconds} seconds: measure again")
        for name, savings in self.saved.items():
            if name not in self.shape:
                raise UsageError(f"{name}: savings of a component that the model does not have")
            units = self.shape[name][0]
            if savings.get(units) != 0 or not all(0 <= kept <= units for kept in savings):
                raise UsageError(f"{name}: not the savings of a model with {units} units a layer")
        if self._most_saved > self.seconds * (1 + 1e-6):
            raise UsageError(
                f"savings of {self._most_saved:.3g} seconds in all layers together, and the whole "
                f"job takes {self.seconds:.3g}; measure again with more --rounds"
            )

    @property
    def _most_saved(self) -> float:
        """Seconds that are saved where no layer has any unit."""
        depths = {layers_of(name): len(self.shape[name]) for name in self.saved}
        return sum(depth * self.layer_saving(name) for name, depth in depths.items())

    def layer_saving(self, layers: str) -> float:
        """Seconds that it saves to drop one layer of a component of layers.

        Not less than without the units of its sub-layers, as it has none of them: where little but
        noise is between the two, the measured saving may be less.
        """
        emptied = (
            max(savings.values())
            for name, savings in self.saved.items()
            if name not in LAYERS and layers_of(name) == layers
        )
        return max(sum(emptied), max(self.saved.get(layers, {0: 0.0}).values()))

    def saving(self, component: str, kept: int) -> float:
        """Seconds that one layer of a component saves, interpolated between measured sizes."""
        savings = self.saved[component]
        if kept in savings:
            return savings[kept]
        below = max((size for size in savings if size < kept), default=min(savings))
        above = min(size for size in savings if size > kept)
        if below == above:  # smaller than all that was measured
            return savings[below]
        part = (kept - below) / (above - below)
        return savings[below] + part * (savings[above] - savings[below])

    def seconds_of(self, plan: PruningPlan) -> float:
        """The predicted time with the units of a plan.

        Raises:
            UsageError: the plan prunes a component that was not measured, or is for another shape.
        """
        plan.require_shape(self.shape, of="the latency file")
        seconds = self.seconds
        for name, layers in plan.counts.items():
            for layer, kept in enumerate(layers):
                stack = plan.counts.get(layers_of(name))
                is_dropped = name not in LAYERS and stack is not None and not stack[layer]
                if kept == self.shape[name][layer] or is_dropped:
                    continue
                self.require_components([name])
                dropped = name in LAYERS
                seconds -= self.layer_saving(name) if dropped else self.saving(name, kept)
        return seconds

    def speedup_of(self, plan: PruningPlan) -> float:
        """The predicted speed of a plan, as a multiple of the unpruned model's."""
        # Where the layers take the whole time, a plan without any would take none.
        return self.seconds / max(self.seconds_of(plan), 1e-6 * self.seconds)

    @property
    def identity(self) -> str:
        """A hash of the times and the conditions of their measurement."""
        # Fields that later versions add count only where their value is not the default.
        defaults = {each.name: each.default for each in fields(Conditions)}
        conditions = {
            name: value
            for name, value in asdict(self.conditions).items()
            if name in _IDENTIFYING or value != defaults[name]
        }
        content = [conditions, self.device, self.seconds, _plain(self.saved)]
        return hashlib.sha256(json.dumps(content).encode()).hexdigest()[:12]

    @property
    def job_name(self) -> str:
        """The job, the batch and the machine, in words."""
        return f"{self.conditions}, {self.conditions.threads} threads, {self.device}"

    def require_device(self, *, where: object) -> None:
        """Check that the file was measured on this machine's processor.

        Raises:
            UsageError: it was not.
        """
        if self.conditions.device == "cuda":
            import torch

            if not torch.cuda.is_available():
                raise UsageError(f"{where}: measured on {self.device}, and torch finds no GPU here")
        name = device_name(self.conditions.device)
        if name != self.device:
            raise UsageError(
                f"{where}: measured on {self.device}, and this is {name}; measure it here with "
                "`headprune latency`"
            )
        threads, cores = self.conditions.threads, os.cpu_count() or 1
        if threads > cores:
            raise UsageError(
                f"{where}: measured with {threads} threads, and this machine has {cores} cores; "
                "measure it here with `headprune latency`"
            )

    def require_model(self, model: PrunableModel, *, where: object) -> None:
        """Check that a model has the shape, widths and data type of the one that was measured.

        Raises:
            UsageError: it has others. What one of the two does not know is not compared.
        """
        from headprune.model import dtype_of  # it imports torch

        shape, measured = dict(model.shape), dict(self.shape)
        if shape != measured:
            name = next(
                name for name in (*shape, *measured) if shape.get(name) != measured.get(name)
            )
            raise UsageError(
                f"{where}: measured on {self.model}, another model than {model.path}: {name} has "
                f"{_layers(name, measured)} there, {_layers(name, shape)} here"
            )
        sizes = asdict(model.sizes)
        for name, size in self.sizes.items():
            is_known = size is not None and sizes.get(name) is not None
            if name.endswith(_WIDTHS) and is_known and size != sizes[name]:
                raise UsageError(
                    f"{where}: measured on {self.model}, another model than {model.path}: "
                    f"{name.replace('_', ' ')} {size} there, {sizes[name]} here"
                )
        dtype = dtype_of(model)
        if None not in (dtype, self.dtype) and dtype != self.dtype:
            raise UsageError(
                f"{where}: measured on {self.model} in {self.dtype}, and {model.path} is in "
                f"{dtype}; measure it with `headprune latency {model.path}`"
            )

    def require_components(self, components: Sequence[str], *, where: object = None) -> None:
        """Check that the units of components were measured.

        Args:
            components: the components.
            where: the file, for the message.

        Raises:
            UsageError: those of one were not.
        """
        for name in components:
            if name not in self.saved:
                file = "" if where is None else f"{where}: "
                raise UsageError(
                    f"{file}{name} was not measured; see `headprune latency --components`"
                )

    def save(self, path: str | Path) -> None:
        """Write the file as JSON, whole or not at all."""
        content: dict[str, Any] = {"format": FORMAT, "version": _VERSION} | asdict(self)
        content["saved"] = _plain(self.saved)
        write_text_atomically(path, json.dumps(content, indent=1) + "\n")

    @classmethod
    def load(cls, path: str | Path) -> Latency:
        """Read what ``save`` wrote.

        Raises:
            DataError: no such file, not a latency file, one of a newer version, or damaged.
        """
        content = json_object(
            Path(path), expected="a latency file, as `headprune latency` writes it"
        )
        if content.get("format") != FORMAT:
            raise DataError(f'{path}: not a latency file (no "format": "{FORMAT}")')
        if content.get("version") != _VERSION:
            raise DataError(
                f"{path}: latencies of version {content.get('version')!r}, this headprune reads "
                f"{_VERSION}"
            )
        values = known_values(_Fields, content, source=str(path))
        for name, part in (("conditions", Conditions), ("sizes", Sizes)):
            values[name] = known_values(part, values[name], source=f"{path}: {name}")
        try:
            values["conditions"] = Conditions(**values["conditions"])
            values["saved"] = {
                name: {int(kept): seconds for kept, seconds in savings.items()}
                for name, savings in values["saved"].items()
            }
            return cls(**values)
        except (ValueError, UsageError) as problem:
            raise DataError(f"{path}: not a whole latency file ({problem})") from None


def latency_for(model: PrunableModel, path: Path) -> Latency:
    """Read a latency file for a model on this machine.

    Args:
        model: the unpruned model.
        path: the file.

    Raises:
        UsageError: it was measured on another device, or on a model of another shape.
        DataError: it cannot be read.
    """
    latency = Latency.load(path)
    latency.require_device(where=path)
    latency.require_model(model, where=path)
    return latency


@dataclass
class _Fields:
    """The fields of a file, for their types."""

    conditions: dict[str, Any]
    device: str
    dtype: str | None
    model: str
    fingerprint: str
    library: str
    shape: dict[str, list[int]]
    sizes: dict[str, Any]
    seconds: float
    saved: dict[str, dict[str, float]]
    rounds: int
    versions: dict[str, str] = field(default_factory=dict)


def _plain(saved: Savings) -> dict[str, dict[str, float]]:
    """Savings with the keys that JSON has."""
    return {
        name: {str(kept): seconds for kept, seconds in savings.items()}
        for name, savings in saved.items()
    }


def _layers(name: str, shape: Shape) -> str:
    """The layers and units of a component, in words."""
    layers = shape.get(name, ())
    if not layers:
        return "no layer"
    units = "" if name in LAYERS else f" of {layers[0]} {unit_name(name)}s"
    return f"{len(layers)} layers{units}"
