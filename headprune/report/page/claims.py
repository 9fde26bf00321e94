"""The claims of papers, as far as the records of a page decide on them."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from headprune.claims.recoveries import after_recovery
from headprune.compare.records import RECORDS, Outcome, Outcomes
from headprune.errors import DataError
from headprune.recovery.kinds import Recovery
from headprune.report.document import Block, Notes, Section, Table
from headprune.report.page.material import Material
from headprune.results.control_tests import Located
from headprune.results.record import Record

_COLUMNS = (
    *("claim", "study", "outcome", "effect here", "95% interval", "n", "paper"),
    *("smallest detectable", "p (Holm)", "source"),
)
"""The columns in the order of the page: outcome and effect are seen first on a narrow screen."""
_NOT_RUN = "not run here"

_PREFERRED = (Recovery.FINETUNE, Recovery.DISTILL, Recovery.DISTILL_SEQUENCES)
"""The recoveries that claims are about, where a comparison has several: the first of these."""


def claims(material: Material, *, test: bool) -> list[Block]:
    """The table of claims, what it is based on, and the claims that these records lack rows for.

    There is none where the records have rows for no claim.

    Args:
        material: studies and comparisons with their records.
        test: test the compared models on the examples of their test set too.
    """
    results = _results(material)
    if not results:
        return []
    try:
        import scipy.stats  # noqa: F401
    except ImportError:
        return [Notes(["Claims are left out: they need scipy (`pip install scipy`)."])]
    from headprune.report.claims import claims_document

    try:
        changes = [change for each in material.changes for change in each.changes]
        table, *basis = claims_document(
            results, changes=changes, scores=material.scores, test=test
        ).blocks
    except DataError as problem:
        # The tables need no outputs of models without tests; claims read them to leave out models
        # that have learnt nothing.
        print(f"warning: claims are left out: {problem}", file=sys.stderr)
        return [Notes([f"Claims are left out: {problem}"])]
    assert isinstance(table, Table)
    decided, missing = _by_outcome(table)
    if not decided.rows:
        return []
    inner: list[Block] = [
        replace(_ordered(decided), caption="Claims of papers, on these records:"),
        Section(title="How these claims are decided", blocks=basis, folded=True),
    ]
    if missing.rows:
        names = ("claim", "source", "paper")
        inner.append(
            Section(
                title=f"{len(missing.rows)} claims that these records have no rows for",
                blocks=[_selected(missing, names)],
                folded=True,
            )
        )
    return [Section(title="Claims", blocks=inner)]


def _results(material: Material) -> list[Located]:
    """The records of studies and of comparisons; each comparison is a study of its title."""
    results = [located for study in material.studies for located in study.results]
    titles: Counter[str] = Counter()
    for comparison in material.comparisons:
        titles[comparison.title] += 1
        number = titles[comparison.title]
        name = comparison.title if number == 1 else f"{comparison.title} ({number})"
        located = [
            _located(outcome, comparison.folder / RECORDS, study=name)
            for outcome in Outcomes.of(comparison.report.comparison).distinct
        ]
        trained = [each for each in comparison.report.comparison.recoveries if each.trains]
        if len(trained) > 1:
            located = after_recovery(located, next(each for each in _PREFERRED if each in trained))
        results += located
    return results


def _located(outcome: Outcome, records: Path, *, study: str) -> Located:
    """A record of a comparison, with the outputs of its model where the records are kept."""
    path = records / outcome.file
    files = Record.load(path).files if path.is_file() else {}
    return path, replace(outcome.record, study=study, files=files)


def _by_outcome(table: Table) -> tuple[Table, Table]:
    """The rows of claims that the records say something about, and all other rows."""
    place = [column.name for column in table.columns].index("outcome")
    run = [row for row in table.rows if row[place] != _NOT_RUN]
    missing = [row for row in table.rows if row[place] == _NOT_RUN]
    return replace(table, rows=run), replace(table, rows=missing)


def _ordered(table: Table) -> Table:
    column_names = [column.name for column in table.columns]
    others = [name for name in column_names if name not in _COLUMNS]
    return _selected(table, [*(name for name in _COLUMNS if name in column_names), *others])


def _selected(table: Table, names: Sequence[str]) -> Table:
    places = [[column.name for column in table.columns].index(name) for name in names]
    return replace(
        table,
        columns=[table.columns[place] for place in places],
        rows=[[row[place] for place in places] for row in table.rows],
    ).without_empty_columns()
