"""Hugging Face folders as a backend of headprune.

The module is loaded without its package (see ``headprune.plugins``), so transformers is imported
inside methods only.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from headprune.backends import Backend, ExportTarget, Given, ScoreRequest, refuse_other_options
from headprune.errors import UsageError, needing

if TYPE_CHECKING:
    from headprune.scores import HeadScores
    from headprune.scores.compute import Watch
    from headprune.scores.syntax import Parse
    from hf_plugin.folders import Folder
    from hf_plugin.scores.classifier import Classifier

_MODEL = "a Hugging Face model"

_EXPORT_TARGETS = {
    "onnx": ExportTarget(
        summary="ONNX, for BERT and its relatives",
        description="--to onnx writes a folder with model.onnx, for batches and sentences of any "
        "size. The folder is written only if onnxruntime computes the model's outputs with it.",
    ),
    "transformers": ExportTarget(
        summary="transformers' own classes, in every version",
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

    def score(self, model: str, request: ScoreRequest, *, given: Given) -> dict[str, HeadScores]:
        """Compute scores of a classifier; --task, --data-dir and --max-length are its own."""
        refuse_other_options(given, "task", "data_dir", "max_length", model=model, kind=_MODEL)
        task = _require_task(given, model)
        from headprune.scores.splits import scoring_split

        with needing("scoring Hugging Face models needs transformers"):
            from hf_plugin.glue.tasks import task_named
            from hf_plugin.quiet import quieten
            from hf_plugin.scores.run import score_heads
        quieten()
        if request.metric == "accuracy" and task_named(task).range is not None:
            raise UsageError(f"--metric accuracy: {task} is to predict a number; give loss")
        return score_heads(
            model,
            scores=request.scores,
            components=request.components,
            task=task,
            data_dir=given.get("data_dir"),
            split=scoring_split(request.split, default="train", reported_on="dev"),
            metric=request.metric or task_named(task).metric_of_ablation,
            max_examples=request.max_examples,
            batch_size=request.batch_size,
            max_length=given.get("max_length", 128),
            seed=request.seed,
            weights=request.weights,
            watch=request.watch,
        )

    def score_syntax(
        self, model: str, *, parses: Sequence[Parse], file_name: str, given: Given
    ) -> dict[str, HeadScores]:
        """Compute the syntactic roles of the heads."""
        with needing("scoring Hugging Face models needs transformers"):
            from hf_plugin.scores.run import score_syntax
        length = given.get("max_length", 128)
        return score_syntax(model, parses, file_name=file_name, max_length=length)

    def task_model(
        self,
        path: Path,
        *,
        output: Path,
        finetune: bool,
        max_examples: int | None,
        watch: Watch,
        given: Given,
    ) -> Classifier:
        """The classifier and its data; without --epochs it is fine-tuned for one epoch or none."""
        known = (
            *("task", "data_dir", "epochs", "batch_size", "learning_rate", "max_train_examples"),
            *("hold_out", "max_length", "bf16"),
        )
        refuse_other_options(given, *known, model=path, kind=_MODEL)
        from headprune.folders import require_outside

        require_outside(output, path)
        task = _require_task(given, path)
        with needing("comparing Hugging Face models needs transformers"):
            from hf_plugin.glue.held_out import default_hold_out
            from hf_plugin.glue.settings import Settings
            from hf_plugin.quiet import quieten
            from hf_plugin.scores.classifier import Classifier
        quieten()
        max_train_examples = given.get("max_train_examples")
        hold_out = given.get("hold_out")
        settings = Settings(
            task=task,
            model=str(path),
            epochs=given.get("epochs", float(finetune)),
            batch_size=given.get("batch_size", 32),
            learning_rate=given.get("learning_rate", 2e-5),
            max_length=given.get("max_length", 128),
            data_dir=given.get("data_dir"),
            max_train_examples=max_train_examples,
            hold_out=default_hold_out(output, max_train_examples) if hold_out is None else hold_out,
            bf16=given.get("bf16", False),
        )
        settings.check()
        return Classifier(path=path, finetuning=settings, max_examples=max_examples, watch=watch)


def _require_task(given: Given, model: object) -> str:
    task = given.get("task")
    if task is None:
        raise UsageError(f"{model}: give --task, the task of GLUE that the model is for")
    return str(task)


backend: Backend = HuggingFaceBackend()
