"""Exact resumption: an interrupted training ends with the same weights as an uninterrupted one.

fairseq's checkpoints contain the weights, the optimizer's state, the number of updates (from which
dropout is seeded) and the position in the epoch. They lack five things, which are added here:

- **The order of sentences.** fairseq forms the batches once, in an order that follows from the seed
  and the number of the first epoch, and every epoch shuffles the same batches. A resumed training
  would form other batches, from the number of the epoch that it resumes in. Here the batches are
  always those of epoch 1.
- **Shuffling** with ``--curriculum``: in fairseq the first epoch of a process decides for all later
  epochs whether batches are shuffled. Here each epoch decides, as the flag's help says.
- **The end of an epoch.** A checkpoint is saved before the learning-rate scheduler receives the
  validation loss of the epoch, and a resumed training does not pass it on later.
- **Counters**: validations without improvement (``--patience``), the counters of the scheduler
  ``reduce_lr_on_plateau`` and those of the loss scale in half precision.
- **The end of the training.** When ``--max-update`` or ``--patience`` has been reached, fairseq
  makes another update, or trains another epoch, if it is started again.
"""

from __future__ import annotations

import logging
import math
import shutil
import sys
from functools import wraps
from typing import Any

from fairseq import checkpoint_utils
from fairseq.data.iterators import EpochBatchIterator
from fairseq.file_io import PathManager
from fairseq.trainer import Trainer

from headprune.files import atomic_path

logger = logging.getLogger(__name__)

_KEY = "headprune"
"""The key of a checkpoint's ``extra_state`` that the counters are saved under."""

_LOSS_SCALE_COUNTERS = (
    "_iter",
    "_last_overflow_iter",
    "_last_rescale_iter",
    "_overflows_since_rescale",
)


def resume_exactly() -> None:
    """Let fairseq's trainer save and restore the state that its checkpoints lack."""
    Trainer.get_train_iterator = _with_batches_of_the_first_epoch(Trainer.get_train_iterator)
    EpochBatchIterator._get_iterator_for_epoch = _shuffling_as_asked(
        EpochBatchIterator._get_iterator_for_epoch
    )
    Trainer.state_dict = _with_counters(Trainer.state_dict)
    checkpoint_utils.load_checkpoint = _restoring(checkpoint_utils.load_checkpoint)
    PathManager.copy = staticmethod(_whole_copies(PathManager.copy))


def _with_batches_of_the_first_epoch(get_train_iterator: Any) -> Any:
    @wraps(get_train_iterator)
    def get(self: Trainer, epoch: int, *, load_dataset: bool = True, **options: Any) -> Any:
        makes_batches_each_epoch = (
            options.get("disable_iterator_cache")
            or self.cfg.dataset.update_epoch_batch_itr
            or getattr(self.task.cfg, "rebuild_batches", False)
        )
        if epoch == 1 or not load_dataset or makes_batches_each_epoch:
            return get_train_iterator(self, epoch, load_dataset=load_dataset, **options)
        iterator = get_train_iterator(self, 1, **options)
        if not self.task.can_reuse_epoch_itr(self.task.dataset(self.cfg.dataset.train_subset)):
            iterator = get_train_iterator(self, epoch, load_dataset=False, **options)
        return iterator  # the caller sets its epoch

    return get


def _shuffling_as_asked(get_iterator_for_epoch: Any) -> Any:
    @wraps(get_iterator_for_epoch)
    def get(self: EpochBatchIterator, epoch: int, shuffle: bool, **options: Any) -> Any:
        if self.dataloader is not None:  # it is reused with its sampler
            self.epoch_batch_sampler.shuffle = shuffle
        return get_iterator_for_epoch(self, epoch, shuffle, **options)

    return get


def _with_counters(state_dict: Any) -> Any:
    @wraps(state_dict)
    def with_counters(self: Trainer) -> dict[str, Any]:
        state: dict[str, Any] = state_dict(self)
        state["extra_state"][_KEY] = {
            "early_stopping": dict(_early_stopping()),
            "plateau": _plateau_counters(self),
            "loss_scale": loss_scale_counters(self),
        }
        return state

    return with_counters


def _restoring(load_checkpoint: Any) -> Any:
    @wraps(load_checkpoint)
    def load(cfg: Any, trainer: Trainer, **options: Any) -> tuple[Any, Any]:
        extra_state, epoch_iterator = load_checkpoint(cfg, trainer, **options)
        # With 0 updates the optimizer was not restored: the training is new, or flags reset it.
        if extra_state is not None and trainer.get_num_updates() > 0:
            counters = extra_state.get(_KEY, {})
            set_loss_scale_counters(trainer, counters.get("loss_scale", {}))
            if not cfg.reset_lr_scheduler:
                for name, value in counters.get("plateau", {}).items():
                    setattr(trainer.lr_scheduler.lr_scheduler, name, value)
                position = extra_state["train_iterator"]
                if position["iterations_in_epoch"] == 0:
                    trainer.lr_step(position["epoch"] - 1, extra_state.get("val_loss"))
            if not cfg.reset_meters:
                _early_stopping().update(counters.get("early_stopping", {}))
            if _has_ended(trainer):
                logger.info("the training has reached its end already")
                _train_no_further()
        return extra_state, epoch_iterator

    return load


def _has_ended(trainer: Trainer) -> bool:
    patience = trainer.cfg.checkpoint.patience
    max_update = trainer.cfg.optimization.max_update or math.inf
    validations = _early_stopping().get("num_runs", 0)
    return bool(trainer.get_num_updates() >= max_update or 0 < patience <= validations)


def _train_no_further() -> None:
    """Replace the program's function ``train``, which trains an epoch, by one that ends it."""
    program = _training_program()
    if program is None:
        return
    train = program.train

    def end(*_: Any) -> tuple[list[None], bool]:
        program.train = train
        return [None], True

    program.train = end


def _early_stopping() -> dict[str, Any]:
    """Return fairseq-train's state of early stopping (``--patience``)."""
    program = _training_program()
    return {} if program is None else vars(program.should_stop_early)


def _training_program() -> Any:
    """Return the module of fairseq-train; None in other programs."""
    main = sys.modules["__main__"]  # started as python -m fairseq_cli.train
    program = main if hasattr(main, "should_stop_early") else None
    return program or sys.modules.get("fairseq_cli.train")


def _plateau_counters(trainer: Trainer) -> dict[str, int]:
    scheduler = getattr(trainer.lr_scheduler, "lr_scheduler", None)
    names = ("num_bad_epochs", "cooldown_counter")
    return {name: getattr(scheduler, name) for name in names if hasattr(scheduler, name)}


def loss_scale_counters(trainer: Trainer) -> dict[str, Any]:
    """The counters of the loss scale of half precision; none of other trainings."""
    scaler: Any = getattr(trainer.optimizer, "scaler", None)
    if hasattr(scaler, "state_dict"):  # PyTorch's, with --amp
        return dict(scaler.state_dict())
    return {name: getattr(scaler, name) for name in _LOSS_SCALE_COUNTERS if hasattr(scaler, name)}


def set_loss_scale_counters(trainer: Trainer, counters: dict[str, Any]) -> None:
    """Continue with the counters of an interrupted training; see ``loss_scale_counters``."""
    scaler = getattr(trainer.optimizer, "scaler", None)
    if scaler is None or not counters:
        return
    if hasattr(scaler, "load_state_dict"):
        scaler.load_state_dict(counters)
    else:
        vars(scaler).update(counters)


def _whole_copies(copy: Any) -> Any:
    """Copy to a temporary file and rename it, so that checkpoint_last.pt is never incomplete."""

    @wraps(copy)
    def whole_copy(source: str, target: str, overwrite: bool = False) -> Any:
        if not PathManager.supports_rename(target):
            return copy(source, target, overwrite=overwrite)
        with atomic_path(target) as temporary:
            shutil.copyfile(source, temporary)
        return target

    return whole_copy
