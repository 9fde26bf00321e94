"""Re-fitting of Hugging Face models in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from torch import Tensor
from transformers import PreTrainedModel

from headprune.recovery import refit as core
from hf_plugin.scores.model import HuggingFaceModel


def refit(
    pruned: PreTrainedModel,
    unpruned: PreTrainedModel,
    batches: Callable[[], Iterable[Mapping[str, Tensor]]],
    *,
    ridge: float = core.RIDGE,
    target: core.Target = "output",
) -> list[core.Refitted]:
    """Re-fit a pruned model in place, without training; see ``headprune.recovery.refit``.

    Args:
        pruned: the model that ``hf_plugin.prune`` returned.
        unpruned: a copy of the model from before.
        batches: function that returns the inputs of the models' forward pass, batch by batch: a
            few thousand examples of the text that the model is for, with their attention masks.
        ridge: see ``headprune.recovery.refit.RIDGE``.
        target: ``output``: a sub-layer reproduces its output; ``residual``: its output with the
            residual connection.

    Returns:
        The re-fitted sub-layers, with their differences from the unpruned model.

    Raises:
        UsageError: a model that cannot be re-fitted.
        DataError: too few tokens, or values that are not finite.
    """
    models = HuggingFaceModel(pruned), HuggingFaceModel(unpruned)
    return core.refit(*models, batches, ridge=ridge, target=target)
