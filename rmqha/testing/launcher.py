"""A process that has imported everything once and forks the nodes; ``launcher_handle`` starts it.

A node starts in a tenth of the time that an interpreter of its own would take, and shares the
memory of what is imported. It then runs the very ``main`` of its program. Nothing here knows the
programs: their names come with the requests.

The control socket is stdin. One JSON line is a request, one is its answer; a start brings the
node's own channel along (see ``child``). When the socket ends, so do all nodes.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import signal
import socket
from typing import Any, NoReturn

from rmqha.testing.child import run_node

LINE_BYTES_MAX = 65_536


class Launcher:
    """Forks nodes, sends them signals and reaps them. One thread, no event loop."""

    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._running: set[int] = set()
        self._codes: dict[int, int] = {}

    def serve(self) -> None:
        """Answer requests until the socket ends; then end every node."""
        try:
            while (got := self._receive()) is not None:
                request, files = got
                answer = self._answer(request, files)
                self._control.sendall(json.dumps(answer).encode() + b"\n")
        finally:
            for pid in self._running:
                os.kill(pid, signal.SIGKILL)
            for pid in self._running:
                os.waitpid(pid, 0)

    def _receive(self) -> tuple[dict[str, Any], list[int]] | None:
        """The next request; the other side waits for its answer, so there is one at a time."""
        text, files, *_ = socket.recv_fds(self._control, LINE_BYTES_MAX, 1)
        while text and not text.endswith(b"\n"):
            more = self._control.recv(LINE_BYTES_MAX)
            if not more:
                return None
            text += more
        return (json.loads(text), list(files)) if text else None

    def _answer(self, request: dict[str, Any], files: list[int]) -> dict[str, int | None]:
        match request["do"]:
            case "load":
                importlib.import_module(request["program"])
                gc.collect()
                gc.freeze()
                return {"loaded": 1}
            case "start":
                return {"pid": self._start(request, files[0])}
            case "signal":
                return {"sent": self._signal(request["pid"], request["number"])}
            case "reap":
                return {"code": self._reap(request["pid"])}
            case other:
                raise ValueError(f"unknown request {other!r}")

    def _start(self, request: dict[str, Any], channel: int) -> int:
        pid = os.fork()
        if pid == 0:
            self._become(request, channel)
        os.close(channel)
        self._running.add(pid)
        return pid

    def _become(self, request: dict[str, Any], channel: int) -> NoReturn:
        """In the child: nothing of the launcher's is kept but its memory."""
        code = 1
        try:
            self._control.close()
            log = os.open(request["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            os.dup2(channel, 1)
            os.dup2(log, 2)
            os.close(channel)
            os.close(log)
            code = run_node(request["program"], request["arguments"])
        finally:
            os._exit(code)

    def _signal(self, pid: int, number: int) -> int:
        """Only to a node that is not reaped yet: its number cannot be another process's."""
        if pid not in self._running:
            return 0
        os.kill(pid, number)
        return 1

    def _reap(self, pid: int) -> int | None:
        """Wait for a node that is ending; its exit code, negative for a signal."""
        if pid in self._running:
            _, status = os.waitpid(pid, 0)
            self._running.discard(pid)
            self._codes[pid] = os.waitstatus_to_exitcode(status)
        return self._codes.pop(pid, None)


def main() -> None:
    """Serve whoever started this."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    Launcher(socket.socket(fileno=os.dup(0))).serve()


if __name__ == "__main__":
    main()
