"""Checks of what fairseq's commands are given, before they begin to work."""

from __future__ import annotations

import ast
import os
from argparse import Namespace
from functools import wraps
from typing import Any

from fairseq import checkpoint_utils, options
from fairseq.file_io import PathManager

from fairseq_plugin.checkpoints import read_model
from headprune.errors import DataError, HeadpruneError, UsageError
from headprune.weights import is_zip, verify_zip


def check_early() -> None:
    """Let fairseq's commands end with one line where a file or ``--model-overrides`` is bad."""
    parse = options.parse_args_and_arch

    @wraps(parse)
    def parse_and_check(*arguments: Any, **keywords: Any) -> Any:
        parsed = parse(*arguments, **keywords)
        check(parsed[0] if isinstance(parsed, tuple) else parsed)
        return parsed

    options.parse_args_and_arch = parse_and_check
    checkpoint_utils.load_checkpoint_to_cpu = _verifying(checkpoint_utils.load_checkpoint_to_cpu)


def check(args: Namespace) -> None:
    """Check the options of a command.

    Raises:
        UsageError: ``--model-overrides`` is not a dictionary of options.
        DataError: a checkpoint that is to be read does not exist.
    """
    overrides = getattr(args, "model_overrides", None)
    if overrides is not None:
        _check_overrides(overrides)
    paths = getattr(args, "path", None)
    whole_files = getattr(args, "checkpoint_shard_count", 1) == 1
    if paths and whole_files and not getattr(args, "checkpoint_suffix", ""):
        for path in paths.split(os.pathsep):
            _require(path, flag="--path")
    start = getattr(args, "finetune_from_model", None)
    last = os.path.join(getattr(args, "save_dir", ""), "checkpoint_last.pt")
    if start and not PathManager.exists(last):
        _require(start, flag="--finetune-from-model")


def _check_overrides(text: str) -> None:
    expected = "give a dictionary of options, \"{'head_plan': 'plan.json'}\""
    try:
        overrides = ast.literal_eval(text)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        raise UsageError(f"--model-overrides: {text!r:.80} cannot be read; {expected}") from None
    if not isinstance(overrides, dict) or not all(isinstance(name, str) for name in overrides):
        raise UsageError(f"--model-overrides: {text!r:.80}; {expected}")


def _require(path: str, *, flag: str) -> None:
    if not PathManager.exists(path):
        raise DataError(f"{flag}: {path}: no such file")


def _verifying(load_checkpoint: Any) -> Any:
    """Let fairseq's loading refuse a damaged file, and name the damage in one line."""

    @wraps(load_checkpoint)
    def load(path: str, *arguments: Any, **keywords: Any) -> Any:
        try:
            local_path = PathManager.get_local_path(path)
            if is_zip(local_path):
                verify_zip(local_path)
            return load_checkpoint(path, *arguments, **keywords)
        except HeadpruneError:
            raise
        except Exception:
            read_model(path)
            raise  # the file is sound

    return load
