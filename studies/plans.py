"""The ways to prune that a study's YAML file lists: one row of its table each."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from headprune import COMPONENTS, DataError, HeadPlan, UsageError
from headprune.select import at_random, by_location
from studies.yaml_checks import (
    as_choice,
    as_list,
    as_mapping,
    as_percent,
    as_text,
    as_whole,
    require_known,
    shown,
)

PLAN_KINDS = ("percent", "keep", "prune")
PLAN_KEYS = (*PLAN_KINDS, "components", "at_least", "label", "paper_percent")


@dataclass(frozen=True, kw_only=True)
class Row:
    """One row of the study's table: a way to prune, sampled once a seed.

    Exactly one of `percent`, `keep` and `prune` is given, as for the selectors of `headprune`.

    Attributes:
        key: the label as it stands in file names.
        requested_percent: the percentage as the study puts it, which a whole number of heads may
            miss by a little; None where it has none.
    """

    key: str
    label: str
    percent: float | None = None
    keep: Mapping[str, int | str] | None = None
    prune: str | None = None
    components: tuple[str, ...] | None = None
    at_least: int = 0
    requested_percent: float | None = None

    @property
    def is_control(self) -> bool:
        """Whether this is the unpruned model, fine-tuned for as long as the pruned ones."""
        return self is CONTROL

    @property
    def select(self) -> str:
        """How the heads are chosen, as signatures write it."""
        if self.is_control:
            return "none"
        return "random" if self.prune is None else "location"

    def plan(self, shape: Mapping[str, tuple[int, ...]], *, seed: int) -> HeadPlan:
        """The heads to keep. Raises UsageError where `shape` does not allow what is asked for."""
        if self.prune is not None:
            return by_location(shape, prune=self.prune, components=self.components)
        return at_random(
            shape, seed=seed, percent=self.percent, keep=self.keep, at_least=self.at_least
        )


CONTROL = Row(key="control", label="control", percent=0.0, requested_percent=0.0)


def parse_shape(raw: object) -> dict[str, tuple[int, ...]]:
    """`{ES: 8x6}` as the heads of each layer."""
    shape: dict[str, tuple[int, ...]] = {}
    for name, value in _components(raw, "shape").items():
        match = re.fullmatch(r"([1-9]\d{0,2})x([1-9]\d{0,2})", str(value), re.ASCII)
        if not match:
            raise DataError(
                f"shape.{name}: {shown(value)} is not heads x layers, such as 8x6 (up to 999x999)"
            )
        shape[name] = (int(match[1]),) * int(match[2])
    return shape


def parse_rows(
    raw: object, *, shape: Mapping[str, tuple[int, ...]], seeds: tuple[int, ...]
) -> tuple[Row, ...]:
    """The study's rows, each of them possible for `shape` and each seed.

    Raises:
        DataError: what is not a way to prune, or two rows that are the same.
    """
    entries = as_list(raw, "plans")
    if not entries:
        raise DataError("plans: at least one way to prune is needed, such as {percent: 50}")
    rows: list[Row] = []
    for number, entry in enumerate(entries, start=1):
        where = f"plans[{number}]"
        row = _row(as_mapping(entry, where), where=where)
        for other in (CONTROL, *rows):
            # Some file systems do not tell capital letters from small ones.
            if row.key.lower() == other.key.lower():
                raise DataError(
                    f"{where}: {row.label!r} is the same row as {other.label!r}, or would have the "
                    f"same folder, {row.key}; leave one out or give it a `label` of its own"
                )
        for seed in seeds:
            try:
                row.plan(shape, seed=seed)
            except UsageError as problem:
                raise DataError(f"{where}: {problem}") from None
        rows.append(row)
    return tuple(rows)


def _row(entry: Mapping[str, Any], *, where: str) -> Row:
    require_known(entry, PLAN_KEYS, where=f"{where}.")
    kinds = [kind for kind in PLAN_KINDS if kind in entry]
    if len(kinds) != 1:
        got = " and ".join(kinds) or "none of them"
        raise DataError(f"{where}: exactly one of percent, keep, prune is needed, got {got}")
    kind = kinds[0]
    if "components" in entry and kind != "prune":
        raise DataError(f"{where}.components: only `prune` takes it")
    if "at_least" in entry and kind != "percent":
        raise DataError(f"{where}.at_least: only `percent` takes it")

    percent = as_percent(entry["percent"], f"{where}.percent") if kind == "percent" else None
    keep = _keep(entry["keep"], f"{where}.keep") if kind == "keep" else None
    prune = as_text(entry["prune"], f"{where}.prune") if kind == "prune" else None
    components: tuple[str, ...] | None = None
    if "components" in entry:
        named = as_list(entry["components"], f"{where}.components")
        components = tuple(as_choice(c, COMPONENTS, f"{where}.components") for c in named)
    at_least = as_whole(entry.get("at_least", 0), f"{where}.at_least", least=0)

    if percent is not None:
        label = f"{percent:g}%" + (f" at least {at_least}" if at_least else "")
    elif keep is not None:
        label = " ".join(f"{name}={counts}" for name, counts in keep.items())
    else:
        label = " ".join((prune or "", *(components or ())))
    label = as_text(entry.get("label", label), f"{where}.label")
    key = re.sub(r"[^A-Za-z0-9.]+", "-", label.replace("%", "pct")).strip("-")
    if not key.strip("."):
        raise DataError(
            f"{where}: no folder can be named after the label {shown(label)}; give it a `label` "
            "with Latin letters or digits"
        )
    if len(key) > 200:
        raise DataError(f"{where}: the label {shown(label)} is too long for the name of a folder")
    requested = percent
    if "paper_percent" in entry:
        requested = as_percent(entry["paper_percent"], f"{where}.paper_percent")
    return Row(
        key=key,
        label=label,
        percent=percent,
        keep=keep,
        prune=prune,
        components=components,
        at_least=at_least,
        requested_percent=requested,
    )


def _keep(raw: object, where: str) -> dict[str, int | str]:
    """Heads kept: one digit a layer, numbers with commas, or one number for the component."""
    counts: dict[str, int | str] = {}
    for name, value in _components(raw, where).items():
        # Unquoted, 888444 is a number to YAML and 012345 an octal one: only text is unambiguous.
        is_number = isinstance(value, int) and not isinstance(value, bool)
        if not isinstance(value, str) and not (is_number and value < 1000):
            raise DataError(
                f"{where}.{name}: {shown(value)}: write the heads of each layer in quotes "
                "('888444'), or the number of heads in the component (14)"
            )
        counts[name] = value
    return counts


def _components(raw: object, where: str) -> dict[str, Any]:
    given = as_mapping(raw, where)
    require_known(given, COMPONENTS, where=f"{where}.")
    if not given:
        raise DataError(f"{where}: name at least one of {', '.join(COMPONENTS)}")
    return {name: given[name] for name in COMPONENTS if name in given}
