"""Times of several models in turns, with what they cost."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from headprune.backends import backend_of
from headprune.errors import HeadpruneError, UsageError, reason_of
from headprune.exported import is_exported
from headprune.speed.exported import exported_forward_pass
from headprune.speed.forward_pass import Conditions, ForwardBackend, ForwardPass
from headprune.speed.turns import speedup, taking_turns


@dataclass(frozen=True, kw_only=True)
class Speed:
    """The measured speed of one model.

    Attributes:
        model: its path.
        library, parameters, flops, file_bytes: see ``ForwardPass``.
        seconds: the time of each round.
        speedup: the time of the first model over this one's in the same round: the median and the
            quartiles.
        inputs: see ``Conditions``.
    """

    model: str
    library: str
    parameters: int | None
    flops: int | None
    file_bytes: int
    seconds: tuple[float, ...]
    speedup: tuple[float, float, float]
    inputs: str = ""

    @property
    def median(self) -> float:
        """The median time in seconds."""
        return statistics.median(self.seconds)


def measure_speeds(
    paths: Sequence[Path],
    conditions: Conditions,
    *,
    rounds: int,
    watch: Callable[[range], Iterable[int]] = lambda numbers: numbers,
) -> list[Speed]:
    """Time one job of each model in turns, after one run that is not timed.

    Args:
        paths: files or folders of models, of any library.
        conditions: the batch and the machine.
        rounds: number of times that each model is timed.
        watch: wraps the rounds; for a progress bar.

    Raises:
        UsageError: a model that cannot be timed, or not on such a batch.
        DataError: a model that cannot be read.
    """
    prepare_processor(conditions)
    passes = [forward_pass(path, conditions) for path in paths]
    for path, each in zip(paths, passes, strict=True):
        warm_up(each, conditions, path=path)
    seconds = taking_turns([each.run for each in passes], rounds=rounds, warm_up=False, watch=watch)
    return [
        Speed(
            model=str(path),
            library=each.library,
            parameters=each.parameters,
            flops=each.flops,
            file_bytes=each.file_bytes,
            seconds=tuple(times),
            speedup=speedup(seconds[0], times),
            inputs=each.inputs,
        )
        for path, each, times in zip(paths, passes, seconds, strict=True)
    ]


def prepare_processor(conditions: Conditions) -> None:
    """Set the number of threads, and check that the device exists.

    Raises:
        UsageError: there is no GPU.
    """
    import torch

    torch.set_num_threads(conditions.threads)
    if conditions.device == "cuda" and not torch.cuda.is_available():
        raise UsageError("--device cuda: torch finds no GPU")


@contextmanager
def prepared_processor(conditions: Conditions) -> Iterator[None]:
    """Prepare the processor for a block; afterwards torch has its number of threads of before.

    Raises:
        UsageError: see ``prepare_processor``.
    """
    import torch

    threads = torch.get_num_threads()
    try:
        prepare_processor(conditions)
        yield
    finally:
        torch.set_num_threads(threads)


def warm_up(model: ForwardPass, conditions: Conditions, *, path: Path) -> None:
    """Run a model once, untimed.

    Raises:
        UsageError: it does not run on such a batch.
    """
    try:
        model.run()
    except HeadpruneError:
        raise
    except Exception as problem:  # of any library, such as a sentence that is too long
        batch = replace(conditions, inputs=model.inputs).batch_name
        raise UsageError(f"{path}: does not run on {batch} ({reason_of(problem)})") from None


def forward_pass(path: Path, conditions: Conditions) -> ForwardPass:
    """Load a model of any library.

    Raises:
        UsageError: its library's backend cannot time models.
        DataError: no backend recognises it, or it cannot be read.
    """
    if path.suffix == ".onnx" and path.is_file():
        path = path.parent  # its config is beside it
    if is_exported(path):
        return exported_forward_pass(path, conditions)
    backend = backend_of(path)
    if not isinstance(backend, ForwardBackend):
        raise UsageError(f"{path}: the backend of such models cannot time them")
    return backend.forward_pass(path, conditions)
