"""Signals that come before a process can take them: while it imports what it consists of, which is
up to a second, and while a server starts.

Ctrl-C then ends it at once, without a traceback of imports that says nothing to anybody. SIGHUP, whose
default is the end, waits until a server can read its file again; SIGTERM until it can end in order, for
the first process of a container has no defaults: there a signal that nobody takes is lost.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Collection
from types import FrameType

EXIT_INTERRUPTED = 130
SERVERS = frozenset({"mqcontroller", "mqbroker", "mqnamesrv"})
"""Processes that end in order at SIGTERM, and read their files again at SIGHUP."""
HELD = frozenset({signal.SIGHUP, signal.SIGTERM})


def hold_signals() -> None:
    """Call it before the imports; `let_signals_come` ends it."""
    # Who runs in the background of a script ignores Ctrl-C, and goes on doing so.
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _end)
    signal.pthread_sigmask(signal.SIG_BLOCK, HELD)


def let_signals_come(name: str = "") -> None:
    """The imports are done.

    Args:
        name: of the command; that of a server goes on holding SIGTERM, for its `Ending`, and SIGHUP,
            for its `Reloader`.
    """
    if signal.getsignal(signal.SIGINT) is _end:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if name not in SERVERS:
        let_held_come()


def let_held_come(which: Collection[signal.Signals] = HELD) -> None:
    """There is somebody who takes these, or they may end the process."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, which)


def _end(number: int, frame: FrameType | None) -> None:
    """No exception: between two imports there are those who would swallow it."""
    os._exit(EXIT_INTERRUPTED)
