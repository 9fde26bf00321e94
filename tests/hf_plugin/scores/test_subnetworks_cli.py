"""`headprune subnetworks` and `headprune overlap` on tiny classifiers."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from headprune import PruningPlan
from headprune.cli import app
from headprune.errors import UsageError
from headprune.results.predictions import read_correct
from headprune.results.record import Record
from headprune.subnetworks.run import find_subnetworks
from headprune.subnetworks.search import Rules
from hf_plugin.finetuning.run import run
from hf_plugin.finetuning.settings import Labels
from hf_plugin.folders import Folder
from hf_plugin.scores.classifier import Classifier
from tests.hf_plugin.made import SHAPE, settings, write_model, write_task


def headprune(*arguments: object) -> Result:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    if result.exception is not None:
        raise result.exception
    return result


@pytest.mark.parametrize(
    ("family", "options", "message"),
    [
        ("bert", {"hidden_act": "relu"}, "hidden_act relu instead of gelu"),
        ("bert", {"max_position_embeddings": 40}, "max_position_embeddings 40 instead of 32"),
        ("electra", {}, "model_type electra instead of bert"),
    ],
)
def test_a_model_of_another_architecture_to_restart_from(
    family: str, options: dict[str, Any], message: str, tmp_path: Path
) -> None:
    tuned = write_model(tmp_path / "tuned")
    other = write_model(tmp_path / "other", family=family, **options)
    given = settings("sst2", tuned, tmp_path, epochs=1.0)
    with pytest.raises(UsageError, match=f"is of another architecture than .*{message}"):
        find_subnetworks(
            [Classifier(path=tuned, finetuning=given)],
            rules=Rules(),
            folder=tmp_path / "out",
            restart_from=other,
        )
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_sub_networks_of_heads_and_mlps(tmp_path: Path) -> None:
    glue = write_task(tmp_path / "glue", "sst2")
    encoder = write_model(tmp_path / "encoder", num_labels=5)  # no classifier for SST-2
    models = []
    for seed in (1, 2):
        given = settings("sst2", encoder, glue, seed=seed, epochs=1.0, hold_out=50.0)
        run(given, Labels(), tmp_path / f"seed{seed}")
        models.append(tmp_path / f"seed{seed}" / "model")
    options = ("--task", "sst2", "--data-dir", glue, "--max-length", 32, "--hold-out", 50)
    more = ("--components", "ES,EF", "--step", 50, "--threshold", 80, "--epochs", 1)
    out = tmp_path / "out"
    result = headprune("subnetworks", *models, *options, *more, "-o", out)
    assert "MLPs; mean of 1 pair of 2 models" in result.stdout
    plans = [PruningPlan.load(path) for path in sorted(out.glob("plans/seed1/*.json"))]
    assert len(plans) == 4
    for plan in plans:  # whole MLPs
        units = plan.completed({**SHAPE, "EF": (16, 16, 16)}).counts["EF"]
        assert set(units) <= {0, 16}
    values = json.loads((out / "subnetworks.json").read_text())
    assert values["metric"] == "accuracy" and len(values["networks"]) == 8
    assert all(each["after"] is not None for each in values["networks"])
    # The record's figure is that of the pruned model.
    record = Record.load(out / "records" / "before-finetune" / "bad" / "seed2.json")
    for path in (out / "records").rglob("seed*.json"):
        measured = Record.load(path)
        predictions = path.parent / measured.files["predictions"]
        assert predictions.resolve().is_relative_to(out / "records" / "outputs")
        correct = read_correct(predictions)
        assert 100 * sum(correct) / len(correct) == pytest.approx(measured.value)
    plan = PruningPlan.load(out / "plans" / "seed2" / "bad.json")
    assert record.fingerprint == Folder.load(models[1]).prune(plan).fingerprint
    assert record.plan == plan
    # Scores on other examples than the choices, also of models that are pruned already.
    for path in (out / "model1" / "scores").glob("step*.json"):
        facts = json.loads(path.read_text())["settings"]
        assert (facts["part"], facts["trained-on"]) == ("scoring", "no")
    again = headprune("subnetworks", *models, *options, *more, "-o", out)
    assert again.stdout == result.stdout

    other = shutil.copytree(out, tmp_path / "other")
    over = headprune("overlap", "--of", f"a={out}", "--of", f"b={other}", "-o", tmp_path / "over")
    assert "| a " in over.stdout and (tmp_path / "over" / "survival.png").exists()
    assert json.loads((tmp_path / "over" / "overlap.json").read_text())["seeds"] == 2
