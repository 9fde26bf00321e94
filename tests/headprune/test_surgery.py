"""Cutting heads out of weights, against masking them."""

from __future__ import annotations

import math
from itertools import combinations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from headprune.surgery import COLUMNS, ROWS, cut, uncut

Weights = dict[str, Tensor]


def test_rows() -> None:
    weight = torch.tensor([[0, 1], [2, 3], [4, 5], [6, 7], [8, 9], [10, 11]])  # 3 heads, d = 2
    assert cut(weight, (0, 2), units=3, dim=ROWS).tolist() == [[0, 1], [2, 3], [8, 9], [10, 11]]


def test_columns() -> None:
    weight = torch.tensor([[0, 1, 2, 3, 4, 5], [6, 7, 8, 9, 10, 11]])
    assert cut(weight, (1,), units=3, dim=COLUMNS).tolist() == [[2, 3], [8, 9]]


def test_bias() -> None:
    assert cut(torch.arange(6), (1, 2), units=3, dim=ROWS).tolist() == [2, 3, 4, 5]


def test_the_order_is_that_of_kept() -> None:
    assert cut(torch.arange(6), (2, 0), units=3, dim=ROWS).tolist() == [4, 5, 0, 1]


def test_no_head_left() -> None:
    weight = torch.ones(6, 2)
    assert cut(weight, (), units=3, dim=ROWS).shape == (0, 2)
    assert cut(weight.T, (), units=3, dim=COLUMNS).shape == (2, 0)
    assert uncut(torch.ones(0, 2), (), units=3, unit_size=2, dim=ROWS).tolist() == [[0, 0]] * 6


def test_uncut() -> None:
    small = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    assert uncut(small, (1,), units=3, unit_size=2, dim=COLUMNS).tolist() == [
        [0, 0, 1, 2, 0, 0],
        [0, 0, 3, 4, 0, 0],
    ]
    assert uncut(torch.tensor([5.0]), (0,), units=2, unit_size=1, dim=ROWS).tolist() == [5, 0]


def test_the_result_is_a_contiguous_copy_of_the_same_type() -> None:
    weight = torch.ones(4, 6, dtype=torch.float16)
    small = cut(weight, (0, 1, 2), units=3, dim=COLUMNS)
    assert small.is_contiguous()
    assert small.dtype == torch.float16
    small.zero_()
    assert weight.sum() == 24
    assert uncut(small, (0, 1, 2), units=3, unit_size=2, dim=COLUMNS).dtype == torch.float16


def test_gradients_reach_the_kept_heads_alone() -> None:
    weight = torch.ones(3, 1, requires_grad=True)
    cut(weight, (1,), units=3, dim=ROWS).sum().backward()
    assert weight.grad is not None
    assert weight.grad.flatten().tolist() == [0, 1, 0]
    small = torch.ones(1, 1, requires_grad=True)
    uncut(small, (1,), units=3, unit_size=1, dim=ROWS).sum().backward()
    assert small.grad is not None
    assert small.grad.item() == 1


@st.composite
def cuts(draw: st.DrawFn) -> tuple[Tensor, list[int], int, int, int]:
    """A tensor of whole numbers, the heads to keep, the number of heads, d and the dimension."""
    heads, head_dim, other = (draw(st.integers(1, n)) for n in (8, 4, 3))
    kept = draw(st.permutations(range(heads)))[: draw(st.integers(0, heads))]
    kind = draw(st.sampled_from(["rows", "columns", "bias"]))
    size = {"rows": (heads * head_dim, other), "columns": (other, heads * head_dim)}.get(
        kind, (heads * head_dim,)
    )
    tensor = torch.arange(1, 1 + math.prod(size)).view(size)
    return tensor, list(kept), heads, head_dim, COLUMNS if kind == "columns" else ROWS


@given(cuts())
def test_cut_then_uncut_is_the_tensor_with_zeros(
    case: tuple[Tensor, list[int], int, int, int],
) -> None:
    tensor, kept, heads, head_dim, dim = case
    small = cut(tensor, kept, units=heads, dim=dim)
    assert small.size(dim) == len(kept) * head_dim
    again = uncut(small, kept, units=heads, unit_size=head_dim, dim=dim)
    mask = torch.tensor([head in kept for head in range(heads)]).repeat_interleave(head_dim)
    expected = tensor * (mask if dim == tensor.dim() - 1 else mask[:, None])
    assert again.tolist() == expected.tolist()
    assert cut(again, kept, units=heads, dim=dim).tolist() == small.tolist()


@given(cuts(), st.data())
def test_cutting_twice_is_cutting_once(
    case: tuple[Tensor, list[int], int, int, int], data: st.DataObject
) -> None:
    tensor, kept, heads, _, dim = case
    if not kept:
        return
    positions = data.draw(st.lists(st.integers(0, len(kept) - 1), unique=True))
    small = cut(tensor, kept, units=heads, dim=dim)
    twice = cut(small, positions, units=len(kept), dim=dim)
    assert (
        twice.tolist() == cut(tensor, [kept[p] for p in positions], units=heads, dim=dim).tolist()
    )


def test_a_width_that_does_not_divide_into_heads() -> None:
    with pytest.raises(ValueError, match="7 entries do not divide into 3 units"):
        cut(torch.ones(7), (0,), units=3, dim=ROWS)


# --- equation 2: removing heads is multiplying their outputs by 0 ----------------------------

HEADS, HEAD_DIM, WIDTH = 3, 4, 10


def attention(x: Tensor, memory: Tensor, w: Weights, *, heads: int, xi: Tensor) -> Tensor:
    """Multi-head attention, written out head by head; ``xi`` multiplies each head's output."""
    outputs = []
    q, k, v = (
        (source @ w[f"{name}.weight"].T + w[f"{name}.bias"]).view(len(source), heads, HEAD_DIM)
        for name, source in (("q", x), ("k", memory), ("v", memory))
    )
    for h in range(heads):
        weights = torch.softmax(q[:, h] @ k[:, h].T / math.sqrt(HEAD_DIM), dim=-1)
        outputs.append(xi[h] * (weights @ v[:, h]))
    joined = torch.cat(outputs, dim=-1) if outputs else x.new_zeros(len(x), 0)
    return joined @ w["out.weight"].T + w["out.bias"]


def random_weights() -> Weights:
    generator = torch.Generator().manual_seed(1)
    inner = HEADS * HEAD_DIM
    sizes: dict[str, tuple[int, ...]] = {"out.weight": (WIDTH, inner), "out.bias": (WIDTH,)}
    for name in ("q", "k", "v"):
        sizes |= {f"{name}.weight": (inner, WIDTH), f"{name}.bias": (inner,)}
    return {
        name: torch.randn(*size, generator=generator, dtype=torch.float64)
        for name, size in sizes.items()
    }


@pytest.mark.parametrize(
    "kept", [kept for n in range(HEADS + 1) for kept in combinations(range(HEADS), n)], ids=str
)
def test_removing_masking_and_zeros_agree(kept: tuple[int, ...]) -> None:
    generator = torch.Generator().manual_seed(2)
    x, memory = (torch.randn(n, WIDTH, generator=generator, dtype=torch.float64) for n in (5, 7))
    full = random_weights()
    dims = {name: COLUMNS if name == "out.weight" else ROWS for name in full if name != "out.bias"}
    removed = {name: cut(full[name], kept, units=HEADS, dim=dim) for name, dim in dims.items()}
    zeros = {
        name: uncut(removed[name], kept, units=HEADS, unit_size=HEAD_DIM, dim=dim)
        for name, dim in dims.items()
    }
    removed["out.bias"] = zeros["out.bias"] = full["out.bias"]
    ones = torch.ones(HEADS, dtype=torch.float64)
    xi = torch.tensor([float(h in kept) for h in range(HEADS)], dtype=torch.float64)

    masked = attention(x, memory, full, heads=HEADS, xi=xi)
    torch.testing.assert_close(
        attention(x, memory, removed, heads=len(kept), xi=ones[: len(kept)]), masked
    )
    torch.testing.assert_close(attention(x, memory, zeros, heads=HEADS, xi=ones), masked)
    if not kept:  # the output projection's bias alone
        torch.testing.assert_close(masked, full["out.bias"].expand(5, WIDTH))
    if len(kept) < HEADS:
        assert not torch.allclose(masked, attention(x, memory, full, heads=HEADS, xi=ones))
