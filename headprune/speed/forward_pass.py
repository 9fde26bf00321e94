"""One forward pass of a model over random tokens, ready to be timed."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

WEIGHTS = (".safetensors", ".bin", ".onnx", ".data", ".pt")
"""Suffixes of the files that hold weights, in the folders of all libraries."""


@dataclass(frozen=True, kw_only=True)
class Conditions:
    """The conditions under which all models are timed.

    Attributes:
        batch: number of sentences, or of sentence pairs.
        length: number of tokens of each sentence, on both sides.
        threads: number of CPU threads.
        device: ``cpu`` or ``cuda``.
    """

    batch: int
    length: int
    threads: int
    device: str


@dataclass(frozen=True, kw_only=True)
class ForwardPass:
    """A loaded model with a batch.

    Attributes:
        run: runs the model on the batch. An encoder-decoder model reads both sides at once.
        library: the library that runs it.
        parameters: number of parameters; None where the files do not tell it.
        flops: floating-point operations of one run, see ``forward_flops``; None as above.
        file_bytes: size of the files with the weights.
    """

    run: Callable[[], object]
    library: str
    parameters: int | None
    flops: int | None
    file_bytes: int


@runtime_checkable
class ForwardBackend(Protocol):
    """A backend (see ``headprune.backends``) whose models can be timed."""

    def forward_pass(self, path: Path, conditions: Conditions) -> ForwardPass:
        """Load a model and draw a batch.

        Raises:
            UsageError: the device or the library is missing.
            DataError: the model cannot be read.
        """


def bytes_of(path: Path) -> int:
    """The size of a file, or of the files with weights in a folder."""
    files: Iterable[Path] = [path]
    if path.is_dir():
        files = (each for each in path.iterdir() if each.suffix in WEIGHTS)
    return sum(file.stat().st_size for file in files)
