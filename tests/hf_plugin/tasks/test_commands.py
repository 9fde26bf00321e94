"""`headprune finetune` and `measure` on a user's files, from a pretrained model to a pruned one."""

from __future__ import annotations

import csv
import json
import re
import shlex
from pathlib import Path

import pytest
import torch
from transformers import AutoConfig, AutoTokenizer, GPT2Config, GPT2Model
from transformers.modeling_outputs import SequenceClassifierOutput
from typer.testing import CliRunner, Result

import headprune
from headprune import HeadPlan
from headprune.cli.compare import app as compare_app
from headprune.cli.iterate import app as iterate_app
from headprune.cli.measure import app as measure_app
from headprune.cli.prune import app as prune_app
from headprune.cli.scores import app as scores_app
from headprune.errors import HeadpruneError, UsageError
from headprune.report.make import report_of
from headprune.results.record import Record
from headprune.scores import HeadScores
from headprune.select import at_random
from hf_plugin.cli.finetune import app as finetune_app
from hf_plugin.scores.losses import correct_predictions, example_losses
from tests.hf_plugin.made import SHAPE, write_model

from .files import LABELS, examples, write_csv

CATEGORY = ("--text", "text", "--label", "category", "--max-length", 24)
QUICK = ("--batch-size", 8, "--learning-rate", 1e-3)


def finetune(*arguments: object) -> Result:
    return run(finetune_app, *arguments)


def measure(*arguments: object) -> Result:
    return run(measure_app, *arguments)


def run(app: object, *arguments: object) -> Result:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    if result.exception is not None:
        raise result.exception
    return result


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> tuple[object, ...]:
    """The options that name the files."""
    folder = tmp_path_factory.mktemp("files")
    train = write_csv(folder / "train.csv", examples(24))
    dev = write_csv(folder / "dev.csv", examples(9, seed=2))
    return ("--train", train, "--dev", dev)


@pytest.fixture(scope="module")
def trained(files: tuple[object, ...], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a classifier that was fine-tuned on the files."""
    folder = tmp_path_factory.mktemp("trained")
    model = write_model(folder / "model", num_labels=2)
    out = folder / "out"
    finetune(model, *files, *CATEGORY, *QUICK, "--epochs", 1, "--hold-out", 25, "-o", out)
    return out


def test_a_classifier_of_the_users_labels(trained):
    record = Record.load(trained / "result.json")
    assert list(record.metrics) == ["accuracy", "macro-f1"] and record.task == "dev.category"
    assert "|data:train.csv@" in record.signature and "[-25%]+dev.csv@" in record.signature
    assert "glue" not in (trained / "result.json").read_text()
    assert record.examples == {"train": 18, "dev": 9}
    config = AutoConfig.from_pretrained(trained / "model")
    assert config.id2label == dict(enumerate(sorted(LABELS)))
    with (trained / "predictions.tsv").open() as file:
        rows = list(csv.DictReader(file, delimiter="\t"))
    assert [row["label"] for row in rows] == [row["category"] for row in examples(9, seed=2)]
    right = sum(row["label"] == row["prediction"] for row in rows)
    assert record.value == pytest.approx(100 * right / 9)


def test_measure_gives_what_finetune_measured(trained, files, tmp_path):
    record = Record.load(trained / "result.json")
    plan = at_random(SHAPE, percent=50, seed=1)
    plan.save(tmp_path / "plan.json")
    out = measure(trained / "model", *files[2:], *CATEGORY, "-o", tmp_path / "whole.json").stdout
    measured = Record.load(tmp_path / "whole.json")
    assert measured.metrics == record.metrics and measured.kind == "baseline"
    assert measured.signature in out and "data:dev.csv@" in out and "train.csv" not in out
    assert measured.fingerprint == record.fingerprint
    chosen = (*files[2:], *CATEGORY, "--metric", "macro-f1", "--plan", tmp_path / "plan.json")
    measure(trained / "model", *chosen, "-o", tmp_path / "half.json")
    half = Record.load(tmp_path / "half.json")
    assert (half.kind, half.metric, half.row) == ("before-finetune", "macro-f1", "50%")
    assert half.plan == plan and "select:random" in half.signature
    assert half.parameters < measured.parameters


def test_each_draw_has_a_record_and_outputs_of_its_own(trained, files, tmp_path):
    given = (trained / "model", *files[2:], *CATEGORY)
    for seed in (3, 4):
        plan = at_random(SHAPE, percent=50, seed=seed)
        plan.save(tmp_path / f"{seed}.json")
        measure(*given, "--plan", tmp_path / f"{seed}.json", "-o", tmp_path / f"half.{seed}")
        record = Record.load(tmp_path / f"half.{seed}")
        assert f"|seed:{seed}|" in record.signature
        assert record.files["predictions"] == f"half.{seed}.predictions.tsv"
        assert (tmp_path / record.files["predictions"]).is_file()
    data = Path(files[3]).with_name("taken.predictions.tsv")
    data.write_bytes(Path(files[3]).read_bytes())
    with pytest.raises(UsageError, match="this file is read too"):
        measure(trained / "model", "--dev", data, *CATEGORY, "-o", data.with_name("taken.json"))


def test_the_length_of_the_training_is_the_default_afterwards(trained, files, tmp_path):
    columns = CATEGORY[:4]
    assert CATEGORY[-2:] == ("--max-length", 24)
    measured = measure(trained / "model", *files[2:], *columns, "-o", tmp_path / "measured.json")
    assert ",24tok|" in measured.stdout
    record, known = (
        Record.load(each) for each in (tmp_path / "measured.json", trained / "result.json")
    )
    assert record.metrics == known.metrics
    assert (tmp_path / record.files["predictions"]).read_text() == (
        trained / known.files["predictions"]
    ).read_text()
    scored = tmp_path / "scores"
    run(scores_app, trained / "model", *files[:2], *columns, "--score", "taylor", "-o", scored)
    assert HeadScores.load(scored / "taylor.json").settings["max_length"] == 24
    other = measure(trained / "model", *files[2:], *columns, "--max-length", 16)
    assert ",16tok|" in other.stdout


def test_a_subset_of_all_examples_is_none(trained, files, tmp_path):
    """So a part is held out for scores, and the signature does not name another number."""
    options = (*CATEGORY, *QUICK, "--epochs", 1, "--max-train-examples", 24)
    finetune(trained / "model", *files, *options, "-o", tmp_path / "out")
    record = Record.load(tmp_path / "out" / "result.json")
    assert "[-10%]+dev.csv@" in record.signature and record.examples["train"] == 21


def test_the_examples_and_their_labels_are_counted(trained, files, tmp_path):
    done = finetune(trained / "model", *files, *CATEGORY, "--epochs", 0, "-o", tmp_path / "out")
    assert "dev: 9 examples: food 3, music 3, sports 3\n" in done.stderr


@pytest.mark.parametrize(("length", "cut"), [(8, 5), (24, 0)])
def test_texts_that_are_cut_are_counted(length, cut, trained, files, tmp_path):
    options = ("--max-length", length, "--epochs", 0, "-o", tmp_path / "out")
    done = finetune(trained / "model", *files, *CATEGORY[:4], *options)
    message = f"warning: dev: {cut} of 9 texts are cut to {length} tokens; --max-length changes"
    assert (message in done.stderr) == bool(cut)
    at_random(SHAPE, percent=50, seed=1).save(tmp_path / "plan.json")
    plan = ("--plan", tmp_path / "plan.json")
    measured = measure(trained / "model", *files[2:], *CATEGORY[:4], *options[:2], *plan)
    assert measured.stderr.count(message) == bool(cut)
    options = (*options[:2], "--score", "taylor", "-o", tmp_path / "scores")
    scored = run(scores_app, trained / "model", *files[:2], *CATEGORY[:4], *options)
    assert ("warning: train, for scoring: " in scored.stderr) == bool(cut)


def test_the_record_of_a_refitted_model_says_so(trained, files, tmp_path):
    at_random(SHAPE, percent=50, seed=1).save(tmp_path / "plan.json")
    model, dev = trained / "model", (*files[2:], *CATEGORY)
    plan = ("--plan", tmp_path / "plan.json")
    run(
        prune_app,
        model,
        *plan,
        "--recovery",
        "refit",
        *files[:2],
        *CATEGORY,
        "-o",
        tmp_path / "half",
    )
    out = measure(tmp_path / "half", *dev, "-o", tmp_path / "measured.json").stdout
    record = Record.load(tmp_path / "measured.json")
    assert record.kind == "refitted" and "|select:random|" in out
    assert re.search(r"\|finetune:none\|recovery:refit\[\d+\]\|", out)
    given = ("--recovery", "refit[60]", "--finetune", "1ep", "-o", tmp_path / "tuned.json")
    assert "|finetune:1ep|recovery:refit[60]|" in measure(tmp_path / "half", *dev, *given).stdout
    assert Record.load(tmp_path / "tuned.json").kind == "pruned"
    # A further pruning without re-fitting does not hide that one.
    at_random(SHAPE, percent=75, seed=1).save(tmp_path / "less.json")
    run(prune_app, tmp_path / "half", "--plan", tmp_path / "less.json", "-o", tmp_path / "less")
    assert "|finetune:unknown|" in measure(tmp_path / "less", *dev).stdout
    for options, message in (
        (("--recovery", "a|b"), "--recovery"),
        (("--recovery", "refit", *plan), "right after pruning"),
    ):
        with pytest.raises(HeadpruneError, match=message):
            measure(model, *dev, *options)


def test_a_pruned_folder_knows_its_plan_until_its_weights_change(trained, files, tmp_path):
    plan = at_random(SHAPE, percent=50, seed=7)
    plan.save(tmp_path / "plan.json")
    model, dev = trained / "model", (*files[2:], *CATEGORY)
    run(prune_app, model, "--plan", tmp_path / "plan.json", "-o", tmp_path / "half")
    measure(model, *dev, "--plan", tmp_path / "plan.json", "-o", tmp_path / "plan-measured.json")
    measure(tmp_path / "half", *dev, "-o", tmp_path / "half-measured.json")
    with_plan, of_folder = (
        Record.load(tmp_path / f"{name}-measured.json") for name in ("plan", "half")
    )
    assert (of_folder.kind, of_folder.row) == (with_plan.kind, with_plan.row)
    assert of_folder.signature == with_plan.signature and of_folder.metrics == with_plan.metrics
    # A fine-tuning keeps the units, but is not known.
    options = ("--epochs", 1, *QUICK, "-o", tmp_path / "tuned")
    finetune(tmp_path / "half", *files, *CATEGORY, *options)
    assert not (tmp_path / "tuned" / "model" / "headprune.json").exists()
    tuned = tmp_path / "tuned" / "model"
    (tuned / "headprune.json").write_bytes((tmp_path / "half" / "headprune.json").read_bytes())
    assert "|select:given|" in (out := measure(tuned, *dev).stdout) and "|finetune:unknown|" in out
    # Pruning again writes a file of its own.
    at_random(SHAPE, percent=75, seed=7).save(tmp_path / "less.json")
    run(prune_app, tmp_path / "half", "--plan", tmp_path / "less.json", "-o", tmp_path / "less")
    measure(tmp_path / "less", *dev, "-o", tmp_path / "less-measured.json")
    assert Record.load(tmp_path / "less-measured.json").row == "75%"
    # Not after a fine-tuning, which it would hide; nor does an older file stay.
    run(prune_app, tuned, "--plan", tmp_path / "less.json", "-o", tmp_path / "tuned-less")
    assert not (tmp_path / "tuned-less" / "headprune.json").exists()
    assert "|finetune:unknown|" in measure(tmp_path / "tuned-less", *dev).stdout
    (tmp_path / "less" / "headprune.json").write_text('{"format": "else"}')
    with pytest.raises(HeadpruneError, match=r"less/headprune\.json: not written by headprune"):
        measure(tmp_path / "less", *dev)


def test_a_model_with_uniform_heads_is_measured(trained, files, tmp_path):
    at_random(SHAPE, percent=50, seed=1).save(tmp_path / "plan.json")
    plan = ("--plan", tmp_path / "plan.json")
    options = (*plan, "--form", "uniform", "--epochs", 0, "-o", tmp_path / "out")
    finetune(trained / "model", *files, *CATEGORY, *options)
    model, dev = tmp_path / "out" / "model", (*files[2:], *CATEGORY)
    measure(model, *dev, "-o", tmp_path / "measured.json")
    known = Record.load(tmp_path / "out" / "result.json")
    measured = Record.load(tmp_path / "measured.json")
    assert (measured.form, measured.metrics) == ("uniform", known.metrics)
    assert "|form:uniform|" in measured.signature
    with pytest.raises(HeadpruneError, match="has uniform heads"):
        measure(model, *dev, *plan)


def test_a_finished_run_says_that_it_was_finished_before(trained, files):
    options = (*CATEGORY, *QUICK, "--epochs", 1, "--hold-out", 25, "-o", trained)
    before = (trained / "predictions.tsv").stat().st_mtime_ns
    again = finetune(trained.parent / "model", *files, *options)
    assert "result.json: finished before; nothing is trained or measured" in again.stderr
    assert (trained / "predictions.tsv").stat().st_mtime_ns == before
    with pytest.raises(HeadpruneError, match=r"other settings \(epochs 1.0 there, 2.0 here\)"):
        finetune(trained.parent / "model", *files, *CATEGORY, *QUICK, "--epochs", 2, "-o", trained)


def test_a_development_set_of_one_label_is_warned_of(trained, files, tmp_path):
    rows = [{**row, "category": LABELS[0]} for row in examples(6, seed=3)]
    dev = write_csv(tmp_path / "dev.csv", rows)
    options = (*CATEGORY, *QUICK, "--epochs", 0, "-o", tmp_path / "out")
    measured = finetune(trained / "model", *files[:2], "--dev", dev, *options)
    assert "warning: dev: all 6 labels are the same" in measured.stderr


def test_a_pruned_model_is_fine_tuned_and_resumed_nowhere_else(trained, files, tmp_path):
    HeadPlan(kept={"ES": [(0,), (1, 3), (2,)]}, heads=SHAPE).save(tmp_path / "plan.json")
    options = (*files, *CATEGORY, *QUICK, "--plan", tmp_path / "plan.json", "--epochs", 1)
    done = finetune(trained / "model", *options, "--metric", "macro-f1", "-o", tmp_path / "out")
    record = Record.load(tmp_path / "out" / "result.json")
    assert record.signature in done.stdout and record.kind == "pruned"
    assert list(record.metrics) == ["macro-f1", "accuracy"]
    again = finetune(trained / "model", *options, "--metric", "macro-f1", "-o", tmp_path / "out")
    assert done.stdout.endswith(again.stdout)  # the progress of the training comes first
    with pytest.raises(HeadpruneError, match="is of a run with other settings .the data, their"):
        finetune(trained / "model", *options, "-o", tmp_path / "out")
    seen = json.loads((tmp_path / "out" / "model" / "headprune_training.json").read_text())
    assert seen["sizes"] == [18, 21]


@pytest.mark.parametrize(
    ("options", "metrics"),
    [
        (("--text2", "other", "--label", "category"), ["accuracy", "macro-f1"]),
        (("--label", "stars", "--metric", "mse"), ["mse", "pearson", "spearman"]),
    ],
    ids=["pairs", "numbers"],
)
def test_pairs_and_numbers(options, metrics, files, tmp_path):
    model = write_model(tmp_path / "model")
    options = (*options, *QUICK, "--max-length", 24, "--epochs", 1)
    finetune(model, *files, *options, "-o", tmp_path / "out")
    record = Record.load(tmp_path / "out" / "result.json")
    assert list(record.metrics) == metrics
    label = options[options.index("--label") + 1]
    text2 = ("--text2", "other") if "--text2" in options else ()
    columns = (*text2, "--label", label, "--metric", metrics[0], "--max-length", 24)
    measure(tmp_path / "out" / "model", *files[2:], *columns, "-o", tmp_path / "again.json")
    again = Record.load(tmp_path / "again.json")
    # An untrained model's predictions differ so little that rounding shows in their correlation.
    assert again.metrics == pytest.approx(record.metrics, rel=1e-3)


def test_several_labels_are_trained_scored_and_measured(tmp_path):
    rows = [
        {**row, "category": "|".join(LABELS[: number % 3])}
        for number, row in enumerate(examples(24))
    ]
    path = write_csv(tmp_path / "train.csv", rows)
    model = write_model(tmp_path / "model")
    columns = ("--label", "category", "--task-type", "multi-label", "--max-length", 24)
    dev = write_csv(tmp_path / "dev.csv", [*rows[3:12], {**rows[0], "text": "the dog"}])
    files = ("--train", path, "--dev", dev)
    finetune(
        model, *files, *columns, *QUICK, "--epochs", 1, "--hold-out", 0, "-o", tmp_path / "out"
    )
    record = Record.load(tmp_path / "out" / "result.json")
    assert list(record.metrics) == ["f1", "macro-f1"]
    config = AutoConfig.from_pretrained(tmp_path / "out" / "model")
    assert config.problem_type == "multi_label_classification" and config.num_labels == 2
    # The type is known from the model's config.
    measured = (*files[2:], "--label", "category", "--max-length", 24)
    measure(tmp_path / "out" / "model", *measured, "-o", tmp_path / "again.json")
    assert Record.load(tmp_path / "again.json").metrics == pytest.approx(record.metrics)
    scored = (*files[:2], *columns, "--score", "gradient", "--score", "ablation")
    said = run(scores_app, tmp_path / "out" / "model", *scored, "-o", tmp_path / "scores")
    assert HeadScores.load(tmp_path / "scores" / "gradient.json").scored.is_full
    assert "fine-tune it with `headprune finetune --hold-out 10`" in said.output


def test_the_loss_of_an_example_with_several_labels_is_the_models():
    torch.manual_seed(1)
    logits, labels = torch.randn(4, 3), torch.randint(0, 2, (4, 3)).float()
    outputs = SequenceClassifierOutput(logits=logits)
    losses = example_losses(outputs, labels)
    wanted = torch.nn.BCEWithLogitsLoss()(logits, labels)  # as transformers computes it
    assert torch.allclose(losses.mean(), wanted)
    right = correct_predictions(outputs, labels)
    assert right.tolist() == [
        row == label
        for row, label in zip(logits.gt(0).tolist(), labels.bool().tolist(), strict=True)
    ]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--label", "stars"), "label '0.5' is none of .*model's: food, music, sports"),
        (("--label", "kind"), "no column 'kind'; its columns are 'text', 'other', 'category'"),
        (("--text", "nothing", "--label", "category"), "no column 'nothing'"),
        (("--label", "category", "--task", "sst2"), "give --task or --dev, not both"),
        (("--label", "category", "--task-type", "words"), "--task-type words: it is one of single"),
        (("--label", "category", "--delimiter", ",,"), "--delimiter ',,': give one character"),
        (("--label", "category", "--metric", "pearson"), "line 2: label 'sports' is no number"),
        (("--label", "category", "--plan", "PLAN"), "the plan is for 12 layers"),
        (("--label", "category", "--plan", "OTHER"), "DS: the bert model has no such|no DS|DS"),
    ],
)
def test_mistakes_are_one_line(options, message, trained, files, tmp_path):
    HeadPlan.full({"ES": (12,) * 12}).save(tmp_path / "PLAN")
    HeadPlan.full({"DS": (4,) * 3}).save(tmp_path / "OTHER")
    chosen = [tmp_path / each if each in ("PLAN", "OTHER") else each for each in options]
    with pytest.raises(HeadpruneError, match=message) as caught:
        measure(trained / "model", *files[2:], *chosen, "--max-length", 24)
    assert "\n" not in str(caught.value)


def test_what_is_missing_is_named(trained, files, tmp_path):
    with pytest.raises(HeadpruneError, match="give --dev too, a file with texts and labels"):
        measure(trained / "model", *files[:2], *CATEGORY)
    with pytest.raises(HeadpruneError, match="give --dev too"):
        finetune(trained / "model", *files[:2], *CATEGORY, "-o", tmp_path / "out")
    with pytest.raises(HeadpruneError, match="give --train, a file"):
        finetune(trained / "model", *files[2:], *CATEGORY, "-o", tmp_path / "out")
    with pytest.raises(HeadpruneError, match=r"a task of GLUE, or --train \(and --dev"):
        measure(trained / "model")
    for name in ("runs/reviews/modle", "./modle", str(tmp_path / "modle")):
        with pytest.raises(HeadpruneError, match=f"^{name}: no such folder$"):
            finetune(name, *files, *CATEGORY, "-o", tmp_path / "out")
    with pytest.raises(HeadpruneError, match="in a folder first: hf download bert-base-uncased"):
        measure("bert-base-uncased", *files[2:], *CATEGORY)
    inside = trained / "model" / "scores"
    with pytest.raises(HeadpruneError, match="lies in the folder of the model"):
        run(scores_app, trained / "model", *files[:2], *CATEGORY, "-o", inside)
    assert not (tmp_path / "out").exists() and not inside.exists()


def test_tasks_of_glue_are_reported_by_their_first_metric(trained):
    with pytest.raises(HeadpruneError, match="tables of mrpc have accuracy; its records have acc"):
        measure(trained / "model", "--task", "mrpc", "--metric", "f1")


def test_a_classifier_on_a_language_model_without_padding(trained, files, tmp_path):
    tokenizer = AutoTokenizer.from_pretrained(trained / "model")
    tokenizer.eos_token = tokenizer.sep_token
    tokenizer._special_tokens_map["pad_token"] = None
    tokenizer.save_pretrained(tmp_path / "gpt2")
    assert AutoTokenizer.from_pretrained(tmp_path / "gpt2").pad_token is None
    config = GPT2Config(vocab_size=len(tokenizer), n_embd=16, n_layer=2, n_head=2, n_positions=32)
    GPT2Model(config).save_pretrained(tmp_path / "gpt2")
    options = (*files, *CATEGORY, *QUICK, "--epochs", 1, "-o", tmp_path / "out")
    finetune(tmp_path / "gpt2", *options)
    config = AutoConfig.from_pretrained(tmp_path / "out" / "model")
    assert config.pad_token_id == tokenizer.sep_token_id
    measure(tmp_path / "out" / "model", *files[2:], *CATEGORY)
    # Pruned copies of models that name no padding know it too.
    AutoTokenizer.from_pretrained(tmp_path / "gpt2").save_pretrained(tmp_path / "out" / "model")
    path = tmp_path / "out" / "model" / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "pad_token_id": None}))
    plan = at_random({"DS": (2, 2)}, percent=50, seed=1)
    plan.save(tmp_path / "plan.json")
    measure(tmp_path / "out" / "model", *files[2:], *CATEGORY, "--plan", tmp_path / "plan.json")


def test_numbers_from_0_are_the_labels_of_a_model_that_is_fine_tuned(trained, tmp_path):
    names = AutoConfig.from_pretrained(trained / "model").id2label
    numbers = {name: str(number) for number, name in names.items()}
    files: list[object] = []
    for split, size, seed in (("train", 24, 1), ("dev", 9, 2)):
        rows = [{**row, "category": numbers[row["category"]]} for row in examples(size, seed=seed)]
        files += [f"--{split}", write_csv(tmp_path / f"{split}.csv", rows)]
    out = tmp_path / "out"
    done = finetune(trained / "model", *files, *CATEGORY, *QUICK, "--epochs", 1, "-o", out)
    assert "labels are numbers of" in done.stderr
    assert AutoConfig.from_pretrained(out / "model").id2label == names


def test_scores_on_held_out_examples_of_the_training_file(trained, files, tmp_path):
    options = (*files[:2], *CATEGORY, "--score", "taylor", "--score", "ablation")
    done = run(scores_app, trained / "model", *options, "-o", tmp_path)
    assert "warning" not in done.stderr  # 6 of 24 examples were held out
    scores = HeadScores.load(tmp_path / "taylor.json")
    name, _, rest = scores.data.partition("@")
    assert name == "train.csv" and rest[12:] == "[3],24tok"
    assert scores.settings["trained-on"] == "no"
    with pytest.raises(HeadpruneError, match="give --train too"):
        run(scores_app, trained / "model", *files[2:], *CATEGORY, "-o", tmp_path / "none")


def test_scores_of_the_weights_need_no_data(trained, tmp_path):
    run(scores_app, trained / "model", "--score=magnitude", "--score=random", "-o", tmp_path)
    scores = HeadScores.load(tmp_path / "magnitude.json")
    assert scores.data == "" and scores.scored.is_full
    same = headprune.score(trained / "model", ["magnitude"])["magnitude"]
    assert (same.values, same.fingerprint) == (scores.values, scores.fingerprint)
    with pytest.raises(HeadpruneError, match="give --task, a task of GLUE, or --train"):
        headprune.score(trained / "model", ["magnitude", "taylor"])


def test_compare_and_iterate_on_files(trained, files, tmp_path):
    options = (*files, *CATEGORY, "--epochs", 0, "--percent", 50)
    compared = ("--score", "magnitude", "--seeds", 1, "--rounds", 0, "-o", tmp_path / "compared")
    run(compare_app, trained / "model", *options, *compared, "--metric", "macro-f1")
    found = json.loads((tmp_path / "compared" / "compare.json").read_text())
    assert found["metric"] == "macro-f1" and found["data_name"].startswith("train.csv@")
    # The command that the report prints makes the same comparison.
    page = report_of([tmp_path / "compared"]).markdown
    (line,) = (line for line in page.splitlines() if line.startswith("headprune compare"))
    places = {"MODEL": trained / "model", "OUT": tmp_path / "again"}
    places |= {"--train=TRAIN": f"--train={files[1]}", "--dev=DEV": f"--dev={files[3]}"}
    run(compare_app, *(places.get(word, word) for word in shlex.split(line)[2:]))
    again = json.loads((tmp_path / "again" / "compare.json").read_text())
    assert [row["before"] for row in again["rows"]] == [row["before"] for row in found["rows"]]
    assert again["metric"] == "macro-f1"
    done = run(
        iterate_app,
        *(trained / "model", *options, "--steps", 1, "--score", "magnitude"),
        *("-o", tmp_path / "iterated"),
    )
    assert "step 1 of 1: 50.0% pruned, accuracy " in done.stdout
    record = Record.load(tmp_path / "iterated" / "records" / "before-finetune" / "step1.json")
    assert record.task == "dev.category" and "+dev.csv@" in record.signature


def test_a_run_in_steps_counts_the_cut_texts_once(trained, files, tmp_path):
    options = (*files, *CATEGORY[:4], "--max-length", 8, "--epochs", 0, "--percent", 50)
    steps = ("--steps", 2, "--score", "taylor", "-o", tmp_path / "iterated")
    done = run(iterate_app, trained / "model", *options, *steps)
    assert done.stderr.count("warning: train, for scoring: ") == 1
    assert done.stderr.count("warning: dev: 5 of 9 texts are cut to 8 tokens") == 1


def test_python_from_scores_to_a_fine_tuned_model(trained, files, tmp_path):
    given = {"train": str(files[1]), "dev": str(files[3]), "label": "category", "max_length": 24}
    model = headprune.open_task_model(trained / "model", **given, epochs=1, batch_size=8)
    plan = headprune.select.by_score(model.scores(["taylor"], seed=1)["taylor"], percent=50)
    smaller = model.finetuned(plan, seed=1, folder=tmp_path / "smaller")
    assert smaller.model.plan == plan and smaller.model.parameters < model.model.parameters
    assert 0 <= smaller.measure().value <= 100
    assert model.measure().value == Record.load(trained / "result.json").value
    with pytest.raises(HeadpruneError, match="for which there is no --beam"):
        headprune.open_task_model(trained / "model", **given, beam=3)
