"""Latency files that are written by hand, for small models."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

from headprune.components import LAYERS
from headprune.model import PrunableModel
from headprune.results.environment import device_name
from headprune.speed.forward_pass import Conditions
from headprune.speed.latency import Latency


def write_latency(model: PrunableModel, path: Path, *, job: str) -> Latency:
    """A latency file of a model, in which all layers together take 0.9 of the time.

    A layer's sub-layers have equal parts of it, in proportion to their units.
    """
    layers = sum(len(each) for name, each in model.shape.items() if name in LAYERS)
    saved: dict[str, dict[int, float]] = {}
    for name, (units, *_) in model.shape.items():
        part = 0.9 / layers / (1 if name in LAYERS else 4)
        saved[name] = {kept: part * (1 - kept / units) for kept in range(units + 1)}
    latency = Latency(
        conditions=Conditions(batch=2, length=8, threads=1, device="cpu", job=job, beam=2),
        device=device_name("cpu"),
        dtype="float32",
        model=str(model.path),
        fingerprint=model.fingerprint,
        library="torch",
        shape=model.shape,
        sizes=asdict(model.sizes),
        seconds=1.0,
        saved=saved,
        rounds=1,
    )
    latency.save(path)
    return latency
