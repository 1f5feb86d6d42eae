"""Gates: what lets nothing through while it is closed. A stopped node and a cut link are each one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class Gate:
    """Open or closed; belongs to one event loop."""

    def __init__(self) -> None:
        self.is_open = True
        self._watchers: dict[int, Callable[[], None]] = {}
        self._count = 0

    def set_open(self, is_open: bool) -> None:
        """Open or close; those who watch are told when that is news."""
        if is_open == self.is_open:
            return
        self.is_open = is_open
        for watcher in list(self._watchers.values()):
            watcher()

    def watch(self, told: Callable[[], None]) -> Callable[[], None]:
        """Call ``told()`` at every change; returns what ends that."""
        self._count += 1
        number = self._count
        self._watchers[number] = told
        return lambda: self._watchers.pop(number, None) and None

    async def passed(self) -> None:
        """Wait until it is open."""
        while not self.is_open:
            opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()

            def told(opened: asyncio.Future[None] = opened) -> None:
                if not opened.done():
                    opened.set_result(None)

            forget = self.watch(told)
            try:
                await opened
            finally:
                forget()
