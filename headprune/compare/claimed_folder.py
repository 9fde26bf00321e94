"""Folders that belong to one set of settings, so that results of other settings never mix in."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from headprune.errors import UsageError
from headprune.files import write_text_atomically
from headprune.json_files import json_object
from headprune.locks import NAME as LOCK

_NOT_GIVEN: tuple[object, ...] = (None, [])


def claim(
    folder: Path,
    settings: Mapping[str, Any],
    *,
    additions: Mapping[str, Any] | None = None,
    replaceable: Collection[str] = (),
    ignored: Collection[str] = (),
) -> set[str]:
    """Write the settings to the folder if it has none, or if it contains nothing else.

    Args:
        folder: the folder.
        settings: those that all of its results depend on.
        additions: those that only some kinds of results depend on, None or [] where they are not
            given: a folder without them gains them, and keeps them afterwards.
        replaceable: names of additions that no result in the folder depends on.
        ignored: names of settings that older versions wrote.

    Returns:
        The names of additions that had another value.

    Raises:
        UsageError: it is for other settings.
    """
    path = folder / "settings.json"
    wanted = _plain(settings)
    optional = _plain(additions or {})
    given = {name: value for name, value in optional.items() if value not in _NOT_GIVEN}
    is_new = not path.exists() or all(each.name in (path.name, LOCK) for each in folder.iterdir())
    known = {} if is_new else json_object(path)
    replaced = {
        name
        for name in given
        if name in replaceable and known.get(name) not in (*_NOT_GIVEN, given[name])
    }
    for name in replaced:
        del known[name]
    if not is_new:
        written = {name: value for name, value in known.items() if name not in ignored}
        for name in optional:
            if name not in given or written.get(name) in _NOT_GIVEN:
                written.pop(name, None)
        wanted_now = wanted | {name: value for name, value in given.items() if name in written}
        if written != wanted_now:
            names = {*written, *wanted_now}
            differing = sorted(n for n in names if written.get(n) != wanted_now.get(n))
            raise UsageError(
                f"{folder}: holds results of other settings ({', '.join(differing)}); choose "
                "another folder or delete this one"
            )
    content = known | wanted | given
    if content != known or is_new:
        write_text_atomically(path, json.dumps(content, indent=1) + "\n")
    return replaced


def _plain(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings as JSON has them."""
    values: dict[str, Any] = json.loads(json.dumps(dict(settings)))
    return values
