"""A checkpoint's model, ready to run, with its task and dictionaries."""

from __future__ import annotations

import logging
import os
from argparse import Namespace
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fairseq.checkpoint_utils import load_model_ensemble_and_task
from fairseq.data import Dictionary
from fairseq.data.data_utils import infer_language_pair
from fairseq.dataclass.utils import overwrite_args_by_name
from fairseq.models.transformer import TransformerModel
from omegaconf import OmegaConf

import fairseq_plugin  # noqa: F401  (registers the architecture)
from fairseq_plugin.checkpoints import Checkpoint
from headprune.errors import DataError, HeadpruneError, UsageError, reason_of


@contextmanager
def fairseq_silent() -> Iterator[None]:
    """Suppress fairseq's log messages; errors are raised as exceptions anyway."""
    logging.disable()
    try:
        yield
    finally:
        logging.disable(logging.NOTSET)


def load_model(checkpoint: Checkpoint, data: Path) -> tuple[TransformerModel, Any]:
    """Load the model in float32 and evaluation mode, and its task with the data's dictionaries.

    Raises:
        UsageError: a model of another task than translation, or data of unknown languages.
        DataError: the dictionaries are missing or do not fit.
    """
    options = _task_options(checkpoint)
    if not (options.get("source_lang") and options.get("target_lang")):
        _require_languages(data)
    try:
        models, _, task = load_model_ensemble_and_task(
            [str(checkpoint.path)],
            state=state_with(checkpoint, data=str(data), eval_bleu=False, autocast="none"),
        )
    except FileNotFoundError as error:
        raise DataError(f"{data}: no dictionary of the model's languages ({error})") from None
    except HeadpruneError:
        raise
    # Options and dictionaries that make no sense can make fairseq fail in any way.
    except Exception as error:
        reason = reason_of(error, last_line=True)
        raise DataError(
            f"{checkpoint.path}: does not load with the dictionaries of {data}: {reason}"
        ) from None
    return models[0].float().eval(), task


def load_split(
    task: Any, split: str, data: Path, *, choose: Callable[[int], Iterable[int]]
) -> list[dict[str, Any]]:
    """Sentence pairs of a split of the task's data.

    Args:
        data: the binarised data folder, for error messages.
        choose: function from the number of pairs to the indices of those to read.

    Raises:
        FileNotFoundError: there is no such split.
        DataError: its files are truncated, damaged, or were made with another dictionary.
    """
    try:
        task.load_dataset(split)
        dataset = task.dataset(split)
        items = [dataset[number] for number in choose(len(dataset))]
    except FileNotFoundError:
        raise
    # fairseq reads such files without a check, and so can fail in any way.
    except Exception as error:
        reason = reason_of(error, last_line=True)
        raise DataError(f"{data}: cannot read the split {split} ({reason})") from None
    for side, dictionary in (
        ("source", task.source_dictionary),
        ("target", task.target_dictionary),
    ):
        for item in items:
            tokens = item[side]
            if not len(tokens) or not 0 <= int(tokens.min()) <= int(tokens.max()) < len(dictionary):
                raise DataError(
                    f"{data}: the split {split} is damaged, or was made with another dictionary "
                    f"than the {side} language's, of {len(dictionary)} entries"
                )
    return items


def trained_on(checkpoint: Checkpoint) -> Path:
    """The binarised data folder that the checkpoint was trained on.

    Raises:
        UsageError: it is not there.
    """
    named = _task_options(checkpoint).get("data")
    if not named:
        raise UsageError(
            f"{checkpoint.path}: does not name the data that it was trained on; give --data, the "
            "folder with the dictionaries"
        )
    data = Path(str(named).split(":")[0])
    if not os.path.isdir(data):  # a name that is too long is no error here
        raise UsageError(
            f"{checkpoint.path}: trained on {data}, which is not there; give --data, the folder "
            "with the dictionaries"
        )
    return data


def write_dictionaries(checkpoint: Checkpoint, folder: Path) -> None:
    """Write dictionaries of made-up words, as many as the checkpoint's model has, to a folder."""
    options = _task_options(checkpoint)
    for name, language in (("source_lang", "source"), ("target_lang", "target")):
        options[name] = options.get(name) or language
    languages = options["source_lang"], options["target_lang"]
    for side, language in zip(("encoder", "decoder"), languages, strict=True):
        rows = len(checkpoint.state["model"][f"{side}.embed_tokens.weight"])
        words = rows - Dictionary().nspecial
        lines = "".join(f"{number} 1\n" for number in range(words))
        (folder / f"dict.{language}.txt").write_text(lines)


def set_data(checkpoint: Checkpoint, folder: Path, *, languages: tuple[str, str]) -> None:
    """Name another folder and its languages as the checkpoint's data, in place."""
    source, target = languages
    _task_options(checkpoint).update(data=str(folder), source_lang=source, target_lang=target)


def languages_of(checkpoint: Checkpoint, data: Path) -> tuple[str, str]:
    """The source and target language in the model's options, or else in the data's file names.

    Raises:
        UsageError: a model of another task than translation, or data of unknown languages.
    """
    options = _task_options(checkpoint)
    source, target = options.get("source_lang"), options.get("target_lang")
    if source and target:
        return str(source), str(target)
    _require_languages(data)
    source, target = infer_language_pair(str(data))
    return str(source), str(target)


def _task_options(checkpoint: Checkpoint) -> dict[str, Any]:
    """The options of the task that the checkpoint was trained for."""
    cfg, args = checkpoint.state.get("cfg"), checkpoint.state.get("args")
    task = cfg.get("task") if isinstance(cfg, dict) else None
    options = task if task is not None else args
    values = vars(options) if isinstance(options, Namespace) else options
    if not isinstance(values, dict):
        values = {}
    name = values.get("task") or values.get("_name")
    if name != "translation":
        raise UsageError(
            f"{checkpoint.path}: a model of the task {name}; give one of the task translation"
        )
    return values


def _require_languages(data: Path) -> None:
    """Raise a UsageError unless the names of the data's files contain the languages."""
    if not data.is_dir():
        raise UsageError(f"{data}: no such folder; give --data, the binarised data")
    if None in infer_language_pair(str(data)):
        raise UsageError(
            f"{data}: the checkpoint does not name its languages, and no file here does, as "
            "train.de-en.de.bin would; give --data, the binarised data"
        )


def state_with(checkpoint: Checkpoint, **options: Any) -> dict[str, Any]:
    """The content of the checkpoint with other options, in the form after fairseq's loading."""
    state = {**checkpoint.state, "model": dict(checkpoint.state["model"])}
    if isinstance(state.get("args"), Namespace):
        state["args"] = Namespace(**{**vars(state["args"]), **options})
    else:
        state["cfg"] = OmegaConf.create(state["cfg"], flags={"allow_objects": True})
        overwrite_args_by_name(state["cfg"], options)
    return state
