"""Checkpoints with pruned neurons and layers: prune, show, load, export."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from fairseq import checkpoint_utils
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from omegaconf import OmegaConf

from fairseq_plugin.checkpoints import Checkpoint
from fairseq_plugin.plan_transport import take_plan
from headprune import DataError, PruningPlan, UsageError
from headprune.cost import unit_cost
from tests.command import headprune
from tests.fairseq_plugin.checkpoints import content, write
from tests.fairseq_plugin.conftest import assert_same, generate, run
from tests.fairseq_plugin.models import SIZES, batch, build
from tests.prunable_models import check_prunable_model

UNITS = {
    **dict.fromkeys(("ES", "ED", "DS"), (4, 4)),
    **dict.fromkeys(("EF", "DF"), (48, 48)),
    **dict.fromkeys(("EL", "DL"), (1, 1)),
}


def plan_of(**kept: Any) -> PruningPlan:
    return PruningPlan(kept=kept, units={name: UNITS[name] for name in kept})


RAGGED = plan_of(ES=[(0, 1), ()], EF=[range(30), (1, 2)], DF=[(), (1,)])
RAGGED_HEADS = plan_of(ES=[(0, 1), ()], DS=[(), (3,)])
LAYERS_ALONE = plan_of(DL=[(), (0,)])
LAYERS = plan_of(ES=[(0, 1), (2,)], EF=[(3, 4, 5), (1, 2, 40)], DL=[(), (0,)])


@pytest.fixture
def full(tmp_path: Path) -> Checkpoint:
    return Checkpoint.load(write(tmp_path / "full.pt"))


def outputs(checkpoint: Checkpoint) -> torch.Tensor:
    """The outputs of the model that fairseq builds from the checkpoint."""
    model = build(**{**SIZES, **checkpoint.options.values}, seed=3)
    model.load_state_dict(checkpoint.state["model"])
    with torch.no_grad():
        logits: torch.Tensor = model.eval()(**batch())[0]
    return logits


@pytest.mark.parametrize("plan", [RAGGED, LAYERS], ids=["ragged", "layers"])
def test_forms_and_exports_compute_the_same(plan: PruningPlan, full: Checkpoint, tmp_path: Path):
    results = []
    for form in ("remove", "mask"):
        full.prune(plan, form=form).save(tmp_path / f"{form}.pt")
        pruned = Checkpoint.load(tmp_path / f"{form}.pt")
        assert pruned.plan == plan.normalised(UNITS) and pruned.form == form
        assert pruned.unpruned_parameters == full.parameters
        assert (pruned.parameters < full.parameters) == (form == "remove")
        pruned.export_to_fairseq().save(tmp_path / "stock.pt")
        exported = Checkpoint.load(tmp_path / "stock.pt")
        assert exported.plan.is_full and exported.options["arch"] == "transformer"
        results += [outputs(pruned), outputs(exported)]
    for result in results[1:]:
        torch.testing.assert_close(result, results[0], atol=1e-5, rtol=1e-5)
    assert (results[0] - outputs(full)).abs().max() > 0.1


def in_new_form(state: dict[str, Any]) -> dict[str, Any]:
    """The checkpoint as fairseq 0.12 writes it: with a config, the model's options a Namespace."""
    config = OmegaConf.to_container(convert_namespace_to_omegaconf(state["args"]))
    return {**state, "args": None, "cfg": config}


def with_bleu(state: dict[str, Any]) -> dict[str, Any]:
    """The checkpoint as a training with --eval-bleu and the plugin leaves it."""
    meters = {"valid": [(0, "_bleu_counts", "SumMeter", {"sum": np.array([3, 2, 1, 0])})]}
    extra = {"metrics": meters, "best": np.float64(3.5), "val_loss": np.float64(3.5)}
    iterator = {"epoch": 2, "iterations_in_epoch": 0, "shuffle": True}
    extra |= {"headprune": {"early_stopping": {"best": np.float64(3.5)}}}
    history = {"optimizer_name": "FairseqAdam", "num_updates": 9}
    history |= {"lr_scheduler_state": {"best": np.float64(3.5)}}
    extra_state = {**state["extra_state"], **extra, "train_iterator": iterator}
    return {**state, "extra_state": extra_state, "optimizer_history": [history]}


def as_stock_fairseq_reads(path: Path) -> Any:
    """The content of a file, read without the types that the plugin lets torch accept."""
    accepted = torch.serialization.get_safe_globals()
    torch.serialization.clear_safe_globals()
    try:
        return torch.load(path, weights_only=True)
    finally:
        torch.serialization.add_safe_globals(accepted)


@pytest.mark.parametrize("form", [dict, in_new_form], ids=["args", "cfg"])
def test_an_export_holds_plain_values(form: Callable[..., Any], tmp_path: Path):
    torch.save(form(with_bleu(content())), tmp_path / "full.pt")
    pruned = Checkpoint.load(tmp_path / "full.pt").prune(RAGGED)
    pruned.export_to_fairseq().save(tmp_path / "stock.pt")
    state = as_stock_fairseq_reads(tmp_path / "stock.pt")
    assert state["args"] is None and state["cfg"]["task"]["_name"] == "translation"
    assert state["cfg"]["model"]["_name"] == state["cfg"]["model"]["arch"] == "transformer"
    extra = state["extra_state"]
    assert not {"metrics", "headprune"} & extra.keys()
    assert type(extra["best"]) is type(extra["val_loss"]) is float and extra["best"] == 3.5
    assert state["optimizer_history"][-1]["num_updates"] == 9
    torch.testing.assert_close(outputs(Checkpoint.load(tmp_path / "stock.pt")), outputs(pruned))


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("task", "my_own_task", "full.pt: fairseq cannot read its options .*my_own_task"),
        ("arch", None, "full.pt: its options name no architecture"),
    ],
)
def test_an_export_of_options_that_fairseq_does_not_know_is_one_error(
    option: str, value: str | None, message: str, full: Checkpoint
):
    full.options.drop(option)
    if value:
        full.options[option] = value
    with pytest.raises(DataError, match=message):
        full.export_to_fairseq()


@pytest.mark.slow
def test_stock_fairseq_translates_with_exports(stock: Path, corpus: Path, tmp_path: Path):
    state = Checkpoint.load(stock).state
    old = {name: value for name, value in state.items() if name not in ("args", "cfg")}
    old["args"] = Namespace(**vars(state["cfg"]["model"]))  # of fairseq 0.10 and older
    for name, each in (("old", old), ("bleu", with_bleu(state))):
        torch.save(each, tmp_path / "full.pt")
        Checkpoint.load(tmp_path / "full.pt").prune(RAGGED_HEADS).save(tmp_path / "pruned.pt")
        output = tmp_path / f"{name}.pt"
        run("headprune", "export", tmp_path / "pruned.pt", "--to=fairseq", "-o", output)
        assert_same(
            generate(corpus, "--path", output, plugin=False),
            generate(corpus, "--path", tmp_path / "pruned.pt"),
        )


def test_a_checkpoint_with_few_layers_is_exported_as_a_smaller_transformer(full: Checkpoint):
    options = full.prune(LAYERS).export_to_fairseq().options
    sizes = ("encoder_layers", "encoder_ffn_embed_dim", "decoder_layers", "decoder_ffn_embed_dim")
    assert [options[size] for size in sizes] == [2, 3, 1, 48]


def test_without_a_layer_there_is_no_stock_transformer(full: Checkpoint):
    pruned = full.prune(plan_of(EL=[(), ()]))
    with pytest.raises(UsageError, match="needs a layer in the encoder, and all are pruned"):
        pruned.export_to_fairseq()


def test_options_that_change_what_weights_mean_are_of_the_architecture(full: Checkpoint):
    before = full.architecture
    assert before["encoder_words"] and full.prune(plan_of(ES=[(0,), ()])).architecture == before
    full.options["activation_fn"] = "gelu"
    full.options["decoder_normalize_before"] = True
    changed = full.architecture.items() - before.items()
    assert changed == {("activation_fn", "gelu"), ("decoder_normalize_before", True)}


@pytest.mark.parametrize("form", ["remove", "mask"])
def test_two_steps_are_one(form: str, full: Checkpoint):
    """A component that the second plan does not name stays as the first left it."""
    first, second = plan_of(EF=[(3, 4), range(48)], EL=[(0,), ()]), plan_of(EF=[(4,), ()])
    steps = full.prune(first, form=form).prune(second, form=form)
    once = full.prune(plan_of(EF=[(4,), ()], EL=[(0,), ()]), form=form)
    assert steps.plan == once.plan and steps.fingerprint == once.fingerprint
    assert str(steps.plan) == "ES=40 ED=44 DS=44 EF=10 EL=10"


@pytest.mark.parametrize(
    ("plan", "message"),
    [
        (plan_of(EF=[(9,), ()]), "EF: layer 0: neuron 9 is to be kept"),
        (plan_of(DL=[(0,), (0,)]), "DL: layer 0 is to be kept, .* only 1 of 2 layers"),
    ],
)
def test_units_that_are_gone_do_not_come_back(plan: PruningPlan, message: str, full: Checkpoint):
    pruned = full.prune(plan_of(EF=[(3, 4), ()], DL=[(), (0,)]))
    with pytest.raises(DataError, match=message):
        pruned.prune(plan)


def test_the_plan_is_stored_once_and_comes_along_when_fairseq_reads(
    full: Checkpoint, tmp_path: Path
):
    full.state["optimizer_history"] = [
        {"optimizer_name": "", "lr_scheduler_state": {}, "num_updates": 0}
    ]
    full.prune(LAYERS).save(tmp_path / "pruned.pt")
    weights = torch.load(tmp_path / "pruned.pt", weights_only=False)["model"]
    assert weights.keys() < full.state["model"].keys()
    other = plan_of(DS=[(), (1,)]).to_json()
    for overrides in (None, {"head_plan": other}, {"plan": other}):
        state = checkpoint_utils.load_checkpoint_to_cpu(str(tmp_path / "pruned.pt"), overrides)
        assert take_plan(state["model"]) == LAYERS.normalised(UNITS)
        assert (state["args"].head_plan == other) == (state["cfg"].model.head_plan == other)
        assert (state["args"].head_plan == other) == bool(overrides)


def test_one_plan_is_given(full: Checkpoint):
    with pytest.raises(UsageError, match="plan and head_plan mean the same"):
        checkpoint_utils.load_checkpoint_to_cpu(full.path, {"plan": "a", "head_plan": "b"})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"encoder_layers": 3}, "the plan is for 2 layers"),
        ({"head_form": "mask"}, "its options keep 2 layers of the decoder, its weights are of 1"),
        ({"head_plan": None}, "its option decoder_layers is 2, its weights are of 1 layers"),
        ({"head_plan": plan_of(DL=[(0,), (0,)]).to_json()}, "its options keep 2 layers"),
        ({"encoder_ffn_embed_dim": 47}, "EF: layer 0: the plan is for 48 neurons"),
    ],
)
def test_options_that_contradict_the_weights(
    change: dict[str, Any], message: str, full: Checkpoint, tmp_path: Path
):
    pruned = full.prune(LAYERS)
    for name, value in change.items():
        pruned.options[name] = value
    pruned.save(tmp_path / "changed.pt")
    with pytest.raises(DataError, match=message):
        Checkpoint.load(tmp_path / "changed.pt")


def test_the_commands(tmp_path: Path, full: Checkpoint):
    LAYERS.save(tmp_path / "plan.json")
    pruned = tmp_path / "pruned.pt"
    done = headprune("prune", tmp_path / "full.pt", "--plan", tmp_path / "plan.json", "-o", pruned)
    assert "ES=21 ED=04 DS=04 EF=33 DL=01" in done.out
    shown = headprune("show", pruned).out
    for line in (
        "neurons     6 of 96 kept, 93.8% pruned",
        "layers      1 of 2 kept, 50.0% pruned",
        "3 of 48",
        "decoder layers",
    ):
        assert line in shown
    heads = headprune("plan", "--model", pruned, "--percent", 80, "-o", tmp_path / "fewer.json")
    assert heads.status == 0, heads.err
    again = headprune("prune", pruned, "--plan", tmp_path / "fewer.json", "-o", tmp_path / "2.pt")
    assert "EF=33 DL=01" in again.out
    neurons = plan_of(EF=[range(12), ()])
    neurons.save(tmp_path / "neurons.json")
    shown = headprune("show", tmp_path / "neurons.json").out
    assert "12 of 48" in shown and "■" * 5 + "·" * 15 in shown


def test_a_checkpoint_is_a_prunable_model(tmp_path: Path):
    check_prunable_model(write(tmp_path / "full.pt"), tmp_path)


@pytest.mark.parametrize("component", ["EL", "DL"])
def test_a_budget_counts_all_parameters_of_a_dropped_layer(
    full: Checkpoint, component: str
) -> None:
    plan = plan_of(**{component: [(0,), ()]})
    cost = unit_cost("parameters", sizes=full.sizes, shape=plan.units)
    lost = full.parameters - full.prune(plan).parameters
    assert cost(PruningPlan.full(plan.units)) - cost(plan) == lost


def test_averages_of_the_weights(tmp_path: Path):
    """Those of --store-ema are pruned with the weights, and left out of exports."""
    state = content()
    state["optimizer_history"] = [
        {"optimizer_name": "", "lr_scheduler_state": {}, "num_updates": 0}
    ]
    state["extra_state"]["ema"] = dict(state["model"])
    torch.save(state, tmp_path / "full.pt")
    pruned = Checkpoint.load(tmp_path / "full.pt").prune(LAYERS)
    averages, weights = pruned.state["extra_state"]["ema"], pruned.state["model"]
    assert averages.keys() == weights.keys()
    assert all(torch.equal(averages[name], weights[name]) for name in weights)
    assert "ema" not in pruned.export_to_fairseq().state["extra_state"]
    pruned.save(tmp_path / "pruned.pt")
    read = checkpoint_utils.load_checkpoint_to_cpu(str(tmp_path / "pruned.pt"))
    assert take_plan(read["extra_state"]["ema"]) == LAYERS.normalised(UNITS)
    old = {**pruned.state, "extra_state": {"epoch": 1, "ema": dict(state["model"])}}
    torch.save(old, tmp_path / "old.pt")  # of a version that kept them at full size
    read = checkpoint_utils.load_checkpoint_to_cpu(str(tmp_path / "old.pt"))
    assert take_plan(read["extra_state"]["ema"]) is None


def test_quantisation_noise_needs_whole_blocks_of_neurons(tmp_path: Path):
    state = content()
    vars(state["args"]).update(quant_noise_pq=0.1, quant_noise_pq_block_size=8)
    torch.save(state, tmp_path / "full.pt")
    full = Checkpoint.load(tmp_path / "full.pt")
    message = r"EF: layer 0: --quant-noise-pq needs a multiple of 8 neurons .*, not 30"
    with pytest.raises(UsageError, match=message):
        full.prune(RAGGED)
    full.prune(plan_of(EF=[range(32), range(48)]))
    full.prune(LAYERS_ALONE)  # a dropped layer has no blocks
