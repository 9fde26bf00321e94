"""Bad input to ``headprune plan``."""

from __future__ import annotations

from pathlib import Path

from tests.bad_inputs.table import BadInput


def _no_plan(folder: Path) -> None:
    (folder / "plan.json").write_text("[]", encoding="utf-8")


ROWS = [
    BadInput(
        label="plan: more heads than the model has",
        command=("headprune", "plan", "--keep", "ES=888944"),
        message=r"^error: ES: layer 3 asks for 9 heads, the model has 8$",
        status=2,
    ),
    BadInput(
        label="plan: no way of choosing",
        command=("headprune", "plan", "-o", "{folder}/plan.json"),
        message=r"^error: give one of --percent, --budget, --speedup, --below, --keep and --prune$",
        status=2,
    ),
    BadInput(
        label="show: a plan file without a plan",
        command=("headprune", "show", "{folder}/plan.json"),
        message=r"^error: .*plan\.json: ",
        prepare=_no_plan,
        status=1,
    ),
]
