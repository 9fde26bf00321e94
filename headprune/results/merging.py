"""Records from several machines: copies of one record are one, contradictions are errors."""

from __future__ import annotations

from collections.abc import Iterable

from headprune.errors import DataError
from headprune.results.control_tests import Located

_Place = tuple[str, str, str, str, str, int]


def merged(results: Iterable[Located]) -> list[Located]:
    """The records without copies: of several in one place the first is taken.

    The place of a record is its study, task, kind, row, form and seed. Copies may differ in where
    and how fast they were made, and in the paths of their files.

    Raises:
        DataError: two records in one place that are not copies.
    """
    first: dict[_Place, Located] = {}
    for path, record in results:
        place = (record.study, record.task, record.kind, record.row, record.form, record.seed)
        other_path, other = first.setdefault(place, (path, record))
        differing = [name for name in _SAME if getattr(record, name) != getattr(other, name)]
        if differing:
            raise DataError(
                f"{path}: {record.task}: seed {record.seed} of {record.row!r} has two records, "
                f"this and {other_path}, with different {', '.join(differing)}; leave out "
                "one, or give the folders as two studies: --study NAME=FOLDER"
            )
    return list(first.values())


_SAME = (
    *("metrics", "metric_signatures", "plan", "signature", "requested_percent", "finetune"),
    *("model", "fingerprint", "examples", "settings"),
)
"""The attributes in which copies agree."""
