"""Renderers: each module of this package writes documents in one format.

A module has ``SUFFIX``, the ending of its files, and ``render``, which takes a document and
returns the text of the file.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Callable, Collection
from functools import cache
from importlib import import_module
from pathlib import Path

from headprune.files import write_text_atomically
from headprune.report.document import Document, Figure, with_inner
from headprune.report.drawing import save_drawing

Render = Callable[[Document], str]


@cache
def renderers() -> dict[str, Render]:
    """The renderers by suffix."""
    modules = [import_module(f"{__name__}.{each.name}") for each in pkgutil.iter_modules(__path__)]
    return {module.SUFFIX: module.render for module in modules}


def save(
    document: Document,
    folder: Path,
    *,
    name: str,
    suffixes: Collection[str] | None = None,
    drawn: Collection[str] = (),
) -> None:
    """Write the document as ``folder/name`` in every format, and its figures.

    The document's own figures are written as PNG and SVG, those among its blocks as SVG.

    Args:
        document: the document to write.
        folder: the folder of its files.
        name: the name of its files, without a suffix.
        suffixes: the formats to write, if not all of them.
        drawn: names of figures whose files are written already.
    """
    for suffix, render in renderers().items():
        if suffixes is None or suffix in suffixes:
            write_text_atomically(folder / f"{name}{suffix}", render(document))
    for figure in document.figures:
        path = folder / figure.name
        save_drawing(figure.draw, png=path.with_suffix(".png"), svg=path.with_suffix(".svg"))
    for block in with_inner(document.blocks):
        if isinstance(block, Figure) and block.name not in drawn:
            save_drawing(block.draw, png=None, svg=folder / f"{block.name}.svg")
