"""The registry of methods.

A distribution adds a method by an entry point of the group ``headprune.methods`` that names a
``Method``; a program, by ``register``. Every registered score is a method too: the one that keeps
the units with the best scores.
"""

from __future__ import annotations

from collections.abc import Mapping

from headprune.errors import UsageError
from headprune.methods.method import Method
from headprune.registry import Registry
from headprune.scores.names import all_scores

GROUP = "headprune.methods"

METHODS: Registry[Method] = Registry("method", builtin="headprune.methods.builtin", group=GROUP)


def register(method: Method) -> Method:
    """Make a method known by its name.

    Raises:
        UsageError: another method has that name.
    """
    return METHODS.register(method)


def registered() -> Mapping[str, Method]:
    """All methods by name, except those that rank units by a score."""
    return METHODS.registered()


def method_named(name: str) -> Method:
    """Look up a method by its name.

    The name of a score gives the method that keeps the units that it holds most important
    (``taylor``), and with ``-important-first`` the one that prunes them.

    Raises:
        UsageError: there is no such method or score.
    """
    known = registered()
    if name in known:
        return known[name]
    if name in all_scores():
        from headprune.methods.by_score import ByScore

        return ByScore(name)
    from headprune.methods.adversarial import IMPORTANT_FIRST, Adversarial

    score = name.removesuffix(IMPORTANT_FIRST)
    if score in all_scores() and score != "random":
        return Adversarial.of(score)
    names = dict.fromkeys((*all_scores(), *known))
    raise UsageError(
        f"there is no score or method {name!r}; there are {', '.join(names)}, and SCORE"
        f"{IMPORTANT_FIRST}, which prunes what a score holds most important"
    )
