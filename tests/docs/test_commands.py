"""Commands that the documents show are accepted by the programs' own parsers."""

from __future__ import annotations

import ast
import importlib

import pytest

from .commands import commands, mistakes
from .documents import DOCUMENTS, NOT_CHECKED, ROOT, CodeBlock, code_blocks

SHELL = {"", "sh", "bash", "console"}
WORDS = ("headprune", "fairseq-", "data_prep/", "snakemake", "make ", "python -m", ".venv/bin/")


def blocks(*languages: str) -> list[CodeBlock]:
    return [
        block
        for path in DOCUMENTS
        for block in code_blocks(path)
        if block.language in languages and not NOT_CHECKED.fullmatch(block.marker)
    ]


def is_shell(block: CodeBlock) -> bool:
    """True for a block of commands without a language: its first word is a program."""
    return block.language in {"sh", "bash"} or block.text.startswith(WORDS)


SHELL_BLOCKS = [block for block in blocks(*SHELL) if is_shell(block)]


@pytest.mark.parametrize("block", SHELL_BLOCKS, ids=str)
def test_commands_parse(block: CodeBlock) -> None:
    wrong = [
        f"{' '.join(command)}: {mistake}"
        for command in commands(block)
        for mistake in mistakes(command)
    ]
    assert wrong == []


PYTHON_BLOCKS = blocks("python")


@pytest.mark.parametrize("block", PYTHON_BLOCKS, ids=str)
def test_python_compiles_and_its_imports_exist(block: CodeBlock) -> None:
    tree = ast.parse(block.text)
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for name in node.names:
                importlib.import_module(name.name)
        elif isinstance(node, ast.ImportFrom):
            module = importlib.import_module(str(node.module))
            absent = [name.name for name in node.names if not hasattr(module, name.name)]
            assert absent == []


@pytest.mark.parametrize(
    ("command", "mistake"),
    [
        ("headprune plan --percent 50 -o plan.json", ""),
        ("headprune plan --procent 50", "No such option"),
        ("headprune plan --percent many", "a valid number"),
        ("headprune prune model.pt -o pruned.pt", "--plan"),
        ("headprune compare m.pt -o out --finetune '--lr fast'", "--lr"),
        ("headprune plant", "no command 'plant'"),
        (
            "fairseq-train data --user-dir fairseq_plugin --arch transformer_headpruned "
            "--optimizer adam --max-tokens 4000",
            "",
        ),
        (
            "fairseq-train data --user-dir fairseq_plugin --arch transformer_headpruned "
            "--optimizer adam",
            "max-tokens",
        ),
        (
            "fairseq-train data --user-dir fairseq_plugin --arch transformer_headpruned ...",
            "not whole",
        ),
        ("data_prep/numbers.sh --out data --paar en-de", "no option --paar"),
        ("make dinner", "no target dinner"),
        ("snakemake -s studies/Snakefile --config study=none", "no study none"),
        ("frobnicate", "no check"),
    ],
)
def test_mistakes_are_found(command: str, mistake: str) -> None:
    block = CodeBlock(ROOT / "README.md", 1, "sh", "", command)
    (words,) = commands(block)
    found = mistakes(words)
    assert bool(found) == bool(mistake)
    assert not mistake or mistake in found[0]


def test_pipes_redirections_comments_and_continued_lines() -> None:
    text = (
        "A=1 headprune x \\\n    -y < in.txt > out.txt  # comment\nmake demo && make test | cat\n"
    )
    block = CodeBlock(ROOT / "README.md", 1, "sh", "", text)
    assert commands(block) == [
        ["headprune", "x", "-y"],
        ["make", "demo"],
        ["make", "test"],
        ["cat"],
    ]
