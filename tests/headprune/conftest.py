"""Settings of hypothesis for these tests."""

from hypothesis import settings

# No deadline: how long an example takes depends on what else the machine does.
settings.register_profile("headprune", deadline=None, max_examples=40)
settings.load_profile("headprune")
