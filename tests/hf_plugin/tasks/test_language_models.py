"""Decoders alone, scored and measured by the loss on a text file."""

from __future__ import annotations

import json
import math
import random
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from transformers import AutoModelForCausalLM, GPTNeoXConfig, PreTrainedTokenizerFast

import headprune
import hf_plugin
from headprune import PruningPlan
from headprune.cli.compare import app as compare_app
from headprune.cli.iterate import app as iterate_app
from headprune.cli.scores import app as scores_app
from headprune.errors import HeadpruneError
from headprune.results.record import Record
from headprune.scores import HeadScores
from headprune.scores.ablation import cases_of
from headprune.scores.attention_statistics import attention_statistics
from headprune.scores.reuse import masked_outcomes
from hf_plugin.finetuning.training import encode
from hf_plugin.scores.model import HuggingFaceModel
from hf_plugin.scores.run import batches_of
from hf_plugin.tasks.examples import Examples
from hf_plugin.tasks.predictions import IGNORED
from tests.hf_plugin.made import WORDS, sentence, write_model
from tests.hf_plugin.small_models import inputs_of, small

from .test_commands import finetune, measure, run

DECODERS = ("gpt2", "openai-gpt", "opt", "llama", "gemma2", "gemma3_text", "granite")
LENGTH = ("--max-length", 8)
QUICK = (*LENGTH, "--batch-size", 8, "--learning-rate", 1e-3)


def write_decoder(folder: Path, family: str) -> Path:
    """A small language model, whose tokenizer has no token for padding."""
    vocabulary = {word: number for number, word in enumerate(["<end>", "<unk>", *WORDS])}
    tokenizer = Tokenizer(WordLevel(vocabulary, unk_token="<unk>"))
    tokenizer.pre_tokenizer = Whitespace()
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, unk_token="<unk>", eos_token="<end>"
    ).save_pretrained(folder)
    small(family, AutoModelForCausalLM).save_pretrained(folder)
    return folder


def write_text(path: Path, size: int, *, seed: int) -> Path:
    rng = random.Random(seed)
    lines = [" ".join(sentence(rng) for _ in range(1 + n % 3)) for n in range(size)]
    path.write_text("\n\n".join(lines) + "\n")
    return path


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> tuple[object, ...]:
    folder = tmp_path_factory.mktemp("text")
    train = write_text(folder / "train.txt", 24, seed=1)
    return ("--train", train, "--dev", write_text(folder / "dev.txt", 9, seed=2))


@pytest.fixture(scope="module")
def trained(files: tuple[object, ...], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a GPT-2 that was fine-tuned on the text."""
    folder = tmp_path_factory.mktemp("trained")
    model = write_decoder(folder / "model", "gpt2")
    finetune(model, *files, *QUICK, "--epochs", 1, "--hold-out", 25, "-o", folder / "out")
    return folder / "out"


@pytest.fixture(scope="module")
def padding_left(
    trained: Path, files: tuple[object, ...], tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """The same model with a tokenizer that has a token for padding, and pads on the left."""
    folder = tmp_path_factory.mktemp("left")
    shutil.copytree(trained / "model", folder / "model")
    tokenizer = PreTrainedTokenizerFast.from_pretrained(
        folder / "model", pad_token="<unk>", padding_side="left"
    )
    tokenizer.save_pretrained(folder / "model")
    options = (*QUICK, "--epochs", 0, "--hold-out", 25)
    finetune(folder / "model", *files, *options, "-o", folder / "out")
    return folder / "out"


@pytest.mark.parametrize("finetuned", ["trained", "padding_left"])
def test_perplexity_is_that_of_transformers_own_loss(finetuned, files, tmp_path, request):
    trained = request.getfixturevalue(finetuned)
    record = Record.load(trained / "result.json")
    assert list(record.metrics) == ["perplexity", "loss"] and record.task == "dev"
    measure(trained / "model", *files[2:], *LENGTH, "-o", tmp_path / "record.json")
    assert Record.load(tmp_path / "record.json").metrics == pytest.approx(record.metrics)
    model = AutoModelForCausalLM.from_pretrained(trained / "model").eval()
    tokenizer = PreTrainedTokenizerFast.from_pretrained(trained / "model")
    assert tokenizer.padding_side == ("left" if finetuned == "padding_left" else "right")
    total = number = 0
    for line in Path(str(files[3])).read_text().split("\n"):
        tokens = tokenizer(line)["input_ids"]
        for start in range(0, len(tokens), 8):
            piece = torch.tensor([tokens[start : start + 8]])
            if piece.size(1) > 1:
                with torch.no_grad():
                    total += float(model(piece, labels=piece).loss) * (piece.size(1) - 1)
                number += piece.size(1) - 1
    assert record.metrics["loss"] == pytest.approx(total / number, rel=1e-5)
    assert record.value == pytest.approx(math.exp(total / number), rel=1e-5)
    lines = (trained / "predictions.tsv").read_text().splitlines()
    assert lines[0] == "index\tloss\ttokens"
    assert sum(int(line.split("\t")[2]) for line in lines[1:]) == number


def test_scores_compare_and_iterate(trained, files, tmp_path):
    names = ("taylor", "ablation", "confidence")
    chosen = [f"--score={name}" for name in names]
    run(scores_app, trained / "model", *files[:2], *LENGTH, *chosen, "-o", tmp_path / "scores")
    for name in names:
        scores = HeadScores.load(tmp_path / "scores" / f"{name}.json")
        assert scores.scored.is_full and list(scores.values) == ["DS"]
    assert HeadScores.load(tmp_path / "scores" / "ablation.json").settings["metric"] == "loss"
    options = (*files, *QUICK, "--percent", 50, "--score", "magnitude")
    more = ("--components", "DS,DF", "--seeds", 1, "--rounds", 0, "-o", tmp_path / "compared")
    run(compare_app, trained / "model", *options, "--epochs", 0, *more)
    found = json.loads((tmp_path / "compared" / "compare.json").read_text())
    assert found["metric"] == "perplexity" and "loss" in found["settings"]["own"]["metrics"]
    table = (tmp_path / "compared" / "compare.md").read_text()
    assert "perplexity right after pruning, low is good:" in table
    done = run(iterate_app, trained / "model", *options, "--steps", 1, "-o", tmp_path / "steps")
    assert "step 1 of 1: 50.0% pruned, perplexity " in done.stdout


def test_a_pruned_model_is_fine_tuned_and_its_gates_are_learned(trained, files, tmp_path):
    options = (*files, *QUICK, "--epochs", 1)
    kept = {"DS": [(0, 2), ()], "DL": [(0,), (0,)]}
    plan = PruningPlan(kept=kept, units={"DS": (4, 4), "DL": (1, 1)})
    plan.save(tmp_path / "plan.json")
    teacher = ("--distill-from", trained / "model", "--plan", tmp_path / "plan.json")
    finetune(trained / "model", *options, *teacher, "-o", tmp_path / "pruned")
    assert Record.load(tmp_path / "pruned" / "result.json").plan.kept["DS"] == ((0, 2), ())
    gates = ("--gates", "DS,DF", "--l0-target", "50%")
    finetune(trained / "model", *options, *gates, "-o", tmp_path / "gated")
    record = Record.load(tmp_path / "gated" / "result.json")
    measure(tmp_path / "gated" / "model", *files[2:], *LENGTH, "-o", tmp_path / "again.json")
    assert Record.load(tmp_path / "again.json").metrics == pytest.approx(record.metrics, rel=1e-4)


def test_python_and_a_table_of_texts(files, tmp_path):
    model = write_decoder(tmp_path / "model", "llama")
    for split, path in (("train", files[1]), ("dev", files[3])):
        texts = [line for line in Path(str(path)).read_text().splitlines() if line]
        rows = [json.dumps({"body": text}) + "\n" for text in texts]
        (tmp_path / f"{split}.jsonl").write_text("".join(rows))
    given = {"train": str(tmp_path / "train.jsonl"), "dev": str(tmp_path / "dev.jsonl")}
    opened = headprune.open_task_model(model, **given, text="body", max_length=8)
    assert opened.metric == "perplexity"
    scores = opened.scores(["gradient"], seed=1)["gradient"]
    plan = headprune.select.by_score(scores, percent=50)
    pruned = opened.pruned(plan, tmp_path / "pruned")
    assert opened.measure(plan).value == pytest.approx(pruned.measure().value)
    text = {"train": str(files[1]), "max_length": 8, "without_labels": True}
    own = headprune.score(model, ["gradient"], **text)["gradient"]
    assert own.settings["labels"] == "own" and own.scored.is_full
    plain = headprune.open_task_model(model, dev=str(files[3]), max_length=8)
    assert plain.measure().value == opened.measure().value
    assert plain.data_name.partition("@")[2] == opened.data_name.rpartition("@")[2]
    refitted = opened.refitted(PruningPlan(kept={"DF": [range(6)] * 2}, units={"DF": (12,) * 2}))
    assert all(each.after < each.before for each in refitted.sublayers)


def test_no_pass_has_more_than_eight_texts(files, tmp_path):
    """Their outputs for all entries of the vocabulary would fill the memory."""
    sizes: dict[str, set[int]] = {}

    def watch(batches, _, purpose):
        for batch in batches:
            sizes.setdefault(purpose, set()).add(len(batch["input_ids"]))
            yield batch

    model = write_decoder(tmp_path / "model", "gpt2")
    given = {"train": str(files[1]), "dev": str(files[3]), "max_length": 8}
    opened = replace(headprune.open_task_model(model, **given), watch=watch)
    opened.scores(["taylor", "ablation"], seed=1)
    list(opened.calibration().batches("re-fitting"))
    assert len(sizes) == 3 and all(max(each) == 8 for each in sizes.values())


def test_speed_is_timed_without_the_loss(trained, files):
    inputs: list[set[str]] = []
    opened = headprune.open_task_model(trained / "model", dev=str(files[3]), max_length=8)
    opened._classifier.register_forward_pre_hook(
        lambda module, args, given: inputs.append(set(given)), with_kwargs=True
    )
    ((seconds,),) = opened.seconds([opened.model.plan], rounds=1)
    assert seconds > 0 and inputs
    assert all("input_ids" in each and "labels" not in each for each in inputs)


def test_batches_for_timing_are_some_of_all_batches(trained, files):
    tokenizer = PreTrainedTokenizerFast.from_pretrained(trained / "model")
    texts = [(line,) for line in Path(str(files[1])).read_text().splitlines() if line]
    examples = Examples(texts, [0] * len(texts), of_text=True)
    encoded = encode(examples, tokenizer, max_length=8)
    whole = list(batches_of(encoded, tokenizer, size=3))
    for most in (1, 4, 7, len(whole), 1000):
        expected = whole[:: max(1, len(whole) // most)][:most]
        found = list(batches_of(encoded, tokenizer, size=3, most=most))
        assert len(found) == len(expected) == min(most, len(whole))
        for one, other in zip(found, expected, strict=True):
            assert torch.equal(one["input_ids"], other["input_ids"])


@pytest.mark.parametrize("family", ["llama", "openai-gpt"])
def test_attention_statistics_of_a_group_are_the_mean_of_its_queries(family):
    model = small(family, AutoModelForCausalLM, attention="eager")
    inputs = {name: tensor[:1] for name, tensor in inputs_of(model).items()}  # without padding
    found = attention_statistics(HuggingFaceModel(model), [inputs], components=["DS"])
    with torch.no_grad():
        weights = model(**inputs, output_attentions=True).attentions  # layers of B x H x T x T
    for layer, of_layer in enumerate(weights):
        largest = of_layer.amax(-1).mean((0, 2))  # H
        expected = largest.unflatten(0, (4, -1)).mean(1)
        assert found["confidence"]["DS"][layer] == pytest.approx(expected.tolist(), rel=1e-5)


@pytest.mark.parametrize("family", DECODERS)
def test_ablation_with_shared_work_gives_what_the_plain_loop_gives(family):
    model = small(family, AutoModelForCausalLM)
    inputs = inputs_of(model)
    labels = inputs["input_ids"].masked_fill(inputs["attention_mask"] == 0, -100)
    batch = {**inputs, "labels": labels}
    scored = HuggingFaceModel(model)
    cases = cases_of(scored, "ablation", ["DS", "DF"])
    base, found = masked_outcomes(scored, batch, cases, at_once=5)
    with torch.no_grad():
        of_first = model(inputs["input_ids"][:1], labels=labels[:1]).loss
    assert float(base.losses[0]) == pytest.approx(float(of_first), rel=1e-5)
    whole = PruningPlan.full({"DS": (4, 4), "DF": scored_units(scored)})
    for (component, layer), masks in cases.items():
        for mask, outcome in list(zip(masks, found[component, layer], strict=True))[:4]:
            layers = [list(units) for units in whole.kept[component]]
            layers[layer] = sorted(mask)
            plan = PruningPlan(kept={**whole.kept, component: layers}, units=whole.units)
            with torch.no_grad(), hf_plugin.masked(model, plan):
                expected = HuggingFaceModel(model).outcome(batch).losses
            torch.testing.assert_close(outcome.losses, expected, atol=1e-5, rtol=1e-5)


def scored_units(scored: HuggingFaceModel) -> tuple[int, ...]:
    return tuple(sublayer.units for sublayer in scored.sublayers["DF"])


def test_labels_of_a_models_own_are_those_of_the_next_tokens():
    model = small("gpt2", AutoModelForCausalLM)
    scored, inputs = HuggingFaceModel(model), inputs_of(model)
    (drawn,) = scored.own_labels(inputs, torch.Generator().manual_seed(1))
    with torch.no_grad():
        logits = model(**inputs).logits
    losses = scored.outcome(drawn).losses
    expected = torch.nn.functional.cross_entropy(logits[0, :-1], drawn["labels"][0, 1:])
    assert losses[0].item() == pytest.approx(expected.item(), rel=1e-5)
    assert scored.outcome(scored.with_own_outputs(inputs)).losses.abs().max() < 1e-6
    # Padding changes nothing.
    length = inputs["input_ids"].size(1)
    padded = {name: torch.nn.functional.pad(value, (0, 2)) for name, value in inputs.items()}
    (with_padding,) = scored.own_labels(padded, torch.Generator().manual_seed(1))
    assert with_padding["labels"][:, :length].equal(drawn["labels"])
    assert (with_padding["labels"][:, length:] == IGNORED).all()
    torch.testing.assert_close(scored.outcome(with_padding).losses, losses)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--label", "topic"), "--label topic: .* predicts texts, which have no labels"),
        (("--text", "other"), "--text other: plain text has no columns; leave it out"),
        (("--text2", "other"), "language modelling: give one column of text, and no labels"),
        (("--metric", "accuracy"), "language-modelling task is measured by perplexity, loss"),
        (("--task-type", "single-label"), "unknown kind of file.*--task-type language-modelling"),
        (("--dev", "EMPTY"), "no text in it"),
        (("--dev", "SHORT"), "2 texts, none of which has two tokens; give longer ones"),
        (("--dev", "NONE"), "no such file"),
    ],
)
def test_mistakes_are_one_line(options, message, trained, files, tmp_path):
    (tmp_path / "EMPTY.txt").write_text(" \n\n")
    (tmp_path / "SHORT.txt").write_text("the\ndog\n")
    chosen = [tmp_path / f"{each}.txt" if str(each).isupper() else each for each in options]
    with pytest.raises(HeadpruneError, match=message) as caught:
        measure(trained / "model", *files[2:], *chosen, *LENGTH)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "content"),
    [("t.csv", "text,other\na dog,1\n"), ("t.jsonl", '{"text": "a dog", "other": 1}\n')],
)
def test_a_table_without_labels_has_advice_for_language_models(name, content, tmp_path):
    (tmp_path / name).write_text(content)
    given = ("--train", tmp_path / name, "--epochs", 1, "-o", tmp_path / "out")
    advice = "no column 'label'.*'other'; name it with --label, or give --task-type language-mod"
    with pytest.raises(HeadpruneError, match=advice):
        finetune(write_decoder(tmp_path / "gpt2", "gpt2"), *given)
    for model, options in (
        (tmp_path / "gpt2", ("--task-type", "single-label")),
        (write_model(tmp_path / "bert"), ()),
    ):
        with pytest.raises(HeadpruneError, match="no column 'label'") as caught:
            finetune(model, *given, *options)
        assert "language-modelling" not in str(caught.value)


def test_one_token_is_not_predicted(trained, files):
    opened = headprune.open_task_model(trained / "model", dev=str(files[3]), max_length=1)
    with pytest.raises(HeadpruneError, match=r"max length 1: a token is predicted .* 2 or more"):
        opened.measure()


def test_encoders_do_not_predict_a_text(files, tmp_path):
    model = write_model(tmp_path / "model")
    with pytest.raises(HeadpruneError, match="bert model does not predict each token of a text"):
        finetune(model, *files, *QUICK, "--epochs", 1, "-o", tmp_path / "out")


def test_a_decoder_of_a_family_that_is_not_known(files, tmp_path):
    folder = write_model(tmp_path / "model")  # for its tokenizer
    sizes = dict(hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8)
    config = GPTNeoXConfig(**sizes, vocab_size=99, max_position_embeddings=32)
    AutoModelForCausalLM.from_config(config).save_pretrained(folder)
    with pytest.raises(HeadpruneError, match="gpt_neox is not a known family"):
        finetune(folder, *files, *QUICK, "--epochs", 1, "-o", tmp_path / "out")
