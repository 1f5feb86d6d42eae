"""Telling a supervisor such as systemd that this process is up, alive, or about to end.

The supervisor names a datagram socket in ``NOTIFY_SOCKET``; a name that begins with ``@`` is one
without a file. With ``WATCHDOG_USEC`` it ends and restarts a process that says nothing for so long:
what is said here is said by the event loop, so one that hangs says nothing.

Source: sd_notify(3), sd_watchdog_enabled(3).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import Mapping, MutableMapping

from rmqha.runtime.logs import Logger

READY, ALIVE, STOPPING = b"READY=1", b"WATCHDOG=1", b"STOPPING=1"
WATCHDOG_SHARE = 3
"""So many times in the time after which it would be missed."""

_NAMES = ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID")


class Supervisor:
    """Whoever started this process, if it wants to be told.

    Args:
        address: of its socket; empty for nobody.
        watchdog_us: how long this process may say nothing, in microseconds; 0 for ever.
        log: told once when the socket cannot be reached.
    """

    def __init__(self, address: str, watchdog_us: int, log: Logger) -> None:
        self._address = f"\0{address[1:]}" if address.startswith("@") else address
        self._period_s = watchdog_us / WATCHDOG_SHARE / 1_000_000
        self._log = log
        self._timer: asyncio.TimerHandle | None = None
        self._failed = False

    @classmethod
    def of(cls, environment: MutableMapping[str, str], log: Logger) -> Supervisor:
        """The one that the environment names, which is taken out: children are not asked."""
        found = {name: environment.pop(name, "") for name in _NAMES}
        return cls(found["NOTIFY_SOCKET"], _watchdog_us(found), log)

    def up(self) -> None:
        """The process serves; from now on it says that it is alive. Call it in the loop."""
        self._say(READY)
        if self._address and self._period_s:
            self._alive()

    def ending(self) -> None:
        """The process is about to end; it need not be alive any more."""
        if self._timer is not None:
            self._timer.cancel()
        self._say(STOPPING)

    def _alive(self) -> None:
        self._say(ALIVE)
        self._timer = asyncio.get_running_loop().call_later(self._period_s, self._alive)

    def _say(self, what: bytes) -> None:
        if not self._address:
            return
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as one:
                one.setblocking(False)
                one.connect(self._address)
                one.send(what)
        except OSError as error:
            if not self._failed:
                self._failed = True
                self._log.log("warning", "supervisor_not_told", reason=str(error))


def _watchdog_us(found: Mapping[str, str]) -> int:
    """How long this process may say nothing; 0 where that is not asked of it."""
    if found["WATCHDOG_PID"] not in ("", str(os.getpid())):
        return 0
    with contextlib.suppress(ValueError):
        return max(0, int(found["WATCHDOG_USEC"]))
    return 0
