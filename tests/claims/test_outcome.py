"""Outcomes of claims on made-up records."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from sacrebleu import corpus_bleu

from headprune import PruningPlan
from headprune.claims.catalogue import all_claims
from headprune.claims.outcome import Assessed, Outcome
from headprune.errors import DataError
from headprune.report.claims import claims_document
from headprune.report.render import markdown
from headprune.results.control_tests import Located
from headprune.results.paper import table_rows
from headprune.results.record import Record
from headprune.results.significance import holm
from tests.claims.assessment import assess
from tests.claims.conftest import Make

ONE_HEAD = {"ES": "111111", "ED": "111111", "DS": "111111"}


def outcomes(results: list[Located], name: str) -> list[Assessed]:
    return [each for each in assess(all_claims(), results) if each.claim.name == name]


def outcome(results: list[Located], name: str) -> Assessed:
    (assessed,) = outcomes(results, name)
    return assessed


def test_a_claim_holds_that_is_clearly_met(translations: Make) -> None:
    results = [
        *translations(30.0, 30.2, 30.1, kind="control"),
        *translations(31.0, 31.1, 31.2, percent=25),
    ]
    assessed = outcome(results, "25-percent-costs-nothing")
    assert assessed.outcome is Outcome.HOLDS
    part = assessed.weakest
    assert part is not None and part.estimate is not None
    assert (part.name, part.estimate.n) == ("25% - control", 3)
    assert part.effect == pytest.approx(1.0)


def test_a_claim_does_not_hold_that_is_clearly_missed(translations: Make) -> None:
    results = [
        *translations(30.0, 30.2, 30.1, kind="control"),
        *translations(22.0, 22.1, 22.3, keep=ONE_HEAD),
    ]
    assert outcome(results, "one-head-a-layer").outcome is Outcome.FAILS
    assert outcome(results, "25-percent-costs-nothing").outcome is Outcome.NOT_RUN


def test_a_small_difference_cannot_be_told(translations: Make) -> None:
    results = [
        *translations(30.0, 30.2, 30.1, kind="control"),
        *translations(29.0, 30.5, 29.9, percent=25),
    ]
    assessed = outcome(results, "25-percent-costs-nothing")
    assert assessed.outcome is Outcome.UNKNOWN
    assert assessed.detectable is not None and assessed.detectable > 1


def test_one_seed_gives_an_effect_and_no_outcome(translations: Make) -> None:
    results = [*translations(30.0, kind="control"), *translations(20.0, percent=25)]
    assessed = outcome(results, "25-percent-costs-nothing")
    assert assessed.outcome is Outcome.UNKNOWN
    assert assessed.evidence is None and assessed.adjusted is None
    assert assessed.weakest is not None and assessed.weakest.effect == pytest.approx(-10)


def test_only_seeds_that_both_rows_have_are_compared(translations: Make) -> None:
    results = [
        *translations(30.0, 30.2, kind="control"),
        *translations(30.0, 30.1, 99.0, percent=25),
    ]
    part = outcome(results, "25-percent-costs-nothing").weakest
    assert part is not None and part.effect == pytest.approx(-0.05)


def test_p_values_are_corrected_for_the_claims_that_were_tested(translations: Make) -> None:
    results = [
        *translations(30.0, 30.2, 30.1, kind="control"),
        *translations(31.0, 31.1, 31.3, percent=25),
        *translations(29.0, 31.0, 30.0, percent=60),
        *translations(22.0, keep=ONE_HEAD),  # one seed is no test
    ]
    tested = [each for each in assess(all_claims(), results) if each.evidence is not None]
    assert [each.claim.name for each in tested] == [
        "25-percent-costs-nothing",
        "60-percent-costs-0.15",
        "small-deviation-bleu",
    ]
    p_values = [each.evidence.p_value for each in tested if each.evidence is not None]
    assert [each.adjusted for each in tested] == pytest.approx(holm(p_values))


def pairs(translations: Make, keeping: float) -> list[Located]:
    """All rows of table 2, whose first rows are better by `keeping`."""
    results, random = [], np.random.default_rng(1)
    for number, row in enumerate(table_rows("table2")[1:]):
        better = keeping if number % 2 == 0 else 0.0
        noise = 0.05 * random.standard_normal(3)
        counts = {name: row[name] for name in ("ES", "ED", "DS")}
        results += translations(*(30 + better + each for each in noise), keep=counts)
    return results


def test_no_preference_holds_where_pairs_are_equal(translations: Make) -> None:
    assessed = outcome(pairs(translations, 0.0), "no-preference-by-location")
    assert assessed.outcome is Outcome.HOLDS
    assert assessed.measurement is not None and len(assessed.measurement.details) == 5
    assert assessed.weakest is not None and assessed.weakest.estimate is not None
    assert assessed.weakest.estimate.n == 3


def test_no_preference_does_not_hold_where_keeping_is_better(translations: Make) -> None:
    assessed = outcome(pairs(translations, 2.0), "no-preference-by-location")
    assert assessed.outcome is Outcome.FAILS
    assert assessed.weakest is not None
    assert assessed.weakest.effect == pytest.approx(2.0, abs=0.1)
    assert assessed.measurement is not None
    assert assessed.measurement.counts == ["keeping is better in 5 of 5 pairs"]


def test_a_study_in_progress_is_tested_on_the_pairs_that_are_there(translations: Make) -> None:
    results = pairs(translations, 0.0)[:9]  # one and a half pairs
    assessed = outcome(results, "no-preference-by-location")
    assert assessed.measurement is not None and len(assessed.measurement.details) == 1


def triples(translations: Make, loss: float) -> list[Located]:
    """All rows of table 3; pruning ED costs `loss` more."""
    results, random = [], np.random.default_rng(1)
    for number, row in enumerate(table_rows("table3")[1:]):
        noise = 0.05 * random.standard_normal(3)
        base = 30 - (loss if number % 3 == 1 else 0.0)
        counts = {name: row[name] for name in ("ES", "ED", "DS")}
        results += translations(*(base + each for each in noise), keep=counts)
    return results


def test_a_component_that_matters_refutes_that_none_is_preferred(translations: Make) -> None:
    assessed = outcome(triples(translations, 1.5), "no-component-preference")
    assert assessed.outcome is Outcome.FAILS
    assert assessed.weakest is not None
    assert assessed.weakest.name == "ED pruned most - others"
    assert assessed.weakest.effect == pytest.approx(-1.5, abs=0.1)
    assert assessed.measurement is not None
    effects = {part.name[:2]: part.effect for part in assessed.measurement.parts}
    assert effects["ES"] == pytest.approx(0.75, abs=0.1)


def test_equal_components_hold(translations: Make) -> None:
    assessed = outcome(triples(translations, 0.0), "no-component-preference")
    assert assessed.outcome is Outcome.HOLDS


def test_rows_of_figure_1_are_no_rows_of_table_3(translations: Make) -> None:
    """They prune one component; their numbers of heads are given too."""
    rows = triples(translations, 0.0)
    for percent in (25, 50, 75):
        for name in ("ES", "ED", "DS"):
            rows += translations(20.0, 20.1, 20.2, percent=percent, components=[name])
    assessed = outcome(rows, "no-component-preference")
    assert assessed.measurement is not None
    assert len(assessed.measurement.details) == 3 * 4
    assert assessed.outcome is Outcome.HOLDS


def test_models_are_tested_on_their_translations(translations: Make) -> None:
    reference = [f"House number {n} stands in street {n * 7 % 50} of the town." for n in range(40)]

    def texts(wrong: int) -> tuple[list[str], list[str]]:
        lines = [
            line.replace("town", "city") if n < wrong else line for n, line in enumerate(reference)
        ]
        return lines, reference

    good, bad = (corpus_bleu(texts(wrong)[0], [reference]).score for wrong in (2, 30))
    results = [
        *translations(good, good, kind="control", texts=lambda seed: texts(2)),
        *translations(bad, good, percent=25, texts=lambda seed: texts(30 if seed == 1 else 2)),
    ]
    assessed = outcome(results, "25-percent-costs-nothing")
    tests = assessed.tests["25% - control"]
    assert str(tests) == "1 of 2"
    assert tests.p_values[1] == 1.0
    assert not assess(all_claims(), results, test=False)[0].tests


def test_records_of_several_start_models_decide_no_claim(translations: Make) -> None:
    control = translations(30.0, 30.2, kind="control")
    pruned = translations(30.0, 30.2, percent=25)
    others = [(path, replace(record, model="another")) for path, record in control]
    with pytest.raises(DataError, match="model is None, but 'another' in "):
        outcome([*others, *pruned], "25-percent-costs-nothing")


def test_copies_of_a_record_count_once_and_contradictions_are_an_error(
    translations: Make,
) -> None:
    control = translations(30.0, 30.2, kind="control")
    results = translations(30.0, 30.2, percent=25)
    assessed = outcome([*control, *results, results[0]], "25-percent-costs-nothing")
    assert assessed.weakest is not None and len(assessed.weakest.models) == 2
    path, record = results[0]
    other = (path.with_name("other.json"), replace(record, metrics={"bleu": 29.0}))
    with pytest.raises(DataError, match="seed 1 of '25%' has two records, this and .*; leave out"):
        assess(all_claims(), [*results, other])


def test_fine_tunings_of_several_lengths_are_not_compared(translations: Make) -> None:
    control = [
        (path, replace(record, finetune="10ep"))
        for path, record in translations(30.0, 30.2, kind="control")
    ]
    pruned = [
        (path, replace(record, finetune="1ep"))
        for path, record in translations(25.0, 25.2, percent=25)
    ]
    message = "'25%' was fine-tuned for 1ep, but the control for 10ep in .*; give records of one"
    with pytest.raises(DataError, match=message):
        assess(all_claims(), [*control, *pruned])
    with pytest.raises(DataError, match="seed 2 of '25%' was fine-tuned for 10ep, but seed 1 for"):
        assess(all_claims(), [pruned[0], (pruned[1][0], replace(pruned[1][1], finetune="10ep"))])


def test_one_head_a_layer_is_one_in_every_component(translations: Make) -> None:
    control = translations(30.0, 30.2, kind="control")
    whole = translations(29.0, 29.3, keep=ONE_HEAD)
    assert outcome([*control, *whole], "one-head-a-layer").outcome is not Outcome.NOT_RUN
    encoder = [(path, replace(record, plan=record.plan.part(["ES"]))) for path, record in whole]
    assert outcome([*control, *encoder], "one-head-a-layer").outcome is Outcome.NOT_RUN
    # Pruned neurons cost BLEU too.
    neurons = {"EF": ((0,), (0,))}
    plans = [
        PruningPlan(kept={**record.plan.kept, **neurons}, units={**record.plan.units, "EF": (2, 2)})
        for _, record in whole
    ]
    with_neurons = [
        (path, replace(record, plan=plan))
        for (path, record), plan in zip(whole, plans, strict=True)
    ]
    assert outcome([*control, *with_neurons], "one-head-a-layer").outcome is Outcome.NOT_RUN


def test_studies_are_decided_apart_and_corrected_together(translations: Make) -> None:
    results = [
        located
        for study in ("one", "two")
        for located in (
            *translations(30.0, 30.2, 30.1, kind="control", study=study),
            *translations(31.0, 31.1, 31.2, percent=25, study=study),
        )
    ]
    both = outcomes(results, "25-percent-costs-nothing")
    assert [each.runs.name for each in both if each.runs] == ["one", "two"]
    assert both[0].evidence is not None
    assert both[0].adjusted == pytest.approx(4 * both[0].evidence.p_value)


def test_bert_loses_less_than_a_point(classifications: Make) -> None:
    results = [
        *classifications(90.0, 90.2, 90.1, kind="control"),
        *classifications(89.9, 90.1, 89.9, percent=50),
        *classifications(80.0, 80.1, 80.2, kind="control", task="rte"),
        *classifications(79.9, 80.1, 80.2, percent=50, task="rte"),
        *classifications(50.0, 50.1, 50.2, kind="control", task="cola", metric="matthews"),
        *classifications(10.0, 20.0, 30.0, percent=50, task="cola", metric="matthews"),
    ]
    assessed = outcome(results, "half-of-bert-under-1-point")
    assert assessed.outcome is Outcome.HOLDS
    assert assessed.weakest is not None and assessed.weakest.name == "50% - control (sst2, rte)"


def test_forms_are_decided_apart(classifications: Make) -> None:
    results = [
        *classifications(90.0, 90.2, 90.1, kind="control"),
        *classifications(89.9, 90.1, 90.1, percent=50),
        *classifications(70.0, 70.1, 70.2, percent=50, form="uniform"),
    ]
    both = outcomes(results, "half-of-bert-under-1-point")
    assert {each.runs.form: each.outcome for each in both if each.runs} == {
        "remove": Outcome.HOLDS,
        "uniform": Outcome.FAILS,
    }


def test_claims_on_heads_are_not_on_records_that_drop_layers(classifications: Make) -> None:
    rows = [(90.0, 90.2, 90.1), (60.0, 75.0, 80.0)]
    control, half = (
        classifications(*values, **options)
        for values, options in zip(rows, ({"kind": "control"}, {"percent": 50}), strict=True)
    )
    # Half of the heads, since every second layer is dropped.
    shape = {"ES": (12,) * 12, "EL": (1,) * 12}
    kept = {"ES": [range(12), ()] * 6, "EL": [(0,), ()] * 6}
    dropped = PruningPlan(kept=kept, units=shape)
    without = [(path, replace(record, plan=dropped)) for path, record in half]
    for name in ("half-of-bert-under-1-point", "small-deviation-accuracy"):
        assert outcome([*control, *half], name).outcome is Outcome.FAILS
        assert outcome([*control, *without], name).outcome is Outcome.NOT_RUN


def test_a_percentage_of_one_component_is_not_that_of_all_heads(translations: Make) -> None:
    control = translations(30.0, 30.1, 30.2, kind="control")
    of_one = translations(30.0, 30.1, 30.3, percent=25, components=["ED"])
    of_one = [(path, replace(record, requested_percent=25.0)) for path, record in of_one]
    assert outcome([*control, *of_one], "25-percent-costs-nothing").outcome is Outcome.NOT_RUN
    assert outcome([*control, *of_one], "small-deviation-bleu").outcome is Outcome.NOT_RUN


def test_tasks_that_lack_seeds_are_not_named_as_parts_of_a_mean(classifications: Make) -> None:
    results = [
        *classifications(90.0, 90.2, 90.1, kind="control", task="mnli"),
        *classifications(89.9, 90.1, 90.0, percent=50, task="mnli"),
        *classifications(90.0, kind="control"),
        *classifications(70.0, percent=50),
    ]
    assessed = outcome(results, "half-of-bert-under-1-point")
    assert assessed.weakest is not None
    name = "50% - control (mnli); 1 of 2, as the others lack seeds"
    assert assessed.weakest.name == name


def test_layers_are_found_by_their_plans_in_a_model_of_six(classifications: Make) -> None:
    results = [
        *classifications(80.0, 80.2, 80.1, prune="top 1 + bottom 1", layers=6),
        *classifications(70.0, 70.1, 70.2, prune="middle 2", layers=6),
        *classifications(85.0, 85.2, 85.1, prune="even", layers=6),
        *classifications(85.1, 85.2, 85.3, prune="odd", layers=6),
        *classifications(75.0, 75.2, 75.1, prune="top 3", layers=6),
        *classifications(75.0, 75.2, 75.4, prune="bottom 3", layers=6),
    ]
    middle = outcome(results, "middle-layers-matter")
    assert middle.outcome is Outcome.HOLDS
    assert middle.measurement is not None
    assert middle.measurement.counts == ["pruning the middle is worse in 1 of 1 cells"]
    assert outcome(results, "alternate-layers-better").outcome is Outcome.HOLDS
    equal = outcome(results, "no-preference-top-bottom")
    assert equal.outcome is Outcome.HOLDS


def test_a_row_with_a_model_that_learnt_nothing_is_left_out(classifications: Make) -> None:
    results = [
        *classifications(80.0, 80.2, 80.1, prune="top 1"),
        *classifications(80.1, 80.2, 80.2, prune="bottom 1"),
        *classifications(50.9, 50.9, 50.8, prune="top 3", training={"constant_prediction": True}),
        *classifications(79.0, 79.2, 79.1, prune="bottom 3"),
    ]
    assessed = outcome(results, "no-preference-top-bottom")
    assert assessed.weakest is not None and assessed.weakest.effect == pytest.approx(
        -0.0667, abs=1e-3
    )
    assert assessed.runs is not None
    assert assessed.runs.left_out == [("pruned", "sst2", "top 3")]


def test_left_out_rows_are_named_though_no_claim_was_measured(classifications: Make) -> None:
    constant = {"constant_prediction": True}
    results = classifications(50.9, 50.9, prune="top 3", training=constant)
    assert "Left out: top 3 of bert (remove), sst2" in markdown.render(claims_document(results))


def test_older_records_are_read_and_their_constant_models_found() -> None:
    study = Path(__file__).parents[1] / "report" / "translation_study"
    results = [(path, Record.load(path)) for path in sorted(study.rglob("result.json"))]
    assessed = outcome(results, "25-percent-costs-nothing")
    assert assessed.runs is not None
    assert assessed.runs.left_out == [("pruned", "translation", "75%")]
    part = assessed.weakest
    assert part is not None and part.estimate is None  # the seeds do not differ
    assert str(assessed.tests["25% - control"]) == "0 of 3"


def test_claims_without_tests_need_no_outputs(tmp_path: Path) -> None:
    """The records of a study are enough; whether their models are constant is then not known."""
    study = Path(__file__).parents[1] / "report" / "translation_study"
    results = []
    for path in sorted(study.rglob("result.json")):
        alone = tmp_path / path.relative_to(study)
        alone.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, alone)
        results.append((alone, Record.load(alone)))
    document = markdown.render(claims_document(results, test=False))
    assert "25% of the heads" in document


def test_a_small_deviation(translations: Make) -> None:
    steady = [translations(30.0, 30.01, 29.99, percent=percent) for percent in (25, 50, 75)]
    results = [located for row in steady for located in row]
    assert outcome(results, "small-deviation-bleu").outcome is Outcome.HOLDS
    results += translations(20.0, 30.0, 35.0, percent=60)
    assessed = outcome(results, "small-deviation-bleu")
    assert assessed.outcome is Outcome.FAILS
    assert assessed.weakest is not None and assessed.weakest.name == "deviation within 4 rows"
