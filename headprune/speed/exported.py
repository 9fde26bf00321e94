"""The forward pass of a translation model that was exported to CTranslate2."""

from __future__ import annotations

import json
import random
from pathlib import Path

from headprune.cost import Sizes, forward_flops
from headprune.errors import DataError, needing
from headprune.exported import ExportedModel, computed_plan
from headprune.json_files import known_values
from headprune.plan import PruningPlan
from headprune.speed.forward_pass import Conditions, ForwardPass, bytes_of, require_forward

_FIRST_WORD = 4
"""Index of the first entry of a vocabulary that stands for text."""


def exported_forward_pass(folder: Path, conditions: Conditions) -> ForwardPass:
    """Load an exported model; it scores given translations, which is one pass over both sides.

    Raises:
        UsageError: CTranslate2 is not installed, or finds no GPU; or another job.
        DataError: the folder's files cannot be read.
    """
    require_forward(conditions, path=folder)
    with needing("timing CTranslate2 models needs ctranslate2", install="pip install ctranslate2"):
        from headprune.ctranslate2_files import available_device, open_translator, vocabulary
    model = ExportedModel.load(folder)
    translator = open_translator(
        folder,
        device=available_device(conditions.device),
        inter_threads=1,
        intra_threads=conditions.threads,
    )
    draw = random.Random(1)
    sides = []
    for side in ("source", "target"):
        words = vocabulary(folder, side)[_FIRST_WORD:]
        if not words:
            raise DataError(f"{folder}: the {side} vocabulary has no word for text")
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
        sizes = Sizes(**known_values(Sizes, model.sizes, source=f"{folder}: sizes"))
        each = forward_flops(computed_plan(plan), sizes, source=length, target=length)
        flops = conditions.batch * each
    return ForwardPass(
        run=run,
        library=f"CTranslate2 {model.quantization}",
        parameters=model.parameters,
        flops=flops,
        file_bytes=bytes_of(folder),
    )
