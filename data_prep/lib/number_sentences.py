"""The sentences of the number corpus: kinds of values, and sentence frames for them.

A frame is one sentence in all languages, with the forms of a value (see `number_words`) in braces.
The frames contain no other words that would have to agree with the value.
"""

from __future__ import annotations

import datetime
import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

from data_prep.lib.number_words import (
    Clock,
    Count,
    Currency,
    Day,
    Money,
    Noun,
    Number,
    Numbers,
    Pages,
    Rank,
    Value,
    Year,
    speakable,
)

Frame = dict[str, str]


@dataclass(frozen=True)
class Kind:
    """A kind of sentence.

    Attributes:
        weight: the relative frequency of the kind.
        draw: draws a value at random.
        count_values: counts the different values.
        frames: the sentences that a value can be put into.
    """

    weight: int
    draw: Callable[[random.Random], Value]
    count_values: Callable[[], int]
    frames: tuple[Frame, ...]

    def count_sentences(self) -> int:
        """Count the different sentences of this kind; the number is the same in every language."""
        return self.count_values() * len(self.frames)


def _frame(english: str, german: str, russian: str) -> Frame:
    return {"en": english, "de": german, "ru": russian}


THINGS = (
    Noun("books", "Bücher", "f", ("книга", "книги", "книг", "книгу")),
    Noun("apples", "Äpfel", "n", ("яблоко", "яблока", "яблок", "яблоко")),
    Noun("chairs", "Stühle", "m", ("стул", "стула", "стульев", "стул")),
    Noun("tables", "Tische", "m", ("стол", "стола", "столов", "стол")),
    Noun("letters", "Briefe", "n", ("письмо", "письма", "писем", "письмо")),
    Noun("pictures", "Bilder", "f", ("картина", "картины", "картин", "картину")),
    Noun("bottles", "Flaschen", "f", ("бутылка", "бутылки", "бутылок", "бутылку")),
    Noun("cups", "Tassen", "f", ("чашка", "чашки", "чашек", "чашку")),
    Noun("eggs", "Eier", "n", ("яйцо", "яйца", "яиц", "яйцо")),
    Noun("pencils", "Bleistifte", "m", ("карандаш", "карандаша", "карандашей", "карандаш")),
    Noun("keys", "Schlüssel", "m", ("ключ", "ключа", "ключей", "ключ")),
    Noun("maps", "Karten", "f", ("карта", "карты", "карт", "карту")),
)
SPANS = (
    Noun("minutes", "Minuten", "f", ("минута", "минуты", "минут", "минуту")),
    Noun("hours", "Stunden", "m", ("час", "часа", "часов", "час")),
    Noun("days", "Tage", "m", ("день", "дня", "дней", "день")),
    Noun("weeks", "Wochen", "f", ("неделя", "недели", "недель", "неделю")),
    Noun("months", "Monate", "m", ("месяц", "месяца", "месяцев", "месяц")),
)
DISTANCES = (
    Noun("kilometres", "Kilometer", "m", ("километр", "километра", "километров", "километр")),
    Noun("metres", "Meter", "m", ("метр", "метра", "метров", "метр")),
)
YEARS = Noun("years", "Jahre", "m", ("год", "года", "лет", "год"))
INHABITANTS = Noun("inhabitants", "Einwohner", "m", ("житель", "жителя", "жителей", "жителя"))
_CENTS = Noun("cents", "Cent", "m", ("цент", "цента", "центов", "цент"))
CURRENCIES = (
    Currency(Noun("euros", "Euro", "m", ("евро", "евро", "евро", "евро")), _CENTS),
    Currency(Noun("dollars", "Dollar", "m", ("доллар", "доллара", "долларов", "доллар")), _CENTS),
    Currency(
        Noun("rubles", "Rubel", "m", ("рубль", "рубля", "рублей", "рубль")),
        Noun("kopecks", "Kopeken", "f", ("копейка", "копейки", "копеек", "копейку")),
    ),
)

FIRST_DAY = datetime.date(1800, 1, 1)
DAYS = 365 * 225


def _number(rng: random.Random, *, digits: tuple[int, ...], counting: bool) -> int:
    """Draw a number from 2, with one of these numbers of digits, that can be put into words."""
    while True:
        size = rng.choice(digits)
        number = rng.randrange(max(2, 10 ** (size - 1)), 10**size)
        if speakable(number, counting=counting):
            return number


@cache
def _count_numbers(smallest: int, largest: int, *, counting: bool) -> int:
    """Count the numbers from ``smallest`` to ``largest`` that can be put into words."""
    return sum(speakable(number, counting=counting) for number in range(smallest, largest + 1))


def _draw_number(rng: random.Random) -> Value:
    return Number(_number(rng, digits=(2, 3, 3, 4, 4, 5, 5, 6), counting=False))


def _draw_sum(rng: random.Random) -> Value:
    first = _number(rng, digits=(1, 2, 2, 3), counting=False)
    second = _number(rng, digits=(1, 2, 2, 3), counting=False)
    return Numbers((first, second, first + second))


def _draw_difference(rng: random.Random) -> Value:
    taken = _number(rng, digits=(1, 2, 2, 3), counting=False)
    left = _number(rng, digits=(1, 2, 2, 3), counting=False)
    return Numbers((taken + left, taken, left))


def _draw_things(rng: random.Random) -> Value:
    return Count(_number(rng, digits=(1, 2, 2, 3, 3), counting=True), rng.choice(THINGS))


def _draw_span(rng: random.Random) -> Value:
    return Count(_number(rng, digits=(1, 2, 2, 3), counting=True), rng.choice(SPANS))


def _draw_distance(rng: random.Random) -> Value:
    return Count(_number(rng, digits=(1, 2, 3, 4), counting=True), rng.choice(DISTANCES))


def _draw_age(rng: random.Random) -> Value:
    return Count(_number(rng, digits=(1, 2, 2, 2), counting=True), YEARS)


def _draw_town(rng: random.Random) -> Value:
    return Count(_number(rng, digits=(4, 5, 6), counting=True), INHABITANTS)


def _draw_money(rng: random.Random) -> Value:
    whole = _number(rng, digits=(1, 2, 2, 3, 3, 4), counting=True)
    part = rng.randrange(2, 100) if rng.random() < 0.6 else 0
    return Money(whole, part, rng.choice(CURRENCIES))


def _draw_rank(rng: random.Random) -> Value:
    return Rank(rng.randrange(1, 100) if rng.random() < 0.5 else rng.randrange(100, 1000))


def _draw_pages(rng: random.Random) -> Value:
    first = rng.randrange(1, 400)
    return Pages(first, first + rng.randrange(1, 200))


def _draw_year(rng: random.Random) -> Value:
    return Year(rng.randrange(1100, 2030))


def _draw_day(rng: random.Random) -> Value:
    day = FIRST_DAY + datetime.timedelta(rng.randrange(DAYS))
    return Day(day, with_year=rng.random() < 0.6)


def _draw_clock(rng: random.Random) -> Value:
    if rng.random() < 0.5:
        return Clock(rng.randrange(1, 13), rng.randrange(0, 60, 5), spoken=True)
    return Clock(rng.randrange(1, 24), rng.randrange(1, 60), spoken=False)


def _count_days() -> int:
    days = [FIRST_DAY + datetime.timedelta(number) for number in range(DAYS)]
    without_year = {(day.weekday(), day.month, day.day) for day in days}
    return len(days) + len(without_year)


KINDS = (
    Kind(
        20,
        _draw_number,
        lambda: _count_numbers(10, 999_999, counting=False),
        (
            _frame("The answer is {it}.", "Die Antwort ist {it}.", "Ответ: {it}."),
            _frame("I count to {it}.", "Ich zähle bis {it}.", "Я считаю до {gen}."),
            _frame("{it}", "{it}", "{it}"),
        ),
    ),
    Kind(
        8,
        _draw_sum,
        lambda: _count_numbers(2, 999, counting=False) ** 2,
        (
            _frame(
                "{n0} plus {n1} is {n2}.", "{n0} plus {n1} ist {n2}.", "{n0} плюс {n1} будет {n2}."
            ),
        ),
    ),
    Kind(
        6,
        _draw_difference,
        lambda: _count_numbers(2, 999, counting=False) ** 2,
        (
            _frame(
                "{n0} minus {n1} is {n2}.",
                "{n0} minus {n1} ist {n2}.",
                "{n0} минус {n1} будет {n2}.",
            ),
        ),
    ),
    Kind(
        10,
        _draw_things,
        lambda: _count_numbers(2, 999, counting=True) * len(THINGS),
        (
            _frame("We have {it}.", "Wir haben {it}.", "У нас {it}."),
            _frame("I bought {it}.", "Ich habe {it} gekauft.", "Я купил {acc}."),
            _frame("She sold {it}.", "Sie hat {it} verkauft.", "Она продала {acc}."),
            _frame("There are {it} in the room.", "Im Zimmer sind {it}.", "В комнате {it}."),
        ),
    ),
    Kind(
        6,
        _draw_span,
        lambda: _count_numbers(2, 999, counting=True) * len(SPANS),
        (
            _frame("The journey takes {it}.", "Die Reise dauert {it}.", "Поездка длится {acc}."),
            _frame(
                "He stayed in Berlin for {it}.",
                "Er blieb {it} in Berlin.",
                "Он жил в Берлине {acc}.",
            ),
            _frame("We waited for {it}.", "Wir haben {it} gewartet.", "Мы ждали {acc}."),
        ),
    ),
    Kind(
        4,
        _draw_distance,
        lambda: _count_numbers(2, 9999, counting=True) * len(DISTANCES),
        (
            _frame(
                "The station is {it} away.", "Der Bahnhof ist {it} entfernt.", "До вокзала {it}."
            ),
            _frame("They walked {it}.", "Sie sind {it} gegangen.", "Они прошли {acc}."),
        ),
    ),
    Kind(
        1,
        _draw_age,
        lambda: _count_numbers(2, 99, counting=True),
        (
            _frame("She is {it} old.", "Sie ist {it} alt.", "Ей {it}."),
            _frame("He is {it} old.", "Er ist {it} alt.", "Ему {it}."),
        ),
    ),
    Kind(
        4,
        _draw_town,
        lambda: _count_numbers(1000, 999_999, counting=True),
        (_frame("The town has {it}.", "Die Stadt hat {it}.", "В городе {it}."),),
    ),
    Kind(
        14,
        _draw_money,
        lambda: _count_numbers(2, 9999, counting=True) * (1 + 98) * len(CURRENCIES),
        (
            _frame("It costs {it}.", "Es kostet {it}.", "Это стоит {acc}."),
            _frame("I paid {it}.", "Ich habe {it} bezahlt.", "Я заплатил {acc}."),
            _frame("The ticket costs {it}.", "Die Fahrkarte kostet {it}.", "Билет стоит {acc}."),
            _frame("She has saved {it}.", "Sie hat {it} gespart.", "Она накопила {acc}."),
            _frame("He owes me {it}.", "Er schuldet mir {it}.", "Он должен мне {acc}."),
        ),
    ),
    Kind(
        9,
        _draw_rank,
        lambda: 999,
        (
            _frame(
                "We live on the {it} floor.",
                "Wir wohnen im {ten} Stock.",
                "Мы живём на {prep_m} этаже.",
            ),
            _frame(
                "He finished in {it} place.",
                "Er kam auf den {ten} Platz.",
                "Он финишировал на {prep_n} месте.",
            ),
            _frame(
                "It happened in the {it} minute.",
                "Es geschah in der {ten} Minute.",
                "Это случилось на {prep_f} минуте.",
            ),
            _frame(
                "Today is the {it} day of the journey.",
                "Heute ist der {te} Tag der Reise.",
                "Сегодня {nom_m} день поездки.",
            ),
            _frame("This is the {it} question.", "Das ist die {te} Frage.", "Это {nom_m} вопрос."),
            _frame("This is the {it} letter.", "Das ist der {te} Brief.", "Это {nom_n} письмо."),
            _frame(
                "I am reading the {it} chapter.",
                "Ich lese das {te} Kapitel.",
                "Я читаю {acc_f} главу.",
            ),
        ),
    ),
    Kind(
        4,
        _draw_pages,
        lambda: 399 * 199,
        (_frame("Read pages {it}.", "Lies die Seiten {it}.", "Прочитай страницы {it}."),),
    ),
    Kind(
        7,
        _draw_year,
        lambda: 2030 - 1100,
        (
            _frame("He was born in {it}.", "Er wurde im Jahr {it} geboren.", "Он родился {it}."),
            _frame("She died in {it}.", "Sie starb im Jahr {it}.", "Она умерла {it}."),
            _frame(
                "The house was built in {it}.",
                "Das Haus wurde im Jahr {it} gebaut.",
                "Дом был построен {it}.",
            ),
            _frame(
                "The war ended in {it}.",
                "Der Krieg endete im Jahr {it}.",
                "Война закончилась {it}.",
            ),
        ),
    ),
    Kind(
        12,
        _draw_day,
        _count_days,
        (
            _frame("He was born on {it}.", "Er wurde am {it} geboren.", "Он родился {it}."),
            _frame("The concert was on {it}.", "Das Konzert war am {it}.", "Концерт был {it}."),
            _frame("We arrived on {it}.", "Wir sind am {it} angekommen.", "Мы приехали {it}."),
            _frame(
                "The museum was closed on {it}.",
                "Das Museum war am {it} geschlossen.",
                "Музей был закрыт {it}.",
            ),
        ),
    ),
    Kind(
        12,
        _draw_clock,
        lambda: 12 * 12 + 23 * 59,
        (
            _frame(
                "The train leaves at {it}.", "Der Zug fährt um {it} ab.", "Поезд отправляется {it}."
            ),
            _frame(
                "The plane lands at {it}.",
                "Das Flugzeug landet um {it}.",
                "Самолёт приземляется {it}.",
            ),
            _frame(
                "The lesson begins at {it}.",
                "Der Unterricht beginnt um {it}.",
                "Урок начинается {it}.",
            ),
            _frame("We are meeting at {it}.", "Wir treffen uns um {it}.", "Мы встречаемся {it}."),
            _frame(
                "The shop closes at {it}.",
                "Das Geschäft schließt um {it}.",
                "Магазин закрывается {it}.",
            ),
            _frame("He calls me at {it}.", "Er ruft mich um {it} an.", "Он звонит мне {it}."),
        ),
    ),
)


def count_sentences() -> int:
    """Count the different sentences of all kinds; the number is the same in every language."""
    return sum(kind.count_sentences() for kind in KINDS)
