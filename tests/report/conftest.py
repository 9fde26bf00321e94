"""Small studies whose outcome is made up, but whose texts are really scored."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from headprune.results.record import Record
from headprune.results.translation import score
from headprune.select import at_random

SHAPE = {"ES": (4, 4), "ED": (4, 4), "DS": (4, 4)}
REFERENCES = [f"House number {n} stands in street {n * 7 % 50} of the town." for n in range(30)]

Make = Callable[..., tuple[Path, Record]]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """Score a model that gets the words of `wrong` sentences wrong; returns file and result."""
    reference = tmp_path / "raw" / "test.de"
    reference.parent.mkdir()
    reference.write_text("".join(f"{line}\n" for line in REFERENCES))

    def make(
        kind: str = "pruned",
        *,
        row: str = "50%",
        percent: float = 50,
        seed: int = 1,
        wrong: int = 3,
        keep: dict[str, str] | None = None,
        study: str = "made-up",
        form: str = "remove",
    ) -> tuple[Path, Record]:
        folder = tmp_path / kind / (row if form == "remove" else f"{row} {form}") / f"seed{seed}"
        folder.mkdir(parents=True)
        plan = at_random(SHAPE, seed=seed, percent=None if keep else percent, keep=keep)
        plan.save(folder / "plan.json")
        lines = [
            f"D-{n}\t-0.5\t{line.replace('town', 'city') if n < wrong else line}\n"
            for n, line in enumerate(REFERENCES)
        ]
        (folder / "generation.txt").write_text("".join(lines))
        (folder / "model.json").write_text(f'{{"parameters": {plan.total_kept * 1000}}}')
        unpruned = kind in ("baseline", "control")
        result = score(
            generation=folder / "generation.txt",
            reference=reference,
            output=folder / "result.json",
            plan=folder / "plan.json",
            study=study,
            kind=kind,
            row=row,
            seed=seed,
            select="none" if unpruned else "random",
            form="none" if unpruned else form,
            finetune="none" if kind in ("baseline", "before-finetune") else "30ep",
            data="wmt14.en-ru",
            requested_percent=None if keep else percent,
            training=None if kind == "before-finetune" else folder / "model.json",
        )
        return folder / "result.json", result

    return make
