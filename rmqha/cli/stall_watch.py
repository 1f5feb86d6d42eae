"""The watcher of a broker's event loop as a process: ``python -m rmqha.cli.stall_watch FD``.

The broker starts it. FD is the shared page; a line of JSON on stdin says whom to watch, a second one what is set about TLS, and the end of
stdin that the broker is gone. Notes go to stdout as lines of JSON, for the broker to log once it can:
nothing here is written to a disk, which may be the one that stands still.
"""

from __future__ import annotations

import asyncio
import contextlib
import mmap
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping

import msgspec

from rmqha.base.machine import Note
from rmqha.broker.membership.aio.stall_watcher import StallWatcher
from rmqha.broker.membership.stall_page import PAGE_BYTES, StallPage
from rmqha.broker.membership.stall_watch import WatchSettings
from rmqha.cli.early import let_signals_come
from rmqha.remoting.aio.client import RemotingClient
from rmqha.remoting.settings import RemotingSettings
from rmqha.runtime.aio.clock import SystemClock
from rmqha.runtime.aio.loop import run
from rmqha.runtime.aio.machine import MACHINE
from rmqha.runtime.aio.tasks import Tasks
from rmqha.runtime.aio.tls import Tls
from rmqha.runtime.logs import Logger, configure_logs

STDIN, STDOUT = 0, 1
READ_BYTES = 65_536


class WatchProcess:
    """WatchPort: the watcher in a process of its own, with a page of anonymous shared memory.

    Args:
        tls: the broker's keys about TLS, for its connections to controllers.

    Raises:
        OSError: the system has no such memory.
    """

    def __init__(self, tls: Mapping[str, str]) -> None:
        self._tls = dict(tls)
        self._fd = os.memfd_create("rmqha-stall")
        os.truncate(self._fd, PAGE_BYTES)
        self._memory = mmap.mmap(self._fd, PAGE_BYTES)
        self.page = StallPage(memoryview(self._memory))
        self._process: subprocess.Popen[bytes] | None = None
        self._rest = b""

    def start(self, settings: WatchSettings, tell: Callable[[Note], None]) -> None:
        """Start the process, and listen to it."""
        if self._process is not None:
            tell(Note("stall_watcher_ended", "warning", {"code": self._process.poll()}))
        self._end()
        process = self._process = subprocess.Popen(
            [sys.executable, "-m", "rmqha.cli.stall_watch", str(self._fd)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            pass_fds=(self._fd,), start_new_session=True,
        )  # fmt: skip
        if process.stdin is None or process.stdout is None:
            raise OSError("no pipes")
        os.set_blocking(process.stdout.fileno(), False)
        # A line is shorter than a pipe's buffer, so this does not wait.
        with contextlib.suppress(BrokenPipeError):
            process.stdin.write(msgspec.json.encode(settings) + b"\n")
            process.stdin.write(msgspec.json.encode(self._tls) + b"\n")
            process.stdin.flush()
        self._rest = b""
        loop = asyncio.get_running_loop()
        loop.add_reader(process.stdout.fileno(), self._listen, process, tell)

    def _listen(self, process: subprocess.Popen[bytes], tell: Callable[[Note], None]) -> None:
        if process.stdout is None:
            return
        try:
            data = os.read(process.stdout.fileno(), READ_BYTES)
        except BlockingIOError:
            return
        if not data:
            asyncio.get_running_loop().remove_reader(process.stdout.fileno())
            return
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            tell(msgspec.json.decode(line, type=Note))

    @property
    def is_running(self) -> bool:
        """Whether the process runs."""
        return self._process is not None and self._process.poll() is None

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is None or process.stdin is None or process.stdout is None:
            return
        with contextlib.suppress(RuntimeError):
            asyncio.get_running_loop().remove_reader(process.stdout.fileno())
        with contextlib.suppress(BrokenPipeError):
            process.stdin.close()
        process.stdout.close()
        process.kill()
        process.wait()

    def close(self) -> None:
        """End the process, and let the page go."""
        self._end()
        if self._fd >= 0:
            self.page.close()
            self._memory.close()
            os.close(self._fd)
            self._fd = -1


def main() -> None:
    """Watch until stdin ends."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    let_signals_come()
    memory = mmap.mmap(int(sys.argv[1]), PAGE_BYTES)
    settings = msgspec.json.decode(sys.stdin.buffer.readline(), type=WatchSettings)
    values = msgspec.json.decode(sys.stdin.buffer.readline(), type=dict[str, str])
    os.set_blocking(STDOUT, False)
    configure_logs(level="error", style="json")
    run(_watch(settings, StallPage(memoryview(memory)), Tls(values, Logger())))


async def _watch(settings: WatchSettings, page: StallPage, tls: Tls) -> None:
    ended = asyncio.Event()

    def failed(error: BaseException) -> None:
        tell(Note("stall_watcher_failed", "error", {"error": repr(error)}))
        ended.set()

    clock, tasks = SystemClock(), Tasks(Logger(), failed)
    limits = RemotingSettings(invoke_timeout_ms=settings.replicas.invoke_timeout_ms)
    sign = None if settings.credentials is None else settings.credentials.sign
    client = RemotingClient(MACHINE.network(tls), clock, limits, sign=sign)
    watcher = StallWatcher(settings, page, client, clock, tasks, tell)
    asyncio.get_running_loop().add_reader(STDIN, ended.set)
    tasks.start(watcher.run(), name="watch")
    tasks.start(tls.watch(), name="certificates")
    await ended.wait()
    await tasks.close()
    await client.close()


def tell(note: Note) -> None:
    """Say it to the broker; what does not fit into the pipe any more is lost."""
    with contextlib.suppress(BlockingIOError, BrokenPipeError):
        os.write(STDOUT, msgspec.json.encode(note) + b"\n")


if __name__ == "__main__":
    main()
