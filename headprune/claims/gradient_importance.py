"""Claims on the importance of heads by gradients: Michel et al. 2019, Prasanna et al. 2020, and
what follows from Budhraja et al. 2020.

Papers give no margin for "without a significant loss". The margins are those of Budhraja et al.:
0.15 BLEU and 1 point of accuracy.
"""

from __future__ import annotations

from collections.abc import Mapping

from headprune.claims.by_score import against_important_first, against_random, rows_by_score
from headprune.claims.claim import Claim, Measurement, Source
from headprune.claims.classification import ONE_POINT
from headprune.claims.contrasts import Contrast, contrast, part
from headprune.claims.importance import EQUAL
from headprune.claims.prunability import NO_LOSS
from headprune.claims.region import Region
from headprune.claims.runs import Row, Runs
from headprune.claims.sub_networks import (
    good_against_random,
    overlap_of_survivors,
    sub_networks_of_heads,
)
from headprune.components import HEADS
from headprune.methods.adversarial import IMPORTANT_FIRST
from headprune.results.paper import ACCURACY, SOURCE
from headprune.results.record import Record
from headprune.results.tasks import TRANSLATION
from headprune.subnetworks.choices import BAD

MICHEL = "Michel et al., NeurIPS 2019"
PRASANNA = "Prasanna et al., EMNLP 2020"
GRADIENT = "gradient"
TRAINABLE = 90.0
"""Percent of the full model's value at which Prasanna et al. stop pruning."""

_COMPARE = "headprune compare MODEL --score gradient --percent {0}"


def claims() -> list[Claim]:
    """The claims that need rows by the score ``gradient``, and those of single components."""
    return [
        Claim(
            name="importance-does-not-inform",
            sentence="The importance of heads does not strongly inform which of them can be "
            "pruned: after fine-tuning, it does not matter if the most or the least important go.",
            source=Source(
                paper=SOURCE,
                place="abstract",
                value="importance by location only (table 2); here by gradients",
            ),
            region=EQUAL,
            unit="BLEU",
            effect="BLEU without the heads of lowest gradient importance less BLEU without those "
            "of highest importance, after fine-tuning, mean over percentages",
            rows="heads pruned by `gradient` from the lowest and from the highest, same seeds",
            command="make study STUDY=adversarial SETTING=wmt14.en-ru",
            measure=_least_or_most,
        ),
        _at_test_time("translation", TRANSLATION, None, 20, "WMT: about 20%", -NO_LOSS, "BLEU"),
        _at_test_time("BERT", None, ACCURACY, 40, "MNLI: about 40%", -ONE_POINT, "points"),
        Claim(
            name="encoder-decoder-attention-most-sensitive",
            sentence="Encoder-decoder attention depends more on having many heads than "
            "self-attention.",
            source=Source(paper=MICHEL, place="abstract", value="BLEU collapses past 60% of ED"),
            region=Region(high=0),
            unit="BLEU",
            effect="BLEU with a share of the ED heads pruned less the mean of BLEU with as many ES "
            "and DS heads pruned, right after pruning, mean over shares",
            rows="the same number of heads pruned in ES alone, ED alone and DS alone, not "
            "fine-tuned",
            command="make study STUDY=figure1 SETTING=wmt14.en-ru",
            measure=_single_components,
        ),
        Claim(
            name="worst-sub-networks-trainable",
            sentence="Even the worst sub-networks remain highly trainable: without its most "
            "important heads, a model is fine-tuned to 90% of the full model's value or more.",
            source=Source(
                paper=PRASANNA,
                place="abstract",
                value="MNLI 81.8 of 84.5, mean of nine tasks 69.0 of 76.1",
                numbers=[100 * 81.8 / 84.5, 100 * 69.0 / 76.1],
            ),
            region=Region(low=TRAINABLE),
            unit="%",
            effect="value without the heads of highest gradient importance in percent of the "
            "control's, after fine-tuning, mean over percentages and tasks",
            rows="control, and heads pruned by `gradient` from the highest, with the same seeds; "
            "or the bad sub-networks of `headprune subnetworks`, of heads alone, fine-tuned",
            command="make study STUDY=adversarial SETTING=wmt14.en-ru",
            measure=_worst,
        ),
        Claim(
            name="important-heads-better-than-random",
            sentence="Without fine-tuning, the most important heads by gradients do better than "
            "as many random heads.",
            source=Source(
                paper=PRASANNA,
                place="sub-networks of heads",
                value="MNLI 78.0 and 74.1, mean of nine tasks 72.0 and 61.2",
                numbers=[78.0 - 74.1, 72.0 - 61.2],
            ),
            region=Region(low=0),
            unit="points",
            effect="value of the model with heads by `gradient` less the mean of models with "
            "random heads, right after pruning, mean over percentages and tasks; or of good "
            "sub-networks less random ones",
            rows="heads pruned by `gradient` and at random, the latter with two seeds or more, "
            "not fine-tuned; or records of `headprune subnetworks`, of heads alone",
            command=_COMPARE.format(50),
            measure=_better_than_random,
        ),
        Claim(
            name="sub-networks-unstable",
            sentence="Which heads are good is not stable: trainings that differ in their seed "
            "alone keep different heads.",
            source=Source(
                paper=PRASANNA,
                place="overlap of five seeds",
                value="intersection over union: MNLI 0.49, SST-2 0.26, QQP 0.35",
                numbers=[0.49, 0.26, 0.35],
            ),
            region=Region(high=0.5),
            unit="",
            effect="intersection over union of the heads that survive in two trainings, mean over "
            "pairs and tasks; pairs share models, so that there is no interval",
            rows="records of `headprune subnetworks` for two models or more",
            command="headprune subnetworks MODEL MODEL MODEL",
            measure=overlap_of_survivors,
        ),
    ]


def _at_test_time(
    model: str,
    task: str | None,
    metric: str | None,
    percent: float,
    value: str,
    low: float,
    unit: str,
) -> Claim:
    """A share of heads pruned without training."""

    def measure(runs: Runs) -> Measurement | None:
        tasks = [name for name in runs.tasks(metric) if task in (None, name)]
        strata = [
            difference
            for name in tasks
            for requested, row in rows_by_score(
                runs, name, GRADIENT, kind="before-finetune"
            ).items()
            if requested == percent
            and (difference := contrast([row], [_baselines(runs, name, row)])) is not None
        ]
        if not strata:
            return None
        return Measurement(parts=[part(f"{GRADIENT} {percent:g}% - baseline", strata)])

    return Claim(
        name=f"removed-at-test-time-{model.lower()}",
        sentence=f"{percent:g}% of the heads of a model for {model} can be removed at test time "
        "without a significant loss."
        if model == TRANSLATION
        else f"{percent:g}% of the heads of {model} can be removed at test time without a "
        "significant loss.",
        source=Source(paper=MICHEL, place="pruning by importance", value=value),
        region=Region(low=low),
        unit=unit,
        effect="value right after pruning by `gradient` less the baseline's",
        rows=f"baseline, and {percent:g}% by `gradient`, not fine-tuned; an interval needs two "
        "baselines or more",
        command=_COMPARE.format(percent),
        measure=measure,
    )


def _baselines(runs: Runs, task: str, row: Row) -> Row:
    """The baseline of each seed of a row; a single baseline is that of all seeds."""
    baselines = runs.row(task, lambda record: True, kind="baseline")
    if len(baselines) != 1:
        return baselines
    return dict.fromkeys(row, next(iter(baselines.values())))


def _least_or_most(runs: Runs) -> Measurement | None:
    contrasts = against_important_first(runs, TRANSLATION, GRADIENT)
    return _over_percentages("lowest pruned - highest pruned", contrasts)


def _over_percentages(name: str, contrasts: Mapping[float, Contrast]) -> Measurement | None:
    if not contrasts:
        return None
    details = [part(f"{percent:g}%: {name}", [each]) for percent, each in contrasts.items()]
    return Measurement(
        parts=[part(name, list(contrasts.values()))],
        details=details if len(details) > 1 else (),
    )


def _single_components(runs: Runs) -> Measurement | None:
    by_number: dict[int, dict[str, Row]] = {}
    rows = runs.matching(TRANSLATION, _prunes_one_component, kind="before-finetune")
    for row in rows.values():
        pruned = {
            (name, sum(units) - sum(record.plan.counts[name]))
            for _, record in row.values()
            for name, units in record.plan.units.items()
            if sum(record.plan.counts[name]) < sum(units)
        }
        if len(pruned) == 1:
            name, number = pruned.pop()
            by_number.setdefault(number, {}).setdefault(name, row)
    contrasts = {}
    for number, by_component in sorted(by_number.items()):
        if set(by_component) == set(HEADS):
            others = [by_component["ES"], by_component["DS"]]
            difference = contrast([by_component["ED"]], others)
            if difference is not None:
                contrasts[float(number)] = difference
    if not contrasts:
        return None
    return Measurement(
        parts=[part("ED pruned - ES or DS pruned", list(contrasts.values()))],
        details=[
            part(f"{number:g} heads of ED - of ES or DS", [each])
            for number, each in contrasts.items()
        ],
    )


def _prunes_one_component(record: Record) -> bool:
    plan = record.plan
    pruned = [name for name, units in plan.units.items() if sum(plan.counts[name]) < sum(units)]
    return len(pruned) == 1 and pruned[0] in HEADS


def _worst(runs: Runs) -> Measurement | None:
    contrasts = {}
    for task in runs.tasks():
        control = runs.control(task)
        by_percent = rows_by_score(runs, task, GRADIENT + IMPORTANT_FIRST, kind="pruned")
        rows = {f"{percent:g}%: highest pruned": row for percent, row in by_percent.items()}
        rows["bad sub-networks"] = sub_networks_of_heads(runs, task, BAD, kind="pruned")
        for name, row in rows.items():
            shares = {
                seed: 100 * record.value / control[seed][1].value
                for seed, (_, record) in row.items()
                if seed in control and control[seed][1].value > 0
            }
            if shares:
                models = [(control[seed], row[seed]) for seed in shares]
                contrasts[task, name] = Contrast(differences=shares, models=models)
    if not contrasts:
        return None
    return Measurement(
        parts=[part("highest pruned, of the control", list(contrasts.values()))],
        details=[
            part(f"{name}, of the control ({task})", [each])
            for (task, name), each in contrasts.items()
        ],
    )


def _better_than_random(runs: Runs) -> Measurement | None:
    compared = against_random(runs, GRADIENT, kind="before-finetune") or good_against_random(runs)
    return None if compared is None else Measurement(parts=[compared])
