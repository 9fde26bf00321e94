"""Training data with a model's own translations, for sequence-level distillation.

Kim and Rush (2016): the student learns from the teacher's translations of the training text in the
place of the references.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from fairseq.data import data_utils
from fairseq.data.indexed_dataset import MMapIndexedDatasetBuilder, best_fitting_int_dtype

from fairseq_plugin.checkpoints import Checkpoint
from fairseq_plugin.engine import FairseqEngine, load_engine
from fairseq_plugin.loading import fairseq_silent
from headprune.errors import DataError
from headprune.files import write_text_atomically
from headprune.folders import new_folder
from headprune.scores.compute import Watch, unwatched
from headprune.translate import EngineSettings

_AT_ONCE = 2000
"""Sentences whose translations are written to one file: an interrupted run goes on after them."""

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
    folder.mkdir(parents=True, exist_ok=True)
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
    starts = range(0, len(sources), _AT_ONCE)
    for start in watch(iter(starts), len(starts), "translating the training set"):
        path = _part(folder, start)
        if not path.is_file():
            numbers = range(start, min(start + _AT_ONCE, len(sources)))
            write_text_atomically(
                path, "".join(f"{line}\n" for line in _translations(engine, sources, numbers))
            )
    with new_folder(binarised) as temporary:
        for file in data.iterdir():
            if not file.name.startswith(f"{prefix}.{target}."):
                (temporary / file.name).symlink_to(os.path.abspath(file))
        _write(
            temporary / f"{prefix}.{target}",
            _target_rows(folder, starts, engine=engine, references=references),
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


def _part(folder: Path, start: int) -> Path:
    return folder / f"translations.{start}.txt"


def _translations(engine: FairseqEngine, sources: Any, numbers: Sequence[int]) -> Iterator[str]:
    """The translation of each sentence, as sub-words; empty for those that are too long."""
    words = [engine.source.string(sources[number]).split() for number in numbers]
    short = [place for place, each in enumerate(words) if len(each) <= engine.longest_source]
    translated = dict(zip(short, engine.translate([words[place] for place in short]), strict=True))
    for place in range(len(words)):
        yield " ".join(translated.get(place, ()))


def _target_rows(
    folder: Path, starts: Sequence[int], *, engine: FairseqEngine, references: Any
) -> Iterator[torch.Tensor]:
    """The numbers of the words of each target, with its end.

    Of a sentence that is too long to be translated, or whose translation is empty, the reference.
    """
    number = 0
    for start in starts:
        # Not splitlines, as sub-words may hold other ends of lines.
        for line in _part(folder, start).read_text(encoding="utf-8").split("\n")[:-1]:
            words = [engine.target.index(word) for word in line.split(" ") if word]
            row = torch.tensor([*words, engine.target.eos()], dtype=torch.int32)
            yield row if words else references[number]
            number += 1


def _write(path: Path, rows: Iterator[torch.Tensor], *, words: int) -> None:
    builder = MMapIndexedDatasetBuilder(f"{path}.bin", dtype=best_fitting_int_dtype(words))
    for row in rows:
        builder.add_item(row)
    builder.finalize(f"{path}.idx")
