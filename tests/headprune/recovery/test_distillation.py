"""The losses of distillation against their formulas, and their settings."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

import pytest
import torch
from torch import nn

from headprune.divergences import bernoulli_divergence, divergence
from headprune.errors import UsageError
from headprune.recovery.distillation import Distillation
from headprune.recovery.distillation_loss import hidden_difference, recorded, require_comparable


def logits(seed: int, *shape: int) -> torch.Tensor:
    return 3 * torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("temperature", [0.5, 1.0, 4.0])
def test_the_divergence_of_softmax_outputs(temperature: float) -> None:
    student, teacher = logits(1, 4, 5), logits(2, 4, 5)
    expected = []
    for s, t in zip(student.tolist(), teacher.tolist(), strict=True):
        q, p = (
            [math.exp(z / temperature) / sum(math.exp(y / temperature) for y in row) for z in row]
            for row in (s, t)
        )
        terms = [p_i * math.log(p_i / q_i) for p_i, q_i in zip(p, q, strict=True)]
        expected.append(temperature**2 * sum(terms))
    value = divergence(student, teacher, temperature=temperature)
    torch.testing.assert_close(value, torch.tensor(expected), rtol=1e-4, atol=1e-5)
    assert not divergence(teacher, teacher, temperature=temperature).any()


@pytest.mark.parametrize("temperature", [1.0, 4.0])
def test_the_divergence_of_several_labels(temperature: float) -> None:
    student, teacher = logits(1, 4, 3), logits(2, 4, 3)
    expected = []
    for s, t in zip(student.tolist(), teacher.tolist(), strict=True):
        terms = []
        for s_i, t_i in zip(s, t, strict=True):
            q, p = (1 / (1 + math.exp(-z / temperature)) for z in (s_i, t_i))
            terms.append(p * math.log(p / q) + (1 - p) * math.log((1 - p) / (1 - q)))
        expected.append(temperature**2 * sum(terms) / 3)
    value = bernoulli_divergence(student, teacher, temperature=temperature)
    torch.testing.assert_close(value, torch.tensor(expected), rtol=1e-4, atol=1e-5)
    assert not bernoulli_divergence(teacher, teacher, temperature=temperature).any()


def test_a_gradient_does_not_shrink_with_the_temperature() -> None:
    sizes = []
    for temperature in (20.0, 40.0):
        student = logits(1, 4, 5).requires_grad_()
        divergence(student, logits(2, 4, 5), temperature=temperature).sum().backward()
        assert student.grad is not None
        sizes.append(float(student.grad.norm()))
    assert sizes[0] == pytest.approx(sizes[1], rel=0.1)


@dataclass
class Part:
    module: nn.Module
    is_kept: bool = True
    units: int = 1
    kept: tuple[int, ...] = (0,)
    present: tuple[int, ...] = (0,)

    def weights_by_unit(self) -> list[torch.Tensor]:
        return []


def test_hidden_states_of_the_layers_that_both_models_have() -> None:
    torch.manual_seed(0)
    student = [Part(nn.Linear(3, 3)), Part(nn.Linear(3, 3), is_kept=False), Part(nn.Linear(3, 3))]
    teacher = [Part(nn.Linear(3, 3)) for _ in range(3)]
    x = torch.randn(2, 4, 3)  # B x T x C
    mask = torch.tensor([[True, True, True, True], [True, False, False, False]])
    with recorded({"EL": student}) as of_student, recorded({"EL": teacher}) as of_teacher:
        for parts in (student, teacher):
            for part in parts:
                part.module(x)
    student[0].module(2 * x)  # outside of the context
    value = hidden_difference(of_student, of_teacher, tokens=lambda _: mask, batch_dim=0)
    errors = []
    for layer in (0, 2):
        total = 0.0
        for row, token in mask.nonzero().tolist():
            difference = student[layer].module(x) - teacher[layer].module(x)
            total += float((difference[row, token].detach() ** 2).sum())
        errors.append(total / (int(mask.sum()) * 3))
    assert float(value.detach()) == pytest.approx(sum(errors) / 2, rel=1e-5)
    time_first = {k: v.transpose(0, 1) for k, v in of_student.items()}
    same = {k: v.transpose(0, 1) for k, v in of_teacher.items()}
    again = hidden_difference(time_first, same, tokens=lambda _: mask, batch_dim=1)
    torch.testing.assert_close(again, value)
    narrow = {k: v[..., :2] for k, v in of_teacher.items()}
    with pytest.raises(UsageError, match="have width 2, the model's 3"):
        hidden_difference(of_student, narrow, tokens=lambda _: mask, batch_dim=0)


def test_models_with_other_layers() -> None:
    parts = [Part(nn.Identity()) for _ in range(3)]
    with pytest.raises(UsageError, match=r"other layers \(EL 2\) than the model \(EL 3\)"):
        require_comparable({"EL": parts}, {"EL": parts[:2]})
    dropped = [Part(nn.Identity(), is_kept=False) for _ in range(3)]
    with pytest.raises(UsageError, match="no layer is in both"):
        require_comparable({"EL": parts}, {"EL": dropped})
    require_comparable({"EL": parts}, {"EL": [*dropped[:2], parts[2]]})


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"weight": 1.5}, "--distill-weight 1.5: give a share of the loss, from 0 to 1"),
        ({"weight": math.nan}, "--distill-weight nan"),
        ({"temperature": 0.0}, "--distill-temperature 0: give a number above 0"),
        ({"temperature": math.inf}, "--distill-temperature inf"),
        ({"hidden": -1.0}, "--distill-hidden -1: give a number from 0"),
    ],
)
def test_numbers_out_of_range(values: dict[str, float], message: str) -> None:
    with pytest.raises(UsageError, match=re.escape(message)):
        Distillation(**values)


def test_settings_and_signatures() -> None:
    chosen = Distillation(weight=0.25, hidden=1.0)
    assert Distillation.of_settings(chosen.as_settings() | {"task": "rte"}) == chosen
    assert Distillation.of_settings({"distill_weight": 0}) == Distillation(weight=0.0)
    assert Distillation.of_settings({"task": "rte", "distill_hidden": None}) is None
    name = "distill[weight=0.25,temperature=2,hidden=1,from=0123456789ab]"
    assert chosen.name("0123456789abcdef") == name
    assert Distillation().name(None) == "distill[weight=0.5,temperature=2]"
