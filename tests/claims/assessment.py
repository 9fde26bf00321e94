"""Decisions on claims, from records."""

from __future__ import annotations

from collections.abc import Sequence

from headprune.claims.claim import Claim
from headprune.claims.outcome import Assessed, assess_runs, runs_of
from headprune.results.changes import Changes
from headprune.results.control_tests import Located
from headprune.scores import HeadScores


def assess(
    claims: Sequence[Claim],
    results: Sequence[Located],
    *,
    changes: Sequence[Changes] = (),
    scores: Sequence[HeadScores] = (),
    test: bool = True,
) -> list[Assessed]:
    """Decide on every claim in every set of runs that has its rows.

    Args:
        claims: the claims.
        results: records and their files, of one study or several, complete or not.
        changes: changes of heads in fine-tuning, of one study.
        scores: scores of heads.
        test: test the models that a claim compares on the examples of their test set too.

    Raises:
        DataError: see ``grouped``.
    """
    return assess_runs(claims, runs_of(results, changes=changes, scores=scores), test=test)
