"""Entries of transformers' Auto classes that are made when they are first read.

An entry of a model class has to import the family's model code. An Auto class keeps the entries
that were registered with it in a dict; this one replaces it.
"""

from __future__ import annotations

from collections import UserDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class _Deferred:
    make: Callable[[], Any]


class LazyEntries(UserDict[Any, Any]):
    """A dict with values that are made when they are first read.

    >>> entries = LazyEntries()
    >>> entries.defer("bert", lambda: "HeadPrunedBertModel")
    >>> "bert" in entries, entries["bert"]
    (True, 'HeadPrunedBertModel')
    """

    def defer(self, key: Any, make: Callable[[], Any]) -> None:
        """Set a value that ``make`` makes; it has to return the same one if called twice."""
        self.data[key] = _Deferred(make)

    def __getitem__(self, key: Any) -> Any:
        """The value, made now if it was deferred."""
        value = self.data[key]
        if isinstance(value, _Deferred):
            value = self.data[key] = value.make()
        return value


def entries_of(mapping: Any) -> LazyEntries:
    """The registered entries of an Auto class's mapping, which can be deferred from now on."""
    if not isinstance(mapping._extra_content, LazyEntries):
        mapping._extra_content = LazyEntries(mapping._extra_content)
    entries: LazyEntries = mapping._extra_content
    return entries
