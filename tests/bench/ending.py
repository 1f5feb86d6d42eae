"""A bench that is told to end takes its children with it."""

from __future__ import annotations

import signal
import sys

TERMINATED = 128 + signal.SIGTERM


def end_children_when_terminated() -> None:
    """Make SIGTERM an exception, so that whoever started a process ends it on the way out.

    Without this a bench under ``timeout`` leaves its JVMs behind, and the next one runs beside
    them.
    """
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(TERMINATED))
