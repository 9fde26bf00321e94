"""Calibration data: examples that a model is re-fitted on, and a mask is searched on."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from headprune.model import Batch, RunnableModel

EXAMPLES = 2000
"""The default number of examples, as in Kwon et al. (2022)."""


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """A model in memory, and calibration data for it.

    Attributes:
        model: the model as it was given.
        batches: function that returns the batches, with labels, for one pass. Its argument is the
            purpose of the pass, for a progress bar.
        data: the name of the data and the number of examples, as in signatures.
        examples: the number of examples.
    """

    model: RunnableModel
    batches: Callable[[str], Iterable[Batch]]
    data: str
    examples: int
