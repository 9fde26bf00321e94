"""A comparison as Markdown, CSV, JSON and figures."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from headprune.compare import figures
from headprune.compare.against_random import LEVEL
from headprune.compare.claims import MOMENTS, cells_of, claims, tested
from headprune.compare.correlations import Correlation, correlation, matrix
from headprune.compare.rows import CONTROL, Cell, cell
from headprune.compare.run import Comparison
from headprune.files import write_text_atomically
from headprune.plan import HeadPlan
from headprune.report.markdown import markdown_rows
from headprune.report.marks import CONSTANT_MARK
from headprune.report.signature import common_part, signature


@dataclass(frozen=True, kw_only=True)
class Report:
    """A comparison with what follows from it.

    Attributes:
        correlations: of each score with what ablation measures.
        among: names, and the correlations of all scores with one another.
        claims: what the numbers say.
    """

    comparison: Comparison
    correlations: Mapping[str, Correlation]
    among: tuple[list[str], list[list[float]]]
    claims: list[str]

    @classmethod
    def of(cls, comparison: Comparison) -> Report:
        """Work out what follows."""
        component = comparison.component
        scores = {
            name: made if component is None else made.of_component(component)
            for name, made in comparison.scores.items()
        }
        correlations = {
            name: correlation(made, scores["ablation"])
            for name, made in scores.items()
            if name != "ablation"
        }
        return cls(
            comparison=comparison,
            correlations=correlations,
            among=(list(scores), matrix(scores)),
            claims=claims(comparison.rows, correlations, metric=comparison.metric),
        )

    def save(self, folder: Path, *, title: str) -> None:
        """Write compare.md, .csv and .json, curves.png and .svg, correlations.png and .svg."""
        write_text_atomically(folder / "compare.md", self.markdown(title=title))
        write_text_atomically(folder / "compare.csv", self._csv())
        content = json.dumps(self._json(title), indent=1, ensure_ascii=False)
        write_text_atomically(folder / "compare.json", content + "\n")
        names = {kind: folder / kind for kind in ("curves", "correlations")}
        figures.save_curves(
            self.comparison,
            title=title,
            png=names["curves"].with_suffix(".png"),
            svg=names["curves"].with_suffix(".svg"),
        )
        figures.save_correlations(
            self.correlations,
            *self.among,
            title=title,
            png=names["correlations"].with_suffix(".png"),
            svg=names["correlations"].with_suffix(".svg"),
        )

    def markdown(self, *, title: str) -> str:
        """Tables and sentences."""
        parts = [f"# {title}", ""]
        parts += [f"- {sentence}" for sentence in self.claims]
        for when, header in (
            ("after", "after fine-tuning"),
            ("before", "right after pruning"),
        ):
            rows = self._table(when)
            if rows:
                parts += ["", f"{self.comparison.metric} {header}:", "", *markdown_rows(rows)]
        if len(tests := self._test_rows()) > 1:
            parts += ["", "Difference to the mean of random plans:", "", *markdown_rows(tests)]
        parts += ["", "What pruning saves:", "", *markdown_rows(self._costs())]
        parts += ["", "Rank correlation with the drop that ablation measures:", ""]
        parts += markdown_rows(self._correlation_rows())
        parts += ["", *self._notes(), "", "Signatures:", "", "```"]
        parts += [made.signature for made in self.comparison.scores.values()]
        parts += [common_part(mine) for mine in self._row_signatures().values()]
        return "\n".join([*parts, "```", ""])

    @property
    def _names(self) -> list[str]:
        rows = self.comparison.rows
        return list(dict.fromkeys(row.score for row in rows if row.score != CONTROL))

    @property
    def _percents(self) -> list[float]:
        return list(
            dict.fromkeys(row.percent for row in self.comparison.rows if row.score != CONTROL)
        )

    def _cell(self, name: str, percent: float) -> Cell:
        return cell(self.comparison.rows, name, percent)

    def _table(self, when: str) -> list[list[str]]:
        percents = self._percents
        if when == "after" and not any(row.after is not None for row in self.comparison.rows):
            return []
        rows = [["score", *(f"{percent:g}%" for percent in percents)]]
        if when == "after":
            control = _marked(self._cell(CONTROL, 0.0), when)
        else:
            control = f"{self.comparison.base:.2f}"
            if self.comparison.constant:
                control += f" {CONSTANT_MARK}"
        rows.append(["not pruned", *[control] * len(percents)])
        for name in self._names:
            cells = [self._cell(name, percent) for percent in percents]
            if any(getattr(each, when) for each in cells):
                rows.append([name, *(_marked(each, when) for each in cells)])
        return rows

    def _costs(self) -> list[list[str]]:
        rows = [["heads pruned", "parameters", "FLOPs", "speed, x unpruned (quartiles)"]]
        for percent in self._percents:
            mine = [
                row
                for row in self.comparison.rows
                if row.percent == percent and row.score == "random"
            ]
            speed = self.comparison.speedups.get(percent)
            rows.append(
                [
                    f"{percent:g}%",
                    f"{mine[0].parameters / 1e6:.2f}M",
                    f"{mine[0].flops / 1e6:.1f}M",
                    f"{speed[0]:.2f} ({speed[1]:.2f} to {speed[2]:.2f})" if speed else "",
                ]
            )
        return rows

    def _tests(self) -> list[dict[str, Any]]:
        """The tests against random choice, a cell each, as JSON values."""
        return [
            {
                "when": when,
                "percent": percent,
                "random": asdict(test.random),
                "level": LEVEL,
                "smallest_difference": test.smallest,
                "scores": {
                    name: {
                        "difference": each.difference,
                        "p_value": each.p_value,
                        "holm": each.adjusted,
                    }
                    for name, each in test.scores.items()
                },
            }
            for when, percent, cells in cells_of(self.comparison.rows)
            if (test := tested(cells, when=when)) is not None
        ]

    def _test_rows(self) -> list[list[str]]:
        rows = [["when", "heads pruned", "score", "difference", "p", "p (Holm)", "random plans"]]
        for cell_test in self._tests():
            for name, each in cell_test["scores"].items():
                rows.append(
                    [
                        MOMENTS[cell_test["when"]].lower(),
                        f"{cell_test['percent']:g}%",
                        name,
                        f"{each['difference']:+.2f}",
                        f"{each['p_value']:.3f}",
                        f"{each['holm']:.3f}",
                        f"{cell_test['random']['n']}",
                    ]
                )
        return rows

    def _correlation_rows(self) -> list[list[str]]:
        rows = [["score", "Spearman", "95% interval", "heads"]]
        for name, each in self.correlations.items():
            numbers = ["", ""]  # of a score that is the same for all heads
            if each.value == each.value:
                numbers = [f"{each.value:+.2f}", f"{each.low:+.2f} to {each.high:+.2f}"]
            rows.append([name, *numbers, f"{each.heads}"])
        return rows

    def _notes(self) -> list[str]:
        draws = len({row.seed for row in self.comparison.rows if row.score == "random"})
        seeds = len({row.seed for row in self.comparison.rows if row.score != "random"}) or draws
        ablation = self.comparison.scores["ablation"].settings.get("metric")
        component = self.comparison.component
        fair = ""
        if any(row.after is not None for row in self.comparison.rows):
            fair = "; after fine-tuning, what is fine-tuned for as long as the pruned ones"
        which = (
            f"- Percentages are of the heads of {component}, and so are correlations; all other "
            "heads stay."
        )
        constant = self.comparison.constant or any(
            row.constant or row.constant_before for row in self.comparison.rows
        )
        mark = (
            f"- {CONSTANT_MARK}: the model of one seed or more gives the same output for every "
            "example: its figure does not say how well the heads were chosen."
        )
        return [
            *([] if component is None else [which]),
            *([mark] if constant else []),
            f"- Mean ± sample standard deviation over {seeds} seeds"
            f"{f' ({draws} of random)' if draws != seeds else ''}. A seed draws the random heads "
            "and the fine-tuning's chances; the heads of the other scores are the same for every "
            "seed, so right after pruning they have one value.",
            f"- not pruned: the model as it was given{fair}.",
            "- Tests against random choice: a score chooses one plan, so its value (the mean where "
            "it was fine-tuned) is tested as one more draw from the distribution of random's "
            f"{draws} values: t with {draws - 1} degrees of freedom, scale sd x sqrt(1 + 1/n), "
            "two-sided. Holm's correction is for the scores of one percentage at one moment. If no "
            f"score differed from random, any would be called different in at most {LEVEL:.0%} of "
            "such cells.",
            f"- ablation: drop of the {ablation}, measured on other examples than the other scores "
            "are computed on (part:ablation, part:scoring). Low numbers of entropy and alone are "
            "the good ones; their signs are turned round in correlations. Intervals by bootstrap "
            "over heads.",
            "- FLOPs: of a forward pass over 30 tokens, random heads of the first seed; speed: "
            "medians of rounds in which the models take turns.",
        ]

    def _row_signatures(self) -> dict[str, list[str]]:
        """For each score, the signatures of its models."""
        found: dict[str, list[str]] = {}
        for row in self.comparison.rows:
            plan = HeadPlan.from_json(json.dumps(row.plan))
            line = signature(
                plan,
                select="none" if row.score == CONTROL else row.score,
                seed=row.seed,
                form="none" if plan.is_full else "remove",
                finetune="none" if row.after is None else self.comparison.finetune_name,
                data=self.comparison.data_name,
            )
            found.setdefault(row.score, []).append(line)
        return found

    def _csv(self) -> str:
        text = io.StringIO()
        columns = ("score", "percent", "pruned", "seed", "before", "after", "parameters", "flops")
        writer = csv.DictWriter(text, columns, extrasaction="ignore", lineterminator="\n")
        writer.writeheader()
        for row in self.comparison.rows:
            writer.writerow(row.as_json())
        return text.getvalue()

    def _json(self, title: str) -> dict[str, Any]:
        names, values = self.among
        return {
            "title": title,
            "metric": self.comparison.metric,
            "component": self.comparison.component,
            "base": self.comparison.base,
            "constant": self.comparison.constant,
            "settings": self.comparison.settings,
            "claims": self.claims,
            "tests": self._tests(),
            "rows": [row.as_json() for row in self.comparison.rows],
            "speedups": {f"{p:g}": list(v) for p, v in self.comparison.speedups.items()},
            "correlations": {
                name: {
                    "spearman": _number(each.value),
                    "interval": [_number(each.low), _number(each.high)],
                    "heads": each.heads,
                }
                for name, each in self.correlations.items()
            },
            "among": {
                name: dict(zip(names, map(_number, row), strict=True))
                for name, row in zip(names, values, strict=True)
            },
        }


def _marked(values: Cell, when: str) -> str:
    """The cell of the table of the figures ``before`` or ``after``."""
    text = str(getattr(values, when))
    return f"{text} {CONSTANT_MARK}" if when in values.constant else text


def _number(value: float) -> float | None:
    """JSON has no NaN."""
    return None if value != value else value
