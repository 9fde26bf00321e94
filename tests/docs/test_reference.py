"""The written reference of the command line is that of today's commands."""

from __future__ import annotations

from headprune.cli.reference import reference

from .documents import ROOT


def test_the_reference_is_current() -> None:
    written = (ROOT / "docs" / "reference" / "cli.md").read_text(encoding="utf-8")
    assert written == reference(), "run `make docs`"
