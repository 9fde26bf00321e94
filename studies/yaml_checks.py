"""Checks of the values in a study's YAML file; each names the key that is wrong."""

from __future__ import annotations

import re
import reprlib
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from headprune import DataError, UsageError
from studies.plugin import ROOT

_MAX_BYTES = 256 * 1024
_MAX_DEPTH = 50
_MAX_NODES = 20_000
"""The largest number of nodes of a file, an alias counted as the nodes that it stands for."""
_MAX_BITS = 63


def read_yaml(path: Path) -> Any:
    """Read the value in a YAML file.

    Raises:
        DataError: the file cannot be read, is not valid YAML or has a duplicate key; or it is too
            long, too deeply nested, or too large after its aliases are replaced.
    """
    try:
        with path.open("rb") as file:
            content = file.read(_MAX_BYTES + 1)
        if len(content) > _MAX_BYTES:
            raise DataError(f"{path}: longer than {_MAX_BYTES // 1024} KiB, which no study is")
        text = content.decode("utf-8")
        _require_small(text)
        return yaml.load(text, Loader=_StrictLoader)
    except OSError as problem:
        raise DataError(f"{path}: cannot be read: {problem.strerror}") from problem
    except UnicodeDecodeError as problem:
        raise DataError(f"{path}: not UTF-8 text") from problem
    # PyYAML raises ValueError for dates and numbers that do not exist.
    except (yaml.YAMLError, ValueError, TypeError) as problem:
        raise DataError(f"{path}: not valid YAML: {' '.join(str(problem).split())}") from problem


def _require_small(text: str) -> None:
    """Raise a YAMLError if the text is nested too deeply, or too large with aliases expanded."""
    sizes: dict[str, int] = {}
    # For each open list or mapping its anchor and the number of nodes so far; first the document.
    opened: list[tuple[str | None, int]] = [(None, 0)]

    def add(count: int) -> None:
        anchor, nodes = opened[-1]
        if nodes + count > _MAX_NODES:
            raise yaml.YAMLError(f"more than {_MAX_NODES:,} values, aliases replaced")
        opened[-1] = (anchor, nodes + count)

    for event in yaml.parse(text, Loader=yaml.SafeLoader):
        if isinstance(event, yaml.CollectionStartEvent):
            opened.append((event.anchor, 1))
            if len(opened) > _MAX_DEPTH:
                line = event.start_mark.line + 1
                raise yaml.YAMLError(f"nested more than {_MAX_DEPTH} deep (line {line})")
        elif isinstance(event, yaml.CollectionEndEvent):
            anchor, nodes = opened.pop()
            if anchor is not None:
                sizes[anchor] = nodes
            add(nodes)
        elif isinstance(event, yaml.AliasEvent):
            add(sizes.get(event.anchor, 1))
        elif isinstance(event, yaml.ScalarEvent):
            add(1)


class _StrictLoader(yaml.SafeLoader):
    """YAML loader that refuses duplicate keys; PyYAML silently drops the first one.

    It also refuses keys other than text and numbers, whole numbers of more than 63 bits, and
    characters that are not allowed in command lines.
    """


def _mapping_without_repeats(loader: yaml.SafeLoader, node: yaml.MappingNode) -> dict[Any, Any]:
    seen: set[Any] = set()
    for key_node, _ in node.value:
        if not isinstance(key_node, yaml.ScalarNode):
            raise yaml.YAMLError(f"a list or a mapping as a key (line {_line(key_node)})")
        key = loader.construct_object(key_node, deep=True)
        if key in seen:
            raise yaml.YAMLError(f"key {shown(key)} is given twice (line {_line(key_node)})")
        seen.add(key)
    mapping: dict[Any, Any] = loader.construct_mapping(node, deep=True)
    return mapping


def _bounded_whole(loader: yaml.SafeLoader, node: yaml.ScalarNode) -> int:
    # Python converts long decimal numbers slowly, or not at all.
    number: int = loader.construct_yaml_int(node) if len(node.value) < 100 else 1 << _MAX_BITS
    if number.bit_length() > _MAX_BITS:
        raise yaml.YAMLError(f"a number that is too large (line {_line(node)})")
    return number


def _encodable_text(loader: yaml.SafeLoader, node: yaml.ScalarNode) -> str:
    text: str = loader.construct_yaml_str(node)
    if "\0" in text or any("\ud800" <= c <= "\udfff" for c in text):
        raise yaml.YAMLError(f"a character that no program can be given (line {_line(node)})")
    return text


def _line(node: yaml.Node) -> int:
    line: int = node.start_mark.line
    return line + 1


_StrictLoader.add_constructor(
    yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, _mapping_without_repeats
)
_StrictLoader.add_constructor("tag:yaml.org,2002:int", _bounded_whole)
_StrictLoader.add_constructor("tag:yaml.org,2002:str", _encodable_text)

_shortened = reprlib.Repr()
_shortened.maxstring = _shortened.maxother = 80


def shown(value: object) -> str:
    """The representation of a value in messages, shortened if it is long."""
    return _shortened.repr(value)


def fill_in(raw: object, *, required: Sequence[str], defaults: Mapping[str, Any]) -> dict[str, Any]:
    """Check the keys of the file, and add the defaults of missing keys."""
    given = as_mapping(raw, "the file")
    # `extends` was read before; it is named in the message.
    require_known(given, (*required, *defaults, "extends"), where="")
    missing = [key for key in required if key not in given]
    if missing:
        raise DataError(f"missing key: {', '.join(missing)}")
    return {**defaults, **given}


def study_name(raw: object, where: str = "name") -> str:
    """Check the name of a study or a table, which also becomes the name of a folder."""
    name = as_text(raw, where)
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", name):
        folder = "the run folder" if where == "name" else "a folder"
        raise DataError(
            f"{where}: {shown(name)} names {folder}: letters, digits, '.', '_', '-' only"
        )
    return name


def require_known(given: Mapping[str, Any], known: Sequence[str], *, where: str) -> None:
    """Refuse keys that are not known."""
    for key in given:
        if key not in known:
            raise DataError(f"unknown key: {where}{key[:80]}; known here: {', '.join(known)}")


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
    """Text on one line; YAML reads unquoted text that looks like a number as a number."""
    if not isinstance(raw, str):
        raise DataError(f"{where}: text is needed, got {shown(raw)}; put it in quotes")
    if any(unicodedata.category(character) == "Cc" for character in raw):
        raise DataError(f"{where}: {shown(raw)} is not one line of text")
    return raw


def as_title(raw: object, where: str) -> str:
    """Text that may stand on several lines of the file."""
    return as_text(" ".join(raw.split()) if isinstance(raw, str) else raw, where)


def places_of(name: str) -> tuple[Path, Path]:
    """The places of a file that a study names: from the working folder, and from the checkout."""
    return Path(name), ROOT / name


def as_file(value: Any, where: str) -> Path:
    """A file that exists, named from the working folder or from the checkout; its absolute path."""
    name = as_text(value, where)
    for path in places_of(name):
        if path.is_file():
            return path.resolve()
    raise DataError(f"{where}: there is no file {name}")


def as_flag(raw: object, where: str) -> bool:
    """True or false."""
    if not isinstance(raw, bool):
        raise DataError(f"{where}: true or false is needed, got {shown(raw)}")
    return raw


def as_whole(raw: object, where: str, *, least: int, most: int | None = None) -> int:
    """A whole number that is not below `least`, nor above `most`."""
    if isinstance(raw, bool) or not isinstance(raw, int) or raw < least:
        raise DataError(f"{where}: a whole number from {least} on is needed, got {shown(raw)}")
    if most is not None and raw > most:
        raise DataError(f"{where}: a whole number up to {most} is needed, got {raw}")
    return raw


def as_percent(raw: object, where: str) -> float:
    """A number from 0 to 100."""
    if isinstance(raw, bool) or not isinstance(raw, (int, float)) or not 0 <= raw <= 100:
        raise DataError(f"{where}: a percentage between 0 and 100 is needed, got {shown(raw)}")
    return float(raw)


def as_choice(raw: object, known: Sequence[str], where: str) -> str:
    """One of several words."""
    if raw not in known:
        raise DataError(f"{where}: {shown(raw)} is not one of {', '.join(known)}")
    return str(raw)


def as_seed(raw: object, where: str) -> int:
    """Check a seed, which must be valid for every random generator."""
    return as_whole(raw, where, least=0, most=2**32 - 1)


def as_seeds(raw: object) -> tuple[int, ...]:
    """The study's seeds, each once."""
    given = [as_seed(seed, "seeds") for seed in as_list(raw, "seeds")]
    if not given:
        raise DataError("seeds: at least one is needed")
    if len(set(given)) != len(given):
        raise DataError(f"seeds: {shown(given)} repeats one")
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


def as_paper(raw: object, *, table: Callable[[str], object]) -> tuple[str, ...]:
    """Check a list of names of the paper's tables; `table` raises a UsageError for unknown ones."""
    names = [as_text(name, "paper") for name in as_list(raw, "paper")]
    for name in names:
        try:
            table(name)
        except UsageError as problem:
            raise DataError(str(problem)) from None
    return tuple(names)
