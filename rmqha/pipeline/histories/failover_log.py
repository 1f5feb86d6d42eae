"""The lines of logs that tell of failovers: of controllers, brokers and name servers.

A controller's line names the broker set and the epoch. A broker's does not: it belongs to the
master and epoch of the last ``role_assigned`` before it, and a master's address names its set.

Source: what ``bin/mqcontroller``, ``bin/mqbroker`` and ``bin/mqnamesrv`` log; ``runtime/logs.py``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from itertools import islice
from typing import Any

import orjson
from msgspec import Struct

from rmqha.base.errors import ConfigInvalid
from rmqha.verify.client_history import LINE_BYTES_MAX

LOOKED_AT_LINES = 200
"""So many lines of a file are looked at before it is said to be no log of ours."""
TEXT_MAX = 200
NO_JSON = "no JSON object with event and timestamp"


class Mark(Struct, frozen=True):
    """One line that tells of a failover, or one that cannot be read.

    Attributes:
        source: the log.
        line: from 1.
        ms: when, by the clock of that machine.
        mark: ``lost``, ``elected``, ``notified``, ``routed`` and ``joined`` of a controller,
            ``active``, ``registered`` and ``connected`` of a broker, ``listed`` of a name server;
            ``left_out`` for lines that the log itself dropped; None for a damaged line.
        broker_set, epoch: of the master elected.
        master_address: of the same.
        address: who was notified.
        broker_id: the master that was lost, or elected (None when nobody was).
        fresh: the broker had just started.
        detail: of ``elected``: what the line says, as JSON.
        corrupt: why a line cannot be read.
    """

    source: str
    line: int
    ms: int | None = None
    mark: str | None = None
    broker_set: str | None = None
    epoch: int | None = None
    master_address: str | None = None
    address: str | None = None
    broker_id: int | None = None
    fresh: bool | None = None
    detail: str | None = None
    corrupt: str | None = None


def check_log(path: str) -> None:
    """Look whether a file is a log of JSON lines.

    Raises:
        ConfigInvalid: it is not there, or none of its first lines is one of a log.
    """
    try:
        with open(path, "rb") as file:
            lines = list(islice(iter(lambda: file.readline(LINE_BYTES_MAX), b""), LOOKED_AT_LINES))
    except OSError as error:
        raise ConfigInvalid(f"{path}: {error.strerror or error}") from error
    if not any(_parsed(line) is not None for line in lines):
        raise ConfigInvalid(
            f"{path}: no log of JSON lines with event and timestamp (is it one for a terminal?)"
        )


def read_log(path: str, source: str) -> Iterator[Mark]:
    """What a log tells of failovers.

    Raises:
        OSError: the file cannot be read.
    """
    reader = _Reader(source)
    with open(path, "rb") as file:
        number = 0
        while line := file.readline(LINE_BYTES_MAX):
            number += 1
            yield from reader.line(number, line)


def _parsed(line: bytes) -> dict[str, Any] | None:
    try:
        said = orjson.loads(line)
    except orjson.JSONDecodeError:
        return None
    whole = isinstance(said, dict) and isinstance(said.get("event"), str)
    return said if whole and _ms(said) is not None else None


def _ms(said: Mapping[str, Any]) -> int | None:
    try:
        moment = datetime.fromisoformat(said["timestamp"])
    except (KeyError, TypeError, ValueError):
        return None
    return None if moment.tzinfo is None else round(moment.timestamp() * 1000)


class _Reader:
    """Remembers what a broker's lines belong to."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._master: str | None = None
        self._epoch: int | None = None
        self._is_fresh = False
        self._was_opened = False

    def line(self, number: int, line: bytes) -> Iterator[Mark]:
        if not line.strip():
            return
        said = _parsed(line)
        if said is None:
            # Of a broken process there may be a traceback: that is no damage of the log's lines.
            is_object = line.lstrip().startswith(b"{")
            text = NO_JSON if is_object else "no line of the log: " + _shown(line)
            yield Mark(self._source, number, corrupt=text)
            return
        if _number(said.get("lines_left_out")):
            detail = f"{said['lines_left_out']} lines {said['event']}"
            yield self._mark(number, said, "left_out", detail=detail)
        try:
            yield from self._told(number, said)
        except (KeyError, TypeError, ValueError) as error:
            text = f"{said['event']} without {error}"[:TEXT_MAX]
            yield Mark(self._source, number, corrupt=text)

    def _told(self, number: int, said: dict[str, Any]) -> Iterator[Mark]:
        event = said["event"]
        if event in ("master_elected", "master_elected_unclean", "master_lost"):
            yield self._elected(number, said)
        elif event in _OF_CONTROLLERS:
            found = _OF_CONTROLLERS[event](said)
            if found is not None:
                yield self._mark(number, said, **found)
        elif event in ("broker_registered", "broker_role_changed") and "broker" in said:
            if said["broker_id"] == 0:
                place = {"broker_set": str(said["broker"]), "epoch": _number(said.get("epoch"))}
                yield self._mark(number, said, "listed", **place)
        else:
            yield from self._of_broker(number, said)

    def _elected(self, number: int, said: dict[str, Any]) -> Mark:
        told = {
            "oldMaster": _number(said["old_master_broker_id"]),
            "oldEpoch": _number(said["old_master_epoch"]),
            "trigger": said["trigger"],
            "reason": said["reason"],
            "unclean": said["event"] == "master_elected_unclean",
            "waitedMs": _number(said.get("waited_ms")),
            "commitMs": _number(said.get("commit_ms")),
            "logIndex": _number(said.get("log_index")),
        }
        return self._mark(
            number, said, "elected",
            broker_set=str(said["broker_name"]),
            epoch=int(said["master_epoch"]),
            master_address=said["master_address"],
            broker_id=_number(said["new_master_broker_id"]),
            detail=orjson.dumps(told).decode(),
        )  # fmt: skip

    def _of_broker(self, number: int, said: dict[str, Any]) -> Iterator[Mark]:
        match said["event"]:
            case "store_opened":
                self._was_opened, self._master = True, None
            case "role_assigned":
                self._master, self._epoch = str(said["master"]), int(said["epoch"])
                self._is_fresh, self._was_opened = self._was_opened, False
            case "role_taken_up" if self._master is not None and said["role"] == "master":
                yield self._belonging(number, said, "active")
            case "registered" if self._master is not None and said["broker_id"] == 0:
                yield self._belonging(number, said, "registered")
            case "ha_transfer_started" if self._master is not None:
                yield self._belonging(number, said, "connected")
            case _:
                pass

    def _belonging(self, number: int, said: dict[str, Any], mark: str) -> Mark:
        place = {"epoch": self._epoch, "master_address": self._master, "fresh": self._is_fresh}
        return self._mark(number, said, mark, **place)

    def _mark(self, number: int, said: dict[str, Any], mark: str, **fields: Any) -> Mark:
        return Mark(self._source, number, _ms(said), mark, **fields)


def _inactive(said: dict[str, Any]) -> dict[str, Any] | None:
    if not said["was_master"]:
        return None
    place = {"broker_set": str(said["broker_name"]), "broker_id": int(said["broker_id"])}
    return {"mark": "lost", **place}


def _notified(said: dict[str, Any]) -> dict[str, Any] | None:
    if "masterAddress" not in said:
        return None
    return {
        "mark": "notified",
        "epoch": int(said["masterEpoch"]),
        "master_address": str(said["masterAddress"]),
        "address": str(said["address"]),
    }


def _routed(said: dict[str, Any]) -> dict[str, Any] | None:
    place = {"broker_set": str(said["broker_name"]), "epoch": int(said["master_epoch"])}
    return {"mark": "routed", **place}


def _joined(said: dict[str, Any]) -> dict[str, Any] | None:
    place = {"broker_set": str(said["broker_name"]), "epoch": int(said["master_epoch"])}
    grown = len(said["new_sync_state_set"]) > len(said["old_sync_state_set"])
    return {"mark": "joined", **place} if grown else None


_OF_CONTROLLERS = {
    "broker_inactive": _inactive,
    "broker_notified": _notified,
    "master_route_seen": _routed,
    "sync_state_set_changed": _joined,
}


def _number(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _shown(line: bytes) -> str:
    return line.decode("utf-8", "replace").strip()[:TEXT_MAX]
