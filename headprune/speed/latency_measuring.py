"""Measure the time of a model's sub-layers with fewer units, inside the model that they are in."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from scipy.optimize import isotonic_regression

from headprune.backends import backend_of, open_model
from headprune.components import HEADS, LAYERS, side_of
from headprune.errors import UsageError
from headprune.model import PrunableModel
from headprune.plan import PruningPlan, Shape
from headprune.results.environment import device_name, versions_of
from headprune.speed.forward_pass import (
    DECODER,
    ENCODER,
    FORWARD,
    SEARCH,
    Conditions,
    ForwardPass,
    InMemoryBackend,
)
from headprune.speed.latency import Latency
from headprune.speed.measure import prepare_processor, warm_up
from headprune.speed.turns import taking_turns

MOST_SINGLE_HEADS = 16
"""The number of heads of a layer up to which each number of heads is measured."""

_TOGETHER = 4
"""Pruned models in memory at once, beside the unpruned one."""

Watch = Callable[[range], Iterable[int]]


@dataclass(frozen=True)
class _Variant:
    """The model with fewer units in each layer of one component.

    Attributes:
        kept: the number of units that each changed layer keeps.
        plan: the plan of the component.
        layers: the number of layers that are changed.
    """

    component: str
    kept: int
    plan: PruningPlan
    layers: int


def job_of(shape: Shape) -> str:
    """The job that a model is used for: a search where it has an encoder and a decoder."""
    return SEARCH if "ES" in shape and "DS" in shape else FORWARD


def measure_latency(
    path: Path,
    conditions: Conditions,
    *,
    components: Sequence[str] | None = None,
    steps: int = 8,
    rounds: int = 10,
    watch: Watch = lambda numbers: numbers,
) -> Latency:
    """Time the model with fewer units in all layers of one component, for each component.

    Each pruned model runs in turns with the unpruned one. The difference of their times, divided by
    the number of layers, is what one layer saves; so sub-layers are timed with the caches and the
    memory of the whole model. Of a search, the encoder and the decoder are timed by themselves, as
    the rest of the search takes long and does not change. Savings are made to fall with the number
    of units (isotonic regression), because noise does not.

    Args:
        path: the model.
        conditions: the job, the batch and the machine.
        components: those to measure; None: all that take part in the job.
        steps: number of widths of feed-forward sub-layers, and of numbers of heads where a layer
            has more than ``MOST_SINGLE_HEADS``.
        rounds: number of times that each model is timed.
        watch: wraps the rounds of all models; for a progress bar.

    Raises:
        UsageError: a model that is pruned, that does not do the job or not on such a batch, or no
            GPU.
        DataError: a model that cannot be read.
    """
    prepare_processor(conditions)
    backend = timing_backend(path)
    model = open_model(path)
    if not model.plan.is_full:
        raise UsageError(f"{path}: is pruned already; measure the unpruned model")
    variants = _variants(model.shape, conditions.job, components, steps)
    parts = _parts(conditions.job, variants)
    groups = [
        (job, of_job[start : start + _TOGETHER])
        for job, of_job in parts.items()
        for start in range(0, len(of_job), _TOGETHER)
    ]
    ticks = iter(watch(range((len(groups) + 1) * rounds)))
    clock = clock_of(conditions)

    def turns(models: Sequence[ForwardPass]) -> list[list[float]]:
        return taking_turns(
            [model.run for model in models],
            rounds=rounds,
            warm_up=False,
            clock=clock,
            watch=lambda numbers: _counted(numbers, ticks),
        )

    unpruned = {
        job: ready(backend, model, replace(conditions, job=job))
        for job in dict.fromkeys((conditions.job, *parts))
    }
    whole, *others = turns(list(unpruned.values()))
    # Of each job, its time as a share of the whole job's.
    of_whole = {conditions.job: 1.0} | {
        job: statistics.median(part / total for part, total in zip(times, whole, strict=True))
        for job, times in zip(list(unpruned)[1:], others, strict=True)
    }
    shares: dict[str, dict[int, float]] = {}
    for job, group in groups:
        settings = replace(conditions, job=job)
        passes = [ready(backend, model.prune(variant.plan), settings) for variant in group]
        full, *times = turns([unpruned[job], *passes])
        if job == conditions.job:
            whole += full
        for variant, seconds_pruned in zip(group, times, strict=True):
            saved = statistics.median(
                1 - pruned / unpruned_seconds
                for pruned, unpruned_seconds in zip(seconds_pruned, full, strict=True)
            )
            share = of_whole[job] * saved / variant.layers
            shares.setdefault(variant.component, {})[variant.kept] = share
    for _ in ticks:  # the bar ends
        pass
    seconds = statistics.median(whole)
    return Latency(
        conditions=replace(conditions, inputs=unpruned[conditions.job].inputs),
        device=device_name(conditions.device),
        dtype=unpruned[conditions.job].dtype,
        model=str(path),
        fingerprint=model.fingerprint,
        library=unpruned[conditions.job].library,
        shape=dict(model.shape),
        sizes=asdict(model.sizes),
        seconds=seconds,
        saved={
            name: {kept: seconds * share for kept, share in falling(shares[name]).items()}
            | {model.shape[name][0]: 0.0}
            for name in model.shape
            if name in shares
        },
        rounds=rounds,
        versions=versions_of("torch"),
    )


def timing_backend(path: Path) -> InMemoryBackend:
    """The backend that times the model of a path.

    Raises:
        UsageError: the backend cannot time pruned models.
        DataError: no backend recognises the path, or it cannot be read.
    """
    backend = backend_of(path)
    if not isinstance(backend, InMemoryBackend):
        raise UsageError(f"{path}: the backend of such models cannot time them")
    return backend


def clock_of(conditions: Conditions) -> Callable[[], float]:
    """Processor time on one thread, as other load hardly changes it; else wall time."""
    is_alone = conditions.device == "cpu" and conditions.threads == 1
    return time.process_time if is_alone else time.perf_counter


def ready(backend: InMemoryBackend, model: PrunableModel, conditions: Conditions) -> ForwardPass:
    """A model with its batch, after one run.

    Raises:
        UsageError: the model does not do the job, or not on such a batch.
    """
    loaded = backend.forward_pass_of(model, conditions)
    warm_up(loaded, conditions, path=model.path)
    return loaded


def falling(values: Mapping[int, float]) -> dict[int, float]:
    """The values nearest to these, in squares, that do not rise with their key; none below 0.

    >>> falling({0: 5.0, 1: 2.0, 2: 4.0, 3: -1.0})
    {0: 5.0, 1: 3.0, 2: 3.0, 3: 0.0}
    """
    keys = sorted(values)
    fitted = isotonic_regression([values[key] for key in keys], increasing=False).x
    return dict(zip(keys, fitted.clip(min=0).tolist(), strict=True))


def _variants(
    shape: Shape, job: str, components: Sequence[str] | None, steps: int
) -> list[_Variant]:
    side = {ENCODER: "encoder", DECODER: "decoder"}.get(job)
    names = [name for name in shape if side in (None, side_of(name))]
    for name in components or ():
        if name not in names:
            raise UsageError(
                f"--components {name}: the job {job} has the components {', '.join(names)}"
            )
    variants = []
    for name in names if components is None else components:
        layers = shape[name]
        if len(set(layers)) > 1:
            raise UsageError(f"{name}: layers with unequal numbers of units cannot be measured")
        if name in LAYERS:
            if len(layers) > 1:
                variants.append(_dropping(name, depth=len(layers)))
            continue
        units, depth = layers[0], len(layers)
        single = name in HEADS and units <= MOST_SINGLE_HEADS
        numbers = range(units) if single else {units * step // steps for step in range(steps)}
        for kept in sorted(numbers):
            plan = PruningPlan(kept={name: [range(kept)] * depth}, units={name: layers})
            variants.append(_Variant(name, kept, plan, depth))
    return variants


def _parts(job: str, variants: Sequence[_Variant]) -> dict[str, list[_Variant]]:
    """The jobs that are timed for a job, with the components that each is timed for."""
    parts: dict[str, list[_Variant]] = {}
    for variant in variants:
        part = ENCODER if side_of(variant.component) == "encoder" else DECODER
        parts.setdefault(part if job == SEARCH else job, []).append(variant)
    return parts


def _dropping(component: str, *, depth: int) -> _Variant:
    """The model with the lowest layer alone; not every library runs one without layers."""
    plan = PruningPlan(
        kept={component: [(0,), *[()] * (depth - 1)]}, units={component: (1,) * depth}
    )
    return _Variant(component, 0, plan, depth - 1)


def _counted(numbers: range, ticks: Iterator[int]) -> Iterator[int]:
    """The rounds of one group, each of which moves the progress bar of all."""
    for number in numbers:
        next(ticks, None)
        yield number
