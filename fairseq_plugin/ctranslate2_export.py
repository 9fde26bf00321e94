"""Exporting a checkpoint to CTranslate2, checked against fairseq before it is there."""

from __future__ import annotations

import json
import logging
import shutil
from argparse import Namespace
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ctranslate2.specs.model_spec import ACCEPTED_MODEL_TYPES as QUANTIZATIONS
from fairseq.checkpoint_utils import load_model_ensemble_and_task
from fairseq.data.data_utils import infer_language_pair
from fairseq.dataclass.utils import overwrite_args_by_name
from fairseq.models.transformer import TransformerModel
from omegaconf import OmegaConf

import fairseq_plugin  # noqa: F401  (registers the architecture)
from data_prep.lib.text import TextProcessing
from fairseq_plugin import ctranslate2_spec
from fairseq_plugin.checkpoints import Checkpoint
from fairseq_plugin.forced_scores import (
    Difference,
    Pair,
    ctranslate2_scores,
    fairseq_scores,
    pairs_of,
)
from headprune.errors import DataError, UsageError
from headprune.exported import ExportedModel
from headprune.folders import new_folder
from headprune.plan import HeadPlan

PAIRS = 64
"""How many sentence pairs the scores are compared on."""

TOLERANCE = 1e-3
"""What the log-probability of a token may differ from fairseq's by, in float32."""

_FILE_NAMES = {"subword_nmt": "bpe.codes", "sentencepiece": "sentencepiece.model"}


@dataclass(frozen=True, kw_only=True)
class Export:
    """What was written, and how near its scores are to fairseq's.

    Attributes:
        float32: of the model in float32, at most ``TOLERANCE``.
        quantized: of the model as written, where its weights are of another type.
        pairs: on how many sentence pairs the scores were compared.
        origin: where these come from.
    """

    plan: HeadPlan
    quantization: str
    float32: Difference
    quantized: Difference | None
    pairs: int
    origin: str

    def __str__(self) -> str:
        told = (
            f"{self.plan}, {self.quantization}; log-probabilities of tokens differ from fairseq's "
            f"by at most {self.float32.largest:.1e} in float32"
        )
        if self.quantized is not None:
            told += (
                f", by {self.quantized.mean:.1e} on average and at most "
                f"{self.quantized.largest:.1e} in {self.quantization}"
            )
        return f"{told} ({self.pairs} pairs of {self.origin})"


def export_to_ctranslate2(
    checkpoint: Checkpoint,
    output: Path,
    *,
    data: Path | None = None,
    quantization: str | None = None,
) -> Export:
    """Write a folder that CTranslate2 loads, and `headprune translate`.

    It appears when its scores have been found to be fairseq's. How text was prepared goes in too,
    where the data folder lies in one that data_prep made.

    Args:
        checkpoint: of ``transformer`` or ``transformer_headpruned``, in either form.
        output: the folder; it must not exist, or be empty.
        data: the binarised data folder with the dictionaries; default: the one that the checkpoint
            was trained on.
        quantization: one of CTranslate2's types of weights; default: float32.

    Raises:
        UsageError: the model cannot be expressed, an unknown quantization, no data folder.
        DataError: ``output`` is taken, dictionaries do not fit, or the scores are not fairseq's.
    """
    quantization = quantization or "float32"
    if quantization not in QUANTIZATIONS:
        raise UsageError(f"--quantization {quantization}: give one of {', '.join(QUANTIZATIONS)}")
    data = data or _trained_on(checkpoint)
    with _fairseq_silent(), new_folder(output) as folder:
        model, task = _load(checkpoint, data)
        pairs, origin = pairs_of(task, model, number=PAIRS)
        reference = fairseq_scores(model, pairs)
        float32 = _write(model, folder, "float32", pairs=pairs, reference=reference)
        if not float32.largest <= TOLERANCE:
            raise DataError(
                f"{checkpoint.path}: not exported: CTranslate2's log-probabilities differ from "
                f"fairseq's by up to {float32.largest:.1e}, more than {TOLERANCE:.0e} "
                f"({len(pairs)} pairs of {origin})"
            )
        quantized = None
        if quantization != "float32":
            quantized = _write(model, folder, quantization, pairs=pairs, reference=reference)
        export = Export(
            plan=ctranslate2_spec.plan_of(model),
            quantization=quantization,
            float32=float32,
            quantized=quantized,
            pairs=len(pairs),
            origin=origin,
        )
        _describe(export, model, task, data=data, folder=folder)
    return export


@contextmanager
def _fairseq_silent() -> Iterator[None]:
    """Without what fairseq logs; its errors come as exceptions too."""
    logging.disable()
    try:
        yield
    finally:
        logging.disable(logging.NOTSET)


def _task_options(checkpoint: Checkpoint) -> dict[str, Any]:
    """The options of the task that the checkpoint was trained for."""
    cfg, args = checkpoint.state.get("cfg"), checkpoint.state.get("args")
    task = cfg.get("task") if isinstance(cfg, dict) else None
    options = task if task is not None else args
    found = vars(options) if isinstance(options, Namespace) else dict(options or {})
    name = found.get("task") or found.get("_name")
    if name != "translation":
        raise UsageError(
            f"{checkpoint.path}: a model of the task {name}; CTranslate2 is given models of the "
            "task translation"
        )
    return found


def _trained_on(checkpoint: Checkpoint) -> Path:
    data = Path(str(_task_options(checkpoint).get("data")).split(":")[0])
    if not data.is_dir():
        raise UsageError(
            f"{checkpoint.path}: trained on {data}, which is not there; give --data, the folder "
            "with the dictionaries"
        )
    return data


def _require_languages(data: Path) -> None:
    """Raise a UsageError unless the names of the data's files tell the pair of languages."""
    if not data.is_dir() or None in infer_language_pair(str(data)):
        raise UsageError(
            f"{data}: the checkpoint does not name its languages, and no file here does, as "
            "train.de-en.de.bin would; give --data, the binarised data"
        )


def _load(checkpoint: Checkpoint, data: Path) -> tuple[TransformerModel, Any]:
    """The model in float32, and its task with the dictionaries of ``data``."""
    options = _task_options(checkpoint)
    if not (options.get("source_lang") and options.get("target_lang")):
        _require_languages(data)
    try:
        models, _, task = load_model_ensemble_and_task(
            [checkpoint.path],
            state=_state_with(checkpoint, data=str(data), eval_bleu=False, autocast="none"),
        )
    except FileNotFoundError as error:
        raise DataError(f"{data}: no dictionary of the model's languages ({error})") from None
    except RuntimeError as error:
        raise DataError(
            f"{checkpoint.path}: does not load with the dictionaries of {data}: "
            f"{str(error).splitlines()[-1].strip()}"
        ) from None
    return models[0].float().eval(), task


def _state_with(checkpoint: Checkpoint, **options: Any) -> dict[str, Any]:
    """The checkpoint's content with other options, as fairseq has it after reading the file."""
    state = {**checkpoint.state, "model": dict(checkpoint.state["model"])}
    if isinstance(state.get("args"), Namespace):
        state["args"] = Namespace(**{**vars(state["args"]), **options})
    else:
        state["cfg"] = OmegaConf.create(state["cfg"], flags={"allow_objects": True})
        overwrite_args_by_name(state["cfg"], options)
    return state


def _write(
    model: TransformerModel,
    folder: Path,
    quantization: str,
    *,
    pairs: list[Pair],
    reference: list[list[float]],
) -> Difference:
    """Write the model for CTranslate2, over one that is there, and compare its scores."""
    spec = ctranslate2_spec.make_spec(model)
    try:
        spec.validate()
        spec.optimize(quantization=quantization)
        spec.save(str(folder))
        return Difference.between(reference, ctranslate2_scores(folder, model, pairs))
    except (ValueError, RuntimeError) as error:
        raise DataError(f"CTranslate2 refuses the model ({error})") from None


def _describe(
    export: Export, model: TransformerModel, task: Any, *, data: Path, folder: Path
) -> None:
    """Write headprune.json, and the sub-words' file beside it."""
    prepared = TextProcessing.of_preparation(
        data, source_lang=task.cfg.source_lang, target_lang=task.cfg.target_lang
    )
    text = None
    if prepared is not None:
        name = _FILE_NAMES[prepared.bpe]
        shutil.copyfile(prepared.file, folder / name)
        text = {"tokenizer": prepared.tokenizer, "bpe": prepared.bpe, "file": name}
    max_source, max_target = model.max_positions()
    ExportedModel(
        source_lang=task.cfg.source_lang,
        target_lang=task.cfg.target_lang,
        max_source=max_source,
        max_target=max_target,
        plan=json.loads(export.plan.to_json()),
        quantization=export.quantization,
        text=text,
        check={
            "pairs": export.pairs,
            "origin": export.origin,
            "float32": asdict(export.float32),
            "quantized": export.quantized and asdict(export.quantized),
        },
    ).save(folder)
