"""Records that can be compared: of one study, start model, shape, metric and data."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from headprune.errors import DataError
from headprune.results.control_tests import Located
from headprune.results.record import Record
from headprune.results.signature import fields_of

_OF_ONE_START = (
    "; compare models that began with one: a control that is fine-tuned from it without a plan, or "
    "the records of `headprune measure`, with and without --plan"
)


def require_comparable(results: Sequence[Located]) -> None:
    """Check that records can stand in one table.

    Raises:
        DataError: they are of several studies, start models or shapes, or those of a task differ
            in their metric, in its signature, in their data or in the numbers of examples.
    """
    first_path, first = results[0]
    shape = dict(first.plan.units)
    for path, record in results:
        _require_equal("study", first.study, record.study, paths=(first_path, path))
        _require_equal(
            "model", first.model, record.model, paths=(first_path, path), advice=_OF_ONE_START
        )
        for name, units in record.plan.units.items():
            if units != shape.setdefault(name, units):
                raise DataError(f"{path}: of a model of another shape than {first_path}")
    require_one_measure(results)


def require_one_measure(results: Sequence[Located]) -> None:
    """Check that all records of a task have one metric, of one signature, on the same data.

    Raises:
        DataError: two records differ in their metric, its signature, the name of the data that they
            were measured on, or the number of examples.
    """
    of_task: dict[str, Located] = {}
    of_split: dict[tuple[str, str], tuple[Path, int]] = {}
    for path, record in results:
        task = record.task
        task_path, same = of_task.setdefault(task, (path, record))
        paths = (task_path, path)
        _require_equal(f"the metric of {task}", same.metric, record.metric, paths=paths)
        _require_equal(
            f"the signature of {task}'s metrics",
            same.metric_signatures,
            record.metric_signatures,
            paths=paths,
        )
        _require_equal(f"the data of {task}", _measured_on(same), _measured_on(record), paths=paths)
        # A model that is measured as it is has no training set.
        for split, number in record.examples.items():
            split_path, known = of_split.setdefault((task, split), (path, number))
            what = f"number of {split} examples of {task}"
            _require_equal(what, known, number, paths=(split_path, path))


def _measured_on(record: Record) -> str:
    """The name of the data that a record's figures are of, without the part that was trained on.

    Such as `dev.csv@0123456789` of `train.csv@abcdef0123[4000]+dev.csv@0123456789,64tok`.
    """
    name = fields_of(record.signature).get("data", "")
    return name.rpartition("+")[2].partition(",")[0].partition("[")[0]


def _require_equal(
    what: str, expected: object, value: object, *, paths: tuple[Path, Path], advice: str = ""
) -> None:
    """Raise a DataError unless two values are equal; ``paths`` are their files."""
    if value != expected:
        raise DataError(
            f"{paths[1]}: {what} is {value!r}, but {expected!r} in {paths[0]}: not for one "
            f"table{advice}"
        )
