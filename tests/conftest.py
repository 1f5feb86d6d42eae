"""What holds for all tests."""

from __future__ import annotations

import os

import pytest
from hypothesis import settings

# Hypothesis ends an example that takes over 0.2 s, which on a busy machine says nothing about it.
# Where CI is set it knows that itself.
settings.register_profile("busy machine", deadline=None)
# bin/test --fast is for those who wait for it; bin/test tries the usual hundred.
settings.register_profile("fast", deadline=None, max_examples=25)
if os.environ.get("RMQHA_TEST_FAST") == "1":
    settings.load_profile("fast")
elif os.environ.get("CI") != "true":
    settings.load_profile("busy machine")

SIM_TIMEOUT_S = 600
"""Stories are bounded in simulated time, and a busy machine takes long for it: two of them beside ten
other processes passed the two minutes that other tests have."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give batches of seeds a limit of their own, where they name none."""
    for item in items:
        if item.get_closest_marker("sim") and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(SIM_TIMEOUT_S))
