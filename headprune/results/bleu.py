"""Score a translation: fairseq-generate's output against the raw reference, with sacreBLEU.

Only detokenised, cased text is scored, so that the figures can be set beside those of others
(Post 2018, "A Call for Clarity in Reporting BLEU Scores"). Generate with `--tokenizer moses
--remove-bpe`, or `--remove-bpe sentencepiece`: fairseq then undoes both in its `D-` lines.
"""

from __future__ import annotations

import html
import re
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from io import StringIO
from pathlib import Path

from headprune.errors import DataError
from headprune.files import text_of
from headprune.results.bleu_tokenizers import DEFAULT, bleu_metric

_TARGET = re.compile(r"T-(\d+)\t(.*)")
_DETOKENISED = re.compile(r"D-(\d+)\t[^\t]*\t?(.*)")


@dataclass(frozen=True, kw_only=True)
class Score:
    """Corpus BLEU and chrF (both 0 to 100) with sacreBLEU's signature of each."""

    bleu: float
    chrf: float
    bleu_signature: str
    chrf_signature: str


def translations(lines: Iterable[str], *, source: str) -> list[str]:
    """The detokenised translations of fairseq-generate's output, in the order of the test set.

    Args:
        lines: the lines of the output.
        source: the name of the output for error messages.

    Raises:
        DataError: there are no translations, or a sentence is missing, appears twice (`--nbest`
            above 1), or was skipped by fairseq.
    """
    hypotheses: dict[int, str] = {}
    for line in lines:
        if match := _DETOKENISED.fullmatch(line):
            number = int(match[1])
            if number in hypotheses:
                raise DataError(
                    f"{source}: sentence {number} is translated twice; generate with --nbest 1"
                )
            hypotheses[number] = match[2]
    if not hypotheses:
        raise DataError(
            f"{source}: no translation (no line begins with D-); give the file that "
            "fairseq-generate's output was written to, of a run that ended well"
        )
    missing = set(range(max(hypotheses) + 1)) - set(hypotheses)
    if missing:
        raise DataError(
            f"{source}: sentence {min(missing)} is missing ({len(missing)} of "
            f"{max(hypotheses) + 1} are); generation was cut short, or lacks "
            "--required-batch-size-multiple 1, without "
            "which fairseq drops the last batch"
        )
    return [hypotheses[number] for number in range(len(hypotheses))]


def has_other_targets(lines: Iterable[str], references: Sequence[str]) -> bool:
    """Tell if fairseq-generate's output is of other sentences than the references.

    Its ``T-`` lines are the references as the model splits them. Their letters and digits are
    compared, since splitting changes spaces and punctuation; sentences with unknown words are left
    out. Where fewer than half of the sentences agree, the references are others.

    Args:
        lines: the lines of the output.
        references: the raw references in the order of the test set.
    """
    targets = {
        int(match[1]): match[2]
        for line in lines
        if (match := _TARGET.fullmatch(line)) and "<unk>" not in match[2]
    }
    same = [
        _letters(html.unescape(target.replace("@@ ", ""))) == _letters(references[number])
        for number, target in targets.items()
        if number < len(references)
    ]
    return sum(same) < len(same) / 2


_SUBWORDS = {"@@ ": "--remove-bpe", "▁": "--remove-bpe sentencepiece"}
"""The marks of split words, each with the option of fairseq-generate that joins them."""


def warn_of_subwords(hypotheses: Sequence[str], references: Sequence[str], *, source: str) -> None:
    """Print a warning where translations are split into sub-words and the references are not."""
    for mark, option in _SUBWORDS.items():
        count = sum(mark in hypothesis for hypothesis in hypotheses)
        if count and not any(mark in reference for reference in references):
            print(
                f"warning: {source}: {count} of {len(hypotheses)} translations have "
                f"'{mark.strip()}', the mark of words that are split; fairseq-generate {option} "
                "joins them",
                file=sys.stderr,
            )


def _letters(text: str) -> str:
    return "".join(filter(str.isalnum, text)).casefold()


def read_lines(path: Path) -> list[str]:
    """The lines of a UTF-8 text file, broken at newlines only.

    Raises:
        DataError: the file cannot be read or is not UTF-8.
    """
    lines = StringIO(text_of(path, newline=""), newline="\n")
    return [line.rstrip("\r\n") for line in lines]


def bleu_and_chrf(
    hypotheses: Sequence[str], references: Sequence[str], *, tokenizer: str = DEFAULT
) -> Score:
    """Cased BLEU and chrF of detokenised translations, with sacreBLEU's defaults.

    Args:
        hypotheses, references: sentences, in one order.
        tokenizer: sacreBLEU's tokeniser for BLEU, such as ``zh``.

    Raises:
        DataError: the two differ in length, or are empty.
        UsageError: no such tokeniser, or a package for it is not installed.
    """
    if len(hypotheses) != len(references):
        raise DataError(
            f"{len(hypotheses)} translations but {len(references)} references: not of one test set"
        )
    if not references:
        raise DataError("no sentence to score")
    from sacrebleu.metrics.chrf import CHRF

    bleu, chrf = bleu_metric(tokenizer), CHRF()
    bleu_score = bleu.corpus_score(hypotheses, [references]).score
    chrf_score = chrf.corpus_score(hypotheses, [references]).score
    return Score(
        bleu=bleu_score,
        chrf=chrf_score,
        bleu_signature=str(bleu.get_signature()),
        chrf_signature=str(chrf.get_signature()),
    )
