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
    unused: Collection[str] = (),
    ignored: Collection[str] = (),
) -> set[str]:
    """Write the settings to the folder if it is new, or contains nothing else.

    Files of other programs must not lie there, since commands replace and remove files in folders
    of their own.

    Args:
        folder: the folder.
        settings: those of this run. All results in the folder depend on them, but for those in
            ``replaceable`` and ``unused``.
        additions: those that only some kinds of results depend on, None or [] where they are not
            given: a folder without them gains them, and keeps them afterwards.
        replaceable: names of settings and additions that no result in the folder depends on.
        unused: names of settings that no result of this run depends on; the folder keeps its own.
        ignored: names of settings that older versions wrote.

    Returns:
        The names of replaceable settings that had another value.

    Raises:
        UsageError: it is for other settings, or has files but no settings.
    """
    path = folder / "settings.json"
    _require_no_other_files(folder)
    wanted = _plain(settings)
    optional = _plain(additions or {})
    given = {name: value for name, value in optional.items() if value not in _NOT_GIVEN}
    is_new = not path.exists() or all(each.name in (path.name, LOCK) for each in folder.iterdir())
    known = {} if is_new else json_object(path)
    values = wanted | given
    replaced = {
        name
        for name in {*replaceable} & {*known} & {*values}
        if known[name] != values[name] and (name in wanted or known[name] not in _NOT_GIVEN)
    }
    known = {name: value for name, value in known.items() if name not in replaced}
    if not is_new:
        required = {*values} - {*unused, *(name for name in replaceable if name in wanted)}
        written = {
            name: value
            for name, value in known.items()
            if name in required or name not in {*values, *optional, *ignored}
        }
        missing = [name for name in given if written.get(name) in _NOT_GIVEN]
        for name in missing:
            written.pop(name, None)
        asked = {name: values[name] for name in required.difference(missing)}
        if written != asked:
            names = {*written, *asked}
            differing = sorted(n for n in names if written.get(n) != asked.get(n))
            raise UsageError(
                f"{folder}: holds results of other settings ({', '.join(differing)}); choose "
                "another folder or delete this one"
            )
    content = known | {
        name: value for name, value in values.items() if name not in unused or name not in known
    }
    if content != known or is_new:
        write_text_atomically(path, json.dumps(content, indent=1) + "\n")
    return replaced


def _require_no_other_files(folder: Path) -> None:
    """Refuse a folder that has files but no settings; hidden files are not counted."""
    if (folder / "settings.json").exists() or not folder.is_dir():
        return
    visible = sorted(path.name for path in folder.iterdir() if not path.name.startswith("."))
    if visible:
        raise UsageError(
            f"{folder}: has files of something else ({visible[0]}); give a new or an empty folder"
        )


def _plain(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings as JSON has them."""
    values: dict[str, Any] = json.loads(json.dumps(dict(settings)))
    return values
