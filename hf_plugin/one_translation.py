"""Options of transformers' ``generate`` for one translation of each text, as a tensor of tokens."""

from __future__ import annotations

from collections.abc import Mapping

ONE_TRANSLATION: Mapping[str, int] = {
    "do_sample": False,
    "num_return_sequences": 1,
    "return_dict_in_generate": False,
}
"""The generation config of a model may have other values."""
