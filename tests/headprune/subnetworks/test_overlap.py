"""The overlap of sets, against all sets of their sizes."""

from __future__ import annotations

from itertools import combinations, permutations
from random import Random
from statistics import fmean

import pytest

from headprune.plan import PruningPlan
from headprune.results.significance import holm
from headprune.select import at_random
from headprune.subnetworks.overlap import mean_overlap, overlap_of, p_value_across
from headprune.subnetworks.survival import cross_task_overlaps, sentences_on


def plain(first: set[int], second: set[int]) -> float:
    return len(first & second) / len(first | second) if first | second else 1.0


@pytest.mark.parametrize(
    ("n", "a", "b", "shared"),
    [(5, 2, 3, 1), (6, 3, 3, 3), (4, 4, 2, 2), (5, 0, 2, 0), (3, 0, 0, 0), (6, 5, 4, 3)],
)
def test_chance_and_p_value_are_those_of_all_pairs_of_sets(n, a, b, shared):
    first = set(range(a))
    second = set(range(a - shared, a - shared + b))
    assert len(first & second) == shared
    found = overlap_of(first, second, of=n)
    every = [
        plain(set(x), set(y)) for x in combinations(range(n), a) for y in combinations(range(n), b)
    ]
    assert found.value == pytest.approx(plain(first, second))
    assert found.chance == pytest.approx(fmean(every))
    as_large = [value >= found.value - 1e-12 for value in every]
    assert found.p_value == pytest.approx(fmean(as_large))


def test_the_mean_overlap_of_three_sets_is_tested_against_all_triples():
    sets = [{0, 1}, {0, 1, 2}, {1, 4}]
    found = mean_overlap(sets, of=5)
    every = [
        fmean(plain(set(x), set(y)) for x, y in combinations(triple, 2))
        for triple in (
            (x, y, z)
            for x in combinations(range(5), 2)
            for y in combinations(range(5), 3)
            for z in combinations(range(5), 2)
        )
    ]
    assert found.chance == pytest.approx(fmean(every))
    exact = fmean(value >= found.value - 1e-12 for value in every)
    assert 0.05 < exact < 0.95
    assert found.p_value == pytest.approx(exact, abs=0.02)
    assert (found.sets, found.pairs) == (3, 3)
    assert mean_overlap(sets, of=5) == found


def test_two_sets_have_the_exact_p_value():
    pair = overlap_of({0, 1}, {1, 2}, of=6)
    assert mean_overlap([{0, 1}, {1, 2}], of=6).p_value == pair.p_value


def test_two_tasks_are_tested_against_all_permutations_of_the_elements():
    first, second = [{0, 1}, {0, 2}], [{0, 1, 3}, {1}]

    def overlap(order: tuple[int, ...]) -> float:
        moved = [{order[element] for element in each} for each in first]
        return fmean(plain(a, b) for a in moved for b in second)

    observed = overlap((0, 1, 2, 3, 4))
    exact = fmean(overlap(order) >= observed - 1e-12 for order in permutations(range(5)))
    assert 0.05 < exact < 0.95
    found = p_value_across(first, second, elements=range(5))
    assert found == pytest.approx(exact, abs=0.02)
    assert p_value_across(first, second, elements=range(5)) == found


def test_few_documents_on_random_survivors_say_that_an_overlap_exceeds_chance():
    """Without a correction, a quarter of the documents on six tasks would."""
    random = Random(1)
    documents = [
        {
            f"task {number}": {
                "heads": mean_overlap([{*random.sample(range(72), 36)} for _ in "ab"], of=72)
            }
            for number in range(6)
        }
        for _ in range(400)
    ]
    uncorrected = [
        any(each["heads"].p_value < 0.05 for each in by_task.values()) for by_task in documents
    ]
    said = [any("exceeds" in each for each in sentences_on(by_task)) for by_task in documents]
    assert fmean(said) <= 0.05 and fmean(uncorrected) > 0.1
    assert "Holm" not in sentences_on({"a": documents[0]["task 0"]})[0]


def test_the_table_of_two_tasks_corrects_for_its_rows():
    random = Random(1)
    shape = {"ES": (6, 6)}
    by_task = {
        task: [at_random(shape, seed=random.randrange(100), percent=50) for _ in "ab"]
        for task in ("a", "b", "c")
    }
    table = cross_task_overlaps(by_task, pool=PruningPlan.full(shape))
    assert [column.name for column in table.columns][-2:] == ["p", "p (Holm)"]
    assert [row[-1] for row in table.rows] == holm([row[-2] for row in table.rows])
    assert len(table.rows) == 3


def test_equal_survivors_of_two_tasks_exceed_chance():
    survivors = [set(range(6)), set(range(7))]
    assert p_value_across(survivors, survivors, elements=range(12)) < 0.01
