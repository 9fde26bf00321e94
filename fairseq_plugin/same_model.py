"""The model's options that a training shares with the checkpoint that it begins with.

fairseq loads any weights whose names and shapes fit. Options such as ``--share-all-embeddings`` or
``--activation-fn`` change the model but neither names nor shapes, so a training that leaves them
out would silently train another model.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterator
from typing import Any

from fairseq_plugin.checkpoints import Options
from fairseq_plugin.options import HeadPrunedTransformerConfig
from fairseq_plugin.shape import output_width
from headprune.errors import UsageError

_SIDE_OPTIONS = (
    *("layers", "embed_dim", "ffn_embed_dim", "attention_heads"),
    *("normalize_before", "learned_pos"),
)

OPTIONS = (
    *(f"{side}_{name}" for side in ("encoder", "decoder") for name in _SIDE_OPTIONS),
    *("activation_fn", "no_token_positional_embeddings", "no_scale_embedding"),
    *("layernorm_embedding", "no_decoder_final_norm", "merge_src_tgt_embed"),
    *("no_cross_attention", "cross_self_attention"),
    *("adaptive_input", "adaptive_softmax_cutoff", "tie_adaptive_weights", "tie_adaptive_proj"),
)
"""Options that decide what a model computes; dropout and the like may differ."""


def require_same_model(args: Any, options: Options, *, path: str, flag: str) -> None:
    """Check that a training's model is that of the checkpoint that it begins with.

    Units that are pruned may differ: weights are cut to the plan.

    Args:
        args: the options of the model to train.
        options: the options of the model in the checkpoint.
        path: the checkpoint, for the error message.
        flag: the option of the command that names the checkpoint.

    Raises:
        UsageError: options differ; the message lists them.
    """
    differences = list(_differences(args, Namespace(**options.values)))
    if differences:
        raise UsageError(
            f"{flag}: the model of {path} has other options than this command: "
            f"{'; '.join(differences)}. Give the options that it was trained with "
            f"(--arch {options.get('arch') or options.get('_name')})"
        )


def _differences(args: Any, stored: Namespace) -> Iterator[str]:
    ours, theirs = (HeadPrunedTransformerConfig.from_namespace(each) for each in (args, stored))
    tied, stored_tied = _tied_embeddings(ours), _tied_embeddings(theirs)
    if tied != stored_tied:
        yield f"{stored_tied} in the checkpoint, {tied} here"
    if (width := output_width(args)) != (stored_width := output_width(stored)):
        yield f"--decoder-output-dim {stored_width} in the checkpoint, {width} here"
    for name in (*OPTIONS, *further_sizes(theirs)):
        if name.endswith("_layers") and getattr(args, f"{name}_to_keep", None):
            continue  # checkpoints of version 0.1.0 have the number of the remaining layers
        value, stored_value = shown(getattr(ours, name)), shown(getattr(theirs, name))
        if value != stored_value:
            yield f"--{name.replace('_', '-')} {stored_value} in the checkpoint, {value} here"


def further_sizes(options: Any) -> Iterator[str]:
    """The names of sizes that only some models have: learned positions, an adaptive softmax."""
    for side, text in (("encoder", "source"), ("decoder", "target")):
        if getattr(options, f"{side}_learned_pos", False):
            yield f"max_{text}_positions"
    if getattr(options, "adaptive_softmax_cutoff", None):
        yield "adaptive_softmax_factor"


def _tied_embeddings(config: HeadPrunedTransformerConfig) -> str:
    """The option that ties embeddings; fairseq derives the second one from the first."""
    if config.share_all_embeddings:
        return "--share-all-embeddings"
    if config.share_decoder_input_output_embed:
        return "--share-decoder-input-output-embed"
    return "separate embeddings"


def shown(value: Any) -> str:
    """A value in one form: options come from the command line, from YAML and from checkpoints."""
    if value is None or value is False or value == "":
        return "off"
    if value is True:
        return "on"
    return str(value).strip("[]() ").replace(" ", "")
