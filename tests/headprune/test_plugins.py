"""Plugins: what a package from outside adds to the command by its entry points alone."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import headprune

PACKAGE = Path(headprune.__file__).parent

IMPORTED = "raise RuntimeError('the whole package is imported')"

BACKEND = '''
"""A model is a text file that begins with "toy" and names the kept heads of its one layer."""

from dataclasses import dataclass, replace

from headprune import HeadPlan, UsageError
from headprune.backends import ExportTarget
from headprune.cost import Sizes
from headprune.scores.head_scores import HeadScores
from headprune.scores.registry import Scoring, score_named
from headprune.task_model import Measurement


@dataclass
class ToyWithData:
    """Its accuracy is the sum of the numbers of its heads."""

    model: "Model"
    metric = "accuracy"
    task = "toys"
    data_name = "toys.test"
    finetune_name = "none"
    can_finetune = False

    @property
    def settings(self):
        return {"model": str(self.model.path)}

    def scores(self, names, *, seed, components=None):
        values = {"ES": [[0.0, 1.0, 2.0, 3.0]]}
        scoring = Scoring(model=self, components=["ES"], batches=lambda purpose: [])
        numbers = {
            name: score_named(name).function()(scoring, [name])[name].values
            if name == "luck"
            else values
            for name in names
        }
        p_values = {"ES": [[1.0] * 4]}
        return {
            name: HeadScores(
                name=name,
                values=numbers[name],
                p_values=p_values if name == "ablation" else {},
                settings={"metric": "accuracy", "base": 6.0} if name == "ablation" else {},
            )
            for name in names
        }

    def measure(self, plan=None):
        return Measurement(float(sum((plan or self.model.plan).kept["ES"][0])))

    def pruned(self, plan, folder):
        return replace(self, model=self.model.prune(plan))


class Model:
    sizes = Sizes(encoder_width=8, encoder_feed_forward=16, encoder_head_dim=2, vocabulary=0)
    form = "remove"
    shape = {"ES": (4,)}
    fingerprint = "toys"

    def __init__(self, path, plan):
        self.path, self.plan = path, plan

    @property
    def parameters(self):
        return 100 * self.plan.total_kept

    unpruned_parameters = 400

    def parameters_with(self, plan):
        return 100 * plan.total_kept

    def prune(self, plan, *, form="remove"):
        return Model(self.path, plan)

    def save(self, path):
        path.write_text("toy " + " ".join(map(str, self.plan.kept["ES"][0])))


class Backend:
    models = "a toy file"
    pruned_help = "A pruned toy file is played with."
    export_targets = {"capitals": ExportTarget(summary="a louder toy", description="It is loud.")}

    def recognises(self, model):
        with open(model) as file:
            return file.read(3) == "toy"

    def open(self, path):
        kept = [int(head) for head in path.read_text().split()[1:]]
        return Model(path, HeadPlan(kept={"ES": [kept]}, heads={"ES": [4]}))

    def export(self, path, *, target, output, given):
        output.write_text(path.read_text().upper())
        return "loud"

    def score(self, model, request, *, given):
        raise UsageError("toys have no scores")

    def task_model(self, path, *, output, finetune, max_examples, watch, given):
        return ToyWithData(self.open(path))


backend = Backend()
'''

SCORE = """
from headprune.scores.registry import Computed, Score


def compute(scoring, names):
    return {name: Computed(values={"ES": [[3.0, 1.0, 2.0, 0.0]]}) for name in names}


score = Score(name="luck", meaning="the luck of a head", compute=compute, components=("ES",))
"""

METHOD = """
from headprune import PruningPlan
from headprune.methods.method import Outcome


class LastHeads:
    name = "last"
    meaning = "the last heads of each layer"
    needs_scores = ()
    needs_model = False
    draws = False

    def run(self, request):
        count = request.budget.number_kept(4)
        kept = {"ES": [range(4 - count, 4)]}
        return Outcome(plan=PruningPlan(kept=kept, units=request.plan.units))


method = LastHeads()
"""

COMMAND = '''
from typing import Annotated

import typer

app = typer.Typer(add_completion=False)


@app.command()
def play(name: Annotated[str, typer.Argument(help="Name of the toy.")]) -> None:
    """Play with a toy."""
    print(f"playing with {name}")
'''

ENTRY_POINTS = """
[headprune.backends]
toy.file = toy_plugin.backend:backend
[headprune.commands]
play = toy_plugin.parts.command:app
[headprune.scores]
luck = toy_plugin.scoring:score
[headprune.methods]
last = toy_plugin.choosing:method
"""


def install(folder: Path, entry_points: str = ENTRY_POINTS) -> None:
    """Write a distribution as pip leaves it, whose package cannot be imported as a whole."""
    for name, text in {
        "toy_plugin/__init__.py": IMPORTED,
        "toy_plugin/backend.py": BACKEND,
        "toy_plugin/scoring.py": SCORE,
        "toy_plugin/choosing.py": METHOD,
        "toy_plugin/parts/__init__.py": IMPORTED,
        "toy_plugin/parts/command.py": COMMAND,
        "toy-1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: toy\nVersion: 1.0\n",
        "toy-1.0.dist-info/entry_points.txt": entry_points,
    }.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    install(tmp_path / "site")
    (tmp_path / "model").write_text("toy 0 2 3")
    return tmp_path


def run(folder: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(PACKAGE.parent), str(folder / "site")])
    return subprocess.run(
        [sys.executable, "-m", "headprune.cli", *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": path, "COLUMNS": "200", "TERM": "dumb"},
    )


def output(folder: Path, *arguments: object) -> str:
    done = run(folder, *arguments)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_a_registered_backend_opens_its_models(installed: Path) -> None:
    shown = " ".join(output(installed, "show", "model").split())
    assert "heads 3 of 4 kept, 25.0% pruned" in shown
    assert "parameters 400 -> 300 (25.0% less)" in shown
    planned = ("plan", "--model", "model", "--percent", 50, "-o", "plan.json")
    assert "plan.json: ES=2 (50.0% of heads pruned)" in output(installed, *planned)
    pruned = output(installed, "prune", "model", "--plan", "plan.json", "-o", "pruned")
    assert "300 -> 200 parameters" in pruned
    assert re.fullmatch(r"toy \d \d", (installed / "pruned").read_text())
    exported = output(installed, "export", "model", "--to", "capitals", "-o", "exported")
    assert exported == "exported: loud\n"
    assert (installed / "exported").read_text() == "TOY 0 2 3"


def test_a_registered_backend_is_in_the_help(installed: Path) -> None:
    assert "a toy file" in output(installed, "show", "--help")
    assert "A pruned toy file is played with." in output(installed, "prune", "--help")
    exporting = output(installed, "export", "--help")
    assert "capitals: a louder toy" in exporting and "It is loud." in exporting


def test_a_registered_backend_refuses_in_one_line(installed: Path) -> None:
    done = run(installed, "scores", "model", "-o", "scores")
    assert (done.returncode, done.stderr) == (2, "error: toys have no scores\n")
    (installed / "text").write_text("no model")
    done = run(installed, "prune", "text", "--plan", "plan.json", "-o", "out")
    assert done.returncode == 1
    assert done.stderr == (
        "error: text: not the file of a model; give a fairseq checkpoint (.pt) or a toy file\n"
    )


def test_a_registered_command_is_listed_last_and_runs(installed: Path) -> None:
    listed = re.findall(r"^│ (\w+) ", output(installed, "--help"), flags=re.M)
    assert listed == [
        *("plan", "show", "prune", "gates", "vocabulary", "shortlist", "export", "bleu"),
        *("report", "claims", "difference"),
        *("glue", "changes", "finetune", "measure", "speed", "latency", "scores", "compare"),
        *("iterate", "subnetworks", "overlap", "translate", "play"),
    ]
    assert "Play with a toy." in output(installed, "--help")
    assert output(installed, "play", "bear") == "playing with bear\n"
    assert "Name of the toy." in output(installed, "play", "-h")


def test_a_registered_score_and_method_are_in_the_help_and_in_comparisons(installed: Path) -> None:
    assert "luck" in output(installed, "scores", "--help")
    assert "last, the last heads of each layer" in " ".join(
        output(installed, "plan", "--help").replace("│", " ").split()
    )
    helped = output(installed, "compare", "--help")
    assert "luck" in helped and "last" in helped
    (installed / "whole").write_text("toy 0 1 2 3")
    compared = ("--score", "luck", "--score", "last", "--percent", 50, "--rounds", 0)
    done = run(installed, "compare", "whole", *compared, "-o", "out")
    assert done.returncode == 0, done.stderr
    table = (installed / "out" / "compare.md").read_text()
    # Heads 0 and 2 are the lucky ones, 2 and 3 the last.
    assert re.search(r"^\| luck +\| +2\.00 \|$", table, flags=re.M), table
    assert re.search(r"^\| last +\| +5\.00 \|$", table, flags=re.M), table
    planned = ("plan", "--model", "whole", "--method", "last", "--percent", 25, "-o", "plan.json")
    output(installed, *planned)
    assert headprune.HeadPlan.load(installed / "plan.json").kept == {"ES": ((1, 2, 3),)}


def test_a_broken_plugin_is_left_out_and_named(tmp_path: Path) -> None:
    entry_points = "[headprune.commands]\nplay = toy_plugin.gone:app\n"
    install(tmp_path / "site", entry_points)
    done = run(tmp_path, "--help")
    assert done.returncode == 0 and " translate " in done.stdout and " play " not in done.stdout
    assert done.stderr == (
        "warning: play of headprune.commands is left out: toy_plugin.gone:app cannot be loaded "
        "(the whole package is imported)\n"
    )
    assert run(tmp_path, "play").returncode == 2
    assert run(tmp_path, "plan", "--percent", 50).stderr == ""


def test_no_module_of_the_core_names_a_plugin() -> None:
    named = [
        str(path.relative_to(PACKAGE))
        for path in PACKAGE.rglob("*.py")
        if re.search(r"fairseq_plugin|hf_plugin", path.read_text(encoding="utf-8"))
    ]
    assert named == []


@pytest.mark.parametrize("name", [*headprune.__all__, "plan", "backends", "errors"])
def test_names_of_the_package_are_imported_when_they_are_used(name: str) -> None:
    code = f"import headprune, sys; print('headprune.plan' in sys.modules); headprune.{name}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "False\n"), done.stderr


def test_the_package_has_no_other_names() -> None:
    with pytest.raises(AttributeError, match="module 'headprune' has no attribute 'luck'"):
        headprune.luck  # type: ignore[attr-defined]  # noqa: B018
