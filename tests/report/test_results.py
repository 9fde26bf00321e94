"""Result files and their signature."""

from __future__ import annotations

import contextlib
import json
from dataclasses import replace
from pathlib import Path

import pytest

from headprune import DataError, PruningPlan, UsageError, __version__
from headprune.report.make import make_report
from headprune.results.record import Record
from headprune.results.signature import common_part, signature
from headprune.results.translation import score
from headprune.select import at_random

from .conftest import Make

PLAN = at_random(
    dict.fromkeys(("ES", "ED", "DS"), (8,) * 6),
    seed=1,
    keep={"ES": "888444", "ED": "444888", "DS": "888444"},
)


def test_the_signature_is_the_one_that_is_documented() -> None:
    line = signature(
        PLAN, select="random", seed=1, form="remove", finetune="30ep", data="wmt14.en-ru"
    )
    assert line == (
        "plan:ES=888444,ED=444888,DS=888444|select:random|seed:1|form:remove|finetune:30ep"
        f"|data:wmt14.en-ru|headprune:{__version__}"
    )


def test_several_signatures_keep_what_they_share() -> None:
    lines = ["plan:ES=8|seed:1|data:a", "plan:ES=8|seed:2|data:a"]
    assert common_part(lines) == "plan:ES=8|seed:*|data:a"
    assert common_part(lines[:1]) == lines[0]


def test_a_result_is_read_back_as_it_was_written(make: Make) -> None:
    path, result = make(seed=2)
    assert Record.load(path) == result
    assert result.plan.total_kept == 12
    assert result.parameters == 12_000
    assert result.examples == {"test": 30}
    text = (path.parent / result.files["hypotheses"]).read_text().splitlines()
    reference = (path.parent / result.files["reference"]).read_text().splitlines()
    assert len(text) == len(reference) == 30
    assert sum(a != b for a, b in zip(text, reference, strict=True)) == 3


def test_a_run_folder_can_be_moved(make: Make, tmp_path: Path) -> None:
    path, result = make()
    assert not Path(result.files["hypotheses"]).is_absolute()
    assert not Path(result.files["reference"]).is_absolute()


def test_labels_that_are_not_given_follow_from_the_plan(make: Make, tmp_path: Path) -> None:
    path, result = make(percent=50, seed=2)
    given = {
        "generation": path.parent / "generation.txt",
        "reference": tmp_path / "raw" / "test.de",
        "output": tmp_path / "again.json",
        "data": "wmt14.en-ru",
    }
    again = score(**given, plan=path.parent / "plan.json", study="made-up", finetune="30ep")
    assert replace(again, training=result.training, files=result.files) == result
    other = score(
        **given,
        plan=path.parent / "plan.json",
        **{"kind": "before-finetune", "row": "half", "seed": 7, "select": "gradient"},
        **{"form": "mask", "requested_percent": 49.0},
    )
    assert (other.kind, other.row, other.seed) == ("before-finetune", "half", 7)
    assert (other.form, other.requested_percent) == ("mask", 49.0)
    assert "|select:gradient|seed:7|form:mask|finetune:none|" in other.signature
    full = tmp_path / "full.json"
    PruningPlan.full(result.plan.units).save(full)
    with pytest.raises(UsageError, match="the plan has no seed of its own; give --seed"):
        score(**given, plan=full)
    control = score(**given, plan=full, seed=1, finetune="30ep")
    assert (control.kind, control.row, control.form) == ("control", "control", "none")
    assert score(**given, plan=full, seed=1).kind == "baseline"


def test_facts_of_the_training_go_to_the_fields_of_the_record(make: Make, tmp_path: Path) -> None:
    path, _ = make()
    facts = {"parameters": 5, "best_epoch": 3, "fingerprint": "ab", "seconds": 2.5, "device": "cpu"}
    given = {
        "generation": path.parent / "generation.txt",
        "reference": tmp_path / "raw" / "test.de",
        "output": tmp_path / "again.json",
        "plan": path.parent / "plan.json",
        "training": tmp_path / "facts.json",
    }
    given["training"].write_text(json.dumps({**facts, "versions": {"torch": "2"}}))
    record = score(**given, data="x")
    assert record.training == {"parameters": 5, "best_epoch": 3}
    assert (record.fingerprint, record.seconds, record.device) == ("ab", 2.5, "cpu")
    assert record.versions["torch"] == "2" and "headprune" in record.versions
    given["training"].write_text('{"seconds": "long"}')
    with pytest.raises(DataError, match=r'facts\.json: seconds is "long", not a number or null'):
        score(**given, data="x")


def test_names_with_dots_have_translations_of_their_own(make: Make, tmp_path: Path) -> None:
    found = {}
    for name in ("wmt14.en-ru", "wmt14.en-de", "a.json", "b"):
        path, _ = make(row=name)
        found[name] = score(
            generation=path.parent / "generation.txt",
            reference=tmp_path / "raw" / "test.de",
            output=tmp_path / name,
            plan=path.parent / "plan.json",
            **dict.fromkeys(("study", "row", "select", "form", "finetune", "data"), "x"),
            kind="pruned",
            seed=1,
        ).files["hypotheses"]
    assert found == {
        "wmt14.en-ru": "wmt14.en-ru.hyp.txt",
        "wmt14.en-de": "wmt14.en-de.hyp.txt",
        "a.json": "a.hyp.txt",
        "b": "b.hyp.txt",
    }


def test_fields_of_later_versions_are_kept_and_missing_ones_have_defaults(make: Make) -> None:
    path, result = make()
    content = json.loads(path.read_text())
    path.write_text(json.dumps({**content, "later": {"field": 1}}))
    loaded = Record.load(path)
    assert replace(loaded, unknown={}) == result
    loaded.save(path)
    assert json.loads(path.read_text()) == {**content, "later": {"field": 1}}
    required = ("format", "version", "task", "metrics", "plan", "signature")
    path.write_text(json.dumps({name: content[name] for name in required}))
    few = Record.load(path)
    assert (few.metrics, few.plan, few.seed, few.files) == (result.metrics, result.plan, 1, {})
    assert (few.seconds, few.device, few.fingerprint) == (None, None, None)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": "other"}, "not a result"),
        ({"version": 2}, "version 2"),
        ({"metrics": {"bleu": "high"}}, "not a result: metrics is .* are each a number"),
        ({"metrics": {"bleu": True}}, "metrics is .* whose values are each a number"),
        ({"metrics": {"bleu": -0.1}}, "bleu is -0.1, not between 0 and 100"),
        ({"metrics": {"chrf": 101}}, "chrf is 101, not between 0 and 100"),
        ({"metrics": {"matthews": -101}}, "matthews is -101, not between -100 and 100"),
        ({"metrics": {"bleu": float("nan")}}, "NaN is no number"),
        ({"metrics": {"chrf": float("inf")}}, "Infinity is no number"),
        ({"metrics": {"bleu": 10**90}}, "not between 0 and 100"),
        ({"metrics": {"bleu": 10**400}}, "a number of 401 digits"),
        ({"metrics": {}}, "metrics is empty"),
        ({"requested_percent": 101}, "requested_percent is 101"),
        ({"seconds": -1}, "seconds is -1, not 0 or more"),
        ({"seed": 1.5}, "seed is 1.5, not a whole number"),
        ({"metric_signatures": {"bleu": 1}}, "signatures is .* whose values are each text"),
        ({"training": {"parameters": "many"}}, "parameters is 'many', not a number of weights"),
        ({"plan": {"format": "headprune.plan", "version": 1}}, "plan: a plan needs"),
        ({"kind": "unknown"}, "kind is 'unknown', not one of baseline"),
    ],
)
def test_what_is_no_result_is_refused_with_its_name(
    make: Make, change: dict[str, object], message: str
) -> None:
    path, _ = make()
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    with pytest.raises(DataError, match=message) as caught:
        Record.load(path)
    assert str(path) in str(caught.value)


OLD_TRANSLATION = Path(__file__).parent / "translation_study/pruned/25pct/seed2/result.json"
OLD_GLUE = {
    "format": "headprune.glue-result",
    "version": 1,
    **{"study": "s", "kind": "pruned", "row": "50%", "percent": 50.0, "requested_percent": 50.0},
    **{"seed": 3, "counts": "ES=22", "heads_kept": 4, "finetune": "2ep", "task": "mrpc"},
    "plan": json.loads(at_random({"ES": (4, 4)}, seed=3, percent=50).to_json()),
    "signature": "plan:ES=22|select:random|seed:3|form:mask|finetune:2ep",
    **{"form": "mask", "model": "bert", "metric": "f1", "value": 80.0, "epochs": 2.0},
    **{"metrics": {"accuracy": 75.0, "f1": 80.0}, "examples": {"train": 9, "dev": 4}},
    **{"batch_size": 32, "learning_rate": 5e-5, "max_length": 128, "later": [1]},
    **{"predictions": "predictions.tsv", "training": {"settings": {"bf16": True}}},
}


def test_results_of_translation_in_the_older_format_are_read(tmp_path: Path) -> None:
    old = json.loads(OLD_TRANSLATION.read_text())
    record = Record.load(OLD_TRANSLATION)
    assert (record.task, record.metric, record.value) == ("translation", "bleu", old["bleu"])
    assert record.metrics == {"bleu": old["bleu"], "chrf": old["chrf"]}
    assert record.metric_signatures == old["sacrebleu"]
    assert record.files == {name: old[name] for name in ("hypotheses", "reference")}
    assert (record.form, record.seed, record.percent) == ("remove", 2, old["percent"])
    assert (str(record.plan), record.examples) == (old["counts"], {"test": 20})
    assert record.parameters == old["training"]["parameters"]
    record.save(tmp_path / "new.json")
    assert Record.load(tmp_path / "new.json") == record


def test_results_on_glue_in_the_older_format_are_read(tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    path.write_text(json.dumps(OLD_GLUE))
    record = Record.load(path)
    assert (record.task, record.metric, record.value) == ("mrpc", "f1", 80.0)
    assert record.metrics == {"f1": 80.0, "accuracy": 75.0}
    assert record.files == {"predictions": "predictions.tsv"}
    assert (record.form, record.model, record.examples["train"]) == ("mask", "bert", 9)
    assert record.settings["learning_rate"] == 5e-5 and record.settings["bf16"] is True
    assert record.unknown == {"later": [1]}
    record.save(path)
    assert Record.load(path) == record


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"value": "high"}, 'value is "high", not a number'),
        ({"predictions": None}, "predictions is null, not text"),
        ({"epochs": True}, "epochs is true, not a number"),
        ({"version": 2}, "result of version 2, this headprune reads 1"),
        ({"metrics": {"f1": 101}}, "f1 is 101, not between 0 and 100"),
    ],
)
def test_broken_results_of_the_older_format_are_refused(
    change: dict[str, object], message: str, tmp_path: Path
) -> None:
    path = tmp_path / "result.json"
    path.write_text(json.dumps({**OLD_GLUE, **change}))
    with pytest.raises(DataError, match=message):
        Record.load(path)


@pytest.mark.parametrize("text", ["", "{", "[]", "3", '{"format": "headprune.result"}'])
def test_broken_files_are_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "result.json"
    path.write_text(text)
    with pytest.raises(DataError, match="result.json"):
        Record.load(path)
    with pytest.raises(DataError, match="cannot be read"):
        Record.load(tmp_path / "nowhere.json")


@pytest.mark.parametrize("value", [None, True, 3, -1.5, "text", [], [1], {}, {"a": [None]}])
def test_values_of_wrong_types_are_no_crash(make: Make, value: object) -> None:
    # Whatever stands in a field, a report is made or one line says why not.
    path, _ = make()
    content = json.loads(path.read_text())
    for name in content:
        path.write_text(json.dumps({**content, name: value}))
        with contextlib.suppress(DataError):
            make_report([path], test=False)


def test_a_model_that_translates_all_sentences_alike_is_recorded(
    make: Make, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, result = make()
    assert "constant_prediction" not in result.training
    generation = path.with_name("constant.txt")
    generation.write_text("".join(f"D-{n}\t-0.5\tthe same\n" for n in range(30)))
    again = score(
        **dict.fromkeys(("study", "row", "select", "form", "finetune", "data"), "x"),
        generation=generation,
        reference=tmp_path / "raw" / "test.de",
        output=path,
        plan=path.with_name("plan.json"),
        kind="pruned",
        seed=1,
    )
    assert again.training["constant_prediction"] is True
    assert Record.load(path) == again
    assert capsys.readouterr().err == "warning: every sentence has the same translation\n"
