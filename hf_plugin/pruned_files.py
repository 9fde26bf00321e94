"""Files of pruned models; libraries without support for pruning refuse to load them.

- The config names the code beside it (``auto_map``), with which the Auto classes of transformers
  load the model without headprune (``trust_remote_code=True``), and says in words where pruned
  models come from; stock classes stop at these words.
- Heads in form ``uniform`` have all their weights, and would fit a stock class. So W_q of a layer
  that has such heads is stored as H x d x C in place of Hd x C.

This file is written beside each pruned model, for ``modeling_headpruned``, so it imports nothing
of headprune.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any, ClassVar

from torch import nn

from .head_names import PREFIX

CODE = (
    *("modeling_headpruned.py", "pruned_files.py", "head_names.py"),
    *("cutting.py", "subclasses.py", "headless.py", "dropped.py", "position_bias.py"),
)
"""The files with which transformers alone loads a pruned model."""

NOTE = (
    "parts of this model were pruned with headprune; load it after `import hf_plugin` "
    "(a part of headprune), or with an Auto class and trust_remote_code=True"
)
_NOTES = {"headprune": NOTE, "transformers_weights": NOTE}  # stock classes print the second

BY_HEAD, BY_ROW = "by-head", "by-row"
"""Layouts of W_q in files, of layers with uniform heads: H x d x C, and Hd x C in older files."""

_MISMATCH = re.compile("size mismatch|mismatched_sizes")
"""Text of the errors that transformers raises for a tensor of another shape in the files."""

_reading: ContextVar[str | None] = ContextVar("layout of the files that are read", default=None)


class ModelType:
    """The model type of pruned models: ``headpruned-bert`` of a config class, ``bert`` of a config.

    Files and Auto classes have a type of their own, by which pruned models are recognised.
    transformers compares the type of a config with the names of stock models: where it chooses a
    tokenizer, or decides if Whisper needs a start token before its prompt. The answers are those
    for the stock model, as pruning changes neither.
    """

    def __init__(self, family: str) -> None:
        """The type of pruned models of a family, such as ``bert``."""
        self.family = family

    def __get__(self, config: object | None, of_class: type | None = None) -> str:
        """The type of a config, or of the class."""
        return f"{PREFIX}{self.family}" if config is None else self.family

    def __set__(self, config: object, value: object) -> None:
        """Do nothing: a config that is read from JSON sets the type that its file has."""


class PrunedConfig:
    """Mixin of config classes that reads and writes files.

    Attributes:
        code_by_auto_class: the class in ``CODE`` for each Auto class; if empty, the config's own
            ``auto_map`` is written.
    """

    code_by_auto_class: ClassVar[dict[str, str]] = {}

    @classmethod
    def from_dict(cls, config_dict: dict[str, Any], **options: Any) -> Any:
        """Same as in the base class, but without the notes that ``to_dict`` adds."""
        known = {name: value for name, value in config_dict.items() if name not in _NOTES}
        return super().from_dict(known, **options)  # type: ignore[misc]

    def to_dict(self) -> dict[str, Any]:
        """Same as in the base class, with the fields that are needed to load the model."""
        output = super().to_dict()  # type: ignore[misc]
        output.pop("code_by_auto_class", None)
        return {**output, **_NOTES, "auto_map": self.code_by_auto_class or output["auto_map"]}

    def save_pretrained(self, save_directory: str | os.PathLike[str], **options: Any) -> None:
        """Same as in the base class, but also writes the code of pruned models."""
        folder = Path(save_directory)
        folder.mkdir(parents=True, exist_ok=True)
        for name in CODE:
            source = Path(__file__).with_name(name)
            if not (folder / name).exists() or not source.samefile(folder / name):
                shutil.copyfile(source, folder / name)
        super().save_pretrained(save_directory, **options)  # type: ignore[misc]


class PrunedFiles:
    """Mixin of model classes that reads and writes files."""

    @classmethod
    def from_pretrained(cls, *inputs: Any, **options: Any) -> Any:
        """Same as in the base class, for all layouts of uniform heads' queries in files."""
        with_info = options.pop("output_loading_info", False)
        config = options.get("config")
        layout = getattr(config, "uniform_layout", BY_HEAD) or BY_ROW
        load = super().from_pretrained  # type: ignore[misc]
        try:
            with reading(layout):
                model, info = load(*inputs, output_loading_info=True, **options)
            misread = _misread(model, info)
            failure = None
        except RuntimeError as error:
            if not _MISMATCH.search(str(error)):
                raise
            misread, failure = True, error
        if misread:
            try:
                with reading(BY_ROW if layout == BY_HEAD else BY_HEAD):
                    model, info = load(*inputs, output_loading_info=True, **options)
            except RuntimeError as error:
                raise failure or error from None
        for _, linear in stored_queries(model):
            if linear.weight.dim() > 2:
                linear.weight = nn.Parameter(
                    linear.weight.detach().flatten(0, 1), linear.weight.requires_grad
                )
        return (model, info) if with_info else model

    def save_pretrained(
        self,
        save_directory: str | os.PathLike[str],
        is_main_process: bool = True,
        state_dict: dict[str, Any] | None = None,
        **options: Any,
    ) -> None:
        """Same as in the base class, but stores the queries of uniform heads head by head."""
        assert isinstance(self, nn.Module)
        # transformers would write the names of a family's older files, and does not know that it
        # has to convert them when it reads a pruned model.
        options.setdefault("save_original_format", False)
        queries = dict(stored_queries(self))
        if queries:
            self.config.uniform_layout = BY_HEAD  # type: ignore[union-attr]
            state_dict = dict(self.state_dict() if state_dict is None else state_dict)
            for name, linear in queries.items():
                if (key := f"{name}.weight") in state_dict:
                    size = int(linear.uniform_head_size)  # type: ignore[arg-type]
                    state_dict[key] = state_dict[key].unflatten(0, (-1, size))
        super().save_pretrained(  # type: ignore[misc]
            save_directory, is_main_process=is_main_process, state_dict=state_dict, **options
        )


def store_by_head(linear: nn.Linear, size: int | None) -> None:
    """Say whether files hold a projection to queries by head.

    Args:
        linear: W_q.
        size: d, the width of one head; None where no head of the layer is uniform.
    """
    if not hasattr(linear, "uniform_head_size"):
        if size is None:
            return
        linear.register_load_state_dict_pre_hook(_flatten_stored)
    linear.uniform_head_size = size  # type: ignore[assignment]


def expect_layout(linear: nn.Linear) -> None:
    """Give W_q the shape that it has in the files, while files are being read."""
    size: int | None = getattr(linear, "uniform_head_size", None)
    if _reading.get() == BY_HEAD and size is not None:
        weight = linear.weight
        stored = weight.detach().unflatten(0, (-1, size))
        linear.weight = nn.Parameter(stored, weight.requires_grad)


@contextmanager
def reading(layout: str) -> Iterator[None]:
    """Within this context, new models expect this layout of the files."""
    token = _reading.set(layout)
    try:
        yield
    finally:
        _reading.reset(token)


def stored_queries(model: nn.Module) -> Iterator[tuple[str, nn.Linear]]:
    """The projections to queries of layers with uniform heads, and their names."""
    for name, module in model.named_modules():
        if isinstance(module, nn.Linear) and getattr(module, "uniform_head_size", None):
            yield name, module


def _misread(model: nn.Module, info: dict[str, Any]) -> bool:
    """Tell if a W_q in the files had another layout (sizes that differ may be allowed)."""
    wrong = {key for key, *_ in info["mismatched_keys"]}
    return any(f"{name}.weight" in wrong for name, _ in stored_queries(model))


def _flatten_stored(linear: nn.Module, state_dict: dict[str, Any], prefix: str, *_: Any) -> None:
    """Before ``load_state_dict``: accept a W_q as files hold it."""
    weight = state_dict.get(f"{prefix}weight")
    if weight is not None and weight.dim() > 2:
        state_dict[f"{prefix}weight"] = weight.flatten(0, 1)
