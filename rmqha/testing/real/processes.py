"""Child processes under a test: own process group, own log file, certain end.

Every child is started in its own session, so signals reach the whole tree it may have made (a
launcher script and the process behind it) and never anything else. Whatever is still running when
the interpreter ends is killed by its recorded group id.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import os
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, TypeVar

POLL_INTERVAL_S = 0.02
TERMINATE_TIMEOUT_S = 15.0
DUMP_TIMEOUT_S = 5.0
LOG_TAIL_LINES = 40
PORT_BLOCK_SIZE = 10
PORT_BLOCK_FIRST = 20000
PORT_BLOCK_COUNT = 1200  # 20000 .. 31999 stays below the kernel's ephemeral range
PORT_BLOCKS_APART = 97
"""From where one user begins to where the next one does."""

_DUMP_ENDS = "JNI global refs"
"""Behind the last thread of a HotSpot's dump."""

_T = TypeVar("_T")

_running: dict[int, Child] = {}
_port_locks: dict[int, IO[str]] = {}
"""By the block's first port."""
_port_guard = threading.Lock()


class WaitTimeout(AssertionError):
    """A condition did not become true before its deadline."""


def wait_until(
    predicate: Callable[[], _T | None],
    timeout_s: float,
    what: str,
    interval_s: float = POLL_INTERVAL_S,
) -> _T:
    """Poll ``predicate`` until it returns something truthy, and return that.

    Raises:
        WaitTimeout: ``timeout_s`` passed; the message names ``what`` and the last value seen.
    """
    deadline = time.monotonic() + timeout_s
    while True:
        value = predicate()
        if value:
            return value
        if time.monotonic() >= deadline:
            raise WaitTimeout(f"after {timeout_s:.0f} s still waiting for {what}; last: {value!r}")
        time.sleep(interval_s)


def assert_holds(predicate: Callable[[], object], duration_s: float, what: str) -> None:
    """Poll ``predicate`` for a while; it must be truthy every time.

    For "nothing happens" only: the duration must cover the period of whatever could happen.
    """
    deadline = time.monotonic() + duration_s
    while time.monotonic() < deadline:
        assert predicate(), f"no longer true: {what}"
        time.sleep(0.1)


def allocate_ports() -> range:
    """Reserve a block of ten free loopback ports for the life of this interpreter.

    Blocks are locked by file, so parallel workers (and parallel runs) never hand out the same one.
    Every user has files of his own, for those of another cannot be opened; users begin at different
    blocks, so that they seldom meet, and a port that somebody listens on is passed over.
    """
    user = os.getuid()
    folder = Path(tempfile.gettempdir()) / f"rmqha-ports-{user}"
    folder.mkdir(mode=0o700, exist_ok=True)
    begin = user * PORT_BLOCKS_APART
    with _port_guard:
        for number in range(PORT_BLOCK_COUNT):
            block = (begin + number) % PORT_BLOCK_COUNT
            handle = (folder / f"{block}.lock").open("w")
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                handle.close()
                continue
            first = PORT_BLOCK_FIRST + block * PORT_BLOCK_SIZE
            ports = range(first, first + PORT_BLOCK_SIZE)
            if all(_is_free(port) for port in ports):
                _port_locks[first] = handle
                return ports
            handle.close()
    raise RuntimeError("no free block of ports")


def free_ports(block: range) -> None:
    """Give one block back; nobody may listen on it any more."""
    with _port_guard:
        handle = _port_locks.pop(block.start, None)
        if handle is not None:
            handle.close()


def port_is_open(port: int, host: str = "127.0.0.1") -> bool:
    """Tell whether something accepts connections on ``host:port``."""
    try:
        with socket.create_connection((host, port), timeout=0.5):
            return True
    except OSError:
        return False


class Child:
    """One child process: start, wait for a sign of life, send it signals, end it for certain.

    With ``piped`` its stdin and stdout are the caller's, and only stderr goes to the log.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        log: Path,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        *,
        piped: bool = False,
    ) -> None:
        self.name = name
        self.command = list(command)
        self.log = log
        self._env = {**os.environ, **(env or {})}
        self._cwd = cwd
        self._piped = piped
        self._process: subprocess.Popen[bytes] | None = None
        self._log_start = 0
        self.stopped = False

    @property
    def pid(self) -> int:
        """The process id, which is also the id of its process group."""
        assert self._process is not None, f"{self.name} was never started"
        return self._process.pid

    @property
    def pipes(self) -> tuple[IO[bytes], IO[bytes]]:
        """Stdin and stdout of a ``piped`` child, since its last start."""
        assert self._process is not None, f"{self.name} was never started"
        assert self._process.stdin is not None, f"{self.name} has no pipes"
        assert self._process.stdout is not None, f"{self.name} has no pipes"
        return self._process.stdin, self._process.stdout

    @property
    def alive(self) -> bool:
        """Whether the process runs (a stopped one counts as running)."""
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Start the process; its output is appended to the log file."""
        assert not self.alive, f"{self.name} runs already"
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with self.log.open("ab") as output:
            self._log_start = output.tell()
            self._process = subprocess.Popen(
                self.command,
                stdin=subprocess.PIPE if self._piped else subprocess.DEVNULL,
                stdout=subprocess.PIPE if self._piped else output,
                stderr=output,
                env=self._env,
                cwd=self._cwd,
                start_new_session=True,
            )
        self.stopped = False
        _running[self._process.pid] = self

    def wait_for_line(self, text: str, timeout_s: float) -> None:
        """Wait until the output since the last start has ``text``."""
        self._wait(lambda: text in self.output(), timeout_s, f"the line {text!r}")

    def wait_for_port(self, port: int, timeout_s: float) -> None:
        """Wait until the process accepts connections on a loopback port."""
        self._wait(lambda: port_is_open(port), timeout_s, f"port {port}")

    def output(self) -> str:
        """Everything the process printed since its last start."""
        if not self.log.exists():
            return ""
        with self.log.open("rb") as log:
            log.seek(self._log_start)
            return log.read().decode(errors="replace")

    def tail(self, lines: int = LOG_TAIL_LINES) -> str:
        """The last lines of the log, headed by the process' name."""
        text = self.log.read_text(errors="replace") if self.log.exists() else ""
        return f"--- {self.name} ({self.log})\n" + "\n".join(text.splitlines()[-lines:])

    def kill(self) -> None:
        """``kill -9`` the process group and reap the process."""
        if self._process is None:
            return
        self._signal(signal.SIGKILL)
        self._process.wait(timeout=TERMINATE_TIMEOUT_S)
        self._forget()

    def terminate(self, timeout_s: float = TERMINATE_TIMEOUT_S) -> bool:
        """SIGTERM, wait, and ``kill -9`` what does not obey; tell whether it ended by itself."""
        if self._process is None:
            return True
        if self.stopped:
            self.cont()
        self._signal(signal.SIGTERM)
        try:
            self._process.wait(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            self.kill()
            return False
        # A launcher may end before what it launched: its group must be empty, too.
        self._signal(signal.SIGKILL)
        self._forget()
        return True

    def stop(self) -> None:
        """SIGSTOP: the process hangs, its connections stay open."""
        self._signal(signal.SIGSTOP)
        self.stopped = True

    def cont(self) -> None:
        """SIGCONT: a stopped process goes on."""
        self._signal(signal.SIGCONT)
        self.stopped = False

    def thread_dump(self) -> str:
        """What each thread of a JVM does at this moment; empty for any other process."""
        if not self.alive or self.stopped or Path(self.command[0]).name != "java":
            return ""
        before = len(self.output())
        self._signal(signal.SIGQUIT)
        with contextlib.suppress(AssertionError):
            self._wait(
                lambda: _DUMP_ENDS in self.output()[before:], DUMP_TIMEOUT_S, "its thread dump"
            )
        return self.output()[before:]

    def _signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, number)

    def _forget(self) -> None:
        _running.pop(self.pid, None)
        self.stopped = False
        if self._process is not None and self._process.stdin is not None:
            with contextlib.suppress(BrokenPipeError):
                self._process.stdin.close()

    def _wait(self, predicate: Callable[[], bool], timeout_s: float, what: str) -> None:
        def ready_or_dead() -> bool:
            return predicate() or not self.alive

        try:
            wait_until(ready_or_dead, timeout_s, f"{what} of {self.name}")
        except WaitTimeout as error:
            raise WaitTimeout(f"{error}\n{self.tail()}") from None
        if not self.alive and not predicate():
            code = self._process.returncode if self._process else None
            raise AssertionError(f"{self.name} ended with {code} before {what}\n{self.tail()}")


@contextlib.contextmanager
def tails_on_failure(children: Callable[[], list[Child]]) -> Iterator[None]:
    """Print the end of every child's log when the body fails."""
    try:
        yield
    except BaseException:
        for child in children():
            print(child.tail())
        raise


def kill_all() -> None:
    """Kill every child that is still running, newest first."""
    for child in reversed(list(_running.values())):
        child.kill()


def _is_free(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("0.0.0.0", port))
        except OSError:
            return False
    return True


atexit.register(kill_all)
