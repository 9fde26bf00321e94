"""The forward pass of a translation model that was exported to CTranslate2."""

from __future__ import annotations

import json
import random
from pathlib import Path

from headprune.cost import Sizes, forward_flops
from headprune.errors import DataError, UsageError, needing
from headprune.exported import ExportedModel, computed_plan
from headprune.plan import PruningPlan
from headprune.speed.forward_pass import Conditions, ForwardPass, bytes_of, require_forward

_FIRST_WORD = 4
"""Index of the first entry of a vocabulary that stands for text."""


def is_exported(path: Path) -> bool:
    """Check if a folder is one that `headprune export --to ctranslate2` wrote."""
    return (path / "model.bin").is_file() and (path / "headprune.json").is_file()


def exported_forward_pass(folder: Path, conditions: Conditions) -> ForwardPass:
    """Load an exported model; it scores given translations, which is one pass over both sides.

    Raises:
        UsageError: CTranslate2 is not installed, or finds no GPU; or another job.
        DataError: the folder's files cannot be read.
    """
    require_forward(conditions, path=folder)
    with needing("timing CTranslate2 models needs ctranslate2", install="pip install ctranslate2"):
        import ctranslate2
    model = ExportedModel.load(folder)
    if conditions.device == "cuda" and not ctranslate2.get_cuda_device_count():
        raise UsageError("--device cuda: CTranslate2 finds no GPU")
    try:
        translator = ctranslate2.Translator(
            str(folder),
            device=conditions.device,
            inter_threads=1,
            intra_threads=conditions.threads,
        )
    except (RuntimeError, ValueError) as error:
        raise DataError(f"{folder}: CTranslate2 cannot load it ({error})") from None
    draw = random.Random(1)
    sides = []
    for side in ("source", "target"):
        words = _vocabulary(folder, side)[_FIRST_WORD:]
        # CTranslate2 adds the token for the end of a sentence.
        sides.append(
            [draw.choices(words, k=conditions.length - 1) for _ in range(conditions.batch)]
        )
    source, target = sides

    def run() -> object:
        return translator.score_batch(source, target, max_batch_size=conditions.batch)

    plan = PruningPlan.from_json(json.dumps(model.plan), source=f"{folder}: plan")
    flops = None
    if model.sizes is not None:
        length = conditions.length
        sizes = Sizes(**model.sizes)
        each = forward_flops(computed_plan(plan), sizes, source=length, target=length)
        flops = conditions.batch * each
    return ForwardPass(
        run=run,
        library=f"CTranslate2 {model.quantization}",
        parameters=model.parameters,
        flops=flops,
        file_bytes=bytes_of(folder),
    )


def _vocabulary(folder: Path, side: str) -> list[str]:
    """The words of a vocabulary, in CTranslate2's files of JSON or of one word a line."""
    for name in (f"{side}_vocabulary", "shared_vocabulary"):
        for suffix in (".json", ".txt"):
            path = (folder / name).with_suffix(suffix)
            if not path.is_file():
                continue
            try:
                text = path.read_text(encoding="utf-8")
                words = json.loads(text) if suffix == ".json" else text.splitlines()
            except (OSError, ValueError) as problem:
                raise DataError(f"{path}: cannot be read ({problem})") from None
            if not isinstance(words, list) or len(words) <= _FIRST_WORD:
                raise DataError(f"{path}: not a vocabulary")
            return [str(word) for word in words]
    raise DataError(f"{folder}: no vocabulary of the {side} language")
