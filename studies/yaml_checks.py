"""Checks of what stands in a study's YAML file; each names the key that is wrong."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from headprune import DataError, UsageError

RESOURCE_KEYS = ("threads", "mem_mb", "runtime", "gpu")


def read_yaml(path: Path) -> Any:
    """What a YAML file holds.

    Raises:
        DataError: the file cannot be read, is no YAML, or has a key twice.
    """
    try:
        return yaml.load(path.read_text(encoding="utf-8"), Loader=_StrictLoader)
    except OSError as problem:
        raise DataError(f"{path}: cannot be read: {problem.strerror}") from problem
    except UnicodeDecodeError as problem:
        raise DataError(f"{path}: not UTF-8 text") from problem
    except yaml.YAMLError as problem:
        raise DataError(f"{path}: not valid YAML: {' '.join(str(problem).split())}") from problem


class _StrictLoader(yaml.SafeLoader):
    """YAML that refuses a key given twice, of which PyYAML silently drops the first."""


def _mapping_without_repeats(loader: yaml.SafeLoader, node: yaml.MappingNode) -> dict[Any, Any]:
    seen: set[Any] = set()
    for key_node, _ in node.value:
        key = loader.construct_object(key_node, deep=True)
        if key in seen:
            raise yaml.YAMLError(
                f"key {key!r} is given twice (line {key_node.start_mark.line + 1})"
            )
        seen.add(key)
    mapping: dict[Any, Any] = loader.construct_mapping(node, deep=True)
    return mapping


_StrictLoader.add_constructor(
    yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, _mapping_without_repeats
)


def fill_in(raw: object, *, required: Sequence[str], defaults: Mapping[str, Any]) -> dict[str, Any]:
    """The file's keys, the defaults for those that it leaves out."""
    given = as_mapping(raw, "the file")
    require_known(given, (*required, *defaults), where="")
    missing = [key for key in required if key not in given]
    if missing:
        raise DataError(f"missing key: {', '.join(missing)}")
    return {**defaults, **given}


def study_name(raw: object) -> str:
    """A name that a run folder can have."""
    name = as_text(raw, "name")
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", name):
        raise DataError(f"name: {name!r} names the run folder: letters, digits, '.', '_', '-' only")
    return name


def require_known(given: Mapping[str, Any], known: Sequence[str], *, where: str) -> None:
    """Refuse keys that are not known."""
    for key in given:
        if key not in known:
            raise DataError(f"unknown key: {where}{key}; known here: {', '.join(known)}")


def as_mapping(raw: object, where: str) -> dict[str, Any]:
    """A mapping whose keys are text."""
    if not isinstance(raw, dict) or not all(isinstance(key, str) for key in raw):
        raise DataError(f"{where}: a mapping of names to values is needed")
    return raw


def as_list(raw: object, where: str) -> list[Any]:
    """A list."""
    if not isinstance(raw, list):
        raise DataError(f"{where}: a list is needed")
    return raw


def as_text(raw: object, where: str) -> str:
    """Text, which YAML makes a number of where it looks like one."""
    if not isinstance(raw, str):
        raise DataError(f"{where}: text is needed, got {raw!r}; put it in quotes")
    return raw


def as_flag(raw: object, where: str) -> bool:
    """True or false."""
    if not isinstance(raw, bool):
        raise DataError(f"{where}: true or false is needed, got {raw!r}")
    return raw


def as_whole(raw: object, where: str, *, least: int) -> int:
    """A whole number that is not below `least`."""
    if isinstance(raw, bool) or not isinstance(raw, int) or raw < least:
        raise DataError(f"{where}: a whole number from {least} on is needed, got {raw!r}")
    return raw


def as_percent(raw: object, where: str) -> float:
    """A number from 0 to 100."""
    if isinstance(raw, bool) or not isinstance(raw, (int, float)) or not 0 <= raw <= 100:
        raise DataError(f"{where}: a percentage between 0 and 100 is needed, got {raw!r}")
    return float(raw)


def as_choice(raw: object, known: Sequence[str], where: str) -> str:
    """One of several words."""
    if raw not in known:
        raise DataError(f"{where}: {raw!r} is not one of {', '.join(known)}")
    return str(raw)


def as_seeds(raw: object) -> tuple[int, ...]:
    """The study's seeds, each once."""
    given = [as_whole(seed, "seeds", least=0) for seed in as_list(raw, "seeds")]
    if not given:
        raise DataError("seeds: at least one is needed")
    if len(set(given)) != len(given):
        raise DataError(f"seeds: {given} repeats one")
    return tuple(given)


def as_flags(raw: object, where: str, *, reserved: Mapping[str, str]) -> tuple[str, ...]:
    """`{max-tokens: 2048, share-all-embeddings: true}` as command line arguments."""
    arguments: list[str] = []
    for key, value in as_mapping(raw, where).items():
        if key in reserved:
            raise DataError(f"{where}.{key}: not to be set here, it comes from {reserved[key]}")
        if not re.fullmatch(r"[a-zA-Z][a-zA-Z0-9-]*", key):
            raise DataError(f"{where}.{key}: write it as on the command line, without dashes")
        if value is True:
            arguments.append(f"--{key}")
        elif value is False or value is None:
            continue
        elif isinstance(value, (str, int, float)):
            arguments += [f"--{key}", str(value)]
        else:
            raise DataError(f"{where}.{key}: a text, a number, true or false is needed")
    return tuple(arguments)


def as_resources(
    raw: object, *, defaults: Mapping[str, Mapping[str, int]]
) -> dict[str, dict[str, int]]:
    """What each rule's jobs ask of a scheduler: the defaults, changed as the file says."""
    given = as_mapping(raw, "resources")
    require_known(given, tuple(defaults), where="resources.")
    merged = {rule: dict(values) for rule, values in defaults.items()}
    for rule, values in given.items():
        changes = as_mapping(values, f"resources.{rule}")
        require_known(changes, RESOURCE_KEYS, where=f"resources.{rule}.")
        for key, value in changes.items():
            least = 0 if key == "gpu" else 1
            merged[rule][key] = as_whole(value, f"resources.{rule}.{key}", least=least)
    return merged


def as_paper(raw: object, *, table: Callable[[str], object]) -> tuple[str, ...]:
    """Names of the paper's tables, each of which `table` finds."""
    names = [as_text(name, "paper") for name in as_list(raw, "paper")]
    for name in names:
        try:
            table(name)
        except UsageError as problem:
            raise DataError(str(problem)) from None
    return tuple(names)
