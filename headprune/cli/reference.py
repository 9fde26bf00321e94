"""The reference of the command line as Markdown: ``python -m headprune.cli.reference FILE``.

``make docs`` writes docs/reference/cli.md by it.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Iterator
from typing import Any

import typer

from headprune.cli import app
from headprune.cli.group import command_named
from headprune.files import write_text_atomically

HEADER = """# Command line

<!-- Written by `make docs` from the commands themselves; changes here are lost. -->

`headprune COMMAND --help` prints the same text. Words such as *plan* and *component* are in the
[glossary](../glossary.md).
"""


def reference() -> str:
    """All commands with their help, arguments and options, as one Markdown page."""
    group: Any = typer.main.get_command(app)
    names = group.list_commands(typer.Context(group))
    contents = "\n".join(f"- [headprune {name}](#headprune-{name})" for name in names)
    sections = ["\n".join(_command(name, command_named(name))) for name in names]
    return "\n\n".join([HEADER + "\n" + contents, *sections]) + "\n"


def _command(name: str, command: Any) -> Iterator[str]:
    """Section of one command."""
    context = typer.Context(command, info_name=name)
    usage = " ".join(["headprune", name, *command.collect_usage_pieces(context)])
    yield f"## headprune {name}\n"
    yield f"`{usage}`\n"
    yield from _description(inspect.cleandoc(command.help or ""))
    panels: dict[str, list[str]] = {}
    for parameter in command.params:
        if not getattr(parameter, "hidden", False):
            default_panel = f"{parameter.param_type_name.capitalize()}s"  # Arguments or Options
            panel = getattr(parameter, "rich_help_panel", None) or default_panel
            panels.setdefault(panel, []).append(_parameter(parameter, context))
    for panel, parameters in panels.items():
        yield f"\n{panel}:\n"
        yield from parameters


def _description(text: str) -> Iterator[str]:
    """The help text of a command, its examples as code."""
    paragraphs: list[list[str]] = []  # neighbouring examples form one block
    for paragraph in re.split(r"\n\s*\n", text):
        lines = paragraph.splitlines()
        is_code = lines[0].startswith("  ")
        if is_code and paragraphs and paragraphs[-1][0].startswith("  "):
            paragraphs[-1] += lines
        else:
            paragraphs.append(lines)
    blocks = []
    for lines in paragraphs:
        if lines[0].startswith("  "):
            # A command that is longer than a line of the help goes on in the next.
            code = re.sub(r"\n(?!  headprune )\s*", " ", "\n".join(lines))
            blocks.append("```\n" + inspect.cleandoc(code) + "\n```")
        else:
            blocks.append(_escaped(" ".join(line.strip() for line in lines)))
    yield "\n\n".join(blocks)


def _parameter(parameter: Any, context: Any) -> str:
    """One list item: names, kind of value, help, default."""
    names, text = parameter.get_help_record(context)
    return f"- `{names}`: {_escaped(' '.join(text.split()))}"


def _escaped(text: str) -> str:
    """Escape what Markdown would take for markup, but for code in backticks."""
    parts = text.split("`")
    parts[::2] = [re.sub(r"([*<])", r"\\\1", part) for part in parts[::2]]
    return "`".join(parts)


if __name__ == "__main__":
    write_text_atomically(sys.argv[1], reference())
