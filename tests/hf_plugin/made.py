"""Generated files of all tasks in GLUE's format, and a tiny BERT that reads them."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from tokenizers.processors import BertProcessing
from transformers import AutoModelForSequenceClassification, PreTrainedTokenizerFast

from hf_plugin.finetuning.settings import Settings
from hf_plugin.glue.tasks import TASKS
from tests.hf_plugin.models import HEADS, LAYERS, config_of

SHAPE = {"ES": (HEADS,) * LAYERS}
WORDS = ["the", "a", "man", "dog", "cat", "sees", "likes", "hears", "red", "blue", "old", "not"]
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]

COLUMNS = {
    "sst2": "sentence label",
    "mrpc": "Quality|#1 ID|#2 ID|#1 String|#2 String",
    "qqp": "id qid1 qid2 question1 question2 is_duplicate",
    "stsb": "index genre filename year old_index source1 source2 sentence1 sentence2 score",
    "mnli": "index promptID pairID genre sentence1_binary_parse sentence2_binary_parse "
    "sentence1_parse sentence2_parse sentence1 sentence2 label1 gold_label",
    "qnli": "index question sentence label",
    "rte": "index sentence1 sentence2 label",
    "wnli": "index sentence1 sentence2 label",
    "entailment": "index sentence1 sentence2 label",
}


def sentence(rng: random.Random) -> str:
    return " ".join(rng.choices(WORDS, k=rng.randint(3, 8)))


def write_task(folder: Path, name: str, *, train: int = 24, dev: int = 12) -> Path:
    """Write the task's files below ``folder``, the folder of GLUE; returns it."""
    task, rng = TASKS[name], random.Random(name)
    columns = COLUMNS.get(name, "")
    names = columns.split("|") if "|" in columns else columns.split()
    for split, file in task.files.items():
        lines = ["\t".join(names)] if names else []
        for number in range(train if split == "train" else dev):
            values = dict.fromkeys(names or task.header, "-") | {"index": str(number)}
            values |= {column: sentence(rng) for column in task.text}
            marks = task.marks or [f"{score / 4:.3f}" for score in range(21)]
            values[task.label] = marks[number % len(marks)]
            lines.append("\t".join(values[column] for column in names or task.header))
        path = folder / task.folder / f"{file}.tsv"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(f"{line}\n" for line in lines), encoding=encoding_of(name))
    return folder


def encoding_of(name: str) -> str:
    return "utf-8-sig" if name == "mrpc" else "utf-8"


def write_model(
    folder: Path, *, family: str = "bert", words: Sequence[str] = WORDS, **options: Any
) -> Path:
    """A tiny pretrained model with its tokenizer; returns its folder."""
    vocabulary = {word: number for number, word in enumerate([*SPECIAL, *words])}
    tokenizer = Tokenizer(WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = Whitespace()
    tokenizer.post_processor = BertProcessing(
        ("[SEP]", vocabulary["[SEP]"]), ("[CLS]", vocabulary["[CLS]"])
    )
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        unk_token="[UNK]",
        pad_token="[PAD]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        model_max_length=32,
    ).save_pretrained(folder)
    torch.manual_seed(3)
    AutoModelForSequenceClassification.from_config(config_of(family, **options)).save_pretrained(
        folder
    )
    return folder


def settings(task: str, model: Path, data_dir: Path | None, **changes: Any) -> Settings:
    """Settings of a run that takes a second."""
    values: dict[str, Any] = dict(
        task=task,
        model=str(model),
        data_dir=data_dir,
        epochs=2.0,
        batch_size=8,
        learning_rate=1e-3,
        max_length=24,
    )
    return Settings(**{**values, **changes})
