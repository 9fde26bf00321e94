"""Model folders without a tokenizer, and with one that does not know the text."""

from __future__ import annotations

from pathlib import Path

from tests.bad_inputs.table import BadInput
from tests.hf_plugin.made import write_model, write_task


def _no_tokenizer(folder: Path) -> None:
    write_task(folder / "glue", "rte")
    write_model(folder / "model")
    for path in (folder / "model").glob("tokenizer*"):
        path.unlink()


def _other_tokenizer(folder: Path) -> None:
    write_task(folder / "glue", "rte")
    write_model(folder / "model", words=["ein", "Hund", "sieht", "the"])


_DATA = ("--data-dir", "{folder}/glue")
_OUT = ("-o", "{folder}/out")

ROWS = [
    BadInput(
        label=f"{command[1]}: {label}",
        command=command,
        message=rf"^error: .*model: {message}",
        prepare=prepare,
        status=1,
    )
    for command in (
        ("headprune", "glue", "--task", "rte", "--model", "{folder}/model", *_DATA, *_OUT,
         "--max-length", "24"),
        ("headprune", "scores", "{folder}/model", "--task", "rte", *_DATA, *_OUT,
         "--max-length", "24"),
    )
    for label, message, prepare in (
        ("a model without a tokenizer", "no tokenizer in the folder ", _no_tokenizer),
        ("another tokenizer", r"its tokenizer does not know \d+% of the text's ", _other_tokenizer),
    )
]  # fmt: skip
