"""Small files of labelled texts, as users have them."""

from __future__ import annotations

import csv
import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import datasets

from tests.hf_plugin.made import sentence

LABELS = ("sports", "music", "food")


def examples(size: int, *, seed: int = 1) -> list[dict[str, Any]]:
    """Rows with two texts, a label and a number."""
    rng = random.Random(seed)
    return [
        {
            "text": sentence(rng),
            "other": sentence(rng),
            "category": LABELS[number % len(LABELS)],
            "stars": number % 4 + 0.5,
        }
        for number in range(size)
    ]


def write_csv(path: Path, rows: Sequence[dict[str, Any]], *, delimiter: str = ",") -> Path:
    """Write a file with a header line."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]), delimiter=delimiter)
        writer.writeheader()
        writer.writerows(rows)
    return path


def write_as(kind: str, folder: Path, rows: Sequence[dict[str, Any]]) -> str:
    """Write the rows in a format; returns what a user gives to the command."""
    path = folder / f"train.{kind}"
    if kind == "csv":
        write_csv(path, rows)
    elif kind == "tsv":
        write_csv(path, rows, delimiter="\t")
    elif kind == "jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    elif kind == "parquet":
        datasets.Dataset.from_list(list(rows)).to_parquet(path)
    elif kind == "folder":
        datasets.Dataset.from_list(list(rows)).save_to_disk(path)
    else:
        assert kind == "splits"
        data = datasets.Dataset.from_list(list(rows))
        datasets.DatasetDict({"first": data, "second": data.select([0])}).save_to_disk(path)
        return f"{path}:first"
    return str(path)
