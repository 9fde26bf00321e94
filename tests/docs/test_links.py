"""Links between the documents lead somewhere."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import unquote

import pytest

from .documents import DOCUMENTS, ROOT, anchors, links


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_relative_links_and_anchors_exist(path: Path) -> None:
    broken = []
    for link in links(path):
        if link.startswith(("http://", "https://", "mailto:")):
            continue
        name, _, anchor = link.partition("#")
        target = (path.parent / unquote(name)).resolve() if name else path
        exists = target.is_relative_to(ROOT) and target.exists()
        if exists and anchor and target.suffix == ".md":
            exists = anchor in anchors(target)
        if not exists:
            broken.append(link)
    assert broken == []


def test_every_guide_is_in_the_index() -> None:
    index = {(ROOT / "docs" / link).resolve() for link in links(ROOT / "docs" / "README.md")}
    pages = {*ROOT.glob("docs/*.md"), *ROOT.glob("docs/guides/*.md")} - {ROOT / "docs/README.md"}
    assert sorted(pages - index) == []


def test_links_and_anchors_of_a_document_are_found(tmp_path: Path) -> None:
    path = tmp_path / "page.md"
    path.write_text(
        "# A page: `code` and more\n\n[a](b.md#c) ![d](e.png)\n\n```\n# no heading [x](y)\n```\n"
        "## Twice\n## Twice\n"
    )
    assert links(path) == ["b.md#c", "e.png"]
    assert anchors(path) == {"a-page-code-and-more", "twice", "twice-1"}
