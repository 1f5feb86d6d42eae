"""Drives replicas as processes, Java's or ours, by the same lines.

Lines, each answered by ``ok ...`` or ``error ...``:

=================================  =================================================================
master EPOCH IDS                   become the master; IDS is the SyncStateSet, as 1,2
slave HOST:PORT EPOCH MASTER_ID    follow a master
set IDS                            the controller's word on the SyncStateSet
agree on|off                       whether the peer, its own controller, answers alterations
put BYTES MIN MAX SEED IN_FLIGHT   write records of MIN to MAX bytes, then say how it went
load ... [BYTES_PER_S]             the same, in the background
loaded [now]                       ``busy``, or how it went; ``now`` ends it first
offsets                            min, max, confirm, behind (not yet dispatched), set, epochs
sync                               answer once everything up to the confirm offset is dispatched
read                               count and checksum of all bodies, read through the queues
reach OFFSET                       nanoseconds and bytes from first growth until the log ends there
latency COUNT SIZE IN_FLIGHT       put-to-ack p50 and p99 in microseconds, puts per second
stop                               close the store cleanly and end
=================================  =================================================================
"""

from __future__ import annotations

import fcntl
import hashlib
import queue
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from rmqha.testing.real import maven
from rmqha.testing.real.java import SMALL_JVM, java_command
from rmqha.testing.real.processes import TERMINATE_TIMEOUT_S, Child, allocate_ports, wait_until

SOURCE = Path(__file__).parent / "java" / "HaPeer.java"
JAVA, PYTHON = "java", "python"
START_TIMEOUT_S = 60.0
ANSWER_TIMEOUT_S = 60.0


class PeerError(AssertionError):
    """A peer answered ``error``, or not at all."""


@dataclass(frozen=True)
class Offsets:
    """A peer's answer to ``offsets``."""

    min: int
    max: int
    confirm: int
    behind: int
    set: frozenset[int]
    epochs: tuple[tuple[int, int], ...]


def compiled(version: str, source: Path = SOURCE, *artifacts: str) -> Path:
    """The folder of a program's classes for one release; compiled at first use, kept in the cache.

    Args:
        version: of the release.
        source: the program.
        artifacts: see ``maven.classpath``.

    Raises:
        JavaUnavailable: there is no javac, or no RocketMQ.
    """
    class_path = maven.classpath(version, *artifacts)
    text = source.read_bytes() + class_path.encode()
    root = maven.cache_root() / "-".join((version, *artifacts))
    folder = root / f"{source.stem.lower()}-{hashlib.sha256(text).hexdigest()[:16]}"
    with (root / f"{source.stem.lower()}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "done").exists():
            compiler = Path(maven.java()).resolve().with_name("javac")
            if not compiler.exists():
                raise maven.JavaUnavailable("no javac beside java")
            command = [compiler, "-nowarn", "-d", folder, "-cp", class_path, source]
            done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
            assert done.returncode == 0, done.stderr
            (folder / "done").touch()
    return folder


def java_peer_command(
    version: str, home: Path, args: Sequence[str], options: Sequence[str], source: Path = SOURCE
) -> list[str]:
    """The command line of a program with its own classes before those of a release."""
    command = java_command(version, home, source.stem, args, options)
    at = command.index("-cp") + 1
    command[at] = f"{compiled(version, source)}:{command[at]}"
    return command


class Peer:
    """One replica; its store outlives its process.

    Args:
        side: ``java`` or ``python``.
        root: a folder of its own; the store is ``<root>/store``.
        broker_id: 1, 2, ...
        settings: names and values of broker.conf.
        version: of Java.
        options: of the JVM.
        program: what is run of ours.

    Attributes:
        acked: where the last record ends that a background load of it was told is safe.
    """

    def __init__(
        self,
        side: str,
        root: Path,
        broker_id: int,
        settings: Mapping[str, object],
        *,
        version: str = maven.DEFAULT_VERSION,
        options: Sequence[str] = ("-Xmx512m", *SMALL_JVM),
        program: str = "tests.interop.ha_peer",
    ) -> None:
        self.side, self.id, self.root, self.version = side, broker_id, root, version
        self.store = root / "store"
        self._settings = dict(settings)
        self._options = options
        self._program = program
        self.port = allocate_ports()[0]
        self.acked = 0
        self._answers: queue.Queue[str] = queue.Queue()
        self.child = self._child()

    def _child(self) -> Child:
        settings: dict[str, object] = {
            **self._settings, "storePathRootDir": self.store, "haListenPort": self.port,
        }  # fmt: skip
        pairs = [f"{name}={_text(value)}" for name, value in settings.items()]
        args = [str(self.id), *pairs]
        self.store.mkdir(parents=True, exist_ok=True)
        if self.side == JAVA:
            command = java_peer_command(self.version, self.root, args, self._options)
        else:
            command = [sys.executable, "-m", self._program, *args]
        name = f"{self.side}{self.id}"
        return Child(name, command, self.root / f"{name}.log", piped=True)

    @property
    def address(self) -> str:
        """Where its slaves connect."""
        return f"127.0.0.1:{self.port}"

    # -- life

    def start(self) -> Peer:
        """Start the process and wait until its store is open."""
        self.child.start()
        self._answers = queue.Queue()
        reader = threading.Thread(
            target=self._listen, args=(self.child.pipes[1], self._answers), daemon=True
        )
        reader.start()
        self._take(START_TIMEOUT_S, "start")
        return self

    def _listen(self, lines: IO[bytes], answers: queue.Queue[str]) -> None:
        with lines:
            for raw in lines:
                word, _, rest = raw.decode().strip().partition(" ")
                if word == "acked":
                    self.acked = max(self.acked, int(rest))
                elif word:
                    answers.put(raw.decode().strip())
        answers.put("error the process has ended")

    def kill(self) -> None:
        """``kill -9``."""
        self.child.kill()

    def stop(self) -> None:
        """Close the store cleanly and end."""
        self.ask("stop")
        wait_until(lambda: not self.child.alive, TERMINATE_TIMEOUT_S, f"the end of {self.side}")
        self.child.kill()

    def become(self, side: str) -> Peer:
        """Run the other implementation over the same store from the next start on."""
        assert not self.child.alive
        self.side = side
        self.child = self._child()
        return self

    # -- lines

    def ask(self, line: str, timeout_s: float = ANSWER_TIMEOUT_S) -> str:
        """Send a line and return the rest of its ``ok``.

        Raises:
            PeerError: it answered ``error``, or nothing in time.
        """
        self.tell(line)
        return self._take(timeout_s, line)

    def tell(self, line: str) -> None:
        """Send a line; :meth:`answer` takes what comes back."""
        stdin = self.child.pipes[0]
        stdin.write(line.encode() + b"\n")
        stdin.flush()

    def answer(self, timeout_s: float = ANSWER_TIMEOUT_S) -> str:
        """The rest of the ``ok`` to a line that was told."""
        return self._take(timeout_s, "the last line")

    def _take(self, timeout_s: float, line: str) -> str:
        try:
            word, _, rest = self._answers.get(timeout=timeout_s).partition(" ")
        except queue.Empty:
            word, rest = "error", f"no answer within {timeout_s:.0f} s"
        if word != "ok":
            raise PeerError(f"{self.child.name}: {line}: {rest}\n{self.child.tail()}")
        return rest

    def offsets(self) -> Offsets:
        """Its log and its sets."""
        found = dict(part.split("=", 1) for part in self.ask("offsets").split(" "))
        ids = frozenset(int(one) for one in found["set"].split(",") if one)
        pairs = [one.split("-") for one in found["epochs"].split(",") if one]
        return Offsets(
            int(found["min"]), int(found["max"]), int(found["confirm"]), int(found["behind"]), ids,
            tuple((int(epoch), int(start)) for epoch, start in pairs),
        )  # fmt: skip

    def wait_loaded(self, timeout_s: float = ANSWER_TIMEOUT_S) -> dict[str, str]:
        """How the background load went, once it has ended."""

        def ended() -> str | None:
            said = self.ask("loaded")
            return None if said == "busy" else said

        return summary(wait_until(ended, timeout_s, f"the load of {self.side}"))


def summary(text: str) -> dict[str, str]:
    """The facts of a load."""
    return dict(part.split("=", 1) for part in text.split(" "))


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
