"""Claims of Budhraja et al. 2020 on BERT (tables 4, 5 and 6).

They are on accuracy. Tasks with another metric are left out: a point of Matthews' correlation is
not a point of accuracy.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean
from typing import Any

from headprune.claims.claim import Claim, Measurement, Source
from headprune.claims.contrasts import Contrast, contrast, part
from headprune.claims.estimate import balanced
from headprune.claims.region import Region
from headprune.claims.rows import location, random_percent
from headprune.claims.runs import Runs
from headprune.results.paper import ACCURACY, GLUE_COLUMNS, SOURCE, table_rows

ONE_POINT = 1.0
"""Points of accuracy: the loss that the paper calls limited."""

_ALTERNATE = ("even", "odd")


def claims() -> list[Claim]:
    """The claims on percentages and on sets of layers."""
    return [
        Claim(
            name="half-of-bert-under-1-point",
            sentence="Half of BERT's heads can be pruned at random with less than 1 point of "
            "accuracy lost on average over the tasks.",
            source=_source("table 4", [_paper_half()]),
            region=Region(low=-ONE_POINT),
            effect="accuracy of the pruned models less the control's, mean over the tasks",
            rows="control and 50% on one task or more that reports accuracy, with the same seeds",
            measure=_half,
            unit="points",
            command="make study STUDY=table4 SETTING=glue.bert-base",
        ),
        Claim(
            name="no-preference-top-bottom",
            sentence="There is no preference between pruning the top and the bottom layers.",
            source=_source("table 5", _paper_cells("top {0}", "bottom {0}", (1, 3, 6, 8))),
            region=Region(low=-ONE_POINT, high=ONE_POINT),
            effect="accuracy with the top layers pruned less that with as many bottom layers "
            "pruned, mean over numbers of layers and tasks",
            rows="top k and bottom k for one k or more, with the same seeds",
            measure=_top_or_bottom,
            unit="points",
            command="make study STUDY=table5 SETTING=glue.bert-base",
        ),
        Claim(
            name="middle-layers-matter",
            sentence="The middle layers matter more than the top and bottom layers.",
            source=_source(
                "table 5",
                _paper_cells("top {0} + bottom {0}", "middle {1}", (1, 2, 3, 4)),
                count="pruning the middle is worse in",
            ),
            region=Region(low=0),
            effect="accuracy with top and bottom layers pruned less that with as many middle "
            "layers pruned, mean over numbers of layers and tasks",
            rows="top k + bottom k and middle 2k for one k or more, with the same seeds",
            measure=_ends_or_middle,
            unit="points",
            command="make study STUDY=table5 SETTING=glue.bert-base",
        ),
        Claim(
            name="alternate-layers-better",
            sentence="Pruning consecutive layers is worse than pruning alternate layers.",
            source=_source("table 6", _paper_alternate(), count="consecutive is worse in"),
            region=Region(low=0),
            effect="mean accuracy with even and with odd layers pruned less that with the top and "
            "with the bottom half pruned, mean over tasks",
            rows="even, odd, top half and bottom half, with the same seeds",
            measure=_alternate,
            unit="points",
            command="make study STUDY=table6 SETTING=glue.bert-base",
        ),
    ]


def _half(runs: Runs) -> Measurement | None:
    strata = {
        ("50% - control", task): contrast(
            [runs.row(task, random_percent(50), label="50%")], [runs.control(task)]
        )
        for task in runs.tasks(ACCURACY)
    }
    return _measurement("50% - control", strata)


def _top_or_bottom(runs: Runs) -> Measurement | None:
    return _cells(runs, "top {0}", "bottom {0}", count="top is better to prune in")


def _ends_or_middle(runs: Runs) -> Measurement | None:
    return _cells(
        runs, "top {0} + bottom {0}", "middle {1}", count="pruning the middle is worse in"
    )


def _cells(runs: Runs, first: str, second: str, *, count: str) -> Measurement | None:
    """Compare two sets of layers of the same size, for each size and task.

    Args:
        first: the layers of the first set, with {0} for k and {1} for 2k.
        second: those of the second set.
        count: words before the number of cells with a positive difference.
    """
    strata = {
        (f"{first} - {second}".format(k, 2 * k), task): contrast(
            [runs.row(task, location(first.format(k, 2 * k)))],
            [runs.row(task, location(second.format(k, 2 * k)))],
        )
        for task in runs.tasks(ACCURACY)
        for k in range(1, _layers(runs))
    }
    return _measurement(f"{first} - {second}".format("k", "2k"), strata, count=count)


def _alternate(runs: Runs) -> Measurement | None:
    half = _layers(runs) // 2
    strata = {}
    for task in runs.tasks(ACCURACY):
        alternate, consecutive = (
            [runs.row(task, location(layers)) for layers in names]
            for names in (_ALTERNATE, (f"top {half}", f"bottom {half}"))
        )
        strata["alternate - consecutive", task] = contrast(alternate, consecutive)
    return _measurement("alternate - consecutive", strata, count="consecutive is worse in")


def _layers(runs: Runs) -> int:
    """The number of encoder layers; 0 where it has no self-attention."""
    records = [record for row in runs.rows.values() for _, record in row.values()]
    return max((len(record.plan.heads.get("ES", ())) for record in records), default=0)


def _measurement(
    name: str, strata: Mapping[tuple[str, str], Contrast | None], *, count: str = ""
) -> Measurement | None:
    """The mean over cells, and each cell.

    Args:
        name: the rows that are compared.
        strata: the contrast of each cell; keys are the compared rows and the task.
        count: words before the number of cells with a positive difference.
    """
    cells = {key: each for key, each in strata.items() if each is not None}
    if not cells:
        return None
    _, used = balanced([each.differences for each in cells.values()])
    compared_cells = [list(cells)[number] for number in used] or list(cells)
    tasks = ", ".join(dict.fromkeys(task for _, task in compared_cells))
    if count:
        positive = sum(cells[key].mean > 0 for key in compared_cells)
        count = f"{count} {positive} of {len(compared_cells)} cells"
    return Measurement(
        parts=[part(f"{name} ({tasks})", list(cells.values()))],
        details=[part(f"{compared} ({task})", [each]) for (compared, task), each in cells.items()]
        if len(cells) > 1
        else (),
        counts=[count] if count else (),
    )


def _source(place: str, differences: Iterable[float], *, count: str = "") -> Source:
    values = list(differences)
    text = f"mean {fmean(values):+z.2f} points"
    if count:
        text += f", {count} {sum(value > 0 for value in values)} of {len(values)} cells"
    return Source(paper=SOURCE, place=place, value=text, numbers=[fmean(values)])


def _paper_half() -> float:
    rows = {row["percent"]: row for row in table_rows("table4")}
    return fmean(rows[50][task] - rows[0][task] for task in GLUE_COLUMNS.values())


def _paper_cells(first: str, second: str, sizes: Sequence[int]) -> list[float]:
    rows = {row["layers"]: row for row in table_rows("table5")}
    return [
        rows[first.format(k, 2 * k)][task] - rows[second.format(k, 2 * k)][task]
        for k in sizes
        for task in GLUE_COLUMNS.values()
    ]


def _paper_alternate() -> list[float]:
    rows: dict[str, dict[str, Any]] = {row["layers"]: row for row in table_rows("table6")}
    return [
        fmean(rows[name][task] for name in ("even 6", "odd 6"))
        - fmean(rows[name][task] for name in ("top 6", "bottom 6"))
        for task in GLUE_COLUMNS.values()
    ]
