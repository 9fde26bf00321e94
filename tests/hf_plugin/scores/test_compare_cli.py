"""`headprune compare` and `headprune iterate` on a tiny classifier."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import BertForSequenceClassification
from typer.testing import CliRunner, Result

from headprune import HeadPlan, PruningPlan
from headprune.cli import app
from headprune.compare.claimed_folder import claim
from headprune.compare.comparison import Comparison
from headprune.compare.run import compare
from headprune.errors import HeadpruneError, UsageError
from headprune.recovery.kinds import Recovery
from headprune.results.marks import CONSTANT
from headprune.results.predictions import read_correct
from headprune.results.record import Record
from headprune.task_model import TaskModel
from hf_plugin.finetuning.held_out import held_out, record_training
from hf_plugin.finetuning.run import run
from hf_plugin.finetuning.settings import Labels, Settings
from hf_plugin.folders import Folder
from hf_plugin.glue.data import GlueData
from hf_plugin.glue.tasks import TASKS
from hf_plugin.scores.classifier import Classifier
from tests.hf_plugin.made import SHAPE, write_model, write_task
from tests.latency_files import write_latency


@pytest.fixture(scope="module")
def classifier(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("classifier"))


@pytest.fixture(scope="module")
def glue(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("glue")
    for task in ("sst2", "stsb"):
        write_task(folder, task)
    return folder


def headprune(*arguments: object) -> Result:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    if result.exception is not None:
        raise result.exception
    return result


def test_compare_from_a_classifier_to_tables_and_figures(classifier, glue, tmp_path):
    options = ("--task", "sst2", "--data-dir", glue, "--score", "gradient", "--score", "alone")
    more = (
        "--max-length",
        32,
        "--percent",
        25,
        "--percent",
        50,
        "--seeds",
        2,
        "--rounds",
        1,
        "-o",
        tmp_path,
    )
    result = headprune("compare", classifier, *options, *more)
    assert "After fine-tuning, at 50%, " in result.stdout
    found = json.loads((tmp_path / "compare.json").read_text())
    assert found["metric"] == "accuracy" and set(found["speedups"]) == {"25", "50"}
    by_score = {row["score"] for row in found["rows"]}
    assert by_score == {"control", "gradient", "alone", "random"}
    text = (tmp_path / "compare.md").read_text()
    assert "data:glue.sst2[-10%],32tok|" in text and "finetune:1ep" in text
    records = [*(tmp_path / "records").rglob("*.json")]
    for path in records:
        record = Record.load(path)
        correct = read_correct(path.parent / record.files["predictions"])
        assert sum(correct) / len(correct) * 100 == pytest.approx(record.value)
    # gradient and alone, unless a model of theirs gives the same output for every example.
    cells = [
        [
            Record.load(path)
            for name in ("gradient", "alone")
            for path in folder.glob(f"{name}/{p}/*")
        ]
        for folder in (tmp_path / "records" / "before-finetune", tmp_path / "records" / "pruned")
        for p in ("25pct", "50pct")
    ]
    tested = [cell for cell in cells if not any(each.training.get(CONSTANT) for each in cell)]
    assert all(cells)
    assert [test["examples"] for test in found.get("pairs", [])] == [len(correct)] * len(tested)
    again = headprune("compare", classifier, *options, *more)
    assert again.stdout == result.stdout


def test_compare_at_a_speed(classifier, glue, tmp_path):
    latency = write_latency(Folder.load(classifier), tmp_path / "latency.json", job="forward")
    options = ("--task", "sst2", "--data-dir", glue, "--max-length", 32, "--epochs", 0)
    speed = ("--components", "ES,EF,EL", "--speedup", 1.5, "--latency", tmp_path / "latency.json")
    few = ("--seeds", 1, "--random-seeds", 2, "--recovery", "none", "-o", tmp_path / "out")
    few = (*few, "--verify", 0)
    names = ("taylor-molchanov", "kwon", "iterate", "subnetwork", "top", "layers-top")
    names = (*names, "gradient-raw-important-first")
    scores = [part for name in names for part in ("--score", name)]
    headprune("compare", classifier, *options, *speed, *scores, *few, "--rounds", 1)
    found = json.loads((tmp_path / "out" / "compare.json").read_text())
    assert found["measure"] == "speed" and {*found["speedups_by_method"]} == {*names, "random"}
    assert all(times["1.5"][0] > 0 for times in found["speedups_by_method"].values())
    layer = latency.saving("EL", 0)
    for row in found["rows"]:
        plan = PruningPlan.from_json(json.dumps(row["plan"]), source="row")
        seconds = latency.seconds_of(plan)
        assert seconds <= 1 / 1.5 + 1e-9 and seconds + layer > 1 / 1.5, row["score"]
        assert row["predicted_speedup"] == pytest.approx(1 / seconds)
    kept = {row["score"]: row["plan"]["kept"] for row in found["rows"]}
    assert all(len(units) == 4 for units in kept["layers-top"]["ES"] if units)


def test_methods_that_train_stand_beside_others_at_a_speed(classifier, glue, tmp_path):
    """LayerDrop drops layers where heads compete too. Models that were trained are re-fitted."""
    write_latency(Folder.load(classifier), tmp_path / "latency.json", job="forward")
    options = ("--task", "sst2", "--data-dir", glue, "--max-length", 32, "--epochs", 1)
    speed = ("--components", "ES,EL", "--speedup", 1.3, "--latency", tmp_path / "latency.json")
    few = ("--seeds", 1, "--rounds", 0, "--recovery", "refit", "-o", tmp_path / "out")
    scores = ("--score", "layerdrop", "--score", "l0-gates", "--score", "magnitude")
    headprune("compare", classifier, *options, *speed, *scores, *few)
    found = json.loads((tmp_path / "out" / "compare.json").read_text())
    assert found["verify"] == 3
    by_score = {row["score"]: row for row in found["rows"]}
    assert {*by_score} == {"layerdrop", "l0-gates", "magnitude", "random"}
    for name in ("layerdrop", "l0-gates"):
        assert by_score[name]["recovery"] == "refit" and by_score[name]["after"] is not None
    kept = by_score["layerdrop"]["plan"]["kept"]
    assert all(len(heads) in (0, 4) for heads in kept["ES"]) and [] in kept["EL"]
    notes = (tmp_path / "out" / "compare.md").read_text()
    assert "layerdrop: re-fitted after its own training" in notes
    with pytest.raises(UsageError, match="layerdrop drops whole layers; give --components EL"):
        share = ("--components", "EF", "--percent", 50, "-o", tmp_path / "share")
        headprune("compare", classifier, *options, "--score", "layerdrop", *share)


def test_neurons_of_a_model_with_a_dropped_layer_are_compared(classifier, glue, tmp_path):
    """They went with their layer, so that no method can choose among them."""
    PruningPlan(kept={"EL": [(0,), (), (0,)]}, units={"EL": (1, 1, 1)}).save(tmp_path / "plan.json")
    headprune("prune", classifier, "--plan", tmp_path / "plan.json", "-o", tmp_path / "two")
    options = ("--task", "sst2", "--data-dir", glue, "--max-length", 32, "--epochs", 0)
    names = ("taylor", "kwon", "iterate", "subnetwork")
    scores = [part for name in names for part in ("--score", name)]
    more = ("--components", "EF", "--percent", 70, "--seeds", 1, "--rounds", 0, "--at-least", 0)
    recovery = ("--recovery", "none", "-o", tmp_path / "out")
    headprune("compare", tmp_path / "two", *options, *scores, *more, *recovery)
    found = json.loads((tmp_path / "out" / "compare.json").read_text())
    assert {row["score"] for row in found["rows"]} == {*names, "random"}
    assert "subnetwork prunes whole MLPs" in (tmp_path / "out" / "compare.md").read_text()
    for row in found["rows"]:
        kept = PruningPlan.from_json(json.dumps(row["plan"]), source="row").kept["EF"]
        assert kept[1] == ()
        whole = row["score"] == "subnetwork"
        assert sum(map(len, kept)) == (0 if whole else 14), row["score"]  # of 48; 16 went before


def test_the_experiment_of_attention_guided_pruning(glue, tmp_path):
    """The command of the guide, on a tiny encoder of six layers and with fewer models."""
    guide = (Path(__file__).parents[3] / "docs" / "guides" / "scores.md").read_text()
    (line,) = re.findall("^headprune compare runs/distilbert/model .*$", guide, re.MULTILINE)
    model = write_model(tmp_path / "model", family="distilbert", n_layers=6)
    line = line.replace("runs/distilbert/model", str(model)).replace("GLUE", str(glue))
    line = re.sub("--percent [137]0 |--random-seeds 6", "", line)
    line = line.replace("runs/attention-guided", str(tmp_path / "out"))
    few = ("--seeds", 1, "--rounds", 1, "--max-length", 32)
    headprune(*shlex.split(line)[1:], *few)
    found = json.loads((tmp_path / "out" / "compare.json").read_text())
    rows = {row["score"]: row for row in found["rows"]}
    chosen = {"entropy", "sparsity", "distribution", "combination", "magnitude", "random"}
    assert set(rows) == {"control", *chosen} and set(found["speedups"]) == {"50"}
    whole = rows.pop("control")
    for row in rows.values():
        assert row["before"] is not None and row["after"] is not None
        assert row["parameters"] < whole["parameters"] and row["flops"] < whole["flops"]
    table = (tmp_path / "out" / "compare.md").read_text()
    assert "parameters" in table and "FLOPs" in table


def test_what_is_measured_is_what_the_glue_command_measures(classifier, glue, tmp_path):
    settings = Settings(
        task="sst2",
        model=str(classifier),
        epochs=0,
        batch_size=4,
        learning_rate=1e-4,
        max_length=32,
        data_dir=glue,
    )
    plan = HeadPlan(kept={"ES": [(0,), (), (1, 2)]}, heads=SHAPE)
    whole = Classifier(path=classifier, finetuning=settings)
    pruned = whole.pruned(plan, tmp_path / "pruned")
    assert isinstance(whole, TaskModel) and isinstance(pruned, TaskModel)
    result = run(replace(settings, plan=plan), Labels(), tmp_path / "run")
    measured = pruned.measure()
    assert measured.value == pytest.approx(result.value)
    # In the order of the file, so that models of both commands can be tested against each other.
    assert measured.outputs["predictions"] == (tmp_path / "run" / "predictions.tsv").read_text()
    assert measured.fingerprint == result.fingerprint == pruned.model.fingerprint
    assert whole.measure(plan) == measured
    assert whole.measure().value == Classifier(path=classifier, finetuning=settings).measure().value
    assert pruned.model.plan == plan
    assert whole.model.parameters_with(HeadPlan.full(SHAPE)) == Folder.load(classifier).parameters
    assert whole.model.parameters_with(plan) == Folder.load(tmp_path / "pruned").parameters


def test_choices_are_measured_on_the_held_out_examples_of_ablation(classifier, glue, tmp_path):
    settings = Settings(
        task="sst2",
        model=str(classifier),
        epochs=1,
        batch_size=4,
        learning_rate=1e-4,
        max_length=32,
        hold_out=50.0,
        data_dir=glue,
    )
    whole = Classifier(path=classifier, finetuning=settings)
    parts = [settings.training_part]
    divided = held_out(settings.data.load("train"), model=classifier, parts=parts)
    assert len(divided.ablation) == 6 and not {*divided.ablation} & {*divided.scoring}
    # The same examples as the development set of a folder of their own.
    shutil.copytree(glue / "SST-2", tmp_path / "SST-2")
    header, *lines = (glue / "SST-2" / "train.tsv").read_text().splitlines()
    chosen = [header, *(lines[number] for number in divided.part("ablation"))]
    (tmp_path / "SST-2" / "dev.tsv").write_text("\n".join(chosen) + "\n")
    other = Classifier(path=classifier, finetuning=replace(settings, data_dir=tmp_path))
    plan = HeadPlan(kept={"ES": [(0,), (), (1, 2)]}, heads=SHAPE)
    assert whole.measure_held_out() == other.measure()
    assert whole.measure_held_out(plan) == other.measure(plan)


def test_folders_of_older_versions_are_resumed(classifier, glue, tmp_path):
    """Their settings lack the weight decay and the epsilon, which were what they are by default."""
    finetuning = Settings(
        task="sst2",
        model=str(classifier),
        epochs=1,
        batch_size=4,
        learning_rate=1e-4,
        max_length=32,
        data_dir=glue,
    )
    settings = Classifier(path=classifier, finetuning=finetuning).settings
    older = {n: v for n, v in settings.items() if n not in ("weight_decay", "adam_epsilon")}
    (tmp_path / "settings.json").write_text(json.dumps(older))
    (tmp_path / "before").mkdir()
    claim(tmp_path, settings)
    other = Classifier(path=classifier, finetuning=replace(finetuning, weight_decay=0.1))
    with pytest.raises(UsageError, match=r"other settings \(weight_decay\)"):
        claim(tmp_path, other.settings)


def test_a_folder_gains_a_fine_tuning_with_the_same_held_out_examples(glue, tmp_path):
    """Of the 24 examples the model was fine-tuned on 12, which is what a hold-out of 50% leaves."""
    model, out = write_model(tmp_path / "model"), tmp_path / "out"
    record_training(model, GlueData(TASKS["sst2"], glue).load("train"), size=12, start=model)

    def run_with(*recoveries: Recovery, **given: Any) -> Comparison:
        settings = {"batch_size": 32, "learning_rate": 1e-4, "hold_out": 10.0, **given}
        finetuning = Settings(
            task="sst2", model=str(model), max_length=32, data_dir=glue, **settings
        )
        return compare(
            Classifier(path=model, finetuning=finetuning),
            **{"scores": ["gradient"], "percents": [50.0], "seeds": [1], "rounds": 0},
            **{"folder": out, "recoveries": recoveries},
        )

    both = (Recovery.REFIT, Recovery.FINETUNE)
    run_with(Recovery.REFIT, epochs=0)
    settings = (out / "settings.json").read_text()
    paths = [*(out / "before").iterdir(), *(out / "refitted").iterdir()]
    paths += [out / "scores" / f"{name}.json" for name in ("gradient", "ablation")]
    measured = {path: (path.read_text(), path.stat().st_mtime_ns) for path in paths}
    with pytest.raises(UsageError, match=r"other training examples .* \(epochs, hold_out\)"):
        run_with(*both, epochs=1, hold_out=25.0)
    assert (out / "settings.json").read_text() == settings
    tuned = {"epochs": 1, "hold_out": 50.0, "max_train_examples": 6, "batch_size": 4}
    rows = run_with(*both, **tuned).rows
    assert {row.recovery for row in rows} == {"refit", "finetune"}
    assert measured == {path: (path.read_text(), path.stat().st_mtime_ns) for path in paths}
    with pytest.raises(UsageError, match=r"of other settings \(learning_rate\)"):
        run_with(*both, **tuned, learning_rate=1e-3)
    run_with(Recovery.REFIT, epochs=0)  # the folder keeps the schedule
    assert json.loads((out / "settings.json").read_text())["batch_size"] == 4


def test_a_model_that_predicts_the_same_for_every_example(glue, tmp_path, capsys):
    """Whoever measures it warns of it, by its name; a fine-tuning in between does not."""
    model = BertForSequenceClassification.from_pretrained(write_model(tmp_path / "model"))
    with torch.no_grad():
        model.classifier.weight.zero_()
        model.classifier.bias.copy_(torch.tensor([0.0, 1.0]))
    model.save_pretrained(tmp_path / "model")
    settings = Settings(
        task="sst2",
        model=str(tmp_path / "model"),
        epochs=0,
        batch_size=4,
        learning_rate=1e-4,
        max_length=32,
        data_dir=glue,
    )
    whole = Classifier(path=tmp_path / "model", finetuning=settings)
    assert whole.measure().constant is True
    short = replace(whole, finetuning=replace(settings, epochs=1, learning_rate=1e-9))
    tuned = short.finetuned(whole.model.plan, seed=1, folder=tmp_path / "tuned")
    assert tuned.measure().constant is True
    assert "predicts the same" not in capsys.readouterr().err


@pytest.mark.parametrize("family", ["bert", "distilbert", "deberta-v2", "modernbert"])
def test_the_cost_of_a_plan_is_that_of_the_pruned_model(family, glue, tmp_path):
    model = write_model(tmp_path / "model", family=family)
    settings = Settings(
        task="sst2", model=str(model), epochs=0, batch_size=4, learning_rate=1, max_length=32
    )
    whole = Classifier(path=model, finetuning=settings)
    plan = HeadPlan(kept={"ES": [(0,), (1, 3), (1, 2)]}, heads=SHAPE)
    pruned = whole.pruned(plan, tmp_path / "pruned")
    assert whole.model.parameters_with(plan) == Folder.load(pruned.path).parameters


def test_a_model_with_uniform_heads_is_refused(classifier, tmp_path):
    plan = HeadPlan(kept={"ES": [(0,), (1, 3), (1, 2)]}, heads=SHAPE)
    Folder.load(classifier).prune(plan, form="uniform").save(tmp_path / "uniform")
    with pytest.raises(HeadpruneError, match="has uniform heads"):
        headprune("compare", tmp_path / "uniform", "--task=sst2", "-o", tmp_path / "out")


@pytest.mark.parametrize(
    ("epochs", "recovery", "words"),
    [
        (0, (), None),
        (1, (), "after fine-tuning"),
        (0, ("--recovery", "refit"), "after re-fitting"),
        (1, ("--recovery", "distill", "--distill-weight", 0.9), "after distillation"),
    ],
)
def test_iterate_leaves_a_model_of_each_step(epochs, recovery, words, classifier, glue, tmp_path):
    options = ("--task", "sst2", "--data-dir", glue, "--percent", 50, "--steps", 2)
    options = (*options, "--max-length", 32, *recovery)
    result = headprune("iterate", classifier, *options, "--epochs", epochs, "-o", tmp_path)
    assert "step 2 of 2: 50.0% pruned, accuracy " in result.stdout
    assert result.stdout.count(words or "after fine-tuning") == (2 if words else 0)
    if "distill" in recovery:  # in both steps, towards the first model
        name = f"distill[weight=0.9,temperature=2,from={Folder.load(classifier).fingerprint[:12]}]"
        records = [*(tmp_path / "records" / "pruned").iterdir()]
        assert len(records) == 2
        assert all(f"|recovery:{name}|" in Record.load(path).signature for path in records)
    first, last = json.loads((tmp_path / "steps.json").read_text())
    plan = HeadPlan.load(tmp_path / "plan.json")
    assert plan.percent_pruned == 50 and first["percent"] == 25
    left = tmp_path / "step2" / "model" if words else tmp_path / "step2"
    assert Folder.load(left).plan == plan
    again = headprune("iterate", classifier, *options, "--epochs", epochs, "-o", tmp_path)
    assert again.stdout == result.stdout


def test_a_folder_named_model_beside_the_model_is_not_the_model_of_a_step(
    classifier, glue, tmp_path
):
    given = tmp_path / "given"
    shutil.copytree(classifier, given)
    (given / "model").mkdir()
    (given / "model" / "config.json").write_text("{}")
    options = ("--task", "sst2", "--data-dir", glue, "--percent", 50, "--steps", 2)
    out = ("--max-length", 32, "--epochs", 0, "-o", tmp_path / "out")
    assert "step 2 of 2: 50.0% pruned" in headprune("iterate", given, *options, *out).stdout


@pytest.mark.parametrize(
    ("options", "component", "share"),
    [
        (("--components", "EF", "--budget", "50%params"), "EF", 50),
        (("--components", "EL", "--percent", 33), "EL", 100 / 3),
        (("--components", "ES", "--budget", "50% of flops"), "ES", 50),
    ],
    ids=["neurons", "layers", "heads"],
)
def test_compare_and_iterate_prune_any_component(
    options, component, share, classifier, glue, tmp_path
):
    data = ("--task", "sst2", "--data-dir", glue, "--max-length", 32, "--epochs", 0)
    steps = tmp_path / "steps"
    compared = ("--score", "taylor", "--seeds", 1, "--rounds", 0, "-o", tmp_path / "compared")
    headprune("compare", classifier, *data, *options, *compared)
    headprune("iterate", classifier, *data, *options, "--steps", 2, "--score=taylor", "-o", steps)
    records = [
        *(tmp_path / "compared" / "records" / "before-finetune" / "taylor").rglob("*.json"),
        steps / "records" / "before-finetune" / "step2.json",
    ]
    assert len(records) == 2
    for path in records:
        record = Record.load(path)
        part = record.plan.part([component])
        assert part.percent_pruned == pytest.approx(share)
        pruned = Folder.load(classifier).prune(part)
        assert record.fingerprint == pruned.fingerprint
        assert record.parameters == pruned.parameters
        heads = record.plan.part(["ES"])
        assert component == "ES" or heads.counts["ES"] == tuple(
            4 * (component != "EL" or bool(kept)) for kept in part.kept[component]
        )
    left = Folder.load(steps / "step2")
    assert left.plan == record.plan and left.fingerprint == record.fingerprint
    assert PruningPlan.load(steps / "plan.json") == record.plan


def test_a_task_with_numbers_to_predict(glue, tmp_path):
    model = write_model(tmp_path / "model", num_labels=1)
    options = ("--task", "stsb", "--data-dir", glue, "--score", "taylor", "--percent", 50)
    more = ("--max-length", 32, "--epochs", 0, "--seeds", 2)
    headprune("compare", model, *options, *more, "-o", tmp_path / "out")
    found = json.loads((tmp_path / "out" / "compare.json").read_text())
    assert found["metric"] == "pearson" and all(row["after"] is None for row in found["rows"])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere"], "nowhere: no such file or folder"),
        (["MODEL"], "give --task"),
        (["MODEL", "--task=sst2", "--data=here"], "is a Hugging Face model, for which there is"),
        (["MODEL", "--task=sst2", "--beam=3"], "for which there is no --beam"),
        (["gone.pt", "--task=sst2"], "gone.pt: no such file or folder"),
        (["MODEL", "--task=sst2", "--percent=101"], "percent|101"),
        (["MODEL", "--task=sst2", "--budget=half"], "budget: 'half' cannot be read"),
        (["MODEL", "--task=sst2", "--budget=5%", "--percent=5"], "give --percent or --budget"),
        (["MODEL", "--task=sst2", "--budget=5%", "--budget=5%flops"], "not several"),
        (["MODEL", "--task=sst2", "--speedup=2"], "--speedup and --latency go together"),
        (["MODEL", "--speedup=2", "--percent=5"], "give one of --percent, --budget and --speedup"),
        (["MODEL", "--speedup=2", "--latency=gone.json"], "gone.json: cannot be read"),
        (["MODEL", "--task=sst2", "--components=DF"], "has no DF; it has ES, EF, EL"),
        (["MODEL", "--task=sst2", "--component=heads"], "'HEADS' is not one of ES, ED"),
        (["MODEL", "--task=sst2", "--score=best"], "there is no score or method 'best'"),
        (["MODEL", "--task=sst2", "--learning-rate=0"], "learning rate 0: give one above 0"),
    ],
)
def test_mistakes_are_one_line(arguments, message, classifier, glue, tmp_path):
    given = [str(classifier) if a == "MODEL" else a for a in arguments]
    with pytest.raises(HeadpruneError, match=message) as caught:
        headprune("compare", *given, "--data-dir", glue, "-o", tmp_path / "out")
    assert "\n" not in str(caught.value)
