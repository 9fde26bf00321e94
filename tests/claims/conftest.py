"""Made-up records: values only, or with outputs that can be tested."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from headprune import HeadPlan
from headprune.results.control_tests import Located
from headprune.results.record import Record
from headprune.results.signature import signature
from headprune.select import at_random, by_location

TRANSFORMER = dict.fromkeys(("ES", "ED", "DS"), (8,) * 6)

Make = Callable[..., list[Located]]


@pytest.fixture
def translations(tmp_path: Path) -> Make:
    """Records of one row of a translation study, one for each value."""

    def make(
        *values: float,
        keep: Mapping[str, int | str] | None = None,
        percent: float | None = None,
        kind: str = "pruned",
        method: str = "random",
        components: Sequence[str] | None = None,
        study: str = "made-up",
        plans: Sequence[HeadPlan] | None = None,
        texts: Callable[[int], tuple[list[str], list[str]]] | None = None,
    ) -> list[Located]:
        results = []
        for seed, value in enumerate(values, start=1):
            plan = HeadPlan.full(TRANSFORMER) if plans is None else plans[seed - 1]
            if keep is not None or percent is not None:
                plan = at_random(TRANSFORMER, seed=seed, keep=keep, percent=percent)
            if components is not None:
                part = HeadPlan.full(TRANSFORMER).part(components)
                assert part is not None
                drawn = at_random(part.units, seed=seed, percent=percent)
                plan = drawn.completed(TRANSFORMER)
            label = f"{percent:g}%" if percent is not None else str(keep or kind)
            label = " ".join([label, *(components or ()), *([method] * (method != "random"))])
            folder = tmp_path / study / kind / label / f"seed{seed}"
            folder.mkdir(parents=True)
            files = {}
            if texts is not None:
                for name, lines in zip(("hypotheses", "reference"), texts(seed), strict=True):
                    (folder / f"{name}.txt").write_text("".join(f"{line}\n" for line in lines))
                    files[name] = f"{name}.txt"
            results.append(
                _saved(
                    folder,
                    study=study,
                    kind=kind,
                    row=label,
                    task="translation",
                    metrics={"bleu": value},
                    plan=plan,
                    seed=seed,
                    requested_percent=None if components else percent,
                    files=files,
                    method=method,
                )
            )
        return results

    return make


@pytest.fixture
def classifications(tmp_path: Path) -> Make:
    """Records of one row of a study on classification, one for each value."""

    def make(
        *values: float,
        prune: str | None = None,
        percent: float | None = None,
        kind: str = "pruned",
        method: str = "random",
        task: str = "sst2",
        metric: str = "accuracy",
        form: str = "remove",
        layers: int = 12,
        training: Mapping[str, Any] | None = None,
    ) -> list[Located]:
        shape = {"ES": (12,) * layers}
        results = []
        for seed, value in enumerate(values, start=1):
            plan = HeadPlan.full(shape)
            if prune is not None:
                plan = by_location(shape, prune=prune)
            elif percent is not None:
                plan = at_random(shape, seed=seed, percent=percent)
            label = prune or (kind if percent is None else f"{percent:g}%")
            label += f" {method}" * (method != "random")
            results.append(
                _saved(
                    tmp_path / task / kind / label / form / f"seed{seed}",
                    study="bert",
                    kind=kind,
                    row=label,
                    task=task,
                    metrics={metric: value},
                    plan=plan,
                    seed=seed,
                    requested_percent=percent,
                    form=form,
                    method=method,
                    training=dict(training or {}),
                )
            )
        return results

    return make


def _saved(folder: Path, *, plan: HeadPlan, seed: int, method: str, **fields: Any) -> Located:
    select = "none" if plan.is_full else method
    form = "none" if plan.is_full else fields.pop("form", "remove")
    fields.pop("form", None)
    record = Record(
        plan=plan,
        seed=seed,
        form=form,
        signature=signature(
            plan, select=select, seed=seed, form=form, finetune="1ep", data="made-up"
        ),
        **fields,
    )
    folder.mkdir(parents=True, exist_ok=True)
    record.save(folder / "result.json")
    return folder / "result.json", record
