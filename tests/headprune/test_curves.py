"""Training curves, from logs of fairseq-train and from records."""

from __future__ import annotations

from pathlib import Path

import pytest

from headprune.plan import PruningPlan
from headprune.results.curves import Curve, curve_of, read_log
from headprune.results.record import Record

BEGINS = (
    "2026-01-01 00:00:00 | INFO | fairseq.trainer | No existing checkpoint found checkpoint_last.pt"
)
INNER = (
    "2026-01-01 00:00:00 | INFO | train_inner | epoch 001:     50 / 104 loss={loss}, "
    "nll_loss=1.942, ppl=3.84, wps=5752.8, num_updates={updates}, lr=0, gnorm=1.145"
)
VALID = (
    "2026-01-01 00:00:00 | INFO | valid | epoch 001 | valid on 'valid' subset | loss {loss} | "
    "nll_loss 1.018 | ppl 2.02 | wps 14830.6 | num_updates {updates} | best_loss 1.5"
)
EPOCH = (
    "2026-01-01 00:00:00 | INFO | train | epoch 001 | loss {loss} | nll_loss 1.942 | "
    "num_updates {updates} | lr 0 | gnorm 1.145"
)


def written(path: Path, *lines: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


def test_a_log_has_the_losses_inside_of_epochs_and_of_validations(tmp_path: Path) -> None:
    log = written(
        tmp_path / "train.log",
        BEGINS,
        INNER.format(loss="9.5", updates=50),
        INNER.format(loss="4.25", updates=100),
        EPOCH.format(loss="7.0", updates=104),
        VALID.format(loss="3.5", updates=104),
    )
    assert read_log(log) == Curve(train=((50, 9.5), (100, 4.25)), valid=((104, 3.5),))


def test_a_short_training_has_the_losses_of_its_epochs(tmp_path: Path) -> None:
    log = written(tmp_path / "train.log", BEGINS, EPOCH.format(loss="7.0", updates=20))
    assert read_log(log) == Curve(train=((20, 7.0),))


def test_a_resumed_training_counts_its_later_figures_and_a_new_one_forgets(tmp_path: Path) -> None:
    lines = [
        BEGINS,
        INNER.format(loss="9.5", updates=50),
        INNER.format(loss="8.5", updates=100),
        "2026-01-01 00:00:00 | INFO | fairseq.trainer | Loaded checkpoint checkpoint_last.pt",
        INNER.format(loss="8.0", updates=100),
        INNER.format(loss="inf", updates=150),
    ]
    assert read_log(written(tmp_path / "a.log", *lines)).train == ((50, 9.5), (100, 8.0))
    again = [*lines, BEGINS, INNER.format(loss="9.0", updates=50)]
    assert read_log(written(tmp_path / "b.log", *again)).train == ((50, 9.0),)


@pytest.mark.parametrize(
    "begins",
    [
        "note: its flags, data or plan have changed since it began; beginning anew",
        "2026-01-01 00:00:00 | INFO | fairseq.trainer | Loaded checkpoint baseline/model.pt "
        "(epoch 11 @ 0 updates)",
    ],
)
def test_a_fine_tuning_that_begins_anew_forgets(begins: str, tmp_path: Path) -> None:
    resumed = BEGINS.split(" | No ")[0] + " | Loaded checkpoint last.pt (epoch 2 @ 50 updates)"
    first, again = (
        [INNER.format(loss=loss, updates=updates) for updates in range(50, last + 1, 50)]
        for loss, last in (("5.0", 200), ("3.0", 100))
    )
    log = written(tmp_path / "train.log", *first, begins, again[0], resumed, again[1])
    assert read_log(log).train == ((50, 3.0), (100, 3.0))


def test_a_long_curve_is_thinned_and_keeps_its_end() -> None:
    curve = Curve(train=tuple((n, 1.0 / n) for n in range(1, 1001)))
    kept = Curve.from_json(curve.as_json()).train
    assert len(kept) == 200 and kept[-1] == curve.train[-1]
    assert set(kept) <= set(curve.train)


def test_a_record_has_its_curve_before_the_log_beside_it(tmp_path: Path) -> None:
    plan = PruningPlan.full({"ES": (2,)})
    record = Record(task="translation", metrics={"bleu": 1.0}, plan=plan, signature="seed:1")
    path = tmp_path / "result.json"
    assert not curve_of(path, record)
    written(tmp_path / "training" / "train.log", EPOCH.format(loss="7.0", updates=20))
    assert curve_of(path, record).train == ((20, 7.0),)
    record.training["curve"] = {"train": [[5, 2.5], ["x", 1], [6]], "valid": None}
    assert curve_of(path, record) == Curve(train=((5, 2.5),))
