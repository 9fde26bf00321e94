"""The families of models that data with labels are for."""

from __future__ import annotations

from typing import Any

from transformers import PreTrainedConfig

from headprune.errors import UsageError

UNREAD = {
    "bros": "it needs the place of each word on its page (bbox), which texts do not have",
    "yolos": "it finds objects in images, which have no single label",
    "vit_mae": "it restores images of which it sees a part, and has no outputs for labels",
    "clip_vision_model": "it has no outputs for labels",
    "audio-spectrogram-transformer": "it reads sounds, and data are texts or images",
    "whisper": "it reads sounds, and data are texts or images",
}
"""Families that cannot be run on data, with the reason."""


def require_readable(family: str, *, name: str) -> None:
    """Check that a family can be run on labelled data.

    Args:
        family: that of the unpruned model.
        name: the name of the model.

    Raises:
        UsageError: it cannot.
    """
    if family in UNREAD:
        raise UsageError(
            f"{name}: a model of the family {family} takes no labelled texts or images: "
            f"{UNREAD[family]}"
        )


def require_head(config: PreTrainedConfig, auto: Any, *, name: str) -> None:
    """Check that a model's family has a head for a task.

    Args:
        config: that of the model.
        auto: transformers' Auto class for the task.
        name: the name of the model.

    Raises:
        UsageError: it has none.
    """
    family = config.model_type
    require_readable(family, name=name)
    if type(config) not in auto._model_mapping:
        kind = auto.__name__.removeprefix("AutoModelFor")
        raise UsageError(
            f"{name}: transformers has no {kind} model of the family {family}; give another model, "
            "or another --task-type"
        )
