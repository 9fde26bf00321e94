"""A plan on the terminal: the units of each component, and what the plan saves."""

from __future__ import annotations

from rich.columns import Columns
from rich.console import Console
from rich.table import Table
from rich.text import Text

from headprune.components import COMPONENT_NAMES, HEADS, LAYERS, NEURONS, unit_names
from headprune.cost import Sizes, attention_parameters, known_flops, prunable_parameters
from headprune.counts import format_counts
from headprune.plan import PruningPlan

_BAR = 20
"""The number of characters of a bar of neurons."""


def show_plan(
    plan: PruningPlan,
    sizes: Sizes,
    *,
    length: int,
    parameters: tuple[int, int] | None = None,
    form: str | None = "remove",
    computed: PruningPlan | None = None,
    console: Console | None = None,
) -> None:
    """Print the kept units by component, the counts, parameters and FLOPs.

    Args:
        plan: the plan to print.
        sizes: the sizes of the model.
        length: the number of tokens of the source and of the target, for the FLOPs.
        parameters: the parameters of the unpruned and of the pruned model; by default, only the
            parameters of the plan's components are counted.
        form: the form of the pruned units, to name beside those that are still computed.
        computed: the units that are computed, with those that are masked or uniform; by default,
            the kept ones.
        console: the console to print to (default: standard output).
    """
    console = console or Console(highlight=False)
    unicode = console.encoding.lower().startswith("utf")
    kept, gone = ("■", "·") if unicode else ("#", ".")
    for components, draw in ((HEADS, _grid), (NEURONS, _bars)):
        tables = [draw(plan, name, kept, gone) for name in components if name in plan.kept]
        if tables:
            console.print(Columns(tables, padding=(0, 3)))
    for name in LAYERS:
        if name in plan.kept:
            console.print(
                f"{name}  {COMPONENT_NAMES[name]}  {_row(plan, name, kept, gone)}  (layer 0 first)"
            )
    console.print(f"{kept} kept  {gone} pruned; layer 0 is next to the embeddings")
    console.print()
    console.print(f"counts      {plan}", soft_wrap=True)
    for components in (HEADS, NEURONS, LAYERS):
        part = plan.part(components)
        if part is not None:
            console.print(
                f"{unit_names(components):<11} {part.total_kept:,} of {part.total:,} kept, "
                f"{part.percent_pruned:.1f}% pruned"
            )
    full = PruningPlan.full(plan.units)
    computed = plan if computed is None else computed
    if parameters is None:
        has_heads_alone = all(component in HEADS for component in plan.units)
        count = attention_parameters if has_heads_alone else prunable_parameters
        counted = "attention alone" if has_heads_alone else "these components alone"
        before, after = (count(p, sizes) for p in (full, computed))
        console.print(_change("parameters", before, after) + f"  ({counted})")
    else:
        console.print(_change("parameters", *parameters))
    console.print(_flops(full, computed, sizes, length=length), soft_wrap=True)
    if computed.kept != plan.kept:
        number = "" if computed.is_full else f"{computed.total_kept - plan.total_kept} "
        units = unit_names(plan.units)
        console.print(
            f"form        {form}: {number}pruned {units} are in the model, and are computed"
        )


def _flops(full: PruningPlan, computed: PruningPlan, sizes: Sizes, *, length: int) -> str:
    """The line on floating-point operations, with the speed that they alone allow."""
    before, after = (
        known_flops(plan, sizes, source=length, target=length) for plan in (full, computed)
    )
    if before is None or after is None:
        return f"FLOPs       not known: {sizes.uncounted} are not counted"
    speedup = f"; by these alone {before / after:.2f}x as fast" if after else ""
    fixed = sizes.encoder_positions
    inputs = f"one input of {fixed} positions" if fixed else f"{length} tokens a side"
    return (
        _change("FLOPs", before, after) + f"  (a forward pass, {inputs}, matrix products{speedup})"
    )


def _grid(plan: PruningPlan, component: str, kept: str, gone: str) -> Table:
    heads = plan.units[component]
    title = f"{component}  {COMPONENT_NAMES[component]}"
    table = Table(title=title, box=None, title_justify="left", min_width=len(title) + 2)
    table.add_column("layer", justify="right", style="dim")
    table.add_column("head " + " ".join(str(h % 10) for h in range(max(heads))), no_wrap=True)
    table.add_column("kept", justify="right")
    for layer in reversed(range(len(heads))):
        numbers = set(plan.kept[component][layer])
        marks = " ".join(kept if head in numbers else gone for head in range(heads[layer]))
        table.add_row(str(layer), Text("     " + marks), str(len(numbers)))
    table.caption = f"{component}={format_counts(plan.counts[component])}"
    table.caption_justify = "left"
    return table


def _bars(plan: PruningPlan, component: str, kept: str, gone: str) -> Table:
    """The number of neurons of each layer, and a bar of their share."""
    title = f"{component}  {COMPONENT_NAMES[component]}"
    table = Table(title=title, box=None, title_justify="left", min_width=len(title) + 2)
    table.add_column("layer", justify="right", style="dim")
    table.add_column("neurons", no_wrap=True)
    table.add_column("kept", justify="right")
    for layer in reversed(range(len(plan.units[component]))):
        count, units = plan.counts[component][layer], plan.units[component][layer]
        filled = -(-_BAR * count // units)  # rounded up: a bar is empty where no neuron is kept
        bar = kept * filled + gone * (_BAR - filled)
        table.add_row(str(layer), Text(bar), f"{count:,} of {units:,}")
    return table


def _row(plan: PruningPlan, component: str, kept: str, gone: str) -> str:
    """One mark for each layer."""
    return " ".join(kept if units else gone for units in plan.kept[component])


def _change(what: str, before: int, after: int) -> str:
    saved = 100 * (before - after) / before if before else 0.0
    return f"{what:<11} {before:,} -> {after:,}  ({saved:.1f}% less)"
