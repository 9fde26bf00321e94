"""Re-fitting of Hugging Face models, against least squares over all data at once."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor

import hf_plugin
from headprune import DataError, PruningPlan, UsageError, select
from headprune.recovery.refit import refit
from hf_plugin.plans import model_shape
from hf_plugin.scores.model import HuggingFaceModel
from tests.hf_plugin.models import FAMILIES
from tests.hf_plugin.scores.test_ablation import model_of
from tests.hf_plugin.scores.test_scores import data

ORDER = ("ES", "EF", "DS", "ED", "DF")
RIDGE = 1e-2


def batches_of(family: str, seeds: tuple[int, ...] = (1, 2, 3)) -> list[dict[str, Tensor]]:
    """Padded batches of other words than ``data``, with its lengths."""
    batches = []
    for seed in seeds:
        batch = data(family)
        generator = torch.Generator().manual_seed(seed)
        words = torch.randint(3, 40, batch["input_ids"].shape, generator=generator)
        batches.append({**batch, "input_ids": words * batch["attention_mask"]})
    return batches


def plan_of(model: Any, *, percent: float = 40, seed: int = 1) -> PruningPlan:
    """Random heads and neurons; the attention of layer 1 keeps none."""
    shape = {name: units for name, units in model_shape(model).items() if name in ORDER}
    plan = select.at_random(shape, seed=seed, percent=percent, at_least=1)
    kept = {name: list(layers) for name, layers in plan.kept.items()}
    kept["ES"][1] = ()
    return PruningPlan(kept=kept, units=plan.units)


def recorded(model: Any, linear: Any, family: str, batches: Any) -> tuple[Tensor, Tensor]:
    """The inputs N x I and outputs N x O of a projection for all tokens that are not padding."""
    scored, inputs, outputs = HuggingFaceModel(model), [], []

    def keep(_: Any, given: Any, result: Tensor) -> None:
        # A decoder's tokens are of another shape than an encoder's.
        component = "ES" if result.shape[:2] == batch["input_ids"].shape else "DS"
        real = scored.queries(component, batch)
        inputs.append(given[0][real])
        outputs.append(result[real])

    hook = linear.register_forward_hook(keep)
    with torch.no_grad(), scored.evaluating():
        for batch in batches:
            scored.run(batch)
    hook.remove()
    return torch.cat(inputs).double(), torch.cat(outputs).double()


def naive(pruned: Any, unpruned: Any, family: str, batches: Any) -> list[float]:
    """Re-fit in place, each sub-layer by QR over all tokens; the differences that remain."""
    ours, theirs = HuggingFaceModel(pruned).sublayers, HuggingFaceModel(unpruned).sublayers
    remaining = []
    for components in (("ES", "EF"), ("DS", "ED", "DF")):
        present = [name for name in components if name in ours]
        for layer in range(3 if present else 0):
            for name in present:
                output = ours[name][layer].output
                if len(ours[name][layer].kept) == ours[name][layer].units:
                    continue
                x, given = recorded(pruned, output, family, batches)
                _, wanted = recorded(unpruned, theirs[name][layer].output, family, batches)
                inputs = x.size(1)
                mean = x.square().sum(0).mean() if inputs else torch.tensor(0.0)
                penalty = (RIDGE * mean).sqrt() * torch.eye(inputs, dtype=x.dtype)
                if output.bias is not None:
                    x = torch.cat([x, x.new_ones(len(x), 1)], dim=1)
                    penalty = torch.cat([penalty, penalty.new_zeros(inputs, 1)], dim=1)
                goal = torch.cat([wanted - given, x.new_zeros(inputs, given.size(1))])
                solution = torch.linalg.lstsq(torch.cat([x, penalty]), goal).solution
                with torch.no_grad():
                    output.weight += solution[:inputs].T.float()
                    if output.bias is not None:
                        output.bias += solution[-1].float()
                remaining.append((wanted - given - x @ solution).square().mean().item())
    return remaining


@pytest.mark.parametrize("family", FAMILIES)
def test_refitting_is_least_squares_layer_by_layer(family: str) -> None:
    unpruned = model_of(family)
    batches = batches_of(family)
    pruned = hf_plugin.prune(copy.deepcopy(unpruned), plan_of(unpruned))
    expected = copy.deepcopy(pruned)
    before = copy.deepcopy(unpruned.state_dict())
    refitted = refit(
        HuggingFaceModel(pruned), HuggingFaceModel(unpruned), lambda: iter(batches), ridge=RIDGE
    )
    remaining = naive(expected, unpruned, family, batches)
    for name, weight in expected.state_dict().items():
        torch.testing.assert_close(pruned.state_dict()[name], weight, atol=2e-3, rtol=2e-3)
    assert [each.after for each in refitted] == pytest.approx(remaining, rel=1e-2, abs=1e-6)
    assert all(each.after <= each.before for each in refitted)
    assert sum(each.after for each in refitted) < 0.8 * sum(each.before for each in refitted)
    # One sub-layer more than the plan's: none twice, in the order of computation.
    kinds = [name for name in ORDER if name in model_shape(unpruned)]
    assert {each.component for each in refitted} == {*kinds}
    for name, weight in unpruned.state_dict().items():
        assert torch.equal(weight, before[name])
    assert not any(linear._forward_hooks for linear in pruned.modules())


def test_nothing_changes_where_no_unit_is_pruned() -> None:
    unpruned = model_of("bert")
    copied = copy.deepcopy(unpruned)
    batches = batches_of("bert")
    assert not refit(HuggingFaceModel(copied), HuggingFaceModel(unpruned), lambda: batches)
    # Neurons of the top layer alone: all below stays, and the others are exact as they are.
    shape = {"EF": (16, 16, 16)}
    plan = PruningPlan(kept={"EF": [range(16), range(16), range(8)]}, units=shape)
    pruned = hf_plugin.prune(copied, plan)
    (top,) = refit(HuggingFaceModel(pruned), HuggingFaceModel(unpruned), lambda: batches)
    assert (top.component, top.layer) == ("EF", 2)
    changed = {
        name
        for name, weight in pruned.state_dict().items()
        if weight.shape != unpruned.state_dict()[name].shape
        or not torch.equal(weight, unpruned.state_dict()[name])
    }
    layer = "bert.encoder.layer.2."
    assert changed == {
        *(f"{layer}intermediate.dense.{name}" for name in ("weight", "bias")),
        *(f"{layer}output.dense.{name}" for name in ("weight", "bias")),
    }


def test_a_unit_that_others_can_replace_is_replaced() -> None:
    unpruned = model_of("bert")
    sublayer = HuggingFaceModel(unpruned).sublayers["EF"][0]
    with torch.no_grad():  # neuron 1 computes what neuron 0 does
        for linear in sublayer.inputs:
            linear.weight[1], linear.bias[1] = linear.weight[0], linear.bias[0]
    kept = [[0, *range(2, 16)], range(16), range(16)]
    plan = PruningPlan(kept={"EF": kept}, units={"EF": (16,) * 3})
    pruned = hf_plugin.prune(copy.deepcopy(unpruned), plan)
    batches = batches_of("bert", tuple(range(8)))
    (only,) = refit(
        HuggingFaceModel(pruned), HuggingFaceModel(unpruned), lambda: batches, ridge=1e-8
    )
    assert only.after < 1e-8 < only.before
    with torch.no_grad():
        inputs = {name: batches[0][name] for name in ("input_ids", "attention_mask")}
        torch.testing.assert_close(
            pruned(**inputs).logits, unpruned(**inputs).logits, atol=1e-3, rtol=1e-3
        )


def test_dropped_layers_are_left_out() -> None:
    unpruned = model_of("bert")
    plan = PruningPlan(
        kept={"EL": [(0,), (), (0,)], "ES": [(0, 1), (), (2,)]},
        units={"EL": (1, 1, 1), "ES": (4, 4, 4)},
    )
    pruned = hf_plugin.prune(copy.deepcopy(unpruned), plan)
    batches = batches_of("bert")
    refitted = refit(HuggingFaceModel(pruned), HuggingFaceModel(unpruned), lambda: batches)
    assert [(each.component, each.layer) for each in refitted] == [("ES", 0), ("ES", 2)]


def test_what_cannot_be_refitted() -> None:
    unpruned = model_of("bert")
    pruned = hf_plugin.prune(copy.deepcopy(unpruned), plan_of(unpruned, percent=25))
    weights = copy.deepcopy(pruned.state_dict())
    whole, part = HuggingFaceModel(unpruned), HuggingFaceModel(pruned)
    batches = batches_of("bert", (1,))
    few = [{name: tensor[1:2] for name, tensor in batches[0].items()}]
    with pytest.raises(DataError, match=r"ES: layer 0: .* unknowns .* 1 calibration .* 3 tokens"):
        refit(part, whole, lambda: few)
    assert all(torch.equal(weight, weights[name]) for name, weight in pruned.state_dict().items())
    with pytest.raises(UsageError, match="units that the unpruned model does not have"):
        refit(whole, part, lambda: batches)
    with pytest.raises(UsageError, match="ridge is 0"):
        refit(part, whole, lambda: batches, ridge=0)
    other = HuggingFaceModel(
        model_of("bert").__class__(type(unpruned.config)(**{**SMALL, "num_hidden_layers": 2}))
    )
    with pytest.raises(UsageError, match="the models have 3 and 2 layers"):
        refit(part, other, lambda: batches)
    heads = {"ES": (4, 4, 4)}
    plan = PruningPlan(kept={"ES": [(0,), (1,), (2, 3)]}, units=heads)
    uniform = hf_plugin.prune(copy.deepcopy(unpruned), plan, form="uniform")
    with pytest.raises(UsageError, match="masked or uniform"):
        refit(HuggingFaceModel(uniform), whole, lambda: batches)
    with torch.no_grad():
        pruned.get_input_embeddings().weight.fill_(float("nan"))
    with pytest.raises(DataError, match="not finite"):
        refit(part, whole, lambda: batches)


SMALL: dict[str, Any] = dict(
    vocab_size=40, hidden_size=24, num_attention_heads=4, intermediate_size=16
)
