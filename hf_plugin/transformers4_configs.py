"""The entries of a config from which transformers 4 takes what transformers 5 writes elsewhere.

Transformers 5 writes the rotary positions into ``rope_parameters`` and the kinds of attention into
``layer_types``. Without entries of its own transformers 4 takes its defaults, and computes other
outputs without an error.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headprune.files import write_text_atomically
from headprune.json_files import json_object

_FULL, _SLIDING = "full_attention", "sliding_attention"

_THETAS = {
    "gemma3_text": {_FULL: "rope_theta", _SLIDING: "rope_local_base_freq"},
    "modernbert": {_FULL: "global_rope_theta", _SLIDING: "local_rope_theta"},
}
"""For families with rotary positions of their own for each kind of attention, the entries of theta.
"""

_SCALED = {"gemma3_text": _FULL}
"""For these families, the only kind of attention whose positions ``rope_scaling`` scales."""

_ROPE_TYPES = ("linear", "dynamic", "llama3")
"""The types of scaled rotary positions that both versions compute alike; yarn mostly."""


@dataclass(frozen=True)
class _Pattern:
    """Rule by which transformers 4 derives a layer's kind of attention.

    Attributes:
        is_full: takes the number of a layer and that of the pattern; whether the attention is full.
        default: the number of the pattern where the config has none.
        entry: the entry with this number, if there is one.
        versions: those that do not read ``layer_types``.
    """

    is_full: Callable[[int, int], bool]
    default: int
    entry: str | None = None
    versions: str = "transformers before 4.53"

    def number(self, config: dict[str, Any]) -> int | None:
        """The number of the pattern that the layers follow, the config's own if it is right."""
        kinds = [kind == _FULL for kind in config["layer_types"]]
        given = self.default if self.entry is None else config.get(self.entry, self.default)
        others = range(1, len(kinds) + 2) if self.entry is not None else ()
        for number in (given, *others):
            if all(self.is_full(layer, number) is kind for layer, kind in enumerate(kinds)):
                return int(number)
        return None


def _is_last_of(layer: int, period: int) -> bool:
    return (layer + 1) % period == 0


_PATTERNS = {
    "gemma2": _Pattern(_is_last_of, default=2),
    "gemma3_text": _Pattern(_is_last_of, default=6, entry="sliding_window_pattern"),
    "modernbert": _Pattern(
        lambda layer, period: layer % period == 0,
        default=3,
        entry="global_attn_every_n_layers",
        versions="transformers 4",
    ),
    # The sliding window of these was for one implementation of attention only.
    **dict.fromkeys(("qwen2", "qwen3"), _Pattern(lambda layer, _: True, default=1)),
}

_CLIP = ("clip_text_model", "clip_vision_model")


def add_entries(folder: Path) -> tuple[str, ...]:
    """Add the entries of transformers 4 to the config.json of a folder, which is written anew.

    Returns:
        Each reason why transformers 4 computes other outputs nevertheless, in a sentence.
    """
    path = folder / "config.json"
    config = json_object(path)
    entries = {**_positions(config), **_number_of_pattern(config)}
    if entries:
        text = json.dumps({**config, **entries}, indent=2, sort_keys=True)
        write_text_atomically(path, f"{text}\n")
    return tuple(_differences(config))


def _by_kind(config: dict[str, Any]) -> dict[str | None, dict[str, Any]]:
    """The rotary positions of each kind of attention; those of all kinds have the key None."""
    rope = config.get("rope_parameters") or {}
    if config["model_type"] in _THETAS:
        return {kind: rope[kind] for kind in (_FULL, _SLIDING)}
    return {None: rope} if "rope_theta" in rope else {}


def _positions(config: dict[str, Any]) -> dict[str, Any]:
    """The entries of the rotary positions; none where the model has no such positions."""
    family = config["model_type"]
    entries: dict[str, Any] = {}
    for kind, rope in _by_kind(config).items():
        entries["rope_theta" if kind is None else _THETAS[family][kind]] = rope["rope_theta"]
        if kind == _SCALED.get(family):
            entries["rope_scaling"] = _scaling(rope, config)
            if "partial_rotary_factor" in rope:
                entries["partial_rotary_factor"] = rope["partial_rotary_factor"]
    return entries


def _scaling(rope: dict[str, Any], config: dict[str, Any]) -> dict[str, Any] | None:
    """The entry ``rope_scaling`` for rotary positions; None where they are not scaled."""
    if rope["rope_type"] == "default":
        return None
    scaling = {
        key: value
        for key, value in rope.items()
        if key not in ("rope_theta", "partial_rotary_factor")
    }
    if rope["rope_type"] == "yarn" and _original_length(rope) == config["max_position_embeddings"]:
        # This is the default. Some versions would replace the factor by the ratio of both: 1.
        del scaling["original_max_position_embeddings"]
    return scaling


def _number_of_pattern(config: dict[str, Any]) -> dict[str, int]:
    """The entry with the number of the pattern of attentions; none where no pattern fits."""
    pattern = _PATTERNS.get(config["model_type"])
    if pattern is None or pattern.entry is None or not config.get("layer_types"):
        return {}
    number = pattern.number(config)
    return {} if number is None else {pattern.entry: number}


def _differences(config: dict[str, Any]) -> list[str]:
    """The reasons why transformers 4 computes other outputs, whatever entries it gets."""
    reasons = []
    family = config["model_type"]
    if family in _CLIP or (family == "esm" and config.get("position_embedding_type") == "rotary"):
        reasons.append(
            f"transformers 4 does not find all weights: its {family} names them otherwise"
        )
    pattern = _PATTERNS.get(family)
    if pattern is not None and config.get("layer_types") and pattern.number(config) is None:
        reasons.append(
            f"{pattern.versions} computes other outputs: it does not read which layers of a "
            f"{family} have sliding attention (layer_types), and assumes others"
        )
    for kind, rope in _by_kind(config).items():
        can_be_scaled = kind == _SCALED.get(family)
        if rope["rope_type"] != "default" and not (can_be_scaled and _is_alike(rope, config)):
            reasons.append(
                f"transformers 4 may compute other outputs: its {family} has no such rotary "
                f"positions ({rope['rope_type']})"
            )
    return reasons


def _is_alike(rope: dict[str, Any], config: dict[str, Any]) -> bool:
    """Check that both versions scale rotary positions alike."""
    if rope["rope_type"] == "yarn":
        # Some versions take the ratio of both lengths for the factor.
        original, length = _original_length(rope), config["max_position_embeddings"]
        return length in (original, (rope["factor"] or 0) * original)
    return rope["rope_type"] in _ROPE_TYPES


def _original_length(rope: dict[str, Any]) -> int:
    """The number of positions that a model with yarn was trained with at first."""
    return int(rope["original_max_position_embeddings"])
