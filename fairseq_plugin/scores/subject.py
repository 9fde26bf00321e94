"""A translator to compare scores on."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import torch
from sacrebleu.metrics.bleu import BLEU

from fairseq_plugin.checkpoints import Checkpoint
from fairseq_plugin.loading import fairseq_silent
from fairseq_plugin.scores.bleu_ablation import Translator
from fairseq_plugin.scores.model import Batch, FairseqModel
from fairseq_plugin.scores.run import (
    PARTS,
    batches_of,
    data_name,
    load_items,
    load_scored,
    score_heads,
    translator,
)
from headprune.compare.subject import Cost, Measurement
from headprune.compare.turns import taking_turns
from headprune.cost import forward_flops, pruned_parameters
from headprune.errors import DataError, UsageError
from headprune.files import atomic_path
from headprune.locks import locked_folder
from headprune.memory import KEEP_MEMORY
from headprune.plan import HeadPlan
from headprune.report.bleu import read_lines
from headprune.report.marks import is_constant
from headprune.scores.compute import Watch
from headprune.scores.head_scores import HeadScores

_PLUGIN = Path(__file__).resolve().parents[1]
_OWN_FLAGS = ("--finetune-from-model", "--head-plan", "--save-dir", "--user-dir", "--seed")
_TIMED_SENTENCES = 64
_TIMED_LENGTH = 20
_BATCH = 32


@dataclass(frozen=True, kw_only=True)
class TranslationModel:
    """Implements ``headprune.compare.subject.Subject``.

    Scores are computed on the valid set, BLEU by beam search on the test set, of detokenised text
    against the raw reference where data_prep left one, and else against the data's target sides.

    Attributes:
        path: the checkpoint.
        data: the binarised data folder.
        finetuning: flags of fairseq-train to fine-tune with, the architecture among them; none
            for not at all.
        max_examples: compute scores on a random subset of so many sentence pairs.
        metric_of_ablation: ``loss`` or ``bleu``.
        watch: of ``score_heads``.
    """

    path: Path
    data: Path
    finetuning: tuple[str, ...] = ()
    max_examples: int | None = None
    metric_of_ablation: str = "loss"
    beam: int = 5
    watch: Watch = field(default=lambda batches, *_: batches, compare=False)

    def __post_init__(self) -> None:
        require_finetuning(self.finetuning)

    @property
    def name(self) -> str:
        """The checkpoint's file."""
        return str(self.path)

    @property
    def metric(self) -> str:
        """BLEU."""
        return "BLEU"

    @property
    def plan(self) -> HeadPlan:
        """The heads that the checkpoint keeps."""
        return self._checkpoint.plan

    @property
    def data_name(self) -> str:
        """The last two parts of the folder's path."""
        return data_name(self.data)

    @property
    def finetune_name(self) -> str:
        """The number of epochs or updates, whichever is given."""
        flags = " ".join(self.finetuning)
        for flag, unit in (("--max-epoch", "ep"), ("--max-update", "up")):
            if found := re.search(rf"{flag}[= ](\d+)", flags):
                return found[1] + unit
        return "unlimited" if flags else "none"

    @property
    def can_finetune(self) -> bool:
        """Whether there are flags to fine-tune with."""
        return bool(self.finetuning)

    @cached_property
    def settings(self) -> Mapping[str, Any]:
        """All that decides the outcome."""
        return {
            "fingerprint": self._checkpoint.fingerprint,
            "data": str(self.data),
            "finetuning": list(self.finetuning),
            "max_examples": self.max_examples,
            "metric_of_ablation": self.metric_of_ablation,
            "beam": self.beam,
            "parts": list(PARTS),  # older comparisons computed both on the whole valid set
        }

    def scores(self, names: Sequence[str], *, seed: int) -> dict[str, HeadScores]:
        """Scores on the valid set."""
        return score_heads(
            self.path,
            scores=names,
            data=self.data,
            max_examples=self.max_examples,
            seed=seed,
            metric=self.metric_of_ablation,
            beam=self.beam,
            watch=self.watch,
        )

    def measure(self) -> Measurement:
        """BLEU on the test set."""
        with fairseq_silent():
            made, batches = self._loaded(self._checkpoint)
            texts: dict[int, str] = {}
            with made.model.evaluating():
                for batch in batches:
                    numbers = batch["id"].tolist()
                    texts |= dict(zip(numbers, made.translate(batch), strict=True))
        references = self._references(made, batches)
        ordered = [texts[number] for number in sorted(texts)]
        if len(references) != len(ordered):
            raise DataError(
                f"{self.data}: {len(ordered)} sentences in the test set, but {len(references)} "
                "raw references beside it; prepare the data anew"
            )
        constant = is_constant(ordered, references)
        if constant:
            print(f"warning: {self.path} translates every sentence alike", file=sys.stderr)
        bleu = BLEU().corpus_score(ordered, [references]).score
        return Measurement(float(bleu), constant)

    def pruned(self, plan: HeadPlan, folder: Path) -> TranslationModel:
        """The model with the heads of ``plan`` alone."""
        folder.mkdir(parents=True, exist_ok=True)
        self._checkpoint.prune(plan).save(folder / "model.pt")
        return replace(self, path=folder / "model.pt")

    def finetuned(self, plan: HeadPlan, *, seed: int, folder: Path) -> TranslationModel:
        """The same, fine-tuned by fairseq-train."""
        model = folder / "model.pt"
        if not model.exists():
            self._train(plan, seed=seed, folder=folder)
            found = [folder / "training" / f"checkpoint_{which}.pt" for which in ("best", "last")]
            newest = next((path for path in found if path.exists()), None)
            if newest is None:
                raise DataError(f"{folder}: fairseq-train left no checkpoint")
            with atomic_path(model) as temporary:
                shutil.copyfile(newest, temporary)
            shutil.rmtree(folder / "training")
        return replace(self, path=model)

    def _train(self, plan: HeadPlan, *, seed: int, folder: Path) -> None:
        plan.save(folder / "plan.json")
        log = folder / "train.log"
        command = [
            *(sys.executable, "-m", "fairseq_cli.train", str(self.data)),
            *("--user-dir", str(_PLUGIN), *self.finetuning),
            *("--finetune-from-model", str(self.path), "--head-plan", str(folder / "plan.json")),
            *("--seed", str(seed), "--save-dir", str(folder / "training")),
            *("--no-epoch-checkpoints", "--no-progress-bar"),
            *([] if torch.cuda.is_available() else ["--cpu"]),
        ]
        # The training holds the lock too, because it continues if only this process is killed.
        with locked_folder(folder) as lock, log.open("a", encoding="utf-8") as file:
            status = subprocess.run(
                command,
                pass_fds=(lock,),
                stdout=file,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                env={**KEEP_MEMORY, **os.environ},
                check=False,
            ).returncode
        if status:
            last = next((line for line in reversed(read_lines(log)) if line.strip()), "")
            raise DataError(
                f"fairseq-train ended with status {status}: {last} (all of it in {log})"
            )

    def cost(self, plan: HeadPlan) -> Cost:
        """What the model costs with the heads of ``plan`` alone."""
        sizes = self._checkpoint.sizes
        return Cost(
            parameters=self._checkpoint.unpruned_parameters - pruned_parameters(plan, sizes),
            flops=forward_flops(plan, sizes),
        )

    def seconds(self, plans: Sequence[HeadPlan], *, rounds: int) -> list[list[float]]:
        """How long the beam search for some sentences of the test set takes.

        All translations are made equally long: models that translate badly ramble on.
        """
        with fairseq_silent():
            jobs = []
            for plan in plans:
                made, batches = self._loaded(self._checkpoint.prune(plan), length=_TIMED_LENGTH)
                made.model.model.eval()
                middle = batches[len(batches) // 2 :][: _TIMED_SENTENCES // _BATCH]
                jobs.append(partial(_translate, made, middle))
            return taking_turns(jobs, rounds=rounds)

    @cached_property
    def _checkpoint(self) -> Checkpoint:
        return Checkpoint.load(self.path)

    def _loaded(
        self, checkpoint: Checkpoint, *, length: int | None = None
    ) -> tuple[Translator, list[Batch]]:
        model, task = load_scored(checkpoint, self.data)
        items = load_items(task, "test", self.data, max_examples=None)
        return (
            translator(FairseqModel(model), task, self.data, beam=self.beam, length=length),
            batches_of(items, model, size=_BATCH),
        )

    def _references(self, made: Translator, batches: Sequence[Batch]) -> list[str]:
        raw = self.data.absolute().parent / "raw" / f"test.{made.target_lang}"
        if raw.is_file():
            return read_lines(raw)
        texts = {
            number: made.reference(row)
            for batch in batches
            for number, row in zip(batch["id"].tolist(), batch["target"], strict=True)
        }
        return [texts[number] for number in sorted(texts)]


def require_finetuning(flags: Sequence[str]) -> None:
    """Raise a UsageError for flags to fine-tune with that clash with the comparison's own."""
    for flag in flags:
        if flag.split("=")[0] in _OWN_FLAGS:
            raise UsageError(f"--finetune: {flag} is given by the comparison itself")
    if flags and not any(flag.split("=")[0] in ("--arch", "-a") for flag in flags):
        raise UsageError("--finetune: give --arch, the model's sizes, among its flags")


def _translate(made: Translator, batches: Sequence[Batch]) -> None:
    for batch in batches:
        made.translate(batch)
