"""The ways to prune that a study's YAML file lists: one row of its table each."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headprune import DataError, HeadPlan, UsageError
from headprune.budget import Budget
from headprune.components import HEADS
from headprune.methods.method import Request
from headprune.methods.registry import method_named, registered
from headprune.origin import Origin
from headprune.recovery.variant import L0_GATES
from headprune.results.labels import is_draw, method_of
from headprune.results.signature import require_field
from headprune.scores.names import all_scores, keep_of
from headprune.scores.registry import registered as registered_scores
from headprune.select import at_random, by_location
from studies.yaml_checks import (
    as_choice,
    as_file,
    as_list,
    as_mapping,
    as_percent,
    as_text,
    as_whole,
    places_of,
    require_known,
    shown,
)

if TYPE_CHECKING:  # it imports NumPy, and most plans need no scores
    from headprune.scores import HeadScores

PLAN_KINDS = ("percent", "keep", "each_layer", "prune", "plan")
OF_PERCENT = ("method", "order", "draw", "at_least")
"""Keys of `percent` alone."""
PLAN_KEYS = (*PLAN_KINDS, *OF_PERCENT, "components", "recovery", "label", "paper_percent")
ORDERS = ("unimportant-first", "important-first")
DRAWS = ("model", "component")
RECOVERIES = ("finetune", "scratch")


@dataclass(frozen=True, kw_only=True)
class Row:
    """One row of the study's table: a way to prune, sampled once a seed.

    Exactly one of `percent`, `keep`, `each_layer`, `prune` and `plan_file` is given.

    Attributes:
        key: the label as it stands in file names.
        method: for `percent`, the name of the method or score that chooses the heads; for
            `plan_file`, the method that the plan comes from. ``l0-gates`` chooses them while it
            fine-tunes the baseline.
        order: for scores, the heads that are pruned first: ``unimportant-first``, as the score was
            proposed, or ``important-first``.
        draw: for `percent` at random, ``model``: heads of all components compete;
            ``component``: each component loses the same share of its heads.
        each_layer: the number of heads that every layer of every component keeps.
        plan_file: a plan made before, which may prune neurons and layers too. It is the same for
            all seeds, unless ``{seed}`` stands in the name.
        components: for `percent` and `prune`, those whose heads are pruned; None for all.
        recovery: ``finetune``: the pruned baseline is fine-tuned; ``scratch``: a model of the
            pruned shape is trained from random weights in the way of the baseline.
        forms: the forms of the pruned heads, where the row has its own (GLUE).
        requested_percent: the percentage as the study puts it, which a whole number of heads may
            miss by a little; None where it has none.
    """

    key: str
    label: str
    percent: float | None = None
    method: str = "random"
    order: str = ORDERS[0]
    draw: str = DRAWS[0]
    keep: Mapping[str, int | str] | None = None
    each_layer: int | None = None
    prune: str | None = None
    plan_file: Path | None = None
    components: tuple[str, ...] | None = None
    at_least: int = 0
    recovery: str = RECOVERIES[0]
    forms: tuple[str, ...] | None = None
    requested_percent: float | None = None

    @property
    def is_control(self) -> bool:
        """True for the control: the unpruned model, fine-tuned for as long as the pruned ones."""
        return self is CONTROL

    @property
    def from_scratch(self) -> bool:
        """True if the model is trained in the pruned shape from random weights."""
        return self.recovery == "scratch"

    @property
    def learns_gates(self) -> bool:
        """True if the heads are chosen by a fine-tuning with learned gates."""
        return self.percent is not None and self.method == L0_GATES

    @property
    def has_known_plan(self) -> bool:
        """True if the plan follows from the row and the seed alone."""
        return self.score is None and not self.learns_gates

    @property
    def score(self) -> str | None:
        """The score of the baseline's heads that the plan is made by; None if it needs none."""
        if self.percent is None or self.method == "random":
            return None
        return self.method if self.method in all_scores() else None

    @property
    def select(self) -> str:
        """The method that chooses the heads, as in signatures."""
        if self.is_control:
            return "none"
        if self.prune is not None:
            return "location"
        own = ("" if self.order == ORDERS[0] else self.order, "by-component" * self.by_component)
        return "-".join(filter(None, (self.method, *own)))

    @property
    def by_component(self) -> bool:
        """True if each component loses the same share of its heads."""
        return self.draw == "component"

    def plan(
        self,
        shape: Mapping[str, tuple[int, ...]],
        *,
        seed: int,
        scores: HeadScores | None = None,
    ) -> HeadPlan:
        """The heads to keep.

        Args:
            shape: the heads of each layer of the unpruned model.
            seed: the seed of the draw.
            scores: the numbers of the row's `score`.

        Raises:
            UsageError: the row is not possible with this `shape`, scores are missing, or the plan
                comes from a training.
        """
        if self.learns_gates:
            raise UsageError(f"{self.label}: the heads are known after the training with gates")
        if self.plan_file is not None:
            return HeadPlan.load(_with_seed(self.plan_file, seed)).completed(shape)
        if self.prune is not None:
            return by_location(shape, prune=self.prune, components=self.components)
        if self.keep is not None:
            return at_random(shape, seed=seed, keep=self.keep)
        if self.each_layer is not None:
            keep = {name: (self.each_layer,) * len(layers) for name, layers in shape.items()}
            return at_random(shape, seed=seed, keep=keep)
        assert self.percent is not None
        budget = Budget(self.percent)
        full = HeadPlan.full(shape)
        competing = full if self.components is None else full.part(self.components)
        if competing is None:
            raise UsageError(f"the model has none of {', '.join(self.components or ())}")
        if self.by_component:
            kept = {name: budget.number_kept(sum(units)) for name, units in competing.units.items()}
            plan = at_random(shape, seed=seed, keep=kept, at_least=self.at_least)
            origin = Origin(
                method=self.select, seed=seed, budget=str(budget), at_least=self.at_least
            )
            return plan.with_origin(origin)
        if self.score is not None:
            return self._by_score(scores)
        request = Request(plan=competing, budget=budget, seed=seed, at_least=self.at_least)
        return method_named(self.method).run(request).plan.completed(shape)

    def _by_score(self, scores: HeadScores | None) -> HeadPlan:
        if scores is None:
            raise UsageError(f"{self.label}: the scores {self.score} of the baseline are missing")
        from headprune.select import by_score

        best = keep_of(scores.name)
        worst = {"high": "low", "low": "high"}[best]
        plan = by_score(
            scores,
            percent=self.percent,
            keep=best if self.order == ORDERS[0] else worst,
            at_least=self.at_least,
        )
        assert plan.origin is not None
        return plan.with_origin(replace(plan.origin, method=self.select))

    def description(self, shape: Mapping[str, tuple[int, ...]], *, seed: int) -> str:
        """A text that changes when the plan does; scores are files that snakemake looks after."""
        if self.score is not None:
            return f"{self.percent:g}% {self.select} at least {self.at_least}"
        return str(self.plan(shape, seed=seed).kept)


CONTROL = Row(key="control", label="control", percent=0.0, requested_percent=0.0)


class Rows:
    """The rows of a study by their keys; a base class of studies.

    Attributes:
        shape: the heads of each layer of the unpruned model.
        rows: all rows.
    """

    shape: Mapping[str, tuple[int, ...]]
    rows: tuple[Row, ...]

    def row(self, key: str) -> Row:
        """The row of that key; the control row stands for the unpruned model, fine-tuned or not."""
        return next(row for row in (CONTROL, *self.rows) if row.key == key)

    def plan(self, key: str, *, seed: int, scores: HeadScores | None = None) -> HeadPlan:
        """The plan of the row of that key."""
        return self.row(key).plan(self.shape, seed=seed, scores=scores)


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


def heads_of(units: Mapping[str, tuple[int, ...]]) -> dict[str, tuple[int, ...]]:
    """The part of a model's units that are heads."""
    return {name: units[name] for name in HEADS if name in units}


def shape_text(shape: Mapping[str, tuple[int, ...]]) -> str:
    """The text of a shape in messages: `ES=8x6 ED=8x6 DS=8x6`."""
    return " ".join(f"{name}={max(layers)}x{len(layers)}" for name, layers in shape.items())


def parse_rows(
    raw: object,
    *,
    units: Mapping[str, tuple[int, ...]],
    seeds: tuple[int, ...],
    where: str = "plans",
    forms: Sequence[str] = (),
) -> tuple[Row, ...]:
    """Read a list of rows, and check that each is possible with the model and all seeds.

    Args:
        raw: the list.
        units: the units of each layer of the unpruned model, by component.
        seeds: the study's seeds.
        where: the list's key, for messages.
        forms: the forms of pruning that rows may name; none in studies of translation.

    Raises:
        DataError: a row that is not a valid way to prune, or two equal rows.
    """
    entries = as_list(raw, where)
    if not entries:
        raise DataError(f"{where}: at least one way to prune is needed, such as {{percent: 50}}")
    shape = heads_of(units)
    rows: list[Row] = []
    for number, entry in enumerate(entries, start=1):
        entry_key = f"{where}[{number}]"
        row = _row(as_mapping(entry, entry_key), where=entry_key, forms=forms, seeds=seeds)
        for other in (CONTROL, *rows):
            # Some file systems do not tell capital letters from small ones.
            if row.key.lower() == other.key.lower():
                raise DataError(
                    f"{entry_key}: {row.label!r} is the same row as {other.label!r}, or would have "
                    f"the same folder, {row.key}; leave one out or give it a `label` of its own"
                )
        _require_scores_of_all(row, shape, where=entry_key)
        for seed in seeds if row.has_known_plan else ():
            try:
                plan = row.plan(shape, seed=seed)
                if row.plan_file is not None:
                    plan.require_shape(units, of="the study's model")
            except UsageError as problem:
                raise DataError(f"{entry_key}: {problem}") from None
        rows.append(row)
    return tuple(rows)


def _row(
    entry: Mapping[str, Any], *, where: str, forms: Sequence[str], seeds: Sequence[int]
) -> Row:
    require_known(entry, (*PLAN_KEYS, *(["forms"] if forms else [])), where=f"{where}.")
    kinds = [kind for kind in PLAN_KINDS if kind in entry]
    if len(kinds) != 1:
        given_kinds = " and ".join(kinds) or "none of them"
        raise DataError(
            f"{where}: exactly one of {', '.join(PLAN_KINDS)} is needed, got {given_kinds}"
        )
    kind = kinds[0]
    if "components" in entry and kind in ("keep", "each_layer", "plan"):
        reason = "is for all components" if kind == "each_layer" else "names them itself"
        raise DataError(f"{where}.components: `{kind}` {reason}")
    for key in OF_PERCENT:
        if key in entry and kind != "percent":
            raise DataError(f"{where}.{key}: only `percent` takes it")

    percent = as_percent(entry["percent"], f"{where}.percent") if kind == "percent" else None
    keep = _keep(entry["keep"], f"{where}.keep") if kind == "keep" else None
    each_layer = None
    if kind == "each_layer":
        each_layer = as_whole(entry["each_layer"], f"{where}.each_layer", least=0)
    prune = as_text(entry["prune"], f"{where}.prune") if kind == "prune" else None
    plan_file = _plan_file(entry["plan"], f"{where}.plan", seeds) if kind == "plan" else None
    components: tuple[str, ...] | None = None
    if "components" in entry:
        named = as_list(entry["components"], f"{where}.components")
        if not named:
            raise DataError(f"{where}.components: is empty; leave it out for all components")
        components = tuple(as_choice(c, HEADS, f"{where}.components") for c in named)
    row = Row(
        key="",
        label="",
        percent=percent,
        method=(
            _method(entry, where=where, forms=forms)
            if plan_file is None
            else _method_of_file(plan_file, seed=seeds[0])
        ),
        order=as_choice(entry.get("order", ORDERS[0]), ORDERS, f"{where}.order"),
        draw=as_choice(entry.get("draw", DRAWS[0]), DRAWS, f"{where}.draw"),
        keep=keep,
        each_layer=each_layer,
        prune=prune,
        plan_file=plan_file,
        components=components,
        at_least=as_whole(entry.get("at_least", 0), f"{where}.at_least", least=0),
        recovery=as_choice(entry.get("recovery", RECOVERIES[0]), RECOVERIES, f"{where}.recovery"),
        forms=read_forms(entry["forms"], forms, f"{where}.forms") if "forms" in entry else None,
        requested_percent=None if components else percent,  # the paper's are of all heads
    )
    _require_compatible(row, where=where)
    if row.learns_gates:
        _require_trainable(row, entry, where=where)
    label = as_text(entry.get("label", _label(row)), f"{where}.label")
    requested = row.requested_percent
    if "paper_percent" in entry:
        requested = as_percent(entry["paper_percent"], f"{where}.paper_percent")
    return replace(row, key=_key(label, where=where), label=label, requested_percent=requested)


def _method(entry: Mapping[str, Any], *, where: str, forms: Sequence[str]) -> str:
    methods = (name for name, known in registered().items() if not known.needs_model)
    # A study of GLUE fine-tunes models whose heads are pruned already.
    choices = tuple(dict.fromkeys((*methods, *all_scores(), *([] if forms else [L0_GATES]))))
    return as_choice(entry.get("method", "random"), choices, f"{where}.method")


_SEED = "{seed}"


def _with_seed(path: Path, seed: int) -> Path:
    """The plan of a seed."""
    return Path(str(path).replace(_SEED, str(seed)))


def _plan_file(raw: object, where: str, seeds: Sequence[int]) -> Path:
    """The file of a plan, or the pattern of those of all seeds; its absolute path.

    Raises:
        DataError: there is no such file for the first seed.
    """
    name = as_text(raw, where)
    first = as_file(name.replace(_SEED, str(seeds[0])), where)
    if _SEED not in name:
        return first
    places = (path for path in places_of(name) if _with_seed(path, seeds[0]).is_file())
    return next(places).absolute()


def _method_of_file(path: Path, *, seed: int) -> str:
    """The method that a plan comes from, as signatures name it; `given` where it does not say.

    A plan that was drawn at random is `given` too if its row repeats one draw for all seeds.

    Raises:
        DataError: no plan, or the name of its method cannot stand in a signature.
    """
    method = method_of(HeadPlan.load(_with_seed(path, seed)), default="given")
    try:
        require_field(method, name=f"{path}: origin.method")
    except UsageError as problem:
        raise DataError(str(problem)) from None
    return "given" if is_draw(method) and _SEED not in str(path) else method


def _require_compatible(row: Row, *, where: str) -> None:
    """Raise a DataError where keys of a row contradict each other."""
    if row.order != ORDERS[0] and row.score is None:
        raise DataError(f"{where}.order: only a `method` that is a score has an order")
    if row.score is not None and row.components is not None:
        raise DataError(f"{where}.components: a score ranks the heads of all components together")
    if row.by_component and row.method != "random":
        raise DataError(f"{where}.draw: only heads that are drawn at random take it")


def _require_trainable(row: Row, entry: Mapping[str, Any], *, where: str) -> None:
    """Raise a DataError where keys of a row ask for what learned gates cannot do."""
    if row.from_scratch:
        raise DataError(
            f"{where}.recovery: {L0_GATES} fine-tunes the baseline; leave `recovery` out"
        )
    if "at_least" in entry:
        raise DataError(
            f"{where}.at_least: {L0_GATES} chooses the heads of each layer; leave it out"
        )


def _require_scores_of_all(row: Row, shape: Mapping[str, object], *, where: str) -> None:
    """Raise a DataError if a row's score has no numbers for some heads of the model."""
    score = registered_scores().get(row.score or "")
    others = [] if score is None else [name for name in shape if name not in score.components]
    if others:
        raise DataError(
            f"{where}.method: {row.score} has no numbers for {', '.join(others)}, so it cannot "
            "rank all heads of the model"
        )


def _label(row: Row) -> str:
    """The label of a row that the file gives none."""
    if row.percent is not None:
        parts = [f"{row.percent:g}%", *(row.components or ())]
        parts += [row.method] if row.method != "random" else []
        parts += [row.order.replace("-", " ")] if row.order != ORDERS[0] else []
        parts += ["by component"] if row.by_component else []
        parts += [f"at least {row.at_least}"] if row.at_least else []
    elif row.keep is not None:
        parts = [f"{name}={counts}" for name, counts in row.keep.items()]
    elif row.each_layer is not None:
        parts = [f"{row.each_layer} in each layer"]
    elif row.plan_file is not None:
        parts = [row.plan_file.stem.replace(_SEED, "").rstrip(" .-_")]
    else:
        parts = [row.prune or "", *(row.components or ())]
    return " ".join([*parts, *(["from scratch"] if row.from_scratch else [])])


def _key(label: str, *, where: str) -> str:
    """The name of the folder of a row with that label."""
    key = re.sub(r"[^A-Za-z0-9.]+", "-", label.replace("%", "pct")).strip("-")
    if not key.strip("."):
        raise DataError(
            f"{where}: no folder can be named after the label {shown(label)}; give it a `label` "
            "with Latin letters or digits"
        )
    if len(key) > 200:
        raise DataError(f"{where}: the label {shown(label)} is too long for the name of a folder")
    return key


def read_forms(raw: object, known: Sequence[str], where: str) -> tuple[str, ...]:
    """Check a list of forms of pruning."""
    forms = tuple(as_choice(form, known, where) for form in as_list(raw, where))
    if not forms or len(set(forms)) != len(forms):
        raise DataError(f"{where}: one or more of {', '.join(known)} are needed, each once")
    return forms


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
    require_known(given, HEADS, where=f"{where}.")
    if not given:
        raise DataError(f"{where}: name at least one of {', '.join(HEADS)}")
    return {name: given[name] for name in HEADS if name in given}
