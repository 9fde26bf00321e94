"""Scores from attention weights, accumulated batch by batch to save memory.

All are means over queries that are real tokens; weights on padding are zero, and keys that are
padding do not count.

- confidence: the largest weight on a token that stands for text (Voita et al. 2019, section 4:
  "excluding the end of sentence symbol").
- entropy: of the weights, in nats.
- sparsity: share of the keys with a weight below the threshold.
- hoyer: Hoyer's sparsity of the weights (2004), 0 where they are even to 1 where one has all.
- distribution: Kullback-Leibler divergence, in nats, of a head's weights from the mean of its
  layer's heads; redundant heads have little.

Where several layers share one attention, its scores are means over their queries too.
Where a layer's attention is local (ModernBERT), keys out of its reach count as keys without weight.
Where several query heads share one head of keys and values, the unit is their group, and its score
is the mean of theirs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from headprune.components import HEADS
from headprune.errors import DataError
from headprune.model import Batch, Batches, RunnableModel
from headprune.scores.head_scores import Values
from headprune.scores.names import ROLES, STATISTICS
from headprune.scores.registry import Computed, Scoring
from headprune.scores.roles import Rarity, rarity_of, roles, roles_of
from headprune.scores.units import parts_of
from headprune.scores.values import means, no_sums

THRESHOLD = 0.01
"""Weights below it count as none for ``sparsity``."""


def compute(scoring: Scoring, names: Sequence[str]) -> Mapping[str, Computed]:
    """Compute the requested statistics and roles in one pass over the data."""
    model = scoring.model
    rarity = None
    if "rare" in names:
        # Counts over what is read by the first component's queries: the source's tokens.
        component = "ES" if "ES" in model.sublayers else next(iter(model.sublayers))
        rarity = rarity_of(
            (model.keys(component, batch) for batch in scoring.batches("counting tokens")),
            special=model.special_tokens,
        )
    values = attention_statistics(
        model, scoring.batches("attention"), rarity=rarity, components=scoring.components
    )
    return {name: Computed(values=values[name]) for name in names}


def attention_statistics(
    scored: RunnableModel,
    batches: Batches,
    *,
    rarity: Rarity | None = None,
    components: Sequence[str] = HEADS,
) -> dict[str, Values]:
    """All of ``STATISTICS``, and of ``ROLES``, in one pass over the data.

    Args:
        scored: the model; it is evaluated without dropout and left as it was.
        batches: its inputs. How the data are cut into batches does not matter.
        rarity: counts of the tokens, for the role ``rare``, which is left out without them.
        components: of attention; those whose heads are scored.

    Raises:
        DataError: no data.
    """
    attentions = parts_of(scored, [name for name in components if name in HEADS])
    kinds = (*STATISTICS, *(role for role in ROLES if rarity or role != "rare"))
    sums = {kind: no_sums(attentions) for kind in kinds}
    counted = dict.fromkeys(attentions, 0)
    # The queries of each attention; those of one that serves several layers count for each.
    seen = {name: [0] * len(layers) for name, layers in attentions.items()}
    # Roles of heads of whom no token attends to a later one are those of a decoder.
    kind_of = {name: "DS" if scored.is_causal(name) else name for name in attentions}
    special = torch.tensor(sorted(scored.special_tokens))
    batch: Batch = None

    def see(name: str, layer: int, weights: Tensor) -> None:
        if name not in attentions:
            return
        queries = scored.queries(name, batch)  # B x T
        keys = scored.keys(name, batch)  # B x S
        real = (keys >= 0)[:, None, :].expand(-1, queries.size(1), -1)  # B x T x S
        if scored.is_causal(name):  # a token attends to those before it
            real = real.tril()
        weights = weights.float()
        attention = scored.sublayers[name][layer]
        grouped = weights.size(1) // len(attention.present)  # query heads of one unit, 1 or more
        kept = [
            place * grouped + query
            for place, head in enumerate(attention.present)
            if head in attention.kept
            for query in range(grouped)
        ]
        separators = torch.isin(keys, special.to(keys.device))  # B x S
        of_batch = statistics(weights, real, separators, kept=kept)
        of_batch |= roles(weights, keys, separators, component=kind_of[name], rarity=rarity)
        seen[name][layer] += int(queries.sum())
        for kind, values in of_batch.items():  # B x H'q x T
            by_unit = values.unflatten(1, (-1, grouped)).mean(2)  # B x H' x T
            sums[kind][name][layer] += (by_unit * queries.unsqueeze(1)).sum((0, 2)).double().cpu()

    with scored.evaluating(), scored.attending(), torch.no_grad():
        for batch in batches:
            scored.attend(batch, see)
            for name in attentions:
                counted[name] += int(scored.queries(name, batch).sum())
    if not any(counted.values()):
        raise DataError("no example to compute scores on")
    shares = {
        name: [counted[name] / max(number, 1) for number in numbers]
        for name, numbers in seen.items()
    }
    return {
        kind: means(
            attentions,
            {
                name: [row * share for row, share in zip(rows, shares[name], strict=True)]
                for name, rows in total.items()
                if kind in (*STATISTICS, *roles_of(kind_of[name]))
            },
            counted=counted,
        )
        for kind, total in sums.items()
    }


def statistics(
    weights: Tensor, real: Tensor, separators: Tensor, *, kept: Sequence[int]
) -> dict[str, Tensor]:
    """Each of ``STATISTICS`` for each query, B x H' x T.

    Args:
        weights: B x H' x T x S.
        real: B x T x S, the keys that a query may attend to.
        separators: B x S, the keys that stand for no text.
        kept: places of the heads that count for the layer's mean: masked ones do not.
    """
    real = real.unsqueeze(1)  # B x 1 x T x S
    number = real.sum(-1).clamp(min=1)  # B x 1 x T
    mean = weights[:, list(kept)].mean(1, keepdim=True)  # B x 1 x T x S
    length = weights.square().sum(-1).sqrt()  # the weights' l2 norm; their l1 norm is 1
    root = number.sqrt()
    return {
        "confidence": weights.masked_fill(separators[:, None, None], 0).amax(-1),
        "entropy": -torch.special.xlogy(weights, weights).sum(-1),
        "sparsity": ((weights < THRESHOLD) & real).sum(-1) / number,
        "hoyer": torch.where(number > 1, (root - 1 / length) / (root - 1).clamp(min=1e-6), 1.0),
        "distribution": (
            torch.special.xlogy(weights, weights) - torch.special.xlogy(weights, mean)
        ).sum(-1),
    }
