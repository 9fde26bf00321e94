"""Overrides of a checkpoint's options that the plugin's model has, and fairseq's does not.

fairseq ignores such options where the checkpoint's model is its own ``transformer``. They also
have to be set on the model's options alone: fairseq would write ``_name`` into those of the task,
and leave out what a checkpoint of plain values does not name.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields
from functools import cache
from typing import Any

from fairseq.file_io import PathManager
from fairseq.models.transformer import TransformerConfig
from omegaconf import DictConfig, open_dict

from fairseq_plugin.checkpoints import read_model
from fairseq_plugin.options import HeadPrunedTransformerConfig
from headprune.errors import UsageError

ARCH = "transformer_headpruned"
"""The beginning of the names of the plugin's architectures."""

_PLANS = ("plan", "head_plan")
_NO_CHANGE = (None, "none")
"""Values with which an option changes nothing, so that any model may be given it."""


def require_own_model(overrides: Mapping[str, Any], paths: Iterable[str]) -> None:
    """Check that checkpoints whose options of the plugin are overridden are models of the plugin.

    Raises:
        UsageError: one of them is a model of fairseq, which ignores such options.
    """
    name = next((name for name in overrides if _changes(name, overrides[name])), None)
    if name is None or _is_own(overrides.get("_name")):
        return
    for path in paths:
        state, options = read_model(PathManager.get_local_path(path))
        arch = overrides.get("_name") or options.get("_name") or options.get("arch")
        if state.get("args") is not None:  # of an older fairseq, which goes by this name
            arch = overrides.get("arch", options.get("arch"))
        if not _is_own(arch):
            raise UsageError(
                f"--model-overrides: {path} is a model of fairseq ({arch}), which has no option "
                f"{name!r}; for a Transformer add '_name': '{ARCH}' to the overrides"
            )


def take_own(overrides: dict[str, Any]) -> dict[str, Any]:
    """Remove the overrides of the plugin's options and of the name of its model; return them.

    A plan is named ``head_plan``, as in checkpoints.

    Raises:
        UsageError: a plan is given twice.
    """
    own = {name: overrides.pop(name) for name in _own_options() if name in overrides}
    if _is_own(overrides.get("_name")):
        own["_name"] = overrides.pop("_name")
    plans = [plan for name in _PLANS if (plan := own.pop(name, None))]
    if len(plans) > 1:
        raise UsageError("--model-overrides: plan and head_plan mean the same; give one")
    return own | ({"head_plan": plans[0]} if plans else {})


def apply(own: Mapping[str, Any], state: Mapping[str, Any]) -> None:
    """Set options of the model in a checkpoint that fairseq has read, in place."""
    cfg, args = state.get("cfg"), state.get("args")
    if args is not None:
        # fairseq makes the model's name from the architecture's where it finds such options.
        _set(args, {"arch" if name == "_name" else name: value for name, value in own.items()})
    if cfg is not None:
        _set(cfg.model, own)


def _set(model: Any, own: Mapping[str, Any]) -> None:
    if isinstance(model, DictConfig):
        with open_dict(model):
            model.update(own)
    elif model is not None:
        vars(model).update(own)


def _changes(name: str, value: Any) -> bool:
    """Check if an override is one of the plugin's options, with a value that changes the model."""
    return name in _own_options() and value not in _NO_CHANGE


def _is_own(arch: object) -> bool:
    return str(arch).startswith(ARCH)


@cache
def _own_options() -> frozenset[str]:
    """The options that the plugin's model has beside those of fairseq's Transformer."""
    own, stock = (
        {field.name for field in fields(config)}
        for config in (HeadPrunedTransformerConfig, TransformerConfig)
    )
    return frozenset(own - stock)
