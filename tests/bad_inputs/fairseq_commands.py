"""Bad input to fairseq's own commands with ``--user-dir fairseq_plugin``.

What is found before they begin to work; later, fairseq's log stands before the line on standard
error, and tests/fairseq_plugin/test_arguments.py has the rows.
"""

from __future__ import annotations

import io
from functools import partial
from pathlib import Path
from typing import Any

import torch

from tests.bad_inputs.table import BadInput


class _Opens:
    """An object whose pickle creates a file when it is loaded."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return open, (str(self.path), "w")


def write_checkpoint(folder: Path, *, kind: str) -> None:
    """Write dictionaries and an invalid ``model.pt`` of this kind, which fairseq has to refuse."""
    for language in ("en", "de"):
        (folder / f"dict.{language}.txt").write_text("word 1\n", encoding="utf-8")
    content: Any = {"model": {"weight": torch.zeros(100)}, "args": None}
    if kind == "unsafe":
        content["model"]["evil"] = _Opens(folder / "executed")
    file = io.BytesIO()
    torch.save(content, file)
    data = file.getvalue()
    if kind == "truncated":
        data = data[: len(data) // 2]
    if kind == "damaged":
        place = data.index(bytes(400))  # the weights
        data = data[:place] + b"\1" + data[place + 1 :]
    (folder / "model.pt").write_bytes(data)


def _row(
    label: str, program: str, *arguments: str, message: str, status: int, kind: str | None = None
) -> BadInput:
    return BadInput(
        label=f"{program}: {label}",
        command=(
            *(program, "{folder}", "--user-dir", "fairseq_plugin", "--cpu"),
            *("--source-lang", "en", "--target-lang", "de"),
            *arguments,
        ),
        message=message,
        prepare=None if kind is None else partial(write_checkpoint, kind=kind),
        status=status,
        slow=True,  # fairseq takes seconds to start
    )


_MODEL = ("--path", "{folder}/model.pt")
_OVERRIDES = r"^error: --model-overrides: .* give a dictionary of options"

ROWS = [
    _row(
        *("no such checkpoint", "fairseq-generate", *_MODEL),
        message=r"^error: --path: .*/model\.pt: no such file$",
        status=1,
    ),
    _row(
        *("one checkpoint of two is missing", "fairseq-generate"),
        *("--path", "{folder}/model.pt:{folder}/other.pt"),
        message=r"^error: --path: .*/other\.pt: no such file$",
        status=1,
        kind="whole",
    ),
    _row(
        *("overrides that are a list", "fairseq-generate", *_MODEL),
        *("--model-overrides", "['head_plan', 'plan.json']"),
        message=_OVERRIDES,
        status=2,
        kind="whole",
    ),
    _row(
        *("overrides that are not closed", "fairseq-generate", *_MODEL),
        *("--model-overrides", "{'head_plan': 'plan.json'"),
        message=_OVERRIDES,
        status=2,
        kind="whole",
    ),
    _row(
        *("overrides without names", "fairseq-interactive", *_MODEL),
        *("--model-overrides", "{1: 2}"),
        message=_OVERRIDES,
        status=2,
        kind="whole",
    ),
    _row(
        *("no checkpoint to fine-tune from", "fairseq-train"),
        *("--arch", "transformer_headpruned_tiny", "--max-tokens", "100"),
        *("--save-dir", "{folder}/save", "--finetune-from-model", "{folder}/model.pt"),
        message=r"^error: --finetune-from-model: .*/model\.pt: no such file$",
        status=1,
    ),
]
