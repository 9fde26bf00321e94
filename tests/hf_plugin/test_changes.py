"""How much each head changes in fine-tuning, and the command that says so."""

from __future__ import annotations

import csv
import json
import math
import re
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForSequenceClassification, GPT2Config, GPT2Model, PreTrainedModel

from headprune import DataError, HeadPlan, UsageError
from headprune.report.changes import document
from headprune.report.distances import by_distance
from headprune.report.render import json_values, markdown
from headprune.results.changes import Changes, evenness, layer_means
from headprune.results.stats import Spread, spread
from hf_plugin import prune_heads
from hf_plugin.changes import head_changes, load
from hf_plugin.cli.changes import distinct_names
from hf_plugin.families import attentions
from tests.command import headprune

from .models import FAMILIES, HEADS, LAYERS, SIZE, SOME, build, clone, plan_for


def fine_tuned(model: PreTrainedModel) -> PreTrainedModel:
    """The model with head h of layer l changed by (10 l + h + 1) times 1, 2, 3 in W_q, W_k, W_v."""
    after = clone(model)
    with torch.no_grad():
        for layers in attentions(after).values():
            for layer, attention in enumerate(layers):
                matrices = [
                    block
                    for linear in attention.inputs[: len(attention.names.inputs)]
                    for block in linear.weight.chunk(attention.names.blocks)
                ]
                for factor, matrix in enumerate(matrices, start=1):
                    for head in range(HEADS):
                        # Half of the weights go up and half down.
                        rows = matrix[head * SIZE : (head + 1) * SIZE]
                        change = float(factor * (10 * layer + head + 1))
                        rows[::2] += change
                        rows[1::2] -= change
                        attention.output.weight += 7
    return after


def expected(layer: int, head: int) -> float:
    return 2.0 * (10 * layer + head + 1)


def test_projections_that_are_stored_by_column() -> None:
    """GPT-2 has W_q, W_k and W_v in one matrix, C_in x C_out."""
    before = GPT2Model(GPT2Config(vocab_size=9, n_embd=16, n_layer=1, n_head=4)).eval()
    after = clone(before)
    with torch.no_grad():
        after.h[0].attn.c_attn.weight[:, 4:8] += 3.0  # W_q of head 1
    (layer,) = head_changes(before, after)["DS"]
    assert layer == pytest.approx((0, 1, 0, 0), abs=1e-6)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_heads_change_is_the_mean_over_its_rows_of_three_matrices(family: str) -> None:
    before = build(family)
    for values in head_changes(before, fine_tuned(before)).values():
        assert len(values) == LAYERS
        for layer, heads in enumerate(values):
            wanted = [expected(layer, head) for head in range(HEADS)]
            assert heads == pytest.approx(wanted, rel=1e-5)


@pytest.mark.parametrize("family", FAMILIES)
def test_heads_of_pruned_models_are_matched_by_their_unpruned_numbers(family: str) -> None:
    before = build(family)
    plan = plan_for(family, HeadPlan(kept={"ES": [(0, 2, 3), (3,), (1,)]}, heads=SOME.heads))
    full, after = clone(before), fine_tuned(before)
    prune_heads(after, plan)
    changes = head_changes(full, after)
    for name, layers in plan.kept.items():
        for layer, kept in enumerate(layers):
            found = changes[name][layer]
            assert [head for head in range(HEADS) if found[head] is not None] == list(kept)
            assert [found[head] for head in kept] == pytest.approx(
                [expected(layer, head) for head in kept], rel=1e-5
            )
    prune_heads(before, plan)
    assert head_changes(before, after) == changes
    with pytest.raises(UsageError, match="heads that the model before fine-tuning lacks"):
        head_changes(before, full)


def test_models_that_do_not_fit_are_refused() -> None:
    with pytest.raises(UsageError, match="one model is a bert, the other a electra"):
        head_changes(build("bert"), build("electra"))
    with pytest.raises(UsageError, match="different shape: before ES=444, after ES=4444"):
        head_changes(build("bert"), build("bert", num_hidden_layers=4))
    with pytest.raises(UsageError, match=r"ES: layer 0: .* different widths"):
        head_changes(build("bert"), build("bert", hidden_size=48))


def save(model: PreTrainedModel, folder: Path) -> str:
    model.save_pretrained(folder)
    return str(folder)


def test_a_classifier_that_was_pruned_is_read_from_its_folder(tmp_path: Path) -> None:
    classifier = build("bert", AutoModelForSequenceClassification)
    before = load(save(classifier, tmp_path / "before"))
    after = load(save(prune_heads(fine_tuned(classifier), SOME), tmp_path / "after"))
    changes = head_changes(before, after)["ES"]
    assert changes[0] == pytest.approx([expected(0, 0), None, expected(0, 2), expected(0, 3)])
    assert changes[1] == (None,) * HEADS


def test_a_folder_without_a_model_or_without_its_attention_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="nowhere: no such folder"):
        load(str(tmp_path / "nowhere"))
    model = build("bert")
    weights = {name: w for name, w in model.state_dict().items() if "layer.1" not in name}
    model.save_pretrained(tmp_path / "part", state_dict=weights)
    with pytest.raises(DataError, match="do not hold encoder.layer.1.attention.self.query.weight"):
        load(str(tmp_path / "part"))


def test_layers_differ_by_the_largest_mean_over_the_smallest() -> None:
    values = ((1.0, None, 3.0), (None, None, None), (2.1, None, 2.1))
    assert layer_means(values) == [2.0, None, pytest.approx(2.1)]
    (row,) = evenness([Changes(label="a", components={"ES": values})])
    assert (row.lowest, row.highest, row.holds) == (0, 2, True)
    assert row.difference == pytest.approx(0.05)
    assert not evenness([Changes(label="a", components={"ES": values[:2]})])


def test_heads_are_grouped_by_the_distance_to_the_nearest_pruned_layer() -> None:
    values = ((None, None), (1.0, 3.0), (5.0, 7.0), (9.0, 9.5), (8.0, None))
    near, *rest = by_distance(values)
    assert (near.distance, near.layers, near.change) == (0, (4,), Spread(8.0, None, 1))
    assert [(row.distance, row.layers) for row in rest] == [(1, (1, 3)), (2, (2,))]
    assert rest[0].change == spread([1.0, 3.0, 9.0, 9.5])
    assert by_distance(((1.0,), (2.0,))) == []
    assert by_distance(((None,), (None,))) == []


def test_the_document_has_change_against_distance() -> None:
    pruned = Changes(label="top", components={"ES": ((0.001, 0.003), (None, None))})
    report = document([pruned], title="t")
    text = markdown.render(report)
    assert "Mean change by the distance from the pruned heads, in layers:" in text
    row = "| top | ES | 1 | 0 | 2 | 2.000e-03 | 1.4e-03 |"
    assert row in re.sub(" +", " ", text)
    assert "(distances.svg)" in text
    (model,) = json.loads(json_values.render(report))["models"]
    assert model["distances"]["ES"] == [
        {"distance": 1, "layers": [0], "mean": 0.002, "sd": pytest.approx(2**0.5 / 1000), "n": 2}
    ]
    whole = document([Changes(label="full", components={"ES": ((1.0,), (2.0,))})], title="t")
    assert "distance" not in markdown.render(whole)


def test_layers_that_do_not_change_at_all() -> None:
    frozen = Changes(label="frozen", components={"ES": ((0.0,), (0.0,))})
    half = Changes(label="half", components={"ES": ((0.0,), (1.0,))})
    none, infinite = evenness([frozen, half])
    assert none.difference == 0 and none.holds
    assert math.isinf(infinite.difference) and not infinite.holds
    assert "infinite" in markdown.render(document([frozen, half], title="t"))
    content = json.loads(
        json_values.render(document([half], title="t")), parse_constant=pytest.fail
    )
    assert content["claim"]["rows"][0]["difference"] is None


@pytest.mark.parametrize(
    ("paths", "names"),
    [
        (["m"], ["m"]),
        (["a/b/"], ["b"]),
        (["r/10/s1/model", "r/50/s1/model"], ["10", "50"]),
        (["r/10/s1", "r/50/s2"], ["10/s1", "50/s2"]),
        (["a", "a/b"], ["a", "a/b"]),
    ],
)
def test_models_are_called_by_what_their_paths_differ_in(
    paths: list[str], names: list[str]
) -> None:
    assert distinct_names(paths) == names


def test_the_command_writes_tables_and_maps_and_prints_the_claim(tmp_path: Path) -> None:
    model = build("bert")
    before = save(model, tmp_path / "before")
    some = save(prune_heads(fine_tuned(model), SOME), tmp_path / "runs" / "some" / "model")
    full = save(fine_tuned(model), tmp_path / "runs" / "full" / "model")
    done = headprune("changes", before, some, full, "-o", tmp_path / "out")
    assert done.status == 0, done.err
    assert "| some" in done.out and "below 10%" in done.out
    out = tmp_path / "out"
    assert sorted(path.name for path in out.iterdir()) == [
        *(f"changes.{ending}" for ending in ("csv", "html", "json", "md", "png", "svg")),
        "distances.svg",
    ]
    with (out / "changes.csv").open() as file:
        lines = list(csv.DictReader(file))
    assert len(lines) == 2 * LAYERS * HEADS
    assert sum(line["change"] == "" for line in lines) == LAYERS * HEADS - SOME.total_kept
    content = json.loads((out / "changes.json").read_text())
    assert [row["holds"] for row in content["claim"]["rows"]] == [False, False]

    wrong = headprune("changes", before, some, "--label", "a", "--label", "b", "-o", out)
    assert (wrong.status, wrong.err.count("\n")) == (2, 1)
    other = headprune("changes", before, save(build("electra"), tmp_path / "electra"), "-o", out)
    assert other.status == 2
    assert "the other a electra" in other.err and other.err.count("\n") == 1
