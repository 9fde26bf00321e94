"""`headprune compare` and `headprune iterate` on a tiny checkpoint."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner, Result

from fairseq_plugin.checkpoints import Checkpoint
from fairseq_plugin.scores.bleu_ablation import Translator
from fairseq_plugin.scores.subject import TranslationModel
from headprune import DataError, HeadPlan, UsageError
from headprune.cli import app
from headprune.scores import HeadScores
from tests.fairseq_plugin.conftest import generate
from tests.fairseq_plugin.models import SHAPE

FINETUNE = (
    "--arch transformer_headpruned_tiny --share-all-embeddings --optimizer adam --lr 1e-3 "
    "--max-tokens 400 --max-epoch 1 --dropout 0 --num-workers 0"
)
HALF = HeadPlan(kept={name: [(0, 2), (1, 3)] for name in SHAPE}, heads=SHAPE)


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
    assert "finetune:1ep|data:" in (tmp_path / "compare.md").read_text()
    assert headprune("compare", full, *options, *more).stdout == result.stdout


def test_pruning_one_component_alone(full, prepared, tmp_path):
    options = ("--data", prepared, "--score", "magnitude", "--percent", 50, "--seeds", 1)
    headprune("compare", full, *options, "--component", "ED", "--rounds", 0, "-o", tmp_path)
    found = json.loads((tmp_path / "compare.json").read_text())
    for row in found["rows"]:
        counts = HeadPlan.from_json(json.dumps(row["plan"])).counts
        assert sum(counts["ED"]) == 4 and counts["ES"] == counts["DS"] == (4, 4)


def test_bleu_is_that_of_fairseq_generate(full, prepared, tmp_path):
    subject = TranslationModel(path=full, data=prepared, beam=3)
    pruned = subject.pruned(HALF, tmp_path)
    assert Checkpoint.load(pruned.path).plan == HALF and pruned.plan == HALF
    output = generate(
        prepared,
        *("--path", pruned.path, "--remove-bpe", "--sacrebleu", "--batch-size=32"),
        *("--required-batch-size-multiple=1", "--max-len-a=0", "--max-len-b=200"),
    )
    (score,) = re.findall(r"BLEU4? = ([\d.]+)", output) or re.findall(r'"score": ([\d.]+)', output)
    assert pruned.measure().value == pytest.approx(float(score), abs=0.1)
    cost = subject.cost(HALF)
    assert cost.parameters == Checkpoint.load(pruned.path).parameters


def test_iterate_leaves_a_checkpoint_of_each_step(full, prepared, tmp_path):
    options = ("--data", prepared, "--percent", 50, "--steps", 2, "--score", "magnitude")
    result = headprune("iterate", full, *options, "-o", tmp_path)
    assert "step 2 of 2: 50.0% pruned, BLEU " in result.stdout
    plan = HeadPlan.load(tmp_path / "plan.json")
    assert Checkpoint.load(tmp_path / "step2" / "model.pt").plan == plan


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
    subject = TranslationModel(path=full, data=tmp_path / "copy" / "bin", beam=1)
    with pytest.raises(DataError, match="20 sentences in the test set, but 19 raw references"):
        subject.measure()


def test_a_model_that_translates_every_sentence_alike(full, prepared, monkeypatch, capsys):
    subject = TranslationModel(path=full, data=prepared, beam=1)
    monkeypatch.setattr(Translator, "translate", lambda _, batch: ["w1"] * len(batch["id"]))
    assert subject.measure().constant is True
    assert f"warning: {full} translates every sentence alike" in capsys.readouterr().err


def test_an_unknown_word_is_like_no_other(full, prepared):
    subject = TranslationModel(path=full, data=prepared, beam=1)
    made, _ = subject._loaded(subject._checkpoint)
    tokens = torch.tensor([made.dictionary.unk(), made.dictionary.eos(), made.dictionary.pad()])
    assert made.text(tokens) == "<unk>"
    assert made.reference(tokens) == "UNKNOWN_IN_REFERENCE"


def test_times_are_of_translations_of_equal_length(full, prepared):
    subject = TranslationModel(path=full, data=prepared, beam=2)
    for plan in (HeadPlan.full(SHAPE), HALF):
        made, batches = subject._loaded(subject._checkpoint.prune(plan), length=7)
        found = made.generator.generate([made.model.model], batches[0])
        assert {len(best["tokens"]) for each in found for best in each} == {8}  # with </s>
    first, second = subject.seconds([HeadPlan.full(SHAPE), HALF], rounds=2)
    assert len(first) == len(second) == 2 and min(first + second) > 0


def test_options_of_classifiers_are_refused(full, tmp_path):
    with pytest.raises(UsageError, match="for which there is no --epochs"):
        headprune("iterate", full, "--percent", 50, "--epochs", 3, "-o", tmp_path / "o")


@pytest.mark.parametrize(
    ("finetune", "message"),
    [
        ("--max-epoch 1", "give --arch"),
        ('--arch "x', "--finetune: No closing quotation"),
        ("--arch x --seed 3", "--seed is given by the comparison itself"),
        ("--arch x --head-plan=p.json", "--head-plan=p.json is given by the comparison"),
    ],
)
def test_flags_that_cannot_be(finetune, message, full, prepared, tmp_path):
    with pytest.raises(UsageError, match=message):
        headprune(
            *("compare", full, "--data", prepared, "--finetune", finetune, "-o", tmp_path / "o")
        )
    assert not (tmp_path / "o").exists()


def test_a_fine_tuning_that_fails_says_fairseqs_last_words(full, prepared, tmp_path):
    subject = TranslationModel(path=full, data=prepared, finetuning=("--arch", "no_such_arch"))
    with pytest.raises(DataError, match="fairseq-train ended with status 2: .*no_such_arch"):
        subject.finetuned(HALF, seed=1, folder=tmp_path)
