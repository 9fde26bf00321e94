"""Read untrusted JSON files with limits on their size and structure."""

from __future__ import annotations

import json
import math
import types
import typing
from collections.abc import Mapping
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any, Union, get_args, get_origin

from headprune.errors import DataError

MOST_BYTES = 1 << 28
"""Size limit of a file; a plan of ten million heads is smaller."""

MOST_DIGITS = 100
"""Limit on the digits of an integer: parsing time grows with the square of their number."""

DEEPEST = 50
"""Limit on the depth of nested lists and objects."""


def parse_json(text: str, *, source: str, expected: str | None = None) -> Any:
    """Parse JSON; error messages begin with ``source``.

    Args:
        expected: the file that is expected, for the message of what is not JSON.

    Raises:
        DataError: the text is not JSON, contains NaN or an infinite number, a number that is too
            long or a name twice in one object, or is nested too deeply.
    """
    try:
        value = json.loads(
            text,
            parse_int=_whole,
            parse_float=_finite,
            parse_constant=_refuse_constant,
            object_pairs_hook=_without_repeats,
        )
    except RecursionError:
        raise DataError(f"{source}: not read: more than {DEEPEST} levels deep") from None
    except _Refused as problem:
        raise DataError(f"{source}: {problem}") from None
    except ValueError as problem:
        hint = "" if expected is None else f"; expected {expected}"
        raise DataError(f"{source}: not JSON ({problem}){hint}") from None
    if _is_too_deep(value):
        raise DataError(f"{source}: not read: more than {DEEPEST} levels deep")
    return value


def read_json(path: Path, *, expected: str | None = None) -> Any:
    """Read a JSON file; see ``parse_json`` for ``expected``.

    Raises:
        DataError: see ``read_limited`` and ``parse_json``.
    """
    return parse_json(read_limited(path), source=str(path), expected=expected)


def read_limited(path: Path, *, what: str | None = None) -> str:
    """Read a text file of at most ``MOST_BYTES``; ``what`` describes it in error messages.

    Raises:
        DataError: the file cannot be read, is too long, or is not UTF-8.
    """
    try:
        with path.open("rb") as file:
            content = file.read(MOST_BYTES + 1)
        if len(content) > MOST_BYTES:
            raise _unreadable(path, f"longer than {MOST_BYTES:,} bytes", what)
        return content.decode("utf-8-sig")
    except OSError as problem:
        raise _unreadable(path, str(problem.strerror), what) from None
    except UnicodeDecodeError:
        raise _unreadable(path, "not UTF-8 text", what) from None


def _unreadable(path: Path, reason: str, what: str | None) -> DataError:
    if what is None:
        return DataError(f"{path}: cannot be read: {reason}")
    return DataError(f"{path}: cannot read {what} ({reason})")


def json_object(path: Path, *, expected: str | None = None) -> dict[str, Any]:
    """Read a JSON file that contains an object; see ``parse_json`` for ``expected``.

    Raises:
        DataError: the file cannot be read, or contains something else.
    """
    value = read_json(path, expected=expected)
    if not isinstance(value, dict):
        raise DataError(f"{path}: not a JSON object")
    return value


def known_values(
    cls: type,
    values: Mapping[str, Any],
    *,
    source: str,
    keys: Mapping[str, str] = types.MappingProxyType({}),
) -> dict[str, Any]:
    """Select the values that a dataclass has fields for, and check them against the fields' types.

    Unknown fields are left out: files of later versions may have more fields. A missing field keeps
    its default.

    Args:
        cls: the dataclass.
        values: the values by their keys in the file.
        source: the file, for messages.
        keys: the keys of the fields whose names are others in the file.

    Raises:
        DataError: a field without a default is missing, or one is of another type; the message
            names it.
    """
    hints = typing.get_type_hints(cls)
    known = {field.name: field for field in fields(cls)}
    found = {}
    for name, field in known.items():
        key = keys.get(name, name)
        if key in values:
            found[name] = values[key]
            if not _is(found[name], hints[name]):
                raise DataError(
                    f"{source}: {key} is {_short(found[name])}, not {_words(hints[name])}"
                )
        elif field.default is MISSING and field.default_factory is MISSING:
            raise DataError(f"{source}: {key} is missing")
    return found


def _is(value: object, wanted: Any) -> bool:
    """Check the type of a value: str, int, float, bool, None, a list or dict of these, or Any.

    A tuple of any length is a list in a file.
    """
    origin, inner = get_origin(wanted), get_args(wanted)
    if wanted is Any:
        return True
    if origin in (Union, types.UnionType):
        return any(_is(value, each) for each in inner)
    if wanted is float:
        return isinstance(value, (int, float)) and not isinstance(value, bool)
    if wanted is int:
        return isinstance(value, int) and not isinstance(value, bool)
    if origin is dict:
        return isinstance(value, dict) and all(_is(each, inner[1]) for each in value.values())
    if origin in (list, tuple):
        return isinstance(value, list | tuple) and all(_is(each, inner[0]) for each in value)
    return isinstance(value, wanted)


def _words(wanted: Any) -> str:
    """Describe a type in words, for error messages."""
    names = {float: "a number", int: "a whole number", str: "text", type(None): "null"}
    if get_origin(wanted) in (Union, types.UnionType):
        return " or ".join(_words(each) for each in get_args(wanted))
    if get_origin(wanted) is dict:
        inner = get_args(wanted)[1]
        return "an object" if inner is Any else f"an object whose values are each {_words(inner)}"
    return names.get(wanted, "of the right type")


def _short(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 40 else f"{text[:40]}..."


class _Refused(Exception):
    """Well-formed JSON that is not accepted."""


def _whole(digits: str) -> int:
    if len(digits) > MOST_DIGITS:
        raise _Refused(f"a number of {len(digits):,} digits; more than {MOST_DIGITS} are not read")
    return int(digits)


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise _Refused(f"{text[:20]} is larger than any number that can be computed with")
    return number


def _refuse_constant(name: str) -> float:
    raise _Refused(f"{name} is no number")


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for index, name in enumerate(names) if name in names[:index])
        raise _Refused(f"{_short(twice)} is there twice in one object")
    return result


def _is_too_deep(value: Any) -> bool:
    """Check whether lists and objects are nested more than ``DEEPEST`` levels deep."""
    level = [value]
    for _ in range(DEEPEST):
        level = [
            inner
            for outer in level
            if isinstance(outer, (dict, list))
            for inner in (outer.values() if isinstance(outer, dict) else outer)
            if isinstance(inner, (dict, list))
        ]
        if not level:
            return False
    return True
