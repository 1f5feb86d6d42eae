"""Drives real Java clients in one JVM by lines; bodies come back as ``queue:offset:body``.

========================================  ======================================================
producer NAME GROUP SERVERS               start a producer
send NAME TOPIC QUEUE COUNT PREFIX [TAG]  send PREFIX-0, PREFIX-1, ...; QUEUE -1 takes turns; after a
  [PROPERTY]                              TAG, a user property that counts as the bodies do
push NAME GROUP SERVERS TOPIC EXPRESSION  start a push consumer; MODEL is clustering or
  MODEL LISTENER FROM                     broadcasting, LISTENER concurrent or orderly, FROM first
                                          or last; ``~`` stands for a blank in EXPRESSION, and
                                          ``sql:`` begins a selector
got NAME, count NAME, forget NAME         what a push consumer has received since it was started
take NAME                                 the same, and forget just that
queues NAME                               the queue ids that it holds
puller NAME GROUP SERVERS                 start a pull consumer
drain NAME TOPIC EXPRESSION               everything there is, by plain pulls
commit NAME TOPIC QUEUE OFFSET            store an offset at the broker
committed NAME TOPIC QUEUE                what the broker has stored
bytime NAME TOPIC QUEUE MILLISECONDS      the first offset stored at or after a moment
lite NAME GROUP SERVERS TOPIC EXPRESSION  start a lite pull consumer; FROM as above
  FROM
poll NAME COUNT TIMEOUT_MS                messages of a lite consumer
seek NAME OFFSET, litecommit NAME         move it; store where it is
stop NAME                                 shut any of them down
========================================  ======================================================
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import IO, NamedTuple, Self

from rmqha.testing.real import maven
from rmqha.testing.real.java import SMALL_JVM
from rmqha.testing.real.processes import Child
from tests.interop.peers import ANSWER_TIMEOUT_S, START_TIMEOUT_S, PeerError, java_peer_command

SOURCE = Path(__file__).parent / "java" / "ClientPeer.java"


class Received(NamedTuple):
    """One message as a client saw it."""

    queue_id: int
    queue_offset: int
    body: str


class ClientPeer:
    """A JVM with clients of one release.

    Args:
        home: a folder of its own.
        version: of the clients.
        name: names its log.
        source: the Java program.
        options: more for its JVM.
    """

    def __init__(
        self,
        home: Path,
        version: str = maven.DEFAULT_VERSION,
        name: str = "clients",
        source: Path = SOURCE,
        options: Sequence[str] = (),
    ) -> None:
        command = java_peer_command(version, home, [], ("-Xmx256m", *SMALL_JVM, *options), source)
        self.child = Child(name, command, home / f"{name}.log", piped=True)
        self._answers: queue.Queue[str] = queue.Queue()

    def __enter__(self) -> Self:
        self.child.start()
        reader = threading.Thread(target=self._listen, args=(self.child.pipes[1],), daemon=True)
        reader.start()
        self._take(START_TIMEOUT_S, "start")
        return self

    def __exit__(self, *_: object) -> None:
        self.child.kill()

    def _listen(self, lines: IO[bytes]) -> None:
        with lines:
            for raw in lines:
                text = raw.decode().strip()
                if text.partition(" ")[0] in ("ok", "error"):
                    self._answers.put(text)
        self._answers.put("error the process has ended")

    def ask(self, line: str, timeout_s: float = ANSWER_TIMEOUT_S) -> str:
        """Send a line and return the rest of its ``ok``.

        Raises:
            PeerError: it answered ``error``, or nothing in time.
        """
        stdin = self.child.pipes[0]
        stdin.write(line.encode() + b"\n")
        stdin.flush()
        return self._take(timeout_s, line)

    def _take(self, timeout_s: float, line: str) -> str:
        try:
            word, _, rest = self._answers.get(timeout=timeout_s).partition(" ")
        except queue.Empty:
            word, rest = "error", f"no answer within {timeout_s:.0f} s"
        if word != "ok":
            raise PeerError(f"{self.child.name}: {line}: {rest}\n{self.child.tail()}")
        return rest

    def messages(self, line: str) -> list[Received]:
        """The messages that a line's answer lists."""
        found = []
        for text in filter(None, self.ask(line).split(",")):
            queue_id, offset, body = text.split(":", 2)
            found.append(Received(int(queue_id), int(offset), body))
        return found

    def bodies(self, line: str) -> list[str]:
        """Their bodies alone."""
        return [one.body for one in self.messages(line)]
