"""Tests of the JSON reader and its limits."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from headprune.cost import Sizes
from headprune.errors import DataError
from headprune.json_files import json_object, known_values, parse_json


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "file: not JSON (Expecting value: line 1 column 1 (char 0))"),
        ("[" * 100_000, "file: not read: more than 50 levels deep"),
        ("[" * 51 + "]" * 51, "file: not read: more than 50 levels deep"),
        ('{"a":' * 60 + "1" + "}" * 60, "file: not read: more than 50 levels deep"),
        ("1" * 5000, "file: a number of 5,000 digits; more than 100 are not read"),
        ("1e400", "file: 1e400 is larger than any number that can be computed with"),
        ("[NaN]", "file: NaN is no number"),
        ("-Infinity", "file: -Infinity is no number"),
        ('{"a": 1, "b": 2, "a": 3}', 'file: "a" is there twice in one object'),
    ],
)
def test_what_is_refused(text: str, message: str) -> None:
    with pytest.raises(DataError) as caught:
        parse_json(text, source="file")
    assert str(caught.value) == message


def test_what_is_read() -> None:
    value = {"a": [1, -2.5, None, True, "text", {}], "b": 10**99}
    assert parse_json(json.dumps(value), source="file") == value
    assert parse_json("[" * 50 + "]" * 50, source="file")


def test_files(tmp_path: Path) -> None:
    path = tmp_path / "file.json"
    path.write_bytes(b'\xef\xbb\xbf{"a": 1}')
    assert json_object(path) == {"a": 1}
    for content, message in (
        (b"[]", "not a JSON object"),
        (b'{"\xff": 1}', "cannot be read: not UTF-8 text"),
    ):
        path.write_bytes(content)
        with pytest.raises(DataError) as caught:
            json_object(path)
        assert str(caught.value) == f"{path}: {message}"
    with pytest.raises(DataError, match="cannot be read: longer than 268,435,456 bytes"):
        json_object(Path("/dev/zero"))


@dataclass(frozen=True)
class Example:
    name: str
    number: float
    limit: float | None
    counts: dict[str, int]
    rows: list[list[float]] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=dict)


WHOLE = {"name": "a", "number": 1, "limit": None, "counts": {"b": 2}}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"name": 1}, "file: name is 1, not text"),
        ({"number": True}, "file: number is true, not a number"),
        ({"limit": "1"}, 'file: limit is "1", not a number or null'),
        ({"counts": {"b": 2.0}}, "file: counts is .*, not an object whose values are each a whole"),
        ({"rows": [[1, "2"]]}, r"file: rows is \[\[1, "),
        ({"facts": []}, r"file: facts is \[\], not an object"),
    ],
)
def test_types_of_fields(change: dict[str, object], message: str) -> None:
    assert known_values(Example, WHOLE, source="file") == WHOLE
    with pytest.raises(DataError, match=message):
        known_values(Example, {**WHOLE, **change}, source="file")


def test_fields_of_later_versions_are_left_out() -> None:
    assert known_values(Example, {**WHOLE, "other": 1}, source="file") == WHOLE


def test_a_missing_field() -> None:
    with pytest.raises(DataError, match="file: counts is missing"):
        known_values(Example, {"name": "a", "number": 1, "limit": 1}, source="file")


def test_a_tuple_is_a_list_in_a_file() -> None:
    assert known_values(Sizes, {"encoder_passes": [2, 1]}, source="file")
    with pytest.raises(DataError, match="file: encoder_passes is "):
        known_values(Sizes, {"encoder_passes": [2, "a"]}, source="file")
