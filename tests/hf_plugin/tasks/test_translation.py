"""Encoders with decoders that translate, on sentence pairs."""

from __future__ import annotations

import json
import random
import re
import shutil
from pathlib import Path

import pytest
import sacrebleu
import torch
from transformers import AutoConfig, AutoModelForSeq2SeqLM, AutoTokenizer
from typer.testing import CliRunner, Result

import headprune
import hf_plugin  # noqa: F401  # the Auto classes read pruned folders
from headprune import PruningPlan
from headprune.cli.compare import app as compare_app
from headprune.cli.scores import app as scores_app
from headprune.cli.translate import app as translate_app
from headprune.errors import DataError, HeadpruneError, UsageError
from headprune.results import bleu_tokenizers
from headprune.results.record import Record
from headprune.scores import HeadScores
from hf_plugin.finetuning import training
from hf_plugin.finetuning.training import encode
from hf_plugin.scores.model import HuggingFaceModel
from hf_plugin.scores.run import batches_of
from hf_plugin.tasks.examples import Examples
from hf_plugin.translating import set_target_language, translations
from tests.hf_plugin.made import write_model
from tests.hf_plugin.vocabulary import tiny

from .test_commands import finetune, measure, run

WORDS = {"the": "house", "old": "quick", "man": "red", "dog": "fox"}
LENGTH = ("--max-length", 24)
QUICK = (*LENGTH, "--batch-size", 8, "--learning-rate", 1e-2)
HALF = PruningPlan(
    kept={name: [(0, 2), (1, 3), (0, 1)] for name in ("ES", "ED", "DS")},
    units=dict.fromkeys(("ES", "ED", "DS"), (4, 4, 4)),
)


def write_pairs(folder: Path, split: str, size: int, *, seed: int) -> None:
    """Sentence pairs in two files and in one table."""
    rng = random.Random(seed)
    sources = [" ".join([rng.choice([*WORDS])] * rng.randint(4, 9)) for _ in range(size)]
    targets = [" ".join(WORDS[word] for word in source.split()) for source in sources]
    (folder / f"{split}.en").write_text("\n".join(sources) + "\n")
    (folder / f"{split}.de").write_text("\n".join(targets) + "\n")
    rows = [f"{source}\t{target}\n" for source, target in zip(sources, targets, strict=True)]
    (folder / f"{split}.tsv").write_text("en\tde\n" + "".join(rows))


def write_translator(folder: Path) -> Path:
    """A small Marian with its first weights; those of tiny.marian hardly learn."""
    tiny.marian(folder)
    torch.manual_seed(1)
    config = AutoConfig.from_pretrained(folder, dropout=0.0)
    AutoModelForSeq2SeqLM.from_config(config).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pairs")
    write_pairs(folder, "train", 64, seed=1)
    write_pairs(folder, "dev", 9, seed=2)
    return folder


@pytest.fixture(scope="module")
def files(folder: Path) -> tuple[object, ...]:
    """The options that name pairs of files."""
    train, dev = (f"{folder / split}.en,{folder / split}.de" for split in ("train", "dev"))
    return ("--train", train, "--dev", dev)


@pytest.fixture(scope="module")
def trained(files: tuple[object, ...], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a translator that was fine-tuned on the pairs."""
    folder = tmp_path_factory.mktemp("trained")
    model = write_translator(folder / "model")
    finetune(model, *files, *QUICK, "--epochs", 8, "--hold-out", 25, "-o", folder / "out")
    return folder / "out"


def test_other_settings_of_generation_configs_change_nothing(trained, files, tmp_path):
    shutil.copytree(trained / "model", tmp_path / "model")
    path = tmp_path / "model" / "generation_config.json"
    config = json.loads(path.read_text())
    config |= {"num_return_sequences": 2, "num_beams": 2, "return_dict_in_generate": True}
    path.write_text(json.dumps(config))
    measure(tmp_path / "model", *files[2:], *LENGTH, "-o", tmp_path / "many.json")
    path.write_text(json.dumps(config | {"num_return_sequences": 1}))
    measure(tmp_path / "model", *files[2:], *LENGTH, "-o", tmp_path / "one.json")
    many, one = (Record.load(tmp_path / f"{name}.json") for name in ("many", "one"))
    assert many.metrics == one.metrics
    options = ("--without-labels", "--score", "taylor", "-o", tmp_path / "scores")
    source = tmp_path / "source.txt"
    source.write_text(Path(str(files[3]).split(",")[0]).read_text())
    run(scores_app, tmp_path / "model", "--train", source, *options)
    assert (tmp_path / "scores" / "taylor.json").is_file()


def test_figures_are_sacrebleus_of_transformers_own_translations(trained, files, folder, tmp_path):
    record = Record.load(trained / "result.json")
    model = AutoModelForSeq2SeqLM.from_pretrained(trained / "model").eval()
    tokenizer = AutoTokenizer.from_pretrained(trained / "model")
    references = (folder / "dev.de").read_text().splitlines()
    hypotheses = []
    for source in (folder / "dev.en").read_text().splitlines():
        found = model.generate(**tokenizer(source, return_tensors="pt"), max_new_tokens=24)
        hypotheses += tokenizer.batch_decode(found, skip_special_tokens=True)
    assert (trained / "result.hyp.txt").read_text().splitlines() == hypotheses
    assert (trained / "result.reference.txt").read_text().splitlines() == references
    bleu, chrf = sacrebleu.corpus_bleu(hypotheses, [references]), sacrebleu.CHRF()
    assert bleu.score > 0
    assert record.metrics["bleu"] == pytest.approx(bleu.score)
    expected = chrf.corpus_score(hypotheses, [references]).score
    assert record.metrics["chrf"] == pytest.approx(expected)
    assert record.task == "dev.de" and "sacrebleu" in record.versions
    assert {*record.metric_signatures} == {"bleu", "chrf"}
    # The same pairs in a table have the same fingerprint.
    columns = ("--text", "en", "--label", "de")
    measure(
        trained / "model", "--dev", folder / "dev.tsv", *columns, *LENGTH, "-o", tmp_path / "r.json"
    )
    again = Record.load(tmp_path / "r.json")
    assert again.metrics == pytest.approx(record.metrics)
    assert again.metric_signatures == record.metric_signatures
    assert (tmp_path / "r.hyp.txt").read_text().splitlines() == hypotheses
    names = [one.signature.partition("dev.")[2] for one in (record, again)]
    assert names[0].partition("@")[2] == names[1].partition("@")[2]


def translate(*arguments: object, text: str = "") -> Result:
    # More threads would wait for the cores of other tests.
    return CliRunner().invoke(translate_app, [*map(str, arguments), "--threads=1"], input=text)


def test_lines_of_text_are_translated(trained, files, folder, tmp_path):
    """By the search of `measure`, whose length is the longest that the model allows here."""
    model, source = trained / "model", folder / "dev.en"
    length = ("--max-length", 31)
    measure(model, *files[2:], *length, "-o", tmp_path / "one.json")
    expected = (tmp_path / "one.hyp.txt").read_text()
    translate(model, "--input", source, "-o", tmp_path / "one.de")
    assert (tmp_path / "one.de").read_text() == expected
    # In batches of two, with empty lines, which stay empty.
    text = source.read_text().replace("\n", "\n\n")
    found = translate(model, "--batch-size=2", text=text)
    assert found.stdout == expected.replace("\n", "\n\n") and found.stderr == ""
    # The beam is that of the generation config unless it is given.
    config = model / "generation_config.json"
    before = config.read_text()
    config.write_text(json.dumps({**json.loads(before), "num_beams": 4}))
    measure(model, *files[2:], *length, "-o", tmp_path / "beam.json")
    translate(model, "--input", source, "-o", tmp_path / "beam.de")
    config.write_text(before)
    translate(model, "--beam", 4, "--input", source, "-o", tmp_path / "given.de")
    wider = (tmp_path / "beam.hyp.txt").read_text()
    assert (tmp_path / "beam.de").read_text() == (tmp_path / "given.de").read_text() == wider
    assert wider != expected


def test_long_and_unknown_lines_are_warned_of(trained):
    text = "the old man\n" + "the old " * 200 + "\nthe \u4e94 man\n"
    found = translate(trained / "model", text=text)
    assert len(found.stdout.splitlines()) == 3
    cut, unknown = found.stderr.splitlines()
    assert re.fullmatch(r"warning: line 2: \d+ tokens, cut to the model's 32", cut)
    assert unknown == (
        "warning: 1 of 3 lines have words or characters that the model does not know; it reads "
        "<unk> there"
    )


def test_models_and_options_that_do_not_translate_lines(trained, tmp_path):
    mistakes: list[tuple[list[object], type[HeadpruneError], str]] = [
        ([trained / "model", "--tokens"], UsageError, "for which there is no --tokens"),
        ([trained / "model", "--data", tmp_path], UsageError, "for which there is no --data"),
        ([tiny.bert(tmp_path / "bert")], UsageError, "family bert with the head of"),
        ([tmp_path], DataError, "not the folder of a model"),
    ]
    for arguments, kind, message in mistakes:
        error = translate(*arguments, text="a\n").exception
        assert isinstance(error, kind) and message in str(error), (arguments, error)


@pytest.mark.parametrize("in_table", [False, True])
def test_the_tokenizer_of_bleu_is_that_of_the_language(trained, folder, tmp_path, in_table):
    """13a would take a Chinese sentence for one word."""
    if in_table:
        rows = (folder / "dev.tsv").read_text().replace("en\tde\n", "en\tzh\n", 1)
        (tmp_path / "dev.tsv").write_text(rows)
        dev = (tmp_path / "dev.tsv", "--text", "en", "--label", "zh")
    else:
        (tmp_path / "dev.zh").write_text((folder / "dev.de").read_text())
        dev = (f"{folder / 'dev.en'},{tmp_path / 'dev.zh'}",)
    measure(trained / "model", "--dev", *dev, *LENGTH, "-o", tmp_path / "result.json")
    record = Record.load(tmp_path / "result.json")
    assert "|tok:zh|" in record.metric_signatures["bleu"]
    texts = [
        (tmp_path / f"result.{name}.txt").read_text().splitlines() for name in ("hyp", "reference")
    ]
    expected = sacrebleu.corpus_bleu(texts[0], [texts[1]], tokenize="zh").score
    assert record.metrics["bleu"] == pytest.approx(expected)


def test_a_tokenizer_that_is_not_installed_is_named_first(trained, folder, tmp_path, monkeypatch):
    monkeypatch.setattr(bleu_tokenizers, "find_spec", lambda name: None)
    (tmp_path / "dev.ja").write_text((folder / "dev.de").read_text())
    dev = f"{folder / 'dev.en'},{tmp_path / 'dev.ja'}"
    with pytest.raises(UsageError, match=r"ja-mecab needs: pip install 'sacrebleu\[ja\]'"):
        measure(trained / "model", "--dev", dev, *LENGTH, "-o", tmp_path / "result.json")
    assert not (tmp_path / "result.json").exists()


@pytest.mark.slow
def test_a_pruned_model_is_fine_tuned_and_its_gates_are_learned(trained, files, tmp_path):
    HALF.save(tmp_path / "plan.json")
    options = (*files, *QUICK, "--epochs", 1)
    teacher = ("--distill-from", trained / "model", "--plan", tmp_path / "plan.json")
    finetune(trained / "model", *options, *teacher, "-o", tmp_path / "pruned")
    record = Record.load(tmp_path / "pruned" / "result.json")
    assert record.plan.kept == HALF.kept and "recovery:distill" in record.signature
    assert not record.training.get("constant")
    measure(tmp_path / "pruned" / "model", *files[2:], *LENGTH, "-o", tmp_path / "again.json")
    assert Record.load(tmp_path / "again.json").metrics == pytest.approx(record.metrics)
    gates = ("--gates", "ES,ED,DF", "--l0-target", "50%")
    finetune(trained / "model", *options, *gates, "-o", tmp_path / "gated")
    gated = Record.load(tmp_path / "gated" / "result.json")
    assert not gated.plan.is_full and gated.plan.kept["DS"] == (tuple(range(4)),) * 3


@pytest.mark.slow
def test_scores_and_compare(trained, files, tmp_path):
    names = ("gradient", "ablation", "confidence")
    chosen = [f"--score={name}" for name in names]
    run(scores_app, trained / "model", *files[:2], *LENGTH, *chosen, "-o", tmp_path / "scores")
    for name in names:
        scores = HeadScores.load(tmp_path / "scores" / f"{name}.json")
        assert scores.scored.is_full and list(scores.values) == ["ES", "ED", "DS"]
    assert HeadScores.load(tmp_path / "scores" / "ablation.json").settings["metric"] == "loss"
    options = (*files, *QUICK, "--percent", 50, "--score", "magnitude", "--score", "taylor")
    kinds = ("--epochs", 1, "--recovery", "finetune", "--recovery", "refit")
    more = ("--seeds", 1, "--random-seeds", 1, "--rounds", 1, "-o", tmp_path / "compared")
    run(compare_app, trained / "model", *options, *kinds, *more)
    found = json.loads((tmp_path / "compared" / "compare.json").read_text())
    assert found["metric"] == "bleu"
    table = (tmp_path / "compared" / "compare.md").read_text()
    assert "sacreBLEU" in table or "nrefs:1" in table
    written = sorted((tmp_path / "compared").rglob("*.hyp.txt"))
    assert written and all(len(each.read_text().splitlines()) == 9 for each in written)


@pytest.mark.slow
def test_models_learn_from_the_translations_of_the_unpruned_one(
    trained, files, folder, tmp_path, monkeypatch
):
    learnt = []

    def fine_tune(model, reader, encoded, **options):
        learnt.append(reader.batch_decode([*encoded["labels"]], skip_special_tokens=True))
        return training.fine_tune(model, reader, encoded, **options)

    monkeypatch.setattr("hf_plugin.finetuning.run.fine_tune", fine_tune)
    model = AutoModelForSeq2SeqLM.from_pretrained(trained / "model")
    reader = AutoTokenizer.from_pretrained(trained / "model")
    sources = (folder / "train.en").read_text().splitlines()
    references = (folder / "train.de").read_text().splitlines()
    examples = Examples([(text,) for text in sources], references, of_translation=True)
    examples = examples.subset(48)  # --hold-out 25
    own = translations(model, reader, encode(examples, reader, max_length=24), max_length=24)
    first = encode(examples.select(range(20)), reader, max_length=24)["input_ids"]

    def with_an_empty_one(model, reader, encoded, **options):
        found = translations(model, reader, encoded, **options)
        return ["", *found[1:]] if encoded["input_ids"] == first else found

    monkeypatch.setattr("hf_plugin.scores.classifier.translations", with_an_empty_one)
    monkeypatch.setattr("headprune.recovery.translated_text.AT_ONCE", 20)
    options = (*files, *QUICK, "--hold-out", 25, "--percent", 50, "--score", "magnitude")
    more = ("--seeds", 1, "--random-seeds", 1, "--rounds", 0, "-o", tmp_path)
    recovery = ("--epochs", 1, "--recovery", "distill-sequences")
    run(compare_app, trained / "model", *options, *recovery, *more)
    parts = [tmp_path / "translations" / f"translations.{start}.txt" for start in (0, 20, 40)]
    assert "".join(part.read_text() for part in parts).splitlines() == ["", *own[1:]]
    assert own != list(examples.labels)  # of an empty translation the reference is taken
    assert learnt == [[examples.labels[0], *own[1:]]] * 3
    found = json.loads((tmp_path / "compare.json").read_text())
    assert {row["recovery"] for row in found["rows"]} == {"distill-sequences"}
    record = tmp_path / "records" / "pruned-distill-sequences" / "magnitude" / "50pct"
    assert "|recovery:distill-sequences[from=" in Record.load(record / "seed1.json").signature


def test_in_python_a_plan_is_measured_as_the_pruned_model_is(trained, files, tmp_path):
    given = {"train": str(files[1]), "dev": str(files[3]), "max_length": 24}
    opened = headprune.open_task_model(trained / "model", **given)
    assert opened.metric == "bleu"
    pruned = opened.pruned(HALF, tmp_path / "pruned")
    assert opened.measure(HALF).others == pytest.approx(pruned.measure().others)
    ((seconds,),) = opened.seconds([HALF], rounds=1)
    assert seconds > 0


def test_texts_alone_are_translated_no_further_than_the_model_has_positions(trained, folder):
    """Twice the length of the longest source, and ten, are more than the model's 32."""
    (folder / "train.txt").write_text((folder / "train.en").read_text())
    given = {"train": str(folder / "train.txt"), "max_length": 24, "without_labels": True}
    found = headprune.score(trained / "model", ["fisher"], **given)["fisher"]
    assert found.scored.is_full and found.settings["labels"] == "own"


def test_a_padded_batch_has_the_losses_and_translations_of_its_sentences(trained):
    model = AutoModelForSeq2SeqLM.from_pretrained(trained / "model").eval()
    tokenizer = AutoTokenizer.from_pretrained(trained / "model")
    # The longest reference is longer than any source.
    pairs = Examples([("dog",), ("the the the",)], ["fox " * 9, "house"], of_translation=True)
    encoded = encode(pairs, tokenizer, max_length=24)
    (batch,) = batches_of(encoded, tokenizer, size=2)
    losses = HuggingFaceModel(model).outcome(batch).losses
    for number, loss in enumerate(losses):
        row = encoded.select([number])[0]
        inputs = {name: torch.tensor([values]) for name, values in row.items()}
        with torch.no_grad():
            assert float(loss) == pytest.approx(float(model(**inputs).loss), rel=1e-4)
    together = translations(model, tokenizer, encoded, max_length=9)
    alone = [
        translations(model, tokenizer, encoded.select([number]), max_length=9)[0]
        for number in range(2)
    ]
    assert together == alone


def test_multilingual_models_write_the_language_of_their_tokenizer(tmp_path):
    folder = tiny.m2m_100(tmp_path / "m2m")
    model = AutoModelForSeq2SeqLM.from_pretrained(folder).eval()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    set_target_language(model, tokenizer, name="m2m")
    assert model.generation_config.forced_bos_token_id == tokenizer.get_lang_id("de")
    pairs = Examples([("the old man",)], ["red fox"], of_translation=True)
    encoded = encode(pairs, tokenizer, max_length=12)
    assert encoded[0]["labels"][0] == tokenizer.get_lang_id("de")
    assert "__de__" not in translations(model, tokenizer, encoded, max_length=9)[0]
    tokenizer.tgt_lang = None
    set_target_language(model, tokenizer, name="m2m")  # the config names the language
    model.generation_config.forced_bos_token_id = None
    with pytest.raises(HeadpruneError, match="m2m: nothing says which language it is to write"):
        set_target_language(model, tokenizer, name="m2m")


def test_the_decoder_starts_with_a_language_at_the_end_of_the_labels(tmp_path):
    """The first mBART: its training moves the end of the labels to their start."""
    folder = tiny.mbart(tmp_path / "mbart")
    model = AutoModelForSeq2SeqLM.from_pretrained(folder).eval()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    language = tokenizer.convert_tokens_to_ids("de_DE")
    encoded = encode(
        Examples([("the old man",)], ["red fox"], of_translation=True), tokenizer, max_length=12
    )
    assert encoded[0]["labels"][-1] == language
    set_target_language(model, tokenizer, name="mbart")
    assert model.generation_config.decoder_start_token_id == language
    assert model.generation_config.forced_bos_token_id is None
    tokenizer.tgt_lang = None
    set_target_language(model, tokenizer, name="mbart")  # the config names the language
    model.generation_config.decoder_start_token_id = 2
    with pytest.raises(HeadpruneError, match="mbart: nothing says which language it is to write"):
        set_target_language(model, tokenizer, name="mbart")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--text", "en"), "--text and --label name columns, which sentence pairs in two files"),
        (("--text2", "other"), "translation: --text names the column of the source text"),
        (("--metric", "accuracy"), "translation task is measured by bleu, chrf"),
        (("--dev", "dev.en,train.de"), "differ in their number of lines: dev.en 9 and train.de 64"),
        (("--dev", "dev.en,none.de"), "none.de: cannot be read: No such file"),
        (("--dev", "empty,empty"), "no sentence pair in it"),
    ],
)
def test_mistakes_are_one_line(options, message, trained, files, folder, monkeypatch):
    monkeypatch.chdir(folder)
    Path("empty").write_text("\n\n")
    with pytest.raises(HeadpruneError, match=message) as caught:
        measure(trained / "model", *files[2:], *options, *LENGTH)
    assert "\n" not in str(caught.value)


def test_other_models_and_labels_have_advice(trained, files, folder, tmp_path):
    given = ("--epochs", 1, "-o", tmp_path / "out")
    with pytest.raises(HeadpruneError, match="a bert model does not write a text"):
        finetune(write_model(tmp_path / "bert"), *files, *QUICK, *given)
    rows = [f"a dog {n},a fox {n}\n" for n in range(30)]
    (tmp_path / "t.csv").write_text("en,de\n" + "".join(rows))
    columns = ("--train", tmp_path / "t.csv", "--dev", folder / "dev.tsv", "--text", "en")
    with pytest.raises(HeadpruneError, match="or translation to write texts"):
        finetune(trained / "model", *columns, "--label", "de", *given)
