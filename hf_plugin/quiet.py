"""Keeping the libraries' messages about what is as it should be off the screen."""

from __future__ import annotations

import datasets
import transformers


def quieten() -> None:
    """Show errors and the training's progress bar only, for the rest of the process.

    transformers warns at length that a pretrained model has no classifier yet, which is why it is
    fine-tuned; both libraries draw bars for steps of less than a second.
    """
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    datasets.disable_progress_bars()
