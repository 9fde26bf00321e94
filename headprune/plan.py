"""HeadPlan: which attention heads of a Transformer are kept."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeGuard

from headprune.counts import format_counts
from headprune.errors import DataError, UsageError
from headprune.files import write_text_atomically
from headprune.json_files import parse_json, read_limited

COMPONENTS = ("ES", "ED", "DS")
"""Encoder self-attention, encoder-decoder attention, decoder self-attention."""

MOST_HEADS = 10_000_000
"""The heads of the largest model: a plan of more would fill the memory."""

Shape = Mapping[str, Sequence[int]]
"""For each component, the number of heads of each layer of the unpruned model."""

_FORMAT = "headprune.plan"
_VERSION = 1


@dataclass(frozen=True)
class HeadPlan:
    """Which heads of a model are kept, by component and layer.

    Layer 0 is next to the embeddings. Head numbers are those of the unpruned model, always: a plan
    never renumbers. Plans are immutable, hashable and validated when made.

    Attributes:
        kept: for each component, for each layer, the sorted numbers of the heads that stay.
        heads: for each component, for each layer, how many heads the unpruned layer has.

    Raises:
        UsageError: an unknown component, a head that does not exist, or a layer count that does
            not agree; the message names the component, the layer and the two numbers.

    >>> plan = HeadPlan(kept={"ES": [(0, 2), ()]}, heads={"ES": (4, 4)})
    >>> str(plan), plan.percent_pruned
    ('ES=20', 75.0)
    """

    kept: Mapping[str, Sequence[Sequence[int]]]
    heads: Shape

    def __post_init__(self) -> None:
        heads = validate_shape(self.heads)
        if not isinstance(self.kept, Mapping):
            raise UsageError(f"give the kept heads by component, not {self.kept!r}")
        unknown = [name for name in self.kept if name not in heads]
        missing = [name for name in heads if name not in self.kept]
        if unknown or missing:
            wrong, problem = (
                (unknown[0], "no heads are") if unknown else (missing[0], "no kept heads are")
            )
            raise UsageError(f"{wrong}: {problem} given for this component")
        kept = {name: _validate_kept(name, self.kept[name], heads[name]) for name in heads}
        object.__setattr__(self, "heads", MappingProxyType(heads))
        object.__setattr__(self, "kept", MappingProxyType(kept))

    @classmethod
    def full(cls, shape: Shape) -> HeadPlan:
        """The plan that keeps every head of ``shape``."""
        shape = validate_shape(shape)
        return cls(
            kept={name: [range(n) for n in layers] for name, layers in shape.items()}, heads=shape
        )

    @property
    def counts(self) -> dict[str, tuple[int, ...]]:
        """For each component, how many heads each layer keeps."""
        return {name: tuple(len(layer) for layer in layers) for name, layers in self.kept.items()}

    @property
    def total(self) -> int:
        """How many heads the unpruned model has."""
        return sum(sum(layers) for layers in self.heads.values())

    @property
    def total_kept(self) -> int:
        """How many heads stay."""
        return sum(sum(layers) for layers in self.counts.values())

    @property
    def percent_pruned(self) -> float:
        """Share of the unpruned model's heads that are pruned, in percent."""
        return 100.0 * (self.total - self.total_kept) / self.total

    @property
    def is_full(self) -> bool:
        """Whether nothing is pruned."""
        return self.total_kept == self.total

    @property
    def signature(self) -> str:
        """The counts as signatures write them: ``ES=888444,ED=444888,DS=888444``."""
        return ",".join(f"{name}={format_counts(counts)}" for name, counts in self.counts.items())

    def is_within(self, other: HeadPlan) -> bool:
        """Whether both are plans of one shape and ``other`` keeps all that this plan keeps."""
        return self.heads == other.heads and all(
            set(mine) <= set(theirs)
            for name in self.kept
            for mine, theirs in zip(self.kept[name], other.kept[name], strict=True)
        )

    def require_shape(self, shape: Shape, *, of: str = "the model") -> None:
        """Raise a UsageError unless this is a plan for ``shape``; the message calls it ``of``."""
        wanted = validate_shape(shape)
        for name in COMPONENTS:
            mine, theirs = self.heads.get(name), wanted.get(name)
            if mine is None and theirs is None:
                continue
            if mine is None or theirs is None:
                whose = f"none, {of} does" if mine is None else f"it, {of} does not"
                raise UsageError(f"{name}: the plan has {whose}")
            if len(mine) != len(theirs):
                raise UsageError(
                    f"{name}: the plan is for {len(mine)} layers, {of} has {len(theirs)}"
                )
            for layer, (a, b) in enumerate(zip(mine, theirs, strict=True)):
                if a != b:
                    raise UsageError(
                        f"{name}: layer {layer}: the plan is for {a} heads, {of} has {b}"
                    )

    def to_json(self, *, indent: int | None = None) -> str:
        """The plan as JSON; ``from_json`` reads it back."""
        return json.dumps(
            {
                "format": _FORMAT,
                "version": _VERSION,
                "heads": {name: list(layers) for name, layers in self.heads.items()},
                "kept": {
                    name: [list(layer) for layer in layers] for name, layers in self.kept.items()
                },
            },
            indent=indent,
        )

    @classmethod
    def from_json(cls, text: str, *, source: str = "plan") -> HeadPlan:
        """Read ``to_json``'s text. ``source`` (a file's name, say) begins the error messages.

        Raises:
            DataError: not JSON, not a plan, of a newer version, or not a valid plan.
        """
        fields = parse_json(text, source=source)
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
        if not all(isinstance(fields.get(key), dict) for key in ("heads", "kept")):
            raise DataError(f'{source}: a plan needs "heads" and "kept", each by component')
        try:
            return cls(kept=fields["kept"], heads=fields["heads"])
        except UsageError as error:
            raise DataError(f"{source}: {error}") from None

    @classmethod
    def load(cls, path: str | Path) -> HeadPlan:
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
        return hash((tuple(self.heads.items()), tuple(self.kept.items())))

    def __reduce__(self) -> tuple[Any, ...]:
        # Mapping proxies do not pickle; plans travel to worker processes all the same.
        return (HeadPlan, (dict(self.kept), dict(self.heads)))


def validate_shape(shape: Shape) -> dict[str, tuple[int, ...]]:
    """``shape`` with its components in canonical order.

    Raises:
        UsageError: no component or an unknown one, a number of heads below one, or more than
            ``MOST_HEADS`` in all.
    """
    if not isinstance(shape, Mapping) or not shape:
        raise UsageError(f"no component given; a model has one or more of {', '.join(COMPONENTS)}")
    for name, layers in shape.items():
        if name not in COMPONENTS:
            raise UsageError(f"{name}: unknown component, it is one of {', '.join(COMPONENTS)}")
        if isinstance(layers, (str, bytes)) or not isinstance(layers, Sequence):
            raise UsageError(f"{name}: give the heads of each layer as a list, not {layers!r}")
        if not layers:
            raise UsageError(f"{name}: has no layer")
        for layer, heads in enumerate(layers):
            if not is_whole(heads) or heads < 1:
                raise UsageError(f"{name}: layer {layer}: {heads!r} is no number of heads")
    total = sum(sum(layers) for layers in shape.values())
    if total > MOST_HEADS:
        raise UsageError(f"a model of {total:,} heads is larger than the {MOST_HEADS:,} supported")
    return {
        name: tuple(int(heads) for heads in shape[name]) for name in COMPONENTS if name in shape
    }


def _validate_kept(
    name: str, kept: Sequence[Sequence[int]], heads: tuple[int, ...]
) -> tuple[tuple[int, ...], ...]:
    if not isinstance(kept, Sequence) or len(kept) != len(heads):
        given = len(kept) if isinstance(kept, Sequence) else repr(kept)
        raise UsageError(f"{name}: kept heads for {given} layers, the model has {len(heads)}")
    result = []
    for layer, (numbers, total) in enumerate(zip(kept, heads, strict=True)):
        if isinstance(numbers, str) or not isinstance(numbers, Sequence):
            raise UsageError(f"{name}: layer {layer}: {numbers!r} is no list of heads")
        for head in numbers:
            if not is_whole(head) or not 0 <= head < total:
                raise UsageError(
                    f"{name}: layer {layer} has no head {head!r}, the model has {total} (0 to "
                    f"{total - 1})"
                )
        if len(set(numbers)) != len(numbers):
            raise UsageError(f"{name}: layer {layer} names a head twice")
        result.append(tuple(sorted(int(head) for head in numbers)))
    return tuple(result)


def is_whole(number: object) -> TypeGuard[int]:
    """Whether ``number`` counts as one: NumPy's integers do, booleans do not."""
    if type(number) is int:  # the common case, and a faster test
        return True
    return isinstance(number, Integral) and not isinstance(number, bool)
