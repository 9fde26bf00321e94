"""`headprune scores`, from a classifier's folder to a plan."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from headprune import HeadPlan
from headprune.cli import app
from headprune.errors import HeadpruneError
from headprune.scores import HeadScores
from headprune.scores.names import scores_by_default
from tests.hf_plugin.made import SHAPE, write_model, write_task


@pytest.fixture(scope="module")
def classifier(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("classifier"))


@pytest.fixture(scope="module")
def glue(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("glue")
    write_task(folder, "sst2")
    return folder


def headprune(*arguments: object):
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    if result.exception is not None:
        raise result.exception
    return result


def test_all_scores_and_a_plan_from_one(classifier, glue, tmp_path):
    options = ("--task", "sst2", "--data-dir", glue, "--max-length", 32, "-o", tmp_path / "scores")
    result = headprune("scores", classifier, *options)
    assert "warning: nothing says which training examples" in result.stderr
    found = {
        name: HeadScores.load(tmp_path / "scores" / f"{name}.json") for name in scores_by_default()
    }
    for name, scores in found.items():
        assert scores.name == name and scores.heads == SHAPE and scores.scored.is_full
        assert (tmp_path / "scores" / f"{name}.png").stat().st_size > 0
        assert scores.fingerprint == found["gradient"].fingerprint
    assert found["gradient"].data.startswith("glue.sst2.train[")
    assert (found["random"].data, found["magnitude"].data) == ("", "")
    headprune(
        *("plan", "--scores", tmp_path / "scores" / "gradient.json", "--percent", 50),
        *("--model", classifier, "-o", tmp_path / "plan.json"),
    )
    assert HeadPlan.load(tmp_path / "plan.json").percent_pruned == 50


def test_the_score_random_ranks_as_at_random_does(classifier, glue, tmp_path):
    options = ("--task", "sst2", "--score", "random", "--seed", 7, "-o", tmp_path)
    headprune("scores", classifier, *options)
    ranked = ("--scores", tmp_path / "random.json", "--at-least", 0)
    headprune("plan", *ranked, "--percent", 60, "-o", tmp_path / "ranked.json")
    drawn = ("--model", classifier, "--seed", 7)
    headprune("plan", *drawn, "--percent", 60, "-o", tmp_path / "drawn.json")
    assert HeadPlan.load(tmp_path / "ranked.json") == HeadPlan.load(tmp_path / "drawn.json")


def test_normalised_and_on_the_development_set(classifier, glue, tmp_path):
    options = ("--task", "sst2", "--data-dir", glue, "--score", "gradient", "--normalise")
    options = (*options, "--max-length", 32)
    result = headprune("scores", classifier, *options, "--split", "dev", "-o", tmp_path)
    assert "warning: scores computed on dev" in result.stderr
    for row in HeadScores.load(tmp_path / "gradient.json").values["ES"]:
        assert sum(value**2 for value in row) == pytest.approx(1)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            ["--task=sst2", "--score=best"],
            "there is no score 'best'; there are gradient, gradient-raw",
        ),
        (["--task=sst3"], "there is no task 'sst3'"),
        (["--task=sst2", "--split=test"], "sst2 has no split 'test'; it has train, dev"),
        (["--task=sst2", "--max-length=128"], "max length 128: .* takes 32 tokens at most"),
        (["--task=mnli"], "labels|shape|classifier"),
        (["--task=sst2", "--data-dir=nowhere", "--max-length=32"], "nowhere: no such folder"),
    ],
)
def test_mistakes_are_one_line(options, message, classifier, tmp_path):
    with pytest.raises(HeadpruneError, match=message) as caught:
        headprune("scores", classifier, *options, "-o", tmp_path / "out")
    assert "\n" not in str(caught.value) and not (tmp_path / "out").exists()


def test_syntactic_roles_from_parses(classifier, glue, tmp_path):
    sentence = "1\tdog\t_\tNOUN\t_\t_\t2\tnsubj\t_\t_\n2\tsees\t_\tVERB\t_\t_\t0\troot\t_\t_\n\n"
    (tmp_path / "some.conllu").write_text(sentence * 3)
    options = ("--task", "sst2", "--score", "magnitude", "--conllu", tmp_path / "some.conllu")
    result = headprune("scores", classifier, *options, "--max-length", 32, "-o", tmp_path / "out")
    assert "nsubj-to-head, nsubj-from-head" in result.stdout
    made = HeadScores.load(tmp_path / "out" / "nsubj-to-head.json")
    assert made.data == "some.conllu[3],32tok" and made.settings["positional_baseline"] == 1
    assert {value for row in made.values["ES"] for value in row} <= {0.0, 1.0}
    ranked = ("--scores", tmp_path / "out" / "nsubj-to-head.json", "--percent", 50)
    headprune("plan", *ranked, "--model", classifier, "-o", tmp_path / "plan.json")
