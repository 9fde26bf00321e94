"""A fairseq training that diverges ends with one line, and writes no checkpoint."""

from __future__ import annotations

import math
from argparse import Namespace
from pathlib import Path
from typing import Any

import pytest
from fairseq import checkpoint_utils
from fairseq.trainer import Trainer

from fairseq_plugin import divergence  # importing the plugin changes fairseq's training
from fairseq_plugin.divergence import of_finite_loss, with_one_line
from headprune.errors import DataError
from tests.fairseq_plugin.conftest import train

TRAINER = Namespace(get_num_updates=lambda: 7)


def test_one_line_and_no_checkpoint(corpus: Path, tmp_path: Path) -> None:
    words = train(*(corpus, tmp_path, "--arch=transformer_headpruned_tiny", "--lr=1e300"), status=1)
    assert words.strip().splitlines()[-1].startswith("error: the training has diverged at update 1")
    assert "Traceback" not in words
    assert not list(tmp_path.glob("checkpoint*"))


def test_fairseq_s_training_is_watched() -> None:
    for function in (Trainer.train_step, checkpoint_utils.save_checkpoint):
        assert function.__code__.co_filename == divergence.__file__


@pytest.mark.parametrize(
    ("problem", "message"),
    [
        (FloatingPointError("gradients are Nan/Inf"), "at update 8 .gradients are Nan/Inf.; give"),
        (FloatingPointError("Minimum loss scale reached (0.0001). Try"), "at update 8 .Minimum"),
    ],
)
def test_numbers_that_are_not_finite(problem: Exception, message: str) -> None:
    def train_step(*_: Any) -> None:
        raise problem

    with pytest.raises(DataError, match=f"the training has diverged {message}"):
        with_one_line(train_step)(TRAINER)


def test_an_error_of_the_search_for_the_place_is_not_what_is_reported() -> None:
    def train_step(*_: Any) -> None:
        try:
            raise FloatingPointError("gradients are Nan/Inf")
        except FloatingPointError:
            next(iter(()))  # as torch's hooks do with the encoder's outputs

    with pytest.raises(DataError, match="diverged at update 8 .gradients are Nan/Inf."):
        with_one_line(train_step)(TRAINER)


def test_other_errors_stay_what_they_are() -> None:
    def train_step(*_: Any) -> None:
        raise FloatingPointError("Fatal error: gradients are inconsistent between workers")

    with pytest.raises(FloatingPointError, match="inconsistent"):
        with_one_line(train_step)(TRAINER)


def test_a_checkpoint_is_saved_only_where_the_validation_is_finite() -> None:
    saved: list[float | None] = []
    save = of_finite_loss(lambda cfg, trainer, iterator, loss: saved.append(loss))
    cfg = Namespace(best_checkpoint_metric="loss")
    for loss in (None, 3.5):
        save(cfg, TRAINER, None, loss)
    for loss in (math.nan, math.inf):
        with pytest.raises(DataError, match="after update 7 the loss of the validation is"):
            save(cfg, TRAINER, None, loss)
    assert saved == [None, 3.5]
