"""What chaos needs of the machine: skipped without it, except in CI."""

from __future__ import annotations

import os
import shutil
import subprocess

import pytest

from rmqha.chaos.aio.hosts import PROGRAMS


def _why_not() -> str:
    missing = [name for name in PROGRAMS if not shutil.which(name)]
    if missing:
        return f"needs {', '.join(missing)}"
    user = () if os.geteuid() == 0 else ("--map-root-user", "--user")
    done = subprocess.run(["unshare", "--net", *user, "true"], capture_output=True, check=False)
    return "" if done.returncode == 0 else "no network namespaces here"


def needs_hosts(test: object) -> object:
    """Skip a test where there are no hosts to have; CI must have them."""
    return _unless(_why_not(), test)


def needs_disks(test: object) -> object:
    """The same for file systems of their own, which root alone may mount."""
    return _unless(_why_not() or ("" if os.geteuid() == 0 else "needs root"), test)


def _unless(why: str, test: object) -> object:
    if not why or os.environ.get("CI", "").lower() == "true":
        return test
    return pytest.mark.skip(reason=why)(test)  # type: ignore[operator]
