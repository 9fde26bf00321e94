"""The claim that statistics of attention choose better heads than random choice."""

from __future__ import annotations

from headprune.claims.by_score import against_random
from headprune.claims.claim import Claim, Measurement, Source
from headprune.claims.region import Region
from headprune.claims.runs import Runs

SCORES = ("entropy", "sparsity", "distribution")


def claims() -> list[Claim]:
    """The claim of attention-guided pruning."""
    return [
        Claim(
            name="attention-statistics-beat-random",
            sentence="Heads chosen by each of entropy, sparsity and distribution of their "
            "attention do better than the ones drawn at random.",
            source=Source(paper="attention-guided pruning", place="comparison of scores", value=""),
            region=Region(low=0),
            unit="points",
            effect="value of the model with heads by a score less the mean of models with random "
            "heads, right after pruning, mean over percentages; for each score",
            rows="heads pruned by the scores and at random, the latter with two seeds or more, "
            "not fine-tuned",
            command="headprune compare MODEL --score entropy --score sparsity --score distribution "
            "--random-seeds 6",
            measure=_measure,
        )
    ]


def _measure(runs: Runs) -> Measurement | None:
    before = [against_random(runs, score, kind="before-finetune") for score in SCORES]
    after = [against_random(runs, score, kind="pruned") for score in SCORES]
    parts = [part for part in before if part is not None]
    if not parts:
        return None
    return Measurement(
        parts=parts,
        details=[part.named(f"{part.name}, fine-tuned") for part in after if part is not None],
    )
