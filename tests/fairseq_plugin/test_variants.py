"""Variants of a fine-tuning as flags of fairseq-train, and in a comparison."""

from __future__ import annotations

import json

import pytest

from fairseq_plugin.criterions.label_smoothed_cross_entropy_with_l0 import NAME
from fairseq_plugin.learned_gates import target_budget
from fairseq_plugin.variants import L0_CRITERION, variant_flags
from headprune import Budget, PruningPlan, UsageError
from headprune.recovery.variant import PLAIN, GateTraining, Variant

from .test_compare import FINETUNE, forked_programs, headprune, prepared  # noqa: F401

FLAGS = ["--arch", "x", "--criterion", "cross_entropy", "--clip-norm=1", "--lr", "1e-3"]
GATES = GateTraining(components=("ES", "EF"), budget=Budget(50, "parameters"))


def test_flags() -> None:
    assert variant_flags(FLAGS, PLAIN, components=["EL", "DL"]) == FLAGS
    assert L0_CRITERION == NAME
    assert variant_flags(FLAGS, Variant(gates=GATES), components=[]) == [
        *("--arch", "x", "--lr", "1e-3", "--criterion", NAME, "--gates", "ES,EF"),
        *("--l0-target", "50%", "--l0-target-of", "parameters"),
        *("--l0-warmup-updates", "50%", "--disable-validation"),
    ]
    long = GateTraining(components=("ES",), budget=Budget(50, "flops at 65 tokens"))
    flags = variant_flags(FLAGS, Variant(gates=long), components=[])
    target = flags[flags.index("--l0-target") + 1]
    assert target_budget(target, flags[flags.index("--l0-target-of") + 1]) == long.budget
    fixed = GateTraining(components=("ES",), l0_lambda=0.05)
    assert variant_flags(FLAGS, Variant(gates=fixed), components=[]) == [
        *("--arch", "x", "--lr", "1e-3", "--criterion", NAME, "--gates", "ES"),
        *("--l0-lambda", "0.05", "--disable-validation"),
    ]
    assert variant_flags(
        [*FLAGS, "--encoder-layerdrop", "0.5"], Variant(layerdrop=0.2), components=["EL"]
    ) == [
        *FLAGS,
        "--encoder-layerdrop=0.2",
    ]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"layerdrop": 1.0}, "--layerdrop 1: give a probability from 0, below 1"),
        ({"gates": GATES, "distilled": True}, "exclude each other"),
    ],
)
def test_impossible_variants(values: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Variant(**values)  # type: ignore[arg-type]


@pytest.mark.slow
def test_gates_and_trainings_from_scratch_in_a_comparison(full, prepared, tmp_path):  # noqa: F811
    options = ("--data", prepared, "--score", "l0-gates", "--percent", 50, "--seeds", 1)
    more = ("--rounds", 0, "--beam", 2, "--finetune", FINETUNE, "-o", tmp_path)
    recoveries = ("--recovery", "finetune", "--recovery", "scratch")
    headprune("compare", full, *options, *more, *recoveries)
    found = json.loads((tmp_path / "compare.json").read_text())
    rows = {(row["score"], row["recovery"]): row for row in found["rows"]}
    assert {*rows} == {
        (score, recovery)
        for score in ("control", "l0-gates", "random")
        for recovery in ("finetune", "scratch")
    }
    gated = rows["l0-gates", "finetune"]
    plan = PruningPlan.from_json(json.dumps(gated["plan"]))
    assert plan.total_kept == 12 and gated["plan"] == rows["l0-gates", "scratch"]["plan"]
    logs = (tmp_path / "compare.md").read_text()
    assert "recovery:scratch" in logs and "select:l0-gates" in logs
