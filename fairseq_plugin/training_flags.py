"""The flags of fairseq-train that describe the model in a checkpoint."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterator, Mapping
from typing import Any

from fairseq.models import ARCH_MODEL_INV_REGISTRY

from fairseq_plugin.flags import check_flags
from fairseq_plugin.same_model import OPTIONS, further_sizes, shown
from fairseq_plugin.shape import output_width

_ARCH = "transformer_headpruned"
_TYING = ("share_all_embeddings", "share_decoder_input_output_embed")
_RATES = ("dropout", "attention_dropout", "activation_dropout")


def training_flags(options: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """The architecture that is most like a checkpoint's model, and the options that differ.

    Args:
        options: the model's options in the checkpoint.

    Returns:
        The name of one of the plugin's architectures, and other options of the model, by their
        names on the command line without dashes; ``True`` for a flag without a value.
    """
    stored = Namespace(**options)
    defaults = {arch: check_flags("train", ["--arch", arch]) for arch in _architectures()}
    found = {arch: dict(_differences(stored, each)) for arch, each in defaults.items()}
    # First without options that are on in the architecture: no flag turns them off.
    arch = min(found, key=lambda name: (_only_on(stored, defaults[name]), len(found[name])))
    return arch, found[arch]


def _architectures() -> list[str]:
    return list(ARCH_MODEL_INV_REGISTRY[_ARCH])


def learning_rate(state: Mapping[str, Any]) -> float | None:
    """The highest learning rate of the training of a checkpoint; None if it does not say."""
    cfg, args = state.get("cfg"), state.get("args")
    section = cfg.get("optimization") if isinstance(cfg, dict) else None
    options = section if isinstance(section, dict) else vars(args) if args is not None else {}
    rates = options.get("lr")
    return max(map(float, rates)) if isinstance(rates, (list, tuple)) and rates else None


def _only_on(stored: Namespace, defaults: Namespace) -> int:
    """The number of options that are off in a model, and on in an architecture."""
    return sum(
        getattr(stored, name, None) is False and getattr(defaults, name, None) is True
        for name in (*OPTIONS, *_TYING)
    )


def _sizes(stored: Namespace) -> Iterator[str]:
    """Names of further sizes that some models have."""
    yield from further_sizes(stored)
    if output_width(stored) != stored.decoder_embed_dim:
        yield "decoder_output_dim"


def _differences(stored: Namespace, defaults: Namespace) -> list[tuple[str, Any]]:
    """The options of a stored model whose values differ from the defaults."""
    differences = []
    for name in (*OPTIONS, *_TYING, *_RATES, *_sizes(stored)):
        value = getattr(stored, name, None)
        if value is None or value is False or value == "":
            continue  # no flag says so; where it matters, the checkpoint is refused later
        if shown(value) != shown(getattr(defaults, name, None)):
            # fairseq has made numbers of a text such as 10,20.
            value = shown(value) if isinstance(value, (list, tuple)) else value
            differences.append((name.replace("_", "-"), value))
    return differences
