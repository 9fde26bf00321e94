"""The fine-tuning during which the score movement of a translation model is computed.

fairseq-train runs in a separate process (``fairseq_plugin.worker``). There ``collecting_movement``
adds a step to the sums wherever fairseq has the gradients of an update and has not clipped them.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fairseq.trainer import Trainer

from fairseq_plugin.checkpoints import Checkpoint
from fairseq_plugin.loading import languages_of
from fairseq_plugin.running import Job, train
from fairseq_plugin.schedule import flag_value, length_name
from fairseq_plugin.scores.model import FairseqModel
from fairseq_plugin.variants import finetuning_flags
from headprune.errors import DataError, UsageError
from headprune.files import write_text_atomically
from headprune.json_files import json_object
from headprune.scores.movement import FineTuned, Movement

_HALF_PRECISION = (
    *("--fp16", "--memory-efficient-fp16", "--amp"),
    *("--bf16", "--memory-efficient-bf16"),
)
_REFUSED = ("--train-subset", "--no-save", "--distributed-world-size")


def require_flags(flags: Sequence[str]) -> None:
    """Raise a UsageError for flags of fairseq-train with which movement is not computed."""
    for name in (flag.split("=")[0] for flag in flags):
        if name in _HALF_PRECISION:
            raise UsageError(f"--finetune: movement needs full precision; leave {name} out")
        if name in _REFUSED:
            raise UsageError(f"--finetune: movement is not computed with {name}; leave it out")


def fine_tuned(
    path: Path,
    flags: Sequence[str],
    *,
    components: Sequence[str],
    data: Path,
    data_name: str,
    seed: int,
) -> FineTuned:
    """Fine-tune a checkpoint in a temporary folder, for the movement of its units.

    Args:
        path: the checkpoint; it is left as it was.
        flags: flags for fairseq-train, with the architecture and the length of the training.
        components: those whose units are scored.
        data: the binarised data folder, whose training set is used.
        data_name: the name of this training set in signatures.
        seed: the seed of the fine-tuning.

    Raises:
        UsageError: half precision, or a flag that is not for a training like this.
        DataError: fairseq fails; the message names its log, which stays.
    """
    require_flags(flags)
    checkpoint = Checkpoint.load(path)
    folder = Path(tempfile.mkdtemp(prefix="headprune-movement-"))
    plan, sums = folder / "plan.json", folder / "movement.json"
    checkpoint.plan.save(plan)
    is_log_needed = False
    try:
        train(
            Job(label=f"movement, seed {seed}", log=folder / "train.log"),
            finetuning_flags(flags, plan=plan, seed=seed, start=path),
            data=data,
            languages=languages_of(checkpoint, data),
            model=folder / "model.pt",
            movement=(sums, components),
        )
        content = json_object(sums)
    except DataError:
        is_log_needed = True
        raise
    finally:
        if not is_log_needed:
            shutil.rmtree(folder)
    rate = flag_value(flags, "--lr")
    return FineTuned(
        values=content["values"],
        steps=content["steps"],
        data=data_name,
        settings={
            "part": "training",
            "trained-on": "yes",
            "finetune": length_name(flags),
            **({} if rate is None else {"learning_rate": rate}),
            "flags": list(flags),
            "seed": seed,
        },
    )


@contextmanager
def collecting_movement(path: Path, components: Sequence[str]) -> Iterator[None]:
    """Sum the movement of a training in this process, and write it to a file at the end.

    Args:
        path: the file (JSON).
        components: those whose units are scored.
    """
    collected: list[Movement] = []
    clip = Trainer.clip_grad_norm

    def add_and_clip(trainer: Trainer, clip_norm: float) -> Any:
        if not collected:
            collected.append(Movement(FairseqModel(trainer.model), components))
        collected[0].add()
        return clip(trainer, clip_norm)

    Trainer.clip_grad_norm = add_and_clip
    try:
        yield
    finally:
        Trainer.clip_grad_norm = clip
    if not collected:
        raise DataError("movement: the training made no update in this process")
    content = {"steps": collected[0].steps, "values": collected[0].values}
    write_text_atomically(path, json.dumps(content))
