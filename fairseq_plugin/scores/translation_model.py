"""A translation model with its data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import pairwise
from pathlib import Path
from typing import Any

from fairseq_plugin.checkpoints import Checkpoint
from fairseq_plugin.loading import fairseq_silent, languages_of
from fairseq_plugin.measuring import search_flags, translate
from fairseq_plugin.recovery import calibration_of, refitted
from fairseq_plugin.running import Job, train
from fairseq_plugin.schedule import length_name, require_one_length
from fairseq_plugin.scores.bleu_ablation import Translator
from fairseq_plugin.scores.model import Batch, FairseqModel
from fairseq_plugin.scores.movement import require_flags
from fairseq_plugin.scores.run import (
    batches_of,
    beam_search,
    data_name,
    load_items,
    load_scored,
    score_heads,
)
from fairseq_plugin.training_folder import FAIRSEQ_PACKAGES
from fairseq_plugin.translated_data import translated_training_set
from fairseq_plugin.variants import finetuning_flags, variant_flags
from headprune.backends import ScoreRequest
from headprune.components import LAYERS
from headprune.errors import UsageError
from headprune.plan import PruningPlan
from headprune.recovery.calibration import EXAMPLES, Calibration
from headprune.recovery.distillation import DISTILL_SETTINGS, Distillation
from headprune.recovery.refit import RefittedModel, Target
from headprune.recovery.variant import PLAIN, Variant
from headprune.results.bleu import bleu_and_chrf
from headprune.results.marks import is_constant
from headprune.results.tasks import TRANSLATION
from headprune.scores.combination import ATTENTION_GUIDED
from headprune.scores.compute import Watch, unwatched
from headprune.scores.head_scores import HeadScores
from headprune.scores.movement import WITHOUT_FINE_TUNING
from headprune.scores.parts import PARTS
from headprune.scores.registry import ABLATION
from headprune.speed.turns import taking_turns
from headprune.task_model import Measurement, TaskModel

_OWN_FLAGS = (
    *("--finetune-from-model", "--plan", "--head-plan"),
    *("--save-dir", "--user-dir", "--seed"),
    *("--distill-from", "--distill-weight", "--distill-temperature", "--distill-hidden"),
)
_PLAIN, _LABELS = "cross_entropy", "label_smoothed_cross_entropy"
_WITH_TEACHER = "_with_distillation"
"""The end of the name of the criterion that is ``_LABELS`` with a teacher."""
_PACKAGES = (*FAIRSEQ_PACKAGES, "sacrebleu")
_TIMED_SENTENCES = 64
_TIMED_LENGTH = 20
_BATCH = 32


@dataclass(frozen=True, kw_only=True)
class TranslationModel:
    """Implements ``headprune.task_model.TaskModel``.

    Scores are computed on the validation set, BLEU on the test set as ``fairseq_plugin.measuring``
    does.

    Attributes:
        path: the checkpoint.
        data: the binarised data folder.
        finetuning: flags for fairseq-train, with the architecture; empty disables fine-tuning.
        max_examples: the size of a random subset of sentence pairs to compute scores on.
        metric_of_ablation: ``loss`` or ``bleu``.
        distillation: the weights of a fine-tuning towards the teacher; None where there is none.
        teacher: the checkpoint of the teacher; None for the model itself.
        watch: see ``ScoreRequest``.
    """

    path: Path
    data: Path
    finetuning: tuple[str, ...] = ()
    max_examples: int | None = None
    metric_of_ablation: str = "loss"
    beam: int = 5
    distillation: Distillation | None = None
    teacher: Path | None = None
    watch: Watch = field(default=unwatched, compare=False)

    def __post_init__(self) -> None:
        require_finetuning(self.finetuning)
        if self.distillation is not None:
            require_labels_criterion(self.finetuning)

    @cached_property
    def model(self) -> Checkpoint:
        """The checkpoint."""
        return Checkpoint.load(self.path)

    @property
    def task(self) -> str:
        """Translation."""
        return TRANSLATION

    @property
    def translates(self) -> bool:
        """True: it can be fine-tuned on its own translations."""
        return True

    @property
    def metric(self) -> str:
        """BLEU."""
        return "BLEU"

    @property
    def data_name(self) -> str:
        """The corpus's name, or the last two parts of the folder's path."""
        return data_name(self.data)

    @property
    def measured_data_name(self) -> str:
        """The same: it names no part of the training set."""
        return self.data_name

    @property
    def finetune_name(self) -> str:
        """The number of epochs or updates, whichever is given."""
        return length_name(self.finetuning) if self.finetuning else "none"

    @property
    def can_finetune(self) -> bool:
        """True if flags for fine-tuning were given."""
        return bool(self.finetuning)

    @cached_property
    def settings(self) -> Mapping[str, Any]:
        """The settings that scores, measurements and fine-tunings depend on."""
        return {
            "fingerprint": self.model.fingerprint,
            "data": str(self.data),
            "finetuning": list(self.finetuning),
            "max_examples": self.max_examples,
            "metric_of_ablation": self.metric_of_ablation,
            "beam": self.beam,
            "parts": list(PARTS),  # older comparisons computed both on the whole validation set
            **({} if self.distillation is None else self.distillation.as_settings()),
        }

    @property
    def training_settings(self) -> Mapping[str, Any]:
        """The flags of the fine-tuning and the weights of a distillation."""
        return {name: self.settings.get(name) for name in ("finetuning", *DISTILL_SETTINGS)}

    def require_scores(self, names: Sequence[str]) -> None:
        """Raise a UsageError for movement without flags for fine-tuning, or with wrong ones."""
        if "movement" in names:
            if not self.finetuning:
                raise UsageError(WITHOUT_FINE_TUNING)
            require_flags(self.finetuning)

    def scores(
        self, names: Sequence[str], *, seed: int, components: Sequence[str] | None = None
    ) -> dict[str, HeadScores]:
        """Scores on the validation set."""
        return score_heads(
            self.path,
            ScoreRequest(
                scores=names,
                components=components,
                max_examples=self.max_examples,
                seed=seed,
                weights=ATTENTION_GUIDED,
                watch=self.watch,
            ),
            metric=self.metric_of_ablation,
            data=self.data,
            beam=self.beam,
            finetuning=self.finetuning,
        )

    def measure(self, plan: PruningPlan | None = None) -> Measurement:
        """BLEU on the test set, and chrF."""
        checkpoint = self.model
        if plan is not None and plan != checkpoint.plan:
            checkpoint = checkpoint.prune(plan)
        translations = translate(checkpoint, self.data, search_flags(beam=self.beam))
        score = translations.score()
        return Measurement(
            score.bleu,
            translations.constant,
            score.bleu_signature,
            checkpoint.fingerprint,
            others={"chrf": score.chrf},
            other_signatures={"chrf": score.chrf_signature},
            outputs=translations.outputs,
            packages=_PACKAGES,
        )

    def measure_held_out(self, plan: PruningPlan | None = None) -> Measurement:
        """BLEU on the sentence pairs of ablation: one half of the validation set."""
        checkpoint = self.model if plan is None else self.model.prune(plan)
        with fairseq_silent():
            translator, batches = self.loaded(checkpoint, split="valid", part=ABLATION)
            with translator.model.evaluating():
                texts = [text for batch in batches for text in translator.translate(batch)]
            references = [translator.reference(row) for batch in batches for row in batch["target"]]
        score = bleu_and_chrf(texts, references, tokenizer=translator.tokenizer)
        return Measurement(
            score.bleu,
            is_constant(texts, references),
            score.bleu_signature,
            checkpoint.fingerprint,
            packages=_PACKAGES,
        )

    def pruned(self, plan: PruningPlan, folder: Path) -> TranslationModel:
        """The model with the units of ``plan`` alone."""
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        self.model.prune(plan).save(folder / "model.pt")
        return replace(self, path=folder / "model.pt")

    def calibration(self) -> Calibration:
        """The model with sentence pairs of the training set."""
        return self._calibration

    def refitted(
        self,
        plan: PruningPlan,
        *,
        target: Target = "output",
        trained: TaskModel | None = None,
    ) -> RefittedModel:
        """The pruned model, re-fitted."""
        model = self if trained is None else self.opened(trained.model.path)
        return refitted(model.model, plan, self.data, self._calibration, target=target)

    def opened(self, path: Path) -> TranslationModel:
        """The model of another checkpoint, with the same teacher."""
        return replace(self, path=path, teacher=self.teacher or self.path)

    def finetuned(
        self, plan: PruningPlan, *, seed: int, folder: Path, variant: Variant = PLAIN
    ) -> TranslationModel:
        """The pruned model, fine-tuned by fairseq-train."""
        folder = Path(folder)
        model = folder / "model.pt"
        if not model.exists():
            plan_path = folder / "plan.json"
            plan.save(plan_path)
            layers = [name for name in self.model.shape if name in LAYERS]
            flags = variant_flags(self.finetuning, variant, components=layers)
            teacher_flags = self._teacher_flags if variant.distilled else []
            flags += teacher_flags
            # Without another teacher it is the model itself.
            other_teacher = [self.teacher] if teacher_flags and self.teacher else []
            data = self.data
            if variant.translations is not None:
                data = self._translated(variant.translations)
            train(
                Job(label=f"fine-tuning, seed {seed}", log=folder / "train.log"),
                finetuning_flags(
                    flags,
                    plan=plan_path,
                    seed=seed,
                    start=None if variant.from_scratch else self.path,
                ),
                data=data,
                languages=languages_of(self.model, self.data),
                model=model,
                depends=[self.path, plan_path, *other_teacher],
                adopt=True,
            )
        if variant.gates is None:
            return replace(self, path=model)
        closed = folder / "closed.pt"
        if not closed.exists():
            Checkpoint.load(model).with_gates_closed().save(closed)
        return replace(self, path=closed)

    def seconds(self, plans: Sequence[PruningPlan], *, rounds: int) -> list[list[float]]:
        """The run time of the beam search for some sentences of the test set.

        All translations have the same length, as bad models tend to write longer ones.
        """
        with fairseq_silent():
            jobs = []
            for plan in plans:
                translator, batches = self.loaded(self.model.prune(plan), length=_TIMED_LENGTH)
                translator.model.model.eval()
                middle = batches[len(batches) // 2 :][: _TIMED_SENTENCES // _BATCH]
                jobs.append(partial(_translate, translator, middle))
            return taking_turns(jobs, rounds=rounds)

    def _translated(self, folder: Path) -> Path:
        """The data with the teacher's translations of the training text as targets."""
        teacher = self.model if self.teacher is None else Checkpoint.load(self.teacher)
        return translated_training_set(teacher, self.data, folder, beam=self.beam, watch=self.watch)

    @property
    def _teacher_flags(self) -> list[str]:
        """The flags of fairseq-train for a fine-tuning towards the teacher."""
        if self.distillation is None:
            return []
        weights = [
            f"--{name.replace('_', '-')}={value}"
            for name, value in self.distillation.as_settings().items()
        ]
        # argparse takes the last criterion; the user's label smoothing is an option of both.
        criterion = ["--criterion", f"{_LABELS}{_WITH_TEACHER}"]
        return [*criterion, f"--distill-from={self.teacher or self.path}", *weights]

    @cached_property
    def _calibration(self) -> Calibration:
        examples = self.max_examples or EXAMPLES
        return calibration_of(self.model, self.data, examples=examples, watch=self.watch)

    def loaded(
        self,
        checkpoint: Checkpoint,
        *,
        split: str = "test",
        part: str | None = None,
        length: int | None = None,
    ) -> tuple[Translator, list[Batch]]:
        """The beam search and the batches of a split, or of a part of it for scores."""
        model, task = load_scored(checkpoint, self.data)
        examples = None if part is None else self.max_examples
        items = load_items(task, split, self.data, max_examples=examples, part=part)
        return (
            beam_search(FairseqModel(model), task, self.data, beam=self.beam, length=length),
            batches_of(items, model, size=_BATCH),
        )


def require_finetuning(flags: Sequence[str]) -> None:
    """Check the flags for fine-tuning.

    Raises:
        UsageError: a flag that the comparison sets itself, no architecture, no length, or two.
    """
    for flag in flags:
        if flag.split("=")[0] in _OWN_FLAGS:
            raise UsageError(f"--finetune: {flag} is given by headprune itself")
    if flags and not any(flag.split("=")[0] in ("--arch", "-a") for flag in flags):
        raise UsageError("--finetune: give --arch, the model's sizes, among its flags")
    if flags:
        try:
            require_one_length(flags)
        except UsageError as problem:
            raise UsageError(f"--finetune: {problem}") from None


def require_labels_criterion(flags: Sequence[str]) -> None:
    """Check that flags for fine-tuning leave the criterion to a distillation.

    Raises:
        UsageError: a criterion that has no form with a teacher.
    """
    words = [part for flag in flags for part in flag.split("=", 1)]
    for name, value in pairwise(words):
        if name == "--criterion" and value not in (_LABELS, _PLAIN):
            raise UsageError(
                f"--finetune: --criterion {value} has no form with a teacher; give {_LABELS}"
            )


def _translate(translator: Translator, batches: Sequence[Batch]) -> None:
    for batch in batches:
        translator.translate(batch)
