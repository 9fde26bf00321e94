"""Counts of heads per layer as text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headprune import UsageError
from headprune.counts import format_counts, parse_counts


@pytest.mark.parametrize(
    ("text", "counts"),
    [
        ("888444", (8, 8, 8, 4, 4, 4)),
        ("0", (0,)),
        ("000008", (0, 0, 0, 0, 0, 8)),
        (" 888444\n", (8, 8, 8, 4, 4, 4)),
        ("16,16,12,8,4,4", (16, 16, 12, 8, 4, 4)),
        ("16, 16, 4", (16, 16, 4)),
        ("12,", (12,)),
        ("12", (1, 2)),  # without a comma it is two layers
        ("8,8,", (8, 8)),
    ],
)
def test_parse(text: str, counts: tuple[int, ...]) -> None:
    assert parse_counts(text) == counts


@pytest.mark.parametrize(
    ("counts", "text"),
    [
        ((8, 8, 8, 4, 4, 4), "888444"),
        ((0, 0), "00"),
        ((9,), "9"),
        ((12,), "12,"),
        ((16, 16, 12, 8, 4, 4), "16,16,12,8,4,4"),
        ((0, 10), "0,10"),
    ],
)
def test_format(counts: tuple[int, ...], text: str) -> None:
    assert format_counts(counts) == text


@given(st.lists(st.integers(0, 999), min_size=1, max_size=24).map(tuple))
def test_round_trip(counts: tuple[int, ...]) -> None:
    assert parse_counts(format_counts(counts)) == counts


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        ",",
        "8,,8",
        ",8",
        "88844x",
        "-1",
        "8,-1",
        "8.5",
        "8 8",
        "1e3,",
        "8_8,",
        "+8,",
        "\u0668\u0668",  # digits, but not ours
        "\u00b2\u00b2",  # isdigit() and yet no number
        "9" * 5000 + ",",  # more digits than int() reads
    ],
)
def test_what_is_no_list_of_counts(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_counts(text, component="ED")
    assert str(caught.value) == (
        f"ED: {text!r} is no list of counts; "
        "write one digit a layer (888444), or commas (16,16,12,8,4,4)"
    )


@given(st.text(max_size=12) | st.text(alphabet="0123456789, ", max_size=12))
def test_any_text_is_counts_or_a_usage_error(text: str) -> None:
    try:
        counts = parse_counts(text)
    except UsageError:
        return
    assert parse_counts(format_counts(counts)) == counts
