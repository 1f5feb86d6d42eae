"""The handle of the launcher, which forks the nodes of clusters whose nodes are processes."""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import socket
import subprocess
import sys
import threading
import weakref
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import rmqha
from rmqha.testing.nodes import NodeFailed
from rmqha.testing.settings import known_settings

PROGRAMS = {
    "controller": "rmqha.cli.mqcontroller",
    "namesrv": "rmqha.cli.mqnamesrv",
    "broker": "rmqha.cli.mqbroker",
}
HERE = Path(rmqha.__file__).absolute().parents[1]
RUN = """\
import sys
sys.path.insert(0, sys.argv[1])
import rmqha
del sys.path[0]
from rmqha.testing.launcher import main
main()
"""
"""With ``-m`` the folder of the test would come before the library, and its ``queue.py`` before
Python's. The package is that of this process, wherever it came from; nothing else is taken there."""
END_TIMEOUT_S = 15.0
ANSWER_BYTES_MAX = 4096
STRANGERS = frozenset(("NAMESRV_ADDR", "ROCKETMQ_HOME"))


def node_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables without those that would change what the nodes' files say.

    The programs read every setting from a variable of its name, too, which wins over the file.
    """
    strange = STRANGERS.union(*map(known_settings, PROGRAMS))
    return {key: text for key, text in environment.items() if key not in strange}


class LauncherHandle:
    """This process's launcher; made at the first use, shared by all clusters, ended with us.

    Args:
        source: a folder with another release's package; None for this release.
    """

    def __init__(self, source: Path | None = None) -> None:
        self._guard = threading.Lock()
        ours, theirs = socket.socketpair()
        environment = node_environment(os.environ)
        if source is not None:
            # Its process has another folder.
            source = source.absolute()
            environment["PYTHONPATH"] = str(source)
        with theirs:
            self.process = subprocess.Popen(
                [sys.executable, "-P", "-c", RUN, str(source or HERE)],
                stdin=theirs.fileno(),
                env=environment,
                cwd=source,
                start_new_session=True,
            )
        self._control = ours
        self._pid = os.getpid()
        _handles.add(self)
        atexit.register(self.close)

    def request(self, channel: socket.socket | None = None, **what: object) -> dict[str, Any]:
        """Ask, and wait for the answer.

        Raises:
            NodeFailed: the launcher is gone.
        """
        text = json.dumps(what).encode() + b"\n"
        with self._guard:
            try:
                if channel is None:
                    self._control.sendall(text)
                else:
                    socket.send_fds(self._control, [text], [channel.fileno()])
                answer = self._control.recv(ANSWER_BYTES_MAX)
            except OSError as error:
                raise NodeFailed(f"the launcher is gone: {error}") from error
        if not answer:
            raise NodeFailed(f"the launcher ended with {self.process.wait()}")
        found: dict[str, Any] = json.loads(answer)
        return found

    @property
    def is_usable(self) -> bool:
        """Whether it runs, and is this process's own (not that of one that forked us)."""
        return self._pid == os.getpid() and self.process.poll() is None

    def forget(self) -> None:
        """In a fork of the process that made it: a launcher ends when its maker does, and not later."""
        self._control.close()

    def close(self) -> None:
        """End it, and every node that it still has."""
        if self._pid != os.getpid():
            return
        # Not only closed: whoever else has it, such as a fork of us, would keep the launcher alive.
        with contextlib.suppress(OSError):
            self._control.shutdown(socket.SHUT_RDWR)
        self._control.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(END_TIMEOUT_S)
        atexit.unregister(self.close)


_handles: weakref.WeakSet[LauncherHandle] = weakref.WeakSet()
_launchers: dict[Path | None, LauncherHandle] = {}
_launchers_guard = threading.Lock()


def launcher(source: Path | None = None) -> LauncherHandle:
    """The launcher of this process, of this release or of the one in a folder."""
    with _launchers_guard:
        if source not in _launchers or not _launchers[source].is_usable:
            _launchers[source] = LauncherHandle(source)
        return _launchers[source]


def _forget_launchers() -> None:
    """In the child of a fork, which may live longer than its parent and that one's nodes."""
    for handle in list(_handles):
        handle.forget()


os.register_at_fork(after_in_child=_forget_launchers)
