"""Sentence pairs of one's own: two parallel files, a tsv file or a TMX file, plain or compressed.

A *source* of pairs is named by one path: the prefix of two files ``PREFIX.en`` and ``PREFIX.ru``,
or a file that ends in ``.tsv`` (or ``.txt``) or ``.tmx``. All may have ``.gz`` at the end.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

from data_prep.lib.compressed import open_any
from data_prep.lib.corpus import read, read_parallel
from headprune.errors import DataError

Pair = tuple[str, str]

_TABLE = (".tsv", ".txt")
_BREAKS = re.compile(r"\s+")
_XML_LANG = "{http://www.w3.org/XML/1998/namespace}lang"
_CODES = {"bpt", "ept", "ph", "it", "ut"}
"""Elements of a TMX segment that hold formatting, not text."""


def files_of(source: str, languages: tuple[str, str]) -> list[Path]:
    """Find the file or the two files of a source of pairs.

    Raises:
        DataError: they do not exist.
    """
    path = Path(source)
    if _format(path) in (*_TABLE, ".tmx"):
        if not path.is_file():
            raise DataError(f"{source}: no such file")
        return [path]
    files = []
    for language in languages:
        plain, packed = Path(f"{source}.{language}"), Path(f"{source}.{language}.gz")
        if not plain.is_file() and not packed.is_file():
            raise DataError(f"{plain}: no such file, nor {packed}")
        files.append(plain if plain.is_file() else packed)
    return files


def read_pairs(source: str, languages: tuple[str, str]) -> Iterator[Pair]:
    """Read the pairs of a source, the source language first; white space at the ends is removed.

    Raises:
        DataError: a file is missing, empty or damaged, two files differ in length, or a line of a
            tsv file has no tab.
    """
    files = files_of(source, languages)
    kind = _format(files[0]) if len(files) == 1 else ""
    if kind == ".tmx":
        pairs = _read_tmx(files[0], languages)
    elif kind:
        pairs = _read_table(files[0], languages)
    else:
        pairs = ((first, second) for first, second in read_parallel(*files))
    empty = True
    for first, second in pairs:
        empty = False
        yield first.strip(), second.strip()
    if empty:
        raise DataError(f"{source}: there is no pair in it")


def _format(path: Path) -> str:
    return Path(path.name.removesuffix(".gz")).suffix.lower()


def _read_table(path: Path, languages: tuple[str, str]) -> Iterator[Pair]:
    """Lines ``source<TAB>target``, or the other way round where the name says so.

    Further columns are ignored. A file ``news.ru-en.tsv`` has the Russian side first.
    """
    backwards = "-".join(reversed(languages)) in path.name
    for number, line in enumerate(read(path), start=1):
        columns = line.split("\t")
        if len(columns) < 2:
            raise DataError(f"{path}: line {number} has no tab between two sentences")
        yield (columns[1], columns[0]) if backwards else (columns[0], columns[1])


def _read_tmx(path: Path, languages: tuple[str, str]) -> Iterator[Pair]:
    """The translation units of a TMX file that have both languages; regions are ignored."""
    complete = incomplete = 0
    try:
        with open_any(path) as file:
            root: ElementTree.Element | None = None
            for event, element in ElementTree.iterparse(file, events=("start", "end")):
                if root is None:
                    root = element
                if event == "start" or _tag(element) != "tu":
                    continue
                texts = dict(reversed(list(_segments(element))))  # the first of each language
                root.clear()  # keeps the use of memory constant
                source, target = (texts.get(_primary(language)) for language in languages)
                if source is None or target is None:
                    incomplete += 1
                    continue
                complete += 1
                yield source, target
    except (ElementTree.ParseError, EOFError, ValueError) as error:
        raise DataError(f"{path}: not a whole TMX file ({error})") from None
    if incomplete and not complete:
        raise DataError(
            f"{path}: none of its {incomplete} translation units has both {' and '.join(languages)}"
        )


def _segments(unit: ElementTree.Element) -> Iterator[tuple[str, str]]:
    for variant in unit:
        language = variant.get(_XML_LANG) or variant.get("lang")
        if _tag(variant) == "tuv" and language:
            for segment in variant:
                if _tag(segment) == "seg":
                    text = _BREAKS.sub(" ", "".join(_texts(segment)))
                    yield _primary(language), text.strip()


def _texts(element: ElementTree.Element) -> Iterator[str]:
    """The text of a segment without its formatting."""
    yield element.text or ""
    for child in element:
        if _tag(child) not in _CODES:
            yield from _texts(child)
        yield child.tail or ""


def _tag(element: ElementTree.Element) -> str:
    return str(element.tag).rpartition("}")[2]


def _primary(language: str) -> str:
    """The language of a code without its region or script: ``en`` of ``en-US``."""
    return re.split("[-_]", language.lower())[0]
