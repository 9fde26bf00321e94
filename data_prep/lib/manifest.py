"""prep.json: the sources, options, tools and results of a preparation.

It also has the options with which fairseq-generate undoes the text processing.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from data_prep.lib.cli import run
from data_prep.lib.corpus import count_lines
from data_prep.lib.download import digest
from data_prep.lib.languages import primary
from data_prep.lib.steps import MANIFEST, tool_versions
from headprune.files import write_text_atomically
from headprune.json_files import json_object
from headprune.results.bleu_tokenizers import tokenizer_for

SPLITS = ("train", "valid")
DROPPED = Path("dropped.json")


def _dictionary_size(path: Path) -> int:
    # fairseq adds <s>, <pad>, </s> and <unk>, which the file does not list.
    return count_lines(path) + 4


def describe(options: argparse.Namespace) -> dict[str, Any]:
    """Collect the contents of prep.json for the preparation in the current folder."""
    moses = options.bpe == "subword-nmt"
    source, target = options.source_lang, options.target_lang
    tokenizer = "moses_truecased" if options.truecase else "moses"
    undo = (
        ["--tokenizer", tokenizer, "--remove-bpe"] if moses else ["--remove-bpe", "sentencepiece"]
    )
    splits = (*SPLITS, *options.tests)
    facts = {
        "corpus": options.corpus,
        "source_lang": source,
        "target_lang": target,
        "pair": f"{source}-{target}",
        "counts": {split: count_lines(Path("raw") / f"{split}.{target}") for split in splits},
        "options": dict(item.split("=", 1) for item in options.option),
        "seed": options.seed,
        "merges": options.merges,
        "tokenizer": "moses" if moses else None,
        "bpe": "subword_nmt" if moses else "sentencepiece",
        "bpe_codes": "bpe/codes" if moses else None,
        "sentencepiece_model": None if moses else "bpe/sentencepiece.model",
        "joined_dictionary": not options.separate_dictionaries,
        "dictionary_sizes": {
            language: _dictionary_size(Path("bin") / f"dict.{language}.txt")
            for language in (source, target)
        },
        "generate_options": [*undo, "--source-lang", source, "--target-lang", target],
        "reference": f"raw/test.{target}",
        "tests": dict(
            zip(options.tests, options.test_source or [None] * len(options.tests), strict=True)
        ),
        "sacrebleu_tokenizers": {
            language: tokenizer_for(language) for language in (source, target)
        },
        "sources": [
            {"file": path.name, "bytes": path.stat().st_size, "sha256": digest(path)}
            for path in options.source
        ],
        "tools": tool_versions(
            ["fairseq-fixed", "sacremoses", "sentencepiece", "subword-nmt", *options.tool]
        ),
    }
    if moses:
        facts["tokenizer_languages"] = {code: primary(code) for code in (source, target)}
    if options.truecase:
        facts["truecasers"] = {
            language: f"bpe/truecase.{language}" for language in (source, target)
        }
    if options.dropped:
        facts["cleaning"] = json_object(DROPPED)
    return facts


def warn_of_other_tests(tests: Collection[str], languages: tuple[str, str]) -> None:
    """Warn of test sets in raw/ that are not of this preparation.

    They were added to an earlier one, whose codes and dictionaries may have been others.
    """
    target = languages[1]
    for path in sorted(Path("raw").glob(f"test*.{target}")):
        if path.name.removesuffix(f".{target}") not in tests:
            print(
                f"warning: {path}: of an earlier preparation, not in this one; add the set again "
                "with bitext.sh --add-test, or remove its files",
                file=sys.stderr,
            )


def main(arguments: Sequence[str]) -> None:
    """Write prep.json."""
    parser = argparse.ArgumentParser(prog="python -m data_prep.lib.manifest", description=__doc__)
    parser.add_argument("--corpus", required=True)
    parser.add_argument("--source-lang", required=True)
    parser.add_argument("--target-lang", required=True)
    parser.add_argument("--bpe", choices=["subword-nmt", "sentencepiece"], required=True)
    parser.add_argument("--merges", type=int, required=True)
    parser.add_argument("--seed", type=int)
    parser.add_argument("--separate-dictionaries", action="store_true")
    parser.add_argument("--truecase", action="store_true", help="bpe/truecase.* were applied")
    parser.add_argument("--tests", nargs="+", default=["test"], metavar="NAME")
    parser.add_argument("--test-source", action="append", metavar="SOURCE")
    parser.add_argument("--dropped", action="store_true", help="dropped.json describes cleaning")
    parser.add_argument("--option", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("--source", action="append", default=[], type=Path, metavar="FILE")
    parser.add_argument("--tool", action="append", default=[], metavar="PACKAGE")
    options = parser.parse_args(arguments)
    manifest = describe(options)
    warn_of_other_tests(options.tests, (options.source_lang, options.target_lang))
    write_text_atomically(MANIFEST, json.dumps(manifest, indent=2, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    run(main)
