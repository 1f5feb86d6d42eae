"""Our mqadmin as a process, as an operator has it."""

from __future__ import annotations

import subprocess
import sys

TIMEOUT_S = 60.0
"""More than any command takes beside starting JVMs."""


def run_our_mqadmin(*words: str) -> subprocess.CompletedProcess[str]:
    """Run one command to its end, whatever becomes of it."""
    command = [sys.executable, "-m", "rmqha.cli.mqadmin", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)


def our_mqadmin(*words: str) -> str:
    """What a command prints; it must succeed."""
    done = run_our_mqadmin(*words)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
