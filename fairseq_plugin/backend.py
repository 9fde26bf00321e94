"""fairseq checkpoints as a backend of headprune.

The module is loaded without its package (see ``headprune.plugins``), so fairseq is imported inside
methods only.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from headprune.backends import (
    Backend,
    ExportTarget,
    Given,
    ScoreRequest,
    refuse_other_options,
)
from headprune.errors import UsageError, needing

if TYPE_CHECKING:
    from fairseq_plugin.checkpoints import Checkpoint
    from fairseq_plugin.scores.translation_model import TranslationModel
    from headprune.plan import PruningPlan
    from headprune.recovery.refit import RefittedModel, Target
    from headprune.scores import HeadScores
    from headprune.scores.compute import Watch
    from headprune.scores.syntax import Parse
    from headprune.shortlist import Coverage, Shortlist
    from headprune.speed.forward_pass import Conditions, ForwardPass
    from headprune.translate import EngineSettings, Translator
    from headprune.vocabulary import Trimmed

_CHECKPOINT = "a fairseq checkpoint"

_EXPORT_TARGETS = {
    "fairseq": ExportTarget(
        summary="stock fairseq's transformer",
        description="--to fairseq brings removed heads and neurons back as zeros: stock fairseq "
        "loads the result without the plugin, and it translates as the pruned model does. Dropped "
        "layers stay dropped. If all layers of a side keep the same number of neurons, this number "
        "becomes their feed-forward width. In both cases the result is a smaller transformer.",
    ),
    "ctranslate2": ExportTarget(
        summary="CTranslate2, a fast runtime for translation",
        description="--to ctranslate2 writes a folder for `headprune translate` and for "
        "CTranslate2 itself, without pruned neurons and layers. Each layer is filled up with zero "
        "heads to the largest number of heads in its stack. The folder is written only if its "
        "scores equal fairseq's, on sentences of the data's valid or test set.",
        options=("quantization", "data", "shortlist"),
    ),
}


class FairseqBackend:
    """Checkpoints of fairseq's encoder-decoder Transformer."""

    models = f"{_CHECKPOINT} (.pt)"
    pruned_help = (
        "A pruned checkpoint translates with fairseq-generate --user-dir fairseq_plugin, and is "
        "trained further with fairseq-train --finetune-from-model."
    )
    export_targets: Mapping[str, ExportTarget] = _EXPORT_TARGETS

    def recognises(self, model: str) -> bool:
        """Tell if a file is one that torch.save wrote (a zip file or a pickle), or named so."""
        if model.endswith(".pt"):
            return True
        with open(model, "rb") as file:
            return file.read(2).startswith((b"PK", b"\x80"))

    def open(self, path: Path) -> Checkpoint:
        """Read and check a checkpoint."""
        with needing(f"{path}: reading checkpoints needs the fairseq plugin"):
            from fairseq_plugin.checkpoints import Checkpoint
        return Checkpoint.load(path)

    def export(self, path: Path, *, target: str, output: Path, given: Given) -> str:
        """Write a checkpoint for stock fairseq, or a folder for CTranslate2."""
        checkpoint = self.open(path)
        checkpoint.require_no_gates()
        if target == "fairseq":
            checkpoint.export_to_fairseq().save(output)
            return "a checkpoint of stock fairseq's transformer"
        with needing("this needs the package ctranslate2", install="pip install ctranslate2"):
            from fairseq_plugin.ctranslate2_export import export_to_ctranslate2
        return str(export_to_ctranslate2(checkpoint, output, **given))

    def line_translator(
        self, path: Path, settings: EngineSettings, *, raw: bool | None, data: Path | None
    ) -> Translator:
        """A checkpoint with its text processing, where prep.json describes it."""
        from data_prep.lib.text import TextProcessing
        from headprune.translate import line_translator

        with needing("translating with a checkpoint needs fairseq"):
            from fairseq_plugin.engine import load_engine
            from fairseq_plugin.loading import trained_on
        checkpoint = self.open(path)
        data = data or trained_on(checkpoint)
        engine, (source_lang, target_lang) = load_engine(checkpoint, data, settings)
        processing = TextProcessing.of_preparation(
            data, source_lang=source_lang, target_lang=target_lang
        )
        return line_translator(
            engine, processing, raw=raw, name=path, batch_size=settings.batch_size
        )

    def score(self, model: str, request: ScoreRequest, *, given: Given) -> dict[str, HeadScores]:
        """Compute scores of a checkpoint on sentence pairs, with some options of its own."""
        refuse_other_options(given, "data", "beam", "finetune", model=model, kind=_CHECKPOINT)
        from headprune.scores.names import with_combined
        from headprune.scores.splits import scoring_split

        with needing("scoring checkpoints needs fairseq"):
            from fairseq_plugin.scores.run import score_heads
        flags = _finetuning(given)
        if flags and "movement" not in with_combined(request.scores, request.weights):
            raise UsageError("--finetune goes with --score movement")
        return score_heads(
            Path(model),
            request,
            split=scoring_split(request.split, default="valid", reported_on="test"),
            metric=request.metric_or("loss"),
            finetuning=flags,
            **{name: given[name] for name in ("data", "beam") if name in given},
        )

    def score_syntax(
        self, model: str, *, parses: Sequence[Parse], file_name: str, given: Given
    ) -> dict[str, HeadScores]:
        """Compute the syntactic roles of the encoder's heads."""
        with needing("scoring checkpoints needs fairseq"):
            from fairseq_plugin.scores.run import score_syntax
        return score_syntax(Path(model), parses, file_name=file_name, data=given.get("data"))

    def task_model(
        self,
        path: Path,
        *,
        output: Path | None,
        finetune: bool,
        max_examples: int | None,
        watch: Watch,
        given: Given,
    ) -> TranslationModel:
        """The translation model and its data; it is fine-tuned with the flags of --finetune.

        Options are checked before anything is read.
        """
        known = ("data", "finetune", "metric", "beam", "distillation")
        refuse_other_options(given, *known, model=path, kind=_CHECKPOINT)
        with needing("comparing checkpoints needs fairseq"):
            from fairseq_plugin.loading import trained_on
            from fairseq_plugin.scores.run import METRICS
            from fairseq_plugin.scores.translation_model import TranslationModel
        metric = given.get("metric", "loss")
        if metric not in METRICS:
            raise UsageError(f"--metric {metric}: it is one of {', '.join(METRICS)}")
        flags = _finetuning(given)
        return TranslationModel(
            path=path,
            data=given.get("data") or trained_on(self.open(path)),
            finetuning=flags,
            max_examples=max_examples,
            metric_of_ablation=metric,
            beam=given.get("beam", 5),
            distillation=given.get("distillation"),
            watch=watch,
        )

    def refit_on_text(
        self,
        path: Path,
        plan: PruningPlan,
        *,
        target: Target,
        max_examples: int | None,
        watch: Watch,
        given: Given,
    ) -> RefittedModel:
        """Refuse: a checkpoint is re-fitted on pairs of sentences."""
        raise UsageError(
            f"{path}: a checkpoint is re-fitted on the pairs of sentences in its data; leave "
            "--without-labels out"
        )

    def texts_of_table(self, path: Path, columns: tuple[str, ...]) -> Sequence[str]:
        """Refuse tables, which no fairseq command reads."""
        raise UsageError(f"{path}: a table; give plain text with one sentence a line")

    def trim_vocabulary(
        self,
        model: Path,
        output: Path,
        *,
        text: Sequence[str],
        held_out: Sequence[str],
        data: Path | None,
    ) -> Trimmed:
        """Write a checkpoint and dictionaries without the words that a text never uses."""
        with needing("trimming the vocabulary of checkpoints needs the fairseq plugin"):
            from fairseq_plugin.vocabulary import trim_vocabulary
        return trim_vocabulary(model, output, text=text, held_out=held_out, data=data)

    def make_shortlist(
        self, model: Path, *, best: int, frequent: int, data: Path | None
    ) -> tuple[Shortlist, Coverage]:
        """Make a shortlist from the data that a checkpoint was trained on."""
        with needing("shortlists of checkpoints need the fairseq plugin"):
            from fairseq_plugin.shortlist import make_shortlist
        return make_shortlist(model, best=best, frequent=frequent, data=data)

    def forward_pass(self, path: Path, conditions: Conditions) -> ForwardPass:
        """Load a checkpoint for `headprune speed`."""
        with needing("timing checkpoints needs fairseq"):
            from fairseq_plugin.forward_passes import fairseq_forward_pass
        return fairseq_forward_pass(self.open(path), conditions)

    def forward_pass_of(self, model: Checkpoint, conditions: Conditions) -> ForwardPass:
        """Draw a batch for a checkpoint or a pruned model; both run in the plugin's modules."""
        with needing("timing checkpoints needs the fairseq plugin"):
            from fairseq_plugin.forward_passes import fairseq_forward_pass
        if model.form is None:
            model = model.prune(model.plan)
        return fairseq_forward_pass(model, conditions)


def _finetuning(given: Given) -> tuple[str, ...]:
    """The flags of --finetune, checked by fairseq-train's parser."""
    flags = _split_flags(given.get("finetune", ""))
    from fairseq_plugin.flags import check_flags
    from fairseq_plugin.scores.translation_model import require_finetuning

    require_finetuning(flags)
    if flags:
        try:
            check_flags("train", flags)
        except UsageError as problem:
            raise UsageError(f"--finetune: {problem}") from None
    return flags


def _split_flags(text: str) -> tuple[str, ...]:
    try:
        return tuple(shlex.split(text))
    except ValueError as problem:
        raise UsageError(f"--finetune: {problem} in {text!r}") from None


backend: Backend = FairseqBackend()
