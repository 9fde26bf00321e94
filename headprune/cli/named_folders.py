"""Options whose values are names with folders: NAME=FOLDER."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from headprune.errors import UsageError


def parse_folders(texts: Sequence[str], *, option: str, key: str) -> dict[str, Path]:
    """The folders in texts such as ``sst2=DIR``, by name.

    Args:
        texts: the values of the option.
        option: the option, for messages.
        key: what the names are names of, in capital letters.

    Raises:
        UsageError: a text of another form, or two folders of one name.
    """
    folders: dict[str, Path] = {}
    for text in texts:
        name, sign, path = text.partition("=")
        if not name or not sign or not path:
            raise UsageError(f"{option} {text!r}: write {key}=FOLDER")
        if name in folders:
            raise UsageError(f"{option} {text!r}: {name} has a folder already, {folders[name]}")
        folders[name] = Path(path)
    return folders
