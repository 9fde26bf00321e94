"""The content of a checkpoint in plain types, which fairseq reads without the plugin.

torch 2.6 and later reads weights and plain Python values only, unless a program names more types.
Stock fairseq names none, but its checkpoints hold Namespaces and NumPy's numbers and arrays.
"""

from __future__ import annotations

import warnings
from argparse import Namespace
from pathlib import Path
from typing import Any

import numpy as np
from fairseq import checkpoint_utils
from omegaconf import OmegaConf

from headprune.errors import DataError, reason_of

_OF_THE_TRAINING = ("metrics", "train_meters", "headprune")
"""Entries of ``extra_state`` that only a resumed training reads: the meters of fairseq, those of
its versions up to 0.9, and the counters of `fairseq_plugin.resuming`."""
_NO_HISTORY = {"optimizer_name": "", "lr_scheduler_state": {}, "num_updates": 0}


def make_plain(state: dict[str, Any], *, source: Path) -> None:
    """Replace all in a checkpoint's content, but for its weights, by plain values of a config.

    Args:
        state: the content, which is changed.
        source: the file that it is of, for errors.

    Raises:
        DataError: fairseq cannot make a config of the options in ``args``.
    """
    cfg = state.get("cfg")
    if not isinstance(cfg, dict) or not cfg.get("model"):
        _make_config(state, source=source)
    state["args"] = None
    if isinstance(state.get("extra_state"), dict):
        for name in _OF_THE_TRAINING:
            state["extra_state"].pop(name, None)
    for name, value in state.items():
        if name != "model":
            state[name] = _plain(value)


def _make_config(state: dict[str, Any], *, source: Path) -> None:
    """Write the config that fairseq makes of ``args`` whenever it reads such a checkpoint.

    fairseq 0.10 and older write ``args`` alone.
    """
    if not getattr(state["args"], "arch", None):
        raise DataError(f"{source}: its options name no architecture (--arch)")
    if "best_loss" not in state:  # else the history is in the form of the oldest versions
        state.setdefault("optimizer_history", [dict(_NO_HISTORY)])
    if "epoch" not in state:
        state.setdefault("extra_state", {})
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # hydra's, of what fairseq calls
            checkpoint_utils._upgrade_state_dict(state)
    except Exception as error:  # a task or an option unknown to fairseq makes it fail in many ways
        reason = reason_of(error)
        raise DataError(f"{source}: fairseq cannot read its options ({reason})") from None
    state["cfg"] = OmegaConf.to_container(state["cfg"], resolve=True, enum_to_str=True)
    state["last_optimizer_state"] = None  # the oldest versions keep it in another place


def _plain(value: Any) -> Any:
    """The value with dictionaries for Namespaces, and Python's numbers and lists for NumPy's."""
    if isinstance(value, Namespace):
        value = vars(value)
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        values = map(_plain, value)
        return list(values) if isinstance(value, list) else tuple(values)
    if isinstance(value, (np.ndarray, np.generic)):
        return value.tolist()
    return value
