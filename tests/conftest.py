"""What holds for all tests."""

from __future__ import annotations

import os

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
