"""Held-out examples are never trained on, and never in both parts."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoModel

import hf_plugin.finetuning.loading
import hf_plugin.scores.run
from headprune.backends import ScoreRequest
from headprune.errors import DataError, UsageError
from headprune.scores import HeadScores
from headprune.scores.compute import unwatched
from hf_plugin.finetuning.held_out import (
    RECORD,
    TrainingPart,
    copy_record,
    default_hold_out,
    held_out,
    record_training,
    recorded_sizes,
)
from hf_plugin.finetuning.run import run
from hf_plugin.finetuning.settings import Labels
from hf_plugin.glue.data import Examples, GlueData, load_splits
from hf_plugin.glue.tasks import TASKS
from tests.command import headprune
from tests.hf_plugin.made import settings, write_model, write_task


def numbered(size: int) -> Examples:
    return Examples([(f"sentence {n}",) for n in range(size)], [n % 2 for n in range(size)])


@given(
    size=st.integers(40, 300),
    most=st.none() | st.integers(1, 300),
    hold_out=st.floats(10, 90),
)
def test_no_example_is_used_twice(size: int, most: int | None, hold_out: float) -> None:
    train, part = numbered(size), TrainingPart(most, hold_out)
    outcome = held_out(train, model=Path("nowhere"), parts=[part])
    trained = set(train.subset_indices(part.size(size)))
    scoring, ablation = set(outcome.scoring), set(outcome.ablation)
    assert trained | scoring | ablation == set(range(size))
    assert len(trained) + len(scoring) + len(ablation) == size
    assert len(scoring) - len(ablation) in (0, 1)
    assert outcome.trained_on == "unknown"  # by whoever trained the model at first
    assert set(outcome.part("scoring", most=5)) <= scoring
    assert outcome.part("ablation", most=5) == sorted(outcome.ablation[:5])


@pytest.mark.parametrize(
    ("part", "size"),
    [
        (TrainingPart(), 1000),
        (TrainingPart(hold_out=10), 900),
        (TrainingPart(max_examples=300), 300),
        (TrainingPart(max_examples=300, hold_out=90), 100),
        (TrainingPart(max_examples=3000), 1000),
        (TrainingPart(hold_out=99.99), 1),
    ],
)
def test_the_number_of_training_examples(part: TrainingPart, size: int) -> None:
    assert part.size(1000) == size


def test_the_record_names_every_fine_tuning_and_the_data(tmp_path: Path) -> None:
    train = numbered(50)
    (tmp_path / "first").mkdir()
    (tmp_path / "second").mkdir()
    record_training(tmp_path / "first", train, size=20, start=Path("nowhere"))
    record_training(tmp_path / "second", train, size=30, start=tmp_path / "first")
    assert recorded_sizes(tmp_path / "second", train) == (20, 30)
    outcome = held_out(train, model=tmp_path / "second")
    used = {*train.subset_indices(20), *train.subset_indices(30)}
    assert outcome.trained_on == "no" and not used & {*outcome.scoring, *outcome.ablation}
    assert recorded_sizes(tmp_path / "second", numbered(51)) is None  # other data


def test_a_model_that_has_seen_everything_is_said_to_have(tmp_path: Path) -> None:
    record_training(tmp_path, numbered(50), size=50, start=Path("nowhere"))
    outcome = held_out(numbered(50), model=tmp_path)
    assert outcome.trained_on == "yes"
    assert sorted([*outcome.scoring, *outcome.ablation]) == list(range(50))


def test_an_older_run_has_its_settings_beside_the_model(tmp_path: Path) -> None:
    model = tmp_path / "model"
    model.mkdir()
    assert recorded_sizes(model, numbered(50)) is None
    old: dict[str, Any] = {"epochs": 2.0, "max_train_examples": 20}
    (tmp_path / "result.json").write_text(json.dumps({"training": {"settings": old}}))
    assert recorded_sizes(model, numbered(50)) == (20,)
    assert default_hold_out(tmp_path, None) == 0  # it goes on as it began
    assert (default_hold_out(model, None), default_hold_out(model, 20)) == (10, 0)


def older_run(folder: Path, **settings: object) -> Path:
    """The model's folder of a run that wrote no record; returns it."""
    model = folder / "model"
    model.mkdir(parents=True)
    content = {"training": {"settings": settings}}
    (folder / "result.json").write_text(json.dumps(content))
    return model


def test_a_model_that_was_only_measured_has_seen_what_its_start_has(tmp_path: Path) -> None:
    train, elsewhere = numbered(50), str(tmp_path / "elsewhere")
    unknown = older_run(tmp_path / "unknown", epochs=0.0, model=elsewhere)
    assert recorded_sizes(unknown, train) is None
    assert held_out(train, model=unknown).trained_on == "unknown"

    trained = older_run(tmp_path / "trained", epochs=2.0, max_train_examples=20)
    measured = older_run(tmp_path / "measured", epochs=0.0, model=str(trained))
    again = older_run(tmp_path / "again", epochs=0.0, model=str(measured))
    assert recorded_sizes(again, train) == (20,)
    outcome = held_out(train, model=again)
    used = {*train.subset_indices(20)}
    assert outcome.trained_on == "no" and not used & {*outcome.scoring, *outcome.ablation}

    own = str(tmp_path / "own" / "model")  # a folder that says it began with itself
    assert recorded_sizes(older_run(tmp_path / "own", epochs=0.0, model=own), train) is None


def test_what_a_start_model_learned_from_other_data_is_not_forgotten(tmp_path: Path) -> None:
    few, more = numbered(50), numbered(60)  # rows were appended to the file
    names = ("first", "second", "third")
    for name, start, train, size in zip(
        names, ("nowhere", "first", "second"), (few, more, more), (20, 30, 40), strict=True
    ):
        (tmp_path / name).mkdir()
        record_training(tmp_path / name, train, size=size, start=tmp_path / start)
    assert held_out(few, model=tmp_path / "first").trained_on == "no"
    for name, sizes in (("second", [30]), ("third", [30, 40])):
        outcome = held_out(more, model=tmp_path / name)
        assert outcome.trained_on == "unknown"
        used = {index for size in sizes for index in more.subset_indices(size)}
        assert not used & {*outcome.scoring, *outcome.ablation}  # what is known is left out
    copy = tmp_path / "copy"
    copy.mkdir()
    copy_record(tmp_path / "second", copy)
    assert held_out(more, model=copy).trained_on == "unknown"


@pytest.mark.parametrize("sizes", ["all", [0], [True], None])
def test_a_record_that_makes_no_sense_is_refused(sizes: object, tmp_path: Path) -> None:
    (tmp_path / RECORD).write_text(json.dumps({"sizes": sizes}))
    with pytest.raises(DataError, match=f"{RECORD}: sizes is .*, not a list of whole numbers"):
        held_out(numbered(50), model=tmp_path)


class Texts:
    """Collect the texts of every data set that a module encodes."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *modules: Any) -> None:
        self.sets: list[set[tuple[str, ...]]] = []
        for module in modules:
            monkeypatch.setattr(module, "encode", self._noting(module.encode))

    def _noting(self, encode: Any) -> Any:
        def noting(examples: Examples, *args: Any, **options: Any) -> Any:
            self.sets.append(set(examples.texts))
            return encode(examples, *args, **options)

        return noting


def test_only_the_parts_that_scores_need_are_encoded(tmp_path, monkeypatch):
    glue = write_task(tmp_path / "glue", "sst2", train=40)
    scored = Texts(monkeypatch, hf_plugin.scores.run)
    model = write_model(tmp_path / "model")
    for split, scores, sets in (
        ("train", ["gradient"], 1),
        ("train", ["ablation"], 1),
        ("train", ["gradient", "ablation", "magnitude"], 2),
        ("train", ["magnitude"], 0),
        ("dev", ["gradient", "ablation"], 1),  # the same examples for both
    ):
        scored.sets.clear()
        hf_plugin.scores.run.score_heads(
            str(model),
            ScoreRequest(scores=scores, weights={}, watch=unwatched),
            data=GlueData(TASKS["sst2"], glue),
            split=split,
            max_length=24,
        )
        assert len(scored.sets) == sets, (split, scores)


@pytest.mark.slow
def test_glue_scores_and_compare_keep_training_and_scoring_apart(tmp_path, monkeypatch):
    glue = write_task(tmp_path / "glue", "sst2", train=120)
    start = write_model(tmp_path / "start", num_labels=5)  # no classifier for SST-2
    command = ("--task", "sst2", "--data-dir", glue, "--max-length", 24, "--epochs", 1)
    trained = Texts(monkeypatch, hf_plugin.finetuning.loading)
    scored = Texts(monkeypatch, hf_plugin.scores.run)
    done = headprune("glue", "--model", start, *command, "-o", tmp_path / "run")
    assert done.status == 0 and "data:glue.sst2[-10%]" in done.out
    model = tmp_path / "run" / "model"
    assert (model / RECORD).is_file()
    training = max(trained.sets, key=len)
    assert len(training) >= 100

    done = headprune(
        *("scores", model, *command[:-2], "--score", "gradient", "--score", "ablation"),
        *("-o", tmp_path / "scores"),
    )
    assert (done.status, "warning" in done.err) == (0, False), done.err
    scoring, ablation = scored.sets
    assert len(scoring) == len(ablation) == 6
    assert not scoring & ablation and not training & (scoring | ablation)
    signatures = [
        HeadScores.load(tmp_path / "scores" / f"{name}.json").signature
        for name in ("gradient", "ablation")
    ]
    assert "data:glue.sst2.train[6]" in signatures[0] and "part:scoring" in signatures[0]
    assert "part:ablation|trained-on:no" in signatures[1]

    trained.sets.clear()
    scored.sets.clear()
    options = ("--score", "gradient", "--percent", 50, "--seeds", 1, "--rounds", 0)
    done = headprune("compare", model, *command, *options, "-o", tmp_path / "compare")
    assert done.status == 0, done.err
    training = set().union(*(texts for texts in trained.sets if len(texts) >= 100))
    assert training and not training & set().union(*scored.sets)
    assert "trained-on:no" in (tmp_path / "compare" / "compare.md").read_text()


def test_what_was_trained_before_hold_out_is_not_done_again(tmp_path):
    glue = write_task(tmp_path / "glue", "sst2", train=60)
    chosen = settings("sst2", write_model(tmp_path / "start"), glue, epochs=1.0)
    run(chosen, Labels(), tmp_path / "run")
    path = tmp_path / "run" / "result.json"
    content = json.loads(path.read_text())
    del content["training"]["settings"]["hold_out"]
    path.write_text(json.dumps(content))
    written = (tmp_path / "run" / "model" / "model.safetensors").stat().st_mtime_ns
    run(chosen, Labels(), tmp_path / "run")
    assert (tmp_path / "run" / "model" / "model.safetensors").stat().st_mtime_ns == written
    train = load_splits(TASKS["sst2"], glue, splits=["train"])["train"]
    assert recorded_sizes(tmp_path / "run" / "model", train) == (60,)


def test_a_run_that_only_measures_does_not_say_that_its_model_is_untrained(tmp_path):
    glue = write_task(tmp_path / "glue", "sst2", train=60)
    chosen = settings("sst2", write_model(tmp_path / "start"), glue, epochs=0.0)
    run(chosen, Labels(), tmp_path / "run")
    train = load_splits(TASKS["sst2"], glue, splits=["train"])["train"]
    assert held_out(train, model=tmp_path / "run" / "model").trained_on == "unknown"


@pytest.mark.parametrize("hold_out", [-1.0, 100.0])
def test_percentages_that_make_no_sense(hold_out):
    with pytest.raises(UsageError, match="hold-out .*: give a percentage from 0, below 100"):
        settings("sst2", Path("model"), None, hold_out=hold_out).check()


def test_a_classifier_without_a_record_may_have_seen_the_examples(tmp_path):
    glue = write_task(tmp_path / "glue", "sst2", train=60)
    train = load_splits(TASKS["sst2"], glue, splits=["train"])["train"]
    classifier = write_model(tmp_path / "classifier")
    encoder = tmp_path / "encoder"
    shutil.copytree(classifier, encoder)
    AutoModel.from_pretrained(classifier).save_pretrained(encoder)
    found = {}
    for start in (classifier, encoder):
        out = tmp_path / f"{start.name}-run"
        run(settings("sst2", start, glue, epochs=1.0, max_train_examples=20), Labels(), out)
        found[start.name] = held_out(train, model=out / "model").trained_on
    assert found == {"classifier": "unknown", "encoder": "no"}
    # A folder that had a record gets a model of which nothing is known.
    copy_record(classifier, tmp_path / "encoder-run" / "model")
    assert not (tmp_path / "encoder-run" / "model" / RECORD).exists()
