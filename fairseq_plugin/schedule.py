"""Schedules in shares of a training: `10%` or `2 epochs` where fairseq-train wants updates.

A flag whose name ends in `update` or `updates` takes, besides a number of updates, a percentage of
the training's length or a number of epochs. How many updates an epoch has follows from the data,
so such flags become numbers when the training starts:

    --max-epoch 10 --warmup-updates 20% --total-num-update 100%

This module imports fairseq inside functions only, since studies load it by itself.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from decimal import Decimal
from functools import cache
from typing import NamedTuple

from headprune.errors import DataError, UsageError

_UPDATES = re.compile(r"--[\w-]*updates?")
_SHARE = re.compile(r"(\d+(?:\.\d+)?) ?(%|epochs?)")


def has_shares(flags: Sequence[str]) -> bool:
    """Check if any flag has a share of the training as its value."""
    return bool(_shares(flags))


def placeholders(flags: Sequence[str]) -> list[str]:
    """The flags with a number in place of each share, so that fairseq's parsers accept them."""
    return _replaced(flags, lambda _: 1)


def length_name(flags: Sequence[str]) -> str:
    """The length of a training in signatures: ``30ep``, ``200up`` (updates) or ``unlimited``."""
    epochs, updates = flag_value(flags, "--max-epoch"), flag_value(flags, "--max-update")
    if epochs is not None:
        return f"{epochs}ep"
    if updates is None:
        return "unlimited"
    share = _SHARE.fullmatch(updates)
    return f"{share[1]}ep" if share else f"{updates}up"


def require_one_length(flags: Sequence[str]) -> None:
    """Check that a training ends, and that its length has one name in signatures.

    Raises:
        UsageError: both ``--max-epoch`` and ``--max-update``, or neither.
    """
    lengths = [flag_value(flags, name) for name in ("--max-epoch", "--max-update")]
    if None not in lengths:
        raise UsageError(
            "--max-epoch and --max-update are both given, and signatures name one length; "
            "remove one"
        )
    if all(length in (None, "0") for length in lengths):  # fairseq takes 0 for no limit
        raise UsageError("--max-epoch or --max-update is needed, or it would never end")


def resolve(flags: Sequence[str], *, updates_per_epoch: Callable[[], int]) -> list[str]:
    """Replace shares in flags by numbers of updates, rounded down, at least 1.

    Args:
        flags: flags for fairseq-train.
        updates_per_epoch: function that counts the updates of an epoch; called only if needed.

    Raises:
        UsageError: a percentage in a training without an end, or as the end itself.
    """
    per_epoch = cache(updates_per_epoch)

    def length() -> int:
        epochs, updates = flag_value(flags, "--max-epoch"), flag_value(flags, "--max-update")
        ends = [] if epochs is None else [int(epochs) * per_epoch()]
        if updates is not None:
            share = next((each for each in _shares(flags) if each.flag == "--max-update"), None)
            ends.append(int(updates) if share is None else number(share))
        if not ends:
            raise UsageError("a percentage of a training without --max-epoch or --max-update")
        return min(ends)

    def number(share: _Share) -> int:
        if share.unit != "%":
            return max(1, math.floor(share.amount * per_epoch()))
        if share.flag == "--max-update":
            raise UsageError(f"{share.flag}: give the length in updates or in epochs, not in %")
        return max(1, math.floor(share.amount * length() / 100))

    return _replaced(flags, number)


def count_updates(flags: Sequence[str]) -> int:
    """Count the updates of an epoch: the batches that fairseq-train makes of the data.

    Args:
        flags: flags for fairseq-train with the data folder; shares are allowed.

    Raises:
        DataError: `--update-freq` differs from epoch to epoch.
    """
    from fairseq import options, tasks, utils
    from fairseq.dataclass.utils import convert_namespace_to_omegaconf

    parser = options.get_training_parser()
    args = options.parse_args_and_arch(parser, input_args=placeholders(flags))
    cfg = convert_namespace_to_omegaconf(args)
    frequencies = set(cfg.optimization.update_freq)
    if len(frequencies) > 1:
        raise DataError("shares of a training need one --update-freq for all epochs")
    task = tasks.setup_task(cfg.task)
    task.load_dataset(cfg.dataset.train_subset)
    positions = [getattr(args, f"max_{side}_positions", 1024) for side in ("source", "target")]
    batches = task.get_batch_iterator(
        dataset=task.dataset(cfg.dataset.train_subset),
        max_tokens=cfg.dataset.max_tokens,
        max_sentences=cfg.dataset.batch_size,
        max_positions=utils.resolve_max_positions(
            task.max_positions(), tuple(positions), cfg.dataset.max_tokens
        ),
        ignore_invalid_inputs=True,
        required_batch_size_multiple=cfg.dataset.required_batch_size_multiple,
        seed=cfg.common.seed,
        num_shards=1 if cfg.common.cpu else cfg.distributed_training.distributed_world_size,
    )
    return math.ceil(len(batches) / int(frequencies.pop()))


class _Share(NamedTuple):
    """A share among flags: the place of its word, and `warmup-updates`, 10, `%`."""

    place: int
    flag: str
    amount: Decimal
    unit: str


def _shares(flags: Sequence[str]) -> list[_Share]:
    shares = []
    for place, word in enumerate(flags):
        name, _, value = word.rpartition("=")
        name = name or (flags[place - 1] if place else "")
        share = _SHARE.fullmatch(value) if _UPDATES.fullmatch(name) else None
        if share:
            shares.append(_Share(place, name, Decimal(share[1]), share[2]))
    return shares


def _replaced(flags: Sequence[str], number: Callable[[_Share], int]) -> list[str]:
    result = list(flags)
    for share in _shares(flags):
        name, equals, _ = flags[share.place].rpartition("=")
        result[share.place] = f"{name}{equals}{number(share)}"
    return result


def flag_value(flags: Sequence[str], name: str) -> str | None:
    """The value of a flag, the last one if it is given twice; None if it is missing."""
    value = None
    for place, word in enumerate(flags):
        if word == name and place + 1 < len(flags):
            value = flags[place + 1]
        elif word.startswith(f"{name}="):
            value = word.removeprefix(f"{name}=")
    return value
