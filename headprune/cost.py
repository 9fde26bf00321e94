"""What heads cost: parameters, and floating-point operations of one forward pass."""

from __future__ import annotations

from dataclasses import dataclass

from headprune.plan import HeadPlan


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """Widths of a Transformer; the defaults are Transformer-Base (Vaswani et al. 2017).

    Attributes:
        encoder_width, decoder_width: C, of embeddings and layers.
        encoder_feed_forward, decoder_feed_forward: inner widths.
        encoder_head_dim, decoder_head_dim: d, the width of one head.
        vocabulary: of the output projection; 0 for a model without one.
    """

    encoder_width: int = 512
    decoder_width: int = 512
    encoder_feed_forward: int = 2048
    decoder_feed_forward: int = 2048
    encoder_head_dim: int = 64
    decoder_head_dim: int = 64
    vocabulary: int = 32000


def head_parameters(component: str, sizes: Sizes) -> int:
    """Parameters of one head: its rows of W_q, W_k, W_v with biases, its columns of W_o."""
    query, key, d = _widths(component, sizes)
    return d * (query + 2 * key + query) + 3 * d


def attention_parameters(plan: HeadPlan, sizes: Sizes) -> int:
    """Parameters of all attention that ``plan`` leaves, the output projections' biases included.

    An attention without heads keeps that bias alone.
    """
    return sum(
        sum(counts) * head_parameters(component, sizes) + len(counts) * _widths(component, sizes)[0]
        for component, counts in plan.counts.items()
    )


def pruned_parameters(plan: HeadPlan, sizes: Sizes) -> int:
    """How many parameters the model loses by ``plan``; exact for any model of these widths."""
    return attention_parameters(HeadPlan.full(plan.heads), sizes) - attention_parameters(
        plan, sizes
    )


def forward_flops(
    plan: HeadPlan, sizes: Sizes, *, source: int = 30, target: int = 30, beam: int = 1
) -> int:
    """Floating-point operations of one forward pass over a sentence pair, teacher-forced.

    Counts the matrix products, a multiplication and an addition as two: projections, scores and
    weighted sums of attention, feed-forward layers and the output projection. Embeddings,
    softmax and normalisation are left out, as is usual. The ratio of two plans is thus what the
    products saved give alone: softmax and masks, over B x H x T x T, shrink with the heads as well,
    so that measured speed can lie a little above it.

    Args:
        source, target: lengths in tokens. A plan without decoder components uses ``source`` only.
        beam: how many targets the decoder works on, of one source that is encoded once.
    """
    written = target * beam
    # Positions that ask, positions that are asked, and how many of these each one sees.
    lengths = {
        "ES": (source, source, source),
        "ED": (written, source, source),
        "DS": (written, written, target),
    }
    total = 0
    for component, counts in plan.counts.items():
        query, key, d = _widths(component, sizes)
        t, s, seen = lengths[component]
        one_head = t * query * d + 2 * s * key * d + 2 * t * seen * d + t * d * query
        total += sum(counts) * one_head
    if "ES" in plan.counts:
        layers = len(plan.counts["ES"])
        total += 2 * layers * source * sizes.encoder_width * sizes.encoder_feed_forward
    if "DS" in plan.counts:
        layers = len(plan.counts["DS"])
        total += 2 * layers * written * sizes.decoder_width * sizes.decoder_feed_forward
        total += written * sizes.decoder_width * sizes.vocabulary
    return 2 * total


def _widths(component: str, sizes: Sizes) -> tuple[int, int, int]:
    """Width of the queries (and of the output), width of the keys, width of one head."""
    if component == "ES":
        return sizes.encoder_width, sizes.encoder_width, sizes.encoder_head_dim
    key = sizes.encoder_width if component == "ED" else sizes.decoder_width
    return sizes.decoder_width, key, sizes.decoder_head_dim
