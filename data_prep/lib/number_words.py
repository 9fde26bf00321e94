"""Numbers, dates, times and amounts in English, German and Russian words.

Each language turns a value into the forms that its sentence frames need. Numbers come from
num2words; the names of months and days and the rules of plurals come from Babel. `speakable` is
false for values that the corpus leaves out: num2words has a wrong form for some (German 101,000),
and lacks a form that some counted nouns need (German "eins" before a noun).
"""

from __future__ import annotations

import datetime
from dataclasses import dataclass
from typing import Protocol

from babel import Locale
from num2words import num2words

Forms = dict[str, str]


@dataclass(frozen=True)
class Noun:
    """A countable noun.

    Attributes:
        english, german: the plural.
        gender: the Russian gender.
        russian: the nominative singular (after 21), the genitive singular (2), the genitive plural
            (5) and the accusative singular (21, in "I see ...").
    """

    english: str
    german: str
    gender: str
    russian: tuple[str, str, str, str]


@dataclass(frozen=True)
class Currency:
    """The two units of a currency."""

    whole: Noun
    part: Noun


@dataclass(frozen=True)
class Number:
    """A number by itself, without a counted noun."""

    value: int


@dataclass(frozen=True)
class Numbers:
    """Several numbers, such as two and their sum."""

    values: tuple[int, ...]


@dataclass(frozen=True)
class Count:
    """A number of things."""

    value: int
    noun: Noun


@dataclass(frozen=True)
class Money:
    """An amount of money; ``part`` is 0 for none, else 2 to 99."""

    whole: int
    part: int
    currency: Currency


@dataclass(frozen=True)
class Rank:
    """An ordinal number, from 1."""

    value: int


@dataclass(frozen=True)
class Pages:
    """A range of page numbers."""

    first: int
    last: int


@dataclass(frozen=True)
class Year:
    """A year from 1100 to 2099, which is read in hundreds in German and English."""

    value: int


@dataclass(frozen=True)
class Day:
    """A date, with the year or with the day of the week."""

    date: datetime.date
    with_year: bool


@dataclass(frozen=True)
class Clock:
    """A time of day, as in a timetable or as spoken.

    In a timetable the hour is 1 to 23, with any minute. As spoken the hour is 1 to 12, and the
    minute a multiple of five.
    """

    hour: int
    minute: int
    spoken: bool


Value = Number | Numbers | Count | Money | Rank | Pages | Year | Day | Clock


class Language(Protocol):
    """Protocol of a language: it puts values into words."""

    def forms(self, value: Value) -> Forms:
        """Put a value into words, in all forms that the language's sentence frames refer to."""


def speakable(value: int, *, counting: bool) -> bool:
    """Check that num2words gives the right words in all languages, alone or before a noun."""
    thousands = value // 1000
    if thousands > 1 and thousands % 100 == 1:
        return False
    return not (counting and value % 100 == 1)


def _date_words(day: datetime.date, locale: str) -> tuple[str, str]:
    """Return the names of the day of the week and of the month, in the forms used in dates."""
    names = Locale.parse(locale)
    return (
        str(names.days["format"]["wide"][day.weekday()]),
        str(names.months["format"]["wide"][day.month]),
    )


def _words(value: int, language: str, **how: object) -> str:
    words: str = num2words(value, lang=language, **how)
    return words


class English:
    """English forms: ``it`` for all values but `Numbers` (``n0``, ``n1``, ...)."""

    def forms(self, value: Value) -> Forms:
        """See `Language`."""
        match value:
            case Numbers(values):
                return {f"n{i}": _words(item, "en") for i, item in enumerate(values)}
            case Pages(first, last):
                return {"it": f"{_words(first, 'en')} to {_words(last, 'en')}"}
            case _:
                return {"it": self._one(value)}

    def _one(self, value: Value) -> str:
        match value:
            case Number(number):
                return _words(number, "en")
            case Count(number, noun):
                return f"{_words(number, 'en')} {noun.english}"
            case Money(whole, part, currency):
                text = f"{_words(whole, 'en')} {currency.whole.english}"
                if part:
                    text += f" and {_words(part, 'en')} {currency.part.english}"
                return text
            case Rank(number):
                return _words(number, "en", to="ordinal")
            case Year(year):
                return _words(year, "en", to="year")
            case Day(date, with_year):
                weekday, month = _date_words(date, "en")
                day = f"the {_words(date.day, 'en', to='ordinal')} of {month}"
                if with_year:
                    return f"{day}, {_words(date.year, 'en', to='year')}"
                return f"{weekday}, {day}"
            case Clock():
                return self._clock(value)
            case _:
                raise AssertionError(value)

    @staticmethod
    def _clock(time: Clock) -> str:
        hour, minute = time.hour, time.minute
        if not time.spoken:
            zero = "oh " if minute < 10 else ""
            return f"{_words(hour, 'en')} {zero}{_words(minute, 'en')}"
        this, following = _words(hour, "en"), _words(hour % 12 + 1, "en")
        if minute == 0:
            return f"{this} o'clock"
        named = {15: "a quarter", 30: "half"}
        if minute <= 30:
            return f"{named.get(minute) or _words(minute, 'en')} past {this}"
        return f"{named.get(60 - minute) or _words(60 - minute, 'en')} to {following}"


class German:
    """German forms.

    ``it`` for all values but `Numbers` (``n0``, ``n1``, ...) and `Rank`, which has ``te``
    ("dritte", after der, die, das) and ``ten`` ("dritten", in the dative).
    """

    def forms(self, value: Value) -> Forms:
        """See `Language`."""
        match value:
            case Numbers(values):
                return {f"n{i}": _words(item, "de") for i, item in enumerate(values)}
            case Pages(first, last):
                return {"it": f"{_words(first, 'de')} bis {_words(last, 'de')}"}
            case Rank(number):
                ordinal = _words(number, "de", to="ordinal")
                return {"te": ordinal, "ten": ordinal + "n"}
            case _:
                return {"it": self._one(value)}

    def _one(self, value: Value) -> str:
        match value:
            case Number(number):
                return _words(number, "de")
            case Count(number, noun):
                return f"{_words(number, 'de')} {noun.german}"
            case Money(whole, part, currency):
                text = f"{_words(whole, 'de')} {currency.whole.german}"
                if part:
                    text += f" und {_words(part, 'de')} {currency.part.german}"
                return text
            case Year(year):
                return _words(year, "de", to="year")
            case Day(date, with_year):
                weekday, month = _date_words(date, "de")
                day = f"{_words(date.day, 'de', to='ordinal')}n {month}"
                if with_year:
                    return f"{day} {_words(date.year, 'de', to='year')}"
                return f"{weekday}, dem {day}"
            case Clock():
                return self._clock(value)
            case _:
                raise AssertionError(value)

    @staticmethod
    def _clock(time: Clock) -> str:
        hour, minute = time.hour, time.minute
        o_clock = f"{'ein' if hour == 1 else _words(hour, 'de')} Uhr"
        if not time.spoken:
            return f"{o_clock} {_words(minute, 'de')}"
        this, following = _words(hour, "de"), _words(hour % 12 + 1, "de")
        if minute == 0:
            return o_clock
        if minute == 30:
            return f"halb {following}"
        if minute < 30:
            return f"{'Viertel' if minute == 15 else _words(minute, 'de')} nach {this}"
        return f"{'Viertel' if minute == 45 else _words(60 - minute, 'de')} vor {following}"


class Russian:
    """Russian forms.

    ``it`` is the nominative; for times, dates, years and pages it is the words with their
    preposition. `Number` also has ``gen`` (genitive), `Count` also has ``acc`` (accusative).
    `Money` has ``acc`` only. `Numbers` has ``n0``, ``n1``, ...; `Rank` has forms by case and
    gender: ``nom_m``, ``acc_f``, ``prep_n`` and so on.
    """

    _HOUR = Noun("", "", "m", ("час", "часа", "часов", "час"))
    _MINUTE = Noun("", "", "f", ("минута", "минуты", "минут", "минуту"))

    def __init__(self) -> None:
        self._plural = Locale.parse("ru").plural_form

    def forms(self, value: Value) -> Forms:
        """See `Language`."""
        match value:
            case Number(number):
                return {"it": _words(number, "ru"), "gen": _words(number, "ru", case="g")}
            case Numbers(values):
                return {f"n{i}": _words(item, "ru") for i, item in enumerate(values)}
            case Count(number, noun):
                return {"it": self._count(number, noun, "n"), "acc": self._count(number, noun, "a")}
            case Money(whole, part, currency):
                text = self._count(whole, currency.whole, "a")
                if part:
                    text += f" {self._count(part, currency.part, 'a')}"
                return {"acc": text}
            case Rank(number):
                cases = {"nom": "n", "acc": "a", "prep": "p"}
                return {
                    f"{name}_{gender}": self._ordinal(number, case, gender)
                    for name, case in cases.items()
                    for gender in "mfn"
                }
            case Pages(first, last):
                since, until = self._ordinal(first, "g", "f"), self._ordinal(last, "a", "f")
                # The preposition gets a vowel before consonant clusters such as these.
                since = f"{'со' if since.startswith(('втор', 'сто ')) else 'с'} {since}"
                return {"it": f"{since} по {until}"}
            case Year(year):
                return {"it": f"в {self._ordinal(year, 'p', 'm')} году"}
            case Day(date, with_year):
                return {"it": self._day(date, with_year)}
            case Clock():
                return {"it": self._clock(value)}

    @staticmethod
    def _ordinal(number: int, case: str, gender: str) -> str:
        return _words(number, "ru", to="ordinal", case=case, gender=gender, animate=False)

    def _count(self, number: int, noun: Noun, case: str) -> str:
        """Put a number of things into words, in the nominative ("n") or accusative ("a")."""
        words = _words(number, "ru", case=case, gender=noun.gender, animate=False)
        form = {"one": 3 if case == "a" else 0, "few": 1, "many": 2}[self._plural(number)]
        return f"{words} {noun.russian[form]}"

    def _day(self, date: datetime.date, with_year: bool) -> str:
        weekday, month = _date_words(date, "ru")
        day = f"{self._ordinal(date.day, 'g', 'n')} {month}"
        if with_year:
            return f"{day} {self._ordinal(date.year, 'g', 'm')} года"
        if weekday.endswith("а"):
            weekday = weekday[:-1] + "у"
        return f"{'во' if weekday == 'вторник' else 'в'} {weekday}, {day}"

    def _clock(self, time: Clock) -> str:
        hour, minute = time.hour, time.minute
        if not time.spoken:
            return (
                f"в {self._count(hour, self._HOUR, 'a')} {self._count(minute, self._MINUTE, 'a')}"
            )
        following = hour % 12 + 1
        if minute == 0:
            return "в час" if hour == 1 else f"в {self._count(hour, self._HOUR, 'a')}"
        begun = self._ordinal(following, "g", "m")
        if minute == 15:
            return f"в четверть {begun}"
        if minute == 30:
            return f"в половине {begun}"
        if minute < 30:
            return f"в {self._count(minute, self._MINUTE, 'a')} {begun}"
        left = "четверти" if minute == 45 else f"{_words(60 - minute, 'ru', case='g')} минут"
        return f"без {left} {'час' if following == 1 else _words(following, 'ru')}"


LANGUAGES: dict[str, Language] = {"en": English(), "de": German(), "ru": Russian()}
