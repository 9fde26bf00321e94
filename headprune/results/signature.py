"""Signatures: one line that identifies a reported figure, like sacreBLEU's."""

from __future__ import annotations

import re

from headprune.errors import UsageError
from headprune.plan import PruningPlan
from headprune.version import __version__


def signature(
    plan: PruningPlan,
    *,
    select: str,
    seed: int,
    form: str,
    finetune: str,
    data: str,
    recovery: str | None = None,
) -> str:
    """The signature of a figure: `plan:...|select:...|seed:...|form:...|finetune:...|data:...`.

    Args:
        plan: the units that are kept.
        select: the method that chose them (`random`, `location`, `none`, a score's name).
        seed: the seed of the choice and of the fine-tuning.
        form: `remove`, `mask` or `uniform`; `none` where nothing is pruned.
        finetune: the length of the fine-tuning after pruning: `30ep` (epochs), `200up` (updates),
            `none`, or `unknown`.
        data: the training and test data, such as `wmt14.en-ru`.
        recovery: what was done after pruning besides fine-tuning: `refit`, or
            `distill[weight=0.5,temperature=2,from=0123456789ab]` (see ``Distillation.name``); None
            without it.
    """
    fields = {
        "plan": plan.signature,
        "select": select,
        "seed": str(seed),
        "form": form,
        "finetune": finetune,
        **({} if recovery is None else {"recovery": recovery}),
        "data": data,
        "headprune": __version__,
    }
    return "|".join(f"{name}:{value}" for name, value in fields.items())


def require_field(value: str, *, name: str) -> None:
    """Raise a UsageError if a value cannot stand in a signature, for the option ``name``."""
    if not value or set("|: ") & set(value):
        raise UsageError(f"{name} {value!r}: give one word without : and |")


_LENGTH = re.compile(r"none|unknown|(scratch-)?\d+(\.\d+)?(ep|up)([+,].*)?")


def require_length(value: str, *, name: str) -> None:
    """Raise a UsageError if a value is no length of a fine-tuning, for the option ``name``.

    >>> require_length("30ep", name="--finetune")
    """
    require_field(value, name=name)
    if _LENGTH.fullmatch(value) is None:
        raise UsageError(
            f"{name} {value}: give 30ep (epochs), 200up (updates) or none; further words after a "
            "comma"
        )


def may_be_data(name: str) -> bool:
    """True if a signature can name data so: several words may, as in studies of older versions."""
    return bool(name) and not set("|:") & set(name)


def with_method(line: str, select: str) -> str:
    """A signature with another name of the method; all else is as it was measured.

    >>> with_method("plan:ES=4|select:given|seed:1|headprune:0.1.0", "random")
    'plan:ES=4|select:random|seed:1|headprune:0.1.0'
    """
    parts = line.split("|")
    return "|".join(f"select:{select}" if part.startswith("select:") else part for part in parts)


def fields_of(line: str) -> dict[str, str]:
    """The fields of a signature by name; a part without a colon, such as `BLEU`, is no field."""
    return dict(part.split(":", 1) for part in line.split("|") if ":" in part)


def common_part(signatures: list[str]) -> str:
    """One line for several figures: `*` for each field in which their signatures differ."""
    fields = [fields_of(line) for line in signatures]
    return "|".join(
        f"{name}:{value if all(f.get(name) == value for f in fields) else '*'}"
        for name, value in fields[0].items()
    )
