"""The Markdown documents of the repository: their headings, links and code blocks."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
TOP = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "studies/README.md")
DOCUMENTS = tuple(
    sorted(
        path
        for path in (*(ROOT / name for name in TOP), *ROOT.glob("docs/**/*.md"))
        if path.exists()
    )
)

NOT_CHECKED = re.compile(r"<!-- not checked: .+ -->")
"""A line before a code block whose commands cannot be checked: the reason follows the colon."""
NOT_RUN = re.compile(r"<!-- not run: .+ -->")
"""A line before a Python block that is compiled and whose imports are tried; it is not run."""

_FENCE = re.compile(r" {0,3}(`{3,})\s*(\w*)\s*$")
_HEADING = re.compile(r" {0,3}#{1,6}\s+(.*?)\s*#*$")
_LINK = re.compile(r"!?\[[^\]]*\]\(\s*<?([^)\s>]+)>?(?:\s+\"[^\"]*\")?\s*\)")


@dataclass(frozen=True)
class CodeBlock:
    """A fenced code block, or one of indented lines: place, language, marker before it, text."""

    path: Path
    line: int
    language: str
    marker: str
    text: str

    def __str__(self) -> str:
        return f"{self.path.relative_to(ROOT)}:{self.line}"


def code_blocks(path: Path) -> list[CodeBlock]:
    """All code blocks of a document."""
    return list(_code_blocks(path, path.read_text(encoding="utf-8").splitlines()))


def _code_blocks(path: Path, lines: list[str]) -> Iterator[CodeBlock]:
    marker, index = "", 0
    while index < len(lines):
        start, line = index, lines[index]
        fence = _FENCE.match(line)
        if fence:
            end = next(
                (i for i in range(start + 1, len(lines)) if lines[i].strip() == fence[1]),
                len(lines),
            )
            text = "\n".join(lines[start + 1 : end])
            yield CodeBlock(path, start + 1, fence[2], marker, text)
            marker, index = "", end + 1
        elif line.startswith("    ") and (start == 0 or not lines[start - 1].strip()):
            end = start
            while end < len(lines) and (lines[end].startswith("    ") or not lines[end].strip()):
                end += 1
            text = "\n".join(code[4:] for code in lines[start:end])
            yield CodeBlock(path, start + 1, "", marker, text.rstrip())
            marker, index = "", end
        else:
            if line.strip():
                marker = line.strip()
            index = start + 1


def prose(path: Path) -> str:
    """The text of a document without its fenced code blocks and code spans."""
    kept, fence = [], ""
    for line in path.read_text(encoding="utf-8").splitlines():
        match = _FENCE.match(line)
        if fence:
            fence = "" if line.strip() == fence else fence
        elif match:
            fence = match[1]
        else:
            kept.append(re.sub(r"`[^`]*`", "`code`", line))
    return "\n".join(kept)


def links(path: Path) -> list[str]:
    """The targets of all links and images."""
    return _LINK.findall(prose(path))


def anchors(path: Path) -> set[str]:
    """The anchors that GitHub gives to a document's headings."""
    found: dict[str, int] = {}
    names = set()
    in_fence = ""
    for line in path.read_text(encoding="utf-8").splitlines():
        fence = _FENCE.match(line)
        if in_fence:
            in_fence = "" if line.strip() == in_fence else in_fence
            continue
        if fence:
            in_fence = fence[1]
            continue
        heading = _HEADING.match(line)
        if heading:
            text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading[1])
            name = re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-")
            count = found.get(name, 0)
            found[name] = count + 1
            names.add(f"{name}-{count}" if count else name)
    return names
