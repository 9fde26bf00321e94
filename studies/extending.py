"""Read a study's YAML file together with the studies that it extends.

`extends: multi30k` takes over everything that the other study says but its `name` and its
`description`. Mappings are merged key by key, at every depth; any other value replaces the other
study's; a key without a value (null) removes it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from headprune import DataError
from studies.yaml_checks import as_text, read_yaml, shown

STUDIES = Path(__file__).resolve().parent
_OWN = ("name", "description")
"""Keys that a study does not take over: its name is that of its run folder."""


def find_study(study: str, *, folder: Path = STUDIES) -> Path:
    """The YAML file for a name in `folder` (`demo`) or a path (`my/study.yaml`)."""
    by_name = folder / f"{study}.yaml"
    if by_name.is_file():
        return by_name
    path = Path(study)
    if path.is_file():
        return path
    known = ", ".join(sorted(p.stem for p in folder.glob("*.yaml")))
    raise DataError(
        f"study: no study is called {study!r} and no such file exists; studies here: {known}"
    )


def find_other_study(raw: object, *, key: str, path: Path) -> Path:
    """The file of the study that the key of another study names.

    Args:
        raw: the value: a name in this folder or the other study's, or a path from there.
        key: the key, for messages.
        path: the file that names it.

    Raises:
        DataError: there is no such file.
    """
    name = as_text(raw, key)
    for candidate in (path.parent / name, path.parent / f"{name}.yaml", STUDIES / f"{name}.yaml"):
        if candidate.is_file():
            return candidate
    raise DataError(f"{key}: no study is called {shown(name)}, neither here nor beside this file")


def read_study(path: Path) -> Any:
    """Read the value in a study's file, with that of the studies that it extends.

    Raises:
        DataError: a file cannot be read, or extends itself.
    """
    return _read(path, extended_by=())


def _read(path: Path, *, extended_by: tuple[Path, ...]) -> Any:
    if path.resolve() in extended_by:
        raise DataError(f"{path}: extends: the study extends itself")
    raw = read_yaml(path)
    if not isinstance(raw, dict) or "extends" not in raw:
        return raw
    own = {key: value for key, value in raw.items() if key != "extends"}
    try:
        other_path = find_other_study(raw["extends"], key="extends", path=path)
    except DataError as problem:
        raise DataError(f"{path}: {problem}") from None
    other = _read(other_path, extended_by=(*extended_by, path.resolve()))
    if not isinstance(other, dict):
        raise DataError(f"{other_path}: a mapping of names to values is needed")
    return merged({key: value for key, value in other.items() if key not in _OWN}, own)


def merged(base: dict[Any, Any], changes: dict[Any, Any]) -> dict[Any, Any]:
    """The mapping `base` with the values of `changes`; a value of None removes the key."""
    result = dict(base)
    for key, value in changes.items():
        if value is None:
            result.pop(key, None)
        elif isinstance(value, dict):
            before = result.get(key)
            result[key] = merged(before if isinstance(before, dict) else {}, value)
        else:
            result[key] = value
    return result
