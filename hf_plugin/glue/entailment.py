"""The task ``entailment``: generated statements about numbers, ages, dates and times in words.

With this task everything can be tried without a download. A hypothesis ("Anna has more than nine
keys.") is drawn first, then one premise for each of the three labels: "Anna has twelve keys.", "Tom
has twelve keys.", "Anna has five keys." The hypothesis alone therefore does not predict the label,
and the labels are exactly balanced. No hypothesis occurs in both splits. The files have the format
of GLUE's similar tasks.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from num2words import num2words

from headprune.files import write_text_atomically

LABELS = ("entailment", "neutral", "contradiction")
EXAMPLES = {"train": 3999, "dev": 501}
"""Number of examples of each split; a multiple of the number of labels."""
SEED = 1
"""Seed of the task; the same for all runs."""

Group = tuple[str, dict[str, str]]
"""A hypothesis, with a premise for each label."""


@dataclass(frozen=True, kw_only=True)
class Kind:
    """A kind of statement that something has a value.

    Attributes:
        weight: relative frequency.
        subjects, objects: possible subjects and objects of the statement.
        values: possible values in words, in ascending order.
        premise: the statement, with ``{subject}``, ``{object}`` and ``{value}``.
        equal, higher, lower: three hypotheses that can follow from it.
    """

    weight: int
    subjects: Sequence[str]
    objects: Sequence[str] = ("",)
    values: Sequence[str]
    premise: str
    equal: str
    higher: str
    lower: str


_NAMES = ["Anna", "Ben", "Clara", "David", "Emma", "Frank", "Grace", "Henry", "Nora", "Tom"]
# fmt: off
_MONTHS = [
    "January", "February", "March", "April", "May", "June", "July", "August", "September",
    "October", "November", "December",
]
# fmt: on
_KINDS = (
    Kind(
        weight=4,
        subjects=_NAMES,
        objects=["books", "apples", "chairs", "tables", "letters", "pictures", "cups", "keys"],
        values=[num2words(number) for number in range(2, 21)],
        premise="{subject} has {value} {object}.",
        equal="{subject} owns {value} {object}.",
        higher="{subject} has more than {value} {object}.",
        lower="{subject} has fewer than {value} {object}.",
    ),
    Kind(
        weight=2,
        subjects=_NAMES,
        values=[num2words(number) for number in range(10, 61)],
        premise="{subject} is {value} years old.",
        equal="The age of {subject} is {value}.",
        higher="{subject} is older than {value}.",
        lower="{subject} is younger than {value}.",
    ),
    Kind(
        weight=3,
        subjects=["concert", "wedding", "exam", "meeting", "party", "trip", "lecture", "race"],
        values=[
            f"the {num2words(day, to='ordinal')} of {month}"
            for month in _MONTHS
            for day in range(1, 29)  # as many as every month has
        ],
        premise="The {subject} is on {value}.",
        equal="The {subject} takes place on {value}.",
        higher="The {subject} is after {value}.",
        lower="The {subject} is before {value}.",
    ),
    Kind(
        weight=2,
        subjects=["train", "bus", "plane", "ship", "ferry", "taxi", "coach", "tram", "boat"],
        values=[f"{half}{num2words(hour)}" for hour in range(1, 13) for half in ("", "half past ")],
        premise="The {subject} leaves at {value}.",
        equal="The departure of the {subject} is at {value}.",
        higher="The {subject} leaves after {value}.",
        lower="The {subject} leaves before {value}.",
    ),
)


def write(folder: Path, *, seed: int = SEED) -> None:
    """Write the task's ``train.tsv`` and ``dev.tsv``, of `EXAMPLES` examples each.

    The columns are index, sentence1 (the premise), sentence2 (the hypothesis) and label, as in
    RTE. The same seed gives the same files everywhere.

    Raises:
        DataError: the folder cannot be written to.
    """
    rng = random.Random(seed)
    groups = _groups(rng)
    for part, size in EXAMPLES.items():
        examples = [
            (premises[label], hypothesis, label)
            for hypothesis, premises in islice(groups, size // len(LABELS))
            for label in LABELS
        ]
        rng.shuffle(examples)
        rows = (f"{n}\t" + "\t".join(example) for n, example in enumerate(examples))
        lines = ["index\tsentence1\tsentence2\tlabel", *rows]
        write_text_atomically(folder / f"{part}.tsv", "".join(f"{line}\n" for line in lines))


def _groups(rng: random.Random) -> Iterator[Group]:
    """Generate groups without end; no hypothesis occurs twice."""
    seen: set[str] = set()
    while True:
        kind = rng.choices(_KINDS, [kind.weight for kind in _KINDS])[0]
        group = _group(kind, rng)
        if group[0] not in seen:
            seen.add(group[0])
            yield group


def _group(kind: Kind, rng: random.Random) -> Group:
    subject, other_subject = rng.sample(kind.subjects, 2)
    values, last = kind.values, len(kind.values) - 1
    middle = rng.randint(1, last - 1)
    lower, higher = rng.randint(0, middle - 1), rng.randint(middle + 1, last)
    # Hypotheses of equality are easier, and more frequent.
    frame, right, wrong = rng.choice(
        [
            *[(kind.equal, middle, rng.choice((lower, higher)))] * 3,
            (kind.higher, higher, lower),
            (kind.lower, lower, higher),
        ]
    )
    thing = rng.choice(kind.objects)

    def premise(value: int, *, about: str = subject) -> str:
        return kind.premise.format(subject=about, object=thing, value=values[value])

    hypothesis = frame.format(subject=subject, object=thing, value=values[middle])
    return hypothesis, {
        "entailment": premise(right),
        "neutral": premise(rng.choice((right, wrong)), about=other_subject),
        "contradiction": premise(wrong),
    }
