"""Binarised training data with a model's own translations, for sequence-level distillation."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from fairseq.data import data_utils
from fairseq.data.indexed_dataset import MMapIndexedDatasetBuilder, best_fitting_int_dtype

from fairseq_plugin.checkpoints import Checkpoint
from fairseq_plugin.engine import FairseqEngine, load_engine
from fairseq_plugin.loading import fairseq_silent
from headprune.errors import DataError
from headprune.folders import new_folder
from headprune.recovery.translated_text import read_translations, translate_texts
from headprune.scores.compute import Watch, unwatched
from headprune.translate import EngineSettings

_BATCH = 64
_SPLIT = "train"


def translated_training_set(
    teacher: Checkpoint, data: Path, folder: Path, *, beam: int, watch: Watch = unwatched
) -> Path:
    """Write binarised data whose training targets are a model's translations.

    Sentences that are too long for the model, or whose translation is empty, keep their references.
    Validation and test sets are those of the data. What an interrupted run has translated is used
    again, and a finished folder is returned as it is: it has to be of the same teacher and beam.

    Args:
        teacher: the model that translates.
        data: the binarised data folder.
        folder: the folder to write to.
        beam: the width of the beam search.
        watch: wraps the parts of the training set, for a progress bar.

    Returns:
        The binarised folder.

    Raises:
        DataError: no training set, or files that cannot be read or written.
    """
    binarised = folder / "bin"
    if binarised.is_dir():
        return binarised
    settings = EngineSettings(
        device="auto",
        threads=torch.get_num_threads(),
        beam=beam,
        batch_size=_BATCH,
        shortlist=None,
    )
    engine, (source, target) = load_engine(teacher, data, settings)
    prefix = _prefix(data, source, target)
    with fairseq_silent():
        sources, references = (
            data_utils.load_indexed_dataset(str(data / f"{prefix}.{language}"), dictionary)
            for language, dictionary in ((source, engine.source), (target, engine.target))
        )
    translate_texts(folder, len(sources), partial(_translations, engine, sources), watch=watch)
    translated = read_translations(folder, len(sources))
    with new_folder(binarised) as temporary:
        for file in data.iterdir():
            if not file.name.startswith(f"{prefix}.{target}."):
                (temporary / file.name).symlink_to(os.path.abspath(file))
        _write(
            temporary / f"{prefix}.{target}",
            _target_rows(translated, engine=engine, references=references),
            words=len(engine.target),
        )
    return binarised


def _prefix(data: Path, source: str, target: str) -> str:
    """The beginning of the names of the training set's files, which serve both directions."""
    for pair in (f"{source}-{target}", f"{target}-{source}"):
        if (data / f"{_SPLIT}.{pair}.{source}.idx").is_file():
            if (data / f"{_SPLIT}1.{pair}.{source}.idx").is_file():
                raise DataError(f"{data}: the training set is in several parts; join them")
            return f"{_SPLIT}.{pair}"
    raise DataError(f"{data}: no training set of {source}-{target} to translate")


def _translations(engine: FairseqEngine, sources: Any, numbers: Sequence[int]) -> Iterator[str]:
    """The translation of each sentence, as sub-words; empty for those that are too long."""
    words = [engine.source.string(sources[number]).split() for number in numbers]
    short = [place for place, each in enumerate(words) if len(each) <= engine.longest_source]
    translated = dict(zip(short, engine.translate([words[place] for place in short]), strict=True))
    for place in range(len(words)):
        yield " ".join(translated.get(place, ()))


def _target_rows(
    translated: Sequence[str], *, engine: FairseqEngine, references: Any
) -> Iterator[torch.Tensor]:
    """The numbers of the words of each target, with its end.

    Of a sentence that is too long to be translated, or whose translation is empty, the reference.
    """
    for number, line in enumerate(translated):
        words = [engine.target.index(word) for word in line.split(" ") if word]
        row = torch.tensor([*words, engine.target.eos()], dtype=torch.int32)
        yield row if words else references[number]


def _write(path: Path, rows: Iterator[torch.Tensor], *, words: int) -> None:
    builder = MMapIndexedDatasetBuilder(f"{path}.bin", dtype=best_fitting_int_dtype(words))
    for row in rows:
        builder.add_item(row)
    builder.finalize(f"{path}.idx")
