"""The command `headprune plan`."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from headprune import select
from headprune.backends import open_model
from headprune.budget import Budget
from headprune.cli.options import parse_components
from headprune.components import COMPONENTS, HEADS, NEURONS, unit_names
from headprune.cost import unit_cost
from headprune.counts import parse_counts
from headprune.errors import DataError, UsageError
from headprune.files import require_separate, require_standard_output
from headprune.methods.method import Request
from headprune.methods.registry import method_named, registered
from headprune.plan import MOST_UNITS, PruningPlan, Shape
from headprune.select.even import even_share, evenly_divided
from headprune.select.ranking import Cost, Keep

if TYPE_CHECKING:
    from headprune.model import PrunableModel

app = typer.Typer(add_completion=False)

BASE_SHAPE = dict.fromkeys(HEADS, (8,) * 6)


class Best(StrEnum):
    """The direction of scores: units with high or with low scores are kept."""

    high = "high"
    low = "low"


class _SpeedupInputs(NamedTuple):
    """The option --speedup with the files that it needs."""

    times: float
    model: Path
    scores: Path
    latency: Path


@dataclass(frozen=True, kw_only=True)
class _Options:
    """The options as given; see the command's help."""

    percent: float | None
    budget: str | None
    speedup: float | None
    below: float | None
    latency: Path | None
    verify: int | None
    method: str | None
    components: str | None
    keep: list[str] | None
    prune: list[str] | None
    scores: Path | None
    best: Best | None
    seed: int | None
    at_least: int | None
    even: bool
    shape: list[str] | None
    model: Path | None

    @property
    def chosen_budget(self) -> Budget | None:
        """The budget of --budget or --percent; None with another amount."""
        if self.budget is not None:
            return Budget.parse(self.budget)
        return None if self.percent is None else Budget(self.percent)


@app.command()
def plan(
    percent: Annotated[
        float | None,
        typer.Option(help="Percentage of all heads to prune, at random or by --scores."),
    ] = None,
    budget: Annotated[
        str | None,
        typer.Option(
            help="Instead of --percent: '50%', '50% of parameters' or '50% of flops', of the units "
            "of --components."
        ),
    ] = None,
    speedup: Annotated[
        float | None,
        typer.Option(
            help="Instead of --percent: how many times as fast as the unpruned model, such as 1.5. "
            "The heads, neurons and layers whose --scores add up to least are pruned until the "
            "times in --latency predict this speed. Needs --model, --latency and --scores.",
        ),
    ] = None,
    latency: Annotated[
        Path | None,
        typer.Option(help="File that `headprune latency` wrote on this machine, for --speedup."),
    ] = None,
    verify: Annotated[
        int | None,
        typer.Option(
            min=0,
            help="With --speedup: the largest number of plans that are timed, in turns with the "
            "unpruned model; where the speed differs by more than 2%, another plan is chosen. "
            "1 corrects nothing, 0 trusts the prediction.",
            show_default="3",
        ),
    ] = None,
    below: Annotated[
        float | None,
        typer.Option(
            help="Instead of --percent, with --scores: prune the units with scores below this "
            "number. With shapley, --below 0 prunes the heads that do harm (Held and Yang 2023)."
        ),
    ] = None,
    method: Annotated[
        str | None,
        typer.Option(
            help="The way to choose the units, with --percent or --budget: "
            + "; ".join(
                f"{name}, {method.meaning}"
                for name, method in registered().items()
                if not method.needs_model
            )
            + ".",
            show_default="random",
        ),
    ] = None,
    components: Annotated[
        str | None,
        typer.Option(
            help="Components whose units are pruned, with commas: heads ES,ED,DS, feed-forward "
            "neurons EF,DF, whole layers EL,DL. The units of all others are kept.",
            show_default="all heads; with --speedup the components that are scored",
        ),
    ] = None,
    keep: Annotated[
        list[str] | None,
        typer.Option(
            help="Number of heads to keep in a component, at random or by --scores: ES=14 over "
            "all its layers, or ES=888444 for each layer, one digit a layer "
            "(ES=16,16,12,8,4,4 where a layer has ten or more). Of neurons, EF=2000 is a total; "
            "of layers, EL=110110. Repeatable; components that are not named keep all units."
        ),
    ] = None,
    prune: Annotated[
        list[str] | None,
        typer.Option(
            help="Layers whose heads are all pruned: 'top 3 + bottom 3', 'middle 2', 'odd', "
            "'even' or layer numbers '0,2-4'; for one component 'ES=top 3'. Repeatable."
        ),
    ] = None,
    scores: Annotated[
        Path | None,
        typer.Option(
            help="Score file (JSON): --percent and --keep keep the heads with the best scores "
            "instead of random ones."
        ),
    ] = None,
    best: Annotated[
        Best | None,
        typer.Option(
            help="Keep units with high or with low scores; requires --scores.",
            show_default="high; low for entropy and alone",
        ),
    ] = None,
    seed: Annotated[
        int | None, typer.Option(help="Seed of the random choice.", show_default="1")
    ] = None,
    at_least: Annotated[
        int | None,
        typer.Option(
            help="Minimum number of heads that every layer keeps; with --speedup also of neurons, "
            "and unless it is 0 one layer of each side is kept.",
            show_default="0; with --scores 1, unless --keep gives a number for each layer",
        ),
    ] = None,
    even: Annotated[
        bool,
        typer.Option(
            "--even",
            help="Keep the same number in each layer of a component, at random or by --scores: "
            "with --percent the same share of each layer, with --keep ES=24 an equal part. "
            "CTranslate2 fills up smaller layers, so only such plans make it faster.",
        ),
    ] = False,
    shape: Annotated[
        list[str] | None,
        typer.Option(
            help="Number of heads of the unpruned model: ES=8x6 is six layers of eight heads. "
            "Repeatable. Default: Transformer-Base, ES=8x6 ED=8x6 DS=8x6."
        ),
    ] = None,
    model: Annotated[
        Path | None,
        typer.Option(
            help="Model that the plan is for: the plan has its shape, and keeps heads that it "
            "still has. A fairseq checkpoint or a Hugging Face folder."
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="Plan file, or - for standard output, the default."),
    ] = None,
) -> None:
    """Choose the heads, neurons or layers to keep and write them as a plan (JSON).

    Give one of --percent, --budget, --speedup, --below, --keep and --prune. The same options give
    the same plan everywhere, except that --speedup depends on what is measured.

    Examples:

      headprune plan --percent 75 --seed 1 -o plan.json

      headprune plan --keep ES=888444 --keep ED=444888 --keep DS=888444 -o plan.json

      headprune plan --shape ES=12x12 --prune 'top 3 + bottom 3' -o plan.json

      headprune plan --scores gradient.json --percent 50 -o plan.json

      headprune plan --scores shapley.json --below 0 -o plan.json

      headprune plan --model model.pt --percent 50 --even -o plan.json

      headprune plan --model model.pt --components EF,DF --budget '50% of parameters' -o plan.json

      headprune plan --model model.pt --speedup 2 --latency latency.json --scores taylor.json
      --components ES,ED,DS,EF,DF,EL,DL -o plan.json
    """
    options = _Options(
        percent=percent,
        budget=budget,
        speedup=speedup,
        below=below,
        latency=latency,
        verify=verify,
        method=method,
        components=components,
        keep=keep,
        prune=prune,
        scores=scores,
        best=best,
        seed=seed,
        at_least=at_least,
        even=even,
        shape=shape,
        model=model,
    )
    speedup_inputs = _require_compatible(options)
    output = None if output == Path("-") else output
    require_separate({"--output": output}, inputs=(model, scores, latency))
    if speedup_inputs is not None:
        chosen = _plan_by_speed(speedup_inputs, options)
    else:
        opened = open_model(model) if model else None
        chosen = (
            _plan_without_scores(options, opened)
            if scores is None
            else _plan_by_scores(scores, options, opened)
        )
    _write_plan(chosen, output)


def _require_compatible(given: _Options) -> _SpeedupInputs | None:
    """Check that the options go together, and return those of --speedup if it is given.

    Raises:
        UsageError: an option is missing, or contradicts another.
    """
    amounts = (
        each is not None for each in (given.percent, given.budget, given.speedup, given.below)
    )
    if [*amounts, bool(given.keep), bool(given.prune)].count(True) != 1:
        raise UsageError("give one of --percent, --budget, --speedup, --below, --keep and --prune")
    if given.below is not None and (given.even or given.best or not given.scores):
        raise UsageError("--below goes with --scores, and has a direction: no --best or --even")
    if given.speedup is None and (given.latency or given.verify is not None):
        raise UsageError("--latency and --verify go with --speedup")
    speedup_inputs = None
    if given.speedup is not None:
        if given.method or given.even or given.shape:
            raise UsageError("--speedup goes with --model and --scores")
        if not (given.model and given.scores and given.latency):
            raise UsageError(
                "--speedup needs --model, --scores and --latency, which `headprune scores` and "
                "`headprune latency` write"
            )
        speedup_inputs = _SpeedupInputs(
            given.speedup, model=given.model, scores=given.scores, latency=given.latency
        )
    if given.method and (given.keep or given.prune or given.scores):
        raise UsageError("--method goes with --percent or --budget")
    if given.prune and given.at_least:
        raise UsageError("--at-least goes with --percent or --keep: --prune empties whole layers")
    if given.even and (given.prune or given.method not in (None, "random")):
        raise UsageError("--even goes with a choice at random or by --scores")
    if given.shape and given.model:
        raise UsageError("give --shape or --model, not both")
    if given.scores and (given.prune or given.shape):
        raise UsageError("--scores goes with --percent or --keep, and brings the shape along")
    if given.seed is not None and (given.scores or given.prune):
        raise UsageError("--seed goes with a random choice: --scores and --prune draw no heads")
    if given.best and not given.scores:
        raise UsageError("--best goes with --scores, the file with the scores to rank by")
    return speedup_inputs


def _plan_by_speed(inputs: _SpeedupInputs, options: _Options) -> PruningPlan:
    """Prune the units of the least score until the model has the speed."""
    from headprune.cli.plan_by_speed import plan_by_speed
    from headprune.speed.verifying import DEFAULT_MEASUREMENTS

    components = options.components
    plan = plan_by_speed(
        inputs.model,
        inputs.times,
        latency=inputs.latency,
        scores=inputs.scores,
        components=None if components is None else parse_components(components),
        best=options.best.value if options.best else None,
        at_least=1 if options.at_least is None else options.at_least,
        verify=DEFAULT_MEASUREMENTS if options.verify is None else options.verify,
    )
    if empty := plan.empty_components:
        print(
            f"warning: no unit of {', '.join(empty)} is kept; measure the pruned model before you "
            "use it",
            file=sys.stderr,
        )
    return plan


def _plan_by_scores(scores: Path, options: _Options, opened: PrunableModel | None) -> PruningPlan:
    """Keep the units with the best scores of a file.

    Args:
        opened: the model that the plan is for, if any.
    """
    from headprune.scores import HeadScores
    from headprune.scores.names import keep_of
    from headprune.scores.summary import not_settled_below
    from headprune.select.score import counts_from

    ranked = HeadScores.load(scores)
    if options.components is not None:
        names = parse_components(options.components)
        missing = [name for name in names if name not in ranked.units]
        if missing:
            have = ", ".join(ranked.units)
            raise UsageError(f"--components {missing[0]}: {scores} has scores of {have}")
        ranked = ranked.of_components(names)
    within = opened.plan.units_left(opened.shape).part(ranked.units) if opened else None
    lacking = [name for name in ranked.units if opened and name not in opened.shape]
    if lacking:
        raise UsageError(f"{scores}: scores of {lacking[0]}, which {options.model} does not have")
    if opened and ranked.fingerprint and ranked.fingerprint != opened.fingerprint:
        raise DataError(
            f"{scores}: scores of other weights than those of {options.model}; score this model, "
            "or leave --model out"
        )
    budget, below, at_least = options.chosen_budget, options.below, options.at_least
    counts: Keep | None = _parse_keep(options.keep, ranked.heads) if options.keep else None
    if options.even:
        counts, budget = _even_counts(budget, counts, ranked.units), None
    if below is not None:
        counts = counts_from(
            ranked, below, at_least=1 if at_least is None else at_least, within=within
        )
    plan = select.by_score(
        ranked,
        budget=budget,
        cost=_cost(budget, ranked.units, opened),
        per_layer=counts,
        keep=options.best.value if options.best else keep_of(ranked.name),
        at_least=at_least,
        within=within,
    )
    if below is not None:
        pruned, unsettled = not_settled_below(ranked, below, plan)
        if unsettled:
            print(
                f"warning: the intervals of {unsettled} of the {pruned} pruned units reach "
                f"{below:g} or more: these scores do not show that their values are below",
                file=sys.stderr,
            )
    return plan


def _plan_without_scores(options: _Options, opened: PrunableModel | None) -> PruningPlan:
    """Choose units by location, at random or by a method that needs no model.

    Args:
        opened: the model that the plan is for, if any.
    """
    within = opened.plan.part(HEADS) if opened else None
    shape: Shape = _parse_shape(options.shape) if options.shape else BASE_SHAPE
    if (names := _components_of(options)) is not None:
        if opened is not None:
            within = opened.plan.units_left(opened.shape)
        whole = within or PruningPlan.full(shape)
        missing = [name for name in names if name not in whole.units]
        if missing:
            option = "--components" if options.components is not None else "--keep"
            have = ", ".join(whole.units)
            hint = "" if opened is not None else "; see --shape"
            raise UsageError(f"{option} {missing[0]}: the model has {have}{hint}")
        within = whole.part(names)
    units: Shape = within.units if within else shape
    if options.prune:
        if within is not None and not within.is_full:
            raise UsageError(
                f"{options.model}: has pruned heads already; --prune takes an unpruned model"
            )
        return select.by_location(units, prune=_parse_prune(options.prune))
    budget, seed = options.chosen_budget, 1 if options.seed is None else options.seed
    if budget is not None and not options.even:
        return _by_method(
            options.method or "random",
            Request(
                plan=within or PruningPlan.full(units),
                budget=budget,
                seed=seed,
                at_least=options.at_least,
                cost=_cost(budget, units, opened),
            ),
        )
    counts: Keep | None = _parse_keep(options.keep, units) if options.keep else None
    return select.at_random(
        units,
        seed=seed,
        keep=_even_counts(budget, counts, units) if options.even else counts,
        at_least=options.at_least or 0,
        within=within,
    )


def _cost(budget: Budget | None, shape: Shape, opened: PrunableModel | None) -> Cost | None:
    """The cost function of the budget's measure; None for a share of units."""
    if budget is None or budget.of == "units":
        return None
    if opened is None:
        raise UsageError(
            f"--budget {budget}: give --model: the cost of a unit depends on the sizes of the model"
        )
    return unit_cost(budget.of, sizes=opened.sizes, shape=shape)


def _even_counts(budget: Budget | None, keep: Keep | None, shape: Shape) -> Keep:
    """The number of units of each layer, from a share or from the numbers of components."""
    if budget is not None:
        counts = even_share(shape, budget)
        kept, total = (sum(map(sum, each.values())) for each in (counts, shape))
        pruned = 100 * (total - kept) / max(total, 1)
        if total and f"{pruned:.1f}" != f"{budget.percent:.1f}":
            print(f"note: {pruned:.1f}%: the even plan nearest to {budget}", file=sys.stderr)
        return counts
    return evenly_divided(keep or {}, shape)


def _by_method(name: str, request: Request) -> PruningPlan:
    method = method_named(name)
    if method.needs_model:
        raise UsageError(
            f"--method {name} needs data; run `headprune scores` and give --scores, or see "
            "`headprune compare` and `headprune iterate`"
        )
    return method.run(request).plan


def _write_plan(chosen: PruningPlan, output: Path | None) -> None:
    if output is None:
        require_standard_output()
        print(chosen.to_json(indent=1))
        return
    chosen.save(output)
    print(f"{output}: {chosen} ({chosen.percent_pruned:.1f}% of {unit_names(chosen.units)} pruned)")


def _components_of(options: _Options) -> Sequence[str] | None:
    """The components of --components, or those of --keep where it names others than heads."""
    if options.components is not None:
        return parse_components(options.components)
    named = [*_assignments(options.keep, "--keep")] if options.keep else []
    if set(named) <= {*HEADS} or not set(named) <= {*COMPONENTS}:
        return None
    return named


def _assignments(items: list[str], what: str) -> dict[str, str]:
    """``["ES=1", "DS=2"]`` as a mapping."""
    result: dict[str, str] = {}
    for item in items:
        name, equals, value = (part.strip() for part in item.partition("="))
        if not equals or not value:
            raise UsageError(f"{what} {item!r}: write a component and a value, as in ES=8")
        if name in result:
            raise UsageError(f"{what}: {name} is given twice")
        result[name] = value
    return result


def _parse_shape(items: list[str]) -> dict[str, tuple[int, ...]]:
    shape = {}
    for name, text in _assignments(items, "--shape").items():
        if match := re.fullmatch(r"([0-9]{1,99})x([0-9]{1,99})", text):
            heads, layers = int(match[1]), int(match[2])
            if max(heads, 1) * layers > MOST_UNITS:
                raise UsageError(f"--shape {name}={text}: more than {MOST_UNITS:,} heads")
            shape[name] = (heads,) * layers
        else:
            shape[name] = parse_counts(text, component=name)
    return shape


def _parse_keep(items: list[str], heads: Shape) -> dict[str, int | str]:
    """Parse --keep: one digit for each layer is a count per layer, a shorter number is a total.

    Neurons have too many in a layer for a digit: a number without commas is always their total.
    """
    keep: dict[str, int | str] = {}
    for name, text in _assignments(items, "--keep").items():
        layers = heads.get(name, ())
        is_short = len(text) != len(layers) and len(text) <= len(str(sum(layers)))
        total = text.isdecimal() and (is_short or (name in NEURONS and len(text) < 100))
        keep[name] = int(text) if total else text
    return keep


def _parse_prune(items: list[str]) -> str | dict[str, str]:
    if len(items) == 1 and "=" not in items[0]:
        return items[0]
    return _assignments(items, "--prune")
