"""Reading texts and labels from every kind of file, intact and damaged."""

from __future__ import annotations

import gzip

import datasets
import pytest

from headprune.errors import DataError, HeadpruneError
from hf_plugin.tasks.tables import Columns, read_table

from .files import examples, write_as, write_csv

ONE = Columns(text=("text",), label="category")
TWO = Columns(text=("text", "other"), label="stars")
KINDS = ("csv", "tsv", "jsonl", "parquet", "folder", "splits")


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_file_has_the_same_texts_and_labels(kind, tmp_path):
    rows = examples(7)
    source = write_as(kind, tmp_path, rows)
    one, two = (read_table(source, columns, split="train") for columns in (ONE, TWO))
    assert list(one.texts) == [(row["text"],) for row in rows]
    assert list(one.labels) == [row["category"] for row in rows]
    assert list(two.texts) == [(row["text"], row["other"]) for row in rows]
    assert [float(label) for label in two.labels] == [row["stars"] for row in rows]
    wanted = read_table(write_as("csv", tmp_path, rows), ONE, split="train")
    assert one.fingerprint == wanted.fingerprint
    changed = [*rows[:-1], {**rows[-1], "category": "other"}]
    assert (
        read_table(str(write_csv(tmp_path / "b.csv", changed)), ONE, split="train").fingerprint
        != wanted.fingerprint
    )


def test_fields_in_quotes_and_words_that_look_like_missing_values(tmp_path):
    path = tmp_path / "some.csv"
    path.write_bytes(
        b'\xef\xbb\xbftext,category\r\n"one, two\nand ""three""",NA\r\nnull,01\r\n\r\n'
    )
    table = read_table(str(path), ONE, split="train")
    assert list(table.texts) == [('one, two\nand "three"',), ("null",)]
    assert list(table.labels) == ["NA", "01"]
    assert table.where(1) == f"{path}: line 4"


def test_quotes_in_tsv_are_characters_and_gzip_is_read(tmp_path):
    path = tmp_path / "some.tsv.gz"
    path.write_bytes(gzip.compress(b'text\tcategory\n"an open quote\ta\n'))
    assert list(read_table(str(path), ONE, split="dev").texts) == [('"an open quote',)]


def test_names_of_labels_in_a_data_set(tmp_path):
    features = datasets.Features(
        text=datasets.Value("string"), category=datasets.ClassLabel(names=["no", "yes"])
    )
    data = datasets.Dataset.from_dict({"text": ["a", "b"], "category": [1, 0]}, features=features)
    data.save_to_disk(tmp_path / "folder")
    data.to_parquet(tmp_path / "file.parquet")
    for source in ("folder", "file.parquet"):
        table = read_table(str(tmp_path / source), ONE, split="train")
        assert (list(table.labels), table.label_names) == (["yes", "no"], ("no", "yes"))
    hidden = datasets.Dataset.from_dict({"text": ["a"], "category": [-1]}, features=features)
    hidden.save_to_disk(tmp_path / "hidden")
    with pytest.raises(DataError, match="row 1: no label in column 'category'"):
        read_table(str(tmp_path / "hidden"), ONE, split="train")


def test_a_data_set_of_the_hub(monkeypatch):
    def load_dataset(name, configuration):
        assert (name, configuration) == ("some/reviews", "english")
        data = datasets.Dataset.from_list(examples(3))
        return datasets.DatasetDict({"train": data, "test": data.select([2])})

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    name = "some/reviews:english"
    assert len(read_table(f"{name}:test", ONE, split="dev").labels) == 1
    with pytest.raises(DataError, match="no split 'english'|no split 'validation'"):
        monkeypatch.setattr(datasets, "load_dataset", lambda *_: load_dataset(name[:12], "english"))
        read_table("some/reviews", ONE, split="dev")


def test_what_cannot_be_downloaded(monkeypatch):
    def load_dataset(*_):
        raise ConnectionError("no\nnetwork")

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    with pytest.raises(DataError, match=r"some/reviews: no data set that can be read \(no\)"):
        read_table("some/reviews", ONE, split="train")


def test_two_files_are_no_table(tmp_path) -> None:
    pair = [tmp_path / "train.en", tmp_path / "train.de"]
    for path in pair:
        path.write_text("one\n")
    with pytest.raises(DataError, match="two files are sentence pairs for a model that translates"):
        read_table(",".join(map(str, pair)), ONE, split="train")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.csv", "", "no example in it"),
        ("a.csv", "text,category\n", "no example in it"),
        (
            "a.csv",
            "texts,category\na,b\n",
            "no column 'text'; its columns are 'texts', 'category'$",
        ),
        ("a.csv", "good,1\nbad,0\n", "no column 'text'.*the first line has to name the columns"),
        ("a.csv", "text;category\na;b\n", "if ';' separates its fields, give --delimiter ';'"),
        ("a.csv", "text\tcategory\na\tb\n", "if tab separates its fields, give --delimiter tab"),
        ("a.csv", "text,category\na, b,c\n", "line 2: 3 fields, there are 2 columns; put texts"),
        ("a.tsv", "text\tcategory\na\n", "line 2: 1 field, there are 2 columns$"),
        ("a.csv", "text,category\na\n", "line 2: 1 field, there are 2 columns$"),
        ("a.csv", 'text,category\n"a,b\nc,d\n', "line 2: a double quote that is never closed"),
        ("a.csv", "text,category\ra,b\r", "lines end in carriage returns; convert them"),
        ("a.csv", "text,category\n ,b\n", "line 2: column 'text' is empty"),
        ("a.csv", "text,category\na,b\n,b\n", "line 3: column 'text' is empty"),
        ("a.csv", "text,category\na,\n", "line 2: no label in column 'category'"),
        ("a.csv", "text,text,category\na,b,c\n", "2 columns are called 'text'"),
        ("a.jsonl", "{}\n", "line 1: no column 'text'; its columns are none"),
        ("a.jsonl", '{"text": 5, "category": 1}\n', "line 1: column 'text' is 5, no text"),
        ("a.jsonl", '{"text": null, "category": 1}\n', "line 1: column 'text' is empty"),
        ("a.jsonl", '\n{"text": \n', "line 2: no JSON"),
        ("a.jsonl", "[1]\n", "line 1: no JSON object"),
        ("a.parquet", "text", "no parquet file that can be read"),
        ("a.csv.gz", "text", "cannot be read"),
        ("a.txt", "text", "unknown kind of file; give one that ends in .csv, .tsv, .jsonl, .parq"),
    ],
)
def test_damage_is_one_line(name, content, message, tmp_path):
    (tmp_path / name).write_text(content)
    with pytest.raises(HeadpruneError, match=message) as caught:
        read_table(str(tmp_path / name), ONE, split="train")
    assert "\n" not in str(caught.value) and str(tmp_path / name) in str(caught.value)


def test_other_encodings_and_missing_files(tmp_path):
    (tmp_path / "a.csv").write_bytes(b"text,category\na,b\n\xe9,c\n")
    with pytest.raises(DataError, match="line 3: not UTF-8"):
        read_table(str(tmp_path / "a.csv"), ONE, split="train")
    (tmp_path / "a.csv").write_text("text,category\na,b\n", encoding="utf-16")
    with pytest.raises(DataError, match="line 1: not UTF-8; convert it, .* iconv -f utf-16 -t utf"):
        read_table(str(tmp_path / "a.csv"), ONE, split="train")
    with pytest.raises(DataError, match="nowhere.csv: no such file"):
        read_table(str(tmp_path / "nowhere.csv"), ONE, split="train")


def test_another_delimiter(tmp_path):
    path = write_csv(tmp_path / "a.csv", examples(3), delimiter=";")
    columns = Columns(text=("text",), label="category", delimiter=";")
    assert len(read_table(str(path), columns, split="train").labels) == 3


@pytest.mark.parametrize("kind", KINDS)
def test_labels_are_equal_in_all_formats(kind, tmp_path):
    rows = [{"text": "a", "category": " Good"}, {"text": "b", "category": "Good "}]
    assert list(read_table(write_as(kind, tmp_path, rows), ONE, split="train").labels) == [
        "Good",
        "Good",
    ]
    for number, written in enumerate((1.0, "1.0")):
        rows = [{"text": "a", "category": written}]
        (tmp_path / str(number)).mkdir()
        table = read_table(write_as(kind, tmp_path / str(number), rows), ONE, split="train")
        assert list(map(str, table.labels)) == ["1"]
