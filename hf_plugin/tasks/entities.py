"""Entities in sequences of labels, and how well they are found.

Labels are IOB2: ``B-PER`` is the first word of an entity of the type PER, ``I-PER`` a further one,
``O`` a word outside of entities. As in the evaluation of CoNLL 2000 (Tjong Kim Sang and Buchholz,
section 3), an ``I-`` that follows nothing of its type begins an entity.

seqeval computes the same. It has had no release since 2020, and cannot be installed where its build
dependencies cannot be downloaded.
"""

from __future__ import annotations

from collections.abc import Sequence

OUTSIDE = "O"

Entity = tuple[int, int, str]
"""The first word, the word after the last, and the type."""


def name_entities(labels: Sequence[str]) -> bool:
    """Check if labels are IOB2: O, and for each type B-, and perhaps I-."""
    marks = [label.partition("-") for label in labels if label != OUTSIDE]
    begun = {type_ for mark, _, type_ in marks if mark == "B"}
    return bool(marks) and all(
        mark in ("B", "I") and type_ and type_ in begun for mark, _, type_ in marks
    )


def entities(labels: Sequence[str]) -> list[Entity]:
    """The entities of a sentence, by the labels of its words."""
    found: list[Entity] = []
    start, current = 0, ""  # an entity has no type without characters: see ``name_entities``
    for place, label in enumerate([*labels, OUTSIDE]):
        mark, _, type_ = label.partition("-")
        if current and (mark != "I" or type_ != current):
            found.append((start, place, current))
            current = ""
        if not current and label != OUTSIDE:
            start, current = place, type_
    return found


def entity_f1(labels: Sequence[Sequence[str]], predictions: Sequence[Sequence[str]]) -> float:
    """The micro-averaged F1 of entities, from 0 to 1; 0 where there are none.

    A predicted entity is right if the first word, the last word and the type are.

    Args:
        labels: the correct labels of the words of each sentence.
        predictions: the predicted ones, of the same numbers of words.
    """
    right = number = 0
    for correct, predicted in zip(labels, predictions, strict=True):
        pair = set(entities(correct)), set(entities(predicted))
        right += len(pair[0] & pair[1])
        number += len(pair[0]) + len(pair[1])
    return 2 * right / number if number else 0.0
