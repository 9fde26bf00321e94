"""The scores that come with headprune, registered."""

from __future__ import annotations

from headprune.components import COMPONENTS, HEADS, LAYERS, NEURONS
from headprune.scores.registry import ABLATION, Need, Score, register

_SUBLAYERS = (*HEADS, *NEURONS)
_LABELS = frozenset({Need.DATA, Need.LABELS})
_WEIGHTS = frozenset({Need.DATA, Need.ATTENTION})
_FULL_LENGTH = "the mean over an example's tokens before the absolute value"

for _name, _meaning in {
    "gradient": "mean over examples of |d loss / d gate|, each layer divided by its l2 norm "
    "(Michel et al. 2019)",
    "gradient-raw": "the same, undivided",
    "taylor": "mean over tokens of |output x gradient| (the code of Michel et al.)",
    "taylor-molchanov": f"{_FULL_LENGTH} (Molchanov et al. 2017)",
}.items():
    register(
        Score(
            name=_name,
            meaning=_meaning,
            compute="headprune.scores.gradients:compute",
            needs=_LABELS | {Need.GRADIENTS},
            # A layer is one unit: divided by the norm over its units, all layers would be 1.
            components=_SUBLAYERS if _name == "gradient" else COMPONENTS,
            by_default=True,
            normalised=_name == "gradient",
        )
    )

register(
    Score(
        name="fisher",
        meaning="mean over examples of (d loss / d gate)^2 (Kwon et al. 2022)",
        compute="headprune.scores.gradients:compute",
        needs=_LABELS | {Need.GRADIENTS},
        components=COMPONENTS,
    )
)

register(
    Score(
        name="gradient-sublayer",
        meaning="mean over examples of |d loss / d gate| for one gate of all units of a sub-layer, "
        "which have the same number (Prasanna et al. 2020)",
        compute="headprune.scores.gradients:compute",
        needs=_LABELS | {Need.GRADIENTS},
        components=_SUBLAYERS,
    )
)

register(
    Score(
        name="movement",
        meaning="minus weight times gradient, summed over the steps of a fine-tuning (Sanh et al. "
        "2020)",
        compute="headprune.scores.movement:compute",
        needs=_LABELS | {Need.GRADIENTS},
        components=_SUBLAYERS,
    )
)

register(
    Score(
        name="shapley",
        meaning="the head's mean share in the metric, over random orders of pruning (Held and Yang "
        "2023)",
        compute="headprune.scores.shapley:compute",
        needs=_LABELS,
        components=HEADS,
    )
)

for _name, _meaning in {
    "confidence": "the largest weight on a token that is no separator (Voita et al. 2019)",
    "entropy": "of the attention weights, in nats; low numbers are focused heads",
    "sparsity": "the share of weights below 0.01",
    "hoyer": "Hoyer's sparsity of the weights (2004)",
    "distribution": "the divergence from the layer's mean weights",
}.items():
    register(
        Score(
            name=_name,
            meaning=_meaning,
            compute="headprune.scores.attention_statistics:compute",
            keep="low" if _name == "entropy" else "high",
            needs=_WEIGHTS,
            components=HEADS,
            by_default=True,
        )
    )

register(
    Score(
        name="magnitude",
        meaning="the l2 norm of the unit's weights",
        compute="headprune.scores.magnitude:compute",
        components=COMPONENTS,
        by_default=True,
    )
)
register(
    Score(
        name="random",
        meaning="a lot for each unit: the baseline",
        compute="headprune.scores.random_values:compute",
        components=COMPONENTS,
        by_default=True,
    )
)

for _name, _meaning in {
    "ablation": "the metric's drop without the unit, with its significance (Michel et al. 2019)",
    "alone": "its drop when the unit is the only one of its layer",
}.items():
    register(
        Score(
            name=_name,
            meaning=_meaning,
            compute="headprune.scores.ablation:compute",
            # The best head is the one that, alone in its layer, has the smallest drop.
            keep="low" if _name == "alone" else "high",
            needs=_LABELS,
            components=_SUBLAYERS if _name == "alone" else COMPONENTS,
            part=ABLATION,
        )
    )

for _name, (_meaning, _components) in {
    "previous": ("the share of queries that look most at the token before", ("ES", "DS")),
    "same": ("at the query itself", ("ES", "DS")),
    "next": ("at the token after", ("ES",)),  # no token of a decoder attends to a later one
    "rare": ("at the sentence's rarest token (Voita et al. 2019)", ("ES", "ED")),
    "separator": ("at a separator", HEADS),
}.items():
    register(
        Score(
            name=_name,
            meaning=_meaning,
            compute="headprune.scores.attention_statistics:compute",
            needs=_WEIGHTS,
            components=_components,
        )
    )

for _name, _meaning in {
    "layer-contribution": "the similarity of a layer's input and output, by cosine; layers with "
    "low numbers contribute (Sajjad et al. 2020)",
    "layer-output-similarity": "that of the tokens in a layer's output (Goyal et al. 2020)",
}.items():
    register(
        Score(
            name=_name,
            meaning=_meaning,
            compute="headprune.scores.layer_similarity:compute",
            keep="low",
            needs=_LABELS,
            components=LAYERS,
        )
    )
