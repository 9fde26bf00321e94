"""Reading fairseq-generate's output, and scoring it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import sacrebleu
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from headprune import DataError, HeadPlan, UsageError
from headprune.cli.bleu import app
from headprune.results.bleu import bleu_and_chrf, has_other_targets, read_lines, translations
from headprune.results.bleu_tokenizers import (
    tokenizer_for,
    tokenizer_of,
    tokenizer_of_reference,
)
from headprune.results.record import Record
from headprune.results.stats import paired_randomisation

GENERATION = """\
2026-01-01 | INFO | fairseq_cli.generate | loading
S-1\ta small house
T-1\tein kleines Haus
H-1\t-0.31\tein kleines Haus
D-1\t-0.31\tEin kleines Haus.
P-1\t-0.1 -0.2
S-0\tyes
H-0\t-0.5\tja
D-0\t-0.5\tJa.
P-0\t-0.1
Generate test with beam=5: BLEU4 = 1.00
"""


def read_generation(path: Path) -> list[str]:
    return translations(read_lines(path), source=str(path))


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "generation.txt"
    path.write_bytes(text.encode())
    return path


def test_translations_come_detokenised_and_in_the_order_of_the_test_set(tmp_path: Path) -> None:
    assert read_generation(written(tmp_path, GENERATION)) == ["Ja.", "Ein kleines Haus."]


def test_an_empty_translation_counts_as_one(tmp_path: Path) -> None:
    assert read_generation(written(tmp_path, "D-0\t-1.0\t\nD-1\t-inf\tx\n")) == ["", "x"]


@given(
    st.permutations(range(12)),
    st.lists(st.text(st.characters(exclude_characters="\n\r")), min_size=12, max_size=12),
)
def test_any_text_in_any_order_is_read_back(
    tmp_path_factory: pytest.TempPathFactory, order: list[int], texts: list[str]
) -> None:
    lines = [f"D-{number}\t-0.1\t{texts[number]}\n" for number in order]
    try:
        path = written(tmp_path_factory.mktemp("g"), "".join(lines))
    except UnicodeEncodeError:  # Half a surrogate pair is no text.
        return
    assert read_generation(path) == texts


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("H-0\t-0.1\tx\n", "no translation"),
        ("", "no translation"),
        ("D-0\t-1\ta\nD-3\t-1\tb\n", r"sentence 1 is missing \(2 of 4"),
        ("D-0\t-1\ta\nD-0\t-2\tb\n", "sentence 0 is translated twice.*--nbest 1"),
    ],
)
def test_an_output_that_is_not_whole_is_refused(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        read_generation(written(tmp_path, text))


def test_lines_break_at_newlines_only(tmp_path: Path) -> None:
    path = written(tmp_path, "a\u2028b\x0bc\nd\r\n")
    assert read_lines(path) == ["a\u2028b\x0bc", "d"]


def test_a_byte_order_mark_is_no_text(tmp_path: Path) -> None:
    path = tmp_path / "windows.de"
    path.write_text("für\r\ndich\r\n", encoding="utf-8-sig")
    assert read_lines(path) == ["für", "dich"]


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="nowhere"):
        read_lines(tmp_path / "nowhere")
    path = tmp_path / "latin"
    path.write_bytes("für\n".encode("latin-1"))
    with pytest.raises(DataError, match=r"latin: not UTF-8 text \(byte 1\)"):
        read_lines(path)


def test_scores_are_those_of_sacrebleu_and_cased() -> None:
    references = ["The small house is green .", "Two men are walking in the street."]
    hypotheses = ["The small house is blue .", "Two men walk in the street."]
    score = bleu_and_chrf(hypotheses, references)
    assert score.bleu == sacrebleu.corpus_bleu(hypotheses, [references]).score
    assert score.chrf == sacrebleu.corpus_chrf(hypotheses, [references]).score
    assert "case:mixed" in score.bleu_signature
    assert "tok:13a" in score.bleu_signature
    lower = bleu_and_chrf([line.lower() for line in hypotheses], references)
    assert lower.bleu < score.bleu


def test_texts_of_different_length_are_no_test_set() -> None:
    with pytest.raises(DataError, match="1 translations but 2 references"):
        bleu_and_chrf(["a"], ["a", "b"])
    with pytest.raises(DataError, match="no sentence"):
        bleu_and_chrf([], [])


def test_a_p_value_does_not_depend_on_the_other_systems() -> None:
    words = [f"the {noun} sees the {other} near the house" for noun in "abc" for other in "xyz"]
    systems = [
        [line.replace("near", place) if number % 3 else line for number, line in enumerate(words)]
        for place in ("at", "in", "by the side of")
    ]
    base = [line.replace("sees", "saw") for line in words]
    together = paired_randomisation(base, systems, words, trials=200).p_values
    alone = [paired_randomisation(base, [each], words, trials=200).p_values[0] for each in systems]
    assert list(together) == alone and len(set(alone)) > 1


def test_text_of_languages_without_spaces_is_split_as_sacrebleu_says(tmp_path: Path) -> None:
    hypotheses, references = ["这只猫在房子里睡觉"], ["这只猫在房子里吃饭"]
    scored = bleu_and_chrf(hypotheses, references, tokenizer="zh")
    expected = sacrebleu.corpus_bleu(hypotheses, [references], tokenize="zh")
    assert scored.bleu == expected.score > bleu_and_chrf(hypotheses, references).bleu
    assert tokenizer_of(scored.bleu_signature) == "zh" and tokenizer_of("nrefs:1") == "13a"
    mecab = "nrefs:1|case:mixed|eff:no|tok:ja-mecab-0.996-IPA|smooth:exp|version:2.6.0"
    assert tokenizer_of(mecab) == "ja-mecab"
    test = paired_randomisation(
        hypotheses * 3, [references * 3], references * 3, trials=20, tokenizer="zh"
    )
    assert test.base == pytest.approx(expected.score) and "tok:zh" in test.signature
    (tmp_path / "raw").mkdir()
    (tmp_path / "prep.json").write_text('{"pair": "en-zh"}')  # of an older version
    of_files = [tokenizer_of_reference(tmp_path / name) for name in ("raw/test.zh", "r.ja", "r.de")]
    assert of_files == ["zh", "ja-mecab", "13a"]
    names = [tokenizer_for(language) for language in ("zh_CN", "ja", "th", "en")]
    assert names == ["zh", "ja-mecab", "char", "13a"]


def test_the_bleu_command_takes_plain_text(tmp_path: Path) -> None:
    raw = tmp_path / "data" / "raw"
    raw.mkdir(parents=True)
    (raw / "test.zh").write_text("这只猫在房子里吃饭\n", encoding="utf-8")
    (tmp_path / "data" / "prep.json").write_text('{"sacrebleu_tokenizers": {"zh": "zh"}}')
    (tmp_path / "run.hyp.txt").write_text("这只猫在房子里睡觉\n", encoding="utf-8")
    given = ["--hyp", str(tmp_path / "run.hyp.txt"), "--ref", str(raw / "test.zh")]

    done = CliRunner().invoke(app, given)
    assert done.exit_code == 0 and [line.split()[0] for line in done.stdout.splitlines()] == [
        "BLEU",
        "chrF",
    ]
    assert "tok:zh" in done.stdout
    with (tmp_path / "run.hyp.txt").open() as translations:
        piped = subprocess.run(
            [sys.executable, "-c", "from headprune.cli import main; main()"]
            + ["bleu", "--hyp", "-", *given[2:]],
            stdin=translations,
            capture_output=True,
            text=True,
        )
    assert piped.stdout == done.stdout, piped.stderr
    assert "tok:char" in CliRunner().invoke(app, [*given, "--tokenize", "char"]).stdout
    copy = tmp_path / "ref.zh"
    copy.write_text((raw / "test.zh").read_text("utf-8"), encoding="utf-8")
    assert CliRunner().invoke(app, [*given[:2], "--ref", str(copy)]).stdout == done.stdout
    plan = HeadPlan.full({"ES": (2,)})
    plan.save(tmp_path / "plan.json")
    (tmp_path / "generation.txt").write_text(
        "S-0\tx\nT-0\tx\nD-0\t-1.0\t这只猫在房子里睡觉\n", encoding="utf-8"
    )
    scored = CliRunner().invoke(
        app,
        [
            *(str(tmp_path / "generation.txt"), "--ref", str(copy), "--tokenize", "char"),
            *("--plan", str(tmp_path / "plan.json"), "--data", "x", "--seed", "1"),
            *("-o", str(tmp_path / "scored.json")),
        ],
    )
    assert scored.exit_code == 0, scored.exception
    assert "tok:char" in Record.load(tmp_path / "scored.json").metric_signatures["bleu"]
    # Words that are split are named, and a length that is none is refused.
    (tmp_path / "split.txt").write_text("ein ho@@ her Berg\nein See\n", encoding="utf-8")
    (tmp_path / "whole.txt").write_text("ein hoher Berg\nein See\n", encoding="utf-8")
    texts = ("--hyp", str(tmp_path / "split.txt"), "--ref", str(tmp_path / "whole.txt"))
    assert (
        "1 of 2 translations have '@@', the mark of words that are split; fairseq-generate "
        "--remove-bpe joins them" in CliRunner().invoke(app, texts).stderr
    )
    assert "@@" not in CliRunner().invoke(app, ["--hyp", texts[3], "--ref", texts[3]]).stderr
    wrong = CliRunner().invoke(app, ["x.txt", *given[2:], "--finetune", "1epoch"])
    assert "--finetune 1epoch: give 30ep (epochs)" in str(wrong.exception)
    # A record that cannot be written leaves the translations of the earlier one.
    (tmp_path / "generation.txt").write_text("S-0\tx\nT-0\tx\nD-0\t-1.0\t猫\n", encoding="utf-8")
    (tmp_path / "facts.json").write_text('{"parameters": -1}')
    again = CliRunner().invoke(
        app,
        [
            *(str(tmp_path / "generation.txt"), "--ref", str(copy)),
            *("--plan", str(tmp_path / "plan.json"), "--data", "x", "--seed", "1"),
            *("--training", str(tmp_path / "facts.json"), "-o", str(tmp_path / "scored.json")),
        ],
    )
    assert isinstance(again.exception, DataError) and "parameters is -1" in str(again.exception)
    assert (tmp_path / "scored.hyp.txt").read_text("utf-8") == "这只猫在房子里睡觉\n"

    record = Record(
        task="translation", metrics={"bleu": 1.0}, plan=plan, signature="plan:ES=2|seed:1"
    )
    record.save(tmp_path / "run.json")
    assert CliRunner().invoke(app, given).stdout.splitlines()[-1] == "plan:ES=2|seed:1"

    for arguments, message in (
        ([*given, "--tokenize", "words"], "tokenizer words: give one of 13a, char,"),
        ([*given, "--plan", "p.json"], "--hyp takes --ref alone"),
        (given[2:], "give --hyp, or the output of fairseq-generate"),
        (given[:2], "give --ref, the raw reference"),
        ([str(tmp_path / "g"), *given[2:]], "a record needs --plan, --data and --output"),
        ([str(tmp_path / "g"), *given[2:], "--data", "a|b"], "--data 'a|b': leave out : and |"),
        (
            [str(tmp_path / "g"), *given[2:], "--data", "my corpus"],
            "a record needs --plan, --data and --output",
        ),
        ([str(tmp_path / "g"), *given[2:], "--select", "a:b"], "--select 'a:b': give one word"),
        ([str(tmp_path / "g"), *given[2:], "--form", "remov"], "--form remov: not one of remove,"),
    ):
        error = CliRunner().invoke(app, arguments).exception
        assert isinstance(error, UsageError) and message in str(error), arguments


@pytest.mark.parametrize(
    ("targets", "other"),
    [
        (["The house , isn &apos;t old .", "Zwei Hun@@ de"], False),
        (["▁The ▁house, ▁isn't old.", "a <<unk>> cat"], False),
        (["Zwei Hunde", "The house, isn't old."], True),
        ([], False),
    ],
)
def test_the_targets_of_a_generation_are_the_references(targets: list[str], other: bool) -> None:
    lines = [line for n, text in enumerate(targets) for line in (f"T-{n}\t{text}", f"D-{n}\t-1\ta")]
    assert has_other_targets(lines, ["The house, isn't old.", "Zwei Hunde"]) is other
