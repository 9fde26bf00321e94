"""Files that version 0.1.0 wrote load, and give what they gave then; see README.md."""

from __future__ import annotations

import gzip
import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import ctranslate2
import pytest
import torch
from fairseq.checkpoint_utils import load_model_ensemble
from transformers import AutoModel, AutoModelForSequenceClassification

import hf_plugin
from fairseq_plugin.checkpoints import Checkpoint
from headprune import HeadPlan
from headprune.exported import ExportedModel
from headprune.results.bleu import bleu_and_chrf, read_lines
from headprune.results.predictions import read_correct
from headprune.results.record import Record
from headprune.scores import HeadScores
from headprune.select import by_score
from headprune.speed.latency import Latency
from hf_plugin.finetuning.held_out import recorded_sizes
from hf_plugin.folders import Folder
from hf_plugin.glue.data import load_splits
from hf_plugin.glue.tasks import task_named
from tests.command import headprune
from tests.fairseq_plugin.conftest import PLUGIN, run

OLD = Path(__file__).parent / "files"


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the files, which is the current folder, as it was when they were made."""
    folder = tmp_path / "files"
    shutil.copytree(OLD, folder)
    for path in folder.rglob("*.gz"):
        path.with_suffix("").write_bytes(gzip.decompress(path.read_bytes()))
        path.unlink()
    monkeypatch.chdir(folder)
    return folder


def succeed(*arguments: object) -> str:
    """Run ``headprune``, which has to succeed; its standard output."""
    outcome = headprune(*arguments)
    assert outcome.status == 0, outcome.err
    return outcome.out


UNEVEN = {"ES": ((0, 1, 2, 3), ()), "ED": ((1,), (0, 1, 3)), "DS": ((0, 1), (3,))}
ALL = ((0, 1, 2, 3), (0, 1, 2, 3))


# Plans


@pytest.mark.parametrize(
    ("name", "kept", "counts"),
    [
        ("encoder", {"ES": ((0, 1, 2, 3), ())}, "ES=40"),
        (
            "random",
            {"ES": ((3,), (0, 1, 2, 3)), "ED": ((0, 1, 2, 3), (2,)), "DS": ((2, 3), ())},
            "ES=14 ED=41 DS=20",
        ),
        ("uneven", UNEVEN, "ES=40 ED=13 DS=21"),
        (
            "wide",
            {"ES": ((2, 4, 6, 7, 14, 15), (0, 1, 4, 5, 7, 8, 9, 10, 11), (0, 1, 2, 3))},
            "ES=694",
        ),
    ],
)
def test_plans(name: str, kept: dict[str, Any], counts: str, files: Path) -> None:
    path = files / "plans" / f"{name}.json"
    plan = HeadPlan.load(path)
    assert dict(plan.kept) == kept and str(plan) == counts
    assert set(plan.heads) == set(kept)
    plan.save(files / "again.json")
    assert (files / "again.json").read_bytes() == path.read_bytes()
    assert counts in succeed("show", path)


# Scores


def test_scores_of_version_2(files: Path) -> None:
    scores = HeadScores.load("scores/gradient.json")
    assert scores.name == "gradient"
    assert scores.values["ES"][0] == pytest.approx((0.58990075, 0.40371356, 0.55410231, 0.42661821))
    assert scores.fingerprint == Checkpoint.load("fairseq/stock.pt").fingerprint
    assert scores.signature == (
        "score:gradient|part:scoring|normalised:l2 per layer|data:data.bin.valid[6]"
        "|weights:14c189ff82f1|headprune:0.1.0"
    )
    plan = by_score(scores, percent=50)
    assert str(plan) == "ES=22 ED=23 DS=12"


def test_scores_with_p_values(files: Path) -> None:
    scores = HeadScores.load("scores/ablation.json")
    assert scores.values["ES"][0][2] == pytest.approx(0.06002514)
    assert scores.p_values["ED"][0][2] == pytest.approx(0.01130501)
    assert scores.settings == {
        "part": "ablation",
        "metric": "loss",
        "base": pytest.approx(2.62163409),
    }


def test_what_version_1_calls_gradient_is_not_normalised(files: Path) -> None:
    assert HeadScores.load("scores/version1.json").name == "gradient-raw"


# fairseq checkpoints

SOURCE = torch.tensor([[20, 31, 42, 2], [1, 55, 66, 2]])
LENGTHS = torch.tensor([4, 3])
TARGET = torch.tensor([[2, 21, 32], [2, 43, 54]])

PRUNED = (0.70802, -1.04794, -2.79478, -0.02168, 0.07286, 2.63545, 0.9185, -1.4262)


@pytest.mark.parametrize(
    ("name", "kept", "form", "sizes", "fingerprint", "logits"),
    [
        (
            "stock",
            {"ES": ALL, "ED": ALL, "DS": ALL},
            None,
            (3424, 3424),
            "14c189ff82f1",
            (4.14129, -3.73444, -5.00822, 4.83212, 4.1754, 4.54793, 2.92807, 4.13941),
        ),
        ("remove", UNEVEN, "remove", (2514, 3424), "59f1e719be2b", PRUNED),
        ("mask", UNEVEN, "mask", (3424, 3424), "6d40d717bcf8", PRUNED),
        (
            "layers",
            {"ES": ((2, 3),), "ED": ((0, 1, 2, 3),), "DS": ((0, 1, 2, 3),)},
            "remove",
            (2052, 2192),
            "2cafbf417329",
            (2.16049, -0.69082, -2.47951, 3.02257, 0.66006, 3.68895, 1.82958, 0.80265),
        ),
        (
            "training/checkpoint_last",
            {"ES": ((2,),), "ED": ((0, 2),), "DS": ((),)},
            "remove",
            (1562, 2192),
            "add28af2cf7d",
            (0.70631, 1.27549, 1.45771, 1.71217, 0.83871, 1.41911, 1.4927, 1.79497),
        ),
    ],
)
def test_checkpoints(
    name: str,
    kept: dict[str, Any],
    form: str | None,
    sizes: tuple[int, int],
    fingerprint: str,
    logits: tuple[float, ...],
    files: Path,
) -> None:
    path = f"fairseq/{name}.pt"
    checkpoint = Checkpoint.load(path)
    assert dict(checkpoint.plan.kept) == kept and checkpoint.form == form
    assert (checkpoint.parameters, checkpoint.unpruned_parameters) == sizes
    # Comparisons and scores know a model by it.
    assert checkpoint.fingerprint.startswith(fingerprint)
    (model,), _ = load_model_ensemble([path])  # as fairseq-generate does
    with torch.no_grad():
        output = model.eval()(SOURCE, LENGTHS, TARGET)[0]
    assert output.shape == (2, 3, 120)
    assert output[:, -1, 4:8].flatten().tolist() == pytest.approx(logits, abs=1e-4)


def test_pruned_checkpoints_are_pruned_further_and_exported(files: Path) -> None:
    kept = {**UNEVEN, "ES": ((1,), ())}
    HeadPlan(kept=kept, heads=dict.fromkeys(UNEVEN, (4, 4))).save("further.json")
    succeed("prune", "fairseq/remove.pt", "--plan", "further.json", "-o", "further.pt")
    assert dict(Checkpoint.load("further.pt").plan.kept) == kept
    succeed("export", "fairseq/remove.pt", "--to", "fairseq", "-o", "stock.pt")
    (model,), _ = load_model_ensemble(["stock.pt"])
    with torch.no_grad():
        output = model.eval()(SOURCE, LENGTHS, TARGET)[0]
    assert output[:, -1, 4:8].flatten().tolist() == pytest.approx(PRUNED, abs=1e-4)


@pytest.mark.slow
def test_a_training_resumes(files: Path) -> None:
    sizes = [
        *(f"--{side}-{size}=8" for side in SIDES for size in ("embed-dim", "ffn-embed-dim")),
        *(f"--{side}-attention-heads=4" for side in SIDES),
        *(f"--{side}-layers=1" for side in SIDES),
    ]
    output = run(
        *("fairseq-train", files / "data" / "bin", "--user-dir", PLUGIN, *sizes),
        *("--arch=transformer_headpruned_tiny", "--es-heads=1", "--ed-heads=2", "--ds-heads=0"),
        *("--head-seed=3", "--source-lang=en", "--target-lang=de", "--cpu", "--optimizer=adam"),
        *("--lr=2e-2", "--dropout=0", "--max-tokens=600", "--seed=1", "--no-epoch-checkpoints"),
        *("--num-workers=0", "--share-all-embeddings", "--max-epoch=2"),
        *("--save-dir", files / "fairseq" / "training"),
    )
    assert "(epoch 2 @ 7 updates)" in output
    (model,), _ = load_model_ensemble(["fairseq/training/checkpoint_last.pt"])
    with torch.no_grad():
        logits = model.eval()(SOURCE, LENGTHS, TARGET)[0]
    assert logits[:, -1, 4:8].flatten().tolist() == pytest.approx(RESUMED, abs=1e-3)


SIDES = ("encoder", "decoder")
RESUMED = (1.54317, 1.63445, 0.78157, 2.04777, 1.54071, 1.84225, 0.8508, 1.97242)


def test_a_folder_for_ctranslate2(files: Path) -> None:
    model = ExportedModel.load(Path("ctranslate2"))
    assert HeadPlan.from_json(json.dumps(model.plan)).kept == UNEVEN
    (scored,) = ctranslate2.Translator("ctranslate2").score_batch(
        [["l@@", "ty", "n@@", "@-@"]], [["tw@@", "m@@", "un@@", "d"]]
    )
    expected = [-15.43978, -4.91048, -12.13034, -3.39795, -11.68706]
    assert scored.log_probs == pytest.approx(expected, abs=1e-3)
    succeed("translate", "ctranslate2", "--input", "data/raw/test.en", "-o", "output.de")
    assert len(Path("output.de").read_text(encoding="utf-8").splitlines()) == 12


def test_the_speed_of_models_of_all_libraries(files: Path) -> None:
    models = ("fairseq/remove.pt", "ctranslate2", "glue/control/model")
    succeed(
        "speed", *models, "--batch=2", "--length=6", "--threads=1", "--rounds=2", "-o", "s.json"
    )
    checkpoint, exported, classifier = json.loads(Path("s.json").read_text())["models"]
    libraries = [each["library"] for each in (checkpoint, exported, classifier)]
    assert libraries[0] == "fairseq" and libraries[1].startswith("CTranslate2 ")
    assert libraries[2] == "torch" and exported["flops"] is None  # which later folders tell
    assert checkpoint["parameters"] == Checkpoint.load("fairseq/remove.pt").parameters
    assert all(each["file_bytes"] > 0 for each in (checkpoint, exported, classifier))


# Hugging Face folders

BERT = {"ES": ((0, 2, 3), (1,))}


@pytest.mark.parametrize(
    ("name", "auto", "kept", "form", "sizes", "outputs"),
    [
        (
            "bert-remove",
            AutoModelForSequenceClassification,
            BERT,
            "remove",
            (1058, 1338),
            (-0.66746, -1.3458),
        ),
        (
            "bert-uniform",
            AutoModelForSequenceClassification,
            BERT,
            "uniform",
            (1338, 1338),
            (-0.65913, -1.28434),
        ),
        (
            "bart-remove",
            AutoModel,
            UNEVEN,
            "remove",
            (2034, 2944),
            (3.10635, -0.41877, -0.26698, 0.7143),
        ),
    ],
)
def test_hugging_face_folders(
    name: str,
    auto: Any,
    kept: dict[str, Any],
    form: str,
    sizes: tuple[int, int],
    outputs: tuple[float, ...],
    files: Path,
) -> None:
    path = files / "hugging_face" / name
    folder = Folder.load(path)
    assert dict(folder.plan.kept) == kept and folder.form == form
    assert (folder.parameters, folder.unpruned_parameters) == sizes
    for model in (auto.from_pretrained(path), hf_plugin.from_pretrained(path)):
        assert dict(hf_plugin.head_plan(model).kept) == kept
        with torch.no_grad():
            output = model.eval()(input_ids=torch.tensor([[3, 4, 5, 6, 7]]))[0]
        assert output.flatten()[: len(outputs)].tolist() == pytest.approx(outputs, abs=1e-4)


@pytest.mark.slow
def test_a_folder_loads_with_the_code_beside_it(files: Path) -> None:
    program = (
        "import sys, torch, transformers\n"
        "model = transformers.AutoModelForSequenceClassification.from_pretrained("
        "'hugging_face/bert-remove', trust_remote_code=True).eval()\n"
        "assert 'hf_plugin' not in sys.modules\n"
        "print(model(input_ids=torch.tensor([[3, 4, 5, 6, 7]])).logits[0].tolist())\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, cwd=files
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == pytest.approx([-0.66746, -1.3458], abs=1e-4)


# Results and tables


def test_results_of_translation(files: Path) -> None:
    result = Record.load(Path("translation/pruned1.json"))
    assert (result.kind, result.row, result.requested_percent) == ("pruned", "50%", 50)
    assert result.plan == HeadPlan.load("plans/random.json")
    assert result.signature == (
        "plan:ES=14,ED=41,DS=20|select:random|seed:1|form:remove|finetune:30ep"
        "|data:made.en-de|headprune:0.1.0"
    )
    assert (result.metrics["bleu"], result.metrics["chrf"]) == pytest.approx(
        (95.21859507, 96.71798296)
    )
    scored = bleu_and_chrf(
        read_lines(Path("translation/pruned1.hyp.txt")), read_lines(Path("translation/raw/test.de"))
    )
    assert scored.bleu == pytest.approx(95.21859507)


def test_the_table_of_a_translation_study(files: Path) -> None:
    names = ("baseline1", "control1", "pruned1", "before-finetune1")
    results = [f"translation/{name}.json" for name in (*names, *TWICE)]
    succeed("report", *results, "--output-dir", "table", "--paper", "table1:en-de")
    assert_same_tables(files / "table", files / "translation" / "table")


TWICE = ("control2", "pruned2", "before-finetune2")


def test_results_of_glue(files: Path) -> None:
    result = Record.load(Path("glue/uniform/result.json"))
    assert (result.task, result.form, result.kind, result.row) == (
        *("sst2", "uniform", "pruned", "50%"),
    )
    assert result.metrics == {"accuracy": 95.0} and result.examples == {"train": 72, "dev": 20}
    assert dict(result.plan.kept) == {"ES": ((0, 2), (1, 3))}
    correct = read_correct(Path("glue/uniform/predictions.tsv"))
    assert len(correct) == 20 and sum(correct) == 19


def test_the_table_of_a_glue_study(files: Path) -> None:
    results = [f"glue/{name}/result.json" for name in ("control", "remove", "uniform")]
    succeed("report", *results, "--output-dir", "table")
    assert_same_tables(files / "table", files / "glue" / "table")


def assert_same_tables(made: Path, old: Path) -> None:
    for suffix in ("md", "csv", "json"):
        name = f"table.{suffix}"
        assert (made / name).read_text() == (old / name).read_text()


def test_a_finished_run_of_glue_is_not_done_again(files: Path) -> None:
    before = Record.load(Path("glue/remove/result.json"))
    succeed(
        *("glue", "--task", "sst2", "--data-dir", "glue/data", "--model", "pretrained"),
        *("--epochs", 6, "--batch-size", 8, "--learning-rate", "3e-2", "--max-length", 24),
        *("--plan", "glue/plan.json", "--study", "old", "--row", "half"),
        *("--select", "random", "--requested-percent", 50, "-o", "glue/remove"),
    )
    # Later versions name the length of examples in signatures; this one stays.
    assert "tok|" not in before.signature
    assert Record.load(Path("glue/remove/result.json")) == replace(before, row="half")


def test_the_record_of_the_examples_that_a_model_was_trained_on(files: Path) -> None:
    train = load_splits(task_named("sst2"), Path("glue/data"), splits=["train"])["train"]
    assert recorded_sizes(Path("glue/control/model"), train) == (72,)
    assert Folder.load(Path("glue/control/model")).plan.is_full


# Latency files


def test_a_latency_file_without_the_newer_sizes_is_of_the_same_model(files: Path) -> None:
    latency = Latency.load("latency/latency.json")
    latency.require_model(Folder.load(Path("glue/control/model")), where="latency.json")
    assert latency.identity == "194112bb0155"  # folders of comparisons have it
    half = HeadPlan.load("glue/plan.json")
    assert latency.seconds_of(half) == pytest.approx(0.0013907779)


# Comparisons and iterative pruning

FINETUNE = (
    "--arch transformer_headpruned_tiny --encoder-embed-dim 8 --encoder-ffn-embed-dim 8 "
    "--encoder-attention-heads 4 --encoder-layers 2 --decoder-embed-dim 8 "
    "--decoder-ffn-embed-dim 8 --decoder-attention-heads 4 --decoder-layers 2 --source-lang en "
    "--target-lang de --optimizer adam --lr 2e-2 --dropout 0 --max-tokens 600 --num-workers 0 "
    "--share-all-embeddings --max-epoch 1"
)
TRANSLATOR = ("fairseq/stock.pt", "--data", "data/bin", "--score", "magnitude", "--beam", 2)


def compare_checkpoint() -> None:
    succeed(
        *("compare", *TRANSLATOR, "--percent", 50, "--seeds", 2, "--rounds", 2),
        *("--finetune", FINETUNE, "-o", "compare"),
    )


def compare_classifier() -> None:
    succeed(
        *("compare", "glue/control/model", "--task", "sst2", "--data-dir", "glue/data"),
        *("--score", "magnitude", "--percent", 50, "--seeds", 2, "--rounds", 2),
        *("--max-length", 24, "--learning-rate", "1e-2", "--batch-size", 8),
        *("-o", "compare-classifier"),
    )


@pytest.mark.parametrize(
    ("folder", "compare", "base"),
    [
        ("compare", compare_checkpoint, 0.1631631803),
        ("compare-classifier", compare_classifier, 80.0),
    ],
)
def test_a_comparison_is_continued_with_its_numbers(
    folder: str, compare: Callable[[], None], base: float, files: Path
) -> None:
    path = files / folder
    before = json.loads((path / "compare.json").read_text())
    measured = numbers_of(path)
    compare()
    after = json.loads((path / "compare.json").read_text())
    numbers = numbers_of(path)
    old_times = json.loads(measured.pop("seconds.json"))
    times = json.loads(numbers.pop("seconds.json"))
    assert numbers == measured  # nothing was measured again
    # Newer versions time the other methods and all plans, and keep the times that there are.
    assert {name: times[name] for name in old_times} == old_times
    assert after["timed_all_plans"] and "timed_all_plans" not in before
    for name in ("metric", "base", "correlations", "settings"):
        assert after[name] == before[name]
    for test, old in zip(after["tests"], before["tests"], strict=True):
        assert {name: test[name] for name in old} == old
    assert len(after["rows"]) == 6 and before["base"] == pytest.approx(base)
    for row, old in zip(after["rows"], before["rows"], strict=True):
        plan, old_plan = (HeadPlan.from_json(json.dumps(each.pop("plan"))) for each in (row, old))
        assert plan == old_plan
        assert {name: row[name] for name in old} == old


def numbers_of(folder: Path) -> dict[str, str]:
    """The files with the numbers of a comparison, by name."""
    paths = [*folder.glob("before/*"), *folder.glob("after/*"), folder / "seconds.json"]
    return {str(path.relative_to(folder)): path.read_text() for path in paths}


@pytest.mark.slow
def test_a_number_that_is_missing_is_measured_again(files: Path) -> None:
    path = files / "compare" / "before" / "4606fed786c13f51.json"
    old = json.loads(path.read_text())
    path.unlink()
    compare_checkpoint()
    assert json.loads(path.read_text())["value"] == pytest.approx(old["value"])


def test_iterative_pruning_is_continued_after_its_first_step(files: Path) -> None:
    record = files / "iterate" / "step1" / "step.json"
    first = record.read_text()
    output = succeed("iterate", *TRANSLATOR, "--percent", 50, "--steps", 2, "-o", "iterate")
    assert record.read_text() == first
    assert "step 1 of 2: 25.0% pruned, BLEU 0.14" in output
    assert "step 2 of 2: 50.0% pruned, BLEU 0.99" in output
    assert dict(HeadPlan.load("iterate/plan.json").kept) == {
        "ES": ((0, 3), (3,)),
        "ED": ((1, 3), (0, 3)),
        "DS": ((1, 2), (0, 1, 2)),
    }
