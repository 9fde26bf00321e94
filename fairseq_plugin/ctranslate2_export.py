"""Exporting a checkpoint to CTranslate2, checked against fairseq before it is there."""

from __future__ import annotations

import json
import shutil
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ctranslate2.specs.model_spec import ACCEPTED_MODEL_TYPES as QUANTIZATIONS
from fairseq.models.transformer import TransformerModel

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
from fairseq_plugin.loading import fairseq_silent, load_model, trained_on
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
    data = data or trained_on(checkpoint)
    with fairseq_silent(), new_folder(output) as folder:
        model, task = load_model(checkpoint, data)
        pairs, origin = pairs_of(task, model, number=PAIRS, data=data)
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
