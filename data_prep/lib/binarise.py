"""Dictionaries and binarised texts, identical to those of fairseq-preprocess but written faster.

fairseq's own classes write the dictionary and the files. Its loops are replaced: they count, look
up and store one token at a time, which takes ten times as long. The remaining work is so small that
one process is faster than several, to which lines would have to be sent.
"""

from __future__ import annotations

import argparse
import logging
import os
import shutil
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from data_prep.lib.cli import progress, run
from data_prep.lib.corpus import read

if TYPE_CHECKING:
    from fairseq.data import Dictionary

SPLITS = ("train", "valid")


def build_dictionary(texts: Iterable[Path]) -> Dictionary:
    """Collect the tokens of texts, the most frequent first, in fairseq-preprocess's order."""
    from fairseq.data import Dictionary

    dictionary = Dictionary()
    for text in texts:
        lines = progress(read(text), what=f"count tokens of {text.name}")
        for token, count in Counter(chain.from_iterable(map(str.split, lines))).items():
            dictionary.add_symbol(token, n=count)
    dictionary.finalize()
    return dictionary


def write_dataset(text: Path, prefix: Path, *, dictionary: Dictionary) -> str:
    """Write a text as ``PREFIX.bin`` and ``PREFIX.idx``.

    Returns:
        A line for the log with the numbers of sentences, tokens and unknown tokens.
    """
    import torch
    from fairseq.data import indexed_dataset

    builder = indexed_dataset.make_builder(
        indexed_dataset.data_file_path(str(prefix)), impl="mmap", vocab_size=len(dictionary)
    )
    number_of, unknown = dictionary.indices.get, dictionary.unk()
    sentences = tokens = replaced = 0
    for line in progress(read(text), what=f"binarise {text.name}"):
        line_tokens = line.split()
        ids = [number_of(token, unknown) for token in line_tokens]
        ids.append(dictionary.eos())
        builder.add_item(torch.tensor(ids, dtype=torch.int32))  # (tokens of the line + 1,)
        sentences += 1
        tokens += len(ids)
        replaced += ids.count(unknown) - line_tokens.count(dictionary.unk_word)
    builder.finalize(indexed_dataset.index_file_path(str(prefix)))
    return (
        f"{text}: {sentences} sents, {tokens} tokens, "
        f"{replaced / max(tokens, 1):.3%} replaced (by {dictionary.unk_word})"
    )


def main(arguments: Sequence[str]) -> None:
    """Binarise the train, valid and test sets of a folder."""
    parser = argparse.ArgumentParser(
        prog="python -m data_prep.lib.binarise",
        description="Write the files that fairseq-preprocess would write for "
        "FOLDER/{train,valid,test}.{SOURCE,TARGET}: dictionaries of train, and the binarised "
        "texts.",
    )
    parser.add_argument("--source-lang", required=True)
    parser.add_argument("--target-lang", required=True)
    parser.add_argument("--separate-dictionaries", action="store_true")
    parser.add_argument("--tests", nargs="+", default=["test"], metavar="NAME")
    parser.add_argument("folder", type=Path)
    parser.add_argument("output", type=Path)
    options = parser.parse_args(arguments)
    # It logs that tensorboardX is missing whenever fairseq's tasks are imported.
    logging.getLogger("fairseq.tasks.text_to_speech").setLevel(logging.WARNING)

    languages = (options.source_lang, options.target_lang)
    training = [options.folder / f"train.{language}" for language in languages]
    if options.separate_dictionaries:
        dictionaries = [build_dictionary([text]) for text in training]
    else:
        dictionaries = [build_dictionary(training)] * 2

    temporary = options.output.with_name(f".{options.output.name}.{os.getpid()}.tmp")
    temporary.mkdir(parents=True)
    try:
        log = []
        for language, dictionary in zip(languages, dictionaries, strict=True):
            dictionary.save(str(temporary / f"dict.{language}.txt"))
            log.append(f"[{language}] Dictionary: {len(dictionary)} types")
            for split in (*SPLITS, *options.tests):
                summary = write_dataset(
                    options.folder / f"{split}.{language}",
                    temporary / f"{split}.{'-'.join(languages)}.{language}",
                    dictionary=dictionary,
                )
                log.append(f"[{language}] {summary}")
        (temporary / "preprocess.log").write_text("\n".join(log) + "\n", encoding="utf-8")
        shutil.rmtree(options.output, ignore_errors=True)
        temporary.rename(options.output)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


if __name__ == "__main__":
    run(main)
