"""Roles of heads (Voita et al. 2019): the share of queries with their largest attention weight on a
certain key.

- previous, same, next: the token one position before the query, at it, one after it
  (self-attention only).
- rare: the token of the keys' sentence that is rarest in all the data (not in the decoder's
  self-attention, where most queries do not see it).
- separator: a token that stands for no text.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable

import torch
from torch import Tensor

_OFFSETS = {"previous": -1, "same": 0, "next": 1}


def roles_of(component: str) -> tuple[str, ...]:
    """The roles that make sense for heads of a component."""
    return {
        "ES": (*_OFFSETS, "rare", "separator"),
        "ED": ("rare", "separator"),
        "DS": ("previous", "same", "separator"),  # no token attends to a later one
    }[component]


Rarity = Callable[[Tensor], Tensor]
"""From token numbers (B x S, -1 padding) to how often each is in the data."""


def rarity_of(sentences: Iterable[Tensor], *, special: frozenset[int]) -> Rarity:
    """Counts of tokens in the sentences, B x S each; separators and padding count as frequent.

    Args:
        sentences: token numbers, -1 where there is padding.
        special: tokens that stand for no text.
    """
    counts: Counter[int] = Counter()
    for tokens in sentences:
        counts.update(tokens.flatten().tolist())
    most = max(counts.values(), default=0) + 1
    table = torch.zeros(max((*counts, *special, 0)) + 1, dtype=torch.long)
    for token, count in counts.items():
        if token >= 0:
            table[token] = count
    table[sorted(special)] = most

    def count_of(tokens: Tensor) -> Tensor:
        known = table.to(tokens.device)[tokens.clamp(min=0)]
        return known.masked_fill(tokens < 0, most + 1)

    return count_of


def roles(
    weights: Tensor,
    keys: Tensor,
    separators: Tensor,
    *,
    component: str,
    rarity: Rarity | None,
) -> dict[str, Tensor]:
    """Check, for each role, if a query's largest weight is on the role's key: B x H' x T, 0 or 1.

    If several weights are equally large, the first counts. Roles that do not apply to the component
    are left out.

    Args:
        weights: B x H' x T x S.
        keys: B x S, their token numbers, -1 where there is padding.
        separators: B x S, the keys that stand for no text.
        component: the component of these weights.
        rarity: the number of occurrences of each token in the data.
    """
    largest = weights.argmax(-1)  # B x H' x T
    component_roles = roles_of(component)
    is_largest: dict[str, Tensor] = {}
    positions = torch.arange(weights.size(2), device=weights.device)  # T
    for role, offset in _OFFSETS.items():
        if role in component_roles:
            is_largest[role] = (largest == positions + offset).float()
    if rarity is not None and "rare" in component_roles:
        rarest = rarity(keys).argmin(-1)  # B
        is_largest["rare"] = (largest == rarest[:, None, None]).float()
    by_head = separators[:, None, :].expand(-1, weights.size(1), -1)  # B x H' x S
    is_largest["separator"] = by_head.gather(2, largest).float()
    return is_largest
