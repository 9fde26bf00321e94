"""A model with its task and data: the protocol that comparisons and methods are written against."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from headprune.recovery.variant import PLAIN, Variant

if TYPE_CHECKING:  # it imports torch, and plans are made without it
    from headprune.model import PrunableModel
    from headprune.plan import PruningPlan
    from headprune.recovery.calibration import Calibration
    from headprune.recovery.refit import RefittedModel, Target
    from headprune.scores.head_scores import HeadScores


@dataclass(frozen=True)
class Measurement:
    """The metric of a model.

    Attributes:
        value: the value of the metric.
        constant: whether the model gives the same output for every example although the
            references differ; None where it is not known.
        signature: sacreBLEU's, of the metric; None where the metric has none, or it is not known.
        fingerprint: the fingerprint of the weights that were measured; None where it is not known.
        others: the values of further metrics by name.
        other_signatures: sacreBLEU's signatures of these, by name, where they have any.
        outputs: the contents of the files that a record of the measurement has, by the name in
            ``Record.files``: ``predictions``, or ``hypotheses`` and ``reference``; empty where they
            are not known.
        packages: the names of the packages, besides torch, whose versions a record states.
    """

    value: float
    constant: bool | None = None
    signature: str | None = None
    fingerprint: str | None = None
    others: Mapping[str, float] = field(default_factory=dict)
    other_signatures: Mapping[str, str] = field(default_factory=dict)
    outputs: Mapping[str, str] = field(default_factory=dict, repr=False)
    packages: Sequence[str] = ()


@runtime_checkable
class TaskModel(Protocol):
    """A trained model with the data to score it on, and other data to measure it on."""

    @property
    def model(self) -> PrunableModel:
        """The file or folder of the model."""

    @property
    def task(self) -> str:
        """The name of the task in records: ``translation``, a task of GLUE, or of a user's."""

    @property
    def metric(self) -> str:
        """Name of the metric of ``measure``: accuracy, BLEU, ...; for its direction see
        ``headprune.results.metrics``.
        """

    @property
    def settings(self) -> Mapping[str, Any]:
        """All settings that scores, measurements and fine-tunings depend on, as JSON values."""

    @property
    def data_name(self) -> str:
        """The name, in signatures, of the data for fine-tuning and measuring."""

    @property
    def measured_data_name(self) -> str:
        """The name of the data that it is measured on, without the part of a fine-tuning's."""

    @property
    def finetune_name(self) -> str:
        """The length of the fine-tuning, in the notation of signatures; ``none`` without one."""

    @property
    def can_finetune(self) -> bool:
        """True if settings for fine-tuning were given."""

    def scores(
        self, names: Sequence[str], *, seed: int, components: Sequence[str] | None = None
    ) -> dict[str, HeadScores]:
        """Scores of the model; ``ablation`` uses ``metric`` if that is fast enough.

        Args:
            names: the names of the scores.
            seed: the seed of the score ``random``.
            components: those whose units are scored; None: all attention.
        """

    def measure(self, plan: PruningPlan | None = None) -> Measurement:
        """The metric of the model; with a ``plan``, after pruning all other units."""

    def measure_held_out(self, plan: PruningPlan | None = None) -> Measurement:
        """The metric on the held-out examples of ablation (see ``headprune.scores.parts``).

        They are used neither for training nor for scores nor for reported results, so choices that
        need the metric are made on them.
        """

    def pruned(self, plan: PruningPlan, folder: Path) -> TaskModel:
        """The model with only the units of ``plan``, written to a new folder."""

    def calibration(self) -> Calibration:
        """The model in memory, with examples that no model is reported on."""

    def refitted(
        self,
        plan: PruningPlan,
        *,
        target: Target = "output",
        trained: TaskModel | None = None,
    ) -> RefittedModel:
        """The model with only the units of ``plan``, re-fitted on the examples of ``calibration``.

        See ``headprune.recovery.refit``, for the targets too. No file is written.

        Args:
            plan: the units.
            target: what a sub-layer reproduces.
            trained: a model that was trained further, whose weights are taken in place of this
                one's. The outputs to reproduce are this one's.
        """

    def opened(self, path: Path) -> TaskModel:
        """Another model of the same task and data."""

    def finetuned(
        self, plan: PruningPlan, *, seed: int, folder: Path, variant: Variant = PLAIN
    ) -> TaskModel:
        """The pruned model, fine-tuned; resumes an interrupted fine-tuning in ``folder``.

        A finished one is not repeated. With learned gates, the model has fewer units than ``plan``:
        those whose gates are open.
        """

    def seconds(self, plans: Sequence[PruningPlan], *, rounds: int) -> list[list[float]]:
        """The run time for each plan in each round, in seconds; each round times every plan."""


def translates(model: TaskModel) -> bool:
    """Tell if a model can be fine-tuned on its own translations (``Variant.translations``).

    Backends whose models can have the property ``translates``.
    """
    return bool(getattr(model, "translates", False))


def require_scores(model: TaskModel, names: Sequence[str]) -> None:
    """Raise a UsageError for scores that a model's settings do not allow; nothing is computed.

    Backends with settings that only some scores need have a method of this name.
    """
    method = getattr(model, "require_scores", None)
    if method is not None:
        method(names)


def training_settings(model: TaskModel) -> Mapping[str, Any]:
    """The settings that only trainings depend on, and the choice of the examples held out for them.

    A comparison can gain them later. They are the property ``training_settings``, which backends
    may leave out: a part of ``settings``, None or [] where a value is not given.
    """
    values: Mapping[str, Any] = getattr(model, "training_settings", {})
    return values


def holds_out_the_same(model: TaskModel, settings: Mapping[str, Any]) -> bool:
    """Tell if the same examples are held out with other ``training_settings``.

    Backends whose trainings and scores share a set of examples have a method of this name.

    Args:
        model: the model with its settings.
        settings: other settings, as in ``TaskModel.settings``.
    """
    method = getattr(model, "holds_out_the_same", None)
    return method is None or bool(method(settings))
