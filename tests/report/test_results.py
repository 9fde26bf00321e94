"""Result files and their signature."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

import pytest

from headprune import DataError, HeadPlan, __version__
from headprune.report.make import make_report
from headprune.report.results import Result, score
from headprune.report.signature import common_part, signature
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
    assert Result.load(path) == result
    assert HeadPlan.from_json(json.dumps(result.plan)).total_kept == result.heads_kept == 12
    assert result.parameters == 12_000
    assert result.sentences == 30
    text = (path.parent / result.hypotheses).read_text().splitlines()
    reference = (path.parent / result.reference).read_text().splitlines()
    assert len(text) == len(reference) == 30
    assert sum(a != b for a, b in zip(text, reference, strict=True)) == 3


def test_a_run_folder_can_be_moved(make: Make, tmp_path: Path) -> None:
    path, result = make()
    assert not Path(result.hypotheses).is_absolute()
    assert not Path(result.reference).is_absolute()


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
        ).hypotheses
    assert found == {
        "wmt14.en-ru": "wmt14.en-ru.hyp.txt",
        "wmt14.en-de": "wmt14.en-de.hyp.txt",
        "a.json": "a.hyp.txt",
        "b": "b.hyp.txt",
    }


def test_a_record_of_a_later_version_with_more_fields_is_read(make: Make) -> None:
    path, result = make()
    path.write_text(json.dumps({**json.loads(path.read_text()), "later": {"field": 1}}))
    assert Result.load(path) == result


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": "other"}, "not a result"),
        ({"version": 2}, "version 2"),
        ({"bleu": "high"}, 'not a result: bleu is "high", not a number'),
        ({"bleu": True}, "bleu is true, not a number"),
        ({"bleu": -0.1}, "bleu is -0.1, not between 0 and 100"),
        ({"chrf": 101}, "chrf is 101, not between 0 and 100"),
        ({"bleu": float("nan")}, "NaN is no number"),
        ({"chrf": float("inf")}, "Infinity is no number"),
        ({"bleu": 10**90}, "not between 0 and 100"),
        ({"bleu": 10**400}, "a number of 401 digits"),
        ({"percent": 101}, "percent is 101"),
        ({"seed": 1.5}, "seed is 1.5, not a whole number"),
        ({"heads_kept": -1}, "heads_kept is -1"),
        ({"sacrebleu": {"bleu": "x"}}, "sacrebleu: chrf is missing"),
        ({"sacrebleu": {"bleu": 1, "chrf": 2}}, "sacrebleu is .* whose values are each text"),
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
        Result.load(path)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize("text", ["", "{", "[]", "3", '{"format": "headprune.result"}'])
def test_broken_files_are_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "result.json"
    path.write_text(text)
    with pytest.raises(DataError, match="result.json"):
        Result.load(path)
    with pytest.raises(DataError, match="cannot be read"):
        Result.load(tmp_path / "nowhere.json")


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
    assert Result.load(path) == again
    assert capsys.readouterr().err == "warning: every sentence has the same translation\n"
