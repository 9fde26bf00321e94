"""The notes below the tables of a comparison: the meaning of its figures and tests."""

from __future__ import annotations

from collections.abc import Sequence

from headprune.budget import SPEED, USUAL_LENGTH
from headprune.compare.comparison import Comparison
from headprune.compare.records import Outcomes
from headprune.components import NEURONS
from headprune.methods.subnetwork import Subnetwork
from headprune.recovery.kinds import BEFORE, Recovery
from headprune.recovery.variant import L0_GATES
from headprune.results.marks import CONSTANT_MARK
from headprune.results.significance import SIGNIFICANCE_LEVEL
from headprune.wording import counted


def notes_of(comparison: Comparison, outcomes: Outcomes) -> list[str]:
    """All notes, one sentence or more each."""
    rows = comparison.rows
    draws = len({row.seed for row in rows if row.score == "random"})
    seeds = len({row.seed for row in rows if row.score != "random"}) or draws
    units = comparison.unit_names
    notes = []
    others = "heads" if units == "heads" else "units"
    components = comparison.components
    pruned = units if components is None else f"{units} of {', '.join(components)}"
    if comparison.measure == SPEED:
        reached = "the speed that is predicted from times of sub-layers is reached"
        corrected = (
            f" Each plan was measured ({counted(comparison.verify, 'time')} at most) and replaced "
            "by one for a lower or higher prediction where that speed was not the one that was "
            "asked for; plans of methods that train were not. A corrected plan may be predicted "
            "to be slower than asked for, and where no plan was within 5%, it is the nearest."
            if comparison.verify > 1
            else ""
        )
        notes.append(
            f"Speeds: {comparison.timed_job or 'a job that is not known'}. Each method "
            f"prunes {pruned} until {reached}; the measured speed is of the whole job.{corrected} "
            "Methods that drop whole layers or MLPs can be faster than asked for, and methods that "
            "train are only near it: see the predicted speed. Correlations are over these units."
        )
    elif comparison.measure != "units":
        notes.append(
            f"Percentages are of the {comparison.quantity} that pruning all {pruned} "
            f"would save; correlations are over these {units}; all other {others} stay."
        )
    elif components is not None:
        notes.append(
            f"Percentages are of the {pruned}, and so are correlations; all other {others} stay."
        )
    names = {*(components or ())}
    whole_mlps = any(row.score == Subnetwork.name for row in rows) and names & {*NEURONS}
    if whole_mlps and comparison.measure != SPEED:
        notes.append(
            f"{Subnetwork.name} prunes whole MLPs, the last one too where a part of it would do: "
            "it can prune more than asked for."
        )
    if comparison.constant or any(row.constant or row.constant_before for row in rows):
        notes.append(
            f"{CONSTANT_MARK}: the model of one seed or more gives the same output for every "
            f"example: its figure does not say how well the {units} were chosen."
        )
    training_note = ""
    trainings = (Recovery.FINETUNE, Recovery.DISTILL, Recovery.DISTILL_SEQUENCES)
    tuned = {*trainings}.intersection(outcomes.recoveries)
    if tuned:
        moments = " and ".join(each.moment for each in Recovery if each in tuned)
        training_note = f"; {moments}, the same model, trained in the same way for as long"
    positions = comparison.positions
    inputs = f"one input of {positions} positions" if positions else f"{USUAL_LENGTH} tokens"
    timed = "" if comparison.has_timed_methods else f", of random {units}"
    if comparison.timed_all_plans:
        speed = (
            "speed: the median of rounds in which the models take turns; of a method with several "
            "plans the median over the plans, with the quartiles over them"
        )
    else:
        speed = "speed: medians of rounds in which the models take turns, plans of the first seed"
    return [
        *notes,
        _seeds_note(seeds, draws, units=units, methods_with_seeds=_methods_with_seeds(outcomes)),
        *_training_note(outcomes, measure=comparison.measure),
        f"not pruned: the model as it was given{training_note}.",
        *_recovery_note(outcomes),
        _tests_note(draws, methods_with_seeds=_methods_with_seeds(outcomes)),
        *_pairs_note(comparison, outcomes),
        *_ablation_note(comparison),
        f"FLOPs: of a forward pass over {inputs}{timed}, like parameters means over a method's "
        f"plans; {speed}.",
        *_seconds_note(comparison),
    ]


def _methods_with_seeds(outcomes: Outcomes) -> list[str]:
    """The methods, beside random choice, that have a model of their own for each seed."""
    return [
        name
        for name in outcomes.scores
        if name != "random"
        and any(len(outcomes.records(name, each, BEFORE)) > 1 for each in outcomes.percents)
    ]


def _seeds_note(seeds: int, draws: int, *, units: str, methods_with_seeds: Sequence[str]) -> str:
    """The number of values of each figure, and their spread.

    Args:
        seeds, draws: the number of seeds of the other scores, and of random.
        methods_with_seeds: the methods that choose or train with each seed anew.
    """
    chances = f"draws the random {units} and the fine-tuning's chances"
    if seeds == 1:
        spread = (
            f"Random: mean ± sample standard deviation over {draws} seeds. Other scores: one seed"
        )
        return f"One seed, which {chances}." if draws == 1 else f"{spread}. A seed {chances}."
    exceptions = f" but {', '.join(methods_with_seeds)}" if methods_with_seeds else ""
    return (
        f"Mean ± sample standard deviation over {seeds} seeds"
        f"{f' ({draws} of random)' if draws != seeds else ''}. A seed {chances}; the {units} of "
        f"the other scores{exceptions} are the same for every seed, so right after pruning they "
        "have one value."
    )


def _training_note(outcomes: Outcomes, *, measure: str) -> list[str]:
    names = sorted(outcomes.trained)
    if not names:
        return []
    return [
        f"{', '.join(names)}: the method trains the model for as long as a fine-tuning, with "
        "each seed anew, while it chooses. Its figures right after pruning come after one "
        "training, so the tests compare them with those of random plans after fine-tuning; its "
        "figures after fine-tuning come after two."
        + (
            " For a speed it may train up to three times, each from the model as it was given, "
            "and the seconds below are those of all."
            if measure == SPEED and L0_GATES in names
            else ""
        )
    ]


def _recovery_note(outcomes: Outcomes) -> list[str]:
    notes = {
        Recovery.DISTILL: "after distillation: fine-tuned towards the outputs of the model as "
        "it was given too; so is the model that is not pruned.",
        Recovery.DISTILL_SEQUENCES: "after sequence-level distillation: fine-tuned on translations "
        "of the training text by the model as it was given; so is the model that is not pruned.",
        Recovery.REFIT: "after re-fitting: the output projections of pruned sub-layers are "
        "solved by least squares on calibration examples, which are training examples; nothing "
        "is trained.",
        Recovery.REFIT_RESIDUAL: "after re-fitting with the residual connection: the same, with "
        "the sum of a sub-layer's output and the residual connection as the target, so that it "
        "makes up for the errors of the sub-layers below, too.",
        Recovery.SCRATCH: "trained from scratch: from random weights in the pruned shape, for "
        "as long as a fine-tuning; the row of what is not pruned has the unpruned shape, "
        "trained in the same way.",
    }
    refits = {Recovery.REFIT, Recovery.REFIT_RESIDUAL} & {*outcomes.recoveries}
    refitted = {each.score for each in outcomes.all if each.moment in refits}
    return [
        *(notes[each] for each in outcomes.recoveries if each in notes),
        *(
            f"{name}: re-fitted after its own training, which the other methods do not have."
            if name in refitted
            else f"{name}: trains the model while it chooses the units, so its models are not "
            "re-fitted."
            for name in (sorted(outcomes.trained) if refits else ())
        ),
    ]


def _tests_note(draws: int, *, methods_with_seeds: Sequence[str]) -> str:
    if draws == 1:
        return "Differences to random choice are not tested: that takes two random draws or more."
    averaged = "has several" if methods_with_seeds else "was fine-tuned"
    return (
        "Tests against random choice: a score chooses one plan, so its value (the mean where "
        f"it {averaged}) is tested as one more draw from the "
        f"distribution of random's {draws} values: t with {counted(draws - 1, 'degree')} of "
        "freedom, scale sd x sqrt(1 + 1/n), two-sided. Holm's correction is for the scores of one "
        "percentage at one moment. If no score differed from random, any would be called different "
        f"in at most {SIGNIFICANCE_LEVEL:.0%} of such cells, for normally distributed values. "
        "Where a random plan gave a model with the same output for every example, nothing is "
        "tested."
    )


def _pairs_note(comparison: Comparison, outcomes: Outcomes) -> list[str]:
    pairs = comparison.pairs
    if not pairs:
        return []
    trained = sorted(outcomes.trained)
    at_equal_cost = (
        f" {', '.join(trained)}: the outputs after the method's own training are tested, at the "
        "moment after fine-tuning."
        if trained
        else ""
    )
    return [
        f"Methods against each other: paired approximate randomisation of the outputs for "
        f"{pairs[0].examples} examples, in which the models of all seeds swap their outputs of "
        "an example together; two-sided, with 10,000 trials. Holm's correction is for all "
        "pairs of methods of one amount at one moment. The tests are about other examples, "
        "not about other plans or fine-tunings. Models with the same output for every example are "
        f"left out.{at_equal_cost}"
    ]


def _ablation_note(comparison: Comparison) -> list[str]:
    ablation = comparison.scores.get("ablation")
    if ablation is None:
        return []
    others = "other scores but alone" if "alone" in comparison.scores else "other scores"
    return [
        f"ablation: drop of the {ablation.settings.get('metric')}, measured on other examples "
        f"than the {others} are computed on (part:ablation, part:scoring). Low numbers of "
        "entropy and alone are the good ones; their signs are turned round in correlations. "
        f"Intervals by bootstrap over {comparison.unit_names}."
    ]


def _seconds_note(comparison: Comparison) -> list[str]:
    if not comparison.costs:
        return []
    return [
        "Seconds to choose the units: on the machine of the comparison, for the plan of a seed "
        "that took longest, and the mean over seeds. Scores that are computed in one pass over the "
        "data have the time of this pass."
    ]
