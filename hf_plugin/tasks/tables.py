"""Read a column of labels and one or two columns of text from a file, a data set, or the hub.

csv and tsv files are read with the csv module rather than with `datasets`: it keeps every field as
text ("NA" is a word, "01" a label), and its errors name a line.
"""

from __future__ import annotations

import csv
import hashlib
import json
import math
import re
from codecs import BOM_UTF16_BE, BOM_UTF16_LE
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import datasets
import pyarrow
import pyarrow.parquet

from headprune.errors import DataError, UsageError, reason_of
from headprune.files import unpacked
from hf_plugin.tasks.words import conll_rows, split_at_spaces, words_and_labels

_SPLITS = {"train": ("train",), "dev": ("validation", "dev", "valid")}
"""The splits of a data set with several that are used if none is named."""

_PLAIN = (".txt", ".text")

_LONGEST = 2**31 - 1
"""The longest field of a csv file in characters; the module's own limit is 131,072."""

_WHOLE = re.compile(r"([+-]?\d+)\.0*", re.ASCII)
"""A whole number with a decimal point, as pandas writes integers of columns with gaps."""

_DELIMITERS = {",": "','", ";": "';'", "\t": "tab", "|": "'|'"}


@dataclass(frozen=True, kw_only=True)
class Columns:
    """The columns to read.

    Attributes:
        text: the column of the text, or the columns of the two texts.
        label: the column of the label.
        delimiter: the character between the fields of a csv file; None for the usual one.
        may_lack_label: whether an example may have no label.
        of_words: whether the text is a list of words, and the label a list of a label for each.
        without_label: advice for the error message of data without the column ``label``.
    """

    text: tuple[str, ...]
    label: str
    delimiter: str | None = None
    may_lack_label: bool = False
    of_words: bool = False
    without_label: str = ""


@dataclass(frozen=True)
class Table:
    """The texts and labels of one split, as they are written.

    Attributes:
        source: the file, folder or name, as the user gave it.
        texts: the text, or the two texts, of each row; or its words.
        labels: the label of each row: text, a number, or a list of them; see ``plain_label``.
        places: the line or row of each label, for error messages.
        label_names: the names of the labels in their order, where a data set lists them.
        hashes: the hash of the content of each image, whose texts are their paths; empty for texts.
    """

    source: str
    texts: Sequence[tuple[str, ...]]
    labels: Sequence[Any]
    places: Sequence[str]
    label_names: tuple[str, ...] = ()
    hashes: Sequence[str] = ()

    @property
    def contents(self) -> Sequence[tuple[str, ...]]:
        """The examples themselves: their texts, or the hashes of images."""
        return [(each,) for each in self.hashes] if self.hashes else self.texts

    @cached_property
    def fingerprint(self) -> str:
        """A SHA-256 hash of the examples and labels, which does not depend on the file's format."""
        digest = hashlib.sha256()
        for texts, label in zip(self.contents, self.labels, strict=True):
            written = label if isinstance(label, (list, tuple)) else str(label)
            digest.update(json.dumps([*texts, written]).encode())
        return digest.hexdigest()

    def where(self, row: int) -> str:
        """The place of a row, for an error message."""
        return f"{self.source}: {self.places[row]}"


def read_table(source: str, columns: Columns, *, split: str) -> Table:
    """Read the texts and labels of a file or data set.

    Args:
        source: a file .csv, .tsv, .jsonl or .parquet (all but .parquet also with .gz), for words
            with labels also .conll; a folder of the `datasets` library; or the name of a data set
            on the hub. A folder or name may be followed by ``:SPLIT``, a name also by
            ``:CONFIGURATION:SPLIT``.
        columns: the columns.
        split: ``train`` or ``dev``: the split that is read if none is named.

    Raises:
        DataError: the data cannot be read, lack a column, or have a row without text or label. The
            message names the line or row.
    """
    path, reader = Path(source), _reader_of(source)
    if path.is_file():
        if reader is None:
            known = ", ".join(_READERS)
            advice = ", or text without labels for --task-type language-modelling"
            raise DataError(
                f"{source}: unknown kind of file; give one that ends in {known}"
                + (advice if is_plain(source) else "")
            )
        return _checked(source, reader(path, columns), columns)
    if reader is not None and not path.exists():
        raise DataError(f"{source}: no such file")
    return _checked(source, _data_set_rows(_data_set(source, split), source, columns), columns)


def _reader_of(source: str) -> Callable[[Path, Columns], _Rows] | None:
    """The function that reads files with the ending of this one; None where there is none."""
    return _READERS.get(_ending(source))


def is_plain(source: str) -> bool:
    """Check if a file has plain text, with one text a line."""
    return _ending(source) in _PLAIN


def _ending(source: str) -> str:
    """The ending of a file's name in small letters, without that of a compressed one."""
    return Path(source.removesuffix(".gz")).suffix.lower()


def read_texts(source: str, columns: Columns, *, split: str) -> Table:
    """Read texts without labels; the labels in the table are 0 and stand for nothing.

    Args:
        source: a file .txt with one text a line (empty lines are left out), or see ``read_table``.
        columns: the columns of a table; that of the label is not read.
        split: see ``read_table``.

    Raises:
        DataError: the data cannot be read, or have no text.
    """
    if not is_plain(source):
        if Path(source).is_file() and _reader_of(source) is None:
            known = ", ".join(_READERS)
            raise DataError(
                f"{source}: unknown kind of file; give one with a text a line that ends in .txt, "
                f"or a table that ends in {known}"
            )
        # Any column may stand for the labels, which nothing reads.
        table = read_table(source, replace(columns, label=columns.text[0]), split=split)
        return replace(table, labels=[0] * len(table.texts), label_names=())
    if not Path(source).exists():
        raise DataError(f"{source}: no such file")
    lines = [(number, line.strip()) for number, line in enumerate(lines_of(Path(source)), start=1)]
    lines = [(number, text) for number, text in lines if text]
    if not lines:
        raise DataError(f"{source}: no text in it")
    texts = [(text,) for _, text in lines]
    return Table(source, texts, [0] * len(texts), [f"line {number}" for number, _ in lines])


def read_pairs(source: str, columns: Columns, *, split: str) -> Table:
    """Read sentence pairs; the labels are the sentences of the target language.

    Args:
        source: two files of plain text with a comma between them, of the source and of the target
            language, whose lines are pairs (those with an empty line are left out); or a table, see
            ``read_table``.
        columns: the column of the source text, and as the label that of the target text.
        split: see ``read_table``.

    Raises:
        DataError: the data cannot be read, or two files differ in their number of lines.
    """
    if (files := two_files(source)) is None:
        both = replace(columns, text=(*columns.text, columns.label))
        table = read_table(source, both, split=split)
        return replace(
            table,
            texts=[text[:-1] for text in table.texts],
            labels=[text[-1] for text in table.texts],
            label_names=(),
        )
    read = [[line.strip() for line in lines_of(file)] for file in files]
    if len(read[0]) != len(read[1]):
        counts = " and ".join(
            f"{file} {len(lines):,}" for file, lines in zip(files, read, strict=True)
        )
        raise DataError(f"{source}: the files differ in their number of lines: {counts}")
    pairs = [(n, *pair) for n, pair in enumerate(zip(*read, strict=True), start=1) if all(pair)]
    if not pairs:
        raise DataError(f"{source}: no sentence pair in it")
    return Table(
        source,
        [(text,) for _, text, _ in pairs],
        [target for *_, target in pairs],
        [f"line {number}" for number, *_ in pairs],
    )


def two_files(source: str) -> tuple[Path, Path] | None:
    """The files of the source and the target language, where ``source`` names two."""
    one, _, other = source.partition(",")
    return (Path(one), Path(other)) if other and not Path(source).exists() else None


@dataclass(frozen=True)
class _Rows:
    """Rows with their places, and the names of labels, as readers return them."""

    rows: Iterator[tuple[str, Mapping[str, Any]]]
    label_names: tuple[str, ...] = ()


def _checked(source: str, rows: _Rows, columns: Columns) -> Table:
    texts: list[tuple[str, ...]] = []
    labels: list[Any] = []
    places: list[str] = []
    for place, row in rows.rows:
        if columns.of_words:
            words, their_labels = words_and_labels(
                {**row, columns.label: plain_label(row[columns.label])},
                text=columns.text[0],
                label=columns.label,
                where=f"{source}: {place}",
            )
            texts.append(words)
            labels.append(their_labels)
            places.append(place)
            continue
        for name in columns.text:
            value = row[name]
            if value is not None and not isinstance(value, str):
                listed = isinstance(value, list)
                advice = "; lists of words need --task-type tokens" if listed else ""
                raise DataError(f"{source}: {place}: column {name!r} is {value!r}, no text{advice}")
            if not value or value.isspace():
                raise DataError(
                    f"{source}: {place}: column {name!r} is empty; fill it, or delete the "
                    f"{place.split()[0]}"
                )
        label = plain_label(row[columns.label])
        if label is None or (label == "" and not columns.may_lack_label):
            raise DataError(f"{source}: {place}: no label in column {columns.label!r}")
        texts.append(tuple(row[name] for name in columns.text))
        labels.append(label)
        places.append(place)
    if not labels:
        raise DataError(f"{source}: no example in it")
    return Table(source, texts, labels, places, tuple(map(plain_label, rows.label_names)))


def plain_label(label: Any) -> Any:
    """Normalise a label, so that the same labels are equal in all file formats.

    Text has no white space around it, and whole numbers have no decimal point (``"1.0"`` is
    ``"1"``, and 1.0 is 1). NaN is None.
    """
    if isinstance(label, list):
        return [plain_label(each) for each in label]
    if isinstance(label, float):
        if math.isnan(label):
            return None
        return int(label) if label.is_integer() else label
    if not isinstance(label, str):
        return label
    text = label.strip()
    whole = _WHOLE.fullmatch(text)
    return whole[1] if whole else text


def _require_columns(
    names: list[str], columns: Columns, *, source: object, advice: str = ""
) -> None:
    for name in (*columns.text, columns.label):
        if name not in names:
            listed = ", ".join(map(repr, names)) or "none"
            if name == columns.label:
                advice += columns.without_label
            raise DataError(f"{source}: no column {name!r}; its columns are {listed}{advice}")
        if names.count(name) > 1:
            raise DataError(f"{source}: {names.count(name)} columns are called {name!r}")


def _csv(path: Path, columns: Columns) -> _Rows:
    """Fields may be in double quotes, and contain line breaks there."""
    return _Rows(_delimited(path, columns, delimiter=columns.delimiter or ",", quotes=True))


def _tsv(path: Path, columns: Columns) -> _Rows:
    """Quotes are ordinary characters, as in GLUE's files."""
    return _Rows(_delimited(path, columns, delimiter=columns.delimiter or "\t", quotes=False))


def _delimited(
    path: Path, columns: Columns, *, delimiter: str, quotes: bool
) -> Iterator[tuple[str, Mapping[str, Any]]]:
    csv.field_size_limit(_LONGEST)
    reader = csv.reader(
        lines_of(path),
        delimiter=delimiter,
        strict=True,
        quoting=csv.QUOTE_MINIMAL if quotes else csv.QUOTE_NONE,
    )
    names: list[str] = []
    ended = 0  # the last line of the row before
    try:
        for fields in reader:
            ended = reader.line_num
            place = f"line {ended}"
            if not fields:  # an empty line, often the last
                continue
            if not names:
                names = fields
                advice = _advice(names, columns, delimiter)
                _require_columns(names, columns, source=path, advice=advice)
                continue
            if len(fields) != len(names):
                separator = _DELIMITERS.get(delimiter, repr(delimiter))
                are_more = quotes and len(fields) > len(names)
                raise DataError(
                    f"{path}: {place}: {len(fields)} field{'s' * (len(fields) != 1)}, there are "
                    f"{len(names)} columns"
                    + (f"; put texts that contain {separator} in double quotes" if are_more else "")
                )
            row: Mapping[str, Any] = dict(zip(names, fields, strict=True))
            if columns.of_words:
                row = split_at_spaces(row, text=columns.text[0], label=columns.label)
            yield place, row
    except csv.Error as problem:
        if "unexpected end" in str(problem):
            reason = f"line {ended + 1}: a double quote that is never closed"
        elif "new-line character" in str(problem):
            reason = "lines end in carriage returns; convert them, such as with tr '\\r' '\\n'"
        else:
            reason = f"line {reader.line_num}: {problem}"
        raise DataError(f"{path}: {reason}") from None


def _advice(names: Sequence[str], columns: Columns, delimiter: str) -> str:
    """The advice for a header without a column: the delimiter is often another one."""
    if {*columns.text, columns.label} & set(names):  # the other one is misspelled
        return ""
    for other, shown in _DELIMITERS.items():
        if other != delimiter and any(other in name for name in names):
            return f"; if {shown} separates its fields, give --delimiter {shown}"
    return "; the first line has to name the columns"


def _jsonl(path: Path, columns: Columns) -> _Rows:
    return _Rows(_objects(path, columns))


def _objects(path: Path, columns: Columns) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for number, line in enumerate(lines_of(path), start=1):
        if line.isspace():
            continue
        try:
            value = json.loads(line)
        except ValueError as problem:
            raise DataError(f"{path}: line {number}: no JSON ({problem})") from None
        if not isinstance(value, dict):
            raise DataError(f"{path}: line {number}: no JSON object, which each line has to be")
        _require_columns(list(value), columns, source=f"{path}: line {number}")
        yield f"line {number}", value


def _parquet(path: Path, columns: Columns) -> _Rows:
    try:
        table = pyarrow.parquet.read_table(path)
        data = datasets.Dataset(table)  # which reads the names of labels in the file's metadata
    except (pyarrow.ArrowException, OSError, ValueError) as problem:
        raise DataError(f"{path}: no parquet file that can be read ({problem})") from None
    return _data_set_rows(data, str(path), columns)


def _data_set_rows(data: datasets.Dataset, source: str, columns: Columns) -> _Rows:
    _require_columns(data.column_names, columns, source=source)
    feature = data.features[columns.label]
    feature = getattr(feature, "feature", feature)  # that of the elements of a list
    names: list[str] = list(getattr(feature, "names", None) or [])

    def named(label: Any, number: int) -> Any:
        if isinstance(label, list):
            return [named(each, number) for each in label]
        if not 0 <= label < len(names):  # hidden labels are -1
            raise DataError(f"{source}: row {number}: no label in column {columns.label!r}")
        return names[label]

    def rows() -> Iterator[tuple[str, Mapping[str, Any]]]:
        chosen = data.select_columns([*dict.fromkeys((*columns.text, columns.label))])
        for number, row in enumerate(chosen, start=1):
            label = row[columns.label]
            if names and label is not None:
                row = {**row, columns.label: named(label, number)}
            yield f"row {number}", row

    return _Rows(rows(), tuple(names))


def _data_set(source: str, split: str) -> datasets.Dataset:
    """Load a data set from a folder or from the hub."""
    if (files := two_files(source)) is not None and all(file.is_file() for file in files):
        raise DataError(
            f"{source}: two files are sentence pairs for a model that translates; give one file"
        )
    name, *parts = [source] if Path(source).exists() else source.split(":")
    chosen = parts[-1] if parts else None
    configuration = parts[0] if len(parts) > 1 else None
    if len(parts) > 2:
        raise UsageError(f"{source}: write NAME, NAME:SPLIT or NAME:CONFIGURATION:SPLIT")
    folder = Path(name)
    saved = [folder / file for file in ("state.json", "dataset_dict.json")]
    try:
        if any(file.is_file() for file in saved):
            loaded = datasets.load_from_disk(name)
        else:
            loaded = datasets.load_dataset(name, configuration)
    except Exception as problem:  # of any type: from the network, the hub, the cache or a file
        raise DataError(f"{source}: no data set that can be read ({reason_of(problem)})") from None
    if isinstance(loaded, datasets.Dataset):
        if chosen is not None:
            raise DataError(f"{source}: {name} has no splits")
        return loaded
    wanted = (chosen,) if chosen else _SPLITS[split]
    for each in wanted:
        if each in loaded:
            return loaded[each]
    listed = ", ".join(loaded)
    raise DataError(f"{name}: no split {wanted[0]!r}; it has {listed}: give {name}:SPLIT")


def lines_of(path: Path) -> Iterator[str]:
    """The lines of a text file with their ends; a byte-order mark is left out.

    Some files of GLUE begin with one, such as those of MRPC.

    Raises:
        DataError: the file, which may be compressed with gzip, cannot be read or is not UTF-8.
    """
    number, line = 0, b""
    try:
        with unpacked(path) as file:
            for number, line in enumerate(file, start=1):
                yield line.decode("utf-8-sig" if number == 1 else "utf-8")
    except UnicodeDecodeError:
        is_utf16 = number == 1 and line.startswith((BOM_UTF16_LE, BOM_UTF16_BE))
        encoding = "utf-16" if is_utf16 else "latin1"
        raise DataError(
            f"{path}: line {number}: not UTF-8; convert it, for example with iconv "
            f"-f {encoding} -t utf-8"
        ) from None


def _conll(path: Path, columns: Columns) -> _Rows:
    if not columns.of_words:
        raise DataError(f"{path}: has a label for each word; give --task-type tokens")
    return _Rows(conll_rows(lines_of(path), text=columns.text[0], label=columns.label, source=path))


_READERS: Mapping[str, Callable[[Path, Columns], _Rows]] = {
    ".csv": _csv,
    ".tsv": _tsv,
    ".jsonl": _jsonl,
    ".parquet": _parquet,
    ".conll": _conll,
}
