"""`headprune compare` and `headprune iterate` on a tiny checkpoint."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner, Result

from data_prep.lib.prepared import PreparedCorpus
from fairseq_plugin import running
from fairseq_plugin.checkpoints import Checkpoint
from fairseq_plugin.loading import fairseq_silent, load_model
from fairseq_plugin.measuring import search_flags, translate
from fairseq_plugin.scores.translation_model import TranslationModel
from fairseq_plugin.translated_data import translated_training_set
from headprune import DataError, HeadPlan, PruningPlan, UsageError, select
from headprune.cli import app
from headprune.results.bleu import bleu_and_chrf, read_lines, translations
from headprune.results.record import Record
from headprune.scores import HeadScores
from headprune.task_model import TaskModel
from tests.fairseq_plugin.conftest import fork_programs, generate
from tests.fairseq_plugin.models import SHAPE
from tests.latency_files import write_latency

FINETUNE = (
    "--arch transformer_headpruned_tiny --share-all-embeddings --optimizer adam --lr 1e-3 "
    "--max-target-positions 64 "
    "--max-tokens 400 --max-epoch 1 --dropout 0 --num-workers 0"
)
HALF = HeadPlan(kept={name: [(0, 2), (1, 3)] for name in SHAPE}, heads=SHAPE)


@pytest.fixture(autouse=True)
def forked_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    fork_programs(monkeypatch)


def headprune(*arguments: object) -> Result:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    if result.exception is not None:
        raise result.exception
    return result


@pytest.fixture(scope="module")
def prepared(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The corpus with what data_prep leaves beside it: how the text was prepared."""
    folder = tmp_path_factory.mktemp("prepared")
    shutil.copytree(corpus, folder / "bin")
    (folder / "codes").write_text("#version: 0.2\nx y</w>\n")
    facts = {"tokenizer": None, "bpe": "subword_nmt", "bpe_codes": "codes"}
    facts |= {"corpus": "toy", "pair": "en-de", "source_lang": "en", "target_lang": "de"}
    (folder / "prep.json").write_text(json.dumps(facts))
    return folder / "bin"


def test_compare_from_a_checkpoint_to_tables_and_figures(full, prepared, tmp_path):
    options = ("--data", prepared, "--score", "magnitude", "--percent", 50, "--seeds", 2)
    more = ("--rounds", 1, "--beam", 2, "--finetune", FINETUNE, "-o", tmp_path)
    result = headprune("compare", full, *options, *more)
    assert "After fine-tuning, at 50%, " in result.stdout
    found = json.loads((tmp_path / "compare.json").read_text())
    assert found["metric"] == "BLEU"
    assert {row["score"] for row in found["rows"]} == {"control", "magnitude", "random"}
    assert all(0 <= row["after"] <= 100 for row in found["rows"])
    text = (tmp_path / "compare.md").read_text()
    assert "finetune:1ep|data:toy.en-de|" in text
    assert "|data:toy.en-de.valid[10]|" in text
    assert "\nBLEU|nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:" in text
    for path in (tmp_path / "records").rglob("*.json"):
        record = Record.load(path)
        texts, references = (
            read_lines(path.parent / record.files[name]) for name in ("hypotheses", "reference")
        )
        assert bleu_and_chrf(texts, references).bleu == record.metrics["bleu"]
    assert headprune("compare", full, *options, *more).stdout == result.stdout


def test_pruning_one_component_alone(full, prepared, tmp_path):
    options = ("--data", prepared, "--score", "magnitude", "--percent", 50, "--seeds", 1)
    headprune("compare", full, *options, "--component", "ED", "--rounds", 0, "-o", tmp_path)
    found = json.loads((tmp_path / "compare.json").read_text())
    for row in found["rows"]:
        counts = HeadPlan.from_json(json.dumps(row["plan"])).counts
        assert sum(counts["ED"]) == 4 and counts["ES"] == counts["DS"] == (4, 4)


def test_checkpoints_are_refitted(full, prepared, tmp_path):
    shape = Checkpoint.load(full).shape
    pruned_parts = {name: shape[name] for name in ("ES", "ED", "DS", "DF")}
    plan = select.at_random(pruned_parts, seed=1, percent=50)
    plan.save(tmp_path / "plan.json")
    options = ("prune", full, "--plan", tmp_path / "plan.json", "--recovery", "refit")
    refitted = tmp_path / "refitted.pt"
    out = headprune(*options, "--data", prepared, "--max-examples", 100, "-o", refitted).stdout
    assert "sub-layers re-fitted on toy.en-de.train[100]: " in out
    (before, after) = map(float, re.findall(r"model (\S+) -> (\S+) on", out)[0])
    assert after < before
    checkpoint, pruned = Checkpoint.load(refitted), Checkpoint.load(full).prune(plan)
    assert checkpoint.plan == pruned.plan and checkpoint.parameters == pruned.parameters
    changed = {
        name.split(".", 3)[3]
        for name, weight in pruned.state["model"].items()
        if not torch.equal(weight, checkpoint.state["model"][name])
    }
    assert changed == {
        f"{output}.{name}"
        for output in ("self_attn.out_proj", "encoder_attn.out_proj", "fc2")
        for name in ("weight", "bias")
    }
    with pytest.raises(DataError, match="the 2 calibration examples have .* give more examples"):
        headprune(*options, "--data", prepared, "--max-examples", 2, "-o", tmp_path / "none.pt")
    assert not (tmp_path / "none.pt").exists()
    task_model = TranslationModel(path=full, data=prepared, beam=1, max_examples=100)
    assert task_model.refitted(plan).model.fingerprint == checkpoint.fingerprint
    assert task_model.opened(refitted).measure().fingerprint == checkpoint.fingerprint


def test_choices_are_measured_on_the_sentences_of_ablation(full, prepared):
    model = TranslationModel(path=full, data=prepared, beam=2, metric_of_ablation="bleu")
    (ablation,) = model.scores(["ablation"], seed=1, components=["ED"]).values()
    assert model.measure_held_out().value == pytest.approx(ablation.settings["base"])
    assert model.measure_held_out(HALF).fingerprint == model.model.prune(HALF).fingerprint


def test_bleu_is_that_of_fairseq_generate(full, prepared, tmp_path):
    whole = TranslationModel(path=full, data=prepared, beam=3)
    pruned = whole.pruned(HALF, tmp_path)
    assert Checkpoint.load(pruned.path).plan == HALF and pruned.model.plan == HALF
    output = generate(
        prepared,
        *("--path", pruned.path, "--remove-bpe", "--batch-size=64"),
        *("--required-batch-size-multiple=1", "--max-len-a=0", "--max-len-b=200"),
    )
    texts = translations(output.splitlines(), source="output")
    references = [
        line.replace("<<unk>>", "UNKNOWN_IN_REFERENCE")
        for _, line in sorted(
            (int(number), line) for number, line in re.findall(r"(?m)^T-(\d+)\t(.*)$", output)
        )
    ]
    score = bleu_and_chrf(texts, references)
    measured = whole.measure(HALF)
    assert (measured.value, measured.signature) == (score.bleu, score.bleu_signature)
    assert measured == pruned.measure()
    assert measured.fingerprint == pruned.model.fingerprint
    assert isinstance(whole, TaskModel) and isinstance(pruned, TaskModel)
    assert whole.model.parameters_with(HALF) == Checkpoint.load(pruned.path).parameters


@pytest.mark.parametrize("checkpoint", ["full", "stock"])
def test_studies_and_comparisons_translate_alike(checkpoint, prepared, tmp_path, request):
    path = request.getfixturevalue(checkpoint)
    pruned = Checkpoint.load(path).prune(HALF)
    in_memory = translate(pruned, prepared, search_flags(beam=2))
    if checkpoint == "stock":  # fairseq-generate prunes what the plugin has trained
        path = tmp_path / "pruned.pt"
        pruned.save(path)
    HALF.save(tmp_path / "plan.json")
    (tmp_path / "link").symlink_to(running.PLUGIN.parent)
    running.generate(
        running.Job(label="translation", log=tmp_path / "log", threads=1),
        [*search_flags(beam=2), "--user-dir", str(tmp_path / "link" / "fairseq_plugin")],
        corpus=PreparedCorpus.load(prepared.parent),
        model=path,
        output=tmp_path / "generation.txt",
        plan=None if checkpoint == "stock" else tmp_path / "plan.json",
    )
    texts = translations(read_lines(tmp_path / "generation.txt"), source="generation.txt")
    assert len(texts) == 20 and texts == in_memory.texts
    assert bleu_and_chrf(texts, in_memory.references) == in_memory.score()


@pytest.fixture
def short_translations(monkeypatch: pytest.MonkeyPatch) -> None:
    """An untrained model does not know where sentences end."""
    monkeypatch.setattr("fairseq_plugin.engine.LONGEST_TRANSLATION", 8)


@pytest.mark.usefixtures("short_translations")
def test_a_training_set_is_translated(full, prepared, tmp_path):
    teacher = Checkpoint.load(full)
    folder = tmp_path / "translations"
    binarised = translated_training_set(teacher, prepared, folder, beam=2)
    assert {path.name for path in binarised.iterdir()} == {path.name for path in prepared.iterdir()}
    (part,) = folder.glob("translations.*.txt")
    lines = part.read_text().split("\n")[:-1]
    with fairseq_silent():
        model, task = load_model(teacher, binarised)
        task.load_dataset("train")
    data = task.dataset("train")
    assert len(data) == len(lines)
    found = [task.target_dictionary.string(data[number]["target"]) for number in range(len(data))]
    assert found == lines and all(int(data[n]["target"][-1]) == 2 for n in range(len(data)))
    sources = [task.source_dictionary.string(data[number]["source"]) for number in range(20)]
    (tmp_path / "train.en").write_text("".join(f"{line}\n" for line in sources))
    options = ("--tokens", "--data", prepared, "--beam", 2, "--input", tmp_path / "train.en")
    headprune("translate", full, *options, "-o", tmp_path / "train.de")
    assert (tmp_path / "train.de").read_text().splitlines() == lines[:20]
    # An interrupted run goes on with what was translated.
    shutil.rmtree(binarised)
    part.write_text(part.read_text().replace(lines[0], lines[1], 1))
    translated_training_set(teacher, prepared, folder, beam=2)
    with fairseq_silent():
        task.load_dataset("train")
    assert task.target_dictionary.string(task.dataset("train")[0]["target"]) == lines[1]


@pytest.mark.usefixtures("short_translations")
def test_models_learn_from_the_translations_of_the_unpruned_one(
    full, prepared, tmp_path, monkeypatch
):
    folders = []

    def train(job, flags, *, data, **options):
        folders.append(data)
        running.train(job, flags, data=data, **options)

    monkeypatch.setattr("fairseq_plugin.scores.translation_model.train", train)
    options = ("--data", prepared, "--score", "magnitude", "--percent", 50, "--seeds", 1)
    more = ("--rounds", 0, "--beam", 1, "--finetune", FINETUNE, "-o", tmp_path)
    recovery = ("--recovery", "distill-sequences")
    headprune("compare", full, *options, *recovery, *more)
    found = json.loads((tmp_path / "compare.json").read_text())
    assert {row["recovery"] for row in found["rows"]} == {"distill-sequences"}
    folder = tmp_path / "records" / "pruned-distill-sequences" / "magnitude"
    record = Record.load(folder / "50pct" / "seed1.json")
    name = f"distill-sequences[beam=1,from={Checkpoint.load(full).fingerprint[:12]}]"
    assert f"|recovery:{name}|" in record.signature
    assert folders == [tmp_path / "translations" / "bin"] * 3
    assert [path.suffix for path in (tmp_path / "translations").iterdir()] == [".txt"]
    assert (
        "fine-tuned on translations of the training text" in (tmp_path / "compare.md").read_text()
    )
    claimed = headprune("claims", tmp_path, "--recovery", "distill-sequences", "--no-test")
    assert claimed.exit_code == 0
    with pytest.raises(UsageError, match="--recovery distill-sequences: of `headprune compare`"):
        headprune("iterate", full, "--data", prepared, "--percent", 50, *recovery, *more[-4:])


@pytest.mark.parametrize("recovery", ["none", "refit"])
def test_iterate_leaves_a_checkpoint_of_each_step(recovery, full, prepared, tmp_path):
    options = ("--data", prepared, "--percent", 50, "--steps", 2, "--score", "magnitude")
    result = headprune("iterate", full, *options, "--recovery", recovery, "-o", tmp_path)
    assert result.stdout.count("after re-fitting") == (2 if recovery == "refit" else 0)
    assert "step 2 of 2: 50.0% pruned, BLEU " in result.stdout
    plan = HeadPlan.load(tmp_path / "plan.json")
    assert Checkpoint.load(tmp_path / "step2" / "model.pt").plan == plan


def test_compare_at_a_speed(full, prepared, tmp_path):
    latency = write_latency(Checkpoint.load(full), tmp_path / "latency.json", job="search")
    options = ("--data", prepared, "--beam", 1, "--components", "ES,ED,DS,DF,DL")
    names = ("taylor", "middle", "iterate", "subnetwork")
    scores = [part for name in names for part in ("--score", name)]
    few = ("--seeds", 1, "--rounds", 1)
    speed = ("--speedup", 1.3, "--latency", tmp_path / "latency.json", "--verify", 0)
    headprune("compare", full, *options, *scores, *speed, *few, "-o", tmp_path / "out")
    found = json.loads((tmp_path / "out" / "compare.json").read_text())
    assert {row["score"] for row in found["rows"]} == {*names, "random"}
    unit = latency.saving("DS", latency.shape["DS"][0] - 1)
    mlp = latency.saving("DF", 0)
    for row in found["rows"]:
        plan = PruningPlan.from_json(json.dumps(row["plan"]), source="row")
        # No unit could have stayed.
        is_dropped = not all(plan.kept["DL"])
        most = latency.layer_saving("DL") if is_dropped else unit
        most = mlp if row["score"] == "subnetwork" else most
        assert latency.seconds_of(plan) <= 1 / 1.3 < latency.seconds_of(plan) + most, row["score"]
    assert all(times["1.3"][0] > 0 for times in found["speedups_by_method"].values())


@pytest.mark.parametrize(
    ("options", "components"),
    [
        (("--components", "EF,DF", "--budget", "50% of parameters"), ("EF", "DF")),
        (("--components", "EL,DL", "--percent", 50, "--at-least", 0), ("EL", "DL")),
        (("--components", "ED,DF", "--budget", "40%flops"), ("ED", "DF")),
    ],
    ids=["neurons", "layers", "heads and neurons"],
)
def test_compare_and_iterate_prune_any_component(options, components, full, prepared, tmp_path):
    options = ("--data", prepared, "--beam", 1, "--score", "magnitude", *options)
    folder = tmp_path / "compared"
    headprune("compare", full, *options, "--seeds", 1, "--rounds", 0, "-o", folder)
    headprune("iterate", full, *options, "--steps", 2, "-o", tmp_path / "steps")
    records = [
        *(folder / "records" / "before-finetune" / "magnitude").rglob("*.json"),
        tmp_path / "steps" / "records" / "before-finetune" / "step2.json",
    ]
    assert len(records) == 2
    checkpoint = Checkpoint.load(full)
    for path in records:
        record = Record.load(path)
        part = record.plan.part(components)
        assert not any(part.part([name]).is_full for name in components[:1])
        pruned = checkpoint.prune(part)
        assert record.fingerprint == pruned.fingerprint
        assert record.parameters == pruned.parameters
        assert list(record.metric_signatures) == ["bleu"]
    left = Checkpoint.load(tmp_path / "steps" / "step2" / "model.pt")
    assert left.plan == record.plan.normalised(left.shape)
    assert left.fingerprint == record.fingerprint


def test_syntactic_roles_from_parses(full, prepared, tmp_path):
    lines = ["1\tw1\t_\t_\t_\t_\t2\tnsubj", "2\tw2\t_\t_\t_\t_\t0\troot"]
    lines.append("3\tw3\t_\t_\t_\t_\t2\tobj")
    block = "".join(f"{line}\t_\t_\n" for line in lines)
    (tmp_path / "some.conllu").write_text(f"{block}\n" * 2)
    options = ("--data", prepared, "--score", "magnitude", "--conllu", tmp_path / "some.conllu")
    result = headprune("scores", full, *options, "-o", tmp_path)
    assert "nsubj-to-head, nsubj-from-head, obj-to-head" in result.stdout
    made = HeadScores.load(tmp_path / "obj-to-head.json")
    assert made.heads == {"ES": (4, 4)}
    assert all(value in (0, 1) for row in made.values["ES"] for value in row)


def test_references_of_another_length_are_refused(full, prepared, tmp_path):
    shutil.copytree(prepared.parent, tmp_path / "copy")
    (tmp_path / "copy" / "raw").mkdir()
    (tmp_path / "copy" / "raw" / "test.de").write_text("w1 w2\n" * 19)
    whole = TranslationModel(path=full, data=tmp_path / "copy" / "bin", beam=1)
    with pytest.raises(DataError, match="20 sentences in the test set, but 19 raw references"):
        whole.measure()


def test_a_measured_checkpoint_has_a_record_with_its_outputs(full, prepared, tmp_path):
    """Of a model that `headprune prune` did not write, the user alone knows its fine-tuning."""
    plan, pruned, known = tmp_path / "half.json", tmp_path / "pruned.pt", tmp_path / "known.pt"
    HALF.save(plan)
    Checkpoint.load(full).prune(HALF).save(pruned)
    headprune("prune", full, "--plan", plan, "-o", known)
    data = ("--data", prepared, "--beam", 2)
    for options, finetune, kind in (
        ((pruned,), "unknown", "pruned"),
        ((pruned, "--finetune", "1ep"), "1ep", "pruned"),
        ((full, "--plan", plan), "none", "before-finetune"),
        ((known,), "none", "before-finetune"),
        ((full,), "none", "baseline"),
    ):
        headprune("measure", *options, *data, "-o", tmp_path / "result.json")
        record = Record.load(tmp_path / "result.json")
        assert (record.finetune, record.kind) == (finetune, kind)
        assert f"|finetune:{finetune}|" in record.signature
    texts, references = (read_lines(tmp_path / record.files[name]) for name in record.files)
    score = bleu_and_chrf(texts, references)
    assert record.metrics == {"bleu": score.bleu, "chrf": score.chrf}
    assert record.metric_signatures["chrf"] == score.chrf_signature and record.versions["sacrebleu"]
    with pytest.raises(UsageError, match="--finetune: with --plan the model is measured right"):
        headprune("measure", full, "--plan", plan, "--finetune", "1ep", *data)
    with pytest.raises(UsageError, match="--finetune '1 ep': give one word"):
        headprune("measure", pruned, "--finetune", "1 ep", *data)


def test_averages_of_checkpoints_count_shared_embeddings_once(full, tmp_path):
    """In an average, tied weights have storages of their own."""
    checkpoint = Checkpoint.load(full)
    weights = checkpoint.state["model"]
    for name in weights:
        weights[name] = weights[name].clone()
    checkpoint.save(tmp_path / "average.pt")
    average, tied = Checkpoint.load(tmp_path / "average.pt"), Checkpoint.load(full)
    assert average.parameters == tied.parameters and average.weight_bytes == tied.weight_bytes


def test_a_plan_is_shown_with_the_sizes_of_its_model(full, tmp_path):
    HALF.save(tmp_path / "half.json")
    Checkpoint.load(full).prune(HALF).save(tmp_path / "pruned.pt")
    of_model = headprune("show", tmp_path / "pruned.pt").stdout
    of_plan = headprune("show", tmp_path / "half.json", "--model", full).stdout
    assert of_plan == of_model
    alone = headprune("show", tmp_path / "half.json", "--width", 32).stdout
    assert "of a model of width 32 with 32,000 words; --model takes yours" in alone
    with pytest.raises(UsageError, match="for which there is no --width"):
        headprune("show", tmp_path / "half.json", "--model", full, "--width", 32)
    with pytest.raises(UsageError, match="for which there is no --model"):
        headprune("show", full, "--model", full)


def test_a_model_that_translates_every_sentence_alike(full, prepared, tmp_path):
    model = Checkpoint.load(full)
    for weights in model.state["model"].values():
        if weights.is_floating_point():
            weights.zero_()
    model.save(tmp_path / "model.pt")
    whole = TranslationModel(path=tmp_path / "model.pt", data=prepared, beam=1)
    assert whole.measure().constant is True


def test_an_unknown_word_is_like_no_other(full, prepared):
    whole = TranslationModel(path=full, data=prepared, beam=1)
    made, _ = whole.loaded(whole.model)
    tokens = torch.tensor([made.dictionary.unk(), made.dictionary.eos(), made.dictionary.pad()])
    assert made.text(tokens) == "<unk>"
    assert made.reference(tokens) == "UNKNOWN_IN_REFERENCE"


def test_times_are_of_translations_of_equal_length(full, prepared):
    whole = TranslationModel(path=full, data=prepared, beam=2)
    for plan in (HeadPlan.full(SHAPE), HALF):
        made, batches = whole.loaded(whole.model.prune(plan), length=7)
        found = made.generator.generate([made.model.model], batches[0])
        assert {len(best["tokens"]) for each in found for best in each} == {8}  # with </s>
    first, second = whole.seconds([HeadPlan.full(SHAPE), HALF], rounds=2)
    assert len(first) == len(second) == 2 and min(first + second) > 0


def test_options_of_classifiers_are_refused(full, tmp_path):
    with pytest.raises(UsageError, match="for which there is no --epochs"):
        headprune("iterate", full, "--percent", 50, "--epochs", 3, "-o", tmp_path / "o")


@pytest.mark.parametrize(
    ("finetune", "message"),
    [
        ("--max-epoch 1", "give --arch"),
        ('--arch "x', "--finetune: No closing quotation"),
        ("--arch x --seed 3", "--seed is given by headprune itself"),
        ("--arch x --head-plan=p.json", "--head-plan=p.json is given by headprune"),
        ("--arch x --max-epoch 9 --max-update=5", "--finetune: --max-epoch and .* are both given"),
        ("--arch x --lr 1", "--finetune: --max-epoch or --max-update is needed, or it would never"),
        ("--arch x --max-epoch 0", "--finetune: --max-epoch or --max-update is needed"),
    ],
)
def test_flags_that_cannot_be(finetune, message, full, prepared, tmp_path):
    with pytest.raises(UsageError, match=message):
        headprune(
            *("compare", full, "--data", prepared, "--finetune", finetune, "-o", tmp_path / "o")
        )
    assert not (tmp_path / "o").exists()


def test_a_fine_tuning_that_fails_says_fairseqs_last_words(full, prepared, tmp_path):
    whole = TranslationModel(
        path=full, data=prepared, finetuning=("--arch=no_such_arch", "--max-epoch=1")
    )
    with pytest.raises(DataError, match="fairseq-train ended with status 2: .*no_such_arch"):
        whole.finetuned(HALF, seed=1, folder=tmp_path)


@pytest.mark.slow
def test_sub_networks_of_a_checkpoint(full, prepared, tmp_path):
    options = ("--data", prepared, "--beam", 1, "--components", "ES,ED,DF", "--step", 50)
    result = headprune("subnetworks", full, *options, "--threshold", 1, "-o", tmp_path)
    assert "One model: the overlap of survivors needs two or more" in result.stdout
    values = json.loads((tmp_path / "subnetworks.json").read_text())
    assert values["metric"] == "BLEU" and len(values["networks"]) == 4
    record = Record.load(tmp_path / "records" / "before-finetune" / "random" / "seed1.json")
    assert record.fingerprint == Checkpoint.load(full).prune(record.plan).fingerprint
    assert set(record.plan.counts["DF"]) <= {0, Checkpoint.load(full).shape["DF"][0]}
