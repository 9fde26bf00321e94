"""A processor whose time is a function of floating-point operations, to time models exactly."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from headprune.components import side_of
from headprune.cost import forward_flops
from headprune.speed import latency_measuring, verifying
from headprune.speed.forward_pass import Conditions, ForwardPass


def install(patch: pytest.MonkeyPatch, seconds_of: Callable[[int], float]) -> None:
    """Time the models of `headprune latency` and `headprune plan --verify` on such a processor."""
    now = 0.0

    def ready(backend: Any, model: Any, conditions: Conditions) -> ForwardPass:
        loaded: ForwardPass = backend.forward_pass_of(model, conditions)
        length, beam = conditions.length, conditions.hypotheses
        plan = model.plan.completed(model.shape)
        by_job = {}
        if conditions.job in ("encoder", "decoder"):
            for side in ("encoder", "decoder"):
                names = [name for name in plan.units if side_of(name) == side]
                own = plan.part(names)
                assert own is not None
                by_job[side] = conditions.batch * forward_flops(
                    own, model.sizes, source=length, target=length, beam=beam
                )
        flops = by_job.get(conditions.job, loaded.flops)

        def run() -> None:
            nonlocal now
            assert flops is not None
            now += seconds_of(flops)

        return replace(loaded, run=run)

    for module in (latency_measuring, verifying):
        patch.setattr(module, "ready", ready)
        patch.setattr(module, "clock_of", lambda conditions: lambda: now)
