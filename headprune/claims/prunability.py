"""Claims of Budhraja et al. 2020 on translation: how many heads can be pruned (table 1)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from headprune.claims.claim import Claim, Measurement, Source
from headprune.claims.contrasts import contrast, part
from headprune.claims.region import Region
from headprune.claims.rows import one_head_a_layer, random_percent
from headprune.claims.runs import Matches, Runs
from headprune.results.paper import SOURCE, table_rows
from headprune.results.tasks import TRANSLATION

NO_LOSS = 0.15
"""BLEU: the largest loss that the paper still counts as none, that of 60% of the heads."""


def claims() -> list[Claim]:
    """The claims on percentages of all heads, drawn at random."""
    return [
        _claim(
            name="25-percent-costs-nothing",
            sentence="25% of the heads can be pruned at random at no cost in BLEU.",
            source=_table1(25),
            region=Region(low=-NO_LOSS),
            rows="control and 25%, with the same seeds",
            measure=_against_control(random_percent(25), "25%"),
        ),
        _claim(
            name="60-percent-costs-0.15",
            sentence="60% of the heads can be pruned at random with at most 0.15 BLEU lost.",
            source=_table1(60),
            region=Region(low=-NO_LOSS),
            rows="control and 60%, with the same seeds",
            measure=_against_control(random_percent(60), "60%"),
        ),
        _claim(
            name="one-head-a-layer",
            sentence="With one head left in each layer, BLEU is 1.0 to 1.6 lower.",
            source=_table1(87),
            region=Region(low=-1.65, high=-0.95),  # to one decimal
            rows="control and one head in every layer, with the same seeds",
            measure=_against_control(one_head_a_layer, "one head a layer"),
        ),
    ]


_claim = partial(
    Claim,
    unit="BLEU",
    effect="BLEU of the pruned models less the control's",
    command="make study STUDY=table1 SETTING=wmt14.en-ru",
)


def _against_control(matches: Matches, name: str) -> Callable[[Runs], Measurement | None]:
    """The difference of a row to the control."""

    def measure(runs: Runs) -> Measurement | None:
        row = runs.row(TRANSLATION, matches, label=name)
        difference = contrast([row], [runs.control(TRANSLATION)])
        if difference is None:
            return None
        return Measurement(parts=[part(f"{name} - control", [difference])])

    return measure


def _table1(percent: int) -> Source:
    rows = {row["percent"]: row for row in table_rows("table1")}
    losses = {pair: round(rows[percent][pair] - rows[0][pair], 2) for pair in ("en-ru", "en-de")}
    return Source(
        paper=SOURCE,
        place="table 1",
        value=", ".join(f"{pair} {loss:+z.2f}" for pair, loss in losses.items()),
        numbers=list(losses.values()),
    )
