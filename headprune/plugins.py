"""Plugins: objects that installed packages register by entry points.

A package's own import may take seconds (fairseq, transformers), a command's help must not. So the
module that an entry point names is loaded by itself, without its package: it has to import the
package's other modules inside functions only.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from functools import cache, reduce
from importlib import import_module
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint


@cache
def entry_points(group: str) -> tuple[EntryPoint, ...]:
    """The entry points of a group by name; the first on the path if names are equal."""
    by_name: dict[str, EntryPoint] = {}
    for entry_point in _all_entry_points().select(group=group):
        by_name.setdefault(entry_point.name, entry_point)
    return tuple(by_name[name] for name in sorted(by_name))


@cache
def _all_entry_points() -> Any:  # of other types in Python 3.11 and 3.12
    """The entry points of all groups, read once: that takes time for each installed package."""
    from importlib import metadata  # takes longer than all else that a plan needs

    return metadata.entry_points()


def load(entry_point: EntryPoint) -> Any:
    """The object that an entry point names.

    Raises:
        ImportError: no such module.
        AttributeError: no such object in it.
    """
    attributes = (name for name in entry_point.attr.split(".") if name)
    return reduce(getattr, attributes, load_module(entry_point.module))


@cache
def load_known(group: str) -> Mapping[str, Any]:
    """The objects of a group by name; standard error names those that cannot be loaded."""
    loaded = {}
    for entry_point in entry_points(group):
        try:
            loaded[entry_point.name] = load(entry_point)
        except Exception as error:  # whatever a foreign module raises
            reason = " ".join(str(error).split()) or type(error).__name__
            print(
                f"warning: {entry_point.name} of {group} is left out: {entry_point.value} cannot "
                f"be loaded ({reason})",
                file=sys.stderr,
            )
    return loaded


def load_module(name: str) -> ModuleType:
    """The module of this name, without importing the packages that it lies in.

    Raises:
        ImportError: no such module.
    """
    package, *parts = name.split(".")
    if name in sys.modules or package in sys.modules or not parts:
        return import_module(name)
    spec = find_spec(package)
    for folder in (spec and spec.submodule_search_locations) or ():
        path = Path(folder, *parts[:-1], f"{parts[-1]}.py")
        if path.is_file():
            return _execute(name, path)
    return import_module(name)


def _execute(name: str, path: Path) -> ModuleType:
    spec = spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None, path  # the name ends in .py
    module = sys.modules[name] = module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module
