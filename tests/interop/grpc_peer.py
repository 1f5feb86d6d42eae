"""Drives real gRPC clients of RocketMQ 5 in one JVM by lines; see ``client_peer`` for the answers.

===========================================  ===================================================
producer NAME TOPIC                          start a producer; it answers for a transaction whose
                                             body begins with ``yes`` that it was committed, else
                                             that it was rolled back
send NAME TOPIC COUNT PREFIX [tag=TAG]       send PREFIX-0, PREFIX-1, ...; ``group`` is the message
  [group=GROUP] [delay=MS]                   group of an ordered topic
transaction NAME TOPIC BODY HOW              a half message; HOW is commit, rollback or leave
asked BODY                                   how often the producer was asked about it
simple NAME GROUP TOPIC                      start a simple consumer
receive NAME COUNT INVISIBLE_MS HOW          ``attempt:body`` of what came within two seconds; HOW is
                                             ack, keep or change=MS
push NAME GROUP TOPIC FAILURES               start a push consumer; each message fails so often
got NAME                                     ``attempt:body`` of everything it was given
stop NAME                                    close any of them
===========================================  ===================================================
"""

from __future__ import annotations

import os
from pathlib import Path

from rmqha.testing.real import maven
from rmqha.testing.real.java import SMALL_JVM
from rmqha.testing.real.processes import Child
from tests.interop.client_peer import ClientPeer
from tests.interop.peers import compiled

PROGRAM = Path(__file__).parent / "java" / "GrpcPeer.java"
CLIENT = (maven.GRPC_CLIENT_VERSION, "client-java")


class GrpcPeer(ClientPeer):
    """A JVM with gRPC clients of one proxy."""

    def __init__(self, home: Path, endpoints: str) -> None:
        super().__init__(home, name="grpc")
        classes = compiled(CLIENT[0], PROGRAM, *CLIENT[1:])
        command = [
            maven.java(), "-Xmx256m", *SMALL_JVM, f"-Duser.home={home}", "-cp",
            os.pathsep.join((str(classes), maven.classpath(*CLIENT))), "GrpcPeer", endpoints,
        ]  # fmt: skip
        self.child = Child("grpc", command, home / "grpc.log", piped=True)

    def take(self, line: str) -> list[tuple[int, str]]:
        """Attempts and bodies that a line's answer lists."""
        found = (one.split(":", 1) for one in filter(None, self.ask(line).split(",")))
        return [(int(attempt), body) for attempt, body in found]
