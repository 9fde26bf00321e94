"""Fine-tunings with learned gates, with LayerDrop and from random weights."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForSequenceClassification
from typer.testing import CliRunner

import hf_plugin
from headprune import Budget, UsageError
from headprune.cli.compare import app as compare_app
from headprune.recovery.variant import GateTraining, Variant
from headprune.results.record import Record
from headprune.select import at_random
from hf_plugin.cli.finetune import app
from hf_plugin.finetuning.run import run
from hf_plugin.finetuning.settings import Labels
from tests.hf_plugin.made import SHAPE, settings, write_model
from tests.tensorboard_curves import curves_in

from .test_run import killed_after_a_checkpoint, weights

HALF = Variant(gates=GateTraining(components=("ES",), budget=Budget(50)))


def loaded(folder: Path) -> torch.nn.Module:
    return AutoModelForSequenceClassification.from_pretrained(folder)


def test_gates_are_trained_and_closed_and_a_killed_training_gives_the_same(
    model, glue, tmp_path, monkeypatch
):
    wanted = settings("rte", model, glue, variant=HALF, epochs=2)
    record = run(wanted, Labels(), tmp_path / "whole")
    assert record.plan.percent_pruned == 50
    assert record.form == "remove" and "|form:remove|" in record.signature
    assert "|select:l0-gates|" in record.signature
    assert hf_plugin.plan(loaded(tmp_path / "whole" / "model")) == record.plan
    with killed_after_a_checkpoint(monkeypatch):
        run(wanted, Labels(), tmp_path / "killed")
    with pytest.raises(UsageError, match=r"other settings \(.*gates, l0_target"):
        run(settings("rte", model, glue, epochs=2), Labels(), tmp_path / "killed")
    resumed = run(wanted, Labels(), tmp_path / "killed")
    assert resumed.training["resumed"] is True and resumed.plan == record.plan
    first, second = (weights(tmp_path / name / "model") for name in ("whole", "killed"))
    assert first.keys() == second.keys()
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_random_weights_and_layerdrop(model, glue, tmp_path):
    plain = run(settings("rte", model, glue), Labels(), tmp_path / "plain")
    scratch = settings("rte", model, glue, variant=Variant(from_scratch=True))
    drop = settings("rte", model, glue, variant=Variant(layerdrop=0.5))
    records = {
        "scratch": run(scratch, Labels(), tmp_path / "scratch"),
        "drop": run(drop, Labels(), tmp_path / "drop"),
    }
    start = loaded(model).state_dict()
    name = next(key for key in start if "attention" in key and key.endswith("query.weight"))

    def distance(folder: str) -> float:
        return float((loaded(tmp_path / folder / "model").state_dict()[name] - start[name]).norm())

    # One epoch hardly moves trained weights; random ones are far from them.
    assert distance("scratch") > 3 * distance("plain") > 0 and distance("drop") > 0
    assert distance("drop") != distance("plain")
    # LayerDrop is a matter of the training: the saved model has all layers, in evaluation too.
    assert records["drop"].plan == plain.plan
    assert records["scratch"].training["settings"]["from_scratch"] is True
    assert "from_scratch" not in plain.training["settings"]
    assert "|finetune:2ep,layerdrop=0.5|" in records["drop"].signature
    assert "|finetune:2ep,from-scratch|" in records["scratch"].signature


@pytest.mark.parametrize("protocol", ["prune-finetune", "finetune-prune-finetune"])
def test_layerdrop_is_refused_before_training_where_it_would_do_nothing(protocol, glue, tmp_path):
    albert = write_model(tmp_path / "albert", family="albert", embedding_size=8)
    drop = Variant(layerdrop=0.2)
    wanted = settings("rte", albert, glue, variant=drop, protocol=protocol, epochs=1)
    with pytest.raises(UsageError, match="LayerDrop: the albert model has no layers that can be"):
        run(wanted, Labels(), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def command(app, *arguments: object) -> str:
    """Run a command; returns its errors and warnings."""
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    if result.exception is not None:
        raise result.exception
    return result.stderr


def test_a_penalty_that_closes_everything_says_so(model, glue, tmp_path):
    common = (model, "--task", "rte", "--data-dir", glue, "--max-length", 24, "--epochs", 2)
    fast = ("--gates", "ES", "--learning-rate", 3e-2, "--batch-size", 4)
    warnings = command(app, *common, *fast, "--l0-lambda", 1000.0, "-o", tmp_path / "out")
    assert not sum(Record.load(tmp_path / "out" / "result.json").plan.counts["ES"])
    message = "warning: every gate of ES is closed; a lower penalty keeps some open\n"
    assert message in warnings


def test_the_command(model, glue, tmp_path):
    common = (model, "--task", "rte", "--data-dir", glue, "--max-length", 24, "--epochs", 1)
    out, curves = tmp_path / "out", tmp_path / "curves"
    options = ("--l0-target", "50% of parameters", "--tensorboard", curves)
    command(app, *common, "--gates", "ES,EF", *options, "-o", out)
    assert {"train/loss", "train/open_ES", "train/open_EF"} <= curves_in(curves)
    record = Record.load(out / "result.json")
    assert {"ES", "EF"} <= set(record.plan.units) and record.plan.percent_pruned > 0
    few, many = (tmp_path / name for name in ("few", "many"))
    fast = ("--gates", "ES,EF", "--learning-rate", 1e-2, "--batch-size", 4)
    for penalty, folder in ((0.0, many), (100.0, few)):
        command(app, *common, *fast, "--l0-lambda", penalty, "-o", folder)
    left = {each.name: Record.load(each / "result.json").parameters for each in (few, many)}
    assert left["few"] < left["many"]
    open_gates = Record.load(many / "result.json")
    assert (open_gates.kind, open_gates.row) == ("pruned", "lambda 0")
    assert "|finetune:1ep,l0-lambda=0|" in open_gates.signature
    # The same penalty closes no gate that learns slowly.
    slow = ("--l0-lambda", 100.0, "--gates-speed", 1e-3)
    command(app, *common, *fast, *slow, "-o", tmp_path / "slow")
    with_slow_gates = Record.load(tmp_path / "slow" / "result.json")
    assert with_slow_gates.plan.percent_pruned == 0
    assert "|finetune:1ep,l0-lambda=100,gates-speed=0.001|" in with_slow_gates.signature
    for options, message in (
        (("--gates", "ES"), "--gates goes with one of --l0-target and --l0-lambda"),
        (("--l0-target", "50%"), "--l0-target and --l0-lambda go with --gates"),
        (("--l0-lambda", 0.1), "--l0-target and --l0-lambda go with --gates"),
        (("--gates-speed", 10), "--gates-speed goes with --gates"),
        (("--gates", "ES", "--l0-lambda", 1, "--gates-speed", 0), "has to be positive"),
        (("--gates", "ES", "--l0-lambda", 0.1, "--l0-target", "50%"), "with one of --l0-target"),
        (("--gates", "ES", "--l0-lambda", -1), r"the L0 weight \(lambda\) is -1"),
        (("--gates", "QQ", "--l0-target", "50%"), "--gates 'QQ': 'QQ' is not one of"),
        (("--gates", "ED", "--l0-target", "50%"), "'ED' is not one of"),
        (("--gates", "ES", "--l0-target", "50%", "--form", "mask"), "give --form remove"),
        (("--gates", "ES", "--l0-target", "50%", "--epochs", 0), "give one epoch or more"),
        (("--layerdrop", 1), "--layerdrop 1: give a probability"),
    ):
        with pytest.raises(UsageError, match=message):
            command(app, *common, *options, "-o", tmp_path / "refused")
    plan = tmp_path / "plan.json"
    at_random(SHAPE, percent=50, seed=1).save(plan)
    with pytest.raises(UsageError, match="target of 20% cannot be met: 50.0% are pruned already"):
        options = ("--gates", "ES", "--l0-target", "20%", "--plan", plan)
        command(app, *common, *options, "-o", tmp_path / "refused")
    assert not (tmp_path / "refused").exists()


@pytest.mark.slow
def test_methods_that_train_in_a_comparison(model, glue, tmp_path):
    start = tmp_path / "start"
    run(settings("rte", model, glue), Labels(), start)
    common = (start / "model", "--task", "rte", "--data-dir", glue, "--max-length", 24)
    more = ("--percent", 50, "--seeds", 1, "--rounds", 0)
    command(compare_app, *common, *more, "--score", "l0-gates", "-o", tmp_path / "gates")
    layers = ("--components", "EL", "--score", "layerdrop", "--score", "layers-top")
    command(compare_app, *common, *more, *layers, "--recovery", "scratch", "-o", tmp_path / "drop")
    for folder, method in (("gates", "l0-gates"), ("drop", "layerdrop")):
        found = json.loads((tmp_path / folder / "compare.json").read_text())
        (row,) = (row for row in found["rows"] if row["score"] == method)
        assert row["after"] is not None
        assert found["costs"][method] > 0
        (record,) = (tmp_path / folder / "records").glob(f"before-finetune/{method}/*/*.json")
        assert f"|select:{method}|" in Record.load(record).signature
