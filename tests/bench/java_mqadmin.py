"""The real mqadmin's commands for a static topic, one after the other in one JVM."""

from __future__ import annotations

import base64
import time
from pathlib import Path
from typing import Self

from rmqha.base.errors import RmqhaError
from tests.interop.client_peer import ClientPeer

SOURCE = Path(__file__).parents[1] / "interop" / "java" / "AdminPeer.java"
PLANNED = ".after"
"""How the file's name ends that a command tells of before it changes anything."""
COMMAND_S = 120.0
"""Longer than all requests of a command to brokers that are gone."""


class CommandFailed(RmqhaError):
    """The real mqadmin printed an exception, or not what a command prints that was carried out."""


class JavaMqadmin:
    """Types commands.

    Args:
        folder: for its log and the files of its plans.
        server: the name server.

    Attributes:
        last_s: how long the last command that succeeded took.
    """

    def __init__(self, folder: Path, server: str) -> None:
        self._peer = ClientPeer(
            folder, name="mqadmin", source=SOURCE, options=[f"-Djava.io.tmpdir={folder}"]
        )
        self._server = server
        self.last_s = 1.0

    def __enter__(self) -> Self:
        self._peer.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._peer.__exit__()

    def run(self, command: str, topic: str, *words: str) -> None:
        """Type a command that changes a static topic, and wait for its end.

        Raises:
            CommandFailed: it was not carried out, or not wholly.
        """
        begun = time.monotonic()
        line = "\t".join((command, "-n", self._server, "-t", topic, *words))
        text = base64.b64decode(self._peer.ask(line, COMMAND_S)).decode()
        reason = failure(text)
        if reason is not None:
            raise CommandFailed(reason)
        self.last_s = time.monotonic() - begun


def failure(text: str) -> str | None:
    """Why a command was not carried out, by what it printed; None if it was."""
    causes = [line.strip() for line in text.splitlines() if "Exception" in line]
    if causes:
        return causes[-1]  # the innermost
    return None if PLANNED in text else text.strip() or "nothing was printed"
