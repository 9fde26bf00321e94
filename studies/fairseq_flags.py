"""A study's fairseq flags, checked by fairseq's own parsers when the study is read."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from headprune import DataError
from studies.questions import ask

if TYPE_CHECKING:
    from studies.study import Study

_MODULE = "fairseq_plugin.flags"


def require_good_flags(study: Study, path: Path) -> None:
    """Raise a DataError where fairseq would refuse a flag of the study's.

    Args:
        study: the study.
        path: its file, for the message.
    """
    common = ["--arch", study.arch, *study.model_flags]
    questions = {
        section: {"check": "train", "flags": [*common, *training.flags]}
        for section, training in (("train", study.train), ("finetune", study.finetune))
        if training is not None
    }
    questions |= {
        "generate": {"check": "generate", "flags": [*study.generate_flags]},
    }
    try:
        answers = ask(_MODULE, list(questions.values()), library="fairseq")
    except DataError as problem:
        raise DataError(f"{path}: {problem}") from None
    for section, answer in zip(questions, answers, strict=True):
        if message := answer["mistake"]:
            raise DataError(f"{path}: {_section(study.model_flags, section, message)}: {message}")


def architecture_shape(arch: str, model_flags: Sequence[str]) -> dict[str, tuple[int, ...]]:
    """The units of each layer of an unpruned model, by component.

    Args:
        arch: an architecture of the plugin.
        model_flags: flags of fairseq-train that change its sizes.

    Raises:
        DataError: fairseq refuses one of them.
    """
    question = {"check": "shape", "flags": ["--arch", arch, *model_flags]}
    (answer,) = ask(_MODULE, [question], library="fairseq")
    if message := answer["mistake"]:
        raise DataError(f"{'arch' if '--arch' in message else 'model'}: {message}")
    return {component: tuple(layers) for component, layers in answer["shape"].items()}


def _section(model_flags: Sequence[str], section: str, message: str) -> str:
    """The key of the study that caused an error message of fairseq."""
    named = re.search(r"--[\w-]+", message)
    shared = section != "generate" and named is not None and named[0] in model_flags
    return "model" if shared else section
