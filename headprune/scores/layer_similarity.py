"""Scores of whole layers from the similarity of hidden states.

With x_t the hidden state of token t before a layer and y_t the one after it:

    layer-contribution        mean over tokens of cos(x_t, y_t)        (Sajjad et al. 2020)
    layer-output-similarity   mean over pairs of tokens t != t' of an example of cos(y_t, y_t')
                              (Goyal et al. 2020)

A layer that hardly changes its input (a high ``layer-contribution``), or whose tokens are all alike
(a high ``layer-output-similarity``), contributes little and is dropped first. Sajjad et al. compare
the hidden states of [CLS]; here all tokens of the text count, as decoders have no [CLS].
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headprune.errors import DataError
from headprune.model import Batches, RunnableModel
from headprune.scores.head_scores import Values
from headprune.scores.registry import Computed, Scoring
from headprune.scores.units import Parts, WholeLayer, parts_of
from headprune.scores.values import means, no_sums

CONTRIBUTION, OUTPUT_SIMILARITY = "layer-contribution", "layer-output-similarity"


def compute(scoring: Scoring, names: Sequence[str]) -> Mapping[str, Computed]:
    """Compute both scores in one pass over the data."""
    values = layer_similarities(
        scoring.model, scoring.batches("hidden states"), components=scoring.components
    )
    return {name: Computed(values=values[name]) for name in names}


@torch.no_grad()
def layer_similarities(
    scored: RunnableModel, batches: Batches, *, components: Sequence[str]
) -> dict[str, Values]:
    """Score all layers of some components.

    Args:
        scored: the model; it is evaluated without dropout.
        batches: with labels where the model needs them to run.
        components: components of layers; others are not scored.

    Raises:
        DataError: no data.
    """
    parts: Parts = {
        name: layers
        for name, layers in parts_of(scored, components).items()
        if all(isinstance(layer, WholeLayer) for layer in layers)
    }
    contribution, similarity = no_sums(parts), no_sums(parts)
    tokens, examples = dict.fromkeys(parts, 0), dict.fromkeys(parts, 0)
    with scored.evaluating(), _hidden_states(parts) as states:
        for batch in batches:
            states.clear()
            scored.run(batch)
            masks = {name: scored.queries(name, batch) for name in parts}  # B x T
            for (name, layer), (before, after) in states.items():
                x, y = (h.movedim(scored.batch_dim, 0).double() for h in (before, after))
                mask = masks[name].to(x.device)
                cosines = F.cosine_similarity(x, y, dim=-1)  # B x T
                contribution[name][layer] += (cosines * mask).sum().cpu()
                similarity[name][layer] += _pairwise(y, mask).sum().cpu()
            for name, mask in masks.items():
                tokens[name] += int(mask.sum())
                examples[name] += int((mask.sum(1) > 1).sum())
    if not all(tokens.values()):
        raise DataError("no example to compute scores on")
    return {
        CONTRIBUTION: means(parts, contribution, counted=tokens),
        OUTPUT_SIMILARITY: means(parts, similarity, counted=examples),
    }


def _pairwise(y: Tensor, mask: Tensor) -> Tensor:
    """The mean cosine of an example's pairs of tokens, (B,); 0 for an example of one token.

    The sum over all pairs of unit vectors is the squared length of their sum.

    Args:
        y: B x T x C.
        mask: B x T, true for real tokens.
    """
    unit = F.normalize(y, dim=-1) * mask.unsqueeze(-1)
    count = mask.sum(1).to(y.dtype)
    return (unit.sum(1).square().sum(-1) - count) / (count * (count - 1)).clamp(min=1)


@contextmanager
def _hidden_states(parts: Parts) -> Iterator[dict[tuple[str, int], tuple[Tensor, Tensor]]]:
    """Within this context, collect the input and output of each layer that is kept."""
    states: dict[tuple[str, int], tuple[Tensor, Tensor]] = {}

    def record(place: tuple[str, int]) -> Any:
        def hook(
            _: nn.Module, inputs: tuple[Any, ...], options: Mapping[str, Any], output: Any
        ) -> None:
            before: Tensor = inputs[0] if inputs else options["hidden_states"]
            states[place] = before, output if isinstance(output, Tensor) else output[0]

        return hook

    with ExitStack() as hooks:
        for component, layers in parts.items():
            for number, part in enumerate(layers):
                if isinstance(part, WholeLayer) and part.present:
                    handle = part.layer.module.register_forward_hook(
                        record((component, number)), with_kwargs=True
                    )
                    hooks.callback(handle.remove)
        yield states
