"""The documents' Python runs, and so do the README's commands, on less data and fewer epochs."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from transformers import (
    BartConfig,
    BartForConditionalGeneration,
    BertConfig,
    BertForSequenceClassification,
    GPT2Config,
    GPT2LMHeadModel,
    PreTrainedTokenizerFast,
)

from headprune import PruningPlan, open_model
from headprune.select import at_random

from .documents import DOCUMENTS, NOT_CHECKED, NOT_RUN, ROOT, CodeBlock, code_blocks

PUBLISHED = "bert-base-uncased"
"""The model that the documents name; a folder of this name goes before the one on the hub."""
CLASSIFIER = "runs/reviews/model"
"""The folder of the classifier that the documents fine-tune."""
LANGUAGE_MODEL = "runs/gpt2/model"
"""The folder of the language model."""
TRANSLATOR = "opus"
"""The folder of the translation model."""


def python_blocks(path: Path) -> list[CodeBlock]:
    return [
        block
        for block in code_blocks(path)
        if block.language == "python"
        and not NOT_CHECKED.fullmatch(block.marker)
        and not NOT_RUN.fullmatch(block.marker)
    ]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working folder, with a narrow BERT of as many layers and heads as the published one.

    It also has a classifier of two labels, a language model, a translation model, and files for
    them.
    """
    config = BertConfig(vocab_size=8, hidden_size=24, num_hidden_layers=12, num_attention_heads=12)
    BertForSequenceClassification(config).save_pretrained(tmp_path / PUBLISHED)
    config.id2label = {0: "bad", 1: "good"}
    BertForSequenceClassification(config).save_pretrained(tmp_path / CLASSIFIER)
    for name, size in (("train.csv", 6), ("dev.csv", 5)):
        rows = ["A sentence,good", "sentence A,bad"] * size
        (tmp_path / name).write_text("".join(f"{row}\n" for row in ["review,mood", *rows]))
    vocabulary = {word: index for index, word in enumerate(("[PAD]", "[UNK]", "A", "sentence"))}
    words = Tokenizer(WordLevel(vocabulary, unk_token="[UNK]"))
    words.pre_tokenizer = Whitespace()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=words, unk_token="[UNK]", pad_token="[PAD]"
    )
    for model in (PUBLISHED, CLASSIFIER):
        tokenizer.save_pretrained(tmp_path / model)
    decoder = GPT2Config(vocab_size=8, n_embd=24, n_layer=2, n_head=4, bos_token_id=0)
    GPT2LMHeadModel(decoder).save_pretrained(tmp_path / LANGUAGE_MODEL)
    tokenizer.save_pretrained(tmp_path / LANGUAGE_MODEL)
    translator = BartConfig(
        vocab_size=8,
        d_model=24,
        encoder_layers=2,
        decoder_layers=2,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_ffn_dim=16,
        decoder_ffn_dim=16,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=1,
        decoder_start_token_id=1,
        forced_eos_token_id=1,
    )
    BartForConditionalGeneration(translator).save_pretrained(tmp_path / TRANSLATOR)
    tokenizer.save_pretrained(tmp_path / TRANSLATOR)
    plan = PruningPlan.full(open_model(tmp_path / TRANSLATOR).shape).part(["ES", "ED", "DS"])
    half = at_random(plan.units, percent=50, seed=1)
    open_model(tmp_path / TRANSLATOR).prune(half).save(tmp_path / "smaller")
    for split in ("train", "dev"):
        (tmp_path / f"{split}.en").write_text("A sentence\n" * 6)
        (tmp_path / f"{split}.de").write_text("sentence A\n" * 6)
    for name, text in (("train.txt", "A sentence"), ("dev.txt", "sentence A")):
        (tmp_path / name).write_text(f"{text}\n" * 6)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    "path",
    [path for path in DOCUMENTS if python_blocks(path)],
    ids=lambda path: str(path.relative_to(ROOT)),
)
def test_the_python_of_a_document_runs_in_its_order(path: Path, folder: Path) -> None:
    names: dict[str, Any] = {}
    for block in python_blocks(path):
        exec(compile(block.text, str(block), "exec"), names)


def commands(document: str, count: int, start: str) -> str:
    """The block of the document that starts so, and the ones after it, `count` in all."""
    blocks = [block.text for block in code_blocks(ROOT / document)]
    first = next(place for place, text in enumerate(blocks) if text.startswith(start))
    return "\n".join(blocks[first : first + count])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("document", "count", "start", "shorter", "written"),
    [
        (
            "docs/guides/glue.md",
            3,
            "headprune glue",
            {"headprune glue": "headprune glue --max-train-examples 64 --epochs 1"},
            ["runs/glue/half/result.json", "runs/glue/table/table.md"],
        ),
        (
            "README.md",
            1,
            "data_prep/numbers.sh",
            {
                "--out data/numbers\n": "--out data/numbers --train 300 --valid 30 --test 30 "
                f"--merges 100 --workers 1 --python {shlex.quote(sys.executable)}\n",
                "--max-epoch 5": "--max-epoch 1",
            },
            ["pruned.pt", "result.json"],
        ),
    ],
)
def test_the_first_commands_of_a_reader_run(
    document: str,
    count: int,
    start: str,
    shorter: dict[str, str],
    written: list[str],
    tmp_path: Path,
) -> None:
    text = commands(document, count, start)
    for shown, run in shorter.items():
        assert shown in text
        text = text.replace(shown, run)
    for name in ("data_prep", "fairseq_plugin"):
        (tmp_path / name).symlink_to(ROOT / name)
    programs = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    outcome = subprocess.run(
        ["bash", "-euc", text],
        cwd=tmp_path,
        env={**os.environ, "PATH": programs, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
    )
    assert outcome.returncode == 0, outcome.stderr[-3000:]
    assert [name for name in written if not (tmp_path / name).is_file()] == []
