"""What happened after the kill, put together from the logs of controllers and brokers."""

from __future__ import annotations

import json
import time
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple, Protocol

POLL_S = 0.02


class Stage(NamedTuple):
    """One line of the timeline."""

    after_ms: float
    who: str
    what: str


class Followed(Protocol):
    """What a timeline needs of a cluster.

    Attributes:
        killed_wall_s: when the master was killed, seconds since 1970.
    """

    killed_wall_s: float

    def logs(self) -> list[tuple[str, Path]]:
        """Name and file of every JSON log."""

    def writes_are_back(self) -> bool:
        """Whether the failover is over for a client."""

    def write_stages(self) -> list[tuple[float, str, str]]:
        """Stages that a client saw: milliseconds after the kill, who, what."""


class LogTail:
    """JSON lines that were added to a log since this was made."""

    def __init__(self, name: str, path: Path) -> None:
        self.name = name
        self._path = path
        self._position = path.stat().st_size if path.exists() else 0
        self._rest = ""

    def lines(self) -> list[dict[str, Any]]:
        """New lines that are JSON objects."""
        with self._path.open("rb") as file:
            file.seek(self._position)
            data = file.read()
        self._position += len(data)
        text = self._rest + data.decode(errors="replace")
        *whole, self._rest = text.split("\n")
        return [json.loads(line) for line in whole if line.startswith("{")]


class Timeline:
    """Follows one failover until its last stage.

    Args:
        cluster: whose logs are read; from now on, so make it before the kill.
    """

    def __init__(self, cluster: Followed) -> None:
        self._cluster = cluster
        self._tails = [LogTail(name, path) for name, path in cluster.logs()]
        self._wall_s = 0.0
        self._new_master: str | None = None
        self.stages: list[Stage] = []

    def killed(self) -> None:
        """The kill is now."""
        self._wall_s = self._cluster.killed_wall_s

    def follow(self, timeout_s: float) -> None:
        """Collect stages until the cluster says that all is done.

        Raises:
            AssertionError: it took longer than ``timeout_s``.
        """
        deadline = time.monotonic() + timeout_s
        done_at: float | None = None
        while done_at is None or time.monotonic() < done_at:
            assert time.monotonic() < deadline, f"no failover within {timeout_s} s"
            for tail in self._tails:
                for line in tail.lines():
                    self._take(tail.name, line)
            if done_at is None and self._new_master and self._cluster.writes_are_back():
                # Slaves are told a little later; their lines belong to the story.
                done_at = time.monotonic() + 0.8
            time.sleep(POLL_S)
        self.stages += [Stage(*stage) for stage in self._cluster.write_stages()]
        self.stages.sort()

    def _take(self, who: str, line: dict[str, Any]) -> None:
        after_ms = (_wall_s(line) - self._wall_s) * 1000
        what = self._describe(line)
        if after_ms >= 0 and what is not None:
            self.stages.append(Stage(after_ms, who, what))

    def _describe(self, line: dict[str, Any]) -> str | None:
        match line["event"]:
            case "raft_role_changed" if line["role"] == "leader":
                return f"leads the controllers in term {line['term']}"
            case "broker_inactive" if line["was_master"]:
                return f"counts broker {line['broker_id']} as dead: its connection was closed"
            case "master_elected":
                self._new_master = line["master_address"]
                return (
                    f"elects broker {line['new_master_broker_id']}, master epoch"
                    f" {line['old_master_epoch']} -> {line['master_epoch']}"
                    f" (log entry on a quorum's disks after {line['commit_ms']} ms)"
                )
            case "broker_notified":
                if line["address"] == line["masterAddress"]:
                    return f"tells broker {line['masterBrokerId']} that it is master"
                return f"tells {line['address']} whom to follow"
            case "agent_role_changed":
                return f"is {line['role']} in epoch {line['epoch']}"
            case "role_taken_up":
                return f"serves as {line['role']} in epoch {line['epoch']}"
            case "registered" if line["broker_id"] == 0:
                return "is listed as master by the name server"
            case _:
                return None


def _wall_s(line: dict[str, Any]) -> float:
    return datetime.fromisoformat(line["timestamp"]).timestamp()
