"""Syntactic roles from parses, on attention that is known."""

from __future__ import annotations

import pytest
import torch

from headprune import DataError
from headprune.scores.syntax import Arc, Parse, largest_words, positional_baselines, read_parses

CONLLU = """\
# text = The dogs don't see it
1\tThe\tthe\tDET\t_\t_\t2\tdet\t_\t_
2\tdogs\tdog\tNOUN\t_\t_\t5\tnsubj:pass\t_\t_
3-4\tdon't\t_\t_\t_\t_\t_\t_\t_\t_
3\tdo\tdo\tAUX\t_\t_\t5\taux\t_\t_
4\tn't\tnot\tPART\t_\t_\t5\tadvmod\t_\t_
5\tsee\tsee\tVERB\t_\t_\t0\troot\t_\t_
6\tit\tit\tPRON\t_\t_\t5\tobj\t_\t_

"""
SENTENCE = Parse(
    ("The", "dogs", "do", "n't", "see", "it"),
    (
        *(Arc("det", 0, 1), Arc("nsubj", 1, 4), Arc("aux", 2, 4), Arc("advmod", 3, 4)),
        Arc("obj", 5, 4),
    ),
)


def test_parses_are_read_without_multi_word_tokens_and_subtypes(tmp_path):
    path = tmp_path / "some.conllu"
    path.write_text(CONLLU * 2)
    assert read_parses(path) == [SENTENCE, SENTENCE]


@pytest.mark.parametrize(
    ("text", "message"),
    [("", "no sentence in it"), ("1 two\n\n", "no CoNLL-U file"), (None, "cannot be read")],
)
def test_what_is_no_parse(text, message, tmp_path):
    path = tmp_path / "some.conllu"
    if text is not None:
        path.write_text(text)
    with pytest.raises(DataError, match=message) as caught:
        read_parses(path)
    assert "\n" not in str(caught.value)


def test_the_baseline_is_the_most_frequent_distance():
    more = Parse(("a", "b"), (Arc("nsubj", 0, 1),))
    found = positional_baselines([SENTENCE, more, more], ("nsubj", "obj", "amod"))
    assert found == {"nsubj": pytest.approx(2 / 3), "obj": 1.0}


def test_attention_to_a_split_word_is_summed_and_from_it_averaged():
    # [CLS] one two- two [SEP] [PAD]
    words = torch.tensor([[-1, 0, 1, 1, -1, -1]])
    weights = torch.zeros(1, 1, 6, 6)
    weights[0, 0, 1] = torch.tensor([0.0, 0.4, 0.3, 0.3, 0.0, 0.0])  # one: 0.4 on one, 0.6 on two
    weights[0, 0, 2] = torch.tensor([0.3, 0.7, 0.0, 0.0, 0.0, 0.0])
    weights[0, 0, 3] = torch.tensor([0.0, 0.3, 0.4, 0.0, 0.3, 0.0])  # two: 0.5 one, 0.2 two
    assert largest_words(weights, words).tolist() == [[[1, 0]]]
    weights[0, 0, 1] = torch.tensor([0.0, 0.1, 0.1, 0.1, 0.7, 0.0])
    assert largest_words(weights, words).tolist() == [[[1, 0]]]  # what is on [SEP] does not count
