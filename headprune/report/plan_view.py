"""A plan on the terminal: a grid of heads for each component, and what the plan saves."""

from __future__ import annotations

from rich.columns import Columns
from rich.console import Console
from rich.table import Table
from rich.text import Text

from headprune.cost import Sizes, attention_parameters, forward_flops
from headprune.counts import format_counts
from headprune.plan import HeadPlan

_NAMES = {
    "ES": "encoder self-attention",
    "ED": "encoder-decoder attention",
    "DS": "decoder self-attention",
}
_FORMS_WITH_ALL_WEIGHTS = ("mask", "uniform")


def show_plan(
    plan: HeadPlan,
    sizes: Sizes,
    *,
    length: int,
    parameters: tuple[int, int] | None = None,
    form: str | None = "remove",
    console: Console | None = None,
) -> None:
    """Print the grid of kept heads by component, the counts, parameters and FLOPs.

    Args:
        plan: what is kept.
        sizes: widths of the model.
        length: tokens of the source and of the target, for the FLOPs.
        parameters: of the whole model, unpruned and as it is; without them, attention alone is
            counted.
        form: `remove`, `mask` or `uniform`: in the last two pruned heads' weights are still
            there, and are worked out.
        console: where to print (default: standard output).
    """
    console = console or Console(highlight=False)
    unicode = console.encoding.lower().startswith("utf")
    kept, gone = ("■", "·") if unicode else ("#", ".")
    grids = [_grid(plan, component, kept, gone) for component in plan.kept]
    console.print(Columns(grids, padding=(0, 3)))
    console.print(f"{kept} kept  {gone} pruned; layer 0 is next to the embeddings")
    console.print()
    console.print(
        f"counts      {plan}\n"
        f"heads       {plan.total_kept} of {plan.total} kept, {plan.percent_pruned:.1f}% pruned",
        soft_wrap=True,
    )
    full = HeadPlan.full(plan.heads)
    whole = form in _FORMS_WITH_ALL_WEIGHTS
    computed = full if whole else plan
    if parameters is None:
        before, after = (attention_parameters(p, sizes) for p in (full, computed))
        console.print(_change("parameters", before, after) + "  (attention alone)")
    else:
        console.print(_change("parameters", *parameters))
    before, after = (
        forward_flops(p, sizes, source=length, target=length) for p in (full, computed)
    )
    alone = f"; by these alone {before / after:.2f}x as fast" if after else ""
    console.print(
        _change("FLOPs", before, after)
        + f"  (a forward pass, {length} tokens a side, matrix products{alone})",
        soft_wrap=True,
    )
    if whole:
        console.print(f"form        {form}: pruned heads' weights are still there and worked out")


def _grid(plan: HeadPlan, component: str, kept: str, gone: str) -> Table:
    heads = plan.heads[component]
    title = f"{component}  {_NAMES[component]}"
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


def _change(what: str, before: int, after: int) -> str:
    saved = 100 * (before - after) / before if before else 0.0
    return f"{what:<11} {before:,} -> {after:,}  ({saved:.1f}% less)"
