"""What holds for all tests."""

from __future__ import annotations

import os

from hypothesis import settings

# Hypothesis ends an example that takes over 0.2 s, which on a busy machine says nothing about it.
# Where CI is set it knows that itself.
settings.register_profile("busy machine", deadline=None)
if os.environ.get("CI") != "true":
    settings.load_profile("busy machine")
