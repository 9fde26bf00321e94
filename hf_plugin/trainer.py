"""transformers' Trainer, with checkpoints from which a training of every family resumes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from torch import Tensor
from transformers import Trainer


class ResumableTrainer(Trainer):
    """transformers' Trainer; its checkpoints have the names that the weights have in memory.

    By default transformers writes the names of a family's older files (ViT, BEIT, ...). The Trainer
    does not convert them when it resumes, and leaves such weights as they are.
    """

    def train(self, *arguments: Any, **options: Any) -> Any:
        """Train, without the weights that the model does not save."""
        freeze_unsaved(self.model)
        return super().train(*arguments, **options)

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        """Save a checkpoint; what ``save_model`` saves keeps the names of the family's files."""
        saved = self.accelerator.unwrap_model(self.model, keep_torch_compile=False)
        with _own_names(saved):
            super()._save_checkpoint(model, trial)

    def scaled_like_task_loss(
        self, loss: Tensor, num_items_in_batch: Tensor | int | None
    ) -> Tensor:
        """A mean over a batch, to be added to the loss that ``compute_loss`` returns.

        Where the Trainer sums the losses of the batches of an update, the mean is divided by their
        number.
        """
        # As in Trainer.training_step, which divides the loss in all other cases.
        is_summed = getattr(self, "loss_is_scaled_for_ga", None)  # older versions lack it
        if is_summed is None:
            of_all_items = num_items_in_batch is not None and self.model_accepts_loss_kwargs
            is_summed = of_all_items or self.compute_loss_func is not None
        return loss / self.current_gradient_accumulation_steps if is_summed else loss


def freeze_unsaved(model: Any) -> None:
    """Freeze weights that ``save_pretrained`` leaves out: the saved model would have other values.

    The sinusoidal positions of Marian are computed anew when a model is loaded. transformers 5.24
    trains them with a model that was loaded, so that the loaded result differs from the trained
    model. Weights that are tied to a saved one are trained.
    """
    unsaved = getattr(model, "_keys_to_ignore_on_save", None) or ()
    weights = dict(model.named_parameters(remove_duplicate=False))
    saved = {weight for name, weight in weights.items() if name not in unsaved}
    for name in unsaved:
        if name in weights and weights[name] not in saved:
            weights[name].requires_grad_(False)


@contextmanager
def _own_names(model: Any) -> Iterator[None]:
    """Within this context, ``model`` is saved with the names that its weights have in memory."""
    model.save_pretrained = partial(model.save_pretrained, save_original_format=False)
    try:
        yield
    finally:
        del model.save_pretrained
