"""Scores without labels against plain loops, and `headprune scores --without-labels`."""

from __future__ import annotations

import math

import pytest
import torch
from torch.nn.functional import log_softmax
from transformers import (
    AutoModelForMaskedLM,
    AutoModelForSeq2SeqLM,
    AutoModelForSequenceClassification,
)
from typer.testing import CliRunner

import hf_plugin
from headprune import HeadPlan, UsageError
from headprune.cli import app
from headprune.scores import HeadScores
from headprune.scores.ablation import ablation
from headprune.scores.fisher import fisher_blocks
from headprune.scores.gradients import gradient_scores
from headprune.scores.own_outputs import drawn, without_labels
from hf_plugin.scores.model import HuggingFaceModel
from hf_plugin.scores.own_outputs import with_translations
from tests.hf_plugin.made import write_model
from tests.hf_plugin.models import HEADS, LAYERS, build, shape_of
from tests.hf_plugin.scores.test_ablation import naive
from tests.hf_plugin.scores.test_scores import close, cut_up, data, tensor


def unlabelled(family="bert"):
    return {name: values for name, values in data(family).items() if name != "labels"}


def own(model, batches, purpose, seed=1):
    return without_labels(HuggingFaceModel(model), lambda _: iter(batches), seed=seed)(purpose)


def test_gradients_are_expectations_over_the_models_own_labels():
    model = build("bert", AutoModelForSequenceClassification, num_labels=3)
    expected, squares = torch.zeros(LAYERS, HEADS), torch.zeros(LAYERS, HEADS)
    for example in cut_up(unlabelled(), 1):
        for label in range(3):
            xi = {"ES": torch.ones(LAYERS, HEADS, requires_grad=True)}
            with hf_plugin.masked(model, xi):
                loss = -log_softmax(model(**example).logits, -1)[0, label]
                loss.backward()
            expected += math.exp(-loss.item()) * xi["ES"].grad.abs() / 5
            squares += math.exp(-loss.item()) * xi["ES"].grad.square() / 5
    scored = HuggingFaceModel(model)
    found = gradient_scores(scored, own(model, cut_up(unlabelled(), 2), "gradients"))
    close(tensor(found.gradient_raw), expected)
    close(tensor(found.fisher), squares)
    assert found.examples == 5 and (squares > 0).all()
    blocks = fisher_blocks(scored, own(model, [unlabelled()], "gradients"), components=["ES"])
    close(blocks["ES", 1].diagonal(), squares[1])


def test_fisher_without_labels_is_the_curvature_of_the_divergence():
    """KL(p || q) after moving one gate by t is t^2 F / 2 to second order."""
    model = build("bert", AutoModelForSequenceClassification).double()
    batch = unlabelled()
    found = gradient_scores(HuggingFaceModel(model), own(model, [batch], "gradients"))
    step = 1e-3
    xi = torch.ones(LAYERS, HEADS, dtype=torch.float64)
    xi[1, 2] += step
    with torch.no_grad():
        p = log_softmax(model(**batch).logits, -1)
        with hf_plugin.masked(model, {"ES": xi}):
            q = log_softmax(model(**batch).logits, -1)
    curvature = 2 * (p.exp() * (p - q)).sum(-1).mean() / step**2
    assert found.fisher["ES"][1][2] == pytest.approx(curvature.item(), rel=0.01)


@pytest.mark.parametrize(
    "options",
    [
        {"num_labels": 3},
        {"num_labels": 3, "problem_type": "multi_label_classification"},
        {"num_labels": 1},
    ],
    ids=["classes", "several labels", "a number"],
)
def test_ablation_is_the_divergence_from_the_own_outputs(options):
    # A divergence of about 1e-5 between probabilities of order 1 needs double precision.
    model = build("bert", AutoModelForSequenceClassification, **options).double()
    scored = HuggingFaceModel(model)
    batches = list(own(model, cut_up(unlabelled(), 2), "ablation"))
    found = ablation(scored, batches, metric="divergence")["ablation"]
    assert found.base == pytest.approx(0, abs=1e-6) and not found.p_values
    with torch.no_grad():
        full = model(**unlabelled()).logits
        layers = [tuple(range(HEADS))] * LAYERS
        layers[1] = (0, 1, 3)
        plan = HeadPlan(kept={"ES": layers}, heads=shape_of("bert"))
        with hf_plugin.masked(model, plan):
            other = model(**unlabelled()).logits
    if options["num_labels"] == 1:
        expected = (full - other).square().mean()
    elif "problem_type" in options:
        kl = [
            p * (p.log() - q.log())
            for p, q in ((full.sigmoid(), other.sigmoid()), ((-full).sigmoid(), (-other).sigmoid()))
        ]
        expected = sum(kl).mean()
    else:
        p, q = log_softmax(full, -1), log_softmax(other, -1)
        expected = (p.exp() * (p - q)).sum(-1).mean()
    assert found.drops["ES"][1][2] == pytest.approx(expected.item(), rel=1e-3)
    labels = list(own(model, [unlabelled()], "gradients"))
    assert len(labels) == (3 if options == {"num_labels": 3} else 1)
    assert gradient_scores(scored, labels).examples == 5


def test_masked_language_models_count_the_mean_over_tokens():
    model = build("bert", AutoModelForMaskedLM)
    scored = HuggingFaceModel(model)
    (batch,) = own(model, [unlabelled()], "ablation")
    outcome = naive(model, batch, "ES", 1, frozenset({0, 1, 3}))
    with torch.no_grad():
        layers = [tuple(range(HEADS))] * LAYERS
        layers[1] = (0, 1, 3)
        plan = HeadPlan(kept={"ES": layers}, heads=shape_of("bert"))
        p = log_softmax(model(**unlabelled()).logits, -1)
        with hf_plugin.masked(model, plan):
            q = log_softmax(model(**unlabelled()).logits, -1)
    mask = unlabelled()["attention_mask"]
    by_token = (p.exp() * (p - q)).sum(-1) * mask
    torch.testing.assert_close(outcome.losses, by_token.sum(1) / mask.sum(1), rtol=1e-3, atol=1e-6)
    # Labels that are drawn do not depend on the batches.
    both = [
        gradient_scores(scored, own(model, cut_up(unlabelled(), size), "gradients"))
        for size in (5, 2)
    ]
    close(tensor(both[0].fisher), tensor(both[1].fisher))


def test_drawn_classes_follow_the_distribution():
    logits = torch.tensor([0.1, 0.6, 0.3]).log().expand(20_000, 3)
    shares = drawn(logits, torch.Generator().manual_seed(1)).bincount() / 20_000
    torch.testing.assert_close(shares, torch.tensor([0.1, 0.6, 0.3]), atol=0.02, rtol=0)


def test_translation_models_are_scored_along_their_own_translations():
    model = build("marian", AutoModelForSeq2SeqLM)
    source = {name: data("marian")[name] for name in ("input_ids", "attention_mask")}
    batch = with_translations(model, source)
    for row in range(5):
        one = {"input_ids": source["input_ids"][row : row + 1]}
        one["attention_mask"] = source["attention_mask"][row : row + 1]
        # As long as its own source allows, whatever the others in the batch are.
        longest = int(one["attention_mask"].sum()) * 2 + 10
        written = model.generate(**one, do_sample=False, num_beams=1, max_length=longest)[0]
        end = model.generation_config.eos_token_id
        tokens = [int(token) for token in written if int(token) != end]
        real = batch["decoder_attention_mask"][row].bool()
        assert batch["decoder_input_ids"][row][real].tolist() == tokens[: int(real.sum())]
        assert int(real.sum()) == len(tokens) - (end not in written.tolist())
    # A tokenizer of another family may give inputs that the model does not take.
    more = with_translations(
        model, source | {"token_type_ids": torch.zeros_like(batch["input_ids"])}
    )
    assert {*more} == {*batch} and more["decoder_input_ids"].equal(batch["decoder_input_ids"])
    (labelled,) = own(model, [batch], "gradients")
    assert labelled["labels"].ge(0).equal(batch["decoder_attention_mask"].bool())
    assert gradient_scores(HuggingFaceModel(model), [labelled]).examples == 5


@pytest.fixture(scope="module")
def classifier(tmp_path_factory):
    return write_model(tmp_path_factory.mktemp("classifier"))


def run(*arguments: object):
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    if result.exception is not None:
        raise result.exception
    return result


def test_plain_text_is_enough(classifier, tmp_path):
    text = tmp_path / "text.txt"
    text.write_text("the man sees a dog\n\nthe old cat hears\n" * 4)
    options = ("--without-labels", "--train", text, "--max-length", 24)
    names = ("fisher", "entropy", "ablation", "alone", "layer-contribution")
    scores = [f"--score={name}" for name in names]
    components = ("--components", "ES,EL")
    run("scores", classifier, *options, *scores, *components, "-o", tmp_path / "scores")
    fisher, ablated, entropy = (
        HeadScores.load(tmp_path / "scores" / f"{name}.json")
        for name in ("fisher", "ablation", "entropy")
    )
    assert fisher.signature.startswith("score:fisher|part:scoring|trained-on:unknown|labels:own|")
    assert ablated.settings["metric"] == "divergence" and "labels" not in entropy.settings
    assert fisher.data.startswith("text.txt@") and fisher.data.endswith("[4],24tok")
    assert min(value for row in ablated.values["ES"] for value in row) > -1e-6


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ([], "give --train, a file with text"),
        (["--train=empty.txt"], "no text in it"),
        (["--train=text.txt", "--metric=accuracy"], "needs labels; --without-labels measures"),
        (["--train=text.txt", "--label=x"], "--label: not with --without-labels"),
        (
            ["--train=text.en"],
            "unknown kind of file; give one with a text a line that ends in .txt",
        ),
        (["--train=text.txt", "--split=dev"], "text without labels has the split train alone"),
    ],
)
def test_mistakes_are_one_line(options, message, classifier, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty.txt").write_text("\n")
    for name in ("text.txt", "text.en"):
        (tmp_path / name).write_text("the man\n")
    with pytest.raises(Exception, match=message) as caught:
        run("scores", classifier, "--without-labels", "--score=ablation", *options, "-o", "out")
    assert "\n" not in str(caught.value) and not (tmp_path / "out").exists()


def test_an_encoder_without_outputs_is_refused():
    scored = HuggingFaceModel(build("bert"))
    with pytest.raises(UsageError, match="no outputs that could stand for labels"):
        scored.with_own_outputs(unlabelled())
