"""Early checks of fine-tunings' command lines, for programs that do not import transformers.

    python -m hf_plugin.cli.check < flags.json

reads a JSON list of command lines of `headprune glue` and `headprune finetune`, each a list of
words without `headprune`, and writes a JSON list of objects with `mistake`: what the command would
refuse before it reads the model and the data, or null.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

from headprune.answers import serve
from headprune.cli.group import command_named
from headprune.cli.options import DistillationOptions
from headprune.recovery.variant import Variant
from hf_plugin.cli.finetune import gate_training
from hf_plugin.cli.glue import grid_cells
from hf_plugin.finetuning.settings import Settings
from hf_plugin.glue.tasks import task_named
from hf_plugin.quiet import quieten
from hf_plugin.tasks.task import MAX_LENGTH

_OF_TASK = ("epochs", "batch_size", "learning_rate", "max_length")
"""Settings whose defaults are those of the task."""


def require_good(line: Sequence[str]) -> None:
    """Check a command line whose options the command's parser accepts.

    Raises:
        UsageError: their values are invalid, or contradict each other.
    """
    command, *flags = line
    options = command_named(command).make_context(f"headprune {command}", flags).params
    group = DistillationOptions(
        **{each.name: options[each.name] for each in fields(DistillationOptions)}
    )
    weights = group.distillation(chosen=options["distill_from"] is not None, where="--distill-from")
    names = {each.name for each in fields(Settings)}
    given = {name: value for name, value in options.items() if name in names and value is not None}
    Settings(**{**_for_command(command, options), **given, "distillation": weights}).check()


def _for_command(command: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Settings that do not have the name of their option, and defaults of tasks."""
    if command == "finetune":
        gates = gate_training(
            *(options[name] for name in ("gates", "l0_target", "l0_lambda", "gates_speed"))
        )
        return {
            "task": "",
            "max_length": MAX_LENGTH,
            "variant": Variant(gates=gates, layerdrop=options["layerdrop"]),
        }
    if options["grid"]:
        grid_cells(options["grid_batch_sizes"], options["grid_learning_rates"])
    task = task_named(options["task"])
    return {name: getattr(task, name) for name in _OF_TASK}


if __name__ == "__main__":
    quieten()
    serve(require_good)
