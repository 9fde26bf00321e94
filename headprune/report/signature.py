"""The signature: one line that says what a reported figure is of, in sacreBLEU's manner."""

from __future__ import annotations

from headprune.plan import HeadPlan
from headprune.version import __version__


def signature(
    plan: HeadPlan, *, select: str, seed: int, form: str, finetune: str, data: str
) -> str:
    """What a figure is of, as `plan:...|select:...|seed:...|form:...|finetune:...|data:...`.

    Args:
        plan: the heads that are kept.
        select: how they were chosen (`random`, `location`, `none`, a score's name).
        seed: of the choice and of the fine-tuning.
        form: `remove`, `mask` or `uniform`; `none` where nothing is pruned.
        finetune: how long the pruned model was fine-tuned: `30ep` (epochs), `200up` (updates), or
            `none`.
        data: the training and test data, such as `wmt14.en-ru`.
    """
    fields = {
        "plan": plan.signature,
        "select": select,
        "seed": str(seed),
        "form": form,
        "finetune": finetune,
        "data": data,
        "headprune": __version__,
    }
    return "|".join(f"{name}:{value}" for name, value in fields.items())


def common_part(signatures: list[str]) -> str:
    """One line for several figures: `*` for each field in which their signatures differ."""
    fields = [dict(field.split(":", 1) for field in line.split("|")) for line in signatures]
    return "|".join(
        f"{name}:{value if all(f.get(name) == value for f in fields) else '*'}"
        for name, value in fields[0].items()
    )
