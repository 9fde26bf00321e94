"""Claims on importance scores, of Michel et al., Prasanna et al. and attention-guided pruning."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import pytest
from scipy import stats

from headprune import PruningPlan
from headprune.claims.catalogue import all_claims
from headprune.claims.outcome import Assessed, Outcome
from headprune.claims.runs import grouped
from headprune.results.control_tests import Located
from headprune.results.record import Record
from headprune.select import at_random
from tests.claims.assessment import assess
from tests.claims.conftest import TRANSFORMER, Make


def outcome(results: list[Located], name: str) -> Assessed:
    (assessed,) = [each for each in assess(all_claims(), results) if each.claim.name == name]
    return assessed


@pytest.mark.parametrize("worst_method", ["gradient-important-first", "adversarial"])
def test_importance_matters_where_the_most_important_heads_cost_more(
    translations: Make, worst_method: str
) -> None:
    results = [
        *translations(30.0, 30.1, 30.2, percent=50, method="gradient"),
        *translations(25.0, 25.2, 25.1, percent=50, method=worst_method),
        *translations(28.0, 28.1, 28.2, percent=75, method="gradient"),
        *translations(20.0, 20.2, 20.1, percent=75, method=worst_method),
        *translations(31.0, 31.1, 31.2, kind="control"),
    ]
    assessed = outcome(results, "importance-does-not-inform")
    assert assessed.outcome is Outcome.FAILS
    assert assessed.weakest is not None
    assert assessed.weakest.effect == pytest.approx((5 + 8) / 2)
    assert assessed.measurement is not None
    assert [part.name[:4] for part in assessed.measurement.details] == ["50%:", "75%:"]
    # 81% and 65% of the control
    worst = outcome(results, "worst-sub-networks-trainable")
    assert worst.outcome is Outcome.FAILS
    assert worst.weakest is not None and worst.weakest.effect == pytest.approx(72.6, abs=0.1)


def test_the_rows_of_a_score_are_no_random_draws(translations: Make) -> None:
    results = [
        *translations(30.0, 30.1, 30.2, percent=25, method="gradient"),
        *translations(31.0, 31.1, 31.2, kind="control"),
    ]
    assert outcome(results, "25-percent-costs-nothing").outcome is Outcome.NOT_RUN
    assert outcome(results, "small-deviation-bleu").outcome is Outcome.NOT_RUN


def test_draws_by_component_are_the_second_choice(translations: Make) -> None:
    control = translations(31.0, 31.1, 31.2, kind="control")
    by_component = translations(30.0, 30.1, 30.3, percent=25, method="random-by-component")
    assessed = outcome([*control, *by_component], "25-percent-costs-nothing")
    assert assessed.weakest is not None
    assert assessed.weakest.effect == pytest.approx(-29 / 30)
    over_all = translations(31.0, 31.1, 31.2, percent=25)
    assessed = outcome([*control, *by_component, *over_all], "25-percent-costs-nothing")
    assert assessed.weakest is not None and assessed.weakest.effect == pytest.approx(0)


def test_encoder_decoder_attention_is_the_most_sensitive(translations: Make) -> None:
    rows = {"ES": (25.0, 25.3, 25.1), "ED": (10.0, 10.2, 10.3), "DS": (27.0, 27.1, 27.7)}
    results = [
        located
        for name, values in rows.items()
        for located in translations(*values, percent=50, components=[name], kind="before-finetune")
    ]
    assessed = outcome(results, "encoder-decoder-attention-most-sensitive")
    assert assessed.outcome is Outcome.HOLDS
    assert assessed.measurement is not None
    assert [part.name for part in assessed.measurement.details] == ["24 heads of ED - of ES or DS"]
    # Rows of single components are not rows of table 1.
    assert outcome(results, "small-deviation-bleu").outcome is Outcome.NOT_RUN
    missing = outcome(results[:6], "encoder-decoder-attention-most-sensitive")
    assert missing.outcome is Outcome.NOT_RUN


@pytest.mark.parametrize("method", ["gates", "l0-gates"])
@pytest.mark.parametrize(("kept", "run"), [("222222", False), ("222220", True)])
def test_gates_that_prune_38_of_48_encoder_heads(
    translations: Make, kept: str, run: bool, method: str
) -> None:
    """Three quarters of the heads are not enough."""
    results = [
        *translations(30.0, 30.2, 30.1, kind="control"),
        *translations(
            30.1, 30.2, 30.4, keep={"ES": kept, "ED": "888888", "DS": "888888"}, method=method
        ),
    ]
    assessed = outcome(results, "most-encoder-heads-pruned")
    assert (assessed.outcome is not Outcome.NOT_RUN) == run


def test_the_order_in_which_gates_prune_components(translations: Make) -> None:
    """The two records have the same plan: the effect has no spread, and no interval."""
    keep = {"ES": "222222", "ED": "888822", "DS": "444444"}
    results = translations(30.0, 30.2, keep=keep, method="l0-gates")
    assessed = outcome(results, "encoder-self-attention-first")
    assert assessed.outcome is Outcome.UNKNOWN
    assert assessed.measurement is not None
    effects = [part.effect for part in assessed.measurement.parts]
    assert effects == pytest.approx([100 * (24 - 12) / 48, 100 * (36 - 24) / 48])
    random = translations(30.0, 30.2, keep=keep, study="random")
    assert outcome(random, "encoder-self-attention-first").outcome is Outcome.NOT_RUN
    encoder = {"ES": "222222", "ED": "888888", "DS": "888888"}
    alone = translations(30.0, 30.2, keep=encoder, method="l0-gates", study="encoder")
    assert outcome(alone, "encoder-self-attention-first").outcome is Outcome.NOT_RUN


def test_decoder_heads_that_go_first_are_no_evidence_for_encoder_heads(translations: Make) -> None:
    """The claim orders all three components, not only ES and ED."""
    kept = [
        {"ES": "333333", "ED": "444444", "DS": "000100"},
        {"ES": "333332", "ED": "444445", "DS": "001000"},
        {"ES": "333323", "ED": "444454", "DS": "000001"},
    ]
    plans = [at_random(TRANSFORMER, seed=1, keep=each) for each in kept]
    results = translations(30.0, 30.2, 30.1, plans=plans, method="l0-gates")
    assessed = outcome(results, "encoder-self-attention-first")
    assert assessed.outcome is Outcome.FAILS
    assert assessed.weakest is not None
    assert assessed.weakest.name.startswith("DS - ES")


def test_gates_that_prune_neurons_too_are_no_evidence_on_heads(translations: Make) -> None:
    keep = {"ES": "222222", "ED": "888822", "DS": "444444", "EF": "777777"}
    plans = [at_random({**TRANSFORMER, "EF": (8,) * 6}, seed=seed, keep=keep) for seed in (1, 2)]
    results = translations(30.0, 30.2, plans=plans, method="l0-gates")
    assert outcome(results, "encoder-self-attention-first").outcome is Outcome.NOT_RUN


def test_a_score_is_one_more_draw(classifications: Make) -> None:
    """The seeds of a score share a plan: a lucky plan is not significant."""
    draws = [80.0, 81.0, 82.0, 81.5]
    before = dict(kind="before-finetune", percent=50)
    results = [
        *classifications(*draws, **before),
        *classifications(83.0, method="entropy", **before),
        *classifications(70.0, method="sparsity", **before),
    ]
    assessed = outcome(results, "attention-statistics-beat-random")
    assert assessed.measurement is not None
    parts = {part.name: part for part in assessed.measurement.parts}
    entropy = parts["entropy - random"].estimate
    assert entropy is not None
    error = stats.tstd(draws) * (1 + 1 / 4) ** 0.5
    p_value = stats.t.sf((83.0 - 81.125) / error, 3)
    assert entropy.p_above(0) == pytest.approx(p_value)
    assert assessed.outcome is Outcome.FAILS  # sparsity is worse
    assert assessed.weakest is not None and assessed.weakest.name == "sparsity - random"


def test_the_most_important_heads_do_better_than_random_ones(classifications: Make) -> None:
    before = dict(kind="before-finetune", percent=50)
    results = [
        *classifications(60.0, 60.5, 61.0, 60.2, **before),
        *classifications(75.0, method="gradient", **before),
    ]
    assessed = outcome(results, "important-heads-better-than-random")
    assert assessed.outcome is Outcome.HOLDS


def test_sub_networks_answer_the_claims_on_them(classifications: Make) -> None:
    before = dict(kind="before-finetune", percent=50)
    results = [
        *classifications(80.0, 81.0, 82.0, kind="control"),
        *classifications(76.0, 77.2, 78.1, method="subnetwork-bad", percent=50),
        *classifications(70.0, 71.5, 72.0, method="subnetwork-random", **before),
        *classifications(75.0, 76.0, 77.5, method="subnetwork-good", **before),
    ]
    worst = outcome(results, "worst-sub-networks-trainable")
    assert worst.outcome is Outcome.HOLDS and worst.weakest is not None
    assert worst.weakest.effect == pytest.approx((95 + 77.2 / 0.81 + 78.1 / 0.82) / 3)
    better = outcome(results, "important-heads-better-than-random")
    assert better.outcome is Outcome.HOLDS and better.weakest is not None
    assert better.weakest.effect == pytest.approx(5.0)
    # The fixture draws the heads of each seed: half of 144.
    plans = [set(_heads(record)) for _, record in results[-3:]]
    overlaps = [len(a & b) / len(a | b) for a, b in combinations(plans, 2)]
    stable = outcome(results, "sub-networks-unstable")
    assert stable.outcome is Outcome.UNKNOWN and stable.weakest is not None
    assert stable.weakest.effect == pytest.approx(sum(overlaps) / 3)
    assert stable.weakest.estimate is None


def test_sub_networks_without_some_mlps_answer_no_claim_on_the_metric(
    classifications: Make,
) -> None:
    before = dict(kind="before-finetune", percent=50)
    of_heads = [
        *classifications(80.0, 81.0, kind="control"),
        *classifications(76.0, 77.2, method="subnetwork-bad", percent=50),
        *classifications(70.0, 71.5, method="subnetwork-random", **before),
        *classifications(75.0, 76.0, method="subnetwork-good", **before),
    ]
    results = []
    for path, record in of_heads:
        layers = len(record.plan.units["ES"])
        mlps = [range(4)] * (layers - 1) + [range(4) if record.kind == "control" else ()]
        plan = PruningPlan(
            kept={**record.plan.kept, "EF": mlps}, units={**record.plan.units, "EF": (4,) * layers}
        )
        results.append((path, replace(record, plan=plan)))
    for name in ("worst-sub-networks-trainable", "important-heads-better-than-random"):
        assert outcome(of_heads, name).outcome is not Outcome.NOT_RUN
        assert outcome(results, name).outcome is Outcome.NOT_RUN
    assert outcome(results, "sub-networks-unstable").outcome is not Outcome.NOT_RUN


def _heads(record: Record) -> list[tuple[int, int]]:
    return [(layer, head) for layer, kept in enumerate(record.plan.kept["ES"]) for head in kept]


LOSSES = "index\tloss\ttokens\n0\t20.5\t6\n1\t13.25\t4\n"


def test_metrics_whose_low_values_are_good_are_part_of_no_claim(classifications: Make) -> None:
    """A lower perplexity than at random is no loss, and 150% of the control's is no success."""
    before = dict(kind="before-finetune", percent=50)
    text = dict(task="text", metric="perplexity")
    results = [
        *classifications(30.0, 31.0, 32.0, **before, **text),
        *classifications(20.0, method="gradient", **before, **text),
        *classifications(20.0, method="entropy", **before, **text),
        *classifications(20.0, 20.1, 20.2, kind="control", **text),
        *classifications(30.0, 30.1, 30.2, percent=50, method="adversarial", **text),
    ]
    assert {each.outcome for each in assess(all_claims(), results)} == {Outcome.NOT_RUN}
    accuracies = [
        *classifications(60.0, 60.5, 61.0, 60.2, **before),
        *classifications(75.0, method="gradient", **before),
    ]
    for others in ([], results):
        assessed = outcome([*accuracies, *others], "important-heads-better-than-random")
        assert assessed.outcome is Outcome.HOLDS and assessed.weakest is not None
        assert assessed.weakest.effect == pytest.approx(75 - 60.425)


def test_losses_of_texts_are_no_predictions_of_labels(classifications: Make) -> None:
    results = []
    for path, record in classifications(20.0, 20.1, kind="control", metric="perplexity"):
        (path.parent / "predictions.tsv").write_text(LOSSES)
        record = replace(record, files={"predictions": "predictions.tsv"})
        results.append((path, record))
    (runs,) = grouped(results)
    assert not runs.left_out and len(runs.control("sst2")) == 2


def test_one_plan_has_no_interval(translations: Make) -> None:
    results = [
        *translations(30.0, kind="baseline"),
        *translations(29.5, 29.5, percent=20, method="gradient", kind="before-finetune"),
    ]
    assessed = outcome(results, "removed-at-test-time-translation")
    assert assessed.outcome is Outcome.UNKNOWN and assessed.evidence is None
    assert assessed.weakest is not None and assessed.weakest.effect == pytest.approx(-0.5)


def test_each_seed_is_compared_with_its_own_baseline(translations: Make) -> None:
    """Three trainings of one architecture, each with a baseline and a pruned model."""
    results = [
        *translations(30.0, 40.0, 35.0, kind="baseline"),
        *translations(29.5, 39.3, 34.4, percent=20, method="gradient", kind="before-finetune"),
    ]
    assessed = outcome(results, "removed-at-test-time-translation")
    assert assessed.weakest is not None and assessed.weakest.estimate is not None
    assert assessed.weakest.effect == pytest.approx(-0.6)
    assert assessed.weakest.estimate.n == 3


def test_scaled_rows_of_tables_2_and_3_are_found(translations: Make) -> None:
    """Rows of a model of other size, as the demo has them."""
    results = [
        *translations(30.0, 30.1, keep={"ES": "765432", "ED": "234567", "DS": "765432"}),
        *translations(29.0, 29.2, keep={"ES": "234567", "ED": "765432", "DS": "234567"}),
        *translations(28.0, 28.2, keep={"ES": 20, "ED": 30, "DS": 30}),
        *translations(28.0, 28.3, keep={"ES": 30, "ED": 20, "DS": 30}),
        *translations(28.0, 28.1, keep={"ES": 30, "ED": 30, "DS": 20}),
    ]
    pair = outcome(results, "no-preference-by-location")
    assert pair.weakest is not None and pair.weakest.effect == pytest.approx(0.95)
    triple = outcome(results, "no-component-preference")
    assert triple.measurement is not None
    effects = [part.effect for part in triple.measurement.parts]
    assert effects == pytest.approx([0.0, 0.075, -0.075])
