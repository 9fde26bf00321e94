"""The text of a study for a prepared corpus, sized to the data and the machine."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from headprune.new_labelled_study import command_to_run

_EPOCHS = (3, 40)
"""The least and the largest number of epochs of a training."""
_FINETUNE_RATE = 1e-4
"""The learning rate of a fine-tuning where that of the training is not known."""


@dataclass(frozen=True, kw_only=True)
class Corpus:
    """A prepared corpus.

    Attributes:
        folder: the folder with prep.json.
        name: its name in signatures, such as ``news.en-ru``.
        pair: the languages, ``en-ru``.
        pairs: the number of training pairs.
        tokens: the number of sub-words of their target sides.
        joined_dictionary: True if both languages share one dictionary.
    """

    folder: Path
    name: str
    pair: str
    pairs: int
    tokens: int
    joined_dictionary: bool


@dataclass(frozen=True, kw_only=True)
class TrainedBaseline:
    """A model that is trained already.

    Attributes:
        file: the checkpoint.
        arch: the architecture that is most like it.
        options: the model's options that are not the architecture's, by their names in fairseq.
        lr: the highest learning rate of its training; None if that is not known.
    """

    file: Path
    arch: str
    options: Mapping[str, Any]
    lr: float | None


@runtime_checkable
class TrainedTranslator(Protocol):
    """A translation model of which a study can be the continuation."""

    def training_flags(self) -> tuple[str, Mapping[str, Any], float | None]:
        """The architecture, the model's other options and the highest learning rate."""

    def require_data(self, data: Path, *, languages: tuple[str, str], name: str) -> None:
        """Check that the model can be fine-tuned on data.

        Args:
            data: the binarised data.
            languages: source and target of the data.
            name: the option and the file, for the message.

        Raises:
            UsageError: a model of other languages or another vocabulary.
            DataError: the dictionaries cannot be read, or have another size.
        """


@dataclass(frozen=True, kw_only=True)
class _Size:
    """Sizes of model and training for corpora of up to ``pairs`` pairs."""

    pairs: float
    arch: str
    sizes: str
    updates: int
    lr: str
    dropout: float


_SMALL = _Size(
    pairs=100_000,
    arch="transformer_headpruned_small",
    sizes="6 + 6 layers, width 128, 8 heads of 16",
    updates=3_000,
    lr="4e-3",
    dropout=0.1,
)
_ON_A_GPU = (
    _SMALL,
    _Size(
        pairs=1_000_000,
        arch="transformer_headpruned_iwslt",
        sizes="6 + 6 layers, width 512, 4 heads of 128",
        updates=30_000,
        lr="5e-4",
        dropout=0.3,
    ),
    _Size(
        pairs=float("inf"),
        arch="transformer_headpruned",
        sizes="Transformer-Base: 6 + 6 layers, width 512, 8 heads of 64",
        updates=100_000,
        lr="7e-4",
        dropout=0.1,
    ),
)
"""On CPU cores the small model is trained whatever the corpus."""


def study_text(
    corpus: Corpus,
    *,
    path: Path,
    cores: int,
    gpu: bool,
    baseline: TrainedBaseline | None = None,
) -> str:
    """Write a study of random pruning with a comment on each line.

    Args:
        corpus: the data.
        path: the file of the study; its name without ending names the run folder.
        cores: the number of CPU cores of the machine.
        gpu: True if the machine has a GPU.
        baseline: the unpruned model; None trains one.
    """
    size = next(each for each in _ON_A_GPU if corpus.pairs <= each.pairs) if gpu else _SMALL
    batch = 4096 if gpu else 2048
    updates = max(1, corpus.tokens // batch)
    epochs = min(max(round(size.updates / updates), _EPOCHS[0]), _EPOCHS[1])
    tuning = max(1, epochs // 10)
    share = "share-all-embeddings: true, " if corpus.joined_dictionary else ""
    name = path.stem  # in quotes below, since YAML reads 2024 and true as other values than text
    folder = _quoted(corpus.folder)
    machine = "a GPU" if gpu else f"{cores} CPU core{'s' * (cores > 1)}"
    training = f"""\
  max-tokens: {batch}  # sub-words of a batch
  optimizer: adam
  adam-betas: (0.9, 0.98)  # those of the Transformer's paper"""
    criterion = """\
  criterion: label_smoothed_cross_entropy
  label-smoothing: 0.1"""
    if baseline is not None and baseline.options.get("adaptive-softmax-cutoff"):
        criterion = """\
  criterion: adaptive_loss  # that of the model's adaptive softmax
  ddp-backend: legacy_ddp  # which this criterion needs"""
    schedule = f"""\
  lr-scheduler: polynomial_decay  # a straight line down to 0 at the last update
  warmup-updates: 10%  # of all updates
  total-num-update: 100%
  clip-norm: 1.0  # limit of the gradient's norm
{criterion}"""
    if baseline is None:
        model = f"""\
arch: {size.arch}  # {size.sizes}
model: {{{share}dropout: {size.dropout}}}  # options of the model
train:  # the unpruned baseline
  max-epoch: {epochs}  # about {epochs * updates:,} updates
{training}
  lr: {size.lr}  # the highest learning rate
{schedule}"""
    else:
        model = f"""\
baseline_model: {_quoted(baseline.file)}  # the unpruned model, trained already
arch: {baseline.arch}  # the architecture that is most like it
model: {json.dumps(dict(baseline.options), ensure_ascii=False)}  # its other options"""
    rate = float(size.lr) if baseline is None else baseline.lr
    lr = _FINETUNE_RATE if rate is None else rate / 4
    meaning = "a low one" if rate is None else "a quarter of the training's"
    lines = f"""\
# Run it with: {command_to_run(path, cores=cores)}
# Written for {corpus.pairs:,} training pairs and {machine}.
name: {json.dumps(name)}  # the run folder is runs/{name}
description: {json.dumps(f"{corpus.name}, heads pruned at random")}  # title of the table
data:
  name: {json.dumps(corpus.name)}  # in signatures
  pair: {corpus.pair}  # source and target language
  script: data_prep/prepared.sh  # takes data that are prepared already
  args: {{from-dir: {folder}}}  # the folder with prep.json
{model}
finetune:  # each pruned model, and the unpruned control
  max-epoch: {tuning}  # about {tuning * updates:,} updates
{training}
  lr: {lr:g}  # the highest learning rate, {meaning}
{schedule}
generate: {{beam: 5, max-tokens: 4000}}  # beam search on the test set
seeds: [1, 2, 3]  # each draws other heads
plans:  # the rows of the table
  - {{percent: 25}}  # of all heads, at random
  - {{percent: 50}}
  - {{percent: 75}}
"""
    if not gpu:
        return lines
    return f"""{lines}precision: fp16  # on a GPU
resources: {{baseline: {{gpu: 1}}, finetune: {{gpu: 1}}}}  # one GPU for each training
"""


def _quoted(path: Path) -> str:
    return json.dumps(str(path), ensure_ascii=False)
