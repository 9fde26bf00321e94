"""The tools for a pair of languages: Moses tokenisation where sacremoses knows both."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Sequence

from data_prep.lib.cli import run
from headprune.errors import UsageError
from headprune.results.bleu_tokenizers import missing_package, tokenizer_for

_UNSPACED = frozenset(("zh", "yue", "ja", "th", "lo", "km", "my", "bo", "dz"))
"""Languages that are written without spaces between words. sacremoses has rules for some of them,
but cannot find their words."""

_UNSPACED_CHARACTER = re.compile(
    "[\u0e00-\u0fff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
    "\U00020000-\U0003ffff]"
)


def primary(language: str) -> str:
    """The language of a code without region or script: ``zh`` of ``zh_CN``."""
    return re.split("[-_]", language.lower())[0]


def is_unspaced(language: str) -> bool:
    """Tell if a language is written without spaces between words."""
    return primary(language) in _UNSPACED


def known_to_moses(language: str) -> bool:
    """Tell if sacremoses has rules for a language."""
    from sacremoses.corpus import NonbreakingPrefixes

    known = NonbreakingPrefixes().available_langs.values()
    return primary(language) in known and not is_unspaced(language)


def length(text: str) -> int:
    """The number of words, where each character of a script without spaces is one."""
    rest, characters = _UNSPACED_CHARACTER.subn(" ", text)
    return characters + len(rest.split())


def subwords_for(languages: Sequence[str], *, given: str | None = None) -> str:
    """The kind of sub-words for a pair of languages: ``subword-nmt`` or ``sentencepiece``.

    Args:
        languages: codes such as ``de``.
        given: the kind that was asked for.

    Raises:
        UsageError: subword-nmt is asked for, and the Moses tokeniser does not know a language.
    """
    unknown = [language for language in languages if not known_to_moses(language)]
    if given == "subword-nmt" and unknown:
        raise UsageError(
            f"--bpe subword-nmt: the Moses tokeniser does not know the language {unknown[0]}; "
            "leave the option out for sentencepiece"
        )
    return given or ("sentencepiece" if unknown else "subword-nmt")


def main(arguments: Sequence[str]) -> None:
    """Print the kind of sub-words for a pair of languages."""
    parser = argparse.ArgumentParser(prog="python -m data_prep.lib.languages", description=__doc__)
    parser.add_argument("--bpe", help="the kind that was asked for")
    parser.add_argument("languages", nargs=2, metavar="LANGUAGE")
    parser.add_argument("--ratio", action="store_true", help="print the default ratio instead")
    options = parser.parse_args(arguments)
    if options.ratio:
        print(2 if any(map(is_unspaced, options.languages)) else 1.5)
        return
    kind = subwords_for(options.languages, given=options.bpe)
    if kind != options.bpe and kind == "sentencepiece":
        unknown = [each for each in options.languages if not known_to_moses(each)]
        print(
            f"note: sentencepiece, since the Moses tokeniser does not know {' and '.join(unknown)}",
            file=sys.stderr,
        )
    for language in options.languages:
        package = missing_package(tokenizer_for(language))
        if package is not None:
            print(f"note: BLEU into {language} needs: pip install '{package}'", file=sys.stderr)
    print(kind)


if __name__ == "__main__":
    run(main)
