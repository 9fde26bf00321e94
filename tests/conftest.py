"""Settings of hypothesis, and the same random numbers for every test."""

import os
import random
import sys

import numpy
import pytest
from hypothesis import settings

# No deadline, since a busy machine is no failure. In CI the same examples each time: a failure
# there is the change's, and can be repeated.
settings.register_profile(
    "headprune", deadline=None, max_examples=40, derandomize=bool(os.environ.get("CI"))
)
settings.load_profile("headprune")


@pytest.fixture(autouse=True)
def _seeded():
    """Seed all generators, so that a test's numbers do not depend on the tests before it."""
    random.seed(1)
    numpy.random.seed(1)
    if "torch" in sys.modules:
        sys.modules["torch"].manual_seed(1)


@pytest.fixture(autouse=True)
def _same_threads():
    """Undo a test's change of PyTorch's threads, with which later tests would wait for cores."""
    torch = sys.modules.get("torch")
    before = None if torch is None else torch.get_num_threads()
    yield
    if torch is not None and torch.get_num_threads() != before:
        torch.set_num_threads(before)
