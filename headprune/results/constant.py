"""Models that give one output for every example: they have learnt nothing."""

from __future__ import annotations

from headprune.results.bleu import read_lines
from headprune.results.control_tests import Located
from headprune.results.marks import CONSTANT, is_constant
from headprune.results.metrics import OF_LANGUAGE_MODELS
from headprune.results.predictions import read_predictions


def is_constant_model(located: Located) -> bool:
    """Tell if a model gives one output for every example.

    Older records do not say so; then the outputs beside the record do, where there are any; without
    them it is not known, and the answer is no. Those of language models are losses of texts, which
    tell nothing of it.

    Raises:
        DataError: outputs that cannot be read.
    """
    path, record = located
    if CONSTANT in record.training:
        return record.training[CONSTANT] is True
    if OF_LANGUAGE_MODELS & record.metrics.keys():
        return False
    named = {name: path.parent / file for name, file in record.files.items()}
    files = {name: file for name, file in named.items() if file.exists()}
    if "predictions" in files:
        predictions, labels = zip(*read_predictions(files["predictions"]), strict=True)
        return is_constant(predictions, labels)
    if "hypotheses" in files and "reference" in files:
        return is_constant(read_lines(files["hypotheses"]), read_lines(files["reference"]))
    return False
