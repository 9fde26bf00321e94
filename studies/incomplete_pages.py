"""Pages of a study that lack one of their figures.

Which figures a page has depends on its records, so that snakemake knows none of their files but
those of every page.
"""

from __future__ import annotations

import re
from pathlib import Path

_FIGURE = re.compile(r"^!\[.*\]\(([^()/]+)\)", re.MULTILINE)


def remove_incomplete(page: Path) -> bool:
    """Remove a page (Markdown) if the file of one of its figures is missing.

    Snakemake then makes the page again, and all figures with it.

    Returns:
        Whether it was removed.
    """
    if not page.is_file():
        return False
    names = _FIGURE.findall(page.read_text(encoding="utf-8"))
    if all(page.with_name(name).is_file() for name in names):
        return False
    page.unlink()
    return True
