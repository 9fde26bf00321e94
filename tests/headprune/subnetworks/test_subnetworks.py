"""Sub-networks of models that are made up: a metric that is the sum of the worths of the units."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import dataclass, replace
from typing import Any

import pytest

from headprune import DataError, PruningPlan, UsageError
from headprune.cli.named_folders import parse_folders
from headprune.cli.overlap import overlap
from headprune.report.heat_map import draw
from headprune.report.render import markdown, save
from headprune.results.record import Record
from headprune.scores import HeadScores
from headprune.subnetworks.choices import subnetworks
from headprune.subnetworks.elements import elements_of, plan_of_elements, units_of
from headprune.subnetworks.report import document_of
from headprune.subnetworks.run import find_subnetworks
from headprune.subnetworks.search import Rules
from headprune.subnetworks.survival import mean_overlaps
from headprune.subnetworks.tasks import (
    document_of_tasks,
    notes_on_rules,
    pool_in,
    read_tasks,
    survivors_in,
)
from headprune.task_model import Measurement
from tests.headprune.compare.test_compare import SHAPE, Made

NEURONS = {"EF": (3, 3)}
MLPS = (6.0, 0.5)
"""The worth of each MLP; a neuron has a third of it."""


@dataclass
class MadeWithMlps(Made):
    """A made-up model that has MLPs too."""

    def scores(self, names, *, seed, components=None):
        if components != ["EF"]:
            return super().scores(names, seed=seed, components=["ES"])
        self.log += [f"score {name} of EF" for name in names]
        kept = self.plan.completed(NEURONS).kept["EF"]
        values = [
            [MLPS[n] if u in units else None for u in range(3)] for n, units in enumerate(kept)
        ]
        return {name: HeadScores(name=name, values={"EF": values}) for name in names}

    def _measured(self):
        mlps = self.plan.completed(NEURONS).kept["EF"]
        worth = sum(MLPS[n] * len(units) / 3 for n, units in enumerate(mlps))
        measured = super()._measured()
        return Measurement(measured.value + worth, fingerprint=measured.fingerprint)


def model(seed: int = 1, **options) -> MadeWithMlps:
    return MadeWithMlps(plan=PruningPlan.full(SHAPE), log=[], **_given(seed, **options))


def _given(seed: int = 1, **options) -> dict[str, Any]:
    settings = {"model": "made up", "fingerprint": f"seed {seed}"}
    return {"settings": settings, "can_finetune": False, "shape": NEURONS, **options}


def rules(**options) -> Rules:
    return Rules(**{"step": 12.5, "threshold": 90.0, **options})


def test_heads_are_pruned_while_the_held_out_metric_stays_above_the_threshold(tmp_path):
    made = model()
    found = find_subnetworks([made], rules=rules(), folder=tmp_path)
    (search,) = found.searches
    # Of 30.5, heads of 0.1, 0.4, 0.5 and 1 can go: 2 more would leave 26.5, under 27.45.
    assert search.full == 30.5 and search.value == pytest.approx(28.5)
    assert search.survivors.kept["ES"] == ((0, 1, 2), (0,))
    assert [each.value for each in search.attempts] == pytest.approx(
        [30.5, 30.4, 30.0, 29.5, 28.5, 26.5]
    )
    assert [each.accepted for each in search.attempts] == [True] * 5 + [False]
    assert made.log.count("score gradient") == 5  # again after each step
    networks = {each.name: each for each in found.networks}
    assert networks["good"].elements == search.survivors
    # The other four, none of which survived.
    assert networks["bad"].elements.kept["ES"] == ((3,), (1, 2, 3))
    assert networks["bad"].before.value == pytest.approx(8.5)
    assert {name: each.elements.total_kept for name, each in networks.items()} == {
        **{"full": 8, "good": 4},
        **{"random": 4, "bad": 4},
    }
    assert all(each.after is None for each in found.networks)


def test_where_low_is_good_the_metric_stays_below_the_unpruned_models_share(tmp_path):
    @dataclass
    class Loss(MadeWithMlps):
        """Its metric is 60 less the worths of the units."""

        def _measured(self):
            measured = super()._measured()
            return replace(measured, value=60 - measured.value)

    made = Loss(plan=PruningPlan.full(SHAPE), log=[], **_given(metric="perplexity"))
    found = find_subnetworks([made], rules=rules(), folder=tmp_path)
    (search,) = found.searches
    # Of 29.5, at most 29.5 / 0.9 = 32.8 is left: heads of 0.1, 0.4, 0.5 and 1 go, 2 more do not.
    assert [each.value for each in search.attempts] == pytest.approx(
        [29.5, 29.6, 30.0, 30.5, 31.5, 33.5]
    )
    assert [each.accepted for each in search.attempts] == [True] * 5 + [False]
    text = markdown.render(document_of(found, title="Made up"))
    assert "as long as the unpruned model's perplexity is at least 90% of it" in text
    assert "perplexity, low is good (of one model):" in text


def test_mlps_are_pruned_as_a_whole_and_after_heads_alone(tmp_path):
    found = find_subnetworks(
        [model()], rules=rules(step=50), folder=tmp_path, components=["ES", "EF"]
    )
    (search,) = found.searches
    tried = [(each.kinds, each.accepted) for each in search.attempts[1:]]
    # Both halves leave 28; all MLPs, or the other heads, cost too much.
    assert tried == [
        (["heads", "MLPs"], True),
        (["heads", "MLPs"], False),
        (["heads"], False),
        (["MLPs"], False),
    ]
    assert search.survivors.kept["EF"] == ((0,), ()) and search.survivors.total_kept == 5
    plan = PruningPlan.load(tmp_path / "plans" / "seed1" / "good.json")
    assert plan.kept["EF"] == ((0, 1, 2), ()) and plan.origin.method == "subnetwork-good"
    bad = PruningPlan.load(tmp_path / "plans" / "seed1" / "bad.json")
    assert bad.kept["EF"] == ((), (0, 1, 2))


def test_elements_and_plans_are_converted_exactly():
    pool = PruningPlan(
        kept={"ES": [(0, 1), ()], "EF": [(0, 2), ()]}, units={"ES": (2, 2), "EF": (3, 3)}
    )
    elements = elements_of(pool)
    assert elements.kept["EF"] == ((0,), ()) and elements.units["EF"] == (1, 1)
    assert plan_of_elements(elements, pool) == pool
    none = PruningPlan(kept={"ES": [(1,), ()], "EF": [(), ()]}, units=elements.units)
    assert plan_of_elements(none, pool).kept == {"ES": ((1,), ()), "EF": ((), ())}


def test_the_bad_sub_network_takes_survivors_where_the_others_are_too_few():
    pool = PruningPlan.full({"ES": (4,)})
    survivors = PruningPlan(kept={"ES": [(0, 2, 3)]}, units=pool.units)
    importance = {("ES", 0, unit): float(unit) for unit in range(4)}
    chosen = subnetworks(pool, survivors, importance, seed=1)
    assert chosen["bad"].kept["ES"] == ((0, 1, 2),)
    assert chosen["random"].total_kept == 3
    draws = {subnetworks(pool, survivors, importance, seed=n)["random"] for n in range(9)}
    assert len(draws) > 1


def test_a_run_that_was_interrupted_resumes_and_a_finished_one_does_nothing(tmp_path):
    first = find_subnetworks([model(can_finetune=True)], rules=rules(), folder=tmp_path)
    for path in (tmp_path / "model1" / "attempts").glob("[345].json"):
        path.unlink()
    (next((tmp_path / "model1" / "after").glob("*.json"))).unlink()
    again = model(can_finetune=True)
    assert find_subnetworks([again], rules=rules(), folder=tmp_path) == first
    assert again.log.count("measure held-out") == 3
    assert sum(line.startswith("finetune") for line in again.log) == 1
    last = model(can_finetune=True)
    find_subnetworks([last], rules=rules(), folder=tmp_path)
    assert last.log == []


def test_fine_tunings_begin_with_the_weights_of_another_model(tmp_path):
    """The made-up model gains 1.1 by fine-tuning, the one to restart from has a bonus of 7."""
    start = tmp_path / "pre-trained"
    start.mkdir()
    (start / "plan.json").write_text(PruningPlan.full(SHAPE).to_json())
    (start / "bonus").write_text("7")
    gains = {}
    for name, restart in (("continued", None), ("restarted", start)):
        found = find_subnetworks(
            [model(can_finetune=True)],
            rules=rules(),
            folder=tmp_path / name,
            restart_from=restart,
        )
        gains[name] = [each.after.value - each.before.value for each in found.networks]
        notes = markdown.render(document_of(found, title="made up"))
        assert ("as in Prasanna et al. (2020)" in notes) == (restart is not None)
        record = next(each.after for each in found.networks if each.name == "good")
        assert ("restarted_from" in record.training) == (restart is not None)
    assert gains["continued"] == pytest.approx([1.1] * 4)
    assert gains["restarted"] == pytest.approx([8.1] * 4)
    with pytest.raises(UsageError, match="--restart-from: nothing is fine-tuned; give --epochs"):
        find_subnetworks([model()], rules=rules(), folder=tmp_path / "n", restart_from=start)
    with pytest.raises(UsageError, match="--restart-from .*: has the same weights as"):
        find_subnetworks(
            [model(can_finetune=True, path=start)],
            rules=rules(),
            folder=tmp_path / "m",
            restart_from=start,
        )
    (start / "plan.json").write_text(PruningPlan(kept={"ES": [(0,), (1,)]}, units=SHAPE).to_json())
    with pytest.raises(UsageError, match="--restart-from .*: has other units or widths than"):
        find_subnetworks(
            [model(can_finetune=True)],
            rules=rules(),
            folder=tmp_path / "o",
            restart_from=start,
        )


def test_the_report_of_two_models_and_of_two_tasks(tmp_path):
    models = [model(1, can_finetune=True), model(2, can_finetune=True)]
    found = find_subnetworks(models, rules=rules(), folder=tmp_path / "one")
    document = document_of(found, title="T")
    save(document, tmp_path / "one", name="subnetworks")
    values = json.loads((tmp_path / "one" / "subnetworks.json").read_text())
    assert values["survival"]["ES"] == [[2, 2, 2, 0], [2, 0, 0, 0]]
    # Equal sets of 4 of 8: 1 of 70.
    assert values["overlaps"]["heads"]["p_value"] == pytest.approx(1 / 70)
    assert (tmp_path / "one" / "survival.png").exists()
    text = markdown.render(document)
    assert "exceeds chance (p = 0.0143, n = 2 models)" in text
    assert re.search(r"\| good +\| +28\.50 ± 0\.00 \| +29\.65 ± 0\.07", text)
    records = [Record.load(path) for path in (tmp_path / "one" / "records").rglob("*.json")]
    assert len(records) == 2 * 4 * 2
    assert {record.kind for record in records} == {
        *("baseline", "control", "before-finetune", "pruned")
    }

    find_subnetworks([model(3), model(4)], rules=rules(threshold=99), folder=tmp_path / "two")
    folders = {"a": tmp_path / "one", "b": tmp_path / "two"}
    document = document_of_tasks(read_tasks(folders), title="T")
    save(document, tmp_path / "over", name="overlap")
    values = json.loads((tmp_path / "over" / "overlap.json").read_text())
    # All heads but that of 0.1 survive with 99%.
    assert values["mean"]["ES"] == [[2, 2, 2, 1], [2, 1, 1, 0]]
    assert values["sd"]["ES"][0] == [0, 0, 0, 0]
    survivors = read_tasks(folders)
    shutil.rmtree(tmp_path / "one" / "plans")  # as in published records
    assert read_tasks(folders) == survivors
    assert notes_on_rules(folders) == ["The searches differ in --threshold: 90.0 for a, 99 for b."]
    (between,) = values["between_tasks"]
    one, two = (units_of(each[0]) for each in read_tasks(folders).values())
    assert between["overlap"] == pytest.approx(len(one & two) / len(one | two))


def test_chance_is_that_of_the_elements_that_the_models_had(tmp_path):
    """Two models of the same 4 of 8 heads, of which 2 and 2 survive: one is expected in both."""
    pool = PruningPlan(kept={"ES": [(0, 1, 2, 3), ()]}, units={"ES": (4, 4)})
    survivors = [
        PruningPlan(kept={"ES": [heads, ()]}, units={"ES": (4, 4)}) for heads in ((0, 1), (1, 2))
    ]
    overlap = mean_overlaps(survivors, pool=pool)["heads"]
    # |A ∩ B| is 0, 1, 2 with probability 1/6, 4/6, 1/6; the overlap 0, 1/3, 1.
    assert overlap.chance == pytest.approx(4 / 6 / 3 + 1 / 6)
    assert overlap.p_value == pytest.approx(5 / 6)


def test_the_pool_of_published_records_is_what_the_models_had(tmp_path):
    pool = PruningPlan(kept={"ES": [(0, 1, 2, 3), ()]}, units=SHAPE)
    good = PruningPlan(kept={"ES": [(0, 1), ()]}, units=SHAPE)
    for place, plan in (("baseline/full", pool), ("before-finetune/good", good)):
        record = Record(task="sst2", metrics={"accuracy": 50.0}, plan=plan, signature="seed:1")
        record.save(tmp_path / "records" / place / "seed1.json")
    (survivors,) = survivors_in(tmp_path)
    assert survivors == good and pool_in(tmp_path, survivors) == pool


def test_folders_of_models_that_had_other_heads_are_refused_in_any_order(tmp_path):
    full = PruningPlan.full(SHAPE)
    half = PruningPlan(kept={"ES": [(0, 1, 2, 3), ()]}, units=SHAPE)
    good = PruningPlan(kept={"ES": [(0, 1), ()]}, units=SHAPE)
    for name, whole in (("full", full), ("half", half), ("older", None)):
        for seed in (1, 2):
            folder = tmp_path / name / "plans" / f"seed{seed}"
            folder.mkdir(parents=True)
            good.save(folder / "good.json")
            if whole is not None:
                whole.save(folder / "full.json")
    for names in (("full", "half"), ("half", "full")):
        folders = {name: tmp_path / name for name in names}
        message = f"{names[1]}: its models had other heads .* in .*{names[0]}; give folders"
        with pytest.raises(UsageError, match=message):
            read_tasks(folders)
    read_tasks({name: tmp_path / name for name in ("full", "older")})


def test_models_can_be_added_but_not_left_out(tmp_path):
    find_subnetworks([model(1), model(2)], rules=rules(), folder=tmp_path)
    plans = sorted(tmp_path.rglob("good.json"))
    message = "sub-networks of more models than the 1 given; give all of them, or choose another"
    with pytest.raises(UsageError, match=message):
        find_subnetworks([model(1)], rules=rules(), folder=tmp_path)
    assert sorted(tmp_path.rglob("good.json")) == plans
    found = find_subnetworks([model(n) for n in (1, 2, 3)], rules=rules(), folder=tmp_path)
    assert len(found.survivors) == len(read_tasks({"a": tmp_path})["a"]) == 3


def test_a_search_that_is_not_finished_is_refused(tmp_path):
    find_subnetworks([model(1), model(2), model(3)], rules=rules(), folder=tmp_path)
    for name, message in (("seed3", "model 3, of 3"), ("seed1", "model 1, 3, of 3")):
        shutil.rmtree(tmp_path / "plans" / name)
        with pytest.raises(DataError, match=f"has no survivors of {message}; run its .* again"):
            read_tasks({"a": tmp_path})


def test_the_overlap_of_a_folder_with_itself_is_refused(tmp_path):
    find_subnetworks([model(1)], rules=rules(), folder=tmp_path / "one")
    with pytest.raises(UsageError, match="a and b are one folder"):
        read_tasks({"a": tmp_path / "one", "b": tmp_path / "two" / ".." / "one"})


def test_the_overlap_is_not_written_over_other_results(tmp_path):
    find_subnetworks([model(1)], rules=rules(), folder=tmp_path / "one")
    for output, message in (("one", "this folder is read too"), ("two", "has files of another")):
        (tmp_path / "two").mkdir(exist_ok=True)
        (tmp_path / "two" / "result.json").touch()
        with pytest.raises(UsageError, match=message):
            overlap(of=[f"a={tmp_path / 'one'}"], output=tmp_path / output)
        assert not (tmp_path / output / "overlap.md").exists()


def test_one_model_has_no_overlap(tmp_path):
    found = find_subnetworks([model()], rules=rules(), folder=tmp_path)
    text = markdown.render(document_of(found, title="T"))
    assert "needs two or more" in text and "by chance" not in text


def test_mistakes_are_one_line(tmp_path):
    def refused(message, *models, error=UsageError, components=None, **options):
        with pytest.raises(error, match=message) as caught:
            find_subnetworks(
                models, rules=rules(**options), folder=tmp_path / "out", components=components
            )
        assert "\n" not in str(caught.value)

    refused("--threshold 101: give a percentage", model(), threshold=101)
    refused("--step 0: give a percentage", model(), step=0)
    refused("there is no score 'best'", model(), score="best")
    refused("made: has the same weights as made", model(), model())
    refused("of another shape than made", model(1), model(2, shape={"EF": (3, 4)}))
    refused("--components EL: sub-networks consist", model(), components=["EL"])
    other = PruningPlan(kept={"ES": [(0,), ()]}, units=SHAPE)
    refused("keeps other units than made", model(1), replace(model(2), plan=other))
    assert not (tmp_path / "out").exists()
    refused("is 0.00 on the held-out", replace(model(), bonus=-30.5), error=DataError)
    refused("other settings .threshold.", model(), threshold=80)
    with pytest.raises(UsageError, match="write TASK=FOLDER"):
        parse_folders(["sst2"], option="--of", key="TASK")
    with pytest.raises(UsageError, match="has a folder already"):
        parse_folders(["a=b", "a=c"], option="--of", key="TASK")
    with pytest.raises(DataError, match=r"holds no plans/seed1/good.json"):
        read_tasks({"a": tmp_path})


def test_heat_maps_of_mlps_have_one_column_without_numbers():
    panels = [("ES", [[0.0, 1.0, 1.0], [1.0, 1.0, 0.0]]), ("EF", [[1.0], [0.0]])]
    heads, mlps, *_ = draw(panels, title="T", label="models", limits=(0, 2)).axes
    assert len(heads.get_xticks()) > 1 and len(mlps.get_xticks()) == 0
    assert {axes.get_images()[0].norm.vmax for axes in (heads, mlps)} == {2}


def test_cells_of_heads_and_of_mlps_have_one_size_and_counts_whole_ticks():
    panels = [("ES", [[float(head % 3) for head in range(12)]] * 6), ("EF", [[1.0]] * 6)]
    figure = draw(panels, title="T", label="models", columns=2, limits=(0.0, 2.0))
    figure.draw_without_rendering()
    heads, mlps, scale = figure.axes
    sizes = [
        axes.transData.transform((1, 1)) - axes.transData.transform((0, 0))
        for axes in (heads, mlps)
    ]
    assert sizes[1] == pytest.approx(sizes[0], rel=0.05)
    assert [tick for tick in scale.get_yticks() if 0 <= tick <= 2] == [0, 1, 2]
