"""Classes that stand in for modules of transformers: a mixin's forward pass, all else as it was.

They are made on demand, so that only the model code in use is imported.

A copy of this file is stored with each pruned model for ``modeling_headpruned``, so it must not
import headprune.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Mapping
from typing import Any, ClassVar, SupportsIndex

from torch import nn

_TRANSFORMERS = "transformers.models."


class StandIn:
    """The part of a stand-in's class that reads arguments, and copies and pickles it.

    Attributes:
        argument_names: the names of the stock forward pass's arguments, in their order.
    """

    argument_names: ClassVar[tuple[str, ...]] = ()

    def named(self, inputs: tuple[Any, ...], options: dict[str, Any]) -> dict[str, Any]:
        """The arguments of a call by name, with ``hidden_states`` as the name of the first."""
        first, *others = self.argument_names
        given = {**dict(zip((first, *others), inputs, strict=False)), **options}
        return {"hidden_states": given.get(first), **given}

    def __reduce_ex__(self, protocol: SupportsIndex) -> Any:
        """Pickle without the class itself, which another process may not have made yet."""
        reduced: Any = super().__reduce_ex__(protocol)
        return _without_state, (*_mixins(type(self)), stock_of(type(self))), *reduced[2:]


def cache_in(given: Mapping[str, Any]) -> Any:
    """The key-value cache among the arguments of a call; None without one."""
    # Its name since transformers 5.24, and before.
    return given.get("cache", given.get("past_key_values"))


def stand_in(mixin: Any, stock: Any) -> Any:
    """The subclass of a class of modules whose forward pass is that of a mixin."""
    return _stand_in(mixin, stock)


@functools.cache
def _stand_in(mixin: Any, stock: Any) -> type:
    names = (
        getattr(stock, "argument_names", None)
        or tuple(inspect.signature(stock.forward).parameters)[1:]
    )
    namespace = {"__module__": __name__, "argument_names": names}
    return type(f"{mixin.__name__}{stock.__name__}", (mixin, stock), namespace)


def stock_of(kind: type) -> type:
    """The class that a class stands in for; ``kind`` itself if it is no stand-in."""
    while issubclass(kind, StandIn):
        kind = kind.__bases__[-1]
    return kind


def is_stock(module: nn.Module) -> bool:
    """Check that a module's class is one of transformers, or stands in for one."""
    return stock_of(type(module)).__module__.startswith(_TRANSFORMERS)


def _mixins(kind: type) -> list[type[StandIn]]:
    """The mixins of a stand-in's class, the outermost last."""
    mixins: list[type[StandIn]] = []
    while issubclass(kind, StandIn):
        mixins.insert(0, kind.__bases__[0])
        kind = kind.__bases__[-1]
    return mixins


def _without_state(*kinds: Any) -> Any:
    *mixins, kind = kinds
    for mixin in mixins:
        kind = stand_in(mixin, kind)
    return kind.__new__(kind)
