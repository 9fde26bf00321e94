"""The command: what it writes, what it refuses, and what it loads."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headprune import HeadPlan, PruningPlan, __version__, select
from headprune.cli import main
from headprune.cli import plan as plan_command
from headprune.cli.group import SUMMARIES, command_named
from headprune.errors import UsageError, exit_status, needing
from headprune.scores import HeadScores
from tests.command import Outcome, headprune

from .strategies import BASE, BERT

# --- headprune plan --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "plan"),
    [
        (["--percent", 75], select.at_random(BASE, percent=75, seed=1)),
        (["--percent", 75, "--seed", 3], select.at_random(BASE, percent=75, seed=3)),
        (["--percent", 75, "--seed", -3], select.at_random(BASE, percent=75, seed=-3)),
        (["--percent", 12.5], select.at_random(BASE, percent=12.5, seed=1)),
        (["--percent", 0], select.at_random(BASE, percent=0, seed=1)),
        (
            ["--percent", 75, "--at-least", 1],
            select.at_random(BASE, percent=75, seed=1, at_least=1),
        ),
        (
            ["--percent", 50, "--shape", "ES=12x12"],
            select.at_random(BERT, percent=50, seed=1),
        ),
        (
            ["--percent", 50, "--shape", "ES=488", "--shape", "DS = 16,4"],
            select.at_random({"ES": (4, 8, 8), "DS": (16, 4)}, percent=50, seed=1),
        ),
        # as many digits as layers are counts per layer, fewer are a number of heads
        (
            ["--keep", "ES=888444", "--keep", "ED=444888"],
            select.at_random(BASE, keep={"ES": "888444", "ED": "444888"}, seed=1),
        ),
        (["--keep", "ES=8,8,8,4,4,4"], select.at_random(BASE, keep={"ES": "888444"}, seed=1)),
        (["--keep", "ES=000000"], select.at_random(BASE, keep={"ES": 0}, seed=1)),
        (
            ["--keep", "ES=14", "--keep", "ED=31", "--keep", "DS=30"],
            select.at_random(BASE, keep={"ES": 14, "ED": 31, "DS": 30}, seed=1),
        ),
        (["--keep", "ES=8"], select.at_random(BASE, keep={"ES": 8}, seed=1)),
        (["--keep", "ES=48"], select.at_random(BASE, keep={"ES": 48}, seed=1)),
        (
            ["--keep", "ES=14", "--shape", "ES=8x2"],
            select.at_random({"ES": (8, 8)}, keep={"ES": [1, 4]}, seed=1),
        ),
        (
            ["--keep", "ES=9", "--shape", "ES=9x1"],
            select.at_random({"ES": (9,)}, keep={"ES": 9}, seed=1),
        ),
        (
            ["--keep", "ES=100", "--shape", "ES=12x12"],
            select.at_random(BERT, keep={"ES": 100}, seed=1),
        ),
        (
            ["--prune", "top 3 + bottom 3", "--shape", "ES=12x12"],
            select.by_location(BERT, prune="top 3 + bottom 3"),
        ),
        (["--prune", "odd"], select.by_location(BASE, prune="odd")),
        (
            ["--percent", 62.5, "--even", "--seed", 4],
            select.at_random(BASE, keep=dict.fromkeys(BASE, [3] * 6), seed=4),
        ),
        (
            ["--percent", 50, "--even", "--components", "ES,DS"],
            select.at_random(
                {"ES": BASE["ES"], "DS": BASE["DS"]}, keep={"ES": [4] * 6, "DS": [4] * 6}, seed=1
            ),
        ),
        (
            ["--keep", "ED=24", "--even"],
            select.at_random(BASE, keep={"ED": [4] * 6}, seed=1),
        ),
        (
            ["--prune", "ES=top 2", "--prune", "DS = 0,2-4"],
            select.by_location(BASE, prune={"ES": "top 2", "DS": "0,2-4"}),
        ),
    ],
    ids=str,
)
def test_plan_writes_the_plan(arguments: list[object], plan: HeadPlan, tmp_path: Path) -> None:
    printed = headprune("plan", *arguments)
    assert (printed.status, printed.err) == (0, "")
    assert printed.out == plan.to_json(indent=1) + "\n"

    path = tmp_path / "new" / "plan.json"
    saved = headprune("plan", *arguments, "-o", path)
    assert (saved.status, saved.err) == (0, "")
    assert saved.out == f"{path}: {plan} ({plan.percent_pruned:.1f}% of heads pruned)\n"
    assert path.read_text() == printed.out
    assert [file.name for file in path.parent.iterdir()] == ["plan.json"]


@pytest.mark.parametrize(
    ("percent", "note"),
    [
        (37, "note: 25.0%: the even plan nearest to 37%\n"),
        (37.5, "note: 50.0%: the even plan nearest to 37.5%\n"),
        (50, ""),
    ],
)
def test_an_even_plan_of_another_share_says_so(percent: float, note: str) -> None:
    printed = headprune("plan", "--percent", percent, "--even", "--shape", "ES=4x2")
    assert (printed.status, printed.err) == (0, note)


def test_an_even_plan_by_scores_keeps_the_best_units_of_each_layer(tmp_path: Path) -> None:
    path = tmp_path / "scores.json"
    values = {"ES": [[7.0, 8.0, 9.0, 6.0], [1.0, 2.0, 3.0, 4.0]], "DS": [[1.0, 5.0, 2.0, 3.0]] * 2}
    HeadScores(name="gradient", values=values).save(path)
    for arguments in (["--percent", 50], ["--keep", "ES=4", "--keep", "DS=4"]):
        plan = HeadPlan.from_json(headprune("plan", "--scores", path, "--even", *arguments).out)
        assert plan.kept == {"ES": ((1, 2), (2, 3)), "DS": ((1, 3), (1, 3))}


def test_a_plan_by_scores_of_some_components(tmp_path: Path) -> None:
    path = tmp_path / "scores.json"
    values = {"ES": [[7.0, 8.0, 9.0, 6.0]], "DS": [[1.0, 5.0, 2.0, 3.0]], "EF": [[1.0, 2.0]]}
    HeadScores(name="gradient", values=values).save(path)
    some = ("plan", "--scores", path, "--percent", 50, "--components")
    plan = HeadPlan.from_json(headprune(*some, "EF,ES").out)
    assert plan.kept == {"ES": ((1, 2),), "EF": ((1,),)}
    assert headprune(*some, "ED").err == (
        f"error: --components ED: {path} has scores of ES, DS, EF\n"
    )


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--keep", "ES=3"], "ES=21"),
        (["--keep", "ES=3", "--at-least", 0], "ES=30"),
        (["--keep", "ES=4", "--at-least", 2], "ES=22"),
        (["--keep", "ES=00"], "ES=00"),
        (["--below", 2], "ES=32"),
        (["--below", 7.5], "ES=21"),
        (["--below", 7.5, "--at-least", 0], "ES=20"),
        (["--below", 99, "--at-least", 2], "ES=22"),
        (
            ["--keep", "ES=3", "--at-least", 2],
            "at_least=2 keeps 4 heads, but only 3 are to stay; at_least 0 allows layers without "
            "heads",
        ),
        (["--keep", "ES=30", "--at-least", 1], "layer 1 asks for 0 heads, at_least for 1"),
    ],
    ids=str,
)
def test_plan_by_scores_keeps_at_least_so_many(
    arguments: list[object], expected: str, tmp_path: Path
) -> None:
    path = tmp_path / "scores.json"
    HeadScores(name="gradient", values={"ES": [[7.0, 8.0, 9.0], [1.0, 2.0, 3.0]]}).save(path)
    outcome = headprune("plan", "--scores", path, *arguments)
    if outcome.status:
        assert outcome == Outcome(2, "", f"error: ES: {expected}\n")
    else:
        assert str(HeadPlan.from_json(outcome.out)) == expected


READABLE = "it is 'top k', 'bottom k', 'middle k', 'odd', 'even' or layer numbers such as '0,2-4'"
UNKNOWN = "unknown component, it is one of ES, ED, DS, EF, DF, EL, DL"
COUNTS = "write one digit a layer (888444), or commas (16,16,12,8,4,4)"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "give one of --percent, --budget, --speedup, --below, --keep and --prune"),
        (["--percent", 5, "--best", "low"],
         "--best goes with --scores, the file with the scores to rank by"),
        (["--prune", "odd", "--seed", 2],
         "--seed goes with a random choice: --scores and --prune draw no heads"),
        (["--percent", 5, "--scores", "s.json", "--seed", 1],
         "--seed goes with a random choice: --scores and --prune draw no heads"),
        (["--below", 0], "--below goes with --scores, and has a direction: no --best or --even"),
        (["--below", 0, "--scores", "s.json", "--best", "low"],
         "--below goes with --scores, and has a direction: no --best or --even"),
        (["--percent", 5, "--prune", "odd"],
         "give one of --percent, --budget, --speedup, --below, --keep and --prune"),
        (["--keep", "ES=5", "--percent", 0],
         "give one of --percent, --budget, --speedup, --below, --keep and --prune"),
        (["--percent", 101], "101.0% is not between 0 and 100"),
        (["--percent", "nan"], "nan% is not between 0 and 100"),
        # the wrong number of layers, more heads than there are
        (["--keep", "ES=88844"], "ES: head counts for 5 layers, the model has 6"),
        (["--keep", "ED=8884444"], "ED: head counts for 7 layers, the model has 6"),
        (["--keep", "DS=888449"], "DS: layer 5 asks for 9 heads, the model has 8"),
        (["--keep", "ES=8,8,8,8,8,16"], "ES: layer 5 asks for 16 heads, the model has 8"),
        (["--keep", "ES=49"], "ES: 49 heads asked for, the model has 48"),
        (
            ["--keep", "ES=145", "--shape", "ES=12x12"],
            "ES: 145 heads asked for, the model has 144",
        ),
        (["--keep", f"ES={'1' * 5000}"], "ES: head counts for 5000 layers, the model has 6"),
        (["--keep", "ES=lots"], f"ES: 'lots' is no list of counts; {COUNTS}"),
        (["--keep", "ES=-1"], f"ES: '-1' is no list of counts; {COUNTS}"),
        # assignments
        (["--keep", "888444"], "--keep '888444': write a component and a value, as in ES=8"),
        (["--keep", "ES="], "--keep 'ES=': write a component and a value, as in ES=8"),
        (["--keep", "ES=3", "--keep", "ES=4"], "--keep: ES is given twice"),
        # unknown components
        (["--keep", "XX=3"], f"XX: {UNKNOWN}"),
        (["--keep", "es=3"], f"es: {UNKNOWN}"),
        (
            ["--keep", "DS=3", "--shape", "ES=8x6"],
            "DS: unknown component, it is one of ES",
        ),
        (["--keep", "EL=3"], "--keep EL: the model has ES, ED, DS; see --shape"),
        (["--prune", "XX=odd"], f"XX: {UNKNOWN}"),
        (
            ["--percent", 5, "--shape", "QQ=8x6"],
            f"QQ: {UNKNOWN}",
        ),
        # shapes
        (["--percent", 5, "--shape", "ES=8x0"], "ES: has no layer"),
        (["--percent", 5, "--shape", "ES=0x6"], "ES: layer 0: 0 is no number of heads"),
        (["--percent", 5, "--shape", "ES=8x"], f"ES: '8x' is no list of counts; {COUNTS}"),
        (
            ["--percent", 5, "--shape", "ES=8x99999999999999999999"],
            "--shape ES=8x99999999999999999999: more than 10,000,000 heads",
        ),
        (
            ["--percent", 5, "--shape", "ES=8x6", "--model", "m"],
            "give --shape or --model, not both",
        ),
        # even plans
        (
            ["--keep", "ES=25", "--even"],
            "--even: 25 heads of ES do not divide into 6 equal layers; 24 and 30 do",
        ),
        (["--keep", "ES=888444", "--even"], "--even takes one number of heads for ES, not 888444"),
        (
            ["--percent", 5, "--even", "--method", "top"],
            "--even goes with a choice at random or by --scores",
        ),
        (
            ["--percent", 5, "--even", "--shape", "ES=84"],
            "--even: the layers of ES have unequal numbers of units",
        ),
        # layers
        (["--prune", "top 7"], "ES: 'top 7' asks for 7 layers, the model has 6"),
        (["--prune", "6"], "ES: no layer 6, the model has 6 (0 to 5)"),
        (["--prune", "upper"], f"ES: cannot read 'upper'; {READABLE}"),
        (
            ["--prune", "top 1", "--prune", "bottom 1"],
            "--prune 'top 1': write a component and a value, as in ES=8",
        ),
        # at least
        (["--percent", 90, "--at-least", 1],
         "all components: at_least=1 keeps 18 heads, but only 14 are to stay; at_least 0 allows "
         "layers without heads"),
        (["--percent", 50, "--at-least", 9], "ES: layer 0 has 8 heads, at_least asks for 9"),
        (["--percent", 50, "--at-least", -1], "at_least is -1, it has to be a whole number from 0"),
        (
            ["--prune", "odd", "--at-least", 1],
            "--at-least goes with --percent or --keep: --prune empties whole layers",
        ),
    ],
    ids=lambda value: str(value)[:50],
)  # fmt: skip
def test_plan_refuses(arguments: list[object], message: str, tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    outcome = headprune("plan", *arguments, "-o", path)
    assert outcome == Outcome(2, "", f"error: {message}\n")
    assert list(tmp_path.iterdir()) == []


def test_a_refused_plan_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    path.write_text("old")
    assert headprune("plan", "--keep", "ES=9", "--keep", "DS=777", "-o", path).status == 2
    assert path.read_text() == "old"


def test_a_plan_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for path in (tmp_path, tmp_path / "file" / "plan.json"):
        outcome = headprune("plan", "--percent", 5, "-o", path)
        assert (outcome.status, outcome.out) == (1, "")
        assert outcome.err.startswith(f"error: {path}: cannot write (")
        assert outcome.err.count("\n") == 1


values = st.text(max_size=6) | st.text(alphabet="ESDX=0123456789,x+- ", max_size=10)


@given(st.lists(st.tuples(st.sampled_from(["--keep", "--prune", "--shape"]), values), max_size=3))
def test_any_options_give_a_plan_or_one_line(options: list[tuple[str, str]]) -> None:
    outcome = headprune("plan", *[f"{name}={value}" for name, value in options])
    if outcome.status == 0:
        assert HeadPlan.from_json(outcome.out)
    else:
        assert outcome.status == 2
        assert outcome.out == ""
        assert outcome.err.startswith("error: ")
        assert outcome.err.count("\n") == 1


@pytest.mark.parametrize(
    "arguments",
    [
        ["frobnicate"],
        ["plan", "--frobnicate"],
        ["plan", "--percent", "lots"],
        ["plan", "--percent", "5", "--seed", "1.5"],
        ["plan", "--percent"],
        ["show"],
        ["show", "plan.json", "--length", "0"],
        ["show", "plan.json", "--width", "0"],
        ["show", "plan.json", "--vocabulary", "-1"],
        ["prune", "model.pt"],
        ["prune", "model.pt", "--plan", "p", "-o", "o", "--form", "burn"],
        ["export", "model.pt", "--to", "nowhere", "-o", "o"],
    ],
    ids=" ".join,
)
def test_options_that_do_not_exist_or_cannot_be_read(arguments: list[str]) -> None:
    outcome = headprune(*arguments)
    assert (outcome.status, outcome.out) == (2, "")
    assert "Error" in outcome.err
    assert "Traceback" not in outcome.err


# --- headprune plan --model, prune: what happens around the checkpoint ------------------------


@dataclass
class FakeCheckpoint:
    plan: HeadPlan


def with_checkpoint(plan: HeadPlan) -> Any:
    return mock.patch.object(plan_command, "open_model", lambda path: FakeCheckpoint(plan))


def test_plan_for_a_checkpoint_takes_its_shape_and_the_heads_left() -> None:
    half = select.at_random(BERT, percent=50, seed=4)
    with with_checkpoint(half):
        outcome = headprune("plan", "--model", "model.pt", "--percent", 75, "--seed", 9)
        refused = headprune("plan", "--model", "model.pt", "--prune", "odd")
        too_many = headprune("plan", "--model", "model.pt", "--percent", 25)
    assert HeadPlan.from_json(outcome.out) == select.at_random(
        BERT, percent=75, seed=9, within=half
    )
    assert refused == Outcome(
        2, "", "error: model.pt: has pruned heads already; --prune takes an unpruned model\n"
    )
    assert too_many == Outcome(2, "", "error: 25% pruned keeps 108 heads, only 72 are left\n")
    with with_checkpoint(HeadPlan.full(BERT)):
        outcome = headprune("plan", "--model", "model.pt", "--prune", "odd")
    assert HeadPlan.from_json(outcome.out) == select.by_location(BERT, prune="odd")


def test_counts_may_be_of_layers_and_neurons_of_a_model() -> None:
    shape = {"ES": (2,) * 4, "EF": (10,) * 4, "EL": (1,) * 4}

    @dataclass
    class Model(FakeCheckpoint):
        shape: Any

    with mock.patch.object(
        plan_command, "open_model", lambda path: Model(HeadPlan.full({"ES": (2,) * 4}), shape)
    ):
        plan = HeadPlan.from_json(headprune("plan", "--model", "m", "--keep", "EL=1011").out)
        assert plan.counts == {"EL": (1, 0, 1, 1)}
        both = headprune("plan", "--model", "m", "--keep", "ES=1111", "--keep", "EF=30")
        plan = HeadPlan.from_json(both.out)
        assert plan.counts["ES"] == (1,) * 4 and sum(plan.counts["EF"]) == 30
        heads = headprune("plan", "--model", "m", "--keep", "ES=1111")
        assert HeadPlan.from_json(heads.out).counts == {"ES": (1,) * 4}


def test_dropped_layers_keep_no_neurons_to_choose_from(tmp_path: Path) -> None:
    """Half of the neurons of four layers is all of the two layers that a model has left."""
    shape = {"ES": (2,) * 4, "EF": (10,) * 4, "EL": (1,) * 4}
    plan = HeadPlan(kept={"EL": [(0,), (), (0,), ()]}, units={"EL": shape["EL"]})
    whole = HeadPlan.full(shape).replaced_by(plan).without_units_of_dropped_layers()
    kept, dropped = [float(unit) for unit in range(10)], [None] * 10
    values = {"EF": [kept, dropped, kept, dropped]}
    HeadScores(name="magnitude", values=values).save(tmp_path / "scores.json")

    @dataclass
    class Model(FakeCheckpoint):
        shape: Any
        fingerprint: str

    model = Model(plan.normalised(shape), shape, "0" * 64)
    by_score = ("--scores", tmp_path / "scores.json")
    with mock.patch.object(plan_command, "open_model", lambda path: model):
        for options in (("--components", "EF"), by_score):
            half = headprune("plan", "--model", "model.pt", "--percent", 50, *options)
            more = headprune("plan", "--model", "model.pt", "--percent", 75, *options)
            assert HeadPlan.from_json(half.out) == whole.part(["EF"]), half
            assert HeadPlan.from_json(more.out).total_kept == 10, more
        above = headprune("plan", "--model", "model.pt", *by_score, "--below", 4)
        assert HeadPlan.from_json(above.out).counts == {"EF": (6, 0, 6, 0)}, above


NOT_JSON = (
    "not JSON (Expecting value: line 1 column 1 (char 0)); expected a plan, as `headprune plan` "
    "writes it"
)
NO_MODEL = "not the folder of a model; give a Hugging Face folder (with config.json)"


def test_not_every_folder_or_file_is_a_model(tmp_path: Path) -> None:
    for command in (
        ("plan", "--percent", 5, "--model"),
        ("prune", "--plan", "plan.json", "-o", tmp_path / "out"),
        ("compare", "-o", tmp_path / "out"),
    ):
        refused = headprune(*command, tmp_path)
        assert refused == Outcome(1, "", f"error: {tmp_path}: {NO_MODEL}\n")
        missing = headprune(*command, tmp_path / "gone")
        assert missing == Outcome(1, "", f"error: {tmp_path}/gone: no such file or folder\n")
    (tmp_path / "text").write_text("hello")
    assert headprune("plan", "--model", tmp_path / "text", "--percent", 5) == Outcome(
        1,
        "",
        f"error: {tmp_path}/text: not the file of a model; give a fairseq checkpoint (.pt)\n",
    )


def test_a_model_is_not_exported_to_the_formats_of_others(tmp_path: Path) -> None:
    for config in (None, "{}"):
        if config is not None:
            (tmp_path / "config.json").write_text(config)
        outcome = headprune("export", tmp_path, "--to", "fairseq", "-o", tmp_path / "out.pt")
        assert outcome == Outcome(
            2, "", f"error: {tmp_path}: --to fairseq takes a fairseq checkpoint (.pt)\n"
        )


def test_no_command_replaces_a_file_that_it_reads(tmp_path: Path) -> None:
    read, other = tmp_path / "read", tmp_path / "other"
    read.write_text("kept")
    for command in (
        ("speed", other, read),
        ("prune", read, "--plan", other),
        ("prune", other, "--plan", read),
        ("export", read, "--to", "fairseq"),
        ("export", other, "--to", "ctranslate2", "--shortlist", read),
        ("translate", read, "--input", other),
        ("translate", other, "--input", read),
        ("translate", other, "--shortlist", read),
        ("measure", read),
        ("measure", other, "--dev", read),
        ("measure", other, "--plan", read),
        ("bleu", read, "--ref", other, "--plan", other, "--data", "x"),
        ("bleu", other, "--ref", read, "--plan", other, "--data", "x"),
    ):
        assert headprune(*command, "-o", read) == Outcome(
            2, "", f"error: --output {read}: this file is read too; give another name\n"
        ), command
    assert read.read_text() == "kept" and list(tmp_path.iterdir()) == [read]


def test_translations_beside_a_result_replace_no_file_that_is_read(tmp_path: Path) -> None:
    read, other = tmp_path / "result.hyp.txt", tmp_path / "other"
    command = ("bleu", read, "--ref", other, "--plan", other, "--data", "x")
    assert headprune(*command, "-o", tmp_path / "result.json").err == (
        f"error: the translations of --output, {read}: this file is read too; give another name\n"
    )


def test_a_fine_tuned_model_does_not_replace_the_one_that_it_starts_from(tmp_path: Path) -> None:
    model = tmp_path / "model"
    model.mkdir()
    for options in ((model,), ("other", "--distill-from", model)):
        assert headprune("finetune", *options, "-o", tmp_path).err == (
            f"error: --output {model}: this folder is read too; give another name\n"
        )


def test_without_fairseq_a_checkpoint_cannot_be_read(tmp_path: Path) -> None:
    path = tmp_path / "model.pt"
    path.write_bytes(b"PK")
    with mock.patch.dict(sys.modules, {"fairseq_plugin.checkpoints": None}):
        outcome = headprune("plan", "--model", path, "--percent", 5)
    assert (outcome.status, outcome.out) == (2, "")
    assert outcome.err.startswith(f"error: {path}: reading checkpoints needs the fairseq plugin (")
    assert outcome.err.endswith("); see the README, Install\n")


def test_without_onnx_the_line_names_the_packages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "hf_plugin.onnx_export", None)
    (tmp_path / "config.json").write_text("{}")
    outcome = headprune("export", tmp_path, "--to", "onnx", "-o", tmp_path / "out")
    assert (outcome.status, outcome.out) == (2, "")
    assert outcome.err.endswith("; pip install transformers onnx onnxscript onnxruntime\n")


# --- headprune show --------------------------------------------------------------------------


@pytest.fixture
def plan_file(tmp_path: Path) -> Path:
    path = tmp_path / "plan.json"
    select.at_random(BASE, percent=75, seed=1).save(path)
    return path


def test_show_tells_what_is_kept_and_what_it_saves(plan_file: Path) -> None:
    outcome = headprune("show", plan_file)
    assert (outcome.status, outcome.err) == (0, "")
    lines = [" ".join(line.split()) for line in outcome.out.splitlines()]
    assert "counts ES=131321 ED=310621 DS=315012" in lines
    assert "heads 36 of 144 kept, 75.0% pruned" in lines
    assert "parameters 18,911,232 -> 4,734,720 (75.0% less) (attention alone)" in lines
    assert (
        "FLOPs 3,658,629,120 -> 2,784,399,360 (23.9% less) "
        "(a forward pass, 30 tokens a side, matrix products; by these alone 1.31x as fast)"
    ) in lines
    # The grid has the top layer first; the row of layer 0, for ES, ED and DS side by side.
    (row,) = (line for line in lines if line.startswith("0 "))
    kept = select.at_random(BASE, percent=75, seed=1).kept
    cells = [
        " ".join("\u25a0" if head in kept[name][0] else "\u00b7" for head in range(8))
        for name in ("ES", "ED", "DS")
    ]
    assert row == f"0 {cells[0]} 1 0 {cells[1]} 3 0 {cells[2]} 3"


def test_show_takes_the_sizes_of_the_model(plan_file: Path) -> None:
    sizes = ["--width", 256, "--feed-forward", 1024, "--vocabulary", 8000, "--length", 10]
    outcome = headprune("show", plan_file, *sizes)
    assert "4,737,024 -> 1,187,712" in outcome.out  # 18 * (4 * 256**2 + 4 * 256) parameters
    assert "10 tokens a side" in outcome.out


def test_show_of_a_plan_for_bert(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    select.by_location(BERT, prune="top 3 + bottom 3").save(path)
    outcome = headprune("show", path)  # 768 wide, as 12 heads of 64
    assert outcome == headprune("show", path, "--width", 768, "--feed-forward", 3072)
    assert (outcome.status, outcome.err) == (0, "")
    assert "ES=0,0,0,12,12,12,12,12,12,0,0,0" in outcome.out
    assert "28,348,416 -> 14,178,816" in outcome.out
    words = headprune("show", path, "--vocabulary", 30000)  # which a language model predicts
    before, predictions = (_flops(each) for each in (outcome, words))
    assert predictions == [each + 2 * 30 * 768 * 30000 for each in before]


def _flops(outcome: Outcome) -> list[int]:
    (line,) = (line for line in outcome.out.splitlines() if line.startswith("FLOPs"))
    return [int(number.replace(",", "")) for number in line.split()[1:4:2]]


def test_show_refuses(plan_file: Path, tmp_path: Path) -> None:
    text, newer, empty = tmp_path / "text", tmp_path / "newer", tmp_path / "empty"
    text.write_text("hello\n")
    empty.write_text("")
    newer.write_text(json.dumps({**json.loads(plan_file.read_text()), "version": 3}))
    other = tmp_path / "other"
    other.write_text('{"format": "headprune.plan", "version": 1, "heads": {"ES": [8]}, '
                     '"kept": {"ES": [[8]]}}')  # fmt: skip
    for path, message in [
        (tmp_path / "none", "no such file or folder"),
        (tmp_path, NO_MODEL),
        (text, NOT_JSON),
        (empty, NOT_JSON),
        (newer, "plan of version 3, this headprune reads up to 2; update headprune"),
        (other, "ES: layer 0 has no head 8, the model has 8 (0 to 7)"),
    ]:
        assert headprune("show", path) == Outcome(1, "", f"error: {path}: {message}\n")
    assert headprune("show", plan_file, "--width", 500) == Outcome(
        2, "", "error: ES: width 500 does not divide into 8 heads\n"
    )


@pytest.mark.parametrize("option", ["--width", "--feed-forward", "--vocabulary"])
def test_show_takes_no_sizes_for_a_model(option: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    outcome = headprune("show", tmp_path, option, 64)
    message = f"error: {tmp_path} is a model, for which there is no {option}\n"
    assert outcome == Outcome(2, "", message)


# --- help, and what is loaded ----------------------------------------------------------------


@pytest.mark.parametrize("option", [["-o", ""], ["--output", ""], ["--output="]])
def test_an_empty_output_is_not_the_current_folder(
    option: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["headprune", "plan", "--percent=50", *option])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    assert capsys.readouterr().err == "error: --output is empty; give a name\n"


def test_version() -> None:
    assert headprune("--version") == Outcome(0, f"headprune {__version__}\n", "")


def test_help_teaches() -> None:
    top = headprune("--help")
    assert top.status == 0
    for word in ("plan", "show", "prune", "export", "encoder self-attention", "Layer 0"):
        assert word in top.out
    plan = headprune("plan", "-h")
    assert plan.status == 0
    for word in ("--percent", "--keep", "ES=888444", "top 3 + bottom 3", "ES=12x12", "seed"):
        assert word in plan.out
    for command in ("show", "prune", "export", "bleu", "report"):
        assert headprune(command, "--help").status == 0


@pytest.mark.parametrize("name", SUMMARIES)
def test_the_help_lists_each_command_with_the_first_line_of_its_own_help(name: str) -> None:
    command = command_named(name)
    assert SUMMARIES[name] == " ".join(command.help.split("\n\n")[0].split())


LOADED = """
import sys
from headprune.cli import main
sys.argv = ["headprune", *sys.argv[1:]]
try:
    main()
except SystemExit as error:
    status = error.code or 0
else:
    status = 0
heavy = {
    *("torch", "fairseq", "transformers", "matplotlib", "sacrebleu", "numpy"),
    *("fairseq_plugin", "hf_plugin"),
}
if sys.argv[1:] == ["--help"]:
    heavy |= {"pydantic", "headprune.plan", "headprune.cli.plan", "headprune.cli.scores"}
print(status, *sorted(heavy & set(sys.modules)), file=sys.stderr)
"""


@pytest.mark.parametrize(
    "arguments",
    [
        *(["--help"], ["plan", "--help"], ["report", "--help"], ["export", "--help"]),
        *(["glue", "--help"], ["translate", "--help"], ["plan", "--percent", "75"]),
    ],
    ids=" ".join,
)
def test_help_and_plan_load_no_heavy_library(arguments: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-c", LOADED, *arguments], capture_output=True, text=True, check=True
    )
    assert done.stdout
    assert done.stderr == "0\n"


@pytest.mark.parametrize(
    ("redirection", "message"),
    [
        (">/dev/full", r"error: standard output.*: cannot write \(No space left on device\)"),
        (">&-", r"error: standard output is closed; leave it open"),
        ("| head -c 1 >/dev/null", None),
    ],
)
def test_a_standard_output_that_takes_no_more(redirection: str, message: str | None) -> None:
    done = subprocess.run(
        f"{sys.executable} -m headprune.cli plan --percent 50 {redirection}",
        shell=True,
        capture_output=True,
        text=True,
    )
    lines = done.stderr.splitlines()
    if message is None:
        assert lines == []
    else:
        assert done.returncode != 0
        assert len(lines) == 1
        assert re.fullmatch(message, lines[0])


@pytest.mark.parametrize(("shape", "total"), [("EF=2048x4", 2000), ("DF=2048x6", 10_000)])
def test_of_neurons_a_number_is_the_total(shape: str, total: int, tmp_path: Path) -> None:
    """Not one digit for each layer, of which there may be as many."""
    component = shape[:2]
    path = tmp_path / "plan.json"
    made = headprune("plan", "--shape", shape, "--keep", f"{component}={total}", "-o", path)
    assert made.status == 0 and PruningPlan.load(path).total_kept == total
    refused = headprune("plan", "--shape", "DF=2048x6", "--keep", "DF=100000", "-o", path)
    assert (
        refused.status == 2 and "DF: 100000 neurons asked for, the model has 12288" in refused.err
    )


# --- Ctrl-C ----------------------------------------------------------------------------------


@pytest.mark.parametrize("raised", [KeyboardInterrupt(), SystemExit(130)])
def test_an_interruption_is_one_line(
    raised: BaseException, capsys: pytest.CaptureFixture[str]
) -> None:
    """Typer turns the one in a command into the other."""
    with mock.patch("headprune.cli.app", side_effect=raised), pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 130
    assert capsys.readouterr().err == "error: interrupted; run the same command again\n"


def test_an_interrupted_step_of_a_study_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_status(mock.Mock(side_effect=KeyboardInterrupt)) == 130
    assert capsys.readouterr().err == "error: interrupted; run the same command again\n"


def test_an_interrupted_import_is_no_missing_package() -> None:
    """Of transformers, which reports any end of an import as one that is missing."""
    with pytest.raises(KeyboardInterrupt), needing("this needs transformers"):
        try:
            raise KeyboardInterrupt
        except KeyboardInterrupt as error:
            raise ModuleNotFoundError("Could not import module 'PreTrainedModel'") from error
    with (
        pytest.raises(UsageError, match="this needs transformers"),
        needing("this needs transformers"),
    ):
        raise ModuleNotFoundError("No module named 'transformers'")
