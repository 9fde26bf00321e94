"""Early checks of the options of `headprune glue`, for programs that do not import transformers.

    python -m hf_plugin.finetuning.flags < flags.json

reads a JSON list of command lines, each a list of options, and writes a JSON list of objects with
`mistake`: what the command would refuse before it reads the model and the data, or null.
"""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Sequence
from dataclasses import fields
from typing import Any

from headprune.cli.group import command_named
from headprune.cli.options import DistillationOptions
from headprune.errors import HeadpruneError
from hf_plugin.cli.glue import grid_cells
from hf_plugin.finetuning.settings import Settings
from hf_plugin.glue.tasks import task_named
from hf_plugin.quiet import quieten

_OF_TASK = ("epochs", "batch_size", "learning_rate", "max_length")
"""Settings whose defaults are those of the task."""


def require_good(flags: Sequence[str]) -> None:
    """Check options that the command's parser accepts.

    Raises:
        UsageError: their values are invalid, or contradict each other.
    """
    options = command_named("glue").make_context("headprune glue", list(flags)).params
    if options["grid"]:
        grid_cells(options["grid_batch_sizes"], options["grid_learning_rates"])
    group = DistillationOptions(
        **{each.name: options[each.name] for each in fields(DistillationOptions)}
    )
    weights = group.distillation(chosen=options["distill_from"] is not None, where="--distill-from")
    task = task_named(options["task"])
    names = {each.name for each in fields(Settings)}
    given = {name: value for name, value in options.items() if name in names and value is not None}
    defaults = {name: getattr(task, name) for name in _OF_TASK}
    Settings(**{**defaults, **given, "distillation": weights}).check()


def _answer(flags: Sequence[str]) -> dict[str, Any]:
    try:
        require_good(flags)
    except HeadpruneError as problem:
        return {"mistake": str(problem)}
    return {"mistake": None}


def _main() -> None:
    quieten()
    with contextlib.redirect_stdout(sys.stderr):
        answers = [_answer(flags) for flags in json.load(sys.stdin)]
    json.dump(answers, sys.stdout)


if __name__ == "__main__":
    _main()
