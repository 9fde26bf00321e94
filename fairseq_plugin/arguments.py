"""Early checks of the options of fairseq's commands."""

from __future__ import annotations

import ast
import difflib
import os
import sys
from argparse import Namespace
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import fields
from functools import cache, wraps
from importlib.util import find_spec
from typing import Any, cast

import torch
from fairseq import checkpoint_utils, options
from fairseq.dataclass.configs import FairseqConfig
from fairseq.file_io import PathManager
from fairseq.models import ARCH_CONFIG_REGISTRY
from omegaconf import DictConfig, OmegaConf

from fairseq_plugin import overrides as model_overrides
from fairseq_plugin.checkpoints import WITH_L0, read_model
from fairseq_plugin.options import option_names
from fairseq_plugin.plan_transport import with_plan
from fairseq_plugin.same_gates import require_same_gates
from fairseq_plugin.same_model import require_same_model
from fairseq_plugin.same_plan import require_same_plan
from fairseq_plugin.shortlist_option import shortlist_option
from headprune.errors import DataError, HeadpruneError, UsageError
from headprune.plan import PruningPlan
from headprune.weights import is_zip, verify_zip

_LAST = "checkpoint_last.pt"
_RESUMING = "--save-dir"
"""The flag that names the checkpoint of a training that resumes."""

_RESTORING = "--restore-file"
_WITH_OPTIMIZER = {
    _RESUMING: ("its training was", "give another --save-dir"),
    _RESTORING: (
        "the training was",
        "give --finetune-from-model, or --reset-optimizer --reset-lr-scheduler "
        "--reset-dataloader --reset-meters, to begin a new training with its weights",
    ),
}
"""The flags of checkpoints whose optimizer's state a training takes up, with words of an error: how
it names that training, and what to do."""


def check_early() -> None:
    """Let fairseq's commands stop with one line if a file or ``--model-overrides`` is invalid."""
    parse = options.parse_args_and_arch

    @wraps(parse)
    def parse_and_check(*arguments: Any, **keywords: Any) -> Any:
        parsed = parse(*arguments, **keywords)
        args = parsed[0] if isinstance(parsed, tuple) else parsed
        check(args)
        _let_every_process_load(args)
        return parsed

    options.parse_args_and_arch = parse_and_check
    # fairseq-hydra-train parses no options. This is the first call of a training that has all of
    # them and comes after the plugin's import.
    training = sys.modules.get("fairseq_cli.train")
    if training is not None:
        training.add_defaults = checking(training.add_defaults)  # type: ignore[attr-defined]
    checkpoint_utils.load_checkpoint_to_cpu = verifying(checkpoint_utils.load_checkpoint_to_cpu)


def _let_every_process_load(options: Namespace | DictConfig) -> None:
    """Let each process of a training read the checkpoint that it begins with.

    Otherwise the first one reads it and sends it to the others, which torch.load then refuses: the
    settings in it are of no type that ``weights_only`` accepts.
    """
    if hasattr(options, "load_checkpoint_on_all_dp_ranks"):
        options.load_checkpoint_on_all_dp_ranks = True


def check(args: Namespace) -> None:
    """Check the options of a command.

    Raises:
        UsageError: ``--model-overrides`` is not a dictionary of options, or names one that the
            model does not have; or gates and a criterion that does not close them; or the model to
            train has other options than that of the checkpoint to begin with, or another plan or
            other gates than that of the checkpoint to resume from.
        DataError: a checkpoint to be read does not exist, or ``--shortlist`` is no shortlist.
    """
    text = getattr(args, "model_overrides", None)
    overrides = {} if text is None else _overrides(text)
    paths = getattr(args, "path", None)
    whole_files = getattr(args, "checkpoint_shard_count", 1) == 1
    if paths and whole_files and not getattr(args, "checkpoint_suffix", ""):
        for path in paths.split(os.pathsep):
            _require(path, flag="--path")
        _require_options(overrides, paths.split(os.pathsep))
        model_overrides.require_own_model(overrides, paths.split(os.pathsep))
    shortlist_option.read(args)
    _require_criterion_of_gates(args, getattr(args, "criterion", None))
    _warn_of_clipped_gates(args, args)
    _require_gpu(args)
    _require_teacher(args)
    _require_start(args)
    _require_model_of_start(args, args)
    _require_gates_of_criterion(args, getattr(args, "criterion", None))


def checking(add_defaults: Callable[[DictConfig], None]) -> Callable[[DictConfig], None]:
    """Let fairseq check the options of a training before it adds defaults to them."""

    @wraps(add_defaults)
    def check_and_add(cfg: DictConfig) -> None:
        _require_start(cfg.checkpoint)
        _let_every_process_load(cfg.checkpoint)
        add_defaults(cfg)
        if isinstance(cfg.model, DictConfig):  # else checked with the options of the command
            criterion = getattr(cfg, "criterion", None)
            _require_criterion_of_gates(cfg.model, getattr(criterion, "_name", None))
            _warn_of_clipped_gates(cfg.model, getattr(cfg, "optimization", None))
            _require_teacher(criterion)
            _require_model_of_start(cfg.checkpoint, _with_defaults(cfg.model))
            _require_gates_of_criterion(cfg.model, getattr(criterion, "_name", None))

    return check_and_add


def _require_gpu(args: Namespace) -> None:
    """Raise a UsageError if a training on a CPU asks for a precision that needs a GPU."""
    # Options of optimizers are those of other commands too, such as fairseq-generate.
    if not hasattr(args, "max_update"):
        return
    on_cpu = getattr(args, "cpu", False) or not torch.cuda.is_available()
    # fairseq sets ``tpu`` with --bf16, whether there is one or not.
    on_tpu = getattr(args, "tpu", False) and find_spec("torch_xla") is not None
    if not on_cpu or on_tpu:
        return
    for name in ("fp16", "bf16"):
        if getattr(args, name, False) and not getattr(args, f"memory_efficient_{name}", False):
            raise UsageError(
                f"--{name}: training with it needs a GPU; on a CPU give --memory-efficient-fp16 or "
                "--autocast bf16"
            )


def _require_criterion_of_gates(model: Namespace | DictConfig, criterion: str | None) -> None:
    """Raise a UsageError if a model has gates and a training has no penalty that closes them."""
    gates = getattr(model, "gates", None)
    if gates and not str(criterion).endswith(WITH_L0):
        raise UsageError(
            f"--gates {gates}: --criterion {criterion} does not close gates; give --criterion "
            "label_smoothed_cross_entropy_with_l0"
        )


def _require_gates_of_criterion(model: Namespace | DictConfig, criterion: str | None) -> None:
    """Raise a UsageError if a training has a penalty for gates and the model has none."""
    if str(criterion).endswith(WITH_L0) and not getattr(model, "gates", None):
        raise UsageError(f"--criterion {criterion}: closes gates; give --gates ES,ED,DS")


def _warn_of_clipped_gates(model: Namespace | DictConfig, optimization: object) -> None:
    """Warn once if gradients of gates and weights are clipped together, which slows the weights."""
    clip_norm = getattr(optimization, "clip_norm", None) or 0.0
    if getattr(model, "gates", None) and clip_norm > 0 and not getattr(model, "gates_only", False):
        _warn_once(
            f"--clip-norm {clip_norm:g} clips the gradients of gates and weights together: those "
            "of the gates are larger, so the weights learn slower; leave it out, or train with "
            "--gates-only"
        )


@cache
def _warn_once(message: str) -> None:
    """Print a warning, the first time that it is given in this process."""
    print(f"warning: {message}", file=sys.stderr)


def _require_teacher(criterion: object) -> None:
    """Raise a DataError if the teacher of a distillation does not exist."""
    path = getattr(criterion, "distill_from", None)
    if path:
        _require(path, flag="--distill-from")


def _require_start(checkpoint: Namespace | DictConfig) -> None:
    """Raise a DataError if the checkpoint that a training begins with does not exist.

    A training that resumes does not read it.
    """
    start = getattr(checkpoint, "finetune_from_model", None)
    last = os.path.join(getattr(checkpoint, "save_dir", ""), _LAST)
    if start and not PathManager.exists(last):
        _require(start, flag="--finetune-from-model")


def _require_model_of_start(checkpoint: Namespace | DictConfig, model: Any) -> None:
    """Raise a UsageError if a training begins with the weights of a model with other options.

    A training that begins with another's weights may prune them further. One that resumes, with
    the state of the optimizer, has the plan and the gates of its checkpoint.
    """
    arch = getattr(model, "arch", None) or getattr(model, "_name", None)
    if not str(arch).startswith(model_overrides.ARCH):
        return
    flag, path = _start(checkpoint)
    if path and PathManager.exists(path):
        _, options = read_model(PathManager.get_local_path(path))
        require_same_model(model, options, path=path, flag=flag)
        if flag in _WITH_OPTIMIZER and not getattr(checkpoint, "reset_optimizer", False):
            resumed, remedy = _WITH_OPTIMIZER[flag]
            name = checkpoint.save_dir if flag == _RESUMING else f"{flag} {path}"
            resumed = f"{name}: {resumed}"
            require_same_plan(model, options, name=resumed, remedy=remedy, path=path)
            require_same_gates(model, options, name=resumed, remedy=remedy)


def _with_defaults(model: DictConfig) -> Namespace:
    """A model's options in a configuration file, with those of its architecture."""
    options = Namespace(**cast(dict[str, Any], OmegaConf.to_container(model)))
    arch = getattr(options, "_name", None)
    if arch in ARCH_CONFIG_REGISTRY:
        ARCH_CONFIG_REGISTRY[arch](options)
    return options


def _start(checkpoint: Namespace | DictConfig) -> tuple[str, str | None]:
    """The file that a training begins with, as fairseq chooses it, and the flag that names it."""
    restored = getattr(checkpoint, "restore_file", None) or _LAST
    if restored != _LAST:
        return _RESTORING, restored
    last = os.path.join(getattr(checkpoint, "save_dir", ""), _LAST)
    if PathManager.exists(last):
        return _RESUMING, last
    return "--finetune-from-model", getattr(checkpoint, "finetune_from_model", None)


def _overrides(text: str) -> dict[str, Any]:
    expected = "give a dictionary of options, \"{'head_plan': 'plan.json'}\""
    try:
        overrides = ast.literal_eval(text)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        raise UsageError(f"--model-overrides: {text!r:.80} cannot be read; {expected}") from None
    if not isinstance(overrides, dict) or not all(isinstance(name, str) for name in overrides):
        raise UsageError(f"--model-overrides: {text!r:.80}; {expected}")
    return overrides


def _require_options(overrides: Iterable[str], paths: Iterable[str]) -> None:
    """Raise a UsageError for an option that the checkpoints do not have: fairseq ignores it."""
    known = {*option_names(), *(field.name for field in fields(FairseqConfig))}
    if known.issuperset(overrides):
        return
    for path in paths:
        state, _ = read_model(PathManager.get_local_path(path))
        known.update(_names(state.get("cfg")), _names(state.get("args")))
    for name in overrides:
        if name not in known:
            close = difflib.get_close_matches(name, known, n=1)
            hint = f"; did you mean {close[0]!r}?" if close else ""
            raise UsageError(f"--model-overrides: the model has no option {name!r:.80}{hint}")


def _names(options: object) -> Iterator[str]:
    """The names of all options in a checkpoint, including options in groups."""
    values = vars(options) if isinstance(options, Namespace) else options
    if isinstance(values, Mapping):
        for name, value in values.items():
            yield str(name)
            yield from _names(value)


def _require(path: str, *, flag: str) -> None:
    if not PathManager.exists(path):
        raise DataError(f"{flag}: {path}: no such file")


def verifying(load_checkpoint: Any) -> Any:
    """Let fairseq refuse to load a damaged file, and keep the plan of the checkpoint.

    The plan is one of the checkpoint's options. The model that receives the weights may have other
    options, and needs the plan to match units by number.
    """

    @wraps(load_checkpoint)
    def load(path: str, arg_overrides: Mapping[str, Any] | None = None, **keywords: Any) -> Any:
        try:
            local_path = PathManager.get_local_path(path)
            if is_zip(local_path):
                verify_zip(local_path)
            overrides = dict(arg_overrides or {})
            own = model_overrides.take_own(overrides)
            if overrides:
                keywords["arg_overrides"] = overrides
            state = load_checkpoint(path, **keywords)
            plan = _plan_in(state)
            if plan is not None and not plan.is_full:
                extra = state.get("extra_state") or {}
                # The averages of --store-ema; older versions left them at full size.
                if _have_one_shape(state["model"], extra.get("ema") or {}):
                    extra["ema"] = with_plan(extra["ema"], plan)
                state["model"] = with_plan(state["model"], plan)
            model_overrides.apply(own, state)  # another plan comes after the checkpoint's own
            return state
        except HeadpruneError:
            raise
        except Exception:
            read_model(path)
            raise  # the file is not damaged

    return load


def _have_one_shape(weights: Mapping[str, Any], averages: Mapping[str, Any]) -> bool:
    """Check if there are averages, and all have the shapes of their weights."""
    return bool(averages) and all(
        weights[name].shape == average.shape
        for name, average in averages.items()
        if name in weights
    )


def _plan_in(state: Mapping[str, Any]) -> PruningPlan | None:
    """Return the plan in a checkpoint that fairseq has read; None in one of stock fairseq."""
    model = state["cfg"].model if state.get("cfg") is not None else state.get("args")
    text = getattr(model, "head_plan", None)
    return PruningPlan.from_json(text, source="its plan") if text else None
