"""A broker whose disk hangs: the process stands still in its first write, and its watcher does not.

On a real machine a write through a mapping waits in the kernel with the whole process. So here a host
whose disk hangs takes no event until it goes on, while the watcher, a process of its own on the same
machine, has a network and tasks of its own.
"""

from __future__ import annotations

import contextvars
from collections.abc import Callable

from rmqha.base.machine import Note
from rmqha.broker.membership.aio.stall_watcher import StallWatcher
from rmqha.broker.membership.stall_page import PAGE_BYTES, StallPage
from rmqha.broker.membership.stall_watch import WatchSettings
from rmqha.remoting.aio.client import RemotingClient
from rmqha.remoting.settings import RemotingSettings
from rmqha.runtime.aio.tasks import Tasks
from rmqha.runtime.logs import Logger
from rmqha.runtime.ports import Clock
from rmqha.sim.cluster import SimCluster
from rmqha.sim.loop import HOST
from rmqha.sim.net import WATCH


class SimWatch:
    """WatchPort of one life of one simulated host.

    Args:
        cluster: where it lives.
        host: whose broker it watches.
        clock: of that life.
    """

    def __init__(self, cluster: SimCluster, host: str, clock: Clock) -> None:
        self.page = StallPage(memoryview(bytearray(PAGE_BYTES)))
        self._cluster = cluster
        self._host = f"{host}{WATCH}"
        self._clock = clock
        self._runs = False

    def start(self, settings: WatchSettings, tell: Callable[[Note], None]) -> None:
        """Start it on its own host."""
        cluster, self._runs = self._cluster, True
        context = contextvars.copy_context()
        context.run(HOST.set, self._host)
        network = cluster.net.boot(self._host, context)
        limits = RemotingSettings(invoke_timeout_ms=settings.replicas.invoke_timeout_ms)
        sign = None if settings.credentials is None else settings.credentials.sign
        client = RemotingClient(network, self._clock, limits, connection_ids=cluster.ids, sign=sign)

        def said(note: Note) -> None:
            cluster.counts[note.event] += 1
            cluster.trace.say(self._host, note.event, **note.facts)
            tell(note)

        tasks = Tasks(Logger(host=self._host), cluster.loop.errors.append)
        watcher = StallWatcher(settings, self.page, client, self._clock, tasks, said)
        cluster.loop.create_task(watcher.run(), name="watch", context=context)

    @property
    def is_running(self) -> bool:
        """Until it is killed."""
        return self._runs

    def close(self) -> None:
        """End it with the broker."""
        if self._runs:
            self._runs = False
            self._cluster.net.kill(self._host, power=False)
            self._cluster.loop.end_host(self._host)


def stall(cluster: SimCluster, host: str, duration_ms: int) -> None:
    """Hang a host's disk; its broker stands still in the middle of a write."""
    cluster.disks[host].hang(duration_ms, fails=False)
    cluster.pause(host)
    cluster.loop.call_later(duration_ms / 1000, cluster.resume, host)
