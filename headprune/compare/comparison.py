"""The measurements of a comparison, with all that its tables and records need."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from headprune.budget import SPEED
from headprune.compare.pairs import PairTest
from headprune.compare.rows import Row
from headprune.components import HEADS, unit_names
from headprune.plan import PruningPlan
from headprune.recovery.distillation import Distillation
from headprune.recovery.kinds import Recovery, refit_name
from headprune.report.shown import percentage
from headprune.results.environment import Environment, Environments
from headprune.scores.head_scores import HeadScores
from headprune.speed.turns import Quartiles


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """The measurements of a comparison.

    Attributes:
        task, metric, data_name, finetune_name: see ``TaskModel``.
        model, plan, environment: the name of the model as it was given, the units that it kept,
            and where it was measured; None where it is not known.
        base: the metric of the model as it was given.
        components: those that were pruned; None for all attention.
        measure: the quantity that percentages are shares of, see ``Budget``; or ``speed``, for
            which they are speeds as multiples of the unpruned model's.
        timed_job: for speeds, the job and the conditions that they refer to.
        verify: for speeds, the measurements, at most, by which each plan was corrected; 0 where
            predictions were trusted.
        scores: by name.
        rows: see ``Row``.
        speedups: for each method and percentage, the median of the unpruned model's time over that
            of the pruned model, and the quartiles; of methods with several plans over the plans'
            medians. Empty where time was not taken. Older comparisons have those of ``random``
            alone.
        timed_all_plans: whether ``speedups`` are of all plans of a method; older comparisons timed
            that of the first seed.
        costs: the mean seconds that each method took to choose its units, its scores included;
            scores that were computed together have the time of their pass. Empty where it is not
            known.
        settings: see ``TaskModel``.
        constant: whether the model as it was given gives the same output for every example; None
            where it is not known.
        metric_signature, fingerprint: of the model as it was given; see ``Measurement``.
        at_least: units that every layer keeps; None where it is not known.
        positions: the number of positions of each input, such as the patches of an image, where
            the model fixes it; see ``Sizes``.
        recoveries: the treatments after pruning. The weights of a distillation are in
            ``settings``, its teacher is the model as it was given.
        recovery_seconds: for the measurement right after pruning, and for each recovery with the
            measurement after it, the mean seconds of a model; without those that were interrupted
            or that a method trained. Empty where it is not known.
        files: the files with the outputs of the model as it was given; see ``Measured``.
        pairs: tests of the methods against each other; empty where outputs are not known.
        environments: where the models were measured, of a comparison that was read from its folder;
            None: rows have their own environments, or it is not known.
    """

    metric: str
    data_name: str
    finetune_name: str
    components: tuple[str, ...] | None
    base: float
    scores: dict[str, HeadScores]
    rows: tuple[Row, ...]
    speedups: Mapping[str, Mapping[float, Quartiles]]
    settings: dict[str, Any]
    timed_all_plans: bool = False
    constant: bool | None = None
    task: str = ""
    model: str | None = None
    plan: PruningPlan | None = None
    environment: Environment | None = None
    metric_signature: str | None = None
    fingerprint: str | None = None
    measure: str = "units"
    timed_job: str | None = None
    verify: int = 0
    at_least: int | None = None
    positions: int | None = None
    recoveries: tuple[Recovery, ...] = (Recovery.FINETUNE,)
    costs: Mapping[str, float] = field(default_factory=dict)
    recovery_seconds: Mapping[str, float] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)
    pairs: tuple[PairTest, ...] = ()
    environments: Environments | None = None

    @property
    def unit_names(self) -> str:
        """The plural of the name of the units that compete: ``heads``, ``neurons``, ..."""
        return unit_names(self.components or HEADS)

    @property
    def has_timed_methods(self) -> bool:
        """True if the plans of methods were timed, and not those of random units alone."""
        return bool(set(self.speedups) - {"random"})

    def name_of(self, recovery: Recovery) -> str | None:
        """The name of a recovery in signatures; None for fine-tuning and for none."""
        if recovery in (Recovery.NONE, Recovery.FINETUNE):
            return None
        if recovery == Recovery.DISTILL:
            distillation = Distillation.of_settings(self.settings) or Distillation()
            return distillation.name(self.fingerprint)
        if recovery == Recovery.DISTILL_SEQUENCES:
            values = {"beam": self.settings.get("beam"), "from": (self.fingerprint or "")[:12]}
            given = ",".join(f"{name}={value}" for name, value in values.items() if value)
            return f"{recovery}[{given}]"
        # Rows of older versions do not know their number of examples.
        numbers = {row.calibrated_on for row in self.rows if row.recovery == recovery}
        return refit_name(recovery, numbers.pop() if len(numbers) == 1 else None)

    @property
    def quantity(self) -> str:
        """The quantity that percentages are shares of, in words."""
        return (
            self.unit_names if self.measure == "units" else self.measure.replace("flops", "FLOPs")
        )

    @property
    def heading(self) -> str:
        """The heading of the requested percentages or speeds."""
        return "speed asked for" if self.measure == SPEED else f"{self.quantity} pruned"

    def amount_text(self, amount: float) -> str:
        """A requested amount in tables: ``12.5%`` or ``1.5x``."""
        return f"{amount:g}x" if self.measure == SPEED else percentage(amount)
