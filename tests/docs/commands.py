"""Checks of command lines that documents show, without running them.

Each check is a function from the arguments of a command to a list of mistakes.
"""

from __future__ import annotations

import re
import shlex
import subprocess
from collections.abc import Callable, Mapping
from functools import cache
from itertools import pairwise
from typing import Any

from fairseq_plugin.flags import check_flags
from headprune.cli.group import command_named
from headprune.errors import UsageError

from .documents import ROOT, CodeBlock

_CHECKPOINT = ROOT / "studies" / "baselines" / "multi30k.pt"
_PUNCTUATION = "|&;<>"
_ENDS_OF_COMMANDS = {"|", "&&", "||", ";", "&"}


def commands(block: CodeBlock) -> list[list[str]]:
    """The commands of a shell block, as lists of words, without redirections."""
    found: list[list[str]] = []
    for line in re.sub(r"\\\n\s*", " ", block.text).splitlines():
        lexer = shlex.shlex(line, posix=True, punctuation_chars=_PUNCTUATION)
        lexer.whitespace_split = True
        words: list[str] = []
        in_redirection = False
        for word in lexer:
            if word in _ENDS_OF_COMMANDS:
                found.append(words)
                words = []
            elif set(word) <= set(_PUNCTUATION):
                in_redirection = True
            elif in_redirection:
                in_redirection = False
            else:
                words.append(word)
        found.append(words)
    return [_without_assignments(words) for words in found if words]


def _without_assignments(words: list[str]) -> list[str]:
    while len(words) > 1 and re.fullmatch(r"[A-Z_]+=.*", words[0]):
        words = words[1:]
    return words


def mistakes(command: list[str]) -> list[str]:
    """The mistakes of a command; empty if it is accepted."""
    program, *arguments = command
    program = program.removeprefix(".venv/bin/")
    if any("..." in argument for argument in arguments):
        return ["is not whole: it has '...'"]
    if program.endswith(".sh"):
        return _data_prep(program, arguments)
    check = _CHECKS.get(program)
    return [f"{program}: no check for this program"] if check is None else check(arguments)


def _headprune(arguments: list[str]) -> list[str]:
    if arguments in ([], ["--help"], ["--version"]):
        return []
    name, *rest = arguments
    command: Any = command_named(name)
    if command is None:
        return [f"headprune has no command {name!r}"]
    if rest == ["--help"]:
        return []
    # Parses options and values as a run does; the command itself is not called.
    try:
        context = command.make_context(name, list(rest))
        finetune = context.params.get("finetune") if name in ("compare", "iterate") else None
        if finetune:
            check_flags("train", shlex.split(finetune))
    except Exception as error:  # typer's usage errors, and those of fairseq's flags
        return [f"headprune {name}: {_message(error)}"]
    return []


def _message(error: Exception) -> str:
    format_message = getattr(error, "format_message", None)
    return format_message() if format_message else str(error)


_FILES = ("--finetune-from-model", "--restore-file", "--distill-from", "--shortlist")
"""Options whose files are looked at early; they are left out."""


def _fairseq(program: str) -> Callable[[list[str]], list[str]]:
    """A check by fairseq's own parser and the plugin's early checks."""

    def check(arguments: list[str]) -> list[str]:
        if not arguments or arguments[0].startswith("-"):
            return [f"fairseq-{program}: the data folder comes first"]
        # The plugin's early checks refuse a file that is no checkpoint; any of the plugin will do.
        flags = [
            str(_CHECKPOINT) if before == "--path" else argument
            for before, argument in pairwise(arguments)
            if not {before, argument} & set(_FILES)
        ]
        if "--user-dir" not in flags:
            return [f"fairseq-{program}: --user-dir is missing"]
        place = flags.index("--user-dir")
        if flags[place + 1] != "fairseq_plugin":
            return [f"fairseq-{program}: --user-dir {flags[place + 1]}"]
        try:
            options = check_flags(program, flags[:place] + flags[place + 2 :])
        except UsageError as error:
            return [str(error)]
        needed = ["path"] if program == "generate" else ["optimizer"]
        absent = [name for name in needed if getattr(options, name, None) is None]
        if program == "train" and not (options.max_tokens or options.batch_size):
            absent.append("max-tokens or --batch-size")
        return [f"fairseq-{program}: --{name} is missing" for name in absent]

    return check


def _preprocess(arguments: list[str]) -> list[str]:
    """A check of fairseq-preprocess by its own parser."""
    from fairseq import options

    try:
        options.get_preprocessing_parser().parse_args(arguments)
    except SystemExit:
        return [f"fairseq-preprocess refuses {' '.join(arguments)}"]
    return []


@cache
def _help_of_script(name: str) -> str:
    run = subprocess.run(
        ["bash", name, "--help"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return run.stdout


def _data_prep(script: str, arguments: list[str]) -> list[str]:
    if not (ROOT / script).is_file():
        return [f"{script}: no such script"]
    options = [argument for argument in arguments if argument.startswith("--")]
    known = set(re.findall(r"--[a-z][a-z0-9-]*", _help_of_script(script)))
    wrong = [f"{script}: no option {option}" for option in options if option not in known]
    if arguments != ["--help"] and "--out" not in options:
        wrong.append(f"{script}: --out is missing")
    return wrong


def _make(arguments: list[str]) -> list[str]:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z]+):", makefile, re.MULTILINE))
    variables = set(re.findall(r"\$[({]([A-Z_]+)[,)}]|\(if \$\(([A-Z_]+)\)", makefile))
    names = {name for pair in variables for name in pair}
    wrong = []
    for argument in arguments:
        name, equals, _ = argument.partition("=")
        if equals and name not in names:
            wrong.append(f"make: no variable {name}")
        elif not equals and argument not in targets:
            wrong.append(f"make: no target {argument}")
    return wrong


def _snakemake(arguments: list[str]) -> list[str]:
    wrong = []
    if arguments[:2] != ["-s", "studies/Snakefile"]:
        wrong.append("snakemake: -s studies/Snakefile comes first")
    studies = [a.removeprefix("study=") for a in arguments if a.startswith("study=")]
    for study in studies:
        if not (ROOT / f"studies/{study}.yaml").is_file() and not study.endswith(".yaml"):
            wrong.append(f"snakemake: no study {study}")
    if not studies:
        wrong.append("snakemake: --config study=NAME is missing")
    return wrong


def _python(arguments: list[str]) -> list[str]:
    if arguments[:1] != ["-m"]:
        return ["python: only `python -m MODULE` is checked"]
    parts = arguments[1].split(".")
    if parts[0] == "pytest":
        return []
    module = ROOT.joinpath(*parts)
    if not module.with_suffix(".py").is_file() and not (module / "__main__.py").is_file():
        return [f"python: no module {arguments[1]}"]
    source = (
        module.with_suffix(".py") if module.with_suffix(".py").is_file() else module / "__main__.py"
    )
    text = source.read_text(encoding="utf-8")
    text += (ROOT / "benchmarks" / "measuring.py").read_text(encoding="utf-8")
    options = [argument for argument in arguments[2:] if argument.startswith("--")]
    return [f"{arguments[1]}: no option {option}" for option in options if option not in text]


def _torchrun(arguments: list[str]) -> list[str]:
    """The check of the program that torchrun starts."""
    if "fairseq-train" not in arguments:
        return ["torchrun: only fairseq-train is checked"]
    return mistakes(arguments[arguments.index("fairseq-train") :])


def _accepted(arguments: list[str]) -> list[str]:
    """The check of a program that is not the project's: its arguments are not looked at."""
    return []


_CHECKS: Mapping[str, Callable[[list[str]], list[str]]] = {
    "headprune": _headprune,
    "fairseq-train": _fairseq("train"),
    "fairseq-generate": _fairseq("generate"),
    "fairseq-interactive": _fairseq("generate"),
    "fairseq-preprocess": _preprocess,
    "torchrun": _torchrun,
    "make": _make,
    "snakemake": _snakemake,
    "python": _python,
    **dict.fromkeys(("apt", "cp", "export", "git", "hf", "pip", "source"), _accepted),
}
