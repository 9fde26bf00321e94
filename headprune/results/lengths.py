"""Lengths of fine-tunings: models are compared after trainings of one length."""

from __future__ import annotations

from collections.abc import Sequence

from headprune.errors import DataError
from headprune.results.control_tests import Located
from headprune.results.record import Record

NONE = "none"


def length_of(record: Record) -> str:
    """The length of a record's fine-tuning, such as ``30ep``, without its variants."""
    return record.finetune.partition(",")[0]


def has_more_trainings(record: Record, control: Record) -> bool:
    """True if a model was fine-tuned more often than the control, each time for as long.

    Methods that train a model while they choose its units have such records.
    """
    trainings = length_of(record).split("+")
    return len(trainings) > 1 and set(trainings) == {length_of(control)}


def require_one_length(results: Sequence[Located]) -> None:
    """Check that a row has one length of fine-tuning, and pruned models that of their control.

    Without a control, all pruned models of a task have one length. Those without a fine-tuning of
    known length are compared with any control.

    Args:
        results: the records of one study.

    Raises:
        DataError: the lengths differ.
    """
    of_row: dict[tuple[str, str, str, str], Located] = {}
    controls: dict[str, Located] = {}
    for path, record in results:
        key = (record.task, record.kind, record.row, record.form)
        other_path, other = of_row.setdefault(key, (path, record))
        if length_of(record) != length_of(other):
            raise DataError(
                f"{path}: {record.task}: seed {record.seed} of {record.row!r} was fine-tuned for "
                f"{length_of(record)}, but seed {other.seed} for {length_of(other)} in "
                f"{other_path}; give records of one length"
            )
        if record.kind == "control":
            controls.setdefault(record.task, (path, record))
    pruned = [
        (path, record)
        for path, record in of_row.values()
        if record.kind == "pruned" and length_of(record) != NONE
    ]
    # A method that trains while it chooses gives a longer one, such as 1ep+1ep.
    for path, record in sorted(pruned, key=lambda located: "+" in length_of(located[1])):
        other_path, other = controls.setdefault(record.task, (path, record))
        lengths = (length_of(record), length_of(other))
        if lengths[0] == lengths[1] or has_more_trainings(record, other):
            continue
        name = "the control" if other.kind == "control" else repr(other.row)
        raise DataError(
            f"{path}: {record.task}: {record.row!r} was fine-tuned for {lengths[0]}, but {name} "
            f"for {lengths[1]} in {other_path}; give records of one length"
        )
