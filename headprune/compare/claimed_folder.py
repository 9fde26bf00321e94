"""Folders that belong to one set of settings, so that results of other settings never mix in."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from headprune.errors import UsageError
from headprune.files import write_text_atomically
from headprune.json_files import json_object
from headprune.locks import NAME as LOCK


def claim(folder: Path, settings: Mapping[str, Any]) -> None:
    """Write the settings to the folder if it has none, or if it contains nothing else.

    Raises:
        UsageError: it is for other settings.
    """
    path = folder / "settings.json"
    wanted = json.loads(json.dumps(dict(settings)))
    if not path.exists() or all(each.name in (path.name, LOCK) for each in folder.iterdir()):
        write_text_atomically(path, json.dumps(wanted, indent=1) + "\n")
        return
    written = json_object(path)
    if written != wanted:
        names = {*written, *wanted}
        differing = sorted(n for n in names if written.get(n) != wanted.get(n))
        raise UsageError(
            f"{folder}: holds results of other settings ({', '.join(differing)}); choose another "
            "folder or delete this one"
        )
