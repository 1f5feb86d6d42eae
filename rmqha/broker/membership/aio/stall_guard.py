"""The broker's side of its watcher: signs of life, and the fence. See ``stall_watch.py``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from rmqha.base.machine import Note
from rmqha.broker.membership.stall_page import Facts, StallPage
from rmqha.broker.membership.stall_watch import LOOK_MS, WatchSettings
from rmqha.runtime.logs import Logger
from rmqha.runtime.ports import Clock

RESTART_MS = 1_000


class WatchPort(Protocol):
    """Who runs the watcher: another process, or the simulator.

    Attributes:
        page: what both write.
    """

    page: StallPage

    def start(self, settings: WatchSettings, tell: Callable[[Note], None]) -> None:
        """Start a watcher; it may be called again once ``is_running`` is False.

        Args:
            settings: whom to watch.
            tell: takes what it has to say to people, as soon as the broker can listen.

        Raises:
            OSError: there can be none.
        """

    @property
    def is_running(self) -> bool:
        """Whether there is a watcher."""

    def close(self) -> None:
        """End the guard's thread."""


class StallGuard:
    """Tells the watcher of one broker that the event loop goes on, and what heartbeats say.

    Args:
        port: runs the watcher.
        settings: for it.
        facts: what the broker says of itself; its ``sign_ms`` is not looked at.
        on_fence: told when the fence goes up, and when it falls.
        controllers: who they are now.
    """

    def __init__(
        self, port: WatchPort, settings: WatchSettings, clock: Clock, log: Logger, *,
        facts: Callable[[], Facts], on_fence: Callable[[bool], None],
        controllers: Callable[[], tuple[str, ...]],
    ) -> None:  # fmt: skip
        self._port = port
        self._settings = settings
        self._clock = clock
        self._log = log
        self._facts = facts
        self._on_fence = on_fence
        self._controllers = controllers
        self._started_ms: int | None = None

    def is_fenced(self) -> bool:
        """Whether another master may be elected at any moment."""
        return self._port.page.is_fenced

    async def run(self) -> None:
        """Give signs of life until it is cancelled."""
        page, known = self._port.page, False
        while True:
            now_ms = self._clock.now_ms()
            page.name_controllers(self._controllers())
            page.tell(self._facts()._replace(sign_ms=now_ms))
            self._keep_running(now_ms)
            if page.is_fenced:
                known = True
                self._on_fence(True)
                page.saw_fence()
            elif known:
                known = False
                self._on_fence(False)
            await self._clock.sleep(LOOK_MS)

    def _keep_running(self, now_ms: int) -> None:
        late = self._started_ms is None or now_ms - self._started_ms >= RESTART_MS
        if self._port.is_running or not late:
            return
        self._started_ms = now_ms
        try:
            self._port.start(self._settings, self._log.note)
        except OSError as error:
            self._log.log("warning", "stall_watcher_not_started", reason=str(error))

    def close(self) -> None:
        """End the watcher."""
        self._port.close()
