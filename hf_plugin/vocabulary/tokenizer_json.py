"""Fast tokenizers: entries are removed from tokenizer.json, with their merges and scores."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from headprune.errors import UsageError
from headprune.vocabulary import single_characters, with_parts

FILE = "tokenizer.json"

_MARKS = ("##", "\u2581", "</w>")
_BYTE = re.compile(r"<0x[0-9A-F]{2}>")


def entries(content: Mapping[str, Any]) -> dict[str, int]:
    """All entries with their numbers: those of the model, and added tokens."""
    model = content["model"]
    vocabulary = model["vocab"]
    if model["type"] == "Unigram":
        numbered = {piece: number for number, (piece, _) in enumerate(vocabulary)}
    else:
        numbered = dict(vocabulary)
    return numbered | {token["content"]: token["id"] for token in content["added_tokens"]}


def kept_entries(content: Mapping[str, Any], used: set[str]) -> set[str]:
    """The entries that texts of the ``used`` tokens need to be split as before.

    Besides the used tokens these are all added tokens, single characters and bytes, and

    - of byte-pair encoding, the tokens that kept ones are merged from;
    - of a unigram model, one entry with the lowest score, on which that of unknown characters
      depends. The best split of a text stays the best among fewer ones.

    The longest match of WordPiece stays the longest.

    Raises:
        UsageError: another kind of model.
    """
    model = content["model"]
    kind = model["type"]
    vocabulary = set(entries(content))
    kept = used | {token["content"] for token in content["added_tokens"]}
    kept |= single_characters(vocabulary, used, marks=_MARKS)
    kept |= {token for token in vocabulary if _BYTE.fullmatch(token)}
    if model.get("unk_token") is not None:
        kept.add(model["unk_token"])
    if kind == "Unigram":
        lowest = min(model["vocab"], key=lambda entry: entry[1])[0]
        kept.add(lowest)
        if model["unk_id"] is not None:
            kept.add(model["vocab"][model["unk_id"]][0])
    elif kind == "BPE":
        if "ByteLevel" in json.dumps([content["pre_tokenizer"], content["normalizer"]]):
            kept |= {token for token in vocabulary if len(token) == 1}
        pairs: dict[str, list[tuple[str, str]]] = {}
        for left, right in map(_pair, model["merges"]):
            pairs.setdefault(left + right, []).append((left, right))
        kept = with_parts(kept, pairs)
    elif kind not in ("WordPiece", "WordLevel"):
        raise UsageError(f"a tokenizer of the kind {kind}, whose vocabulary cannot be trimmed")
    return kept & vocabulary


def trim(path: Path, numbers: Mapping[int, int]) -> None:
    """Remove entries from a file tokenizer.json, and number the others anew.

    Args:
        numbers: from the numbers of kept entries to the new ones, in the same order.
    """
    content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    model = content["model"]
    if model["type"] == "Unigram":
        unknown = model["unk_id"]
        model["vocab"] = [entry for number, entry in enumerate(model["vocab"]) if number in numbers]
        model["unk_id"] = None if unknown is None else numbers[unknown]
    else:
        model["vocab"] = {
            token: numbers[number] for token, number in model["vocab"].items() if number in numbers
        }
    if "merges" in model:
        pairs, known = map(_pair, model["merges"]), set(model["vocab"])
        kept = [pair for pair in pairs if {*pair, "".join(pair)} <= known]
        model["merges"] = [list(pair) for pair in kept]
    content["added_tokens"] = [
        {**token, "id": numbers[token["id"]]} for token in content["added_tokens"]
    ]
    content["post_processor"] = _renumbered(content["post_processor"], numbers)
    if content.get("padding"):
        content["padding"]["pad_id"] = numbers[content["padding"]["pad_id"]]
    path.write_text(json.dumps(content, ensure_ascii=False), encoding="utf-8")


def _pair(merge: Any) -> tuple[str, str]:
    """A merge, which older files write as a text with a space."""
    left, right = merge.split(" ") if isinstance(merge, str) else merge
    return left, right


def _renumbered(processor: Any, numbers: Mapping[int, int]) -> Any:
    """A post-processor with new numbers of its special tokens."""
    if isinstance(processor, list):
        return [_renumbered(each, numbers) for each in processor]
    if not isinstance(processor, dict):
        return processor
    renewed = {name: _renumbered(value, numbers) for name, value in processor.items()}
    if isinstance(processor.get("ids"), list):
        renewed["ids"] = [numbers[number] for number in processor["ids"]]
    for name in ("sep", "cls"):  # [token, number]
        if isinstance(processor.get(name), list):
            renewed[name] = [processor[name][0], numbers[processor[name][1]]]
    return renewed
