"""The score movement: weight times gradient, summed over the steps of a fine-tuning, by unit.

Movement pruning (Sanh et al. 2020, section 4) scores a weight W by

    S = - sum over steps t of W_t . dL_t / dW_t,

which is high for weights that the fine-tuning moves away from 0. A unit's score is the sum over its
columns of the output projection, which is minus the sum of the gradients of the loss with respect
to the unit's gate: out = b + sum over u of xi_u h_u W^u, so at xi_u = 1

    dL / d xi_u = <h_u W^u, dL / d out> = <W^u, dL / dW^u>.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from headprune.components import HEADS, NEURONS
from headprune.errors import DataError, UsageError
from headprune.model import PrunableSublayer, RunnableModel, streams_of
from headprune.scores.head_scores import Values
from headprune.scores.registry import Computed, Scoring
from headprune.scores.values import as_values, no_sums


class Movement:
    """Sums of minus weight times gradient, to which each step of a training adds.

    Args:
        model: the model in training.
        components: those of heads or neurons to score.
    """

    def __init__(self, model: RunnableModel, components: Sequence[str]) -> None:
        self._sublayers: Mapping[str, Sequence[PrunableSublayer]] = {
            name: sublayers for name, sublayers in model.sublayers.items() if name in components
        }
        self._sums = no_sums(self._sublayers)
        self.steps = 0

    def add(self) -> None:
        """Add a step, between the computation of gradients and the update of the weights.

        Raises:
            DataError: weights without gradients, or gradients that are not finite.
        """
        for name, layers in self._sublayers.items():
            for layer, sublayer in enumerate(layers):
                if not sublayer.present:
                    continue
                for stream in streams_of(sublayer):
                    weight = stream.output.weight
                    if weight.grad is None:
                        if stream is not sublayer and layer == len(layers) - 1:
                            continue  # no output of the model depends on the top layer's companion
                        raise DataError(
                            f"{name}: layer {layer}: its output projection is not trained"
                        )
                    products = stream.as_columns(weight.detach() * weight.grad)  # C x U'd
                    by_column = products.double().sum(0)  # U'd
                    by_unit = by_column.unflatten(0, (-1, stream.unit_size)).sum(1)  # U'
                    if not by_unit.isfinite().all():
                        raise DataError(f"{name}: layer {layer}: a gradient is not finite")
                    self._sums[name][layer] -= by_unit.cpu()
        self.steps += 1

    @property
    def values(self) -> Values:
        """The score of each unit."""
        return as_values(self._sublayers, self._sums)


@dataclass(frozen=True, kw_only=True)
class FineTuned:
    """A fine-tuning that has ended.

    Attributes:
        values: the movement of each unit.
        steps: the number of steps that it was summed over.
        data: the name of the training data, as in signatures.
        settings: what the outcome depends on.
    """

    values: Values
    steps: int
    data: str
    settings: Mapping[str, Any]


WITHOUT_FINE_TUNING = (
    "movement is computed during a fine-tuning with labels, not --without-labels (of a fairseq "
    "checkpoint with the flags of --finetune); or give taylor or fisher"
)

FineTune = Callable[[Sequence[str]], FineTuned]
"""Fine-tunes a copy of the model, for the movement of the units of some components."""


def compute(scoring: Scoring, names: Sequence[str]) -> Mapping[str, Computed]:
    """Compute ``movement`` during a fine-tuning."""
    if scoring.fine_tune is None:
        raise UsageError(WITHOUT_FINE_TUNING)
    components = [name for name in scoring.components if name in (*HEADS, *NEURONS)]
    training = scoring.fine_tune(components)
    settings = {**training.settings, "steps": training.steps}
    return {
        name: Computed(values=training.values, settings=settings, data=training.data)
        for name in names
    }
