"""sacreBLEU's tokenisers: the one for a language, and the metric with it.

BLEU counts words, so text of languages without spaces has to be split first. sacreBLEU's default,
13a, would take a Chinese sentence as one word.
"""

from __future__ import annotations

import re
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from headprune.errors import UsageError
from headprune.json_files import json_object

if TYPE_CHECKING:
    from sacrebleu.metrics.bleu import BLEU

DEFAULT = "13a"

_OF_LANGUAGES = {
    **dict.fromkeys(("zh", "yue"), "zh"),
    "ja": "ja-mecab",
    "ko": "ko-mecab",
    # Written without spaces; sacreBLEU has no segmentation of their words.
    **dict.fromkeys(("th", "lo", "km", "my", "bo", "dz"), "char"),
}

_PACKAGES = {"ja-mecab": ("MeCab", "sacrebleu[ja]"), "ko-mecab": ("mecab_ko", "sacrebleu[ko]")}
"""The module that a tokeniser needs, and what to install for it."""

_IN_SIGNATURE = re.compile(r"(?:^|\|)tok:([^|]+)")


def tokenizer_for(language: str) -> str:
    """sacreBLEU's name of the tokeniser for a language such as ``de`` or ``zh_CN``."""
    return _OF_LANGUAGES.get(re.split("[-_]", language.lower())[0], DEFAULT)


def missing_package(tokenizer: str) -> str | None:
    """The package that a tokeniser needs and that is not installed; None if nothing is missing."""
    module, package = _PACKAGES.get(tokenizer, ("", ""))
    return package if module and find_spec(module) is None else None


def require_package(tokenizer: str) -> None:
    """Raise a UsageError if a tokeniser needs a package that is not installed."""
    package = missing_package(tokenizer)
    if package is not None:
        raise UsageError(f"sacreBLEU's tokenizer {tokenizer} needs: pip install '{package}'")


def tokenizer_of(signature: str) -> str:
    """The tokeniser that sacreBLEU's signature of BLEU names.

    After the name, MeCab's tokenisers have the version and the dictionary there:
    ``ja-mecab-0.996-IPA``.
    """
    match = _IN_SIGNATURE.search(signature)
    if match is None:
        return DEFAULT
    versioned = (name for name in _PACKAGES if match[1].startswith(f"{name}-"))
    return next(versioned, match[1])


def tokenizer_of_reference(path: Path) -> str:
    """The tokeniser for a reference: the one that a data preparation recorded, else by its suffix.

    Args:
        path: the raw text, such as ``DIR/raw/test.zh`` with ``DIR/prep.json``, or any file that
            ends in the code of its language, such as ``ref.zh``; for other files it is sacreBLEU's
            default.

    Raises:
        DataError: prep.json is damaged.
    """
    language = path.suffix.removeprefix(".")
    manifest = path.absolute().parent.parent / "prep.json"
    if path.absolute().parent.name == "raw" and manifest.is_file():
        recorded = json_object(manifest).get("sacrebleu_tokenizers")
        if isinstance(recorded, dict) and language in recorded:
            return str(recorded[language])
    return tokenizer_for(language)


def bleu_metric(tokenizer: str = DEFAULT) -> BLEU:
    """sacreBLEU's BLEU with a tokeniser.

    Raises:
        UsageError: sacreBLEU has no such tokeniser, or a package for it is not installed.
    """
    from sacrebleu.metrics.bleu import BLEU

    if tokenizer not in BLEU.TOKENIZERS:
        raise UsageError(f"tokenizer {tokenizer}: give one of {', '.join(sorted(BLEU.TOKENIZERS))}")
    require_package(tokenizer)
    return BLEU(tokenize=tokenizer)
