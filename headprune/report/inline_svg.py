"""Figures inside web pages: SVG whose letters are text, in the colours of the page."""

from __future__ import annotations

import re

from markupsafe import Markup

from headprune.report.document import Figure
from headprune.report.drawing import DARK, svg_with_text

_TEXT_COLOURS = ("#000000", DARK.lower())
"""Colours that are replaced by the page's text colour, so that lines are seen on dark pages."""
_POINT = 4 / 3
"""Pixels of a web page."""


def inline_svg(figure: Figure, *, prefix: str) -> Markup:
    """The `svg` element of a figure.

    Args:
        figure: the figure to draw.
        prefix: begins the ids of its elements, which would otherwise repeat those of other figures
            in the page.

    Raises:
        UsageError: matplotlib is not installed.
    """
    text = svg_with_text(figure.draw)
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>\s*", "", text, flags=re.DOTALL)
    head, body = text.split(">", 1)
    width = _number("width", head) * _POINT
    view = re.search(r'viewBox="[^"]*"', head)
    body = re.sub(r'\bid="([^"]*)"', rf'id="{prefix}-\1"', body)
    body = re.sub(r'(xlink:href="|url\()#', rf"\1#{prefix}-", body)
    for colour in _TEXT_COLOURS:
        body = body.replace(colour, "currentColor")
    body = re.sub(r'\b(?:d|x|y)="[^"]*"', _rounded, body)
    return Markup(  # noqa: S704
        f'<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" '
        f'{view[0] if view else ""} role="img" aria-label="{Markup.escape(figure.alt)}" '
        f'style="--width:{width:.0f}px">{body.strip()}'
    )


def _rounded(coordinates: re.Match[str]) -> str:
    """Cut coordinates to a hundredth of a point: finer ones would double the size of the page."""
    return re.sub(r"(\.\d\d)\d+", r"\1", coordinates[0])


def _number(name: str, head: str) -> float:
    number = re.search(rf'\b{name}="([\d.]+)pt"', head)
    return float(number[1]) if number else 576.0
