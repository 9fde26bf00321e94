"""headprune: prune Transformers (heads, neurons, layers), and measure what that costs.

The package imports neither fairseq nor transformers; their plugins import it. The names below are
imported when they are first used, so that the command's help answers quickly.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from headprune.version import __version__

if TYPE_CHECKING:
    from headprune import select
    from headprune.backends import open_model, open_task_model, score
    from headprune.budget import Budget
    from headprune.components import COMPONENTS
    from headprune.errors import DataError, HeadpruneError, UsageError
    from headprune.origin import Origin
    from headprune.plan import HeadPlan, PruningPlan

__all__ = [
    "COMPONENTS",
    "Budget",
    "DataError",
    "HeadPlan",
    "HeadpruneError",
    "Origin",
    "PruningPlan",
    "UsageError",
    "__version__",
    "open_model",
    "open_task_model",
    "score",
    "select",
]

_MODULES = {
    "backends": ("open_model", "open_task_model", "score"),
    "budget": ("Budget",),
    "components": ("COMPONENTS",),
    "errors": ("DataError", "HeadpruneError", "UsageError"),
    "origin": ("Origin",),
    "plan": ("HeadPlan", "PruningPlan"),
    "select": (),
}
"""The names that each module defines. ``headprune.plan`` and the other modules are names too."""


def __getattr__(name: str) -> Any:
    for module, names in _MODULES.items():
        if name == module:
            return import_module(f"{__name__}.{module}")
        if name in names:
            return getattr(import_module(f"{__name__}.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
