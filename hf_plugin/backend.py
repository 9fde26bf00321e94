"""Hugging Face folders as a backend of headprune.

The module is loaded without its package (see ``headprune.plugins``), so transformers is imported
inside methods only.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from headprune.backends import (
    BATCH_SIZE,
    Backend,
    ExportTarget,
    Given,
    ScoreRequest,
    refuse_other_options,
)
from headprune.errors import UsageError, needing

if TYPE_CHECKING:
    from headprune.new_labelled_study import LabelledTask
    from headprune.plan import PruningPlan
    from headprune.recovery.refit import RefittedModel, Target
    from headprune.scores import HeadScores
    from headprune.scores.compute import Watch
    from headprune.scores.syntax import Parse
    from headprune.speed.forward_pass import Conditions, ForwardPass
    from headprune.translate import EngineSettings, Translator
    from headprune.vocabulary import Trimmed
    from hf_plugin.folders import Folder
    from hf_plugin.scores.classifier import Classifier

_MODEL = "a Hugging Face model"

_TRAINING = (
    *("metric", "epochs", "batch_size", "learning_rate", "max_train_examples", "hold_out"),
    *("max_length", "bf16"),
)
"""Options of fine-tuning and measuring."""

_EXPORT_TARGETS = {
    "onnx": ExportTarget(
        summary="ONNX, for BERT and its relatives",
        description="--to onnx writes a folder with model.onnx, for batches and sentences of any "
        "size. The folder is written only if onnxruntime computes the model's outputs with it.",
    ),
    "transformers": ExportTarget(
        summary="transformers' own classes",
        description="--to transformers writes zeros in place of the pruned heads and neurons of a "
        "Hugging Face folder, and leaves dropped layers out, so that transformers loads the result "
        "without the plugin. The folder is written only if its outputs equal those of the pruned "
        "model.",
    ),
}


class HuggingFaceBackend:
    """Folders that transformers' ``save_pretrained`` writes, and models of the hub."""

    models = "a Hugging Face folder (with config.json)"
    pruned_help = (
        "A pruned folder is read by transformers' Auto classes after `import hf_plugin`; its "
        "tokenizer is copied."
    )
    export_targets: Mapping[str, ExportTarget] = _EXPORT_TARGETS

    def recognises(self, model: str) -> bool:
        """Tell if a folder has a config, or if a name can be one of the hub's."""
        if Path(model).is_dir():
            return Path(model, "config.json").is_file()
        is_name = re.fullmatch(r"[\w.-]+(/[\w.-]+)?", model) is not None
        return is_name and not model.endswith(".pt")  # which is a missing checkpoint

    def download_command(self, name: str) -> str:
        """A shell command with which a user gets the folder of a model."""
        from hf_plugin.places import DEFAULT_MODEL

        if name == DEFAULT_MODEL:  # it comes with a Python package
            package = name.replace("-", "_")
            return f'python -c "from {package} import get_model_path; print(get_model_path())"'
        return f"hf download {name} --local-dir FOLDER"

    def open(self, path: Path) -> Folder:
        """Read and check a folder's config."""
        with needing(f"{path}: reading Hugging Face folders needs transformers"):
            from hf_plugin.folders import Folder
        return Folder.load(path)

    def export(self, path: Path, *, target: str, output: Path, given: Given) -> str:
        """Write a folder for onnxruntime, or one of full size for transformers."""
        if target == "transformers":
            with needing("exporting to transformers needs transformers"):
                from hf_plugin.transformers_export import export_to_transformers
            return str(export_to_transformers(path, output))
        with needing(
            "exporting to ONNX needs transformers, onnx, onnxscript and onnxruntime",
            install="pip install transformers onnx onnxscript onnxruntime",
        ):
            from hf_plugin.onnx_export import export_to_onnx
        return str(export_to_onnx(path, output))

    def line_translator(
        self, path: Path, settings: EngineSettings, *, raw: bool | None, data: Path | None
    ) -> Translator:
        """A model that translates, which reads and writes plain text."""
        others = {
            "tokens": True if raw is False else None,
            "data": data,
            "shortlist": settings.shortlist,
        }
        given = {name: value for name, value in others.items() if value is not None}
        refuse_other_options(given, model=path, kind=_MODEL)
        with needing("translating with Hugging Face models needs transformers"):
            from hf_plugin.line_translator import HuggingFaceTranslator
            from hf_plugin.quiet import quieten
        quieten()
        return HuggingFaceTranslator.load(path, settings)

    def score(self, model: str, request: ScoreRequest, *, given: Given) -> dict[str, HeadScores]:
        """Compute scores of a classifier, or of any model where no score needs data."""
        from headprune.scores.names import needs_data, require_known, with_combined
        from headprune.scores.splits import scoring_split

        with needing("scoring Hugging Face models needs transformers"):
            from hf_plugin.finetuning.training import Schedule
            from hf_plugin.quiet import quieten
            from hf_plugin.scores.run import score_heads, score_weights
            from hf_plugin.tasks.given import DATA, data_given, max_length_given
            from hf_plugin.tasks.plain_text import text_given
        training = {name: given[name] for name in ("epochs", "learning_rate") if name in given}
        refuse_other_options(given, *DATA, "max_length", *training, model=model, kind=_MODEL)
        if training and "movement" not in with_combined(request.scores, request.weights):
            raise UsageError("--epochs and --learning-rate are those of --score movement")
        quieten()
        require_known(request.scores)
        metric = request.metric_or("")
        if not any(map(needs_data, request.scores)) and not set(given) & {"task", "train", "dev"}:
            return score_weights(
                model, scores=request.scores, components=request.components, seed=request.seed
            )
        data = (text_given if request.without_labels else data_given)(given, model=model)
        if request.metric == "accuracy" and data.task.metric_of_ablation == "loss":
            what = "a number" if data.task.is_regression else "a text"
            raise UsageError(f"--metric accuracy: {data.task.name} is to predict {what}; give loss")
        return score_heads(
            model,
            request,
            data=data,
            split=scoring_split(request.split, default="train", reported_on="dev"),
            metric=metric or data.task.metric_of_ablation,
            max_length=max_length_given(given, model=model),
            schedule=Schedule(
                epochs=training.get("epochs", 1.0),
                batch_size=request.batch_size or BATCH_SIZE,
                learning_rate=training.get("learning_rate", 2e-5),
                seed=request.seed,
            ),
        )

    def score_syntax(
        self, model: str, *, parses: Sequence[Parse], file_name: str, given: Given
    ) -> dict[str, HeadScores]:
        """Compute the syntactic roles of the heads."""
        with needing("scoring Hugging Face models needs transformers"):
            from hf_plugin.scores.run import score_syntax
            from hf_plugin.tasks.given import max_length_given
        length = max_length_given(given, model=model)
        return score_syntax(model, parses, file_name=file_name, max_length=length)

    def task_model(
        self,
        path: Path,
        *,
        output: Path | None,
        finetune: bool,
        max_examples: int | None,
        watch: Watch,
        given: Given,
    ) -> Classifier:
        """The classifier and its data; without --epochs it is fine-tuned for one epoch or none."""
        from headprune.folders import require_outside

        if output is not None:
            require_outside(output, path)
        with needing("comparing Hugging Face models needs transformers"):
            from hf_plugin.finetuning.held_out import part_given
            from hf_plugin.finetuning.settings import Settings
            from hf_plugin.quiet import quieten
            from hf_plugin.scores.classifier import Classifier
            from hf_plugin.tasks.given import DATA, data_given, max_length_given
            from hf_plugin.tasks.own import OwnData
        refuse_other_options(given, *DATA, *_TRAINING, "distillation", model=path, kind=_MODEL)
        quieten()
        data = data_given(given, model=str(path), metric=given.get("metric"))
        part = part_given(
            data,
            output,
            max_examples=given.get("max_train_examples"),
            hold_out=given.get("hold_out"),
        )
        settings = Settings(
            task=data.task.name,
            own=data if isinstance(data, OwnData) else None,
            model=str(path),
            epochs=given.get("epochs", float(finetune)),
            batch_size=given.get("batch_size", 32),
            learning_rate=given.get("learning_rate", 2e-5),
            max_length=max_length_given(given, model=path),
            data_dir=given.get("data_dir"),
            max_train_examples=part.max_examples,
            hold_out=part.hold_out,
            bf16=given.get("bf16", False),
        )
        if "distillation" in given:
            settings = replace(settings, distill_from=str(path), distillation=given["distillation"])
        settings.check()
        return Classifier(path=path, finetuning=settings, max_examples=max_examples, watch=watch)

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
        """Prune a folder's model of any kind, and re-fit it on text without labels."""
        with needing("re-fitting Hugging Face models needs transformers"):
            from headprune.recovery.calibration import EXAMPLES
            from hf_plugin.quiet import quieten
            from hf_plugin.recovery import calibration_of, refitted
            from hf_plugin.tasks.given import DATA, max_length_given
            from hf_plugin.tasks.plain_text import text_given
        refuse_other_options(given, *DATA, "max_length", model=path, kind=_MODEL)
        quieten()
        calibration = calibration_of(
            str(path),
            data=text_given(given, model=str(path)),
            examples=max_examples or EXAMPLES,
            max_length=max_length_given(given, model=path),
            without_labels=True,
            watch=watch,
        )
        return refitted(self.open(path), plan, calibration, target=target)

    def texts_of_table(self, path: Path, columns: tuple[str, ...]) -> Sequence[str]:
        """The texts in some columns of a csv, tsv, jsonl or parquet file, row by row."""
        with needing("reading tables needs transformers and datasets"):
            from hf_plugin.tasks.tables import Columns, read_texts
        table = read_texts(str(path), Columns(text=columns, label=columns[0]), split="train")
        return [text for row in table.texts for text in row]

    def trim_vocabulary(
        self,
        model: Path,
        output: Path,
        *,
        text: Sequence[str],
        held_out: Sequence[str],
        data: Path | None,
    ) -> Trimmed:
        """Write a folder without the tokens that a text never uses."""
        if data is not None:
            raise UsageError(f"{model} is {_MODEL}, for which there is no --data")
        with needing("trimming the vocabulary of Hugging Face models needs transformers"):
            from hf_plugin.vocabulary.trim import trim_vocabulary
        return trim_vocabulary(model, output, text=text, held_out=held_out)

    def describe_task(
        self, model: str, *, name: str | None, metric: str | None, default_name: str, given: Given
    ) -> LabelledTask:
        """The task of GLUE or of a user's files that a study fine-tunes a pretrained model on."""
        with needing(
            "headprune new-study --model needs transformers", install="pip install -e '.[hf]'"
        ):
            from hf_plugin.quiet import quieten
            from hf_plugin.tasks.study_task import study_task
        quieten()
        return study_task(model, name=name, metric=metric, default_name=default_name, given=given)

    def forward_pass(self, path: Path, conditions: Conditions) -> ForwardPass:
        """Load a folder for `headprune speed`; one with model.onnx is run by onnxruntime."""
        with needing("timing Hugging Face models needs transformers"):
            from hf_plugin.forward_passes import onnx_forward_pass, torch_forward_pass
        if (path / "model.onnx").is_file():
            return onnx_forward_pass(path, conditions)
        return torch_forward_pass(path, conditions)

    def forward_pass_of(self, model: Folder, conditions: Conditions) -> ForwardPass:
        """Draw a batch for a folder or a pruned model."""
        with needing("timing Hugging Face models needs transformers"):
            from hf_plugin.forward_passes import folder_forward_pass
        return folder_forward_pass(model, conditions)


backend: Backend = HuggingFaceBackend()
