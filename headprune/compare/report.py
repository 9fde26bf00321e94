"""The report of a comparison: its records, tests and correlations as a document."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from headprune.budget import SPEED
from headprune.compare.comparison import Comparison
from headprune.compare.correlations import Correlation, correlation, matrix
from headprune.compare.figures import draw_correlations, draw_curves
from headprune.compare.findings import findings
from headprune.compare.json_values import values_of
from headprune.compare.notes import notes_of
from headprune.compare.records import Outcomes
from headprune.compare.speed_figure import draw_speed
from headprune.compare.tables import Tables
from headprune.report.document import Block, Column, Document, Figure, Notes, Signatures, Table
from headprune.report.render import markdown, save
from headprune.results.environment import Environments
from headprune.results.signature import common_part

_SHEET = ("score", "percent", "pruned", "seed", "before", "after", "parameters", "flops")


@dataclass(frozen=True, kw_only=True)
class Report:
    """A comparison and the statistics derived from it.

    Attributes:
        correlations: the correlation of each score with the drop that ablation measures; empty
            without ablation.
        among: the names of the scores and the correlations between them.
        findings: sentences on the outcome.
    """

    comparison: Comparison
    correlations: Mapping[str, Correlation]
    among: tuple[list[str], list[list[float]]]
    findings: list[str]

    @classmethod
    def of(cls, comparison: Comparison) -> Report:
        """Compute correlations and tests, and write the sentences on them."""
        components = comparison.components
        scores = {
            name: each if components is None else each.of_components(components)
            for name, each in comparison.scores.items()
        }
        ablation = scores.get("ablation")
        correlations = {
            name: correlation(each, ablation)
            for name, each in scores.items()
            if ablation is not None and name != "ablation"
        }
        return cls(
            comparison=comparison,
            correlations=correlations,
            among=(list(scores), matrix(scores)),
            findings=findings(
                Outcomes.of(comparison),
                correlations,
                metric=comparison.metric,
                measure=comparison.measure,
            ),
        )

    def save(self, folder: Path, *, title: str) -> None:
        """Write compare.md, .csv and .json, and the figures as PNG and SVG."""
        save(self.document(title=title), folder, name="compare")

    def markdown(self, *, title: str) -> str:
        """The document as Markdown."""
        return markdown.render(self.document(title=title))

    def document(self, *, title: str) -> Document:
        """Sentences, tables, notes and figures."""
        comparison, outcomes = self.comparison, self._outcomes
        tables = Tables(
            comparison=comparison, outcomes=outcomes, correlations=self.correlations
        ).all()
        blocks: list[Block] = [Notes(self.findings), *tables]
        blocks.append(Notes(notes_of(comparison, outcomes)))
        blocks.append(
            Signatures(
                [
                    *(score.signature for score in comparison.scores.values()),
                    *(
                        common_part([record.signature for record in records])
                        for score in dict.fromkeys(row.score for row in comparison.rows)
                        for records in outcomes.signed(score)
                    ),
                    *self._metric_signatures(),
                ]
            )
        )
        figures = [
            Figure(
                name="curves",
                draw=lambda: draw_curves(comparison, outcomes, title=title),
                alt=f"{comparison.metric} against the {self._amount}, one line a "
                f"score: {', '.join(outcomes.scores)}. The tables have the values.",
            )
        ]
        if comparison.has_timed_methods:
            figures.append(
                Figure(
                    name="speed",
                    draw=lambda: draw_speed(comparison, outcomes),
                    alt=f"{comparison.metric} against the speed, one line a score: "
                    f"{', '.join(outcomes.scores)}. The tables have the values.",
                )
            )
        if self.correlations:
            figures.append(
                Figure(
                    name="correlations",
                    draw=lambda: draw_correlations(self.correlations, *self.among, title=title),
                    alt="Rank correlations of the scores with the drop by ablation, with "
                    "intervals, and with each other.",
                )
            )
        return Document(
            title=title,
            blocks=blocks,
            sheet=Table(
                columns=[Column(name) for name in _SHEET],
                rows=[[getattr(row, name) for name in _SHEET] for row in comparison.rows],
            ),
            values=values_of(
                comparison,
                outcomes,
                title=title,
                findings=self.findings,
                correlations=self.correlations,
                among=self.among,
            ),
            figures=figures,
        )

    def _metric_signatures(self) -> list[str]:
        """sacreBLEU's signature, where the metric has one."""
        signature = self.comparison.metric_signature
        return [] if signature is None else [f"{self.comparison.metric}|{signature}"]

    @property
    def environments(self) -> Environments:
        """The environments of the measurements, as they were saved or as the records have them."""
        return self.comparison.environments or self._outcomes.environments

    @cached_property
    def _outcomes(self) -> Outcomes:
        return Outcomes.of(self.comparison)

    @property
    def _amount(self) -> str:
        """The quantity of a request, in words."""
        heading = self.comparison.heading
        return heading if self.comparison.measure == SPEED else f"share of {heading}"
