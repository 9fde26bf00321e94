"""A trained checkpoint as the baseline of a study, in place of a training."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from fairseq_plugin.checkpoints import Checkpoint
from fairseq_plugin.flags import check_flags
from fairseq_plugin.loading import fairseq_silent, languages_of, load_model, set_data
from fairseq_plugin.same_model import require_same_model
from fairseq_plugin.teacher import require_vocabulary
from headprune.errors import UsageError
from headprune.files import write_text_atomically
from headprune.plan import HeadPlan

KEY = "baseline_model"
"""The key of a study that names the checkpoint, for messages."""


def copy_baseline(
    path: Path, flags: Sequence[str], *, data: Path, languages: tuple[str, str], model: Path
) -> None:
    """Copy an unpruned checkpoint, without the optimizer's state, after checking that it fits.

    Facts about the model are written to a `.json` beside the copy, as after a training.

    Args:
        path: the checkpoint, of the plugin or of stock fairseq.
        flags: the flags of fairseq-train for the model that is expected.
        data: the binarised data that the model is fine-tuned on.
        languages: source and target of the data.
        model: the file to write.

    Raises:
        UsageError: a model of other options, languages or vocabulary, or one that is pruned.
        DataError: a file cannot be read, or the dictionaries do not fit.
    """
    checkpoint = Checkpoint.load(path)
    checkpoint.require_no_gates()
    if not checkpoint.plan.is_full:
        raise UsageError(f"{KEY}: {path} is pruned already; give the unpruned model")
    require_same_model(
        check_flags("train", flags), checkpoint.options, path=str(path), flag=f"{KEY}: {path}"
    )
    if checkpoint.form is None:  # of stock fairseq: with the plugin's options it can be pruned
        checkpoint = checkpoint.prune(HeadPlan.full(checkpoint.shape))
    require_data(checkpoint, data, languages=languages, name=f"{KEY}: {path}")
    set_data(checkpoint, data, languages=languages)
    facts = {"parameters": checkpoint.parameters, "fingerprint": checkpoint.fingerprint}
    checkpoint.state["last_optimizer_state"] = None
    checkpoint.save(model)
    write_text_atomically(model.with_suffix(".json"), json.dumps(facts, indent=1) + "\n")


def require_data(
    checkpoint: Checkpoint, data: Path, *, languages: tuple[str, str], name: str
) -> None:
    """Check that a model can be fine-tuned on binarised data.

    Args:
        languages: source and target of the data.
        name: the option and the file, for the message.

    Raises:
        UsageError: a model of other languages or another vocabulary.
        DataError: the dictionaries cannot be read, or have another size.
    """
    own = languages_of(checkpoint, data)
    if own != languages:
        raise UsageError(f"{name}: translates {'-'.join(own)}, the data are {'-'.join(languages)}")
    with fairseq_silent():
        _, task = load_model(checkpoint, data)
    require_vocabulary(checkpoint, task, name=name)
