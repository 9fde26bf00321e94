"""Trim the vocabulary of a checkpoint: dictionaries, embeddings and output projection."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from fairseq.data import Dictionary
from torch import Tensor

from data_prep.lib.text import TextProcessing
from fairseq_plugin.checkpoints import Checkpoint
from fairseq_plugin.loading import (
    fairseq_silent,
    languages_of,
    load_model,
    set_data,
    trained_on,
)
from headprune.errors import DataError, UsageError
from headprune.folders import new_folder
from headprune.vocabulary import TokenCounts, Trimmed

MODEL = "model.pt"

_EMBEDDINGS = {
    "encoder.embed_tokens.weight": 0,
    "decoder.embed_tokens.weight": 1,
    "decoder.output_projection.weight": 1,
}
"""Weights with a row for each entry of the source's (0) or the target's (1) dictionary."""

_COMPARED = 8
_TOLERANCE = 1e-4


def trim_vocabulary(
    path: Path,
    output: Path,
    *,
    text: Sequence[str],
    held_out: Sequence[str],
    data: Path | None = None,
) -> Trimmed:
    """Write a checkpoint and dictionaries without the words that a text never uses.

    Sub-words are words here: how text is split does not depend on the dictionaries.

    Args:
        path: the checkpoint.
        output: the new folder, for model.pt, the dictionaries and, where the data have a prep.json,
            what of it says how text is split.
        text: lines of both languages; raw where a prep.json beside the data says how text is split,
            else words or sub-words with spaces between them.
        held_out: lines to count words of, as source and as target text; may be empty.
        data: the folder of the dictionaries; default: the data that the checkpoint was trained on.

    Raises:
        UsageError: a checkpoint of another task, or one with learned gates.
        DataError: files that cannot be read or written, or outputs that would change.
    """
    checkpoint = Checkpoint.load(path)
    checkpoint.require_no_gates()
    options = checkpoint.options
    if options.get("adaptive_softmax_cutoff") or options.get("adaptive_input"):
        raise UsageError(
            f"{path}: the vocabulary of a model with --adaptive-softmax-cutoff or --adaptive-input "
            "cannot be trimmed: it is in parts, by the frequencies of words"
        )
    folder = data or trained_on(checkpoint)
    languages = languages_of(checkpoint, folder)
    with fairseq_silent():
        whole, task = load_model(checkpoint, folder)
        dictionaries = task.source_dictionary, task.target_dictionary
        splitters = _splitters(folder, languages)
        lines = [split(line) for line in text for split in splitters]
        used = {word for line in lines for word in line}
        kept = [_kept(dictionary, used) for dictionary in dictionaries]
        smaller = [_smaller(*pair) for pair in zip(dictionaries, kept, strict=True)]
        trimmed = checkpoint.with_rows(
            {name: torch.tensor(kept[side]) for name, side in _EMBEDDINGS.items()}
        )
        with new_folder(output) as temporary:
            for language, dictionary in zip(languages, smaller, strict=True):
                dictionary.save(str(temporary / f"dict.{language}.txt"))
            TextProcessing.copy_preparation(folder, temporary)
            set_data(trimmed, output.absolute(), languages=languages)
            trimmed.save(temporary / MODEL)
            renewed, _ = load_model(trimmed, temporary)
            for line in lines[:: max(1, len(lines) // _COMPARED)]:
                before = _logits(whole, line, dictionaries)[..., kept[1]]
                after = _logits(renewed, line, smaller)
                if not torch.allclose(before, after, atol=_TOLERANCE, rtol=_TOLERANCE):
                    raise DataError(f"{path}: cannot be trimmed: its outputs would change")
    names = [f"dict.{language}.txt" for language in languages]
    counts = {}
    if held_out:
        for name, split, old, new in zip(names, splitters, dictionaries, smaller, strict=True):
            words = [word for line in held_out for word in split(line)]
            counts[name] = _counts(words, old), _counts(words, new)
    return Trimmed(
        sizes={
            name: (len(old), len(new))
            for name, old, new in zip(names, dictionaries, smaller, strict=True)
        },
        parameters=(checkpoint.parameters, trimmed.parameters),
        held_out=counts,
    )


def _splitters(folder: Path, languages: tuple[str, str]) -> list[Callable[[str], list[str]]]:
    """Functions that split a line of the source's, and of the target's language."""
    splitters = []
    for source, target in (languages, languages[::-1]):
        processing = TextProcessing.of_preparation(folder, source_lang=source, target_lang=target)
        splitters.append(str.split if processing is None else processing.splitter())
    return splitters


def _kept(dictionary: Dictionary, used: set[str]) -> list[int]:
    """The numbers of <s>, <pad>, </s>, <unk> and of used words."""
    words = range(dictionary.nspecial, len(dictionary))
    return [
        *range(dictionary.nspecial),
        *(number for number in words if dictionary.symbols[number] in used),
    ]


def _smaller(dictionary: Dictionary, kept: Sequence[int]) -> Dictionary:
    smaller = Dictionary()
    for number in kept[dictionary.nspecial :]:
        smaller.add_symbol(dictionary.symbols[number], n=dictionary.count[number])
    return smaller


@torch.no_grad()
def _logits(model: Any, line: Sequence[str], dictionaries: Sequence[Dictionary]) -> Tensor:
    """The outputs for a line as source and target."""
    limit = min(model.max_positions()) - 1
    source, target = (
        torch.tensor([[*map(words.index, line[:limit]), words.eos()]]) for words in dictionaries
    )
    lengths = torch.tensor([source.size(1)])
    logits: Tensor = model(source, lengths, target.roll(1, dims=1))[0]  # 1 x T x V
    return logits


def _counts(words: Sequence[str], dictionary: Dictionary) -> TokenCounts:
    """Words, and those that are not in the dictionary."""
    known = set(dictionary.symbols)
    return TokenCounts(tokens=len(words), unknown=sum(word not in known for word in words))
