"""Flags of fairseq-train for several processes, one for each GPU."""

from __future__ import annotations

from collections.abc import Sequence

from headprune.errors import UsageError

_STEPS = "--update-freq"


def with_processes(flags: Sequence[str], processes: int) -> list[str]:
    """The flags for several processes, which together make the same batches as one.

    Each process does a part of the steps whose gradients `--update-freq` adds up.

    Raises:
        UsageError: the steps cannot be shared out evenly.
    """
    result = list(flags)
    if processes == 1:
        return result
    # argparse takes the last one; a list has a number for each epoch.
    place = max((i for i, flag in enumerate(result) if flag.split("=")[0] == _STEPS), default=None)
    prefix, given = "", "1"
    if place is not None and result[place] != _STEPS:
        prefix, given = f"{_STEPS}=", result[place].split("=", 1)[1]
    elif place is not None and place + 1 < len(result):
        place += 1
        given = result[place]
    steps = [int(part) if part.isdecimal() else 0 for part in given.split(",")]
    if place is None or any(number < processes or number % processes for number in steps):
        raise UsageError(
            f"{processes} GPUs: {_STEPS} is {given}, no multiple of it, so the batches would "
            f"be larger than on one GPU; give smaller --max-tokens and a larger {_STEPS}"
        )
    result[place] = prefix + ",".join(str(number // processes) for number in steps)
    return result
