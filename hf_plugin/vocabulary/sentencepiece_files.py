"""Tokenizers of sentencepiece models with a vocab.json beside them: Marian's and M2M100's."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from headprune.errors import needing
from headprune.vocabulary import single_characters, splits_of, with_parts

VOCABULARY = "vocab.json"
_MARKS = ("\u2581",)
_NORMAL, _BPE = 1, 2
"""Numbers of sentencepiece's protocol: the type of ordinary pieces, the kind of a model."""


def model_files(folder: Path) -> list[Path]:
    """The sentencepiece models in a tokenizer's folder."""
    return sorted([*folder.glob("*.spm"), *folder.glob("*.model")])


def kept_entries(folder: Path, used: set[str]) -> set[str]:
    """The entries and pieces that texts of the ``used`` tokens need to be split as before.

    See ``hf_plugin.vocabulary.tokenizer_json.kept_entries``.
    """
    vocabulary = json.loads((folder / VOCABULARY).read_text(encoding="utf-8"))
    kept = used | single_characters(vocabulary, used, marks=_MARKS)
    for path in model_files(folder):
        proto = _read(path)
        pieces = {piece.piece for piece in proto.pieces}
        kept |= {piece.piece for piece in proto.pieces if piece.type != _NORMAL}
        if proto.trainer_spec.model_type == _BPE:
            pairs = {token: splits_of(token, pieces) for token in pieces}
            kept = with_parts(kept, pairs)
        else:
            normal = [piece for piece in proto.pieces if piece.type == _NORMAL]
            kept.add(min(normal, key=lambda piece: piece.score).piece)
    return kept


def trim(folder: Path, kept: set[str], numbers: Mapping[int, int]) -> None:
    """Remove entries from vocab.json and pieces from the sentencepiece models of a folder.

    Args:
        kept: the pieces to keep.
        numbers: from the numbers of kept entries to the new ones, in the same order.
    """
    path = folder / VOCABULARY
    vocabulary = json.loads(path.read_text(encoding="utf-8"))
    remaining = {
        token: numbers[number] for token, number in vocabulary.items() if number in numbers
    }
    path.write_text(json.dumps(remaining, ensure_ascii=False), encoding="utf-8")
    for file in model_files(folder):
        proto = _read(file)
        pieces = [piece for piece in proto.pieces if piece.piece in kept or piece.type != _NORMAL]
        del proto.pieces[:]
        proto.pieces.extend(pieces)
        proto.trainer_spec.vocab_size = len(pieces)
        file.write_bytes(proto.SerializeToString())


def _read(path: Path) -> Any:
    with needing(
        "reading sentencepiece models needs sentencepiece and protobuf",
        install="pip install sentencepiece protobuf",
    ):
        from sentencepiece import sentencepiece_model_pb2
    proto = sentencepiece_model_pb2.ModelProto()  # type: ignore[attr-defined]
    proto.ParseFromString(path.read_bytes())
    return proto
