"""Re-fitting of Hugging Face models, against least squares over all data at once."""

from __future__ import annotations

import copy
import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import (
    AutoModel,
    AutoModelForMaskedLM,
    AutoModelForSeq2SeqLM,
    AutoModelForSequenceClassification,
)
from typer.testing import CliRunner, Result

import hf_plugin
from headprune import DataError, PruningPlan, UsageError, select
from headprune.cli import app
from headprune.cost import unit_cost
from headprune.model import streams_of
from headprune.recovery.refit import ENOUGH, refit
from headprune.recovery.residual import outputs_of
from hf_plugin.folders import Folder
from hf_plugin.plans import model_shape
from hf_plugin.random_batches import random_batch
from hf_plugin.scores.model import HuggingFaceModel
from tests.hf_plugin.made import write_model, write_task
from tests.hf_plugin.models import FAMILIES, build
from tests.hf_plugin.scores.test_ablation import model_of
from tests.hf_plugin.scores.test_scores import data
from tests.hf_plugin.small_models import SMALL as ALL_SMALL
from tests.hf_plugin.small_models import inputs_of, small
from tests.hf_plugin.small_models import plan_of as small_plan_of

ORDER = ("ES", "EF", "DS", "ED", "DF")
RIDGE = 1e-2


def unpruned_model(family: str) -> Any:
    """A model of three layers, or of two with a companion stream."""
    if family == "lilt":
        return small(family, AutoModelForSequenceClassification)
    return model_of(family)


def batches_of(family: str, seeds: tuple[int, ...] = (1, 2, 3)) -> list[dict[str, Tensor]]:
    """Padded batches of other words than ``data``, with its lengths."""
    batches = []
    if family == "lilt":
        return [random_batch(unpruned_model(family), 5, 8, seed=seed) for seed in seeds]
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
        for layer in range(len(ours[present[0]]) if present else 0):
            for name in present:
                sublayer, whole = ours[name][layer], theirs[name][layer]
                if len(sublayer.kept) == sublayer.units:
                    continue
                residuals = []
                for stream, target in zip(streams_of(sublayer), streams_of(whole), strict=True):
                    x, given = recorded(pruned, stream.output, family, batches)
                    _, wanted = recorded(unpruned, target.output, family, batches)
                    residuals.append(naive_stream(stream.output, x, wanted - given))
                remaining.append(torch.cat(residuals, dim=1).square().mean().item())
    return remaining


def naive_stream(output: Any, x: Tensor, goal: Tensor) -> Tensor:
    """Re-fit one output projection in place; the residuals that remain, N x O."""
    inputs = x.size(1)
    mean = x.square().sum(0).mean() if inputs else torch.tensor(0.0)
    penalty = (RIDGE * mean).sqrt() * torch.eye(inputs, dtype=x.dtype)
    if output.bias is not None:
        x = torch.cat([x, x.new_ones(len(x), 1)], dim=1)
        penalty = torch.cat([penalty, penalty.new_zeros(inputs, 1)], dim=1)
    goals = torch.cat([goal, x.new_zeros(inputs, goal.size(1))])
    solution = torch.linalg.lstsq(torch.cat([x, penalty]), goals).solution
    with torch.no_grad():
        output.weight += solution[:inputs].T.float()
        if output.bias is not None:
            output.bias += solution[-1].float()
    return goal - x @ solution


@pytest.mark.parametrize("family", [*FAMILIES, "lilt"])
def test_refitting_is_least_squares_layer_by_layer(family: str) -> None:
    unpruned = unpruned_model(family)
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


def sums_in(model: Any, component: str, layer: int, batches: Any) -> Tensor:
    """The sums after a sub-layer of a BERT, which it normalises: N x C."""
    place = model.bert.encoder.layer[layer]
    norm = (place.attention.output if component == "ES" else place.output).LayerNorm
    found: list[Tensor] = []
    hook = norm.register_forward_pre_hook(lambda _, given: found.append(given[0]))
    scored = HuggingFaceModel(model)
    with torch.no_grad(), scored.evaluating():
        for batch in batches:
            scored.run(batch)
    hook.remove()
    real = [batch["attention_mask"].bool() for batch in batches]
    return torch.cat([sums[mask] for sums, mask in zip(found, real, strict=True)]).double()


def test_with_the_residual_connection_the_sums_are_fitted() -> None:
    unpruned = model_of("bert")
    batches = batches_of("bert")
    pruned = hf_plugin.prune(copy.deepcopy(unpruned), plan_of(unpruned))
    expected, alone = copy.deepcopy(pruned), copy.deepcopy(pruned)
    refitted = hf_plugin.refit(pruned, unpruned, lambda: batches, ridge=RIDGE, target="residual")
    remaining = []
    for each in refitted:
        place = each.component, each.layer
        output = HuggingFaceModel(expected).sublayers[each.component][each.layer].output
        x, _ = recorded(expected, output, "bert", batches)
        goal = sums_in(unpruned, *place, batches) - sums_in(expected, *place, batches)
        remaining.append(naive_stream(output, x, goal).square().mean().item())
    for name, weight in expected.state_dict().items():
        torch.testing.assert_close(pruned.state_dict()[name], weight, atol=2e-3, rtol=2e-3)
    assert [each.after for each in refitted] == pytest.approx(remaining, rel=1e-2, abs=1e-6)
    # On the calibration data the top layer comes closer than with the target `output`.
    hf_plugin.refit(alone, unpruned, lambda: batches, ridge=RIDGE)
    top = "EF", 2
    wanted = sums_in(unpruned, *top, batches)
    errors = [(sums_in(model, *top, batches) - wanted).square().mean() for model in (pruned, alone)]
    assert errors[0] < errors[1]


SCALED = ("beit", "dinov2", "gemma2", "gemma3_text", "granite")
"""Families that scale or normalise the outputs of sub-layers before they add them."""


@pytest.mark.parametrize("family", sorted(ALL_SMALL))
def test_the_residual_connection_is_found_in_every_family(family: str) -> None:
    unpruned = small(family)
    try:
        HuggingFaceModel(unpruned).run(inputs_of(unpruned))
    except UsageError as problem:
        pytest.skip(str(problem))
    pruned = hf_plugin.prune(copy.deepcopy(unpruned), small_plan_of(unpruned, *ORDER))
    for model in (unpruned, pruned):
        runnable, batch = HuggingFaceModel(model), inputs_of(model)
        for layers in runnable.sublayers.values():
            for sublayer in layers:
                projections = [stream.output for stream in streams_of(sublayer)]
                with torch.no_grad(), runnable.evaluating():
                    plain = outputs_of(runnable, projections, batch)
                    summed = outputs_of(runnable, projections, batch, with_sums=True)
                for one, other in zip(plain, summed, strict=True):
                    assert torch.equal(one.result, other.result) and one.added is None
                    assert (other.added is None) == (family in SCALED)


def test_outputs_that_are_scaled_have_no_residual_target() -> None:
    unpruned = small("dinov2")
    pruned = hf_plugin.prune(copy.deepcopy(unpruned), small_plan_of(unpruned, *ORDER))
    batches = [inputs_of(unpruned) for _ in range(9)]
    with pytest.raises(UsageError, match="^ES: layer 0: its output is not added to the hidden"):
        hf_plugin.refit(pruned, unpruned, lambda: batches, target="residual")


@pytest.mark.parametrize("family", ["gpt2", "llama", "vit", "t5"])
def test_the_sum_after_the_last_sub_layer_is_the_layers_output(family: str) -> None:
    """Models that normalise the inputs of sub-layers."""
    model = HuggingFaceModel(small(family))
    component = "DF" if family in ("gpt2", "llama") else "EF"
    layer, sublayer = model.layers[f"{component[0]}L"][0], model.sublayers[component][0]
    found: list[Tensor] = []
    hook = layer.module.register_forward_hook(
        lambda _, given, result: found.append(result if isinstance(result, Tensor) else result[0])
    )
    batch = inputs_of(model.model)
    with torch.no_grad(), model.evaluating():
        model.run(batch)
        (output,) = outputs_of(model, [sublayer.output], batch, with_sums=True)
    hook.remove()
    assert output.added is not None
    torch.testing.assert_close(output.result + output.added, found[0])


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


def test_above_dropped_layers_all_sub_layers_are_re_fitted(
    capsys: pytest.CaptureFixture[str],
) -> None:
    unpruned = model_of("bert")
    plan = PruningPlan(
        kept={"EL": [(0,), (), (0,)], "ES": [(0, 1), (), (2,)]},
        units={"EL": (1, 1, 1), "ES": (4, 4, 4)},
    )
    pruned = hf_plugin.prune(copy.deepcopy(unpruned), plan)
    batches = batches_of("bert")
    expected = copy.deepcopy(pruned)
    refitted = refit(
        HuggingFaceModel(pruned), HuggingFaceModel(unpruned), lambda: batches, ridge=RIDGE
    )
    places = [(each.component, each.layer) for each in refitted]
    assert places == [("ES", 0), ("ES", 2), ("EF", 2)]
    for component, layer in places:
        output = HuggingFaceModel(expected).sublayers[component][layer].output
        target = HuggingFaceModel(unpruned).sublayers[component][layer].output
        x, given = recorded(expected, output, "bert", batches)
        _, wanted = recorded(unpruned, target, "bert", batches)
        naive_stream(output, x, wanted - given)
    for name, weight in expected.state_dict().items():
        torch.testing.assert_close(pruned.state_dict()[name], weight, atol=2e-3, rtol=2e-3)
    # Whole sub-layers without tokens enough stay as they are.
    few = [{name: tensor[:2] for name, tensor in batches[0].items()}]
    few.append({name: each[2:3, :3] for name, each in batches[0].items() if each.dim() == 2})
    once_more = hf_plugin.prune(copy.deepcopy(unpruned), plan)
    refitted = refit(HuggingFaceModel(once_more), HuggingFaceModel(unpruned), lambda: few)
    assert [(each.component, each.layer) for each in refitted] == [("ES", 0), ("ES", 2)]
    assert "warning: EF of layer 2: above a dropped layer, but not re-fi" in capsys.readouterr().err
    # A model whose layers were dropped before is the one to imitate: nothing is missing.
    once = hf_plugin.prune(
        copy.deepcopy(unpruned), PruningPlan(kept={"EL": plan.kept["EL"]}, units={"EL": (1, 1, 1)})
    )
    same = HuggingFaceModel(copy.deepcopy(once))
    assert not refit(same, HuggingFaceModel(once), lambda: batches)


def test_few_tokens_for_each_unknown_are_a_warning(capsys: pytest.CaptureFixture[str]) -> None:
    unpruned = model_of("bert")
    pruned = hf_plugin.prune(copy.deepcopy(unpruned), plan_of(unpruned, percent=25))
    batch = batches_of("bert", (1,))[0]

    def refit_on(examples: int) -> tuple[int, int, str]:
        copies = [batch] * examples
        found = refit(
            HuggingFaceModel(copy.deepcopy(pruned)), HuggingFaceModel(unpruned), lambda: copies
        )
        return found[0].tokens, max(each.unknowns for each in found), capsys.readouterr().err

    for examples in (3, 60):
        tokens, unknowns, words = refit_on(examples)
        assert (tokens < ENOUGH * unknowns) == ("and only" in words) == (examples == 3)
        assert not words or f"has {unknowns} unknowns" in words and f"only {tokens} tok" in words


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


def headprune(*arguments: object) -> Result:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    if result.exception is not None:
        raise result.exception
    return result


def test_refitting_from_the_command_line(tmp_path: Path) -> None:
    classifier = write_model(tmp_path / "classifier")
    glue = write_task(tmp_path / "glue", "sst2")
    plan = PruningPlan(
        kept={"ES": [(0, 2), (1,), (3,)], "EF": [range(8), range(4, 12), (2, 3)]},
        units={"ES": (4, 4, 4), "EF": (16, 16, 16)},
    )
    plan.save(tmp_path / "plan.json")
    options = ("prune", classifier, "--plan", tmp_path / "plan.json")
    data = ("--task", "sst2", "--data-dir", glue, "--max-length", 32)
    headprune(*options, "-o", tmp_path / "pruned")
    out = headprune(*options, "--recovery", "refit", *data, "-o", tmp_path / "refitted").stdout
    assert (
        "6 sub-layers re-fitted on glue.sst2.train[12],32tok: mean squared difference from the"
        in out
    )
    pruned, refitted = (Folder.load(tmp_path / name) for name in ("pruned", "refitted"))
    assert pruned.plan == refitted.plan == plan
    models = [hf_plugin.from_pretrained(tmp_path / name) for name in ("pruned", "refitted")]
    differing = {
        name.rpartition(".layer.")[2][2:]
        for name, weight in models[0].state_dict().items()
        if not torch.equal(weight, models[1].state_dict()[name])
    }
    assert differing == {
        *(f"attention.output.dense.{name}" for name in ("weight", "bias")),
        *(f"output.dense.{name}" for name in ("weight", "bias")),
    }
    older = ("--recovery", "refit", *data, "--refit-target", "residual")
    headprune(*options, *older, "-o", tmp_path / "older")
    headprune(*options, "--recovery", "refit-residual", *data, "-o", tmp_path / "residual")
    fitted = hf_plugin.from_pretrained(tmp_path / "residual").state_dict()
    of_older = hf_plugin.from_pretrained(tmp_path / "older").state_dict()
    assert all(torch.equal(weight, of_older[name]) for name, weight in fitted.items())
    for layer, equal in ((0, True), (1, False)):  # the bottom sub-layer's inputs are the same
        name = f"bert.encoder.layer.{layer}.attention.output.dense.weight"
        assert torch.allclose(fitted[name], models[1].state_dict()[name], atol=1e-6) == equal
    for arguments, message in (
        (
            ("--recovery", "refit", *data, "--max-examples", 1),
            "layer 0: .* 13 unknowns",
        ),
        (("--recovery", "refit"), "give --task"),
        (("--recovery", "refit", "--form", "uniform", *data), "for form remove, not uniform"),
        (data, "go with --recovery refit"),
        (("--refit-target", "residual"), "go with --recovery refit"),
    ):
        with pytest.raises((DataError, UsageError), match=message):
            headprune(*options, *arguments, "-o", tmp_path / "none")
        assert not (tmp_path / "none").exists()

    compared = ("compare", classifier, *data, "--recovery", "refit", "--score", "magnitude")
    more = ("--percent", 50, "--seeds", 2, "--rounds", 0, "-o", tmp_path / "compared")
    first = headprune(*compared, *more).stdout
    found = json.loads((tmp_path / "compared" / "compare.json").read_text())
    assert found["recoveries"] == ["refit"] and all(row["after"] for row in found["rows"])
    assert headprune(*compared, *more).stdout == first
    with pytest.raises(UsageError, match="give no epochs"):
        headprune(*compared, "--epochs", 1, *more[:-1], tmp_path / "other")


@pytest.mark.parametrize(
    ("family", "auto_class"),
    [("bert", AutoModel), ("bert", AutoModelForMaskedLM), ("marian", AutoModelForSeq2SeqLM)],
)
def test_refitting_on_text_alone(family: str, auto_class: Any, tmp_path: Path) -> None:
    folder = write_model(tmp_path / "model", family="bert")  # for its tokenizer
    unpruned = model_of(family) if auto_class is AutoModel else build(family, auto_class)
    unpruned.save_pretrained(folder)
    small_plan = plan_of(unpruned)
    small_plan.save(tmp_path / "plan.json")
    text = tmp_path / "text.txt"
    text.write_text("the man sees a dog\n\nthe old cat hears a small girl\n" * 20)
    options = ("prune", folder, "--plan", tmp_path / "plan.json", "--without-labels")
    refit_ = ("--recovery", "refit", "--train", text, "--max-length", 16)
    out = headprune(*options, *refit_, "-o", tmp_path / "refitted").stdout
    found = re.search(r"re-fitted on text.txt@\w+\[20\],16tok: .* ([\d.e-]+) -> ([\d.e-]+)", out)
    assert found is not None and float(found[2]) < float(found[1])
    headprune(*options[:-1], "-o", tmp_path / "pruned")
    pruned, fitted = (hf_plugin.from_pretrained(tmp_path / name) for name in ("pruned", "refitted"))
    assert model_shape(pruned) == model_shape(fitted)
    weights = fitted.state_dict()
    assert any(not weight.equal(weights[name]) for name, weight in pruned.state_dict().items())
    for arguments, message in (
        (refit_[:2], "give --train, a file with text"),
        ((*refit_, "--label", "mood"), "--label: not with --without-labels"),
        (refit_[2:], "go with --recovery refit"),
        ((), "go with --recovery refit"),
    ):
        with pytest.raises(UsageError, match=message):
            headprune(*options, *arguments, "-o", tmp_path / "none")
        assert not (tmp_path / "none").exists()


@pytest.mark.slow
def test_mask_search_and_refitting_in_one_comparison(tmp_path: Path) -> None:
    classifier = write_model(tmp_path / "classifier")
    glue = write_task(tmp_path / "glue", "sst2")
    data = ("--task", "sst2", "--data-dir", glue, "--max-length", 32)
    options = ("--recovery", "refit", "--score", "kwon", "--seeds", 1, "--rounds", 0)
    options = ("compare", classifier, *data, *options)
    units = ("--components", "ES,EF", "--budget", "50% of flops", "--max-examples", 10)
    headprune(*options, *units, "-o", tmp_path / "kwon")
    chosen = PruningPlan.load(tmp_path / "kwon" / "plans" / "kwon-50-flops.json")
    assert chosen.origin is not None and chosen.origin.method == "kwon"
    cost = unit_cost("flops", sizes=Folder.load(classifier).sizes, shape=chosen.units)
    assert 0.4 < cost(chosen) / cost(PruningPlan.full(chosen.units)) <= 0.5
    assert all(count > 0 for counts in chosen.counts.values() for count in counts)
    wrong = (("ES,EF", "50%", "a head costs more than a neuron"), ("EL", "50%", "not EL"))
    for components, budget, message in wrong:
        units = ("--components", components, "--budget", budget, "--at-least", 0)
        with pytest.raises(UsageError, match=message):
            headprune(*options, *units, "-o", tmp_path / f"kwon {components}")
