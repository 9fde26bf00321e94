"""Learned gates in fairseq models: training, closing, and mistakes."""

from __future__ import annotations

import logging
import math
import re
from argparse import Namespace
from pathlib import Path
from typing import Any

import pytest
import torch
from fairseq.criterions.label_smoothed_cross_entropy import LabelSmoothedCrossEntropyCriterion
from fairseq.logging import metrics

from fairseq_plugin.checkpoints import Checkpoint, Options
from fairseq_plugin.criterions.label_smoothed_cross_entropy_with_l0 import (
    LabelSmoothedCrossEntropyWithL0,
)
from fairseq_plugin.learned_gates import target_budget
from headprune import DataError, PruningPlan, UsageError
from headprune.budget import Budget
from tests.command import headprune
from tests.fairseq_plugin.conftest import generate, train
from tests.fairseq_plugin.models import SHAPE, SIZES, Task, batch, build, dictionary
from tests.fairseq_plugin.test_model import (
    assert_same_translations,
    beam_search,
    loss,
    outputs,
    stored,
)
from tests.tensorboard_curves import curves_in

logging.getLogger("fairseq_plugin").setLevel(logging.CRITICAL)

RAGGED = PruningPlan(
    kept={"ES": [(1, 3), ()], "ED": [(0, 1, 2), (2,)], "DS": [(0, 1, 2, 3), (0, 3)]}, units=SHAPE
)


def gated(components: str, *, seed: int = 0, **options: Any) -> Any:
    """A model whose gates are closed, open, and between."""
    model = build(gates=components, **options).eval()
    torch.manual_seed(seed)
    for parameter in model.gates.scaled.values():
        parameter.data = 4 * torch.randn_like(parameter) / model.gates.speed
    return model


def checkpoint_of(model: Any, **options: Any) -> Checkpoint:
    """A checkpoint of a model built with these options, as fairseq saves it."""
    values = {**SIZES, **options, "head_plan": model.plan.to_json(), "head_form": "remove"}
    state = {
        "args": Namespace(arch="transformer_headpruned", **values),
        "model": model.state_dict(),
    }
    return Checkpoint(state=state, options=Options(state["args"]), path=Path("gated.pt"))


def loaded(checkpoint: Checkpoint) -> Any:
    options = {name: value for name, value in checkpoint.options.values.items() if name != "arch"}
    model = build(**options).eval()
    model.load_state_dict(checkpoint.state["model"])
    return model


@pytest.mark.parametrize("before", [True, False])
@pytest.mark.parametrize("plan", [None, RAGGED])
@pytest.mark.parametrize("components", ["ES,ED,DS", "EF,DF,DS", "EL,DL,ED,EF"])
def test_closed_gates_are_folded_into_a_pruned_checkpoint(
    components: str, plan: PruningPlan | None, before: bool
) -> None:
    style = {"encoder_normalize_before": before, "decoder_normalize_before": before}
    model = gated(components, head_plan=None if plan is None else plan.to_json(), **style)
    checkpoint = checkpoint_of(model, gates=components, **style)
    closed = checkpoint.with_gates_closed()
    pruned = loaded(closed)
    torch.testing.assert_close(outputs(pruned), outputs(model), atol=1e-5, rtol=1e-5)
    assert_same_translations(beam_search(pruned), beam_search(model))

    assert closed.plan.counts != checkpoint.plan.counts
    assert closed.plan.is_within(checkpoint.plan.completed(closed.plan.units))
    assert closed.parameters < checkpoint.parameters
    assert closed.gates is None and "gates" not in closed.options.values
    assert not any(name.startswith("gates.") for name in closed.state["model"])
    origin = closed.plan.origin
    assert origin is not None and origin.method == "l0-gates"


def test_new_gates_do_not_change_a_converged_model() -> None:
    full = build().eval()
    model = build(gates="ES,EF,DL", seed=1).eval()
    model.load_state_dict(stored(full))
    assert torch.equal(outputs(model), outputs(full))
    assert float(model.gates.log_alpha("ES", 0)[0].detach()) == 2.5


def test_gates_alone_are_trained_where_asked() -> None:
    model = build(gates="ES,ED,DS", gates_only=True).train()
    loss(model).backward()
    trained = {name for name, parameter in model.named_parameters() if parameter.requires_grad}
    assert trained == {
        f"gates.scaled.{component}_{layer}" for component in SHAPE for layer in (0, 1)
    }
    gradients = [parameter.grad for parameter in model.gates.parameters()]
    assert any(gradient is not None and gradient.any() for gradient in gradients)


def sample() -> dict[str, Any]:
    inputs = batch()
    target = inputs["prev_output_tokens"].roll(-1, dims=1)
    count = int(target.ne(dictionary().pad()).sum())
    return {"net_input": inputs, "target": target, "ntokens": count}


def criterion(**options: Any) -> LabelSmoothedCrossEntropyWithL0:
    task: Any = Task(dictionary(), dictionary())
    return LabelSmoothedCrossEntropyWithL0(task, sentence_avg=False, label_smoothing=0.1, **options)


def test_the_penalty_enters_the_gradient_once_a_token_but_not_the_reported_loss() -> None:
    model = build(gates="ES,EF").train()
    losses = {}
    for weight in (0.0, 0.5):
        torch.manual_seed(3)
        value, size, log = criterion(l0_lambda=weight)(model, sample())
        losses[weight] = value
        assert log["loss"] == losses[0.0].detach() and size == sample()["ntokens"]
    open_units = sum(model.gates.expected_open().values())
    difference = (losses[0.5] - losses[0.0]).detach() / sample()["ntokens"]
    torch.testing.assert_close(difference, (0.5 * open_units).detach())
    model.eval()
    assert (
        criterion(l0_lambda=0.5)(model, sample())[0] == criterion(l0_lambda=0)(model, sample())[0]
    )


def test_validations_have_the_loss_of_the_closed_model() -> None:
    options = {"gates": "ES,ED,DF,EL"}
    model = gated(options["gates"])
    _, size, log = criterion(l0_target="70%")(model, sample())
    checkpoint = checkpoint_of(model, **options, l0_target="70%")
    pruned = loaded(checkpoint.with_gates_closed())
    task: Any = Task(dictionary(), dictionary())
    stock = LabelSmoothedCrossEntropyCriterion(task, False, 0.1)
    expected = float(stock(pruned, sample())[2]["loss"])
    assert float(log["closed_loss"]) == pytest.approx(expected, rel=1e-5)
    assert float(log["loss"]) != pytest.approx(expected, rel=1e-3)
    with metrics.aggregate() as reported:
        LabelSmoothedCrossEntropyWithL0.reduce_metrics([log, log])
    assert reported.get_smoothed_value("closed_loss") == pytest.approx(
        expected / size / math.log(2), abs=1e-3
    )
    assert "closed_loss" not in criterion(l0_lambda=0.1)(model, sample())[2]
    assert "closed_loss" not in criterion(l0_target="70%")(model.train(), sample())[2]


def test_a_target_of_parameters_is_reached() -> None:
    options = {"gates": "ES,ED,DS,EF,DF", "encoder_ffn_embed_dim": 16, "decoder_ffn_embed_dim": 16}
    model = build(**options).train()
    target = criterion(l0_target="60%", l0_target_of="parameters", l0_warmup_updates=40)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    torch.manual_seed(0)
    for update in range(80):
        model.set_num_updates(update)
        value, size, log = target(model, sample())
        optimizer.zero_grad()
        (value / size).backward()
        optimizer.step()
    assert float(log["l0_pruned"]) == pytest.approx(60, abs=8)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"gates": "ES,XY"}, "--gates ES,XY: 'XY' is not one of ES, ED, DS, EF, DF, EL, DL"),
        ({"gates": "ES", "head_form": "mask"}, "--gates needs --head-form remove"),
        ({"gates_only": True}, "--gates-only goes with --gates"),
        ({"gates": "ES", "es_heads": "00"}, "--gates ES: the plan keeps no unit of ES"),
        (
            {"gates": "ES", "gates_speed": -1.0},
            "the speed of the gates is -1.0, it has to be positive",
        ),
    ],
)
def test_gates_that_a_model_cannot_have(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=re.escape(message)):
        build(**options)


def test_options_of_the_criterion_are_checked() -> None:
    for options in ({}, {"l0_lambda": 0.1, "l0_target": "60%"}):
        with pytest.raises(UsageError, match="give one of --l0-lambda and --l0-target"):
            criterion(**options)
    with pytest.raises(UsageError, match="is -1.0, it has to be 0 or more"):
        criterion(l0_lambda=-1.0)
    for other in ({"l0_warmup_updates": 5}, {"l0_target_of": "flops"}):
        with pytest.raises(UsageError, match="go with --l0-target"):
            criterion(l0_lambda=1.0, **other)
    with pytest.raises(UsageError, match="the warm-up of the target is -1 updates"):
        criterion(l0_target="60%", l0_warmup_updates=-1)
    with pytest.raises(UsageError, match="--l0-target: 120.0% is not between 0 and 100"):
        criterion(l0_target="120%")
    with pytest.raises(UsageError, match="contradicts --l0-target-of flops"):
        target_budget("60% of parameters", "flops")
    assert target_budget("60", "flops") == Budget(60, "flops")
    for measure in ("units", "flops"):
        assert target_budget("60% of flops at 9 tokens", measure).of == "flops at 9 tokens"
    with pytest.raises(UsageError, match="the model has no gates"):
        criterion(l0_lambda=0.1)(build(), sample())
    pruned = build(gates="ES", es_heads="10")
    with pytest.raises(UsageError, match="the target of 60% cannot be met: 87.5% are pruned"):
        criterion(l0_target="60%")(pruned, sample())


def test_a_target_that_cannot_be_met_is_found_when_the_model_is_built() -> None:
    """For an error in an update, fairseq saves crash.pt."""
    with pytest.raises(UsageError, match="the target of 60% cannot be met: 87.5% are pruned"):
        build(gates="ES", es_heads="10", l0_target="60%", l0_target_of="units")
    assert build(gates="ES", es_heads="10", l0_target="90%").gates is not None


def test_gates_of_a_checkpoint_are_not_lost() -> None:
    model = gated("ES,ED")
    with pytest.raises(DataError, match="has learned gates on ES,ED, the model has none"):
        build().load_state_dict(stored(model))
    with pytest.raises(DataError, match="not those of --gates ES "):
        build(gates="ES").load_state_dict(stored(model))
    checkpoint = checkpoint_of(model, gates="ES,ED")
    for use in (lambda: checkpoint.prune(RAGGED), checkpoint.export_to_fairseq):
        with pytest.raises(UsageError, match="has learned gates; close them first"):
            use()
    again = build(gates="ES,ED", seed=2).eval()
    again.load_state_dict(stored(model))
    assert torch.equal(outputs(again), outputs(model))
    checkpoint.options["gates"] = "ES"
    with pytest.raises(DataError, match="its gates are not those that its options name"):
        checkpoint.with_gates_closed()


def test_gates_of_a_checkpoint_are_trained_further_at_the_speed_that_is_asked() -> None:
    model = gated("ES,DF,EL", gates_speed=100.0)
    faster = build(gates="ES,DF,EL", gates_speed=400.0, seed=2).eval()
    faster.load_state_dict(stored(model))
    assert float(faster.gates.speed) == 400
    for component, layers in model.gates.plan.kept.items():
        for layer in range(len(layers)):
            expected = model.gates.log_alpha(component, layer)
            torch.testing.assert_close(faster.gates.log_alpha(component, layer), expected)
    torch.testing.assert_close(outputs(faster), outputs(model))
    assert float(model.gates.speed) == 100


def test_a_penalty_that_closes_everything(corpus: Path, tmp_path: Path) -> None:
    model = gated("ES,ED,DS")
    for parameter in model.gates.scaled.values():
        parameter.data.fill_(-4 / float(model.gates.speed))
    checkpoint = checkpoint_of(model, gates="ES,ED,DS")
    checkpoint.save(tmp_path / "gated.pt")
    plan, pruned = tmp_path / "plan.json", tmp_path / "pruned.pt"
    done = headprune("gates", tmp_path / "gated.pt", "-o", plan, "--model", pruned)
    assert done.status == 0, done.err
    assert "every gate of ES, ED, DS is closed; a lower penalty keeps some open" in done.out
    assert Checkpoint.load(pruned).plan.counts == dict.fromkeys(SHAPE, (0, 0))
    saved = (tmp_path / "gated.pt").read_bytes()
    gated_path, other = tmp_path / "gated.pt", tmp_path / "other.pt"
    for outputs_given in (
        ("-o", gated_path),
        ("-o", plan, "--model", gated_path),
        ("-o", other, "--model", other),
    ):
        done = headprune("gates", gated_path, *outputs_given)
        assert "too; give another name" in done.err and done.status != 0
    done = headprune("plan", "--model", gated_path, "--percent", "50", "-o", gated_path)
    assert "is read too; give another name" in done.err
    assert (tmp_path / "gated.pt").read_bytes() == saved and not other.exists()
    for text, measure in (("60%", "units"), ("60% of parameters", "parameters")):
        checkpoint.options.values |= {"l0_target": text, "l0_target_of": measure}
        closed = checkpoint.with_gates_closed().plan.part(SHAPE)
        assert closed is not None and closed.origin is not None
        assert closed.total_kept == round(0.4 * closed.total)
        assert closed.origin.budget == text
    checkpoint.options.values |= {"l0_target": "100%", "l0_target_of": "units"}
    checkpoint.save(tmp_path / "steered.pt")
    done = headprune("gates", tmp_path / "steered.pt", "-o", tmp_path / "all.json")
    assert "every gate of ES, ED, DS is closed; a lower --l0-target keeps some open" in done.out
    done = headprune("export", tmp_path / "gated.pt", "--to", "fairseq", "-o", tmp_path / "x.pt")
    assert "close them first" in done.err and not (tmp_path / "x.pt").exists()
    done = headprune("measure", tmp_path / "gated.pt", "--data", corpus, "-o", tmp_path / "m.json")
    assert "close them first" in done.err and not (tmp_path / "m.json").exists()
    done = headprune("show", tmp_path / "gated.pt")
    assert "learned gates of ES, ED, DS, not closed yet: `headprune gates " in done.out
    done = headprune("gates", tmp_path / "gated.pt", "-o", plan, "--log", "train.log")
    assert "--log is read for --figure alone; give --figure FILE too" in done.err
    done = headprune("gates", tmp_path / "gated.pt", "-o", plan, "--figure", "gates.png")
    assert done.err.strip().endswith(
        "--figure needs --log, the file that fairseq-train's output is in"
    )


def test_a_model_with_gates_is_not_scripted() -> None:
    with pytest.raises(UsageError, match="TorchScript cannot compile learned gates"):
        torch.jit.script(gated("ES"))


@pytest.mark.slow
def test_train_close_and_translate(corpus: Path, full: Path, tmp_path: Path) -> None:
    log = train(
        *(corpus, tmp_path, "--arch=transformer_headpruned_tiny"),
        *(f"--finetune-from-model={full}", "--criterion=label_smoothed_cross_entropy_with_l0"),
        *("--gates=ES,ED,DS", "--l0-target=50%", "--l0-warmup-updates=5"),
        f"--tensorboard-logdir={tmp_path / 'curves'}",
        epochs=2,
    )
    assert {"open_ES", "kept_DS", "l0_pruned"} <= curves_in(tmp_path / "curves")
    last = tmp_path / "checkpoint_last.pt"
    for key in ("train_open_ES", "valid_kept_DS", "train_l0_pruned", "train_l0_multiplier"):
        assert re.search(rf'"{key}": "[0-9.]+"', log), key
    plan, pruned = tmp_path / "plan.json", tmp_path / "pruned.pt"
    done = headprune("gates", last, "-o", plan, "--model", pruned)
    assert done.status == 0, done.err
    closed = PruningPlan.load(plan)
    assert closed.total_kept == closed.total // 2
    generate(corpus, f"--path={last}")
    generate(corpus, f"--path={pruned}")
    assert headprune("gates", pruned, "-o", plan).err.strip().endswith("has no learned gates")
    stock = tmp_path / "stock.pt"
    assert headprune("export", pruned, "--to", "fairseq", "-o", stock).status == 0
    generate(corpus, f"--path={stock}", plugin=False)
