"""Registries: objects of one kind by name, from headprune itself and from other distributions."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Generic, Protocol, TypeVar

from headprune import plugins
from headprune.errors import UsageError


class _Named(Protocol):
    @property
    def name(self) -> str: ...


_Entry = TypeVar("_Entry", bound=_Named)


class Registry(Generic[_Entry]):
    """The objects of one kind, which are loaded when they are first asked for.

    Attributes:
        entries: those that are loaded, by name, in the order of their registration.
    """

    def __init__(
        self,
        kind: str,
        *,
        builtin: str,
        group: str,
        check: Callable[[_Entry], None] = lambda entry: None,
    ) -> None:
        """Make a registry.

        Args:
            kind: the kind of the objects, for messages.
            builtin: the module that registers those of headprune.
            group: the group of entry points that name those of other distributions.
            check: function that raises a UsageError for an entry that cannot be registered.
        """
        self.entries: dict[str, _Entry] = {}
        self._kind, self._builtin, self._group, self._check = kind, builtin, group, check
        self._is_loaded = False

    def register(self, entry: _Entry) -> _Entry:
        """Make an object known by its name.

        Raises:
            UsageError: another object has that name, or the object is invalid.
        """
        self._check(entry)
        if self.entries.get(entry.name, entry) != entry:
            raise UsageError(f"there are two {self._kind}s called {entry.name}")
        self.entries[entry.name] = entry
        return entry

    def registered(self) -> Mapping[str, _Entry]:
        """All objects by name, in the order of their registration."""
        if not self._is_loaded:
            importlib.import_module(self._builtin)
            for entry in plugins.load_known(self._group).values():
                self.register(entry)
            self._is_loaded = True
        return MappingProxyType(self.entries)
