"""Coalitions of heads against masks, and `headprune scores --score shapley`."""

from __future__ import annotations

import pytest
import torch
from transformers import AutoModelForSeq2SeqLM, AutoModelForSequenceClassification
from typer.testing import CliRunner

import hf_plugin
from headprune import HeadPlan, UsageError
from headprune.cli import app
from headprune.scores import HeadScores, shapley_values
from headprune.scores.partial import partial_results
from headprune.scores.registry import Scoring
from headprune.scores.shapley import coalition_values, compute
from hf_plugin.scores.model import HuggingFaceModel
from tests.hf_plugin.made import write_model
from tests.hf_plugin.models import SOME, build, plan_for, shape_of
from tests.hf_plugin.scores.test_scores import cut_up, data


@pytest.mark.parametrize("family", ["bert", "bart"])
def test_a_coalition_has_the_metric_of_the_model_masked_to_it(family):
    classifier = family == "bert"
    auto = AutoModelForSequenceClassification if classifier else AutoModelForSeq2SeqLM
    model = build(family, auto)
    hf_plugin.prune_heads(model, plan_for(family, SOME))
    scored = HuggingFaceModel(model)
    kept = hf_plugin.head_plan(model).kept
    players = [
        (component, layer, head)
        for component, layers in kept.items()
        for layer, heads in enumerate(layers)
        for head in heads
    ]
    torch.manual_seed(1)
    coalitions = torch.rand(6, len(players)) < 0.5
    metric = "accuracy" if classifier else "loss"
    found = coalition_values(scored, data(family), players, coalitions, metric=metric)
    for coalition, value in zip(coalitions, found.tolist(), strict=True):
        present = {player for player, on in zip(players, coalition, strict=True) if on}
        plan = HeadPlan(
            kept={
                component: [
                    tuple(head for head in heads if (component, layer, head) in present)
                    for layer, heads in enumerate(layers)
                ]
                for component, layers in kept.items()
            },
            heads=shape_of(family),
        )
        with hf_plugin.masked(model, plan), torch.no_grad():
            outcome = HuggingFaceModel(model).outcome(data(family))
        expected = 100 * outcome.correct.float().mean() if classifier else -outcome.losses.mean()
        assert value == pytest.approx(expected.item(), abs=1e-4)


def test_batches_of_unequal_size_count_by_their_examples():
    """The values add up to the mean drop over examples, which is not that over batches."""
    scored = HuggingFaceModel(build("bert", AutoModelForSequenceClassification))
    batches = cut_up(data("bert"), 4)
    sizes = [len(batch["labels"]) for batch in batches]
    assert len(set(sizes)) == 2
    scoring = Scoring(
        model=scored,
        components=["ES"],
        batches=lambda _: batches,
        metric="loss",
        permutations=sum(sizes),
    )
    found = compute(scoring, ["shapley"])["shapley"]
    assert found.settings["settled"] == 0
    players = [("ES", layer, head) for layer in range(3) for head in range(4)]
    ends = torch.tensor([[True], [False]]).expand(2, 12)
    drops = [
        coalition_values(scored, batch, players, ends, metric="loss").diff().neg().item()
        for batch in batches
    ]
    mean = sum(drop * size for drop, size in zip(drops, sizes, strict=True)) / sum(sizes)
    assert sum(map(sum, found.values["ES"])) == pytest.approx(mean, abs=1e-6)
    assert mean != pytest.approx(sum(drops) / len(drops), abs=1e-4)


def test_values_add_up_to_the_drop_from_all_heads_to_none():
    scored = HuggingFaceModel(build("bert", AutoModelForSequenceClassification))
    batches = cut_up(data("bert"), 2)
    scoring = Scoring(
        model=scored, components=["ES"], batches=lambda _: batches, metric="loss", permutations=3
    )
    found = compute(scoring, ["shapley"])["shapley"]
    ends = torch.tensor([[True], [False]]).expand(2, 12)
    players = [("ES", layer, head) for layer in range(3) for head in range(4)]
    whole, empty = sum(
        coalition_values(scored, batch, players, ends, metric="loss") / 3 for batch in batches
    ).tolist()
    assert sum(sum(row) for row in found.values["ES"]) == pytest.approx(whole - empty, rel=1e-5)
    assert found.settings["orders"] == 3 and found.settings["half_widths"]["ES"][0][0] > 0


def test_a_run_that_was_killed_resumes(tmp_path, monkeypatch):
    """Finished orders are not walked again, and the values are those of one run."""
    scored = HuggingFaceModel(build("bert", AutoModelForSequenceClassification))
    batches = cut_up(data("bert"), 2)
    settings = {"model": scored, "components": ["ES"], "batches": lambda _: batches}
    scoring = Scoring(**settings, metric="loss", permutations=4)
    whole = compute(scoring, ["shapley"])["shapley"]
    walked = []
    walk = shapley_values._walk

    def kill_at_the_third(*arguments, **options):
        if len(walked) == 2:
            raise KeyboardInterrupt
        walked.append(arguments)
        return walk(*arguments, **options)

    monkeypatch.setattr(shapley_values, "_walk", kill_at_the_third)
    with pytest.raises(KeyboardInterrupt), partial_results(tmp_path):
        compute(scoring, ["shapley"])
    (path,) = tmp_path.iterdir()
    path.write_text(path.read_text() + '{"drop": 1.0, "margi')  # a line that was cut off
    rest = []
    monkeypatch.setattr(
        shapley_values, "_walk", lambda *given, **options: rest.append(1) or walk(*given, **options)
    )
    with partial_results(tmp_path):
        assert compute(scoring, ["shapley"])["shapley"] == whole
        assert len(rest) == 2
        assert compute(scoring, ["shapley"])["shapley"] == whole
        assert len(rest) == 2
        # Parts of another metric, seed or of other data are of no use.
        for other in ({"metric": "accuracy"}, {"seed": 2}, {"batches": lambda _: batches[:2]}):
            rest.clear()
            changed = {**settings, "metric": "loss", **other}
            compute(Scoring(**changed, permutations=1), ["shapley"])
            assert len(rest) == 1, other
    assert not [*tmp_path.iterdir()]


def test_the_loss_is_recorded_where_ablation_measures_bleu():
    scored = HuggingFaceModel(build("bert", AutoModelForSequenceClassification))
    settings = {"components": ["ES"], "batches": lambda _: [data("bert")], "permutations": 2}
    by_metric = {
        metric: compute(
            Scoring(model=scored, metric=metric, ablate=lambda _: {}, **settings), ["shapley"]
        )["shapley"]
        for metric in ("bleu", "loss", "accuracy")
    }
    assert by_metric["bleu"].values == by_metric["loss"].values != by_metric["accuracy"].values
    recorded = [found.settings["metric"] for found in by_metric.values()]
    assert recorded == ["loss", "loss", "accuracy"]
    with pytest.raises(UsageError, match="metric bleu"):
        compute(Scoring(model=scored, metric="bleu", **settings), ["shapley"])


def test_the_command(tmp_path):
    classifier = write_model(tmp_path / "classifier")
    (tmp_path / "text.txt").write_text("the man sees a dog\nthe old cat hears\n" * 10)
    options = ("--without-labels", "--train", tmp_path / "text.txt", "--max-length", 24)
    options = (*options, "--score", "shapley", "--permutations", 2, "-o", tmp_path / "out")
    for size, given in ((8, ()), (10, ("--batch-size", 32))):  # of the ten texts of one half
        arguments = ("scores", classifier, *options, *given)
        result = CliRunner().invoke(app, [*map(str, arguments)])
        assert result.exception is None
        assert "shapley: 2 random orders" in result.stdout
        scores = HeadScores.load(tmp_path / "out" / "shapley.json")
        assert scores.settings["metric"] == "divergence"
        assert f"|seed:1|orders:2|batch_size:{size}|" in scores.signature
