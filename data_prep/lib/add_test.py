"""Add a test set to a prepared corpus, with its codes and dictionaries."""

from __future__ import annotations

import argparse
import json
import logging
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from data_prep.lib import steps
from data_prep.lib.cli import progress, run
from data_prep.lib.corpus import read, read_parallel, write, write_lines
from data_prep.lib.hold_out import count_leaked
from data_prep.lib.pairs import Pair, read_pairs
from data_prep.lib.text import TextProcessing
from headprune.errors import DataError
from headprune.files import write_text_atomically
from headprune.json_files import json_object


def add(source: str) -> str:
    """Prepare a test set in the current folder, which holds a finished preparation.

    Args:
        source: see `data_prep.lib.pairs`.

    Returns:
        The name of the set: ``test1``, ``test2`` and so on.

    Raises:
        DataError: the folder holds no finished preparation, or the source is damaged.
    """
    if not steps.MANIFEST.is_file():
        raise DataError(f"{Path.cwd()}: no {steps.MANIFEST}, no finished preparation to add to")
    facts = json_object(steps.MANIFEST)
    languages = (str(facts["source_lang"]), str(facts["target_lang"]))
    tests: dict[str, Any] = dict(facts.get("tests") or {"test": None})
    for name, earlier in tests.items():
        if earlier == source:
            raise DataError(f"{source}: is in it already, as {name}")
    name = f"test{len(tests)}"

    def pairs() -> Iterator[Pair]:
        return progress(read_pairs(source, languages), what=f"read {Path(source).name}")

    raw = [Path("raw") / f"{name}.{language}" for language in languages]
    count = write(pairs(), *raw)
    leaked = leaked_pairs(name, languages)
    _binarise(name, raw, languages)
    facts["tests"] = {**tests, name: source}
    facts["counts"] = {**facts["counts"], name: count}
    facts["in_training"] = {**facts.get("in_training", {}), name: leaked}
    write_text_atomically(steps.MANIFEST, json.dumps(facts, indent=2, ensure_ascii=False) + "\n")
    for step in ("bin", "prep.json"):
        steps.refresh(step)
    return name


def leaked_pairs(name: str, languages: tuple[str, str]) -> int | None:
    """Count the pairs of a test set with a sentence in the training set, and warn of them.

    Sentences are compared as for held-out sets, without regard to case and spacing.

    Returns:
        The number of pairs; None, with a note, where the folder has no training text any more.
    """
    training = [Path("raw") / f"train.{language}" for language in languages]
    for path in training:
        if not path.is_file():
            print(f"note: {path}: no such file; {name} is not compared with it", file=sys.stderr)
            return None
    rows = list(read_parallel(*(Path("raw") / f"{name}.{language}" for language in languages)))
    pairs = [(source, target) for source, target in rows]
    corpus = progress(read_parallel(*training), what="compare with raw/train")
    leaked = count_leaked(pairs, ((source, target) for source, target in corpus))
    if leaked:
        print(
            f"warning: {name}: {leaked} of {len(pairs)} pairs have a sentence in the training set",
            file=sys.stderr,
        )
    return leaked


def _binarise(name: str, raw: Sequence[Path], languages: tuple[str, str]) -> None:
    """Split the two sides of a set into sub-words, and write what fairseq reads."""
    # It logs that tensorboardX is missing whenever fairseq's tasks are imported.
    logging.getLogger("fairseq.tasks.text_to_speech").setLevel(logging.WARNING)
    from fairseq.data import Dictionary

    from data_prep.lib.binarise import write_dataset

    for path, language, other in zip(raw, languages, languages[::-1], strict=True):
        processing = TextProcessing.of_preparation(
            Path("bin"), source_lang=language, target_lang=other
        )
        assert processing is not None  # prep.json is there
        split = processing.splitter()
        text = Path("bpe") / path.name
        write_lines((" ".join(split(line)) for line in read(path)), text)
        dictionary = Dictionary.load(f"bin/dict.{language}.txt")
        prefix = Path("bin") / f"{name}.{'-'.join(languages)}.{language}"
        temporary = prefix.with_name(f".{prefix.name}")
        print(write_dataset(text, temporary, dictionary=dictionary), file=sys.stderr)
        for suffix in (".bin", ".idx"):
            Path(f"{temporary}{suffix}").replace(f"{prefix}{suffix}")


def main(arguments: Sequence[str]) -> None:
    """Add a test set."""
    parser = argparse.ArgumentParser(prog="python -m data_prep.lib.add_test", description=__doc__)
    parser.add_argument("sources", nargs="+", metavar="SOURCE")
    options = parser.parse_args(arguments)
    for source in options.sources:
        name = add(source)
        print(f"{source}: added as {name}; fairseq-generate --gen-subset {name}", file=sys.stderr)


if __name__ == "__main__":
    run(main)
