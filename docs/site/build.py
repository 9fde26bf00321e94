"""Make the documents' site: `python docs/site/build.py OUT`.

Sphinx wants all pages in one folder, and links between them. The documents lie in `docs` and
beside it, and link to source files too, which the site does not contain. So copies are made in
which such links are names of files, and Sphinx makes the site of the copies. It loads nothing
from the network.
"""

from __future__ import annotations

import posixpath
import re
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from sphinx.cmd.build import build_main

ROOT = Path(__file__).resolve().parents[2]

SECTIONS = {
    "Documentation": ("README.md",),
    "Guides": (
        *("guides/data.md", "guides/translation.md", "guides/huggingface.md", "guides/families.md"),
        *("guides/glue.md", "guides/classifier.md", "guides/language-models.md"),
        "guides/seq2seq.md",
        *("guides/scores.md", "guides/subnetworks.md", "guides/gates.md"),
        *("guides/speed.md", "guides/without-retraining.md", "guides/distillation.md"),
        *("guides/vocabulary.md", "guides/studies.md"),
    ),
    "Reference": (
        *("reference/cli.md", "reference/python.md", "glossary.md", "records.md", "claims.md"),
        "project/studies/README.md",
    ),
    "Background": (
        *("results/README.md", "performance.md", "limits.md", "architecture.md"),
        *("project/CONTRIBUTING.md", "project/CHANGELOG.md"),
    ),
}
"""The pages of each section of the table of contents; others are reached by links."""

OUTSIDE = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "project/CONTRIBUTING.md",
    "CHANGELOG.md": "project/CHANGELOG.md",
    "studies/README.md": "project/studies/README.md",
}
"""Pages outside ``docs``, and their places in the site."""

_DOCS = "docs/"
_FENCE = re.compile(r"^(```.*?^```[^\n]*$)", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"(?P<image>!?)\[(?P<text>[^\]]*)\]\((?P<target>[^)\s]+)\)")


def main(arguments: list[str]) -> int:
    """Make the site in a folder; returns the exit status."""
    if len(arguments) != 1:
        print("usage: python docs/site/build.py OUT", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder)
        copy_pages(source)
        options = ["-q", "-W", "--keep-going", "-b", "html", "-c", str(ROOT / "docs" / "site")]
        return build_main([*options, str(source), arguments[0]])


def copy_pages(folder: Path) -> None:
    """Copy all pages and what they show to an empty folder, with links as the site needs them."""
    docs = ROOT / "docs"
    shutil.copytree(
        docs, folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns("site", "*.py", "*.md")
    )
    places = [path.relative_to(docs).as_posix() for path in docs.rglob("*.md")]
    listed = {"index.md", *(place for section in SECTIONS.values() for place in section)}
    for place in [*places, *OUTSIDE.values()]:
        text = (ROOT / in_repository(place)).read_text(encoding="utf-8")
        text = with_links_of_site(text, place=place)
        if place == "index.md":
            text += "".join(_toctree(caption, pages) for caption, pages in SECTIONS.items())
        elif place not in listed:  # Sphinx is to know that no table of contents names it
            text = f"---\norphan: true\n---\n\n{text}"
        copy = folder / place
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_text(text, encoding="utf-8")


def _toctree(caption: str, places: Sequence[str]) -> str:
    """A section of the table of contents at the side of the pages."""
    lines = ["```{toctree}", f":caption: {caption}", ":hidden:", "", *places, "```"]
    return "\n" + "\n".join(lines) + "\n"


def with_links_of_site(markdown: str, *, place: str) -> str:
    """The text of a page with links that work in the site.

    Args:
        markdown: the text.
        place: the page's path in the site.
    """
    parts = _FENCE.split(markdown)  # every second part is a block of code
    for number in range(0, len(parts), 2):
        parts[number] = _LINK.sub(lambda match: _link(match, place=place), parts[number])
    return "".join(parts)


def _link(match: re.Match[str], *, place: str) -> str:
    target, _, anchor = match["target"].partition("#")
    if not target or ":" in target:
        return match[0]
    path = posixpath.normpath(posixpath.join(posixpath.dirname(in_repository(place)), target))
    linked = in_site(path)
    if linked is None:
        # A source file: its name alone.
        return match["text"] if "`" in match["text"] else f"`{path}`"
    relative = posixpath.relpath(linked, posixpath.dirname(place) or ".")
    return f"{match['image']}[{match['text']}]({relative}{'#' if anchor else ''}{anchor})"


def in_repository(place: str) -> str:
    """The path in the repository of a page of the site."""
    outside = {site: path for path, site in OUTSIDE.items()}
    return outside.get(place, _DOCS + place)


def in_site(path: str) -> str | None:
    """The path in the site of a file or folder of the repository; None where it is not there."""
    for page in (path, f"{path}/README.md"):
        if page in OUTSIDE:
            return OUTSIDE[page]
    if not path.startswith(_DOCS) or path.endswith(".py"):
        return None
    place = path.removeprefix(_DOCS)
    if not (ROOT / path).is_dir():
        return place
    return f"{place}/README.md" if (ROOT / path / "README.md").is_file() else None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
