"""The comparison and iterative pruning on a model that is made up."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import spearmanr

from headprune import DataError, HeadPlan, PruningPlan, UsageError
from headprune.compare.against_random import compare_with_random
from headprune.compare.claimed_folder import claim
from headprune.compare.comparison import Comparison
from headprune.compare.correlations import Correlation, correlation
from headprune.compare.costs import Costs
from headprune.compare.findings import against_random, all_tests, findings
from headprune.compare.iterate import iterate
from headprune.compare.records import BEFORE, Outcomes
from headprune.compare.report import Report
from headprune.compare.rows import Row, mean_seconds
from headprune.compare.run import compare
from headprune.compare.saved import load_report
from headprune.compare.speeds import speedups
from headprune.cost import Sizes
from headprune.methods import registry
from headprune.origin import Origin
from headprune.recovery.kinds import Recovery
from headprune.recovery.refit import RefittedModel
from headprune.recovery.variant import PLAIN
from headprune.report.make import report_of
from headprune.report.render import markdown
from headprune.report.table import summarise
from headprune.results.environment import Environment
from headprune.results.record import Record
from headprune.results.stats import Spread, spread
from headprune.scores import HeadScores
from headprune.scores.partial import Parts
from headprune.scores.random_values import random_values
from headprune.speed.forward_pass import Conditions
from headprune.speed.latency import Latency
from headprune.speed.turns import over_plans
from headprune.task_model import Measurement

SHAPE = {"ES": (4, 4)}
WORTH = {0: (9.0, 3.0, 2.0, 1.0), 1: (8.0, 0.5, 0.4, 0.1)}
"""What each head adds to the metric."""


@dataclass
class MadeModel:
    """A model of which only the plan and the shape are known."""

    plan: HeadPlan
    shape: Mapping[str, Sequence[int]]
    path: Path = Path("made")
    fingerprint: str = "made"
    sizes: Sizes = field(default_factory=Sizes)
    form: str | None = None

    @property
    def parameters(self):
        return self.parameters_with(self.plan)

    def parameters_with(self, plan):
        return 1000 + plan.total_kept

    def save(self, path):
        self.plan.save(path)


@dataclass
class Made:
    """Its metric is the sum of the worths of the heads that are left; fine-tuning adds 1."""

    plan: HeadPlan
    log: list[str]
    bonus: float = 0.0
    score_settings: dict[str, str] = field(default_factory=dict)
    can_finetune: bool = True
    finetune_name: str = "1ep"
    task: str = "made-up"
    metric: str = "points"
    data_name: str = "made.up"
    settings: dict[str, Any] = field(default_factory=lambda: {"model": "made up"})
    constant: Callable[[Made], bool] | None = None
    shape: dict[str, Any] | None = None
    metric_signature: str | None = None
    path: Path = Path("made")
    sizes: Sizes = Sizes()

    @property
    def training_settings(self):
        return {"schedule": self.settings.get("schedule")}

    @property
    def model(self):
        shape = self.plan.units | (self.shape or {})
        return MadeModel(self.plan, shape, self.path, str(self.path), self.sizes)

    def scores(self, names, *, seed, components=None):
        def values(name):
            if components is not None and [*components] != ["ES"]:
                return {
                    part: [[10.0 - layer] * units for layer, units in enumerate(self.shape[part])]
                    for part in components
                }
            if name == "random":
                return random_values(self.plan, seed=seed)
            sign = -1 if name == "entropy" else 1
            return {
                "ES": [
                    [sign * WORTH[n][h] if h in kept else None for h in range(4)]
                    for n, kept in enumerate(self.plan.kept["ES"])
                ]
            }

        self.log += [f"score {name}" for name in names]
        return {
            name: HeadScores(
                name=name, values=values(name), settings={"metric": "points"} | self.score_settings
            )
            for name in names
        }

    def measure(self, plan=None):
        self.log.append("measure")
        if plan is not None:
            return replace(self, plan=plan)._measured()
        return self._measured()

    def measure_held_out(self, plan=None):
        self.log.append("measure held-out")
        return (self if plan is None else replace(self, plan=plan))._measured()

    def _measured(self):
        kept = self.plan.kept["ES"]
        value = self.bonus + sum(WORTH[n][h] for n, heads in enumerate(kept) for h in heads)
        constant = None if self.constant is None else self.constant(self)
        return Measurement(
            value,
            constant,
            signature=self.metric_signature,
            fingerprint=f"weights of {self.plan}{self.path.name.removeprefix('made')}",
            packages=("numpy", "not-installed"),
        )

    def pruned(self, plan, folder):
        folder.mkdir(parents=True)
        (folder / "plan.json").write_text(plan.to_json())
        return replace(self, plan=plan)

    def finetuned(self, plan, *, seed, folder, variant=PLAIN):
        self.log.append(f"finetune {seed}")
        folder.mkdir(parents=True, exist_ok=True)
        gain = -5 if variant.from_scratch else 2 if variant.distilled else 1
        if variant.gates is not None:  # they close the last heads of the upper layer
            open_heads = plan.total_kept - round(variant.gates.budget.percent / 100 * 8)
            kept = [range(4), range(4 - (8 - open_heads))]
            plan = PruningPlan(kept={"ES": kept}, units=SHAPE)
        bonus = self.bonus + gain + seed / 10
        (folder / "plan.json").write_text(plan.to_json())
        (folder / "bonus").write_text(str(bonus))
        return replace(self, plan=plan, bonus=bonus, path=folder)

    def refitted(self, plan, *, target="output", trained=None):
        of = "" if trained is None else " with other weights"
        self.log.append(("refit" if target == "output" else f"refit {target}") + of)
        return RefittedModel(
            model=MadeModel(plan, self.plan.units), sublayers=(), data="made[12]", examples=12
        )

    def opened(self, path):
        if path.is_dir():  # fine-tuned
            bonus = float((path / "bonus").read_text())
            return replace(self, plan=PruningPlan.load(path / "plan.json"), bonus=bonus, path=path)
        plan = PruningPlan.load(path)
        return replace(self, plan=plan, bonus=0.0 if plan.is_full else 0.5)

    def seconds(self, plans, *, rounds):
        return [[float(plan.total_kept)] * rounds for plan in plans]


def subject(**options: Any) -> Made:
    return Made(plan=HeadPlan.full(SHAPE), log=[], **options)


def compared(made: Made, folder: Path, **options: Any):
    given = {"scores": ["gradient", "entropy"], "percents": [25.0, 50.0], "seeds": [1, 2, 3]}
    return compare(made, folder=folder, **{**given, **options})


def test_every_score_percentage_and_seed_is_measured(tmp_path):
    made = subject()
    result = compared(made, tmp_path)
    assert result.base == 24
    assert set(result.scores) == {"gradient", "entropy", "ablation", "random"}
    by_score = {
        name: [row for row in result.rows if row.score == name]
        for name in ("control", "gradient", "entropy", "random")
    }
    assert [len(rows) for rows in by_score.values()] == [3, 6, 6, 6]
    for name in ("gradient", "entropy"):  # low entropy is good: both keep what is worth most
        half = [row for row in by_score[name] if row.percent == 50]
        assert {row.before for row in half} == {9 + 3 + 2 + 8}
        assert [row.after for row in half] == pytest.approx([23.1, 23.2, 23.3])
        assert half[0].plan["kept"]["ES"] == [[0, 1, 2], [0]]
        assert half[0].parameters == 1004
    assert len({str(row.plan) for row in by_score["random"] if row.percent == 50}) == 3
    assert result.speedups["random"][50.0] == (2.0, 2.0, 2.0)


def test_the_same_plan_is_measured_once_and_a_finished_comparison_never_again(tmp_path):
    made = subject()
    first = compared(made, tmp_path)
    tuned = sum(line.startswith("finetune") for line in made.log)
    plans = {(row.head_plan, row.seed) for row in first.rows}
    assert tuned == len(plans) < len(first.rows)
    again = subject()
    second = compared(again, tmp_path)
    assert second.rows == first.rows and second.speedups == first.speedups
    assert again.log == ["score random"]


@pytest.mark.parametrize("method", ["random", "top"])
def test_a_plan_that_is_drawn_twice_counts_twice(method, tmp_path):
    found = compared(
        *(subject(), tmp_path), scores=[method, "gradient"], percents=[25.0], seeds=range(1, 31)
    )
    drawn = [row for row in found.rows if row.score == method]
    assert len({row.head_plan for row in drawn}) < len(drawn) == 30
    cells = {name: Outcomes.of(found).cell(name, 25.0, BEFORE) for name in (method, "gradient")}
    assert {name: cell.value.n for name, cell in cells.items()} == {method: 30, "gradient": 1}
    assert cells[method].value.mean == pytest.approx(np.mean([row.before for row in drawn]))


def test_one_that_was_killed_goes_on(tmp_path):
    made = subject()
    compared(made, tmp_path)
    lost = sorted((tmp_path / "after").glob("*.json"))[:2]
    for path in lost:
        path.unlink()
    again = subject()
    compared(again, tmp_path)
    assert sum(line.startswith("finetune") for line in again.log) == 2


def test_rows_say_whether_their_fine_tuning_was_resumed(tmp_path):
    first = compared(subject(), tmp_path)
    assert {row.resumed for row in first.rows} == {False}
    resumed, old = sorted((tmp_path / "after").glob("*.json"))[:2]
    resumed.unlink()
    checkpoint = resumed.with_suffix("") / "training" / "checkpoint_last.pt"
    checkpoint.parent.mkdir(parents=True)
    checkpoint.touch()
    old.write_text(json.dumps({"value": json.loads(old.read_text())["value"]}))
    again = compared(subject(), tmp_path)
    assert [row.after for row in again.rows] == [row.after for row in first.rows]
    assert {row.resumed for row in again.rows} == {False, True, None}
    Report.of(again).save(tmp_path, title="T")
    rows = json.loads((tmp_path / "compare.json").read_text())["rows"]
    assert [row["resumed"] for row in rows] == [row.resumed for row in again.rows]


def is_small(made: Made) -> bool:
    return made.plan.total_kept <= 4 and made.bonus == 0


def test_figures_of_constant_models_are_marked(tmp_path):
    compared(subject(constant=is_small), tmp_path)
    again = subject()
    found = compared(again, tmp_path)  # from the files
    assert again.log == ["score random"]
    assert found.constant is False
    for row in found.rows:
        assert row.constant is False and row.constant_before is (row.percent == 50)
    text = Report.of(found).markdown(title="T")
    after, before = text.split("right after pruning:")
    assert "†" not in after
    lines = [line for line in before.splitlines() if line.startswith(("| gradient", "| random"))]
    marked = [[cell.strip().endswith("†") for cell in line.split("|")[2:4]] for line in lines[:2]]
    assert marked == [[False, True]] * 2
    assert "- †: the model of one seed or more gives the same output for every example" in text
    Report.of(found).save(tmp_path, title="T")
    rows = json.loads((tmp_path / "compare.json").read_text())["rows"]
    assert [row["constant_before"] for row in rows] == [row.constant_before for row in found.rows]


def test_each_constant_model_is_named_once(tmp_path, capsys):
    both = {"recoveries": [Recovery.REFIT, Recovery.FINETUNE], "rounds": 0}
    small = {"scores": ["gradient"], "percents": [50.0], "seeds": [1, 2], **both}
    compared(subject(constant=is_small), tmp_path, **small)
    says_same = ": gives the same output for every example"
    warned = [line for line in capsys.readouterr().err.splitlines() if "warning" in line]
    assert warned == [
        f"warning: {name} 50%, seed {seed}, right after pruning{says_same}"
        for name, seed in (("gradient", 1), ("random", 1), ("random", 2))
    ]
    compared(subject(constant=lambda _: True), tmp_path / "all", **small)
    said = capsys.readouterr().err
    assert said.count(f"warning: the model as it was given (made){says_same}") == 1
    for moment in ("after re-fitting", "after fine-tuning"):
        assert said.count(f"warning: gradient 50%, seed 1, {moment}{says_same}") == 1


def test_the_unpruned_and_the_fine_tuned_model_may_be_constant(tmp_path):
    found = compared(subject(constant=lambda _: True), tmp_path)
    text = Report.of(found).markdown(title="T")
    lines = [line for line in text.splitlines() if line.startswith("| not pruned")]
    assert len(lines) == 2 and all(line.count("†") == 2 for line in lines)
    assert found.constant and all(row.constant for row in found.rows)
    unknown = compared(subject(), tmp_path / "other")
    assert "†" not in Report.of(unknown).markdown(title="T")
    assert all(row.constant is None for row in unknown.rows)


def test_without_fine_tuning_there_is_neither_control_nor_after(tmp_path):
    result = compared(subject(can_finetune=False, finetune_name="none"), tmp_path, rounds=0)
    assert all(row.after is None and row.score != "control" for row in result.rows)
    report = Report.of(result)
    assert "after fine-tuning" not in report.markdown(title="T").replace("and after fine", "")
    assert not result.speedups


def test_models_are_refitted_instead_of_fine_tuned(tmp_path):
    made = subject(can_finetune=False, finetune_name="none")
    options = {"recoveries": [Recovery.REFIT], "rounds": 0}
    found = compared(made, tmp_path, **options)
    assert all(row.after == row.before + 0.5 for row in found.rows)
    assert {row.score for row in found.rows} == {"gradient", "entropy", "random"}
    plans = {row.head_plan for row in found.rows}
    assert made.log.count("refit") == len(plans) < len(found.rows)
    again = subject(can_finetune=False, finetune_name="none")
    assert compared(again, tmp_path, **options).rows == found.rows
    assert again.log == ["score random"]
    (tmp_path / "settings.json").write_text(  # as older versions wrote it
        json.dumps(json.loads((tmp_path / "settings.json").read_text()) | {"recovery": "refit"})
    )
    both = {"recoveries": [Recovery.REFIT, Recovery.NONE], "rounds": 0}
    assert compared(again, tmp_path, **both).rows == found.rows
    compared(again, tmp_path, **options)

    assert {*found.recovery_seconds} == {"before", "refit"}
    text = Report.of(found).markdown(title="T")
    assert "Seconds for a model, the measurement included:" in text
    records = [Record.load(path) for path in (tmp_path / "records/refitted").rglob("*.json")]
    assert records and all(
        "|finetune:none|recovery:refit[12]|" in each.signature for each in records
    )
    assert {each.kind for each in records} == {"refitted"}
    # One plan has one value for all seeds.
    assert len([*(tmp_path / "records/refitted/gradient/50pct").iterdir()]) == 1
    report = Report.of(found)
    text = report.markdown(title="T")
    assert "points after re-fitting:" in text and "After re-fitting, at 50%, " in text
    assert "after fine-tuning" not in text
    report.save(tmp_path, title="T")
    title, read = load_report(tmp_path)
    assert read.markdown(title=title) == text
    assert "--recovery=refit" in report_of([tmp_path], test=False).markdown
    with pytest.raises(UsageError, match="give no epochs or flags"):
        compared(subject(), tmp_path / "other", **options)


def test_both_targets_of_refitting_in_one_comparison(tmp_path, capsys):
    """Each target has its own numbers and records, and is set beside the model as it was given."""
    made = subject(can_finetune=False, finetune_name="none")
    both = [Recovery.REFIT, Recovery.REFIT_RESIDUAL]
    found = compared(made, tmp_path, recoveries=both, rounds=0)
    assert {row.recovery for row in found.rows} == {"refit", "refit-residual"}
    assert made.log.count("refit") == made.log.count("refit residual") > 0
    for folder, name in (("refitted", "refit"), ("refitted-refit-residual", "refit-residual")):
        records = [Record.load(path) for path in (tmp_path / "records" / folder).rglob("*.json")]
        assert records and {each.kind for each in records} == {"refitted"}
        assert all(f"|finetune:none|recovery:{name}[12]|" in each.signature for each in records)
    Report.of(found).save(tmp_path, title="T")
    text = Report.of(found).markdown(title="T")
    assert "points after re-fitting with the residual connection:" in text
    assert sum(line.startswith("| not pruned") for line in text.splitlines()) == 3
    pages = report_of([tmp_path], test=False).markdown
    assert "--recovery=refit --recovery=refit-residual" in pages
    assert "claims are left out" not in capsys.readouterr().err


def test_several_recoveries_have_rows_and_records_of_their_own(tmp_path):
    made = subject()
    found = compared(made, tmp_path, recoveries=[Recovery.REFIT, Recovery.FINETUNE], rounds=0)
    first, second = (
        next(row for row in found.rows if (row.score, row.recovery) == ("gradient", name))
        for name in ("refit", "finetune")
    )
    assert first.plan == second.plan and first.before == second.before
    assert first.after == first.before + 0.5 and second.after == second.before + 1.1
    # What is not pruned is fine-tuned, as a control, but there is nothing to re-fit.
    assert {row.recovery for row in found.rows if row.score == "control"} == {"finetune"}
    assert len([*(tmp_path / "records/refitted").rglob("*.json")])
    assert len([*(tmp_path / "records/pruned").rglob("*.json")])
    report = Report.of(found)
    text = report.markdown(title="T")
    for caption in ("after re-fitting", "after fine-tuning", "right after pruning"):
        assert f"points {caption}:" in text
    report.save(tmp_path, title="T")
    title, read = load_report(tmp_path)
    assert read.markdown(title=title) == text
    page = report_of([tmp_path], test=False).markdown
    assert "--recovery=refit --recovery=finetune" in page


def test_claims_of_a_page_are_on_one_of_several_trainings(tmp_path):
    asked = [Recovery.DISTILL, Recovery.FINETUNE]
    options = {"task": "translation", "metric": "BLEU"}
    for order in (asked, asked[::-1]):
        folder = tmp_path / order[0]
        found = compared(
            subject(**options),
            folder,
            scores=["gradient", "adversarial"],
            recoveries=order,
            rounds=0,
            percents=[50.0],
        )
        Report.of(found).save(folder, title="T")
        page = markdown.render(report_of([folder / "compare.json"], test=False).page)
        assert "Claims are left out" not in page
        outcome = next(line for line in page.split("\n") if "does not strongly inform" in line)
        after = {
            name: [
                row.after for row in found.rows if (row.score, row.recovery) == (name, "finetune")
            ]
            for name in ("gradient", "adversarial")
        }
        effect = np.mean(after["gradient"]) - np.mean(after["adversarial"])
        assert f" {effect:+.2f} BLEU |" in outcome


def test_a_page_of_two_comparisons_of_one_title(tmp_path):
    """Their trainings are of two kinds, in an order in which the first prunes no trained model."""
    options = {"task": "translation", "metric": "BLEU", "bonus": 5.0}
    for name in ("one", "other"):
        found = compared(
            subject(**options),
            tmp_path / name,
            scores=["gradient", "adversarial"],
            recoveries=[Recovery.SCRATCH, Recovery.DISTILL],
            rounds=0,
            percents=[50.0],
        )
        Report.of(found).save(tmp_path / name, title="T")
    files = [tmp_path / name / "compare.json" for name in ("one", "other")]
    page = markdown.render(report_of(files, test=False).page)
    assert "Claims are left out" not in page and "T (2)" in page


def test_trainings_of_three_kinds_stand_beside_each_other(tmp_path):
    asked = [Recovery.FINETUNE, Recovery.DISTILL, Recovery.SCRATCH]
    found = compared(subject(), tmp_path, recoveries=asked, rounds=0, percents=[50.0])
    gains = {
        recovery: {
            round(row.after - row.before - row.seed / 10, 6)
            for row in found.rows
            if row.recovery == recovery
        }
        for recovery in asked
    }
    assert gains == {"finetune": {1}, "distill": {2}, "scratch": {-5}}
    # Each has a control of its own.
    assert {row.recovery for row in found.rows if row.score == "control"} == {*asked}
    records = [Record.load(path) for path in (tmp_path / "records").rglob("*.json")]
    # Each measurement has a file, and a signature in the report.
    distinct = Outcomes.of(found).distinct
    assert len({each.file for each in distinct}) == len(distinct) == len(records)
    text = Report.of(found).markdown(title="T")
    for recovery in ("scratch|", "distill[weight=0.5,temperature=2"):
        assert f"select:gradient|seed:*|form:remove|finetune:1ep|recovery:{recovery}" in text
    assert "select:gradient|seed:*|form:remove|finetune:1ep|data:" in text
    scratch = [each for each in records if "|recovery:scratch|" in each.signature]
    assert {each.kind for each in scratch} == {"control", "scratch"}
    assert all(each.finetune == "1ep" for each in scratch)
    again = subject()
    assert compared(again, tmp_path, recoveries=asked, rounds=0, percents=[50.0]).rows == found.rows
    assert again.log == ["score random"]
    with pytest.raises(UsageError, match="distill-sequences: made does not translate; take --reco"):
        compared(subject(), tmp_path / "other", recoveries=[Recovery.DISTILL_SEQUENCES])
    with pytest.raises(UsageError, match="--recovery scratch: give --epochs, or --finetune"):
        untrained = subject(can_finetune=False)
        compared(untrained, tmp_path / "other", recoveries=[Recovery.SCRATCH])


def test_a_method_that_trains_is_measured_on_its_own_model(tmp_path):
    options = {"scores": ["l0-gates"], "percents": [50.0], "rounds": 1}
    both = [Recovery.FINETUNE, Recovery.REFIT]
    made = subject()
    found = compared(made, tmp_path, recoveries=both, **options)
    rows = [row for row in found.rows if row.score == "l0-gates" and row.recovery == "finetune"]
    # Its training adds 1, the fine-tuning after it another 1.
    assert [row.before for row in rows] == [16 + seed / 10 for seed in (1, 2, 3)]
    assert [row.after for row in rows] == [pytest.approx(17 + seed / 5) for seed in (1, 2, 3)]
    assert {str(row.head_plan.origin) for row in rows} == {
        str(Origin(method="l0-gates", seed=seed, budget="50%")) for seed in (1, 2, 3)
    }
    assert all(row.plan["kept"] == {"ES": [[0, 1, 2, 3], []]} for row in rows)
    assert not (tmp_path / "methods").exists()
    # Its model is re-fitted to the outputs of the given one, as it has no unpruned model itself.
    assert {row.recovery for row in found.rows if row.score == "l0-gates"} == {"finetune", "refit"}
    assert made.log.count("refit with other weights") == 3
    re_fits = [*(tmp_path / "records" / "refitted" / "l0-gates" / "50pct").iterdir()]
    assert {Record.load(path).finetune for path in re_fits} == {"1ep"} and len(re_fits) == 3
    # Every seed has a model of its own, with a record that counts its trainings.
    cell = Outcomes.of(found).cell("l0-gates", 50.0, "before")
    assert cell is not None and cell.value == spread([16.1, 16.2, 16.3])
    for kind, length in (("before-finetune", "1ep"), ("pruned", "1ep+1ep")):
        paths = [*(tmp_path / "records" / kind / "l0-gates" / "50pct").iterdir()]
        assert len(paths) == 3
        assert all(Record.load(path).finetune == length for path in paths)
    # The tests compare it, after its one training, with random plans after theirs.
    report = Report.of(found)
    assert not [
        sentence
        for sentence in report.findings
        if "l0-gates" in sentence and not sentence.startswith("After fine-tuning")
    ]
    (sentence,) = (each for each in report.findings if "l0-gates" in each)
    random = [
        row.after for row in found.rows if (row.score, row.recovery) == ("random", "finetune")
    ]
    assert f"l0-gates after its own training alone {16.2 - sum(random) / 3:+.2f}" in sentence
    text = report.markdown(title="T")
    assert "l0-gates: the method trains the model" in text
    assert "of the other scores but l0-gates are the same for every seed" in text
    again = subject()
    assert compared(again, tmp_path, recoveries=both, **options).rows == found.rows
    assert again.log == ["score random"]
    # Gates without any recovery still need the settings of a training.
    alone = compared(subject(), tmp_path / "alone", recoveries=[Recovery.NONE], **options)
    assert {row.recovery for row in alone.rows} == {None}
    untrained, whole = subject(can_finetune=False), subject()
    with pytest.raises(UsageError, match="l0-gates trains the model: give --epochs"):
        compared(untrained, tmp_path / "other", **options)
    with pytest.raises(UsageError, match="layerdrop drops whole layers; give --components EL"):
        compared(whole, tmp_path / "layers", **{**options, "scores": ["layerdrop"]})
    assert not untrained.log and not whole.log  # before anything is measured


def test_every_method_has_its_own_speed_and_cost(tmp_path):
    found = compared(
        subject(), tmp_path, percents=[50.0], scores=["gradient", "adversarial", "iterate"]
    )
    assert {*found.speedups} == {"gradient", "adversarial", "iterate", "random"}
    assert all(each == {50.0: (2.0, 2.0, 2.0)} for each in found.speedups.values())
    assert {*found.costs} == {"gradient", "adversarial", "iterate"}
    kept = {row.score: row.plan["kept"]["ES"] for row in found.rows}
    assert kept["gradient"] == [[0, 1, 2], [0]] and kept["adversarial"] == [[3], [1, 2, 3]]
    report = Report.of(found)
    text = report.markdown(title="T")
    assert text.count("2.00 (2.00 to 2.00)") == 4
    assert "Seconds to choose the units" in text
    report.save(tmp_path, title="T")
    assert (tmp_path / "speed.png").is_file()
    # Costs are of the first run, and stay when a comparison is run again.
    again = compared(
        subject(), tmp_path, percents=[50.0], scores=["gradient", "adversarial", "iterate"]
    )
    assert again.costs == found.costs


def test_costs_are_of_the_first_run_and_trainings_count_once(tmp_path):
    costs = Costs(tmp_path / "costs.json")
    costs.add_score("gradient", 2.0)
    costs.add_score("fisher", 2.0)  # in the same pass
    costs.add_score("magnitude", 0.5)
    for seed, seconds in ((1, 10.0), (1, 0.0), (2, 14.0)):  # two budgets share the first training
        costs.add_method("layerdrop", seed=seed, seconds=seconds)
    costs.add_method("gradient", seed=1, seconds=1.0)
    again = Costs(tmp_path / "costs.json")
    again.add_score("gradient", 99.0)
    assert again.of("layerdrop", []) == 12.0
    assert again.of("combination", ["gradient", "fisher"]) == 2.0
    assert again.of("adversarial", ["magnitude"]) == 0.5
    assert again.of("random", []) is None
    assert again.of("gradient", ["gradient"]) == 3.0


def test_times_are_taken_some_plans_at_a_time_and_used_again(tmp_path):
    taken = []

    def time(numbers):
        taken.append([*numbers])
        return [[1.0 / (number + 1)] * 3 for number in numbers]

    path, names = tmp_path / "seconds.json", [f"plan{number}" for number in range(7)]
    first = speedups(path, names[:2], rounds=3, time=time)
    assert first == [(1, 1, 1), (2, 2, 2)] and json.loads(path.read_text())["plans"] == names[:2]
    assert speedups(path, names, rounds=3, time=time)[5] == (6, 6, 6)
    assert taken == [[0, 1], [0, 2, 3, 4, 5], [0, 6]]
    assert speedups(path, names, rounds=3, time=time) == [(n, n, n) for n in range(1, 8)]
    assert len(taken) == 3
    speedups(path, names[:2], rounds=5, time=time)  # other rounds
    assert len(taken) == 4


def test_a_broken_file_of_costs_is_named(tmp_path):
    (tmp_path / "costs.json").write_text('{"gradient": [1]}')
    with pytest.raises(DataError, match=r"costs\.json: not a file of costs"):
        Costs(tmp_path / "costs.json")


def test_one_component_alone_is_pruned(tmp_path):
    made = subject()
    result = compared(made, tmp_path, components=["ES"], percents=[50.0])
    assert {row.pruned for row in result.rows if row.score != "control"} == {50.0}
    with pytest.raises(UsageError, match="made has no ED; it has ES"):
        compared(made, tmp_path / "other", components=["ED"])


def test_budgets_of_parameters_have_records_and_tables_of_their_own(tmp_path):
    made = subject(can_finetune=False, finetune_name="none")
    made.shape = {"ES": (4, 4), "EF": (10, 10), "EL": (1, 1)}
    options = {"scores": ["magnitude"], "percents": [50.0], "rounds": 0}
    result = compared(made, tmp_path, **options, measure="parameters", components=["ES", "EL"])
    (row, *_) = (row for row in result.rows if row.score == "magnitude")
    assert row.head_plan.units == {"ES": (4, 4), "EL": (1, 1)}
    # Of two layers and their heads, the upper one is worth less: it goes, as a whole.
    assert row.plan["kept"] == {"ES": [[0, 1, 2, 3], []], "EL": [[0], []]}
    (record,) = (tmp_path / "records").glob("before-finetune/magnitude/50pct-parameters/*.json")
    loaded = Record.load(record)
    assert loaded.row == "magnitude 50% of parameters" and loaded.requested_percent is None
    assert loaded.fingerprint == "weights of " + str(loaded.plan)
    report = Report.of(result)
    text = report.markdown(title="T")
    assert (
        "| parameters pruned " in text
        and "of the parameters that pruning all units of ES, EL would" in text
    )
    report.save(tmp_path, title="T")
    title, read = load_report(tmp_path)
    assert title == "T" and read.markdown(title="T") == text


BLEU_SIGNATURE = "nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:2.5.1"


def translation_compared(folder: Path, **options: Any) -> Comparison:
    """A comparison of a translation model, with its report."""
    made = subject(task="translation", metric="BLEU", metric_signature=BLEU_SIGNATURE)
    comparison = compared(made, folder, **{"percents": [33.333333, 50.0], **options})
    Report.of(comparison).save(folder, title="T")
    return comparison


def test_a_comparison_is_read_as_it_was_written(tmp_path):
    comparison = translation_compared(tmp_path, at_least=0)
    title, report = load_report(tmp_path)
    read = report.comparison
    for name in ("task", "model", "plan", "metric_signature", "fingerprint", "at_least", "base"):
        assert getattr(read, name) == getattr(comparison, name), name
    assert read.metric_signature == BLEU_SIGNATURE and read.at_least == 0
    assert read.speedups == comparison.speedups and read.costs == comparison.costs
    assert {*read.speedups} == {"gradient", "entropy", "random"}
    assert {*read.speedups["random"]} == {33.333333, 50.0}
    assert read.scores == comparison.scores
    records = [each.record for each in Outcomes.of(read).all]
    assert [(each.kind, each.task, each.metrics) for each in records] == [
        (each.record.kind, each.record.task, each.record.metrics)
        for each in Outcomes.of(comparison).all
    ]
    assert records[0].kind == "baseline"
    assert report.markdown(title=title) == (tmp_path / "compare.md").read_text()
    report.save(tmp_path / "again", title=title)
    for name in ("compare.json", "compare.csv"):
        assert (tmp_path / "again" / name).read_text() == (tmp_path / name).read_text()
    assert BLEU_SIGNATURE in report_of([tmp_path], test=False).markdown


def test_an_older_comparison_has_its_names_in_the_markdown(tmp_path):
    comparison = translation_compared(tmp_path)
    path = tmp_path / "compare.json"
    content = json.loads(path.read_text())
    for name in ("task", "data_name", "finetune_name", "metric_signature", "score_signatures"):
        del content[name]
    for name in ("model", "fingerprint", "plan", "at_least"):
        del content[name]
    path.write_text(json.dumps(content))
    read = load_report(tmp_path)[1].comparison
    for name in ("task", "data_name", "finetune_name", "metric_signature", "scores"):
        assert getattr(read, name) == getattr(comparison, name), name
    assert read.plan is None and read.at_least is None


def test_percentages_that_differ_little_have_records_of_their_own(tmp_path):
    compared(subject(), tmp_path, percents=[33.333333, 33.3333], seeds=[1], rounds=0)
    assert {path.name for path in (tmp_path / "records/pruned/gradient").iterdir()} == {
        "33.333333pct",
        "33.3333pct",
    }


def test_neurons_are_compared_without_ablation(tmp_path):
    made = subject(can_finetune=False, finetune_name="none")
    made.shape = {"ES": (4, 4), "EF": (10, 10)}
    options = {"scores": ["magnitude"], "percents": [50.0], "rounds": 0, "components": ["EF"]}
    result = compared(made, tmp_path, **options)
    assert set(result.scores) == {"magnitude", "random"}
    assert {row.pruned for row in result.rows} == {50.0}
    assert {row.head_plan.counts["ES"] for row in result.rows} == {(4, 4)}
    report = Report.of(result)
    report.save(tmp_path, title="T")
    text = (tmp_path / "compare.md").read_text()
    assert "| neurons pruned " in text and "ablation" not in text and "correlat" not in text[-900:]
    assert not (tmp_path / "correlations.png").exists()
    with pytest.raises(UsageError, match=r"other settings \(component\)"):
        compared(made, tmp_path, **{**options, "components": ["ES"]})


def test_times_are_taken_as_often_as_asked(tmp_path):
    compared(subject(), tmp_path, rounds=7)
    compared(subject(), tmp_path, rounds=3)
    assert {
        len(each) for each in json.loads((tmp_path / "seconds.json").read_text())["seconds"]
    } == {3}


def test_what_cannot_be_is_found_before_anything_is_scored(tmp_path):
    made = subject()
    with pytest.raises(UsageError, match="at_least=2 keeps 4 heads"):
        compared(made, tmp_path, percents=[25.0, 90.0], at_least=2)
    assert made.log == [] and not list(tmp_path.iterdir())
    both = Made(plan=HeadPlan.full({**SHAPE, "ED": (4, 4)}), log=[])
    with pytest.raises(UsageError, match="next is no score of ED; compare it with --component"):
        compared(both, tmp_path, scores=["next"])
    layers = Made(plan=HeadPlan.full({**SHAPE, "EL": (1, 1)}), log=[])
    with pytest.raises(UsageError, match="adversarial chooses by gradient, which is no score of E"):
        compared(layers, tmp_path, scores=["adversarial"], components=["EL"])
    with pytest.raises(UsageError, match="layers-top drops whole layers, not units of ES"):
        compared(layers, tmp_path, scores=["gradient", "layers-top"])
    with pytest.raises(UsageError, match="a layer costs more than a head or a neuron; give a bud"):
        compared(layers, tmp_path, components=["ES", "EL"])
    for method, message in {
        "kwon": "kwon chooses heads and neurons, not EL",
        "subnetwork": "subnetwork chooses heads and MLPs, not EL",
    }.items():
        with pytest.raises(UsageError, match=message):
            compared(layers, tmp_path, scores=[method], components=["EL"])
    assert layers.log == [] and not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("method", "advice"),
    [
        ("gradient", "give one that is not, such as gradient-raw or taylor"),
        ("adversarial", "take gradient-raw-important-first in the place of adversarial"),
    ],
)
def test_scores_that_are_not_on_one_scale_are_found_at_the_start(tmp_path, method, advice):
    made = Made(plan=HeadPlan.full({**SHAPE, "EF": (10, 10)}), log=[])
    message = f"the score gradient is divided by the norm of each layer, .*; {advice}"
    with pytest.raises(UsageError, match=message):
        compared(made, tmp_path, scores=[method], components=["ES", "EF"], rounds=0)
    assert made.log == [] and not list(tmp_path.iterdir())


def test_scores_that_cannot_be_compared_are_found_before_a_model_is_trained(tmp_path):
    """The registration of a score may not say that its numbers are normalised."""
    made = subject(score_settings={"normalised": "l2 per layer"})
    made.shape = {"ES": (4, 4), "EF": (10, 10)}
    with pytest.raises(UsageError, match="the score taylor is divided by the norm of each layer"):
        compared(made, tmp_path, scores=["taylor"], components=["ES", "EF"], rounds=0)
    assert not any(each.startswith("finetune") for each in made.log)


def test_too_few_examples_of_a_re_fit_are_found_before_a_model_is_trained(tmp_path, monkeypatch):
    def too_few(*_, **__):
        raise DataError("225 unknowns and 75 tokens only")

    monkeypatch.setattr(Made, "refitted", too_few)
    made = subject()
    recoveries = [Recovery.DISTILL, Recovery.FINETUNE, Recovery.REFIT]
    with pytest.raises(DataError, match="75 tokens only"):
        compared(made, tmp_path, scores=["gradient"], recoveries=recoveries, rounds=0)
    assert not any(each.startswith(("finetune", "distill")) for each in made.log)


def test_a_kill_while_a_fine_tuned_model_is_removed_costs_nothing(tmp_path, monkeypatch):
    class Killed(Exception):
        pass

    def killed(path, **_):
        if path.name.endswith("seed1"):
            raise Killed

    import headprune.compare.store as module

    with monkeypatch.context() as patch:
        patch.setattr(module.shutil, "rmtree", killed)
        with pytest.raises(Killed):
            compared(subject(), tmp_path)
    again = subject()
    result = compared(again, tmp_path)
    tuned = sum(line.startswith("finetune") for line in again.log)
    assert tuned == len({(row.head_plan, row.seed) for row in result.rows}) - 1
    assert not [path for path in (tmp_path / "after").iterdir() if path.is_dir()]


def test_only_some_scores_need_be_fine_tuned(tmp_path):
    result = compared(subject(), tmp_path, scores=["gradient", "taylor"], tuned=["taylor"])
    without = {row.score for row in result.rows if row.after is None}
    assert without == {"gradient"}
    report = Report.of(result)
    tables = report.markdown(title="T").split("right after pruning:")
    assert "| gradient" not in tables[0] and "| gradient" in tables[1]
    report.save(tmp_path, title="T")
    with pytest.raises(UsageError, match="hoyer is to be fine-tuned, but is not among"):
        compared(subject(), tmp_path / "other", tuned=["hoyer"])


def test_a_folder_of_other_settings_is_refused(tmp_path):
    compared(subject(), tmp_path)
    with pytest.raises(UsageError, match=r"holds results of other settings \(model\)"):
        compared(subject(settings={"model": "another"}), tmp_path)
    with pytest.raises(UsageError, match=r"other settings \(at_least\)"):
        compared(subject(), tmp_path, at_least=0)


def test_a_folder_in_which_nothing_was_done_yet_takes_other_settings(tmp_path):
    claim(tmp_path, {"model": "mistyped"})
    compared(subject(), tmp_path)
    with pytest.raises(UsageError, match="other settings"):
        claim(tmp_path, {"model": "another"})


def test_the_speed_of_several_plans_is_over_their_medians() -> None:
    assert over_plans([(1.5, 1.4, 1.6)]) == (1.5, 1.4, 1.6)
    several = [(1.0, 0.9, 1.1), (2.0, 1.9, 2.1), (3.0, 2.9, 3.1)]
    assert over_plans(several) == (2.0, 1.5, 2.5)


@pytest.mark.parametrize("name", ["work/notes.txt", "methods/own.py", "compare.md"])
def test_a_folder_with_files_of_others_is_refused(name, tmp_path):
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_text("precious")
    with pytest.raises(UsageError, match=r"has files of something else \((work|methods|compare)"):
        compared(subject(), tmp_path)
    assert path.read_text() == "precious"
    assert [each for each in tmp_path.rglob("*") if each.is_file()] == [path]


def test_a_folder_gains_recoveries_methods_and_seeds(tmp_path):
    """Finished rows stay as they are; settings of a training come with the first of its kind."""
    options = {"percents": [50.0], "rounds": 0}
    plain = subject(can_finetune=False, settings={"model": "made up", "schedule": []})
    compared(plain, tmp_path, seeds=[1], recoveries=[Recovery.REFIT], **options)
    settings = {"model": "made up", "schedule": ["--epochs", "1"]}
    tuned = subject(settings=settings)
    both = [Recovery.REFIT, Recovery.FINETUNE]
    found = compared(tuned, tmp_path, seeds=[1, 2], recoveries=both, **options)
    assert {(row.recovery, row.seed) for row in found.rows if row.score == "gradient"} == {
        (name, seed) for name in both for seed in (1, 2)
    }
    assert tuned.log.count("refit") == 1  # the random plan of the second seed
    again = subject(settings=settings)
    more = [*both, Recovery.DISTILL]
    wider = {"percents": [25.0, 50.0], "rounds": 0}
    grown = compared(again, tmp_path, seeds=[1, 2], recoveries=more, **wider)
    assert all(row in grown.rows for row in found.rows)
    assert {row.recovery for row in grown.rows} == {*more}
    # Without the recovery that trains, its settings stay in the folder.
    compared(plain, tmp_path, seeds=[1], recoveries=[Recovery.REFIT], **options)
    with pytest.raises(UsageError, match=r"other settings \(schedule\)"):
        compared(subject(settings={**settings, "schedule": ["--epochs", "2"]}), tmp_path, **options)
    with pytest.raises(UsageError, match=r"other settings \(model\)"):
        compared(subject(settings={**settings, "model": "another"}), tmp_path, **options)


def test_a_score_of_a_fine_tuning_is_bound_to_its_schedule(tmp_path):
    """That of movement is the schedule of the fine-tunings after pruning."""
    plain = subject(can_finetune=False, settings={"model": "made up", "schedule": []})
    tuned = subject(settings={"model": "made up", "schedule": ["--epochs", "2"]})
    movement = {"percents": [50.0], "rounds": 0, "seeds": [1], "scores": ["movement"]}
    gradient = movement | {"scores": ["gradient"]}
    compared(plain, tmp_path / "one", recoveries=[Recovery.NONE], **movement)
    with pytest.raises(UsageError, match=r"other settings \(schedule\)"):
        compared(tuned, tmp_path / "one", **gradient)
    compared(tuned, tmp_path / "other", **gradient)
    compared(plain, tmp_path / "other", recoveries=[Recovery.NONE], **gradient)
    with pytest.raises(UsageError, match=r"other settings \(schedule\)"):
        compared(plain, tmp_path / "other", recoveries=[Recovery.NONE], **movement)


LATENCY = Latency(
    conditions=Conditions(batch=2, length=8, threads=1, device="cpu"),
    device="a processor",
    dtype="float32",
    model="made",
    fingerprint="1234",
    library="torch",
    shape={"ES": (4, 4), "EL": (1, 1)},
    sizes=asdict(Sizes()),
    seconds=10.0,
    saved={"ES": {0: 2.0, 1: 1.5, 2: 1.0, 4: 0.0}, "EL": {0: 4.5, 1: 0.0}},
    rounds=3,
)


def test_every_method_reaches_the_same_predicted_speed(tmp_path, monkeypatch):
    monkeypatch.setattr(
        "headprune.compare.store.seconds_of",
        lambda model, plans, conditions, rounds: [
            [LATENCY.seconds_of(plan) * 1.1 ** (not plan.is_full)] * rounds for plan in plans
        ],
    )
    options = {"scores": ["taylor", "adversarial", "top"], "measure": "speed", "rounds": 1}
    options |= {"percents": [1.25, 1.4], "latency": LATENCY, "recoveries": [Recovery.REFIT]}
    made = subject(can_finetune=False, finetune_name="none")
    found = compared(made, tmp_path, **options)
    assert {row.score for row in found.rows} == {"taylor", "adversarial", "top", "random"}
    for row in found.rows:
        seconds = LATENCY.seconds_of(row.head_plan)
        assert row.predicted_speedup == pytest.approx(10 / seconds)
        # No unit could have stayed, as the next number of heads saves 0.5 seconds less.
        assert seconds <= 10 / row.percent < seconds + 0.5 + 1e-9, row
        predicted = row.predicted_speedup
        assert found.speedups[row.score][row.percent][0] == pytest.approx(predicted / 1.1)
    draws = {str(row.plan["kept"]) for row in found.rows if row.score == "random"}
    assert len(draws) > 2
    worth = {row.score: row.before for row in found.rows if row.percent == 1.25}
    assert worth["adversarial"] < worth["taylor"]
    report = Report.of(found)
    text = report.markdown(title="T")
    assert "| speed asked for " in text and "| 1.4x " in text and "| predicted speed " in text
    assert "Right after pruning, at 1.25x speed, " in text
    assert "forward pass over 2 x 8 tokens, 1 threads, a processor" in text
    report.save(tmp_path, title="T")
    title, read = load_report(tmp_path)
    assert read.markdown(title=title) == text
    (record,) = (tmp_path / "records/before-finetune/taylor/1.4x").iterdir()
    loaded = Record.load(record)
    assert loaded.row == "taylor 1.4x speed" and loaded.requested_percent is None
    assert loaded.training["predicted_speedup"] >= 1.4
    page = report_of([tmp_path], test=False).markdown
    assert "--speedup=1.25 --speedup=1.4 --latency=latency.json" in page
    again = subject(can_finetune=False, finetune_name="none")
    assert compared(again, tmp_path, **options).rows == found.rows
    assert again.log == ["score random"]
    # The folder can hold shares too, but not the speeds of other times.
    shares = compared(again, tmp_path, scores=["taylor"], recoveries=[Recovery.REFIT], rounds=0)
    assert {row.percent for row in shares.rows} == {25.0, 50.0}
    with pytest.raises(UsageError, match=r"other settings \(latency\)"):
        other = replace(LATENCY, seconds=11.0)
        compared(again, tmp_path, **{**options, "percents": [1.25], "latency": other})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"scores": ["subnetwork"], "percents": [1.5]},
            r"1.5x speed: cannot be reached by pruning heads and whole MLPs \(ES\); the best is",
        ),
        ({"percents": [1.9]}, "1.9x speed: cannot be reached by pruning ES; the best is 1.42x"),
        ({"latency": None}, "--speedup and --latency go together"),
        ({"components": ["EF"]}, "made has no EF"),
    ],
)
def test_speeds_that_cannot_be_are_found_before_anything_is_measured(options, message, tmp_path):
    made = subject()
    given = {"scores": ["taylor"], "measure": "speed", "percents": [1.25], "latency": LATENCY}
    with pytest.raises(UsageError, match=message):
        compared(made, tmp_path, **{**given, **options})
    assert not made.log and not [*tmp_path.iterdir()]
    compared(made, tmp_path, scores=["gradient"], percents=[50.0], seeds=[1], rounds=0)
    done = [*made.log]
    with pytest.raises(UsageError, match=message):
        compared(made, tmp_path, **{**given, **options})
    assert made.log == done and "latency" not in json.loads(
        (tmp_path / "settings.json").read_text()
    )
    # A file of other times can be given then.
    other = replace(LATENCY, seconds=11.0)
    compared(made, tmp_path, **given | {"latency": other, "seeds": [1], "rounds": 0})
    assert json.loads((tmp_path / "settings.json").read_text())["latency"] == other.identity


def test_a_method_from_outside_may_know_no_speeds(tmp_path):
    class First:
        name, meaning, needs_scores = "first-units", "the first", ()
        needs_model = draws = False

    registry.registered()
    registry.register(First())
    try:
        with pytest.raises(UsageError, match="first-units prunes a share, not to a speed; give"):
            compared(
                *(subject(), tmp_path), scores=["first-units"], measure="speed", latency=LATENCY
            )
    finally:
        registry.METHODS.entries.pop("first-units")


def test_seconds_of_a_recovery_are_without_interrupted_and_own_trainings():
    def row(recovery, before, after, **more):
        return Row(
            score="s", percent=50, pruned=50, seed=1, plan={}, before=1.0, after=2.0, parameters=1,
            flops=None, recovery=recovery, environment_before=Environment(seconds=before),
            environment_after=Environment(seconds=after), **more,
        )  # fmt: skip

    rows = [
        row("finetune", 1.0, 10.0),
        row("finetune", 2.0, 20.0),
        row("finetune", 3.0, 1000.0, resumed=True),
        row("finetune", 1000.0, 1000.0, trained=True),
        row("refit", 2.0, 4.0),
        row("refit", None, None),
        replace(row(None, 2.0, None), environment_after=None),
    ]
    assert mean_seconds(rows) == {"before": 2.0, "finetune": 15.0, "refit": 4.0}


def test_the_number_of_calibration_examples_is_signed_where_all_rows_know_it(tmp_path):
    options = {"recoveries": [Recovery.REFIT], "rounds": 0}
    compared(subject(can_finetune=False, finetune_name="none"), tmp_path, **options)
    old = sorted((tmp_path / "refitted").glob("*.json"))[0]
    values = json.loads(old.read_text())
    assert values.pop("calibrated_on") == 12
    old.write_text(json.dumps(values))  # as older versions wrote it
    compared(subject(can_finetune=False, finetune_name="none"), tmp_path, **options)
    records = [Record.load(path) for path in (tmp_path / "records/refitted").rglob("*.json")]
    assert records and all("|recovery:refit|" in each.signature for each in records)


def test_methods_in_steps_reach_the_predicted_speed(tmp_path):
    options = {"scores": ["iterate", "subnetwork"], "measure": "speed", "rounds": 0}
    options |= {"percents": [1.25, 1.4], "latency": LATENCY, "recoveries": [Recovery.REFIT]}
    found = compared(subject(can_finetune=False, finetune_name="none"), tmp_path, **options)
    for row in found.rows:
        seconds = LATENCY.seconds_of(row.head_plan)
        assert seconds <= 10 / row.percent < seconds + 0.5 + 1e-9, row
    assert {*found.costs} == {"iterate", "subnetwork"}
    again = subject(can_finetune=False, finetune_name="none")
    assert compared(again, tmp_path, **options).rows == found.rows
    assert again.log == ["score random"]


def test_gates_at_a_speed_are_trained_once_for_further_measurements(tmp_path, capsys):
    options = {"scores": ["l0-gates"], "measure": "speed", "rounds": 0, "seeds": [1]}
    options |= {"latency": LATENCY, "recoveries": [Recovery.NONE]}
    found = compared(subject(), tmp_path / "met", percents=[1.25], **options)
    (row,) = (each for each in found.rows if each.score == "l0-gates")
    # All heads save 4 of 10 seconds, so the first target is half of the FLOPs, which is right.
    assert row.predicted_speedup == pytest.approx(1.25) and row.plan["kept"]["ES"][1] == []
    assert row.plan["origin"]["budget"] == "1.25x speed"
    assert row.plan["origin"]["target"] == "50% of flops"
    text = Report.of(found).markdown(title="T")
    assert "methods that train are only near it" in text and "may train up to three times" in text
    assert text.count("| 1.25x ") >= 2  # each method has its predicted speed
    # These gates close in the upper layer alone, so that no target gives this speed: a half, and
    # nearly all.
    found = compared(subject(), tmp_path / "missed", percents=[1.4], **options)
    (row,) = (each for each in found.rows if each.score == "l0-gates")
    assert row.predicted_speedup == pytest.approx(1.25)
    assert "l0-gates 1.4x speed, seed 1: not reached within 5%" in capsys.readouterr().err
    made = subject()
    options["recoveries"] = [Recovery.FINETUNE]
    compared(made, tmp_path / "missed", percents=[1.4], **options)
    # The control, the random model and the one of the gates, after the gates' one training.
    assert made.log.count("finetune 1") == 4
    with pytest.raises(UsageError, match="1.7x speed: cannot be reached by pruning ES; the best"):
        compared(subject(), tmp_path / "never", percents=[1.7], at_least=0, **options)


def test_plans_for_a_speed_are_corrected_by_their_measured_speed(tmp_path, monkeypatch, capsys):
    asked = []

    def measured_as_slower(plan, choose, model, conditions, goal, *, tries):
        asked.append((goal.times, tries, LATENCY.speedup_of(plan)))
        assert LATENCY.speedup_of(choose(0.5)) >= 1  # slower than the unpruned model is no goal
        return choose(1.1), 1.1

    monkeypatch.setattr("headprune.compare.store.verified", measured_as_slower)
    options = {"scores": ["taylor"], "measure": "speed", "rounds": 0}
    options |= {"percents": [1.25], "latency": LATENCY, "recoveries": [Recovery.REFIT]}
    plain = compared(subject(can_finetune=False, finetune_name="none"), tmp_path, **options)
    assert not asked and plain.verify == 0
    made = subject(can_finetune=False, finetune_name="none")
    found = compared(made, tmp_path, verify=3, **options)
    assert [each[:2] for each in asked] == [(1.25, 3)] * 4  # taylor, and three random plans
    for row in found.rows:
        assert row.predicted_speedup >= 1.25 * 1.1
        assert row.plan["origin"]["budget"] == "1.25x speed"
    error = capsys.readouterr().err
    assert (
        "warning: taylor 1.25x speed, seed 1: not reached within 5% in 3 measurements at most;"
        in error
    )
    text = Report.of(found).markdown(title="T")
    assert "Each plan was measured (3 times at most) and replaced by one for" in text
    Report.of(found).save(tmp_path, title="T")
    _, read = load_report(tmp_path)
    assert (
        read.comparison.verify == 3 and "--verify=3" in report_of([tmp_path], test=False).markdown
    )
    # The plans stay as they were measured.
    again = subject(can_finetune=False, finetune_name="none")
    assert compared(again, tmp_path, verify=3, **options).rows == found.rows
    assert len(asked) == 4 and again.log == ["score random"]
    # Those of another number of measurements are others.
    compared(again, tmp_path, verify=2, **options)
    assert [each[1] for each in asked[4:]] == [2] * 4
    with pytest.raises(UsageError, match="--verify goes with --speedup"):
        compared(subject(), tmp_path, verify=3)


def test_settings_that_no_result_depends_on_are_replaced(tmp_path):
    """As of a fine-tuning that fails at once."""
    options = {"scores": ["gradient"], "percents": [50.0], "seeds": [1], "rounds": 0}
    settings = {"model": "made up", "schedule": ["--lr", "wrong"]}

    class Failing(Made):
        def finetuned(self, plan, *, folder, **given):
            (folder / "checkpoints").mkdir(parents=True)
            raise DataError("fairseq-train failed")

    failing = Failing(plan=HeadPlan.full(SHAPE), log=[], settings=settings)
    with pytest.raises(DataError, match="fairseq-train failed"):
        compared(failing, tmp_path, **options)
    # A run without trainings leaves an unfinished one.
    plain = subject(can_finetune=False, settings={**settings, "schedule": []})
    compared(plain, tmp_path, **options, recoveries=[Recovery.NONE])
    assert [*tmp_path.rglob("checkpoints")]
    made = subject(settings={**settings, "schedule": ["--lr", "1"]})
    found = compared(made, tmp_path, **options)
    assert not any(row.resumed for row in found.rows) and not [*tmp_path.rglob("checkpoints")]
    with pytest.raises(UsageError, match=r"other settings \(schedule\)"):
        compared(failing, tmp_path, **options)


def test_a_folder_with_speeds_gains_shares_of_heads_and_layers(tmp_path):
    """Layers have scores of their own for shares, and not for speeds."""

    class Layered(Made):
        def scores(self, names, *, seed, components=None):
            found = super().scores(names, seed=seed)
            layers = {"EL": [[2.0], [1.0]]} if "EL" in components else {}
            return {
                name: replace(each, values=each.values | layers) for name, each in found.items()
            }

    made = Layered(plan=HeadPlan.full(SHAPE), log=[], can_finetune=False, shape=LATENCY.shape)
    options = {"components": ["ES", "EL"], "scores": ["taylor"], "seeds": [1], "rounds": 0}
    speeds = {"measure": "speed", "percents": [1.25], "latency": LATENCY}
    options["recoveries"] = [Recovery.NONE]
    first = compared(made, tmp_path, **options, **speeds)
    shares = compared(made, tmp_path, **options, percents=[50.0], measure="parameters")
    assert {row.percent for row in shares.rows} == {50.0}
    assert made.log.count("score taylor") == 2
    again = compared(made, tmp_path, **options, **speeds)
    assert again.rows == first.rows and made.log.count("score taylor") == 2


def test_a_score_that_was_killed_resumes_after_others(tmp_path):
    """Also if the ones before it are computed again."""
    resumed = []

    class Killed(Made):
        def scores(self, names, **given):
            if "shapley" in names:
                parts = Parts("shapley", {"seed": 1})
                resumed.append([*parts.finished])
                parts.add({"order": len(resumed)})
                if len(resumed) < 3:
                    raise KeyboardInterrupt
            return super().scores(names, **given)

    made = Killed(plan=HeadPlan.full(SHAPE), log=[], can_finetune=False)
    options = {"scores": ["magnitude", "shapley"], "recoveries": [Recovery.NONE], "rounds": 0}
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            compared(made, tmp_path, **options)
    compared(made, tmp_path, **options)
    assert resumed == [[], [{"order": 1}], [{"order": 1}, {"order": 2}]]
    assert not [*tmp_path.rglob("*.jsonl")]


def test_the_report_has_tables_claims_and_figures(tmp_path):
    report = Report.of(compared(subject(), tmp_path))
    report.save(tmp_path, title="Made up")
    text = (tmp_path / "compare.md").read_text()
    assert text.startswith("# Made up") and "| gradient " in text and "nan" not in text
    assert "plan:*|select:random|seed:*|form:remove|finetune:1ep|data:made.up|" in text
    assert "score:gradient|metric:points|data:none|" in text
    content = json.loads((tmp_path / "compare.json").read_text())
    assert content["correlations"]["gradient"]["spearman"] == pytest.approx(1)
    assert len((tmp_path / "compare.csv").read_text().splitlines()) == 1 + len(content["rows"])
    for name in ("curves", "correlations"):
        for suffix in (".png", ".svg"):
            assert (tmp_path / f"{name}{suffix}").stat().st_size > 1000


def test_every_measurement_has_a_record(tmp_path):
    result = compared(subject(), tmp_path)
    folder = tmp_path / "records"
    files = {path.relative_to(folder).as_posix() for path in folder.rglob("*.json")}
    scores = [(name, percent) for name in ("gradient", "entropy") for percent in (25, 50)]
    assert files == {
        "baseline/seed1.json",
        *(f"control/seed{seed}.json" for seed in (1, 2, 3)),
        # One plan has one value right after pruning; only random's differs between seeds.
        *(f"before-finetune/{name}/{percent}pct/seed1.json" for name, percent in scores),
        *(
            f"before-finetune/random/{percent}pct/seed{seed}.json"
            for percent in (25, 50)
            for seed in (1, 2, 3)
        ),
        *(
            f"pruned/{name}/{percent}pct/seed{seed}.json"
            for name, percent in (*scores, ("random", 25), ("random", 50))
            for seed in (1, 2, 3)
        ),
    }
    record = Record.load(folder / "pruned" / "gradient" / "50pct" / "seed2.json")
    assert (record.task, record.metrics) == ("made-up", {"points": pytest.approx(23.2)})
    assert (record.kind, record.row, record.seed) == ("pruned", "gradient 50%", 2)
    assert record.plan.origin is not None and record.plan.origin.method == "gradient"
    assert "|select:gradient|seed:2|form:remove|finetune:1ep|data:made.up|" in record.signature
    assert record.parameters == 1004 and record.model == "made"
    assert record.seconds is not None and record.device and "torch" in record.versions
    before = Record.load(folder / "before-finetune" / "gradient" / "50pct" / "seed1.json")
    assert (before.value, before.finetune) == (22, "none") and before.plan == record.plan
    assert Record.load(folder / "baseline" / "seed1.json").value == result.base
    table = summarise([(path, Record.load(path)) for path in sorted(folder.rglob("*.json"))])
    row = next(row for row in table.rows if row.label == "gradient 50%" and row.kind == "pruned")
    assert row.cells["made-up"].delta == pytest.approx(23.2 - 25.2)


def test_the_page_of_a_comparison_states_its_environments(tmp_path):
    result = compared(subject(), tmp_path, rounds=0)
    Report.of(result).save(tmp_path, title="T")
    records = [Record.load(path) for path in (tmp_path / "records").rglob("*.json")]
    known = json.loads((tmp_path / "compare.json").read_text())["environments"]
    assert known["measured"] == known["timed"] == len(records) > 10
    assert known["seconds"] == pytest.approx(sum(record.seconds or 0 for record in records))
    assert {"headprune", "torch", "numpy"} == {*known["versions"]}
    page = markdown.render(report_of([tmp_path]).page)
    assert re.search(rf"\| numpy +\| +{re.escape(metadata.version('numpy'))} \|", page)
    assert f"hours of training and measuring, for {len(records)} of {len(records)} mod" in page
    # A page that is made again of the saved numbers says the same.
    _, again = load_report(tmp_path)
    again.save(tmp_path / "again", title="T")
    assert json.loads((tmp_path / "again/compare.json").read_text())["environments"] == known


def test_the_records_of_a_comparison_are_a_report(tmp_path):
    compared(subject(task="translation", metric="BLEU"), tmp_path, rounds=0)
    text = report_of(sorted((tmp_path / "records").rglob("*.json")), title="T").markdown
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines()]
    rows = {row[0]: row[1:] for row in cells if row and row[-1] != ""}
    header = ("heads kept", "parameters", "BLEU", "n", "Δ control", "BLEU before fine-tuning")
    assert tuple(rows["model"]) == header
    assert rows["gradient 50%"] == ["4 of 8", "1,004", "23.20 ± 0.10", "3", "-2.00", "22.00"]
    compared(subject(task="sst2", metric="accuracy"), tmp_path / "other", rounds=0)
    text = report_of(sorted((tmp_path / "other/records").rglob("*.json")), title="T").markdown
    assert "| gradient 50%, not fine-tuned " in text and "Differences to the control:" in text


def test_random_may_be_drawn_more_often(tmp_path):
    result = compared(subject(), tmp_path, random_seeds=range(1, 6))
    assert {row.seed for row in result.rows if row.score == "random"} == {1, 2, 3, 4, 5}
    assert {row.seed for row in result.rows if row.score == "gradient"} == {1, 2, 3}
    text = Report.of(result).markdown(title="T")
    assert "over 3 seeds (5 of random)." in text
    assert "random's 5 values: t with 4 degrees of freedom" in text


def outcomes(
    values: dict[str, list[float]], *, percent: float = 50, trained: tuple[str, ...] = ()
) -> Outcomes:
    """Measurements before fine-tuning, which adds 10: of one plan a score, but random's."""
    rows = [
        Row(
            score=name,
            percent=percent,
            pruned=percent,
            seed=seed,
            plan=json.loads(one_head(seed if name == "random" else 0).to_json()),
            before=before,
            after=before + 10,
            recovery="finetune",
            parameters=1,
            flops=1,
            trained=name in trained,
        )
        for name, each in values.items()
        for seed, before in enumerate(each)
    ]
    return Outcomes.of(
        Comparison(
            metric="points",
            data_name="made.up",
            finetune_name="1ep",
            components=None,
            base=0.0,
            scores={},
            rows=tuple(rows),
            speedups={},
            settings={},
        )
    )


def one_head(head: int) -> HeadPlan:
    return HeadPlan(kept={"ES": [(head,)]}, heads={"ES": (16,)})


def test_cells_are_means_over_seeds_and_one_plan_has_no_spread_before():
    found = outcomes({"gradient": [5.0, 5.0, 5.0], "random": [1.0, 2.0, 3.0]})
    assert found.cell("gradient", 50, "before").value == Spread(5.0, None, 1)
    assert found.cell("gradient", 50, "finetune").value == spread([15.0, 15, 15])
    assert found.cell("random", 50, "before").value == spread([1.0, 2, 3])
    assert found.cell("taylor", 50, "before") is None


# t with 2 degrees of freedom is above 4.303 in 2.5%; times sqrt(1 + 1/3) that is 4.97.
@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        (
            2 + 4.97,
            "at 50%, gradient +4.97 is better than random choice. Random: 2.00 ± 1.00 points",
        ),
        (6.96, "at 50%, no score differs significantly from random choice (gradient +4.96)."),
        (-2.97, "at 50%, gradient -4.97 is worse than random choice."),
        (
            2 + 1.00,
            "n = 3 plans; t-test for one more draw, p < 0.05 after Holm's correction for 1 ",
        ),
        (3.00, "the smallest significant difference is 4.97."),
    ],
)
def test_what_is_said_follows_from_the_numbers(value, sentence):
    found = outcomes({"gradient": [value] * 3, "random": [1.0, 2.0, 3.0]})
    said = findings(found, {}, metric="points")
    assert len(said) == 2 and sentence in said[0]
    assert said[0].startswith("Right after pruning, ") and said[1].startswith("After fine-tuning, ")


def test_low_values_of_a_loss_are_good():
    found = outcomes({"low": [-9.0], "high": [99.0], "same": [2.5], "random": [1.0, 2.0, 3.0]})
    said = findings(found, {}, metric="perplexity")[0]
    assert "low -11.00 is better than random choice; high +97.00 is worse than" in said


def test_tables_and_figures_say_that_low_values_are_good(tmp_path):
    report = Report.of(compared(subject(metric="perplexity"), tmp_path))
    text = report.markdown(title="Made up")
    assert "perplexity right after pruning, low is good:" in text
    assert "Difference to the mean of random plans, low is good:" in text


def test_every_score_is_named_in_every_cell():
    found = outcomes({"b": [99.0], "c": [3.0], "a": [2.5], "d": [-90.0], "random": [1.0, 2.0, 3.0]})
    assert (
        "; ".join(
            (
                "b +97.00 is better than random choice",
                "d -92.00 is worse than random choice",
                "the others do not differ significantly (c +1.00, a +0.50). Random",
            )
        )
        in findings(found, {}, metric="points")[0]
    )


def test_random_plans_that_are_all_as_good_allow_no_test():
    found = outcomes({"gradient": [5.0], "random": [1.0, 1.0, 1.0]})
    said = findings(found, {}, metric="points")[0]
    assert "at 50%, all 3 random plans have the same points, 1.00, so that no score can" in said
    hardly = outcomes({"gradient": [5.0], "random": [0.001, 0.002, 0.003]})
    assert "have the same points, 0.00, so" in findings(hardly, {}, metric="points")[0]
    # An error is no percentage: these differ.
    errors = outcomes({"gradient": [0.5], "random": [0.100, 0.101, 0.102]})
    assert "better than random" not in findings(errors, {}, metric="mse")[0]
    assert "gradient +0.40" in findings(errors, {}, metric="mse")[0]


def test_random_plans_that_left_nothing_of_a_model_allow_no_test():
    made = outcomes({"gradient": [80.0], "random": [50.0, 70.0, 50.0]})
    rows = [
        replace(each, record=replace(each.record, training={"constant_prediction": True}))
        if each.score == "random" and each.record.seed == 1
        else each
        for each in made.all
    ]
    found = replace(made, all=rows)
    before = findings(found, {}, metric="accuracy")[0]
    assert "1 of 3 random plans gave models with the same output for every example" in before
    assert not all_tests(found)


def test_a_distance_that_no_score_can_have_is_not_named():
    found = outcomes({"gradient": [80.0], "random": [40.0, 50.0, 60.0]})
    said = findings(found, {}, metric="accuracy")[0]
    assert said.endswith("for 1 score; the smallest significant difference is 49.68.")
    found = outcomes({"gradient": [80.0], "random": [38.0, 50.0, 62.0]})
    said = findings(found, {}, metric="accuracy")[0]
    assert said.endswith("for 1 score; no possible difference would have been significant.")
    said = findings(found, {}, metric="matthews")[0]  # from -100
    assert said.endswith("for 1 score; the smallest significant difference is 59.62.")
    for metric in ("BLEU", "macro-f1", "entity-f1", "token-accuracy"):
        said = findings(found, {}, metric=metric)[0]
        assert said.endswith("for 1 score; no possible difference would have been significant.")


@pytest.mark.parametrize("draws", [3, 10])
@pytest.mark.parametrize(("finetunings", "plan_sd"), [(1, 1.0), (3, 0.0), (3, 2.0)])
def test_if_scores_are_as_good_as_random_few_are_called_different(draws, finetunings, plan_sd):
    # Null data: every plan is as good as a random one, and each fine-tuning adds its own noise.
    random = np.random.default_rng(1)
    trials, scores, noise_sd = 1500, 8, 1.0
    one, family = 0, 0
    for _ in range(trials):
        drawn = random.normal(0, plan_sd, draws) + random.normal(0, noise_sd, draws)
        noise = random.normal(0, noise_sd, (scores, finetunings)).mean(1)
        values = random.normal(0, plan_sd, scores) + noise
        test = compare_with_random(
            spread(drawn.tolist()), dict(zip("abcdefgh", values, strict=True))
        )
        one += test.scores["a"].p_value < 0.05
        family += any(each.significant for each in test.scores.values())
    error = 3 * math.sqrt(0.05 * 0.95 / trials)
    assert one / trials < 0.05 + error
    assert family / trials < 0.05 + error
    if finetunings == 1:  # then the test is exact
        assert one / trials > 0.05 - error


def test_the_tests_are_in_the_tables(tmp_path):
    report = Report.of(compared(subject(), tmp_path))
    report.save(tmp_path, title="Made up")
    content = json.loads((tmp_path / "compare.json").read_text())
    text = (tmp_path / "compare.md").read_text()
    assert "| when " in text and "as one more draw from the distribution of random's" in text
    for each in content["tests"]:
        assert each["random"]["n"] > 1 and each["level"] == 0.05
        for test in each["scores"].values():
            assert 0 <= test["p_value"] <= test["holm"] <= 1
    assert {each["when"] for each in content["tests"]} == {"before", "after"}


def test_nothing_is_said_of_one_seed():
    assert findings(outcomes({"gradient": [9.0], "random": [1.0]}), {}, metric="points") == []
    found = outcomes({"random": [1.0]}).cell("random", 50, "before")
    assert found is not None
    assert (
        against_random(
            {"random": found},
            moment="before",
            percent=50,
            metric="points",
        )
        is None
    )


@pytest.mark.parametrize(
    ("draws", "note"),
    [
        (1, "- One seed, which draws the random heads and the fine-tuning's chances.\n"),
        (
            3,
            "- Random: mean ± sample standard deviation over 3 seeds. Other scores: one seed.",
        ),
    ],
)
def test_one_seed_has_no_deviation(draws, note, tmp_path):
    few = {"scores": ["gradient"], "percents": [50.0], "seeds": [1], "rounds": 0}
    found = compared(subject(), tmp_path, **few, random_seeds=range(1, draws + 1))
    text = Report.of(found).markdown(title="T")
    assert note in text and "1 seeds" not in text
    assert ("±" in text) == (draws > 1)
    assert ("degrees of freedom" in text) == (draws > 1) != ("are not tested" in text)


def test_the_cost_at_which_a_method_that_trains_is_compared_is_said():
    values = {"l0-gates": [29.0], "gradient": [20.0], "random": [1.0, 2.0, 3.0]}
    before, after = findings(outcomes(values, trained=("l0-gates",)), {}, metric="points")
    assert "l0-gates" not in before
    # 29 after its training, 12 on average for random plans after theirs.
    assert "l0-gates after its own training alone +17.00" in after
    assert "gradient +18.00" in after


def test_what_is_said_of_correlations():
    some = {
        "gradient": Correlation(0.5, 0.2, 0.7, 10),
        "hoyer": Correlation(-0.5, -0.7, -0.2, 10),
        "random": Correlation(0.1, -0.2, 0.4, 10),
        "flat": Correlation(math.nan, math.nan, math.nan, 10),
    }
    (said,) = findings(Outcomes([]), some, metric="points")
    assert "correlates positively with gradient, and negatively with hoyer" in said
    (said,) = findings(Outcomes([]), {"random": some["random"]}, metric="points")
    assert said.startswith("No score correlates positively")


def test_correlation_is_scipys_spearman_and_turns_low_scores_round():
    random = np.random.default_rng(0)
    a, b = random.normal(size=(2, 3, 5)).round(1)  # with ties

    def made(name, values):
        return HeadScores(name=name, values={"ES": values.tolist()})

    found = correlation(made("gradient", a), made("ablation", b))
    expected = spearmanr(a.ravel(), b.ravel()).statistic
    assert found.value == pytest.approx(expected) and found.heads == 15
    assert found.low < expected < found.high
    turned = correlation(made("entropy", a), made("ablation", b))
    assert turned.value == pytest.approx(-expected)
    assert math.isnan(correlation(made("gradient", a * 0), made("ablation", b)).value)
    # One drop other than 0 says next to nothing, though resamples that have it correlate.
    drops = np.zeros_like(b)
    drops[0, 0] = 1
    single = correlation(made("gradient", a), made("ablation", drops))
    assert math.isnan(single.low) and not math.isnan(single.value)


def resumed(log: list[str], **options: Any):
    def resume(place: Path) -> Made:
        plan = HeadPlan.load(place / "plan.json")
        return Made(plan=plan, log=log, **options)

    return resume


def test_iterative_pruning_scores_again_before_each_step(tmp_path):
    made = subject(can_finetune=False)
    again: list[str] = []
    steps = iterate(
        made,
        score="gradient",
        percent=75,
        steps=3,
        folder=tmp_path,
        resume=resumed(again, can_finetune=False),
    )
    assert [step.percent for step in steps] == [25, 50, 75]
    assert [step.before for step in steps] == [9 + 3 + 2 + 1 + 8 + 0.5, 22, 17]
    assert made.log == ["score gradient", "measure"]
    assert again == ["score gradient", "measure"] * 2
    assert HeadScores.load(tmp_path / "scores" / "step3.json").scored == steps[1].head_plan
    records = [
        Record.load(tmp_path / "records" / "before-finetune" / f"step{step.number}.json")
        for step in steps
    ]
    assert [record.value for record in records] == [step.before for step in steps]
    assert [record.plan for record in records] == [step.head_plan for step in steps]
    assert records[1].row == "gradient, step 2 of 3" and records[1].model == "made"
    assert records[2].fingerprint == f"weights of {steps[2].head_plan}"
    for outer, inner in zip(steps, steps[1:], strict=False):
        assert inner.head_plan.is_within(outer.head_plan)


def test_steps_say_whether_their_model_is_constant(tmp_path):
    made = subject(constant=is_small)
    options = {"score": "gradient", "percent": 50, "steps": 2}
    log: list[str] = []
    again = resumed(log, constant=is_small)
    steps = iterate(made, **options, folder=tmp_path / "tuned", resume=again)
    assert [(step.constant_before, step.constant) for step in steps] == [
        (False, False),
        (True, False),
    ]
    made = subject(constant=is_small, can_finetune=False)
    again = resumed(log, constant=is_small, can_finetune=False)
    steps = iterate(made, **options, folder=tmp_path / "pruned", resume=again)
    assert [step.constant for step in steps] == [False, True]
    assert json.loads((tmp_path / "pruned" / "step2" / "step.json").read_text())["constant"]


def test_iterative_pruning_goes_on_and_fine_tunes_between_steps(tmp_path):
    made, log = subject(), []
    options = {"score": "gradient", "percent": 50, "folder": tmp_path, "steps": 2}
    first = iterate(made, **options, resume=resumed(log))
    assert [step.after for step in first] == pytest.approx([23.5 + 1.1, 22 + 1.1])
    lengths = {"before-finetune": ["none", "1ep"], "pruned": ["1ep", "1ep+1ep"]}
    for kind in ("before-finetune", "pruned"):
        files = [tmp_path / "records" / kind / f"step{number}.json" for number in (1, 2)]
        loaded = [Record.load(path) for path in files]
        assert [record.kind for record in loaded] == [kind, kind]
        assert [record.finetune for record in loaded] == lengths[kind]
        assert all(record.seconds is not None and record.versions for record in loaded)
    assert [record.value for record in loaded] == [step.after for step in first]
    (tmp_path / "step2" / "step.json").unlink()
    fresh = subject()
    assert iterate(fresh, **options, resume=resumed(log)) == first
    assert fresh.log == []
    with pytest.raises(UsageError, match=r"other settings \(score\)"):
        iterate(fresh, **{**options, "score": "entropy"}, resume=resumed(log))


def test_models_are_refitted_between_steps(tmp_path):
    made = subject(can_finetune=False, finetune_name="none")
    log: list[str] = []

    def again(place: Path) -> Made:
        model = subject(can_finetune=False, finetune_name="none").opened(place / "model.pt")
        return replace(model, log=log)

    options = {"score": "gradient", "percent": 50, "steps": 2, "recovery": Recovery.REFIT}
    steps = iterate(made, **options, folder=tmp_path, resume=again)
    assert [step.after for step in steps] == [23.5 + 0.5, 22 + 0.5]
    # The second step prunes the re-fitted model of the first.
    assert [step.before for step in steps] == [23.5, 22 + 0.5]
    assert {step.recovery for step in steps} == {"refit"}
    record = Record.load(tmp_path / "records" / "refitted" / "step2.json")
    assert record.value == 22.5 and "|finetune:none|recovery:refit[12]|" in record.signature
    before = Record.load(tmp_path / "records" / "before-finetune" / "step2.json")
    assert "recovery" not in before.signature
    assert iterate(subject(can_finetune=False), **options, folder=tmp_path, resume=again) == steps
    with pytest.raises(UsageError, match=r"other settings \(recovery\)"):
        plain = options | {"recovery": None}
        iterate(subject(can_finetune=False), **plain, folder=tmp_path, resume=again)


def test_models_learn_from_the_unpruned_one_between_steps(tmp_path):
    settings = {"fingerprint": "0123456789abcdef", "distill_weight": 0.9}
    made = subject(settings=settings)
    options = {"score": "gradient", "percent": 50, "steps": 2, "recovery": Recovery.DISTILL}
    again = resumed([], settings=settings)
    steps = iterate(made, **options, folder=tmp_path, resume=again)
    assert [step.after for step in steps] == pytest.approx([23.5 + 2.1, 22 + 2.1])
    record = Record.load(tmp_path / "records" / "pruned" / "step1.json")
    name = "distill[weight=0.9,temperature=2,from=0123456789ab]"
    assert f"|finetune:1ep|recovery:{name}|" in record.signature


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"recovery": Recovery.SCRATCH}, "--recovery scratch: a model that is trained from random"),
        ({"recovery": Recovery.REFIT}, "--recovery refit: give no epochs or flags"),
        ({"steps": 0}, "0 steps: give one or more"),
        ({"percent": 0}, "percent 0: made has 0.0% pruned; give more"),
        ({"percent": 101}, "give more, up to 100"),
        ({"percent": 90, "at_least": 2, "steps": 3}, "at_least=2 keeps 4 heads"),
    ],
)
def test_iterations_that_cannot_be(options, message, tmp_path):
    given = {"score": "gradient", "percent": 50.0, "steps": 2, **options}
    with pytest.raises(UsageError, match=message):
        iterate(subject(), folder=tmp_path, resume=resumed([]), **given)
