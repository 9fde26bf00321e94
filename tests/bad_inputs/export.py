"""Bad data for ``headprune export --to ctranslate2`` and ``headprune scores``."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch
from fairseq.data.indexed_dataset import MMapIndexedDatasetBuilder

from tests.bad_inputs.table import BadInput
from tests.fairseq_plugin import checkpoints
from tests.fairseq_plugin.models import WORDS, dictionary

Change = Callable[[Path], None]


def _data(change: Change) -> Change:
    """Write a tiny checkpoint and its binarised data, after ``change`` to the data's folder."""

    def prepare(folder: Path) -> None:
        checkpoints.write(folder / "model.pt")
        data = folder / "data"
        data.mkdir()
        for language in ("en", "de"):
            dictionary().save(str(data / f"dict.{language}.txt"))
            prefix = data / f"valid.en-de.{language}"
            builder = MMapIndexedDatasetBuilder(f"{prefix}.bin")
            for number in range(4):
                builder.add_item(torch.tensor([4 + number, 5, 6, 2]))
            builder.finalize(f"{prefix}.idx")
        change(data)

    return prepare


def _truncated(name: str, length: int) -> Change:
    def change(data: Path) -> None:
        (data / name).write_bytes((data / name).read_bytes()[:length])

    return change


def _binary_dictionary(data: Path) -> None:
    (data / "dict.en.txt").write_bytes(b"\x00\xff\xfe\n" * 20)


def _text_dictionary(data: Path) -> None:
    (data / "dict.en.txt").write_text("some other text\nof two lines\n")


def _short_dictionary(data: Path) -> None:
    for language in ("en", "de"):
        dictionary(WORDS - 8).save(str(data / f"dict.{language}.txt"))


def _no_dictionary(data: Path) -> None:
    (data / "dict.de.txt").unlink()


def _other_numbers(data: Path) -> None:
    builder = MMapIndexedDatasetBuilder(str(data / "valid.en-de.de.bin"))
    for _ in range(4):
        builder.add_item(torch.tensor([4, 10_000, 2]))
    builder.finalize(str(data / "valid.en-de.de.idx"))


_COMMANDS = (
    (
        *("headprune", "export", "{folder}/model.pt", "--to", "ctranslate2"),
        *("--data", "{folder}/data", "-o", "{folder}/out"),
    ),
    ("headprune", "scores", "{folder}/model.pt", "--data", "{folder}/data", "-o", "{folder}/out"),
)

ROWS = [
    BadInput(
        label=f"{command[1]}: {label}",
        command=command,
        message=rf"^error: .*{message}",
        prepare=_data(change),
        status=1,
    )
    for command in _COMMANDS
    for label, message, change in (
        (
            "a truncated index",
            r"data: cannot read the split valid \(",
            _truncated("valid.en-de.en.idx", 40),
        ),
        (
            "truncated data",
            r"data: cannot read the split valid \(",
            _truncated("valid.en-de.en.bin", 5),
        ),
        (
            "data of another dictionary",
            "data: the split valid is damaged, or was made with another dictionary ",
            _other_numbers,
        ),
        ("a binary dictionary", "model.pt: does not load with the dicti", _binary_dictionary),
        ("a dictionary of other text", "model.pt: does not load with the dicti", _text_dictionary),
        # Of a stock checkpoint, which `export` loads as it is, fairseq names the weights.
        (
            "a shorter dictionary",
            "the checkpoint's dictionary and |the dictionaries of ",
            _short_dictionary,
        ),
        ("no dictionary", "data: no dictionary of the model's languages", _no_dictionary),
    )
]
