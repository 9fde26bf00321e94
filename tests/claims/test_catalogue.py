"""The claims and the paper's own values."""

from __future__ import annotations

from headprune.claims.catalogue import all_claims


def test_names_are_unique_and_every_claim_says_what_it_needs() -> None:
    claims = all_claims()
    assert len({claim.name for claim in claims}) == len(claims)
    for claim in claims:
        assert claim.sentence.endswith(".") and claim.rows and claim.effect


def test_the_papers_values_are_those_of_its_tables() -> None:
    values = {claim.name: claim.source.value for claim in all_claims()}
    assert values["25-percent-costs-nothing"] == "en-ru +0.50, en-de +0.24"
    assert values["60-percent-costs-0.15"] == "en-ru -0.15, en-de -0.07"
    assert values["one-head-a-layer"] == "en-ru -1.62, en-de -1.03"
    # (0.19 - 0.40 - 0.34 + 0.21 + 0.13) / 5
    assert values["no-preference-by-location"] == "mean -0.04, from -0.40 to +0.21"
    # (-0.67 - 0.32 - 1.62 - 0.88) / 4
    assert values["half-of-bert-under-1-point"] == "mean -0.87 points"
    assert "pruning the middle is worse in 14 of 16 cells" in values["middle-layers-matter"]
    assert "consecutive is worse in 4 of 4 cells" in values["alternate-layers-better"]


def test_the_paper_meets_its_own_claims() -> None:
    """The region of each claim contains the values of the paper's tables."""
    for claim in all_claims():
        for value in claim.source.numbers:
            assert claim.region.low <= value <= claim.region.high, claim.name
