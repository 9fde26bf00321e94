"""Suppress messages of transformers and datasets that report nothing unusual."""

from __future__ import annotations

import datasets
import transformers


def quieten() -> None:
    """Show only errors and the progress bar of the training, for the rest of the process.

    transformers would warn that the classifier of a pretrained model is new, although it will be
    fine-tuned, and both libraries would draw progress bars for steps of less than a second.
    """
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    datasets.disable_progress_bars()
