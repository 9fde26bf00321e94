"""One measured value, with the time and the place of its measurement."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from headprune.errors import DataError
from headprune.results.environment import Environment, processor_name, versions_of
from headprune.task_model import Measurement


@dataclass(frozen=True)
class Measured:
    """A measurement and its environment.

    Attributes:
        value: the value of the metric.
        resumed: True if the fine-tuning was interrupted and resumed; None if there was no
            fine-tuning, or it is not known.
        constant, signature, fingerprint: see ``Measurement``.
        calibrated_on: the number of examples that the model was re-fitted on; None where it was
            not, or it is not known.
        seconds, device, versions: see ``Environment``.
        files: the files of the outputs, relative to the folder of the comparison; see
            ``Record.files``.
        outputs: their contents, before they are written; see ``Measurement``.
    """

    value: float
    resumed: bool | None = None
    constant: bool | None = None
    seconds: float | None = None
    device: str | None = None
    versions: dict[str, str] = field(default_factory=dict)
    signature: str | None = None
    fingerprint: str | None = None
    files: dict[str, str] = field(default_factory=dict)
    calibrated_on: int | None = None
    outputs: Mapping[str, str] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, measured: Measurement, *, resumed: bool | None = None) -> Measured:
        """The measurement with the versions of its packages, without time and processor."""
        return cls(
            measured.value,
            resumed,
            measured.constant,
            versions=versions_of("torch", *measured.packages),
            signature=measured.signature,
            fingerprint=measured.fingerprint,
            outputs=measured.outputs,
        )

    @property
    def environment(self) -> Environment:
        """The environment of the measurement."""
        return Environment(seconds=self.seconds, device=self.device, versions=self.versions)


def timed(
    measure: Callable[[], Measured], *, metric: str, where: object, model: str | None = None
) -> Measured:
    """Measure, and add the time and the processor.

    Args:
        metric: the name of the metric, for messages.
        where: the name of the measured model or of the file for the value, for messages.
        model: the name of the measured model in a warning where its outputs are constant; None
            for no warning.

    Raises:
        DataError: the value is not finite.
    """
    started = time.monotonic()
    measured = replace(
        measure(),
        seconds=round(time.monotonic() - started, 1),
        device=processor_name(),
    )
    if not math.isfinite(measured.value):
        raise DataError(f"{where}: {metric} is {measured.value}, not finite")
    if measured.constant and model is not None:
        print(f"warning: {model}: gives the same output for every example", file=sys.stderr)
    return measured
