"""Options whose values are names with folders: NAME=FOLDER."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from headprune.errors import UsageError


def named_folders(texts: Sequence[str], *, option: str, key: str) -> list[tuple[str, Path]]:
    """The names and folders in texts such as ``sst2=DIR``; a name may have several folders.

    Args:
        texts: the values of the option.
        option: the option, for messages.
        key: what the names are names of, in capital letters.

    Raises:
        UsageError: a text of another form.
    """
    folders = []
    for text in texts:
        name, sign, path = text.partition("=")
        if not name or not sign or not path:
            raise UsageError(f"{option} {text!r}: write {key}=FOLDER")
        folders.append((name, Path(path)))
    return folders


def parse_folders(texts: Sequence[str], *, option: str, key: str) -> dict[str, Path]:
    """The folders in texts such as ``sst2=DIR``, by name; each name has one folder.

    Args:
        texts, option, key: see ``named_folders``.

    Raises:
        UsageError: a text of another form, or two folders of one name.
    """
    folders: dict[str, Path] = {}
    for name, folder in named_folders(texts, option=option, key=key):
        if name in folders:
            raise UsageError(
                f"{option} '{name}={folder}': {name} has a folder already, {folders[name]}"
            )
        folders[name] = folder
    return folders
