"""Whole runs with a tiny BERT: every task, form and protocol, resuming, and the grid."""

from __future__ import annotations

import csv
import json
import math
import re
import shutil
from contextlib import contextmanager
from dataclasses import replace

import pytest
import torch
from transformers import AutoModel, AutoModelForSequenceClassification, AutoTokenizer, Trainer

import hf_plugin
from headprune import HeadPlan, PruningPlan, UsageError
from headprune.bfloat16 import warn_if_slow
from headprune.errors import DataError
from headprune.recovery.variant import Variant
from headprune.results.record import Record
from headprune.select import at_random
from hf_plugin.finetuning.grid import search
from hf_plugin.finetuning.metrics import measure
from hf_plugin.finetuning.run import run
from hf_plugin.finetuning.settings import Labels
from hf_plugin.fingerprints import model_fingerprint
from hf_plugin.folders import Folder
from hf_plugin.glue.data import GlueData, load_splits
from hf_plugin.glue.tasks import TASKS
from hf_plugin.plans import model_shape
from hf_plugin.tasks.task import dev_splits
from tests.hf_plugin.made import SHAPE, settings, write_model, write_task
from tests.hf_plugin.models import LAYERS, SOME


def rows(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))


def weights(folder):
    return AutoModelForSequenceClassification.from_pretrained(folder).state_dict()


@pytest.mark.parametrize("name", TASKS)
def test_every_task(name, model, glue, tmp_path):
    task = TASKS[name]
    result = run(settings(name, model, glue, plan=SOME, epochs=1.0), Labels(), tmp_path)
    assert Record.load(tmp_path / "result.json") == result
    assert list(result.metrics)[: len(task.metrics)] == list(task.metrics)
    assert (result.task, result.metric, result.value) == (
        name,
        task.metrics[0],
        result.metrics[task.metrics[0]],
    )
    assert result.examples == {split: 24 if split == "train" else 12 for split in task.files}
    for split in dev_splits(GlueData(task)):
        mismatched = split == "dev_mismatched"
        lines = rows(tmp_path / f"predictions{'_mismatched' * mismatched}.tsv")
        assert [line["index"] for line in lines] == [str(n) for n in range(12)]
        read = float if task.range else task.labels.index
        again = measure(
            task.metrics,
            labels=[read(line["label"]) for line in lines],
            predictions=[read(line["prediction"]) for line in lines],
        )
        for metric, value in again.items():
            key = f"mismatched_{metric}" if mismatched else metric
            assert result.metrics[key] == pytest.approx(value, abs=1e-3)
    loaded = AutoModelForSequenceClassification.from_pretrained(tmp_path / "model")
    assert hf_plugin.head_plan(loaded) == SOME
    assert loaded.config.id2label == (dict(enumerate(task.labels)) or {0: "score"})
    assert AutoTokenizer.from_pretrained(tmp_path / "model")("a dog")
    assert not (tmp_path / "training").exists()


@pytest.mark.parametrize("name", ["mnli", "stsb"])
def test_predictions_are_those_of_the_saved_model_line_by_line(name, model, glue, tmp_path):
    task = TASKS[name]
    run(settings(name, model, glue, plan=SOME), Labels(), tmp_path)
    loaded = AutoModelForSequenceClassification.from_pretrained(tmp_path / "model").eval()
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "model")
    for split, examples in load_splits(task, glue, splits=dev_splits(GlueData(task))).items():
        lines = rows(tmp_path / f"predictions{split.removeprefix('dev')}.tsv")
        for texts, line in zip(examples.texts, lines, strict=True):
            with torch.no_grad():
                logits = loaded(**tokenizer(*texts, return_tensors="pt")).logits[0]
            if task.range:
                assert float(line["prediction"]) == pytest.approx(logits.item(), abs=1e-5)
            else:
                assert line["prediction"] == task.labels[int(logits.argmax())]


def test_control(model, glue, tmp_path):
    result = run(settings("rte", model, glue), Labels(study="s"), tmp_path)
    assert (result.kind, result.row, result.form) == ("control", "control", "none")
    assert result.signature.startswith(
        "plan:ES=444|select:none|seed:1|form:none|finetune:2ep|data:glue.rte,24tok|"
    )
    assert result.plan.is_full
    assert result.training["parameters"] == sum(
        parameter.numel()
        for parameter in AutoModelForSequenceClassification.from_pretrained(model).parameters()
    )


def test_labels(model, glue, tmp_path):
    wanted = settings("rte", model, glue, plan=SOME, max_train_examples=10, epochs=1.0)
    result = run(wanted, Labels(), tmp_path)
    assert (result.kind, result.row, result.form) == ("pruned", "67%", "remove")
    assert (
        "|select:given|seed:1|form:remove|finetune:1ep|data:glue.rte[10],24tok|" in result.signature
    )
    assert result.examples["train"] == 10
    ((updates, loss),) = result.training["curve"]["train"]
    assert updates == 2 and loss > 0  # one epoch of ten examples in batches of eight
    labels = Labels(
        study="s", kind="pruned", row="two thirds", requested_percent=66.0, select="random"
    )
    again = run(wanted, labels, tmp_path)  # not trained again
    assert (again.study, again.row, again.requested_percent) == ("s", "two thirds", 66.0)
    assert "|select:random|" in again.signature
    assert again.training == result.training
    assert Record.load(tmp_path / "result.json") == again
    with pytest.raises(UsageError, match="kind: a control keeps all heads"):
        run(wanted, Labels(kind="control"), tmp_path)
    with pytest.raises(UsageError, match="kind: 'best' is not one of control, pruned, before-fin"):
        run(wanted, Labels(kind="best"), tmp_path)


def test_the_model_of_a_masked_run_is_the_one_that_was_measured(model, glue, tmp_path):
    masked = run(settings("stsb", model, glue, plan=SOME, form="mask"), Labels(), tmp_path / "mask")
    saved = tmp_path / "mask" / "model"
    assert Folder.load(saved).plan == SOME
    again = run(settings("stsb", saved, glue, epochs=0.0), Labels(), tmp_path / "again")
    assert (again.form, again.plan) == ("remove", SOME)
    # Predictions of a model this small differ little, so their correlation magnifies rounding,
    # which is not the same for all processors and numbers of threads.
    assert again.metrics == pytest.approx(masked.metrics, abs=1e-2)


def test_mask_and_remove_train_alike(tmp_path, glue):
    # Dropout of attention draws for every head that is there.
    model = write_model(tmp_path / "model", attention_probs_dropout_prob=0.0)
    predictions, parameters = {}, {}
    for form in ("mask", "remove"):
        wanted = settings("stsb", model, glue, plan=SOME, form=form)
        result = run(wanted, Labels(), tmp_path / form)
        assert result.form == form
        lines = rows(tmp_path / form / "predictions.tsv")
        predictions[form] = [float(line["prediction"]) for line in lines]
        parameters[form] = result.training["parameters"]
    assert predictions["mask"] == pytest.approx(predictions["remove"], abs=1e-5)
    assert parameters["mask"] > parameters["remove"]


def test_uniform(model, glue, tmp_path):
    result = run(settings("rte", model, glue, plan=SOME, form="uniform"), Labels(), tmp_path)
    assert "|form:uniform|" in result.signature
    assert result.plan == SOME
    measured = settings("rte", tmp_path / "model", glue, epochs=0.0)
    again = run(measured, Labels(), tmp_path / "again")
    assert (again.form, again.metrics, again.plan) == ("uniform", result.metrics, SOME)


def test_finetune_prune_finetune(model, glue, tmp_path):
    wanted = settings("rte", model, glue, plan=SOME, protocol="finetune-prune-finetune")
    result = run(wanted, Labels(), tmp_path / "pruned")
    assert "|finetune:2ep+2ep|" in result.signature
    assert result.finetune == "2ep+2ep"
    assert result.training["protocol"] == "finetune-prune-finetune"
    # Before pruning it is what the control of the other protocol is.
    control = run(settings("rte", model, glue), Labels(), tmp_path / "control")
    assert result.training["metrics_before_pruning"] == control.metrics
    # Right after pruning it is that control, pruned.
    measured = settings("rte", tmp_path / "control" / "model", glue, plan=SOME, epochs=0.0)
    before = run(measured, Labels(), tmp_path / "before")
    assert result.training["metrics_before_finetune"] == before.metrics
    assert (before.kind, before.finetune) == ("before-finetune", "none")
    assert "train" not in before.examples


def test_records_name_the_units_that_were_pruned_before(model, glue, tmp_path):
    without_neurons = AutoModelForSequenceClassification.from_pretrained(model)
    neurons = PruningPlan(kept={"EF": [range(8)] * LAYERS}, units={"EF": (16,) * LAYERS})
    hf_plugin.prune(without_neurons, neurons)
    without_neurons.save_pretrained(tmp_path / "model")
    AutoTokenizer.from_pretrained(model).save_pretrained(tmp_path / "model")
    for name, heads in (("some", SOME), ("all", HeadPlan.full(SHAPE))):
        wanted = settings("rte", tmp_path / "model", glue, plan=heads)
        record = run(wanted, Labels(), tmp_path / name)
        assert dict(record.plan.kept) == {**heads.kept, **neurons.kept}
        assert (record.kind, "EF=888" in record.signature) == ("pruned", True)


class Killed(BaseException):
    """An interruption as sudden as a kill, which no `except Exception` catches."""


@contextmanager
def killed_after_a_checkpoint(monkeypatch, *, number=1):
    """A block in which the Trainer is killed once this many checkpoints are written."""
    save, done = Trainer._save_checkpoint, []

    def save_and_die(self, *arguments, **options):
        save(self, *arguments, **options)
        done.append(1)
        if len(done) == number:
            raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(Trainer, "_save_checkpoint", save_and_die)
        with pytest.raises(Killed):
            yield


def change_weights(folder):
    """Change one weight of the model in a folder, as another training would."""
    changed = AutoModelForSequenceClassification.from_pretrained(folder)
    with torch.no_grad():
        changed.classifier.bias += 1
    changed.save_pretrained(folder)


def without_facts(path, *names):
    """Remove facts on the training from a result, which older versions did not write."""
    content = json.loads(path.read_text())
    for name in names:
        del content["training"][name]
    path.write_text(json.dumps(content))


@pytest.mark.parametrize("epochs, verb", [(1.0, "trained from"), (0.0, "measured with")])
def test_a_start_model_with_other_weights_is_not_taken_for_the_same(
    epochs, verb, model, glue, tmp_path
):
    start, out = shutil.copytree(model, tmp_path / "start"), tmp_path / "out"
    wanted = settings("rte", start, glue, epochs=epochs)
    result = run(wanted, Labels(), out)
    assert result.training["start_fingerprint"] == Folder.load(model).fingerprint
    change_weights(start)
    message = (
        f"{out}: was {verb} an older version of the weights in {start}; choose another output "
        "folder or delete this one"
    )
    with pytest.raises(UsageError, match=f"^{re.escape(message)}$"):
        run(wanted, Labels(), out)
    with pytest.raises(UsageError, match=r"other settings \(seed \d+ there"):
        run(replace(wanted, seed=2), Labels(), out)


def test_a_training_is_not_resumed_from_other_weights(model, glue, tmp_path, monkeypatch):
    start, out = shutil.copytree(model, tmp_path / "start"), tmp_path / "out"
    wanted = settings("rte", start, glue)
    with killed_after_a_checkpoint(monkeypatch):
        run(wanted, Labels(), out)
    change_weights(start)
    with pytest.raises(
        UsageError, match="out: was trained from an older version of .*/start; choo"
    ):
        run(wanted, Labels(), out)


def test_a_model_that_was_moved_is_the_same(model, glue, tmp_path, monkeypatch):
    start = shutil.copytree(model, tmp_path / "start")
    wanted = settings("rte", start, glue)
    whole = run(wanted, Labels(), tmp_path / "out")
    with killed_after_a_checkpoint(monkeypatch):
        run(wanted, Labels(), tmp_path / "killed")
    start.rename(tmp_path / "moved")
    monkeypatch.chdir(tmp_path)
    moved = settings("rte", "moved", glue)
    resumed = run(moved, Labels(), tmp_path / "killed")
    assert resumed.training["resumed"] is True and resumed.metrics == whole.metrics
    monkeypatch.setattr("hf_plugin.finetuning.run.fine_tune", None)
    assert run(moved, Labels(), tmp_path / "out") == whole
    assert run(wanted, Labels(), tmp_path / "out") == whole  # its start model is gone


def test_results_without_a_fingerprint_know_the_model_by_its_path(model, glue, tmp_path):
    start, out = shutil.copytree(model, tmp_path / "start"), tmp_path / "out"
    wanted = settings("rte", start, glue, epochs=0.0)
    run(wanted, Labels(), out)
    without_facts(out / "result.json", "start_fingerprint")
    old = Record.load(out / "result.json")
    change_weights(start)
    assert run(wanted, Labels(), out) == old
    with pytest.raises(UsageError, match=r"other settings \(model "):
        run(replace(wanted, model=str(model)), Labels(), out)


def test_weights_are_hashed_once(model, glue, tmp_path, monkeypatch):
    start = shutil.copytree(model, tmp_path / "start")
    wanted, hashed = settings("rte", start, glue, epochs=0.0), []

    def noting(of_model):
        hashed.append(of_model)
        return model_fingerprint(of_model)

    monkeypatch.setattr("hf_plugin.folders.model_fingerprint", noting)
    for folder in ("one", "two", "one"):
        run(wanted, Labels(), tmp_path / folder)
    assert len(hashed) == 1
    change_weights(start)
    with pytest.raises(
        UsageError, match=r"other settings \(seed \d+ there"
    ):  # without looking at them
        run(replace(wanted, seed=2), Labels(), tmp_path / "one")
    assert len(hashed) == 1
    with pytest.raises(UsageError, match="older version of the weights"):
        run(wanted, Labels(), tmp_path / "one")
    assert len(hashed) == 2


SLOW = pytest.mark.slow


@pytest.mark.parametrize("layerdrop", [0.0, 0.5])
def test_the_metric_after_each_epoch_changes_nothing(layerdrop, model, glue, tmp_path, capsys):
    wanted = settings("rte", model, glue, plan=SOME, variant=Variant(layerdrop=layerdrop))
    assert wanted.epochs == 2
    silent = run(wanted, Labels(), tmp_path / "silent")
    assert "epoch" not in capsys.readouterr().err
    announced = run(wanted, Labels(), tmp_path / "announced", announce=True)
    assert len(re.findall(r"epoch 1: dev accuracy \d+\.\d\d\n", capsys.readouterr().err)) == 1
    assert announced.metrics == silent.metrics
    before, after = (weights(tmp_path / name / "model") for name in ("silent", "announced"))
    assert all(torch.equal(before[key], after[key]) for key in before)


@pytest.mark.parametrize(
    "protocol, saves, state",
    [
        ("prune-finetune", 1, ""),
        ("prune-finetune", 2, '{"epoch": 1'),
        *(pytest.param("finetune-prune-finetune", n, "", marks=SLOW) for n in (1, 2, 3)),
    ],
)
def test_resume(protocol, saves, state, model, glue, tmp_path, monkeypatch):
    wanted = settings("rte", model, glue, plan=SOME, protocol=protocol)
    whole = run(wanted, Labels(), tmp_path / "whole")
    with killed_after_a_checkpoint(monkeypatch, number=saves):
        run(wanted, Labels(), tmp_path / "killed")
    folder = tmp_path / "killed"
    assert not (folder / "result.json").exists()
    # A checkpoint that was not written to its end is passed over.
    phase = max(folder.glob("training/*/checkpoint-*"), key=lambda path: path.stat().st_mtime)
    (phase.parent / "checkpoint-99999").mkdir()
    (phase.parent / "checkpoint-99999" / "trainer_state.json").write_text(state)
    with pytest.raises(UsageError, match=r"other settings \(seed \d+ there"):
        run(replace(wanted, seed=2), Labels(), folder)
    resumed = run(wanted, Labels(), folder)
    assert resumed.metrics == whole.metrics
    assert (whole.training["resumed"], resumed.training["resumed"]) == (False, True)
    before, after = weights(tmp_path / "whole" / "model"), weights(folder / "model")
    assert all(torch.equal(before[key], after[key]) for key in before)
    assert not (folder / "training").exists()


@pytest.mark.parametrize(("step", "from_checkpoint"), [(2, False), (5, True)])
def test_killed_in_the_middle_of_an_epoch(
    step, from_checkpoint, model, glue, tmp_path, monkeypatch
):
    wanted = settings("rte", model, glue, plan=SOME)
    whole = run(wanted, Labels(), tmp_path / "whole")
    train, done = Trainer.training_step, []

    def train_and_die(self, *arguments, **options):
        done.append(1)
        if len(done) == step:
            raise Killed
        return train(self, *arguments, **options)

    with monkeypatch.context() as patched:
        patched.setattr(Trainer, "training_step", train_and_die)
        with pytest.raises(Killed):
            run(wanted, Labels(), tmp_path / "killed")
    resumed = run(wanted, Labels(), tmp_path / "killed")
    assert resumed.training["resumed"] is from_checkpoint
    assert resumed.metrics == whole.metrics
    before, after = weights(tmp_path / "whole" / "model"), weights(tmp_path / "killed" / "model")
    assert all(torch.equal(before[key], after[key]) for key in before)


@pytest.mark.parametrize("name", ["optimizer.pt", "scheduler.pt", "model.safetensors"])
def test_a_damaged_checkpoint_is_not_resumed_from(name, model, glue, tmp_path, monkeypatch, capsys):
    wanted = settings("rte", model, glue, plan=SOME)
    whole = run(wanted, Labels(), tmp_path / "whole")
    with killed_after_a_checkpoint(monkeypatch):
        run(wanted, Labels(), tmp_path / "killed")
    (damaged,) = (tmp_path / "killed").glob(f"training/*/checkpoint-*/{name}")
    damaged.write_bytes(damaged.read_bytes()[:-100])
    resumed = run(wanted, Labels(), tmp_path / "killed")
    assert f"warning: {damaged}: corrupt or truncated" in capsys.readouterr().err
    assert resumed.metrics == whole.metrics
    assert resumed.training["resumed"] is False


def test_a_fine_tuning_that_diverges_is_an_error(model, glue, tmp_path):
    wanted = settings("mnli", model, glue, learning_rate=1e300)
    with pytest.raises(DataError, match="the fine-tuning has diverged: .* learning rate 1e.300"):
        run(wanted, Labels(), tmp_path)
    assert not (tmp_path / "result.json").exists()
    assert not (tmp_path / "training").exists()


def test_a_model_whose_weights_are_not_finite_is_refused(model, glue, tmp_path):
    broken = tmp_path / "broken"
    loaded = AutoModelForSequenceClassification.from_pretrained(model)
    AutoTokenizer.from_pretrained(model).save_pretrained(broken)
    with torch.no_grad():
        loaded.bert.encoder.layer[0].output.dense.bias[0] = math.nan
    loaded.save_pretrained(broken)
    for epochs in (0.0, 1.0):
        with pytest.raises(DataError, match="broken: .* has values that are not finite"):
            run(settings("rte", broken, glue, epochs=epochs), Labels(), tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("task", ["rte", "stsb"])
def test_a_constant_prediction_is_marked(task, model, glue, tmp_path, capsys):
    constant = tmp_path / "constant"
    trained = tmp_path / "trained"
    run(settings(task, model, glue, epochs=1.0), Labels(), trained)
    if task == "stsb":  # where no two predictions are the same by chance
        assert "constant_prediction" not in Record.load(trained / "result.json").training
    loaded = AutoModelForSequenceClassification.from_pretrained(trained / "model")
    AutoTokenizer.from_pretrained(model).save_pretrained(constant)
    with torch.no_grad():
        loaded.classifier.weight.zero_()
    loaded.save_pretrained(constant)
    result = run(settings(task, constant, glue, epochs=0.0), Labels(), tmp_path / "out")
    assert result.training["constant_prediction"] is True
    assert "warning: the model predicts the same for every example" in capsys.readouterr().err


def test_a_grid_goes_on_after_a_cell_that_diverges(model, glue, tmp_path):
    wanted = settings("rte", model, glue, epochs=1.0)
    result = search(wanted, Labels(), tmp_path, batch_sizes=[8], learning_rates=[1e300, 1e-3])
    assert result.settings["learning_rate"] == 1e-3
    assert "the fine-tuning has diverged" in result.training["grid"][0]["diverged"]
    with pytest.raises(DataError, match="has diverged"):
        search(wanted, Labels(), tmp_path / "all", batch_sizes=[8], learning_rates=[1e300])


def test_finished_is_not_trained_again(model, glue, tmp_path, monkeypatch):
    wanted = settings("rte", model, glue)
    result = run(wanted, Labels(), tmp_path)
    monkeypatch.setattr("hf_plugin.finetuning.run.fine_tune", None)
    assert run(wanted, Labels(), tmp_path) == result
    with pytest.raises(UsageError, match=r"other settings \(learning_rate .*, seed "):
        run(replace(wanted, seed=2, learning_rate=1e-4), Labels(), tmp_path)


def test_a_finished_run_whose_model_was_deleted_says_so(model, glue, tmp_path, capsys):
    wanted = settings("rte", model, glue, epochs=0.0)
    run(wanted, Labels(), tmp_path)
    shutil.rmtree(tmp_path / "model")
    capsys.readouterr()
    run(wanted, Labels(), tmp_path, announce=True)
    assert f"model: is missing; delete {tmp_path}/result.json" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["training/train.tsv", "model/config.json", "predictions.tsv"])
def test_files_of_others_are_neither_replaced_nor_removed(name, model, glue, tmp_path):
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_text("precious")
    with pytest.raises(UsageError, match="exists already, and is not of a training"):
        run(settings("rte", model, glue, epochs=0.0), Labels(), tmp_path)
    assert path.read_text() == "precious"
    assert [each for each in tmp_path.rglob("*") if each.is_file()] == [path]


def test_a_foreign_folder_called_training_is_never_removed(model, glue, tmp_path):
    wanted = settings("rte", model, glue, epochs=0.0)
    run(wanted, Labels(), tmp_path)
    (tmp_path / "training").mkdir()
    for changed in (wanted, replace(wanted, max_length=16)):
        with pytest.raises(UsageError, match="training: exists already"):
            run(changed, Labels(), tmp_path, overwrite=True)
    assert (tmp_path / "training").is_dir()


def test_seeds(model, glue, tmp_path):
    wanted = settings("stsb", model, glue)
    one = run(wanted, Labels(), tmp_path / "1")
    same = run(wanted, Labels(), tmp_path / "same")
    two = run(replace(wanted, seed=2), Labels(), tmp_path / "2")
    assert one.metrics == same.metrics != two.metrics


def test_grid(model, glue, tmp_path):
    wanted = settings("mnli", model, glue, plan=SOME, form="mask", epochs=1.0)
    result = search(wanted, Labels(), tmp_path, batch_sizes=[8, 24], learning_rates=[1e-3, 1e-2])
    assert Record.load(tmp_path / "result.json") == result
    cells = result.training["grid"]
    assert [(cell["batch_size"], cell["learning_rate"]) for cell in cells] == [
        (8, 1e-3),
        (8, 1e-2),
        (24, 1e-3),
        (24, 1e-2),
    ]
    assert result.value == max(cell["accuracy"] for cell in cells)
    assert all("mismatched_accuracy" in cell for cell in cells)
    assert "optimistic" in result.training["grid_note"]
    best = (
        tmp_path
        / "grid"
        / f"bs{result.settings['batch_size']}-lr{result.settings['learning_rate']:g}"
    )
    assert Record.load(best / "result.json").value == result.value
    for name in ("predictions.tsv", "predictions_mismatched.tsv"):
        assert (tmp_path / name).read_bytes() == (best / name).read_bytes()
    assert Folder.load(tmp_path / "model").plan == SOME
    assert len(list(tmp_path.glob("grid/*/model"))) == 1
    again = search(wanted, Labels(), tmp_path, batch_sizes=[8, 24], learning_rates=[1e-3, 1e-2])
    assert again == result


def test_a_plan_of_another_shape(model, glue, tmp_path):
    plan = HeadPlan.full({"ES": (12,) * 12})
    for form in ("remove", "mask", "uniform"):
        with pytest.raises(UsageError, match="ES: the plan is for 12 layers, the bert model has 3"):
            run(settings("rte", model, glue, plan=plan, form=form), Labels(), tmp_path)
    wanted = settings("rte", model, glue, plan=plan, protocol="finetune-prune-finetune")
    with pytest.raises(UsageError, match="ES: the plan is for 12 layers"):
        run(wanted, Labels(), tmp_path)
    assert not (tmp_path / "training").exists()  # said before the first training


@pytest.mark.parametrize(
    "changes, message",
    [
        (dict(epochs=math.inf), "inf epochs"),
        (dict(learning_rate=math.nan), "learning rate nan"),
        (dict(seed=2**32), "seed 4294967296"),
        (dict(batch_size=0), "batch size 0"),
        (dict(form="cut"), "form: 'cut' is not one of remove, mask, uniform"),
        (dict(protocol="none"), "protocol: 'none' is not one of"),
        (dict(max_length=64), "max length 64: .* takes 32 tokens at most"),
        (dict(learning_rate=0.0), "learning rate 0: give one above 0"),
        (dict(epochs=0.0, protocol="finetune-prune-finetune"), "needs one epoch or more"),
    ],
)
def test_settings_that_make_no_sense(changes, message, model, glue, tmp_path):
    with pytest.raises(UsageError, match=message):
        run(settings("rte", model, glue, **changes), Labels(), tmp_path)


def test_models_that_cannot_be_read(model, glue, tmp_path):
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(DataError, match="empty: cannot load a tokenizer"):
        run(settings("rte", empty, glue), Labels(), tmp_path / "out")
    headless = tmp_path / "headless"
    for file in model.iterdir():
        if file.suffix != ".safetensors":
            headless.mkdir(exist_ok=True)
            (headless / file.name).write_bytes(file.read_bytes())
    with pytest.raises(DataError, match="headless: cannot load the model"):
        run(settings("rte", headless, glue), Labels(), tmp_path / "out")


def test_weights_that_are_missing(model, glue, tmp_path):
    from safetensors.torch import load_file, save_file

    folder = tmp_path / "model"
    folder.mkdir()
    for file in model.iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    state = load_file(folder / "model.safetensors")
    new = {"classifier.weight", "classifier.bias", "bert.pooler.dense.weight"}
    save_file(
        {key: value for key, value in state.items() if key not in new},
        folder / "model.safetensors",
        metadata={"format": "pt"},
    )
    run(settings("rte", folder, glue, epochs=1.0), Labels(), tmp_path / "out")
    with pytest.raises(DataError, match="3 of its weights are missing or of another shape"):
        run(settings("rte", folder, glue, epochs=0.0), Labels(), tmp_path / "none")
    lost = "bert.encoder.layer.1.output.dense.weight"
    save_file(
        {key: value for key, value in state.items() if key not in new | {lost}},
        folder / "model.safetensors",
        metadata={"format": "pt"},
    )
    with pytest.raises(DataError, match=f"1 of its weights are missing .*, {lost} for one"):
        run(settings("rte", folder, glue), Labels(), tmp_path / "none")


def test_a_classifier_of_another_task(model, glue, tmp_path):
    run(settings("rte", model, glue, epochs=1.0), Labels(), tmp_path / "rte")
    trained = tmp_path / "rte" / "model"
    run(settings("mnli", trained, glue, epochs=1.0), Labels(), tmp_path / "mnli")
    run(settings("wnli", trained, glue, epochs=1.0), Labels(), tmp_path / "wnli")
    for name in ("mnli", "wnli"):
        with pytest.raises(UsageError, match="is for entailment, not_entailment, the task has"):
            run(settings(name, trained, glue, epochs=0.0), Labels(), tmp_path / "none")


def test_pruned_weights_under_a_plain_config(model, glue, tmp_path):
    run(settings("rte", model, glue, plan=SOME, epochs=1.0), Labels(), tmp_path / "rte")
    folder = tmp_path / "rte" / "model"
    (folder / "config.json").write_bytes((model / "config.json").read_bytes())
    with pytest.raises(DataError, match="weights are missing or of another shape"):
        run(settings("rte", folder, glue), Labels(), tmp_path / "none")


def test_a_family_that_cannot_be_pruned(glue, tmp_path):
    model = write_model(tmp_path / "model", family="convbert")
    with pytest.raises(UsageError, match="convbert is not a known family"):
        run(settings("rte", model, glue), Labels(), tmp_path / "out")


def test_result_is_json_with_all_settings(model, glue, tmp_path):
    run(settings("rte", model, glue, plan=SOME), Labels(), tmp_path)
    content = json.loads((tmp_path / "result.json").read_text())
    assert content["training"]["settings"]["plan"] == content["plan"]
    assert content["training"]["settings"]["learning_rate"] == 1e-3


def test_labels_and_origin_come_from_the_plan(model, glue, tmp_path):
    plan = at_random(SOME.heads, seed=3, percent=50)
    result = run(settings("sst2", model, glue, plan=plan, epochs=0.0), Labels(), tmp_path)
    assert (result.row, result.requested_percent) == ("50%", 50.0)
    assert "|select:random|" in result.signature
    assert Record.load(tmp_path / "result.json").plan.origin == plan.origin
    assert len(result.fingerprint) == 64 and result.seconds >= 0
    assert result.device and {"headprune", "torch", "transformers"} <= set(result.versions)
    labels = Labels(row="half", select="given", requested_percent=49.0)
    again = run(settings("sst2", model, glue, plan=plan, epochs=0.0), labels, tmp_path)
    assert (again.row, again.requested_percent) == ("half", 49.0)
    assert "|select:given|" in again.signature and again.metrics == result.metrics


@pytest.mark.parametrize("form", ["remove", "mask"])
@pytest.mark.parametrize("component", ["EL", "EF"])
def test_the_plan_of_the_record_is_that_of_the_model(form, component, model, glue, tmp_path):
    shape = model_shape(AutoModel.from_pretrained(model))[component]
    kept = [(0,), *[()] * (len(shape) - 1)]
    plan = PruningPlan(kept={component: kept}, units={component: shape})
    given = settings("sst2", model, glue, plan=plan, form=form, epochs=0.0)
    recorded = run(given, Labels(), tmp_path).plan
    assert recorded == hf_plugin.plan(AutoModel.from_pretrained(tmp_path / "model"))


def test_a_model_saved_in_half_precision_is_trained_in_full(tmp_path, glue):
    folder = write_model(tmp_path / "half")
    model = AutoModelForSequenceClassification.from_pretrained(folder)
    model.to(torch.bfloat16).save_pretrained(folder)
    run(settings("sst2", folder, glue, learning_rate=2e-5), Labels(), tmp_path / "out")
    after = weights(tmp_path / "out" / "model")
    assert {tensor.dtype for tensor in after.values() if tensor.is_floating_point()} == {
        torch.float32
    }
    name = "bert.encoder.layer.0.attention.self.query.weight"
    changed = after[name] != model.state_dict()[name].float()
    assert changed.float().mean() > 0.9


@pytest.mark.parametrize(
    ("family", "options"),
    [("bart", {"eos_token_id": 3}), ("bert", {"output_hidden_states": True}), ("roberta", {})],
)
def test_models_that_return_more_than_logits_and_other_families(family, options, tmp_path, glue):
    folder = write_model(tmp_path / "model", family=family, **options)
    result = run(
        settings("sst2", folder, glue, epochs=1.0, max_length=16), Labels(), tmp_path / "out"
    )
    assert len(rows(tmp_path / "out" / "predictions.tsv")) == 12
    assert 0 <= result.value <= 100


def test_positions_that_are_reserved_for_padding(tmp_path, glue):
    folder = write_model(tmp_path / "model", family="roberta", max_position_embeddings=20)
    with pytest.raises(UsageError, match="max length 20: .* takes 19 tokens at most"):
        run(settings("sst2", folder, glue, max_length=20), Labels(), tmp_path / "out")


def test_the_form_is_that_of_the_model(model, glue, tmp_path):
    uniform = run(
        settings("sst2", model, glue, plan=SOME, form="uniform", epochs=1.0),
        Labels(),
        tmp_path / "uniform",
    )
    assert uniform.form == "uniform" and "|form:uniform|" in uniform.signature
    again = tmp_path / "uniform" / "model"
    as_it_is = run(settings("sst2", again, glue, epochs=0.0), Labels(), tmp_path / "as it is")
    assert (as_it_is.form, as_it_is.value) == ("uniform", uniform.value)
    removed = run(settings("sst2", again, glue, plan=SOME, epochs=0.0), Labels(), tmp_path / "cut")
    assert removed.form == "remove"
    gone = run(
        settings("sst2", tmp_path / "cut" / "model", glue, plan=SOME, form="uniform", epochs=0.0),
        Labels(),
        tmp_path / "gone",
    )
    assert (gone.form, gone.value) == ("remove", removed.value)


def test_another_grid_in_the_same_folder(model, glue, tmp_path):
    first = settings("sst2", model, glue, epochs=1.0)
    search(first, Labels(), tmp_path, batch_sizes=[8], learning_rates=[1e-3, 2e-3])
    result = search(first, Labels(), tmp_path, batch_sizes=[8], learning_rates=[2e-3])
    assert result.settings["learning_rate"] == 2e-3 and len(result.training["grid"]) == 1
    assert (tmp_path / "model" / "config.json").is_file()
    with pytest.raises(UsageError, match="is of a run with other settings .seed 1 there, 2 here."):
        search(replace(first, seed=2), Labels(), tmp_path, batch_sizes=[8], learning_rates=[2e-3])


def test_files_of_other_settings_are_removed_only_if_asked_to(model, glue, tmp_path, capsys):
    first, grid = settings("sst2", model, glue, epochs=0.0), tmp_path / "grid"
    other = replace(first, max_length=16)
    sides = {"batch_sizes": [8, 24], "learning_rates": [1e-3]}
    search(first, Labels(), grid, **sides)
    (grid / "result.json").unlink()  # as snakemake does; it does not know the cells
    with pytest.raises(UsageError, match=r"bs8.*other settings \(max_length \d+ there, 16 here\)"):
        search(other, Labels(), grid, **sides)
    capsys.readouterr()
    assert search(other, Labels(), grid, overwrite=True, **sides).settings["max_length"] == 16
    assert capsys.readouterr().err.count("there, 16 here); it is removed") == 2
    assert search(other, Labels(), grid, overwrite=True, **sides).settings["max_length"] == 16
    assert not capsys.readouterr().err

    # An interrupted training with other settings.
    checkpoint = tmp_path / "run" / "training" / "after" / "checkpoint-3"
    checkpoint.mkdir(parents=True)
    (tmp_path / "run/training/settings.json").write_text(json.dumps(first.as_json()))
    with pytest.raises(UsageError, match=r"training: is of a run with other settings"):
        run(other, Labels(), tmp_path / "run")
    assert checkpoint.exists()
    assert run(other, Labels(), tmp_path / "run", overwrite=True).settings["max_length"] == 16
    assert not checkpoint.exists()


@pytest.mark.parametrize("change", [{"metrics": []}, {"training": None}, {"plan": 3}])
def test_a_result_edited_by_hand(change, model, glue, tmp_path):
    chosen = settings("sst2", model, glue, epochs=0.0)
    run(chosen, Labels(), tmp_path)
    path = tmp_path / "result.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(DataError, match="not a result: (metrics|training|plan) is"):
        run(chosen, Labels(), tmp_path)


@pytest.mark.parametrize("form", ["remove", "mask", "uniform"])
def test_a_full_plan_is_a_control_in_every_form(form, model, glue, tmp_path):
    plan = HeadPlan.full(SOME.heads)
    chosen = settings("sst2", model, glue, plan=plan, form=form, epochs=0.0)
    result = run(chosen, Labels(), tmp_path)
    assert (result.kind, result.form) == ("control", "none")


def test_weight_decay_and_epsilon_are_the_optimizers(model, glue, tmp_path):
    # With so large an epsilon the gradient changes nothing, and only weight decay is left.
    still = settings("rte", model, glue, epochs=1.0, adam_epsilon=1e12)
    result = run(still, Labels(), tmp_path / "still")
    run(replace(still, weight_decay=100.0), Labels(), tmp_path / "decayed")
    assert result.training["settings"]["adam_epsilon"] == 1e12
    name, norm = "bert.encoder.layer.0.output.dense.weight", "bert.encoder.layer.0.output.LayerNorm"
    start = weights(model)
    before, after = weights(tmp_path / "still" / "model"), weights(tmp_path / "decayed" / "model")
    assert torch.allclose(before[name], start[name])
    assert after[name].norm() < 0.9 * before[name].norm()
    assert torch.allclose(after[f"{norm}.weight"], before[f"{norm}.weight"])
    with pytest.raises(UsageError, match="epsilon 0: give one above 0"):
        replace(still, adam_epsilon=0.0).check()


def test_a_training_in_bfloat16_is_measured_in_float32(model, glue, tmp_path):
    data = write_task(tmp_path / "glue", "stsb")  # its predictions are numbers
    run(settings("stsb", model, data, epochs=1.0, bf16=True), Labels(), tmp_path / "trained")
    again = settings("stsb", tmp_path / "trained" / "model", data, epochs=0.0)
    run(again, Labels(), tmp_path / "again")
    trained, measured = (
        (tmp_path / name / "predictions.tsv").read_text() for name in ("trained", "again")
    )
    assert trained == measured


def test_bfloat16_on_a_processor_without_it_is_warned_about(
    model, glue, tmp_path, monkeypatch, capsys
):
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "AVX2")
    warn_if_slow.cache_clear()
    options = settings("sst2", model, glue, plan=SOME, epochs=1.0)
    run(options, Labels(), tmp_path / "float32")
    assert "bfloat16" not in capsys.readouterr().err
    run(replace(options, bf16=True), Labels(), tmp_path / "bfloat16")
    assert "warning: --bf16: this processor has no instructions" in capsys.readouterr().err
