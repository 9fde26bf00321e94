"""Claims that stand on scores of heads: one head in a layer, and specialised heads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from headprune.claims.catalogue import all_claims
from headprune.claims.outcome import Assessed, Outcome
from headprune.claims.single_heads import require_comparable
from headprune.errors import DataError
from headprune.results.control_tests import Located
from headprune.results.significance import SIGNIFICANCE_LEVEL
from headprune.scores import HeadScores
from headprune.select import at_random
from tests.claims.assessment import assess
from tests.claims.calibration import most
from tests.claims.conftest import TRANSFORMER, Make
from tests.command import headprune

WEIGHTS = "0123456789abcdef"

Drops = Sequence[Sequence[float | None]]


def alone(drops: Drops, *, split: str, metric: str = "bleu", p_value: float = 0.5) -> HeadScores:
    """Drops of the heads of ES, with one p-value."""
    return HeadScores(
        name="alone",
        values={"ES": drops},
        model="runs/model.pt",
        fingerprint=WEIGHTS,
        data=f"made-up.{split}[500]",
        settings={"metric": metric, "base": 30.0},
        p_values={"ES": [[None if d is None else p_value for d in row] for row in drops]},
    )


def outcome(
    name: str, scores: Sequence[HeadScores], results: Sequence[Located] = ()
) -> list[Assessed]:
    return [
        each
        for each in assess(all_claims(), results, scores=scores, test=False)
        if each.claim.name == name
    ]


def one_head(*scores: HeadScores) -> Assessed:
    (assessed,) = outcome("one-head-is-enough", scores)
    return assessed


def test_heads_are_chosen_on_other_examples_than_they_are_measured_on() -> None:
    # In the first layer each file's best head is poor in the other file; the second layer has one
    # head that is good in both.
    assessed = one_head(
        alone([[0.0, 2.0], [0.1, 3.0]], split="valid"),
        alone([[4.0, 0.0], [0.2, 3.0]], split="test", p_value=0.001),
    )
    assert assessed.measurement is not None and assessed.runs is not None
    assert assessed.runs.title == "scores of model.pt"
    (part,) = assessed.measurement.parts
    assert part.name == "layers that lose at most 0.15 BLEU with one head"
    assert part.effect == 50  # 3.0 and 0.15 BLEU
    significant, largest = assessed.measurement.counts
    assert significant.startswith("a loss is significant in 2 of 4 tests (p < 0.05 after Holm's")
    assert largest == "the largest loss is 3.00 BLEU, in ES layer 0"


@pytest.mark.parametrize(
    ("losing", "expected"), [(0, Outcome.HOLDS), (4, Outcome.UNKNOWN), (8, Outcome.FAILS)]
)
def test_most_layers(losing: int, expected: Outcome) -> None:
    drops = [[5.0, 2.0]] * losing + [[0.5, 7.0]] * (8 - losing)
    files = [alone(drops, split=split, metric="accuracy") for split in ("train", "dev")]
    assert one_head(*files).outcome is expected


def test_layers_with_one_kept_head_say_nothing() -> None:
    drops: Drops = [[None, 0.0], [0.0, 0.0], [0.0, 0.0]]
    assessed = one_head(*(alone(drops, split=split) for split in ("valid", "test")))
    assert assessed.weakest is not None and assessed.weakest.estimate is not None
    assert assessed.weakest.estimate.n == 2


def test_losses_at_the_limit_are_seldom_called_anything() -> None:
    """Null data: every head of every layer loses what is allowed, and the files have noise."""
    noise = np.random.default_rng(1).normal(0.15, 0.4, size=(400, 2, 18, 8))
    decided = sum(
        one_head(
            *(alone(drops, split=split) for drops, split in zip(model.tolist(), "ab", strict=True))
        ).outcome
        is not Outcome.UNKNOWN
        for model in noise
    )
    # Two one-sided tests, each of at most this level.
    assert decided / len(noise) <= most(2 * SIGNIFICANCE_LEVEL, len(noise))


def test_scores_that_decide_nothing() -> None:
    drops = [[0.0, 1.0]] * 6
    one = alone(drops, split="valid")
    loss = replace(one, settings={"metric": "loss"}, data="made-up.test[500]")
    other = replace(one, fingerprint="f" * 16, data="made-up.test[500]")
    for files in ([one], [one, loss], [one, other]):
        assert all(each.outcome is Outcome.NOT_RUN for each in outcome("one-head-is-enough", files))


def test_files_of_the_same_examples_are_refused(tmp_path: Path) -> None:
    """A page, which takes all scores in a folder, leaves them out."""
    drops = [[0.0, 1.0]] * 6
    valid = alone(drops, split="valid")
    fewer = replace(valid, data="made-up.valid[250]")
    with pytest.raises(DataError, match=r"two files of the same examples, made-up.valid\[500\]"):
        require_comparable([valid, fewer])
    accuracy = alone(drops, split="test", metric="accuracy")
    with pytest.raises(DataError, match="by bleu and by accuracy; give those of one metric"):
        require_comparable([valid, accuracy])
    require_comparable([valid, replace(accuracy, fingerprint="other"), alone(drops, split="test")])
    for files in ([valid, fewer], [valid, accuracy]):
        assert one_head(*files).outcome is Outcome.NOT_RUN
    assert one_head(valid, fewer, accuracy, alone(drops, split="test")).outcome is Outcome.HOLDS
    valid.save(tmp_path / "one.json")
    run = headprune("claims", "--scores", tmp_path / "one.json", "--scores", tmp_path / "one.json")
    assert run.status == 1 and "two files of the same examples" in run.err


def test_the_command_takes_files_of_scores(tmp_path: Path) -> None:
    files = []
    for split in ("valid", "test"):
        path = tmp_path / f"{split}.json"
        alone([[0.0, 1.0]] * 6, split=split).save(path)
        files += ["--scores", str(path)]
    run = headprune("claims", *files)
    assert run.status == 0, run.err
    assert "does not hold in" not in run.out and "holds in scores of model.pt. layers" in run.out
    run = headprune("claims", *files[:2])
    assert run.status == 0 and "no claim is decided by these files" in run.err


def role(name: str, values: Sequence[Sequence[float]], **settings: object) -> HeadScores:
    return HeadScores(
        name=name, values={"ES": values}, fingerprint=WEIGHTS, settings=settings, data="made-up"
    )


NONE = [[0.1] * 8 for _ in range(6)]


def with_gates(translations: Make, *kept: str) -> list[Located]:
    """The unpruned model, and plans of gates on ES; a seed has plans of its own."""
    (unpruned,) = translations(30.0, kind="baseline")
    results = [(unpruned[0], replace(unpruned[1], fingerprint=WEIGHTS))]
    for counts in kept:
        keep = {"ES": counts, "ED": "888888", "DS": "888888"}
        results += translations(29.0, 29.5, 29.2, keep=keep, method="l0-gates")
    return results


def test_specialised_heads_among_the_kept(translations: Make) -> None:
    results = with_gates(translations, "444444", "222222")
    kept = [
        {(layer, head) for layer, heads in enumerate(record.plan.kept["ES"]) for head in heads}
        for _, record in results[1:]
    ]
    every = {(layer, head) for layer in range(6) for head in range(8)}
    # Heads that the gates of all seeds keep, as positional, and others as syntactic heads.
    positional = [
        [0.95 if (k, h) in set.intersection(*kept) else 0.1 for h in range(8)] for k in range(6)
    ]
    never = sorted(every - set.union(*kept))[:2]
    syntactic = [[0.55 if (k, h) in never else 0.1 for h in range(8)] for k in range(6)]
    roles = [role("next", positional), role("amod-to-head", syntactic, positional_baseline=0.44)]
    (assessed,) = outcome("specialised-heads-last", roles, results)
    assert assessed.measurement is not None and assessed.weakest is not None
    number = len(set.intersection(*kept)) + len(never)
    assert assessed.measurement.counts == [
        f"{number} of 48 ES heads are specialised (next, amod-to-head)"
    ]
    shared = len(set.intersection(*kept))
    expected = (shared / 24 + shared / 12) / 2 - number / 48
    assert assessed.weakest.effect == pytest.approx(100 * expected)


def test_plans_that_prune_neurons_too_are_no_evidence_on_specialised_heads(
    translations: Make,
) -> None:
    results = with_gates(translations)
    keep = {"ES": "444444", "ED": "888888", "DS": "888888", "EF": "777777"}
    plans = [at_random({**TRANSFORMER, "EF": (8,) * 6}, seed=seed, keep=keep) for seed in (1, 2)]
    results += translations(29.0, 29.5, plans=plans, method="l0-gates")
    positional = role("previous", [[0.95] * 8 for _ in range(6)])
    (assessed,) = outcome("specialised-heads-last", [positional], results)
    assert assessed.outcome is Outcome.NOT_RUN


def test_a_model_without_specialised_heads_decides_nothing(translations: Make) -> None:
    results = with_gates(translations, "444444")
    (assessed,) = outcome("specialised-heads-last", [role("previous", NONE)], results)
    assert assessed.outcome is Outcome.UNKNOWN and assessed.measurement is not None
    assert assessed.measurement.counts == ["0 of 48 ES heads are specialised (previous)"]
    for scores in ([], [role("separator", NONE)], [replace(role("next", NONE), fingerprint="x")]):
        assert all(
            each.outcome is Outcome.NOT_RUN
            for each in outcome("specialised-heads-last", scores, results)
        )


def test_claims_on_rows_do_not_hide_that_scores_decide_none(
    translations: Make, tmp_path: Path
) -> None:
    results = with_gates(translations, "444444")
    for path, record in results:
        record.save(path)
    records = [path for path, _ in results]
    for name, expected in (("separator", True), ("previous", False)):
        role(name, NONE).save(tmp_path / "scores.json")
        run = headprune("claims", *records, "--scores", tmp_path / "scores.json", "--no-test")
        assert run.status == 0, run.err
        assert ("no claim is decided by these files" in run.err) is expected
