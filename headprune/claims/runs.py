"""Records of one study and form, found by what was pruned."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from headprune.errors import DataError
from headprune.methods.adversarial import IMPORTANT_FIRST
from headprune.results.changes import Changes
from headprune.results.comparable import require_comparable
from headprune.results.constant import is_constant_model
from headprune.results.control_tests import Located
from headprune.results.labels import method_of
from headprune.results.lengths import require_one_length
from headprune.results.merging import merged
from headprune.results.metrics import is_low_good
from headprune.results.record import Record
from headprune.results.signature import fields_of
from headprune.scores.head_scores import HeadScores

Matches = Callable[[Record], bool]
Row = Mapping[int, Located]
"""The records of a row by seed."""


@dataclass(frozen=True, kw_only=True)
class Runs:
    """The records of one study whose pruned models have one form, and of its unpruned models.

    Attributes:
        name: the study, or the model where the records belong to none.
        form: the form of the pruned models.
        rows: the records of each row by seed; keys are kind, task and label.
        left_out: rows with a model that gives one output for every example. Its figure says
            nothing about pruning, and the other seeds alone would be a selection.
        changes: changes of heads in fine-tuning.
        scores: scores of the heads of the unpruned model.
    """

    name: str
    form: str
    rows: Mapping[tuple[str, str, str], Row]
    left_out: Sequence[tuple[str, str, str]] = field(default=())
    changes: Sequence[Changes] = field(default=())
    scores: Sequence[HeadScores] = field(default=())

    @property
    def fingerprints(self) -> set[str]:
        """The fingerprints of the unpruned models."""
        return {
            record.fingerprint
            for (kind, _, _), row in self.rows.items()
            for _, record in row.values()
            if kind == "baseline" and record.fingerprint
        }

    @property
    def title(self) -> str:
        """The name of the study and the form."""
        return self.name if self.form == "none" else f"{self.name} ({self.form})"

    def tasks(self, metric: str | None = None) -> list[str]:
        """The tasks in the order of the records.

        Args:
            metric: the metric that they report; None for any whose high values are good. All claims
                are on such metrics: they take a difference above 0 for a gain, and shares of the
                unpruned model's value.
        """
        names: dict[str, None] = {}
        for (_, task, _), row in self.rows.items():
            reported = next(iter(row.values()))[1].metric
            if reported == metric or (metric is None and not is_low_good(reported)):
                names.setdefault(task)
        return list(names)

    def control(self, task: str) -> Row:
        """The unpruned model, fine-tuned as the others; empty if it was not measured."""
        return self.row(task, lambda record: True, kind="control")

    def row(self, task: str, matches: Matches, *, kind: str = "pruned", label: str = "") -> Row:
        """The row whose records all match; empty without one.

        Args:
            task: the task.
            matches: the condition on records.
            kind: the kind of the records.
            label: the row that is preferred where several match.
        """
        matching = self.matching(task, matches, kind=kind)
        if not matching:
            return {}
        return matching.get(label) or next(iter(matching.values()))

    def matching(self, task: str, matches: Matches, *, kind: str = "pruned") -> dict[str, Row]:
        """All rows whose records all match, by label."""
        return {
            label: row
            for (row_kind, row_task, label), row in self.rows.items()
            if (row_kind, row_task) == (kind, task) and all(matches(r) for _, r in row.values())
        }


def grouped(results: Sequence[Located]) -> list[Runs]:
    """Group records by study and form; unpruned models belong to every form of their study.

    Copies of a record count once.

    Raises:
        DataError: different records of one seed of a row, fine-tunings of several lengths, records
            that cannot stand in one table (``require_comparable``), or outputs that cannot be read.
    """
    groups: dict[str, list[Located]] = {}
    for path, record in results:
        if record.kind == "refitted":
            # No claim is about re-fitted models, and a row may have been re-fitted in two ways.
            continue
        groups.setdefault(record.study or record.model or "", []).append((path, record))
    runs = []
    for name, of_study in groups.items():
        of_study = merged(of_study)
        require_comparable(of_study)
        require_one_length(of_study)
        by_form: dict[str, list[Located]] = {}
        for path, record in of_study:
            by_form.setdefault(record.form, []).append((path, record))
        unpruned = by_form.pop("none", [])
        for form, pruned in (by_form or {"none": []}).items():
            rows = _rows([*unpruned, *pruned])
            left_out = [
                key for key, row in rows.items() if any(map(is_constant_model, row.values()))
            ]
            runs.append(
                Runs(
                    name=name,
                    form=form,
                    rows={key: row for key, row in rows.items() if key not in left_out},
                    left_out=left_out,
                )
            )
    return runs


def _rows(results: Sequence[Located]) -> dict[tuple[str, str, str], Row]:
    rows: dict[tuple[str, str, str], dict[int, Located]] = {}
    for path, record in results:
        row = rows.setdefault((record.kind, record.task, record.row), {})
        if record.seed in row:
            raise DataError(
                f"{path}: {record.task}: seed {record.seed} of {record.row!r} is also in "
                f"{row[record.seed][0]}; give the records of one run only"
            )
        row[record.seed] = (path, record)
    return {key: dict(sorted(row.items())) for key, row in rows.items()}


def method_in(record: Record) -> str:
    """The method that chose the units, as the signature of the figures names it.

    Comparisons call ``adversarial`` what studies call ``gradient-important-first``.
    """
    method = fields_of(record.signature).get("select") or method_of(record.plan, default="")
    return f"gradient{IMPORTANT_FIRST}" if method == "adversarial" else method
