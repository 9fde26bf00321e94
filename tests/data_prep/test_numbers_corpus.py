"""Tests of the corpus of number expressions and of its grammar."""

from __future__ import annotations

import datetime
import random
from itertools import islice
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data_prep.lib import numbers_corpus
from data_prep.lib.number_sentences import (
    CURRENCIES,
    KINDS,
    SPANS,
    THINGS,
    YEARS,
    count_sentences,
)
from data_prep.lib.number_words import (
    LANGUAGES,
    Clock,
    Count,
    Day,
    Money,
    Number,
    Pages,
    Rank,
    Value,
    Year,
    speakable,
)
from data_prep.lib.numbers_corpus import SPLITS, sentence_pairs
from headprune.errors import DataError, UsageError

BOOKS, APPLES, CHAIRS = THINGS[:3]
MINUTES, HOURS = SPANS[:2]
EUROS, DOLLARS, RUBLES = CURRENCIES
MAY_3 = datetime.date(1984, 5, 3)


@pytest.mark.parametrize(
    ("value", "form", "english", "german", "russian"),
    [
        (Number(321), "it", "three hundred and twenty-one", "dreihunderteinundzwanzig",
         "триста двадцать один"),
        (Number(21345), "gen", None, None, "двадцати одной тысячи трёхсот сорока пяти"),
        (Count(21, BOOKS), "it", "twenty-one books", "einundzwanzig Bücher", "двадцать одна книга"),
        (Count(21, BOOKS), "acc", None, None, "двадцать одну книгу"),
        (Count(22, BOOKS), "acc", None, None, "двадцать две книги"),
        (Count(25, BOOKS), "it", "twenty-five books", "fünfundzwanzig Bücher",
         "двадцать пять книг"),
        (Count(112, BOOKS), "it", None, None, "сто двенадцать книг"),
        (Count(2, APPLES), "it", "two apples", "zwei Äpfel", "два яблока"),
        (Count(21, APPLES), "acc", None, None, "двадцать одно яблоко"),
        (Count(31, CHAIRS), "acc", None, None, "тридцать один стул"),
        (Count(91, MINUTES), "acc", None, None, "девяносто одну минуту"),
        (Count(21, YEARS), "it", "twenty-one years", "einundzwanzig Jahre", "двадцать один год"),
        (Count(44, YEARS), "it", None, None, "сорок четыре года"),
        (Count(50, YEARS), "it", None, None, "пятьдесят лет"),
        (Money(1021, 0, DOLLARS), "acc", None, None, "одну тысячу двадцать один доллар"),
        (Money(22, 31, RUBLES), "acc", None, None, "двадцать два рубля тридцать одну копейку"),
        (Money(5, 4, EUROS), "acc", None, None, "пять евро четыре цента"),
        (Money(22, 31, RUBLES), "it", "twenty-two rubles and thirty-one kopecks",
         "zweiundzwanzig Rubel und einunddreißig Kopeken", None),
        (Rank(3), "ten", None, "dritten", None),
        (Rank(101), "te", None, "einhunderterste", None),
        (Rank(23), "it", "twenty-third", None, None),
        (Rank(23), "prep_m", None, None, "двадцать третьем"),
        (Rank(40), "acc_f", None, None, "сороковую"),
        (Rank(3), "nom_n", None, None, "третье"),
        (Pages(2, 45), "it", "two to forty-five", "zwei bis fünfundvierzig",
         "со второй по сорок пятую"),
        (Pages(100, 104), "it", None, None, "с сотой по сто четвёртую"),
        (Pages(104, 123), "it", None, None, "со сто четвёртой по сто двадцать третью"),
        (Year(1945), "it", "nineteen forty-five", "neunzehnhundertfünfundvierzig",
         "в тысяча девятьсот сорок пятом году"),
        (Year(1801), "it", "eighteen oh-one", "achtzehnhunderteins",
         "в тысяча восемьсот первом году"),
        (Year(2000), "it", "two thousand", "zweitausend", "в двухтысячном году"),
        (Year(2013), "it", "twenty thirteen", "zweitausenddreizehn",
         "в две тысячи тринадцатом году"),
        (Day(MAY_3, True), "it", "the third of May, nineteen eighty-four",
         "dritten Mai neunzehnhundertvierundachtzig",
         "третьего мая тысяча девятьсот восемьдесят четвёртого года"),
        (Day(MAY_3, False), "it", "Thursday, the third of May", "Donnerstag, dem dritten Mai",
         "в четверг, третьего мая"),
        (Day(datetime.date(1984, 5, 1), False), "it", "Tuesday, the first of May",
         "Dienstag, dem ersten Mai", "во вторник, первого мая"),
        (Day(datetime.date(1984, 5, 2), False), "it", "Wednesday, the second of May",
         "Mittwoch, dem zweiten Mai", "в среду, второго мая"),
        (Clock(7, 0, True), "it", "seven o'clock", "sieben Uhr", "в семь часов"),
        (Clock(1, 0, True), "it", "one o'clock", "ein Uhr", "в час"),
        (Clock(2, 0, True), "it", "two o'clock", "zwei Uhr", "в два часа"),
        (Clock(7, 30, True), "it", "half past seven", "halb acht", "в половине восьмого"),
        (Clock(12, 30, True), "it", "half past twelve", "halb eins", "в половине первого"),
        (Clock(7, 15, True), "it", "a quarter past seven", "Viertel nach sieben",
         "в четверть восьмого"),
        (Clock(12, 45, True), "it", "a quarter to one", "Viertel vor eins", "без четверти час"),
        (Clock(7, 10, True), "it", "ten past seven", "zehn nach sieben",
         "в десять минут восьмого"),
        (Clock(7, 35, True), "it", "twenty-five to eight", "fünfundzwanzig vor acht",
         "без двадцати пяти минут восемь"),
        (Clock(21, 31, False), "it", "twenty-one thirty-one", "einundzwanzig Uhr einunddreißig",
         "в двадцать один час тридцать одну минуту"),
        (Clock(1, 5, False), "it", "one oh five", "ein Uhr fünf", "в один час пять минут"),
        (Clock(2, 2, False), "it", "two oh two", "zwei Uhr zwei", "в два часа две минуты"),
    ],
)  # fmt: skip
def test_forms(
    value: Value, form: str, english: str | None, german: str | None, russian: str | None
) -> None:
    for language, expected in (("en", english), ("de", german), ("ru", russian)):
        if expected is not None:
            assert LANGUAGES[language].forms(value)[form] == expected


@pytest.mark.parametrize(
    ("value", "counting", "right"),
    # "einhunderteinstausend" is not German; nor is "eins Bücher"
    [(101_000, False, False), (1000, False, True), (101, False, True), (101, True, False),
     (1, True, False), (21, True, True), (321_000, False, True)],
)  # fmt: skip
def test_what_has_no_right_words_is_left_out(value: int, counting: bool, right: bool) -> None:
    assert speakable(value, counting=counting) is right


@settings(deadline=None)
@given(st.integers(0, 2**32))
def test_every_value_fits_every_frame_of_its_kind(seed: int) -> None:
    rng = random.Random(seed)
    for kind in KINDS:
        value = kind.draw(rng)
        for frame in kind.frames:
            for code, language in LANGUAGES.items():
                sentence = frame[code].format(**language.forms(value))
                assert sentence == " ".join(sentence.split())
                assert not any(character.isdigit() or character in "{}" for character in sentence)


def make(folder: Path, target: str, seed: int, train: int = 700) -> dict[str, list[str]]:
    numbers_corpus.main(
        ["--source-lang", "en", "--target-lang", target, "--seed", str(seed)]
        + ["--train", str(train), "--valid", "100", "--test", "100", str(folder)]
    )
    return {path.name: path.read_text().splitlines() for path in folder.iterdir()}


@pytest.mark.parametrize("target", ["de", "ru"])
def test_the_parts_share_no_sentence(tmp_path: Path, target: str) -> None:
    made = make(tmp_path, target, seed=1)
    for language in ("en", target):
        parts = [made[f"{split}.{language}"] for split in SPLITS]
        assert [len(part) for part in parts] == [700, 100, 100]
        together = [line for part in parts for line in part]
        assert len(set(together)) == len(together)


def test_the_seed_decides(tmp_path: Path) -> None:
    made = [make(tmp_path / str(i), "de", seed) for i, seed in enumerate((1, 1, 2))]
    assert made[0] == made[1]
    assert made[0]["test.en"] != made[2]["test.en"]


def test_both_directions_and_targets_speak_of_the_same() -> None:
    forth = list(islice(sentence_pairs("en", "de", seed=5), 300))
    back = list(islice(sentence_pairs("de", "en", seed=5), 300))
    assert back == [(german, english) for english, german in forth]


def test_all_kinds_of_sentences_occur() -> None:
    english = [pair[0] for pair in islice(sentence_pairs("en", "ru", seed=1), 3000)]
    for start in ("It costs", "She is", "We live on", "Read pages", "He was born", "The train"):
        assert any(sentence.startswith(start) for sentence in english)


def test_the_number_of_sentences_is_counted() -> None:
    assert count_sentences() == 21_185_060
    # a few kinds are small enough to draw all of their sentences
    rng = random.Random(1)
    for kind in KINDS:
        if kind.count_sentences() <= 7000:
            values = {kind.draw(rng) for _ in range(40 * kind.count_values())}
            assert len(values) == kind.count_values()
            for code, language in LANGUAGES.items():
                forms = [language.forms(value) for value in values]
                drawn = {frame[code].format(**each) for each in forms for frame in kind.frames}
                assert len(drawn) == kind.count_sentences()


def test_more_sentences_than_there_are() -> None:
    numbers_corpus.check_sizes(21_185_060)
    with pytest.raises(UsageError, match="there are 21185060 different sentences, fewer than"):
        numbers_corpus.check_sizes(21_185_061)


def test_a_search_that_finds_nothing_new_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(numbers_corpus, "_LONGEST_SEARCH", 200)
    monkeypatch.setattr(
        numbers_corpus, "KINDS", [kind for kind in KINDS if kind.count_sentences() < 200]
    )
    with pytest.raises(DataError, match=r"valid: no new sentence after \d+ of the 100 asked for"):
        make(tmp_path, "de", seed=1, train=100)
    assert {path.name for path in tmp_path.iterdir()} == {"train.en", "train.de"}
