"""The environments of measurements: processor, wall time and versions."""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Protocol

from headprune.version import __version__


@dataclass(frozen=True, kw_only=True)
class Environment:
    """The environment of a measurement; None and empty where it is not known.

    Attributes:
        seconds: wall time of training and measuring.
        device: the name of the processor.
        versions: the versions of packages.
    """

    seconds: float | None = None
    device: str | None = None
    versions: dict[str, str] = field(default_factory=dict)


class HasEnvironment(Protocol):
    """An ``Environment``, or a record."""

    @property
    def seconds(self) -> float | None: ...

    @property
    def device(self) -> str | None: ...

    @property
    def versions(self) -> Mapping[str, str]: ...


@dataclass(frozen=True, kw_only=True)
class Environments:
    """The environments of several measurements.

    Attributes:
        versions: for each package, its versions.
        devices: the names of the processors.
        seconds: the wall time of all measurements of which it is known.
        timed: their number.
        measured: the number of measurements.
    """

    versions: dict[str, list[str]] = field(default_factory=dict)
    devices: list[str] = field(default_factory=list)
    seconds: float = 0.0
    timed: int = 0
    measured: int = 0

    @classmethod
    def of(cls, measurements: Sequence[HasEnvironment]) -> Environments:
        """Without repetitions, in the order of the measurements."""
        versions: dict[str, dict[str, None]] = {}
        for each in measurements:
            for name, version in each.versions.items():
                versions.setdefault(name, {}).setdefault(version)
        seconds = [each.seconds for each in measurements if each.seconds is not None]
        return cls(
            versions={name: [*known] for name, known in versions.items()},
            devices=[*dict.fromkeys(each.device for each in measurements if each.device)],
            seconds=round(sum(seconds), 1),
            timed=len(seconds),
            measured=len(measurements),
        )


def processor_name() -> str:
    """The name of the GPU that models run on, or of the processor where there is none."""
    import torch  # takes seconds, and scoring translations needs none

    return device_name("cuda" if torch.cuda.is_available() else "cpu")


def device_name(device: str) -> str:
    """The model name of the processor: ``cpu``'s as the system gives it, or the GPU's."""
    if device != "cpu":
        import torch

        return torch.cuda.get_device_name()
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = (line.partition(": ")[2] for line in lines if line.startswith("model name"))
    return next(names, platform.processor() or platform.machine())


def versions_of(*packages: str) -> dict[str, str]:
    """The versions of headprune and of those of the packages that are installed."""
    versions = {"headprune": __version__}
    for package in packages:
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return versions
