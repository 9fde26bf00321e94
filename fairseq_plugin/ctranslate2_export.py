"""Export a checkpoint to CTranslate2, and check its scores against fairseq's."""

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
from headprune.ctranslate2_engine import SHORTLIST, check_shortlist
from headprune.errors import DataError, UsageError
from headprune.exported import ExportedModel
from headprune.folders import new_folder
from headprune.plan import HeadPlan

PAIRS = 64
"""The number of sentence pairs that scores are compared on."""

TOLERANCE = 1e-3
"""The allowed difference of a token's log-probability from fairseq's, in float32."""

_FILE_NAMES = {"subword_nmt": "bpe.codes", "sentencepiece": "sentencepiece.model"}
_TRUECASER = "truecase.model"


@dataclass(frozen=True, kw_only=True)
class Export:
    """The result of an export, with the differences between its scores and fairseq's.

    Attributes:
        float32: the difference of the model in float32, at most ``TOLERANCE``.
        quantized: the difference of the written model, if its weights are of another type.
        pairs: the number of sentence pairs on which the scores were compared.
        origin: the source of these pairs.
    """

    plan: HeadPlan
    quantization: str
    float32: Difference
    quantized: Difference | None
    pairs: int
    origin: str

    def __str__(self) -> str:
        description = (
            f"{self.plan}, {self.quantization}; log-probabilities of tokens differ from fairseq's "
            f"by at most {self.float32.largest:.1e} in float32"
        )
        if self.quantized is not None:
            description += (
                f", by {self.quantized.mean:.1e} on average and at most "
                f"{self.quantized.largest:.1e} in {self.quantization}"
            )
        description += f" ({self.pairs} pairs of {self.origin})"
        padding = ctranslate2_spec.padding(self.plan)
        return description if padding is None else f"{description}\n{padding}"


def export_to_ctranslate2(
    checkpoint: Checkpoint,
    output: Path,
    *,
    data: Path | None = None,
    quantization: str | None = None,
    shortlist: Path | None = None,
) -> Export:
    """Write a folder that CTranslate2 and `headprune translate` load.

    The folder is created only if its scores equal fairseq's. If the data were prepared by
    data_prep, the folder also describes the preparation of the text.

    Args:
        checkpoint: a ``transformer`` or ``transformer_headpruned``, in either form.
        output: the folder to create; it must be empty if it exists.
        data: the binarised data folder with the dictionaries; default: the one that the checkpoint
            was trained on.
        quantization: one of CTranslate2's types of weights; default: float32.
        shortlist: a file from `headprune shortlist` to write as vmap.txt; CTranslate2 then
            translates with it if ``use_vmap=True`` is given.

    Raises:
        UsageError: the model cannot be expressed, an unknown quantization, no data folder.
        DataError: ``output`` is taken, dictionaries do not fit, or the scores are not
            fairseq's, or the shortlist is of other dictionaries.
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
        if shortlist is not None:
            check_shortlist(shortlist, folder)
            shutil.copyfile(shortlist, folder / SHORTLIST)
        _describe(export, checkpoint, model, task, data=data, folder=folder)
    return export


def _write(
    model: TransformerModel,
    folder: Path,
    quantization: str,
    *,
    pairs: list[Pair],
    reference: list[list[float]],
) -> Difference:
    """Write the model for CTranslate2, replacing an older one, and compare its scores."""
    spec = ctranslate2_spec.make_spec(model)
    try:
        spec.validate()
        spec.optimize(quantization=quantization)
        spec.save(str(folder))
        return Difference.between(reference, ctranslate2_scores(folder, model, pairs))
    except (ValueError, RuntimeError) as error:
        raise DataError(f"CTranslate2 refuses the model ({error})") from None


def _describe(
    export: Export,
    checkpoint: Checkpoint,
    model: TransformerModel,
    task: Any,
    *,
    data: Path,
    folder: Path,
) -> None:
    """Write headprune.json, and the sub-words' file beside it."""
    prepared = TextProcessing.of_preparation(
        data, source_lang=task.cfg.source_lang, target_lang=task.cfg.target_lang
    )
    text: dict[str, Any] | None = None
    if prepared is not None:
        name = _FILE_NAMES[prepared.bpe]
        shutil.copyfile(prepared.file, folder / name)
        text = {"tokenizer": prepared.tokenizer, "bpe": prepared.bpe, "file": name}
        if prepared.full_codes:
            text["full_codes"] = True
        if prepared.truecaser is not None:
            shutil.copyfile(prepared.truecaser, folder / _TRUECASER)
            text["truecaser"] = _TRUECASER
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
        parameters=ctranslate2_spec.parameters_of(model),
        sizes=asdict(checkpoint.sizes),
    ).save(folder)
