"""The reasons that messages take from errors of other libraries."""

from __future__ import annotations

import pytest

from headprune.errors import reason_of


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        ("no such layer\nsee the manual", "no such layer"),
        (
            "Error for validator 'layers':\n    ValueError: 4 layers, 2 types\n",
            "Error for validator 'layers': ValueError: 4 layers, 2 types",
        ),
        ("nothing follows:", "nothing follows:"),
        ("", "ValueError"),
    ],
)
def test_the_reason_of_an_error(message: str, reason: str) -> None:
    assert reason_of(ValueError(message)) == reason


def test_the_last_line_of_an_error() -> None:
    assert reason_of(ValueError("while reading:\na.json\nis empty"), last_line=True) == "is empty"
