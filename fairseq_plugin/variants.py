"""Flags of fairseq-train for the variants of a fine-tuning."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fairseq_plugin.running import PLUGIN
from headprune.budget import base_measure
from headprune.recovery.variant import GateTraining, Variant

L0_CRITERION = "label_smoothed_cross_entropy_with_l0"
"""The criterion of ``fairseq_plugin.criterions``, named here as its module imports fairseq."""

_WARM_UP = "50%"
"""The share of the training during which the gates' target rises."""

_SIDES = {"EL": "encoder", "DL": "decoder"}


def variant_flags(
    flags: Sequence[str], variant: Variant, *, components: Sequence[str]
) -> list[str]:
    """The flags for fairseq-train of a variant of a training.

    Args:
        flags: those of the plain training.
        variant: the variant.
        components: those of whole layers that the model has, for LayerDrop.
    """
    if variant.gates is not None:
        return [*_without(flags, ("--criterion", "--clip-norm")), *_gate_flags(variant.gates)]
    if variant.layerdrop:
        sides = [_SIDES[name] for name in components]
        drops = [f"--{side}-layerdrop={variant.layerdrop:g}" for side in sides]
        return [*_without(flags, [f"--{side}-layerdrop" for side in sides]), *drops]
    return list(flags)


def finetuning_flags(
    flags: Sequence[str], *, plan: Path, seed: int, start: Path | None
) -> list[str]:
    """The flags for fairseq-train of a fine-tuning of a pruned model.

    Args:
        flags: those of the training itself.
        plan: the file of the plan.
        seed: the seed of the training.
        start: the checkpoint to begin with; None for random weights.
    """
    return [
        *("--user-dir", str(PLUGIN), *flags),
        *([] if start is None else ["--finetune-from-model", str(start)]),
        *("--head-plan", str(plan), "--seed", str(seed)),
        *("--no-epoch-checkpoints", "--no-progress-bar"),
    ]


def _gate_flags(gates: GateTraining) -> list[str]:
    """The gates' flags. The last checkpoint counts, as the best often has open gates still."""
    penalty = ["--l0-lambda", repr(gates.l0_lambda)]
    if gates.budget is not None:
        # In two flags, as older versions wrote it: a study repeats a training whose flags change.
        target, measure = f"{gates.budget.percent!r}%", base_measure(gates.budget.of)
        if measure != gates.budget.of:
            target += f" of {gates.budget.of}"
        penalty = ["--l0-target", target, "--l0-target-of", measure]
        penalty += ["--l0-warmup-updates", _WARM_UP]
    return [
        *("--criterion", L0_CRITERION, "--gates", ",".join(gates.components)),
        *([] if gates.speed is None else ["--gates-speed", repr(gates.speed)]),
        *(*penalty, "--disable-validation"),
    ]


def _without(flags: Sequence[str], names: Sequence[str]) -> list[str]:
    """The flags without those of these names, which take one value each."""
    kept: list[str] = []
    is_value = False
    for word in flags:
        if is_value:
            is_value = False
        elif word in names:
            is_value = True
        elif word.split("=")[0] not in names:
            kept.append(word)
    return kept
