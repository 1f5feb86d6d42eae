"""Nodes in processes of their own: real kills, real SIGSTOP, the real programs."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import socket
from collections.abc import Iterable
from pathlib import Path

from rmqha.runtime.properties import format_properties
from rmqha.testing.child import APPLIED
from rmqha.testing.launcher_handle import PROGRAMS
from rmqha.testing.launcher_handle import launcher as launcher  # who uses nodes takes it from here
from rmqha.testing.nodes import Node, NodeFailed
from rmqha.testing.settings import Place, Plan

BOOTED = "boot success"
START_TIMEOUT_S = 30.0
END_TIMEOUT_S = 15.0
KILLED_TIMEOUT_S = 60.0
"""Nobody refuses SIGKILL, but who is in a system call that waits for a disk ends only after it."""
LOG_TAIL_LINES = 20


def _waits_for(pid: int) -> str:
    """Its threads' states and where they wait in the kernel, as far as Linux tells."""
    found = []
    for thread in sorted(Path(f"/proc/{pid}/task").glob("*")):
        with contextlib.suppress(OSError):
            state = (thread / "stat").read_text().rpartition(")")[2].split()[0]
            found.append(f"{state} {(thread / 'wchan').read_text()}")
    return ", ".join(found) or "there is no such process"


class ProcessNode(Node):
    """One node in a process of its own.

    Attributes:
        pid: of its newest run, 0 before the first.
        source: the folder of the release that its next start runs; None for this one.
    """

    def __init__(self, place: Place, plan: Plan) -> None:
        super().__init__(place)
        self._plan = plan
        self.pid = 0
        self.source: Path | None = None
        self._running: Path | None = None
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._launching: asyncio.Task[None] | None = None
        self._listening: asyncio.Task[None] | None = None
        self._booted: asyncio.Future[bool] | None = None
        self._ending: asyncio.Future[int | None] | None = None
        self._expects_end = False
        self._cut: list[int] = []
        self._slow_ms = 0.0
        self._number = self._log_from = 0
        self._applied: dict[int, asyncio.Future[None]] = {}

    @property
    def is_alive(self) -> bool:
        """Whether the process runs."""
        return self._ending is not None and not self._ending.done()

    async def start(self) -> None:
        """Start the process, and wait for its boot line.

        Raises:
            NodeFailed: it ended, or said nothing for long; the end of its log is in the message, as
                far as it is of this start.
        """
        if self.is_alive:
            return
        self.failure = ""
        self.is_stopped = self._expects_end = False
        self.place.folder.mkdir(parents=True, exist_ok=True)
        config = self.place.folder / f"{self.place.kind}.properties"
        properties = {**self._plan.properties(self.place), "logStyle": "json"}
        config.write_text(format_properties(properties), encoding="utf-8")
        self._log_from = self.log.stat().st_size if self.log.exists() else 0
        loop = asyncio.get_running_loop()
        self._booted, self._ending = loop.create_future(), loop.create_future()
        # Whoever is interrupted here leaves a process that is known: its end waits for its beginning.
        self._launching = loop.create_task(self._begin(str(config)), name=f"launch {self.name}")
        await asyncio.shield(self._launching)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(START_TIMEOUT_S):
                if await self._booted:
                    await self._tell_faults()
                    return
        await self.kill()
        raise NodeFailed(f"{self.name} did not start: {self.failure}\n{self._tail()}")

    async def _begin(self, config: str) -> None:
        """Have the launcher fork it, and hear it from then on; it knows its faults from the first."""
        self._writer = None
        ours, theirs = socket.socketpair()
        try:
            with theirs:
                if self._is_told:
                    ours.sendall(self._next_faults())
                self.pid = await asyncio.to_thread(self._launch, theirs, config)
            self._reader, self._writer = await asyncio.open_connection(sock=ours)
        except BaseException:
            ours.close()
            if self._ending is not None:
                self._ending.set_result(None)
            raise
        listening = self._listen(self._reader)
        self._listening = asyncio.get_running_loop().create_task(
            listening, name=f"hear {self.name}"
        )

    def _launch(self, channel: socket.socket, config: str) -> int:
        self._running = self.source
        answer = launcher(self._running).request(
            channel, do="start", program=PROGRAMS[self.place.kind], arguments=["-c", config],
            log=str(self.log),
        )  # fmt: skip
        return int(answer["pid"])

    def _tail(self) -> str:
        said = self.log.read_bytes()[self._log_from :] if self.log.exists() else b""
        return "\n".join(said.decode(errors="replace").splitlines()[-LOG_TAIL_LINES:])

    async def _listen(self, reader: asyncio.StreamReader) -> None:
        """Hear what the process prints, to its end."""
        while line := await reader.readline():
            text = line.decode(errors="replace").strip()
            if BOOTED in text and self._booted is not None and not self._booted.done():
                self._booted.set_result(True)
            elif text.startswith(APPLIED):
                applied = self._applied.pop(int(text.split()[-1]), None)
                if applied is not None and not applied.done():
                    applied.set_result(None)
        await self._ended()

    async def _ended(self) -> None:
        """The process has closed everything: it has ended, or is about to."""
        answer = await asyncio.to_thread(launcher(self._running).request, do="reap", pid=self.pid)
        code = answer["code"]
        if not self._expects_end:
            self.failure = f"ended by itself with exit code {code}"
        if self._writer is not None:
            self._writer.close()
        for applied in self._applied.values():
            applied.cancel()
        self._applied.clear()
        self.is_stopped = False
        if self._ending is not None and not self._ending.done():
            self._ending.set_result(code)
        if self._booted is not None and not self._booted.done():
            self._booted.set_result(False)

    async def _signal(self, number: signal.Signals) -> None:
        await asyncio.to_thread(
            launcher(self._running).request, do="signal", pid=self.pid, number=int(number)
        )

    async def _end(self, number: signal.Signals, timeout_s: float) -> None:
        if self._launching is not None:
            await asyncio.wait([self._launching])
        if not self.is_alive or self._ending is None:
            return
        self._expects_end = True
        await self._signal(number)
        if number != signal.SIGKILL and self.is_stopped:
            await self.cont()
        async with asyncio.timeout(timeout_s):
            await asyncio.shield(self._ending)
        if self._listening is not None:
            await self._listening

    async def kill(self) -> None:
        """SIGKILL, and wait for its end.

        Raises:
            NodeFailed: it is still there after a minute; what it waits for is in the message.
        """
        try:
            await self._end(signal.SIGKILL, KILLED_TIMEOUT_S)
        except TimeoutError as error:
            raise NodeFailed(
                f"{self.name} (process {self.pid}) has not ended {KILLED_TIMEOUT_S} s after SIGKILL:"
                f" {_waits_for(self.pid)}"
            ) from error

    async def shut_down(self) -> None:
        """SIGTERM, and wait for its end.

        Raises:
            NodeFailed: it did not end in time; it was killed.
        """
        try:
            await self._end(signal.SIGTERM, END_TIMEOUT_S)
        except TimeoutError as error:
            await self.kill()
            raise NodeFailed(f"{self.name} did not end within {END_TIMEOUT_S} s") from error

    async def stop(self) -> None:
        """Stop the process with SIGSTOP."""
        if self.is_alive:
            self.is_stopped = True
            await self._signal(signal.SIGSTOP)

    async def cont(self) -> None:
        """Let the process go on with SIGCONT."""
        if self.is_stopped:
            self.is_stopped = False
            await self._signal(signal.SIGCONT)

    async def slow_disk(self, delay_ms: float) -> None:
        """Told to the process; it holds when this returns, or when a stopped one goes on."""
        if delay_ms != self._slow_ms:
            self._slow_ms = delay_ms
            await self._tell_faults()

    async def cut(self, ports: Iterable[int]) -> None:
        """See the method ``slow_disk``."""
        cut = sorted(set(ports))
        if cut != self._cut:
            self._cut = cut
            await self._tell_faults()

    @property
    def _is_told(self) -> bool:
        """Whether there is anything to tell: a process is born whole."""
        return self._number > 0 or bool(self._cut) or self._slow_ms != 0

    def _next_faults(self) -> bytes:
        """What a process has to obey from now on; its line has a number of its own."""
        self._number += 1
        faults = {"number": self._number, "cut": self._cut, "slow_ms": self._slow_ms}
        return json.dumps(faults).encode() + b"\n"

    async def _tell_faults(self) -> None:
        if not self.is_alive or self._writer is None or not self._is_told:
            return
        line = self._next_faults()
        applied = self._applied[self._number] = asyncio.get_running_loop().create_future()
        self._writer.write(line)
        if not self.is_stopped:
            with contextlib.suppress(asyncio.CancelledError):
                async with asyncio.timeout(END_TIMEOUT_S):
                    await asyncio.wait([applied])
