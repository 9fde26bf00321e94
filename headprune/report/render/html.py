"""Documents as web pages: one file with its styles, figures and scripts; it loads nothing."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import count
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from headprune.errors import UsageError
from headprune.report.document import (
    Block,
    Document,
    Figure,
    Section,
    Table,
    with_inner,
    with_own_figures,
)
from headprune.report.grid_data import grid_data, panels, shown_first
from headprune.report.inline_svg import inline_svg
from headprune.version import __version__

SUFFIX = ".html"


def render(document: Document) -> str:
    """The page; without its figures where matplotlib is not installed."""
    blocks = with_own_figures(document)
    anchors = _anchors(blocks)
    numbers = count(1)
    template = _environment().get_template("page.html")
    page = template.render(
        title=document.title,
        blocks=blocks,
        anchor_of=lambda section: anchors[id(section)],
        sections=[(anchors[id(b)], b.title) for b in blocks if isinstance(b, Section)],
        version=__version__,
        # Figures and tables of a page have numbers of their own, from which ids are made.
        number=lambda: next(numbers),
    )
    return "\n".join(line.rstrip() for line in page.splitlines() if line.strip()) + "\n"


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("headprune.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"inline": _inline, "svg": _svg, "outcome": _outcome}
    environment.globals |= {
        **{"kind": _kind, "columns": _columns, "source": _source},
        **{"panels": panels, "first_model": shown_first, "grid_data": grid_data},
    }
    return environment


def _kind(block: Block) -> str:
    return type(block).__name__.lower()


def _source(name: str) -> Markup:
    """The text of a file beside the templates, for styles and scripts."""
    loader = _environment().loader
    assert loader is not None
    return Markup(loader.get_source(_environment(), name)[0])  # noqa: S704


def _svg(figure: Figure, number: int) -> Markup | None:
    try:
        return inline_svg(figure, prefix=f"figure{number}")
    except UsageError:  # Without matplotlib. The figure's files, which are drawn next, say so.
        return None


def _inline(text: str) -> Markup:
    """A sentence as HTML; text between two backticks is code, and no line ends in `p <`."""
    parts = re.split("`([^`]+)`", text.replace("p < ", "p\u00a0<\u00a0"))
    return Markup("").join(
        Markup("<code>{}</code>").format(part) if place % 2 else part
        for place, part in enumerate(parts)
    )


_SIGNS = {
    "holds": "\u2713",
    "does not hold": "\u2717",
    "these runs cannot tell": "?",
    "not run here": "\u2013",
}
"""The outcomes of claims: each has a sign besides its colour."""


def _outcome(text: str) -> Markup | str:
    """The outcome of a claim with its sign; any other text as it is."""
    if text not in _SIGNS:
        return text
    name = text.replace(" ", "-")
    return Markup('<span class="outcome {}"><span aria-hidden="true">{}</span> {}</span>').format(
        name, _SIGNS[text], text
    )


def _anchors(blocks: Sequence[Block]) -> dict[int, str]:
    """The id of each section's heading, from its title; no two are the same."""
    anchors: dict[int, str] = {}
    for block in with_inner(blocks):
        if isinstance(block, Section):
            anchor = re.sub(r"\W+", "-", block.title.lower()).strip("-") or "section"
            repeated = sum(re.sub(r"--\d+$", "", other) == anchor for other in anchors.values())
            anchors[id(block)] = f"{anchor}--{repeated + 1}" if repeated else anchor
    return anchors


def _columns(table: Table) -> Iterator[dict[str, Any]]:
    """The name of each column, and whether it has words: numbers are set to the right."""
    for place, column in enumerate(table.columns):
        values = [row[place] for row in table.rows]
        yield {"name": column.name, "words": place == 0 or _has_words(values)}


def _has_words(values: Sequence[object]) -> bool:
    return any(isinstance(value, str) and re.search("[A-Za-z]", value) for value in values)
