"""Heads kept at random: the baseline that every notion of importance has to beat."""

from __future__ import annotations

import hashlib

from headprune.errors import UsageError
from headprune.plan import HeadPlan, Shape, is_whole
from headprune.select.ranking import Head, Keep, keep_first


def at_random(
    shape: Shape,
    *,
    seed: int,
    percent: float | None = None,
    keep: Keep | None = None,
    at_least: int = 0,
    within: HeadPlan | None = None,
) -> HeadPlan:
    """Choose heads uniformly at random (Budhraja et al. 2020, section 3).

    Give one of ``percent`` and ``keep``. Every head draws a lot from the seed and its own place
    in the model, and the heads with the smallest lots stay; so the same seed gives the same plan
    on every machine and version, and a higher ``percent`` (or a smaller ``keep`` of the same kind)
    with one seed only takes away further heads.
    Plans of different seeds are independent.

    Args:
        seed: the draw.
        shape, percent, keep, at_least, within: see ``keep_first``.

    Raises:
        UsageError: what is asked for cannot be had; the message says where and why.
    """
    if not is_whole(seed):  # 1.0 and "1" would draw other lots than 1
        raise UsageError(f"seed is {seed!r}, it has to be a whole number")
    return keep_first(
        shape,
        order=lambda head: lot(seed, head),
        percent=percent,
        keep=keep,
        at_least=at_least,
        within=within,
    )


def lot(seed: int, head: Head) -> int:
    """The head's lot: 256 bits that depend on nothing but the seed and the head's place."""
    component, layer, number = head
    text = f"headprune:{seed}:{component}:{layer}:{number}"
    return int.from_bytes(hashlib.sha256(text.encode("ascii")).digest(), "big")
