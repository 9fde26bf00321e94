"""The documents as a site: links as it needs them, and the site itself without a warning."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

pytest.importorskip("sphinx")
sys.path.insert(0, str(ROOT / "docs" / "site"))
from build import SECTIONS, in_site, with_links_of_site  # type: ignore[import-not-found]  # noqa: E402


@pytest.mark.parametrize(
    ("place", "text", "expected"),
    [
        ("guides/gates.md", "[t](translation.md#train)", "[t](translation.md#train)"),
        ("guides/gates.md", "[r](../../README.md)", "[r](../index.md)"),
        ("index.md", "[g](docs/guides/gates.md)", "[g](guides/gates.md)"),
        ("index.md", "![f](docs/figures/a.svg)", "![f](figures/a.svg)"),
        ("project/studies/README.md", "[c](../CHANGELOG.md)", "[c](../CHANGELOG.md)"),
        ("README.md", "[s](../studies/README.md)", "[s](project/studies/README.md)"),
        ("README.md", "[r](results)", "[r](results/README.md)"),
        ("results/README.md", "[b](benchmarks)", "`docs/results/benchmarks`"),
        ("architecture.md", "[plan.py](../headprune/plan.py)", "`headprune/plan.py`"),
        ("architecture.md", "[`plan`](../headprune/plan.py)", "`plan`"),
        ("README.md", "[a](https://a.org/x) [b](#below)", "[a](https://a.org/x) [b](#below)"),
        ("README.md", "```\n[t](../setup.py)\n```", "```\n[t](../setup.py)\n```"),
    ],
)
def test_links(place: str, text: str, expected: str) -> None:
    assert with_links_of_site(text, place=place) == expected


def test_every_place_is_a_file() -> None:
    assert in_site("docs/guides/gates.md") == "guides/gates.md"
    assert in_site("setup.py") is None and in_site("docs/figures/architecture.py") is None


def test_every_guide_is_listed() -> None:
    guides = {f"guides/{path.name}" for path in (ROOT / "docs" / "guides").glob("*.md")}
    assert guides == set(SECTIONS["Guides"])


@pytest.mark.slow
def test_the_site_is_made_without_a_warning_and_needs_no_network(tmp_path: Path) -> None:
    build = [sys.executable, str(ROOT / "docs" / "site" / "build.py"), str(tmp_path / "site")]
    done = subprocess.run(build, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    pages = [*(tmp_path / "site").rglob("*.html")]
    assert len(pages) > 25
    loaded = re.compile(r'<(?:script|link|img|iframe)[^>]*(?:src|href)="https?://[^"]*"')
    for page in pages:
        if "_downloads" not in page.parts:
            assert not loaded.search(page.read_text(encoding="utf-8")), page
    python = (tmp_path / "site" / "reference" / "python.html").read_text(encoding="utf-8")
    assert "The units of a model that are kept, by component and layer." in python
