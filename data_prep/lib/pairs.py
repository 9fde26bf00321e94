"""Sentence pairs of one's own: two parallel files, a tsv file or a TMX file, plain or compressed.

A *source* of pairs is named by one path: the prefix of two files ``PREFIX.en`` and ``PREFIX.ru``,
or a file that ends in ``.tsv`` (or ``.txt``) or ``.tmx``. All may have ``.gz`` at the end.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

from data_prep.lib.compressed import is_damage, open_any
from data_prep.lib.corpus import read, read_parallel
from data_prep.lib.languages import primary
from headprune.errors import DataError

Pair = tuple[str, str]

_TABLE = (".tsv", ".txt")
_HEADERS = (("source", "target"), ("src", "tgt"), ("src", "trg"))
"""Names of the two columns, other than the codes of the languages."""
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
    files = [_plain_or_packed(source, language) for language in languages]
    found = [file for file in files if file is not None]
    if len(found) == len(files):
        return found
    if _format(path) in (*_TABLE, ".tmx"):
        if path.is_dir():
            raise DataError(f"{source}: a folder, not a file")
        if not path.is_file():
            raise DataError(f"{source}: no such file")
        return [path]
    missing = f"{source}.{languages[files.index(None)]}"
    raise DataError(f"{missing}: no such file, nor {missing}.gz")


def _plain_or_packed(source: str, language: str) -> Path | None:
    """The file of one language, plain or packed; None where there is none."""
    paths = (Path(f"{source}.{language}"), Path(f"{source}.{language}.gz"))
    return next((path for path in paths if path.is_file()), None)


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
    """Lines ``source<TAB>target``, or the other way round where the name or a header says so.

    Further columns are ignored. A file ``news.ru-en.tsv`` has the Russian side first.
    """
    backwards = _is_named(path, languages[::-1]) and not _is_named(path, languages)
    for number, line in enumerate(read(path), start=1):
        columns = line.split("\t")
        if len(columns) < 2:
            raise DataError(f"{path}: line {number} has no tab between two sentences")
        if number == 1:
            header = (columns[0], columns[1])
            if is_header := _is_header(header, languages):
                backwards = False
            elif _is_header(header[::-1], languages):
                is_header = backwards = True
            if is_header:
                print(f"note: {path}: skips the header '{' '.join(header)}'", file=sys.stderr)
            if backwards:
                order = ", ".join(languages[::-1])
                print(f"note: reads {path} as {order}", file=sys.stderr)
            if is_header:
                continue
        yield (columns[1], columns[0]) if backwards else (columns[0], columns[1])


def _is_named(path: Path, languages: tuple[str, str]) -> bool:
    """Tell if a name has the two codes as a word: ``a.en-de`` has ``en-de``, ``den-de`` has not."""
    codes = re.escape("-".join(languages))
    return bool(re.search(f"(?<![A-Za-z]){codes}(?![A-Za-z])", path.name, re.IGNORECASE))


def _is_header(columns: Pair, languages: tuple[str, str]) -> bool:
    """Tell if the first row of a table names its columns, in the order of the languages."""
    names = (_code(columns[0].strip()), _code(columns[1].strip()))
    codes = (_code(languages[0]), _code(languages[1]))
    primaries = (primary(names[0]), primary(names[1]))
    return names in (*_HEADERS, codes) or (
        # A code has no space, so a sentence such as "de-icing fluid" is none.
        primaries == (primary(codes[0]), primary(codes[1]))
        and _differ(languages)
        and all(re.fullmatch(r"[a-z]{2,3}(-[a-z0-9]{2,8})?", name) for name in names)
    )


def _read_tmx(path: Path, languages: tuple[str, str]) -> Iterator[Pair]:
    """The translation units of a TMX file that have both languages.

    A language is the variant of exactly its code, else the first one of its primary code: ``en`` is
    also in ``en-US``. Languages of one primary code, as pt_BR and pt_PT, have to match exactly.
    """
    complete = incomplete = 0
    open_elements: list[ElementTree.Element] = []
    try:
        with open_any(path) as file:
            for event, element in ElementTree.iterparse(file, events=("start", "end")):
                if event == "start":
                    open_elements.append(element)
                    continue
                open_elements.pop()
                if _tag(element) != "tu":
                    continue
                source, target = _sides(element, languages)
                element.clear()
                if open_elements:
                    open_elements[-1].remove(element)  # keeps the use of memory constant
                if source is None or target is None:
                    incomplete += 1
                    continue
                complete += 1
                yield source, target
    except Exception as error:
        if not isinstance(error, ElementTree.ParseError) and not is_damage(error):
            raise
        raise DataError(f"{path}: not a whole TMX file ({error})") from None
    if incomplete and not complete:
        exactly = "" if _differ(languages) else ", with exactly these codes"
        raise DataError(
            f"{path}: none of its {incomplete} translation units has both "
            f"{' and '.join(languages)}{exactly}"
        )


def _sides(unit: ElementTree.Element, languages: tuple[str, str]) -> tuple[str | None, str | None]:
    """The text of a translation unit in the two languages; None where it has none."""
    exact: dict[str, str] = {}
    regional: dict[str, str] = {}
    for code, text in _segments(unit):
        exact.setdefault(code, text)
        regional.setdefault(primary(code), text)
    if not _differ(languages):
        regional = {}
    source, target = (exact.get(_code(each), regional.get(primary(each))) for each in languages)
    return source, target


def _segments(unit: ElementTree.Element) -> Iterator[tuple[str, str]]:
    """The code and the text of each segment."""
    for variant in unit:
        language = variant.get(_XML_LANG) or variant.get("lang")
        if _tag(variant) == "tuv" and language:
            for segment in variant:
                if _tag(segment) == "seg":
                    text = _BREAKS.sub(" ", "".join(_texts(segment)))
                    yield _code(language), text.strip()


def _texts(element: ElementTree.Element) -> Iterator[str]:
    """The text of a segment without its formatting."""
    yield element.text or ""
    for child in element:
        if _tag(child) not in _CODES:
            yield from _texts(child)
        yield child.tail or ""


def _tag(element: ElementTree.Element) -> str:
    return str(element.tag).rpartition("}")[2]


def _code(language: str) -> str:
    """A language's code in one spelling: ``pt-br`` of ``pt_BR``."""
    return language.lower().replace("_", "-")


def _differ(languages: tuple[str, str]) -> bool:
    """Tell if two languages differ in more than region or script."""
    return primary(languages[0]) != primary(languages[1])
