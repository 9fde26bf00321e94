"""The claim of Budhraja et al. 2020 that results vary little between draws of heads."""

from __future__ import annotations

from headprune.claims.claim import Claim, Measurement, Part, Source
from headprune.claims.estimate import balanced, relative_deviation
from headprune.claims.region import Region
from headprune.claims.rows import drawn_heads
from headprune.claims.runs import Runs
from headprune.results.paper import ACCURACY, SOURCE

IN_BLEU, IN_ACCURACY = 0.668, 0.778
"""The paper's standard deviations over three draws, in percent of the mean."""


def claims() -> list[Claim]:
    """The claims on BLEU and on accuracy."""
    return [
        _claim("BLEU", "bleu", IN_BLEU, study="table1 SETTING=wmt14.en-ru"),
        _claim("accuracy", ACCURACY, IN_ACCURACY, study="table4 SETTING=glue.bert-base"),
    ]


def _claim(name: str, metric: str, deviation: float, *, study: str) -> Claim:
    def measure(runs: Runs) -> Measurement | None:
        rows = [
            row for task in runs.tasks(metric) for row in runs.matching(task, drawn_heads).values()
        ]
        values = [{seed: record.value for seed, (_, record) in row.items()} for row in rows]
        estimate = relative_deviation(values)
        if estimate is None:
            return None
        number = len(balanced(values)[1])
        rows_in_words = f"{number} rows" if number > 1 else "one row"
        return Measurement(
            parts=[
                Part(
                    name=f"deviation within {rows_in_words}",
                    effect=estimate.effect,
                    estimate=estimate,
                )
            ]
        )

    return Claim(
        name=f"small-deviation-{name.lower()}",
        sentence=f"Over draws of heads, {name} has a standard deviation of {deviation}% of the "
        "mean or less.",
        source=Source(paper=SOURCE, place="setup", value=f"{deviation}%", numbers=[deviation]),
        region=Region(high=deviation),
        unit="%",
        effect="standard deviation over seeds in percent of the mean, pooled over rows",
        rows="percentages of heads drawn at random, two seeds or more",
        command=f"make study STUDY={study}",
        measure=measure,
    )
