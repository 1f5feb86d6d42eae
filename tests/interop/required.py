"""Real RocketMQ or no test: a skip with its reason, and in CI a failure."""

from __future__ import annotations

import os

import pytest

from rmqha.testing.real.maven import DEFAULT_VERSION, JavaUnavailable, classpath


def require_classpath(version: str = DEFAULT_VERSION) -> str:
    """Return the class path, or skip the test; with ``CI=true`` a missing Java is a failure."""
    try:
        return classpath(version)
    except JavaUnavailable as error:
        if os.environ.get("CI") == "true":
            pytest.fail(f"real RocketMQ {version} is required in CI: {error}")
        pytest.skip(f"needs real RocketMQ {version}: {error}")
