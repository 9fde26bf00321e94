"""Made-up results of classifiers, with predictions to test."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from headprune import HeadPlan
from headprune.results.record import Record
from headprune.results.signature import signature
from headprune.select import at_random, by_location

EXAMPLES = 200

MakeGlue = Callable[..., tuple[Path, Record]]


def maker(folder: Path, *, layers: int = 4) -> MakeGlue:
    """Makes results in `folder`, of a model that has `layers` layers of four heads."""
    shape = {"ES": (4,) * layers}

    def make(
        kind: str = "pruned",
        *,
        row: str = "50%",
        percent: float | None = 50,
        prune: str | None = None,
        task: str = "sst2",
        form: str = "remove",
        seed: int = 1,
        wrong: int = 30,
        study: str = "made-up",
        **changes: Any,
    ) -> tuple[Path, Record]:
        if kind == "control":
            row, percent, form = "control", 0, "none"
        if prune is not None:
            plan, percent = by_location(shape, prune=prune), None
        else:
            plan = at_random(shape, seed=seed, percent=percent)
        path = folder / task / kind / row / form / f"seed{seed}" / "result.json"
        path.parent.mkdir(parents=True)
        write_predictions(path.with_name("predictions.tsv"), wrong=wrong)
        tuned = kind != "before-finetune"
        value = 100 * (EXAMPLES - wrong) / EXAMPLES
        metric = "matthews" if task == "cola" else "accuracy"
        result = Record(
            **{
                **dict(
                    study=study,
                    kind=kind,
                    row=row,
                    requested_percent=percent,
                    seed=seed,
                    plan=plan,
                    signature=_signature(plan, kind=kind, form=form, seed=seed, task=task),
                    finetune="3ep" if tuned else "none",
                    task=task,
                    form=form,
                    model="made-up-bert",
                    metrics={metric: value},
                    examples={**({"train": 8000} if tuned else {}), "dev": EXAMPLES},
                    files={"predictions": "predictions.tsv"},
                    training={
                        "parameters": 20_000_000 + 1000 * plan.total_kept,
                        "settings": {
                            "epochs": 3.0 if tuned else 0.0,
                            "batch_size": 32,
                            "learning_rate": 5e-5,
                            "max_length": 128,
                        },
                    },
                ),
                **changes,
            }
        )
        result.save(path)
        return path, result

    return make


def write_predictions(path: Path, *, wrong: int, examples: int = EXAMPLES) -> None:
    lines = [f"{n}\t{int(n < wrong)}\t0\n" for n in range(examples)]
    path.write_text("index\tprediction\tlabel\n" + "".join(lines))


def _signature(plan: HeadPlan, *, kind: str, form: str, seed: int, task: str) -> str:
    return signature(
        plan,
        select="none" if kind == "control" else "random",
        seed=seed,
        form=form,
        finetune="none" if kind == "before-finetune" else "3ep",
        data=f"glue.{task}",
    )
