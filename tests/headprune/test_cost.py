"""Parameters and FLOPs, against torch's own modules and its counter."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from headprune import HeadPlan, PruningPlan, select
from headprune.components import HEADS
from headprune.cost import (
    Sizes,
    attention_parameters,
    forward_flops,
    head_parameters,
    pruned_parameters,
)

from .strategies import BASE, BERT, plans, shapes

BERT_SIZES = Sizes(encoder_width=768, encoder_feed_forward=3072, encoder_head_dim=64)
UNEVEN = Sizes(
    encoder_width=6,
    decoder_width=8,
    encoder_feed_forward=10,
    decoder_feed_forward=14,
    encoder_head_dim=3,
    decoder_head_dim=4,
    vocabulary=11,
)


@pytest.mark.parametrize(
    ("component", "sizes", "parameters"),
    [
        ("ES", Sizes(), 4 * 512 * 64 + 3 * 64),
        ("ED", Sizes(), 131_264),
        ("DS", Sizes(), 131_264),
        ("ES", BERT_SIZES, 196_800),
        ("ES", UNEVEN, 4 * 6 * 3 + 9),
        ("ED", UNEVEN, 2 * 8 * 4 + 2 * 6 * 4 + 12),  # keys and values are of the encoder's width
        ("DS", UNEVEN, 4 * 8 * 4 + 12),
    ],
)
def test_parameters_of_a_head(component: str, sizes: Sizes, parameters: int) -> None:
    assert head_parameters(component, sizes) == parameters


def test_all_heads_have_the_parameters_of_torchs_attention() -> None:
    def count(attention: nn.Module) -> int:
        return sum(p.numel() for p in attention.parameters())

    base = count(nn.MultiheadAttention(512, 8))
    assert attention_parameters(HeadPlan.full(BASE), Sizes()) == 18 * base == 18_911_232
    bert = count(nn.MultiheadAttention(768, 12))
    assert attention_parameters(HeadPlan.full(BERT), BERT_SIZES) == 12 * bert == 28_348_416
    uneven = {"ES": (2,), "ED": (2, 2), "DS": (2, 2)}
    assert attention_parameters(HeadPlan.full(uneven), UNEVEN) == (
        count(nn.MultiheadAttention(6, 2))
        + 2 * count(nn.MultiheadAttention(8, 2, kdim=6, vdim=6))
        + 2 * count(nn.MultiheadAttention(8, 2))
    )


@pytest.mark.parametrize(
    ("kept", "parameters"),
    [
        ({"ES": 48, "ED": 48, "DS": 48}, 18_911_232),
        ({"ES": "888444", "ED": "444888", "DS": "888444"}, 108 * 131_264 + 18 * 512),
        ({"ES": "333111", "ED": "111333", "DS": "333111"}, 4_734_720),
        ({"ES": 0, "ED": 0, "DS": 0}, 18 * 512),  # the output projections' biases
    ],
)
def test_parameters_of_plans(kept: dict[str, int | str], parameters: int) -> None:
    plan = select.at_random(BASE, keep=kept, seed=1)
    assert attention_parameters(plan, Sizes()) == parameters
    assert pruned_parameters(plan, Sizes()) == 18_911_232 - parameters


def measured_flops(plan: HeadPlan, sizes: Sizes, *, source: int, target: int) -> int:
    """What torch counts when the matrix products of the model are worked out, layer by layer."""
    e, d = (
        torch.zeros(source, sizes.encoder_width),
        torch.zeros(target, sizes.decoder_width),
    )

    def attend(queries: torch.Tensor, keys: torch.Tensor, heads: int, head_dim: int) -> None:
        inner = heads * head_dim
        q = queries @ torch.zeros(queries.size(1), inner)
        k = keys @ torch.zeros(keys.size(1), inner)
        v = keys @ torch.zeros(keys.size(1), inner)
        for h in range(heads):
            own = slice(h * head_dim, (h + 1) * head_dim)
            (q[:, own] @ k[:, own].T) @ v[:, own]
        q @ torch.zeros(inner, queries.size(1))

    def feed_forward(x: torch.Tensor, inner: int) -> None:
        x @ torch.zeros(x.size(1), inner) @ torch.zeros(inner, x.size(1))

    with FlopCounterMode(display=False) as counter:
        for heads in plan.counts.get("ES", ()):
            attend(e, e, heads, sizes.encoder_head_dim)
            feed_forward(e, sizes.encoder_feed_forward)
        for heads in plan.counts.get("ED", ()):
            attend(d, e, heads, sizes.decoder_head_dim)
        for heads in plan.counts.get("DS", ()):
            attend(d, d, heads, sizes.decoder_head_dim)
            feed_forward(d, sizes.decoder_feed_forward)
        if "DS" in plan.counts:
            d @ torch.zeros(sizes.decoder_width, sizes.vocabulary)
    return int(counter.get_total_flops())


@pytest.mark.parametrize(
    "kept",
    [
        {"ES": [(0, 1), (0, 1)], "ED": [(0, 1)], "DS": [(0, 1)]},
        {"ES": [(1,), ()], "ED": [(0,)], "DS": [()]},
        {"ES": [(0,), (0, 1)]},
        {"DS": [(0,), (1,)]},
        {"ED": [()]},
    ],
    ids=str,
)
def test_flops_are_those_that_torch_counts(kept: dict[str, list[tuple[int, ...]]]) -> None:
    plan = HeadPlan(kept=kept, heads={name: (2,) * len(layers) for name, layers in kept.items()})
    assert forward_flops(plan, UNEVEN, source=5, target=7) == measured_flops(
        plan, UNEVEN, source=5, target=7
    )


@given(shapes(HEADS).flatmap(plans), st.integers(1, 5))
def test_flops_of_a_beam(plan: HeadPlan, beam: int) -> None:
    """The encoder works once, the decoder for each hypothesis, which sees its own words."""
    lengths = {"source": 5, "target": 7}

    def flops(component: str, **more: int) -> int:
        if component not in plan.heads:
            return 0
        part = HeadPlan(
            kept={component: plan.kept[component]}, heads={component: plan.heads[component]}
        )
        return forward_flops(part, UNEVEN, **{**lengths, **more})

    assert forward_flops(plan, UNEVEN, **lengths, beam=beam) == (
        flops("ES") + flops("ED", target=7 * beam) + beam * flops("DS")
    )


def test_flops_of_transformer_base() -> None:
    full = HeadPlan.full(BASE)
    pruned = select.at_random(BASE, percent=75, seed=1)
    assert forward_flops(full, Sizes()) == 3_658_629_120
    assert forward_flops(pruned, Sizes()) == 2_784_399_360
    # Which heads stay makes no difference at equal lengths, only how many.
    assert forward_flops(select.at_random(BASE, percent=75, seed=2), Sizes()) == 2_784_399_360


@given(shapes(HEADS).flatmap(plans))
def test_a_plan_never_costs_more_than_the_full_one(plan: HeadPlan) -> None:
    full = HeadPlan.full(plan.heads)
    lost = pruned_parameters(plan, UNEVEN)
    assert (lost == 0) == plan.is_full
    assert lost >= 0
    assert attention_parameters(plan, UNEVEN) + lost == attention_parameters(full, UNEVEN)
    saved = forward_flops(full, UNEVEN) - forward_flops(plan, UNEVEN)
    assert (saved == 0) == plan.is_full
    assert saved >= 0


def test_parameters_of_layers_and_neurons_are_those_of_torchs_layers() -> None:
    def count(module: nn.Module) -> int:
        return sum(p.numel() for p in module.parameters())

    encoder = count(nn.TransformerEncoderLayer(768, 12, 3072))
    dropped = PruningPlan(kept={"EL": [(0,)] * 9 + [()] * 3}, units={"EL": (1,) * 12})
    assert pruned_parameters(dropped, BERT_SIZES) == 3 * encoder
    decoder = count(nn.TransformerDecoderLayer(512, 8, 2048))
    shape = {"ES": (8,) * 6, "ED": (8,) * 6, "DS": (8,) * 6, "DL": (1,) * 6}
    without_top = {**PruningPlan.full(shape).kept, "DL": [(0,)] * 5 + [()]}
    assert pruned_parameters(PruningPlan(kept=without_top, units=shape), Sizes()) == decoder
    narrow = PruningPlan(kept={"EF": [range(1024)] * 12}, units={"EF": (3072,) * 12})
    narrower = count(nn.TransformerEncoderLayer(768, 12, 1024))
    assert pruned_parameters(narrow, BERT_SIZES) == 12 * (encoder - narrower)


def test_heads_and_neurons_of_dropped_layers_count_once() -> None:
    layers = {"EL": [(0,)] * 11 + [()]}
    alone = PruningPlan(kept=layers, units={"EL": (1,) * 12})
    with_heads = PruningPlan(
        kept={**layers, "ES": [range(12)] * 11 + [(3, 4)]},
        units={"EL": (1,) * 12, "ES": (12,) * 12},
    )
    assert pruned_parameters(alone, BERT_SIZES) == pruned_parameters(with_heads, BERT_SIZES)
    full = PruningPlan.full(BERT)
    assert forward_flops(with_heads, BERT_SIZES) == forward_flops(full, BERT_SIZES) * 11 // 12


def test_flops_of_neurons() -> None:
    every = PruningPlan.full({"ES": (12,) * 12, "EF": (3072,) * 12})
    assert forward_flops(every, BERT_SIZES) == forward_flops(PruningPlan.full(BERT), BERT_SIZES)
    half = PruningPlan(kept={"ES": [range(12)] * 12, "EF": [range(1536)] * 12}, units=every.units)
    saved = forward_flops(every, BERT_SIZES) - forward_flops(half, BERT_SIZES)
    assert saved == 12 * 2 * 2 * 30 * 768 * 1536
