"""Settings of hypothesis: no deadline, since a busy machine is no failure."""

import os

from hypothesis import settings

# In CI the same examples each time: a failure there is the change's, and can be repeated.
settings.register_profile(
    "headprune", deadline=None, max_examples=40, derandomize=bool(os.environ.get("CI"))
)
settings.load_profile("headprune")
