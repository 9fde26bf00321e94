"""One job of a model on random tokens, ready to be timed: a forward pass, a beam search, ..."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from headprune.errors import UsageError

if TYPE_CHECKING:
    from torch import Tensor

FORWARD, ENCODER, DECODER, SEARCH = "forward", "encoder", "decoder", "search"

JOBS = {
    FORWARD: "one forward pass; a translation model reads both sides at once",
    ENCODER: "the encoder of a translation model",
    DECODER: "its decoder, one step for each token, with caches that are reordered as in a search",
    SEARCH: "its beam search: encoder, decoder steps and the choice of hypotheses",
}
"""The jobs that can be timed, with a description for help texts."""

WEIGHTS = ((".onnx", ".data"), (".safetensors",), (".bin",), (".pt",))
"""Suffixes of the files that hold weights, in the folders of all libraries.

A folder may hold the same weights in several formats; libraries read the first of these.
"""

_OF_TRAININGS = ("optimizer.pt", "scheduler.pt", "scaler.pt", "training_args.bin")
"""Files in the checkpoints of transformers' Trainer that are no weights of the model."""


@dataclass(frozen=True, kw_only=True)
class Conditions:
    """The conditions under which all models are timed.

    Attributes:
        batch: number of sentences, or of sentence pairs.
        length: number of tokens of each sentence, on both sides. A search writes exactly as many.
        threads: number of CPU threads.
        device: ``cpu`` or ``cuda``.
        job: one of ``JOBS``.
        beam: number of hypotheses of each sentence, for the jobs ``decoder`` and ``search``.
        inputs: the model's inputs and their size, where they are no tokens, such as
            ``images of 224 x 224 pixels``; ``length`` then does not count.
    """

    batch: int
    length: int
    threads: int
    device: str
    job: str = FORWARD
    beam: int = 5
    inputs: str = ""

    @property
    def hypotheses(self) -> int:
        """The number of targets of each source in this job."""
        return self.beam if self.job in (DECODER, SEARCH) else 1

    def __str__(self) -> str:
        beam = f", beam {self.beam}" if self.job in (DECODER, SEARCH) else ""
        name = "forward pass" if self.job == FORWARD else self.job
        return f"{name} over {self.batch_name}{beam}"

    @property
    def batch_name(self) -> str:
        """The batch, in words.

        >>> Conditions(batch=8, length=32, threads=1, device="cpu").batch_name
        '8 x 32 tokens'
        """
        if self.inputs:
            return f"{self.batch} {self.inputs}"
        return f"{self.batch} x {self.length} tokens"


@dataclass(frozen=True, kw_only=True)
class ForwardPass:
    """A loaded model with a batch.

    Attributes:
        run: does the job on the batch.
        library: the library that runs it.
        parameters: number of parameters; None where the files do not tell it.
        flops: floating-point operations of one run, see ``forward_flops``; None as above, and for
            the jobs of one side of a model.
        file_bytes: size of the files with the weights, without the state of a training.
        dtype: the type of the weights; None where it is not known.
        inputs: see ``Conditions``.
    """

    run: Callable[[], object]
    library: str
    parameters: int | None
    flops: int | None
    file_bytes: int
    dtype: str | None = None
    inputs: str = ""


@runtime_checkable
class ForwardBackend(Protocol):
    """A backend (see ``headprune.backends``) whose models can be timed."""

    def forward_pass(self, path: Path, conditions: Conditions) -> ForwardPass:
        """Load a model and draw a batch.

        Raises:
            UsageError: the device or the library is missing, or the model does not do the job.
            DataError: the model cannot be read.
        """


@runtime_checkable
class InMemoryBackend(ForwardBackend, Protocol):
    """A backend whose models can be timed without being written to a file."""

    def forward_pass_of(self, model: Any, conditions: Conditions) -> ForwardPass:
        """Draw a batch for a model that the backend opened, pruned or not.

        The model runs in the library's code for pruned models even where nothing is pruned, so that
        times differ by the pruned units alone.

        Raises:
            UsageError: as above.
        """


def require_forward(conditions: Conditions, *, path: Path) -> None:
    """Refuse other jobs than a forward pass.

    Raises:
        UsageError: another job.
    """
    if conditions.job != FORWARD:
        raise UsageError(
            f"{path}: the job {conditions.job} is timed for fairseq checkpoints and Hugging Face "
            "folders, not for exported models"
        )


def drawn_hypotheses(conditions: Conditions) -> Tensor:
    """Hypotheses that each step of a search continues: steps x B x candidates, from 0 to the beam.

    Caches are copied where the order of the hypotheses changes. A model that repeats one word keeps
    the order, so a badly pruned model would be timed too fast. Drawn ones are alike for all models.
    """
    import torch

    generator = torch.Generator().manual_seed(2)
    size = (conditions.length, conditions.batch, 2 * conditions.beam)
    return torch.randint(conditions.beam, size, generator=generator).to(conditions.device)


def bytes_of(path: Path) -> int:
    """The size of a file, or of the files in a folder that its weights are read from."""
    if not path.is_dir():
        return path.stat().st_size
    candidates = [each for each in path.iterdir() if each.name not in _OF_TRAININGS]
    by_format = ([each for each in candidates if each.suffix in suffixes] for suffixes in WEIGHTS)
    return sum(file.stat().st_size for file in next(filter(None, by_format), []))
