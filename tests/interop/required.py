"""Real RocketMQ or no test: a skip with its reason, and in CI a failure."""

from __future__ import annotations

import os

import pytest

from rmqha.testing.real.maven import DEFAULT_VERSION, JavaUnavailable, classpath


def require_classpath(version: str = DEFAULT_VERSION, *artifacts: str) -> str:
    """Return the class path, or skip the test; with ``CI=true`` a missing Java is a failure."""
    try:
        return classpath(version, *artifacts)
    except JavaUnavailable as error:
        if os.environ.get("CI") == "true":
            pytest.fail(f"real RocketMQ {version} {' '.join(artifacts)} is required in CI: {error}")
        pytest.skip(f"needs real RocketMQ {version} {' '.join(artifacts)}: {error}")
