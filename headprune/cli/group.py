"""The subcommands of ``headprune``: one module each, and those that plugins register.

The help lists the subcommands of headprune by name and summary; a subcommand's module is imported
when the subcommand runs.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Mapping
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from headprune import plugins

PLUGIN_COMMANDS = "headprune.commands"
"""The group of entry points that plugins register commands by: the entry point's name is the
command's, its object a typer app with one command, made with ``add_completion=False``."""

SUMMARIES: Mapping[str, str] = {
    "plan": "Choose the heads, neurons or layers to keep and write them as a plan (JSON).",
    "show": "Show which heads, neurons and layers are kept, and what that saves.",
    "prune": "Prune heads, neurons and layers of a trained model, without training.",
    "gates": "Close learned gates: write the plan and the pruned model.",
    "export": "Write a model so that other tools load it.",
    "vocabulary": "Remove the tokens that a text never uses from a model and its tokenizer.",
    "shortlist": "Make a shortlist of target words for each source word, for a faster beam search.",
    "bleu": "Score a translation with sacreBLEU: cased, detokenised BLEU and chrF.",
    "report": "Gather results into a web page and tables.",
    "claims": "Decide which claims of papers hold on a set of records.",
    "measure": "Measure a trained model on labelled examples, or on a translation's test set.",
    "speed": "Time models in turns, with their parameters, FLOPs and file sizes.",
    "latency": "Measure what fewer heads, neurons and layers save in time, on this machine.",
    "scores": "Score every head (or neuron, or layer) of a model, as JSON and as heat maps.",
    "translate": "Translate lines of text with a model.",
    "compare": "Compare scores with random choice: does a score say which heads can be pruned?",
    "difference": "Compare rows of trained models seed by seed, with an interval and a test.",
    "subnetworks": "Find good, random and bad sub-networks of several fine-tunings of one model.",
    "overlap": "Compare the survivors of `headprune subnetworks` over tasks and seeds.",
    "new-study": "Write a study of your own data, sized to the data and this machine.",
    "iterate": "Prune in steps: score the heads, prune the worst, score the remaining ones, and so "
    "on.",
}
"""The subcommands in ``headprune/cli/``, and the first line of each one's help."""

_ORDER = (
    *(
        "plan",
        "show",
        "prune",
        "gates",
        "vocabulary",
        "shortlist",
        "export",
        "bleu",
        "report",
        "claims",
        "difference",
    ),
    *("glue", "changes", "finetune", "measure", "speed", "latency", "scores", "compare", "iterate"),
    *("subnetworks", "overlap", "translate", "new-study"),
)
"""The order in which the help lists commands; others follow by name."""

_OLD_NAMES = {"score": "bleu"}


def command_named(name: str) -> Any:
    """The subcommand of this name as a click command; None if it does not exist."""
    if name in SUMMARIES:
        app = import_module(f"headprune.cli.{name.replace('-', '_')}").app
    else:
        app = plugins.load_known(PLUGIN_COMMANDS).get(name)
    if app is None:
        return None
    command = typer.main.get_command(app)
    command.name = name
    command.help = flowing(command.help or "")
    return command


def flowing(text: str) -> str:
    """A help text whose paragraphs have no line breaks, as a terminal has lines of its own width.

    Indented lines, which are commands, stay as they are.

    >>> print(flowing("One\nline.\n\n  a command\n  another\n\nThe\nend."))
    One line.
    <BLANKLINE>
      a command
      another
    <BLANKLINE>
    The end.
    """
    lines: list[str] = []
    for line in inspect.cleandoc(text).splitlines():
        previous = lines[-1] if lines else ""
        is_text = bool(line) and not line.startswith(" ")
        if is_text and previous and not previous.startswith(" "):
            lines[-1] = f"{previous} {line}"
        else:
            lines.append(line)
    return "\n".join(lines)


class _Unloaded(TyperCommand):
    """A subcommand known by name and summary; its module is imported when it runs."""

    def make_context(self, info_name: Any, args: Any, parent: Any = None, **extra: Any) -> Any:
        """The context of the imported command, which the group then runs."""
        return command_named(str(self.name)).make_context(info_name, args, parent=parent, **extra)


class CommandGroup(TyperGroup):
    """Subcommands that are found by name when they are needed."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Every subcommand's name, in the order of the help."""
        names = {*SUMMARIES, *plugins.load_known(PLUGIN_COMMANDS)}
        listed = [name for name in _ORDER if name in names]
        return [*listed, *sorted(names.difference(listed))]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The subcommand of this name; None if it does not exist."""
        if cmd_name in SUMMARIES:
            return _Unloaded(cmd_name, help=SUMMARIES[cmd_name])
        return command_named(cmd_name)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The subcommand that the arguments begin with, and the rest of the arguments."""
        new_name = _OLD_NAMES.get(args[0])
        if new_name is not None:
            print(f"headprune {args[0]} is now called headprune {new_name}", file=sys.stderr)
            args = [new_name, *args[1:]]
        elif self.get_command(ctx, args[0]) is None:  # the error suggests a name like it
            self.commands = {name: self.get_command(ctx, name) for name in self.list_commands(ctx)}
        return super().resolve_command(ctx, args)
