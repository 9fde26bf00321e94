"""`headprune scores`: what happens around the passes over the data, which are left out."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from typer.testing import CliRunner

from headprune import DataError, UsageError
from headprune.backends import backends
from headprune.cli import app
from headprune.scores import HeadScores
from headprune.scores.compute import Origin, compute_scores

CLASSIFIER = ("folder", "--task", "sst2")
SCORE = (type(backends("hub")[0]), "score")
"""The method that makes the passes over the data."""


def command(*arguments: object) -> Any:
    result = CliRunner().invoke(app, ["scores", *map(str, arguments)])
    if result.exception is not None:
        raise result.exception
    return result


def made(name: str) -> HeadScores:
    return HeadScores(name=name, values={"ES": [[1.0, 2.0], [3.0, None]]})


def test_all_scores_are_saved_before_any_is_drawn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    found = {name: made(name) for name in ("gradient", "magnitude")}
    with (
        mock.patch.object(*SCORE, return_value=found),
        pytest.raises(UsageError, match=r"^drawing figures needs .*; pip install matplotlib$"),
    ):
        command(*CLASSIFIER, "-o", tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"gradient.json", "magnitude.json"}


@pytest.mark.parametrize(
    ("installed", "error", "message"),
    [
        (True, DataError, r"some.conllu: cannot be read: No such file"),
        (False, UsageError, "needs the package conllu .*; pip install conllu$"),
    ],
)
def test_without_parses_nothing_is_scored(
    installed: bool,
    error: type[Exception],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if installed:
        pytest.importorskip("conllu")
    else:
        monkeypatch.setitem(sys.modules, "conllu", None)
    with (
        mock.patch.object(*SCORE) as score,
        pytest.raises(error, match=message),
    ):
        command(*CLASSIFIER, "--conllu", tmp_path / "some.conllu", "-o", tmp_path)
    score.assert_not_called()


@pytest.mark.parametrize(
    ("task", "metric"), [("sst2", "accuracy"), ("cola", "accuracy"), ("stsb", "loss")]
)
def test_ablation_of_a_number_is_measured_by_the_loss(
    task: str, metric: str, tmp_path: Path
) -> None:
    run = pytest.importorskip("hf_plugin.scores.run")
    with mock.patch.object(run, "score_heads", return_value={}) as score:
        command("folder", "--task", task, "-o", tmp_path)
        assert score.call_args.kwargs["metric"] == metric
        command("folder", "--task", task, "--metric", "loss", "-o", tmp_path)
        assert score.call_args.kwargs["metric"] == "loss"


def test_there_is_no_accuracy_of_a_number(tmp_path: Path) -> None:
    run = pytest.importorskip("hf_plugin.scores.run")
    with (
        mock.patch.object(run, "score_heads") as score,
        pytest.raises(UsageError, match="--metric accuracy: stsb is to predict a number"),
    ):
        command("folder", "--task", "stsb", "--metric", "accuracy", "-o", tmp_path)
    score.assert_not_called()


@pytest.mark.parametrize(
    ("metric", "message"),
    [
        ("bleu", "metric bleu: it is one of accuracy, loss"),
        ("loss", "needs scipy .*; pip install scipy$"),
    ],
)
def test_what_ablation_cannot_do_is_refused_before_the_first_pass(
    metric: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "scipy.stats", None)
    with pytest.raises(UsageError, match=message):
        compute_scores(
            mock.Mock(sublayers={"ES": []}, layers={}),
            ["gradient", "ablation"],
            batches=lambda purpose: pytest.fail(f"a pass for {purpose}"),
            origin=Origin(model="m", fingerprint="f"),
            metric=metric,
            seed=1,
        )


def test_options_of_the_other_kind_of_model_are_refused(tmp_path: Path) -> None:
    checkpoint = tmp_path / "model.pt"
    checkpoint.write_bytes(b"")
    with pytest.raises(UsageError, match="is a fairseq checkpoint, .* no --max-length"):
        command(checkpoint, "--max-length", 64, "-o", tmp_path)
    with pytest.raises(UsageError, match="is a Hugging Face model, .* no --beam"):
        command(*CLASSIFIER, "--beam", 4, "-o", tmp_path)
