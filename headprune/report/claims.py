"""The outcome of claims as a document."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from headprune.claims.catalogue import all_claims
from headprune.claims.claim import Part
from headprune.claims.outcome import Assessed, Outcome, assess_runs, runs_of
from headprune.claims.runs import Runs
from headprune.claims.sentences import distance, effect, interval, sentence
from headprune.report.document import Column, Document, Notes, Table
from headprune.report.shown import Decimals, PValue
from headprune.results.changes import Changes
from headprune.results.control_tests import Located
from headprune.results.significance import SIGNIFICANCE_LEVEL
from headprune.scores.head_scores import HeadScores

_P_VALUE = PValue(3)


def claims_document(
    results: Sequence[Located],
    *,
    changes: Sequence[Changes] = (),
    scores: Sequence[HeadScores] = (),
    title: str = "Claims",
    test: bool = True,
) -> Document:
    """Decide on every claim, as far as the records allow.

    Args:
        results: records and their files, of one study or several, complete or not.
        changes: changes of heads in fine-tuning, of one study.
        scores: scores of heads.
        title: the title of the document.
        test: test the compared models on the examples of their test set too.

    Raises:
        DataError: see ``grouped``.
    """
    assessed = assess(results, changes=changes, scores=scores, test=test)
    return document_of(*assessed, title=title)


def assess(
    results: Sequence[Located],
    *,
    changes: Sequence[Changes] = (),
    scores: Sequence[HeadScores] = (),
    test: bool = True,
) -> tuple[list[Assessed], list[Runs]]:
    """The outcome of every claim, and the studies; see ``claims_document``."""
    all_runs = runs_of(results, changes=changes, scores=scores)
    return [*assess_runs(all_claims(), all_runs, test=test)], [*all_runs]


def document_of(
    assessed: Sequence[Assessed], all_runs: Sequence[Runs], *, title: str, not_run: bool = True
) -> Document:
    """The outcomes as a document; without ``not_run`` those that rest on models alone."""
    if not not_run:
        assessed = [each for each in assessed if each.outcome is not Outcome.NOT_RUN] or assessed
    several = len({_name(each) for each in assessed if each.runs is not None}) > 1
    # Readers look for what was decided.
    decided_first = sorted(assessed, key=lambda each: each.outcome is Outcome.NOT_RUN)
    return Document(
        title=title,
        blocks=[
            _outcomes(decided_first, several=several),
            Notes([sentence(each) for each in decided_first]),
            *_parts(assessed, several=several),
            Notes(_explanations(assessed, all_runs)),
        ],
        sheet=_sheet(assessed),
        values=_values(assessed, title=title),
    )


def _outcomes(assessed: Sequence[Assessed], *, several: bool) -> Table:
    """The table of claims: paper and outcome; ``several`` studies have a column."""
    rows = []
    for each in assessed:
        part = each.weakest
        rows.append(
            [
                each.claim.sentence,
                f"{each.claim.source.paper}, {each.claim.source.place}",
                each.claim.source.value,
                *([_name(each)] if several else []),
                str(each.outcome),
                None if part is None else effect(part.effect, each.claim.unit),
                None if part is None else _interval(part, each.claim.unit),
                None if part is None else _n(part),
                each.adjusted,
                None if each.detectable is None else distance(each.detectable, each.claim.unit),
            ]
        )
    return Table(
        columns=[
            *(Column("claim"), Column("source"), Column("paper")),
            *([Column("study")] if several else []),
            *(Column("outcome"), Column("effect here"), Column("95% interval"), Column("n")),
            *(Column("p (Holm)", _P_VALUE), Column("smallest detectable")),
        ],
        rows=rows,
    )


def _name(each: Assessed) -> str:
    return "" if each.runs is None else each.runs.title


def _n(part: Part) -> int | None:
    """The number of observations, without an interval that of seeds; None without models."""
    if part.estimate is not None:
        return part.estimate.n
    return len({record.seed for (_, record), _ in part.models}) or None


def _interval(part: Part, unit: str) -> str | None:
    return None if part.estimate is None else interval(part.estimate, unit)


def _parts(assessed: Sequence[Assessed], *, several: bool) -> list[Table]:
    """The effects that the claims are decided by, and those that explain them."""
    rows: list[list[object]] = []
    for each in assessed:
        if each.measurement is None:
            continue
        for role, parts in (
            ("decides", each.measurement.parts),
            ("", each.measurement.details),
        ):
            for part in parts:
                estimate = part.estimate
                rows.append(
                    [
                        part.name,
                        each.claim.name,
                        *([_name(each)] if several else []),
                        role,
                        effect(part.effect, each.claim.unit),
                        _interval(part, each.claim.unit),
                        _n(part),
                        None if estimate is None else each.claim.region.p_inside(estimate),
                        None if estimate is None else each.claim.region.p_outside(estimate),
                        each.tests.get(part.name),
                    ]
                )
    if not rows:
        return []
    return [
        Table(
            caption="Effects, not corrected for their number:",
            columns=[
                *(Column("compared"), Column("claim")),
                *([Column("study")] if several else []),
                *(Column("role"), Column("effect"), Column("95% interval"), Column("n")),
                *(Column("p, claim false", _P_VALUE), Column("p, claim true", _P_VALUE)),
                Column("pairs of models that differ"),
            ],
            rows=rows,
        )
    ]


def _explanations(assessed: Sequence[Assessed], all_runs: Sequence[Runs]) -> list[str]:
    tested = sum(each.evidence is not None for each in assessed)
    left_out = {
        f"{label} of {runs.title}, {task}" for runs in all_runs for _, task, label in runs.left_out
    }
    return [
        *(
            [
                f"Left out: {'; '.join(sorted(left_out))}: the model of one seed or more gives the "
                "same output for every example. It has learnt nothing, and its figure says nothing "
                "about pruning."
            ]
            if left_out
            else []
        ),
        "outcome: a claim says that an effect lies in a region. It holds if the hypothesis that "
        "the effect lies outside is rejected, and does not hold if the hypothesis that it lies "
        f"inside is rejected, by one-sided tests at a level of {SIGNIFICANCE_LEVEL:.0%} after "
        f"Holm's correction for {tested} claims; else these runs cannot tell. A claim on several "
        "effects holds if all of them lie inside, and does not hold if one lies outside "
        "(Bonferroni's correction).",
        "effect and interval: mean over pairs, triples, sets of layers or tasks, each with the "
        "same weight, and over seeds; t-interval over the seeds. It is on other draws of heads and "
        "other fine-tunings of this baseline, on this test set; where the heads are named or "
        "chosen by a score, on other fine-tunings alone. All models come from one baseline: "
        "nothing is said about other baselines. Where a claim has several effects, the one "
        "farthest from the region is shown.",
        "n: number of seeds, or of random draws that a score is compared with; for deviations, of "
        "values; for changes, of heads; for a share of layers, of layers. The plans of one seed "
        "are nested, so that its rows are not independent: they are one observation. An interval "
        "from three seeds is wide.",
        "smallest detectable: by how much the true effect would have to lie outside the region to "
        "be found with a probability of 80%, if it were the clearest of all claims and the spread "
        "were as measured.",
        "p, claim false and p, claim true: of the hypotheses that the effect lies outside and "
        "inside the region, not corrected.",
        "pairs of models that differ: by paired approximate randomisation on BLEU or McNemar's "
        "test on the examples of the test set, p < 0.05 after Holm's correction for all pairs of "
        "the claim. It is about these models, not about other draws of heads, and does not decide.",
    ]


def _sheet(assessed: Sequence[Assessed]) -> Table:
    four = Decimals(4)
    rows: list[list[object]] = []
    for each in assessed:
        part = each.weakest
        estimate = None if part is None else part.estimate
        low, high = (None, None) if estimate is None else map(_finite, estimate.interval())
        rows.append(
            [
                *(each.claim.name, each.claim.sentence),
                *(each.claim.source.paper, each.claim.source.place, each.claim.source.value),
                *(_name(each), str(each.outcome), None if part is None else part.name),
                *(each.claim.unit, None if part is None else _finite(part.effect), low, high),
                *(None if part is None else _n(part), each.adjusted, each.detectable),
            ]
        )
    return Table(
        columns=[
            *(Column("claim"), Column("sentence"), Column("paper"), Column("place")),
            *(Column("paper_value"), Column("study"), Column("outcome"), Column("compared")),
            *(Column("unit"), Column("effect", four), Column("low", four), Column("high", four)),
            *(Column("n"), Column("p_holm", four), Column("detectable", four)),
        ],
        rows=rows,
    )


def _values(assessed: Sequence[Assessed], *, title: str) -> Mapping[str, Any]:
    return {
        "format": "headprune.claims",
        "version": 1,
        "title": title,
        "level": SIGNIFICANCE_LEVEL,
        "claims": [
            {
                "claim": each.claim.name,
                "sentence": each.claim.sentence,
                "source": vars(each.claim.source),
                "study": None if each.runs is None else each.runs.name,
                "form": None if each.runs is None else each.runs.form,
                "outcome": str(each.outcome),
                "explanation": sentence(each),
                "unit": each.claim.unit,
                "region": [_finite(each.claim.region.low), _finite(each.claim.region.high)],
                "p_holm": each.adjusted,
                "detectable": each.detectable,
                "counts": [] if each.measurement is None else list(each.measurement.counts),
                "parts": _part_values(each, "parts"),
                "details": _part_values(each, "details"),
                "rows": each.claim.rows,
                "command": each.claim.command or None,
            }
            for each in assessed
        ],
    }


def _finite(value: float) -> float | None:
    """The value; None for infinity, which JSON does not have."""
    return None if math.isinf(value) else value


def _part_values(each: Assessed, role: str) -> list[dict[str, Any]]:
    parts: Sequence[Part] = getattr(each.measurement, role, ())
    region = each.claim.region
    values = []
    for part in parts:
        estimate, tests = part.estimate, each.tests.get(part.name)
        values.append(
            {
                "compared": part.name,
                "effect": _finite(part.effect),
                "interval": None if estimate is None else list(map(_finite, estimate.interval())),
                "n": _n(part),
                "p_claim_false": None if estimate is None else region.p_inside(estimate),
                "p_claim_true": None if estimate is None else region.p_outside(estimate),
                "p_examples": None if tests is None else list(tests.p_values),
                "p_examples_holm": None if tests is None else list(tests.adjusted),
            }
        )
    return values
