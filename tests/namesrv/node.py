"""A name server's core under test, and the requests that real brokers send it."""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Iterable, Mapping
from typing import Any

from rmqha.base.machine import Ticked
from rmqha.namesrv.machine import NamesrvMachine, Request
from rmqha.namesrv.messages import (
    Answer,
    ConnectionClosed,
    ElectedMasters,
    NamesrvEffect,
    NotifyMinBrokerId,
)
from rmqha.namesrv.settings import load_config
from rmqha.remoting import fastjson

VERSION = 479
CLUSTER, NAME = "C", "b"
MASTER, SLAVE = "10.0.0.1:10911", "10.0.0.2:10911"
MASTER_HA, SLAVE_HA = "10.0.0.1:10912", "10.0.0.2:10912"


class Node:
    """The core, asked as its shell asks it."""

    def __init__(
        self,
        settings: Mapping[str, str] | None = None,
        masters: ElectedMasters | None = None,
        started_ms: int = 0,
    ) -> None:
        self.config = load_config(dict(settings or {}), user_home="/home")
        self.machine = NamesrvMachine(self.config, started_ms, masters)
        self.now_ms = 1_000_000
        self.effects: list[NamesrvEffect] = []

    def ask(
        self,
        code: int,
        fields: Mapping[str, str] | None = None,
        body: bytes = b"",
        *,
        version: int = VERSION,
        connection: int = 1,
    ) -> Answer:
        """Send a request; its effects are kept."""
        request = Request(self.now_ms, connection, version, dict(fields or {}), body)
        answer = self.machine.request(code, request)
        assert answer is not None, code
        self.effects += answer.effects
        return answer

    def close(self, connection: int) -> None:
        """A connection ends."""
        self.effects += self.machine.step(self.now_ms, ConnectionClosed(connection))

    def tick(self, after_ms: int) -> None:
        """Time passes, and the timer runs."""
        self.now_ms += after_ms
        self.effects += self.machine.step(self.now_ms, Ticked())

    def register(
        self,
        topics: Iterable[Mapping[str, object]] | None = None,
        *,
        epoch: int = 1,
        counter: int = 1,
        connection: int = 1,
        mappings: Mapping[str, object] | None = None,
        filters: Iterable[str] = (),
        **fields: object,
    ) -> Answer:
        """Register a broker; by default the master with topics A and B."""
        chosen = [topic("A"), topic("B")] if topics is None else topics
        body = registration_body(chosen, epoch, counter, mappings, filters)
        return self.ask(103, broker_fields(**fields), body, connection=connection)

    def route(self, name: str = "A", version: int = VERSION, **fields: str) -> dict[str, Any]:
        """A topic's route; empty without one."""
        answer = self.ask(105, {"topic": name, **fields}, version=version)
        found: dict[str, Any] = fastjson.loads(answer.body) if answer.code == 0 else {}
        return found

    def addresses(self, name: str = NAME) -> dict[str, str]:
        """Addresses by id as 106 shows them."""
        table = fastjson.loads(self.ask(106).body)["brokerAddrTable"]
        found: dict[str, str] = table.get(name, {}).get("brokerAddrs", {})
        return found

    def perms(self, name: str = NAME) -> dict[str, int]:
        """Permission by topic of one set."""
        table = self.machine.table
        return {
            topic: queues[name].perm for topic, queues in table.topics.items() if name in queues
        }

    def told(self) -> list[NotifyMinBrokerId]:
        """The notifications so far, which are then forgotten."""
        found = [one for one in self.effects if isinstance(one, NotifyMinBrokerId)]
        self.effects.clear()
        return found


def broker_fields(**changed: object) -> dict[str, str]:
    """The fields of 103 and 104; None leaves one out."""
    fields: dict[str, object] = {
        "brokerName": NAME, "brokerAddr": MASTER, "clusterName": CLUSTER,
        "haServerAddr": MASTER_HA, "brokerId": 0, "enableActingMaster": False, **changed,
    }  # fmt: skip
    return {
        key: str(value).lower() if isinstance(value, bool) else str(value)
        for key, value in fields.items()
        if value is not None
    }


def topic(name: str, perm: int = 6, flag: int = 0, queues: int = 4) -> dict[str, object]:
    """A TopicConfig as a 5.x broker writes it."""
    return {
        "attributes": {}, "order": False, "perm": perm, "readQueueNums": queues,
        "topicFilterType": "SINGLE_TAG", "topicName": name, "topicSysFlag": flag,
        "writeQueueNums": queues,
    }  # fmt: skip


def registration_body(
    topics: Iterable[Mapping[str, object]],
    epoch: int = 1,
    counter: int = 1,
    mappings: Mapping[str, object] | None = None,
    filters: Iterable[str] = (),
) -> bytes:
    """The plain body of 103."""
    wrapper = {
        "dataVersion": {"counter": counter, "stateVersion": epoch, "timestamp": 5},
        "mappingDataVersion": {"counter": 0, "stateVersion": 0, "timestamp": 6},
        "topicConfigTable": {one["topicName"]: one for one in topics},
        "topicQueueMappingDetailMap": {},
        "topicQueueMappingInfoMap": dict(mappings or {}),
    }
    body = {"filterServerList": list(filters), "topicConfigSerializeWrapper": wrapper}
    return json.dumps(body, separators=(",", ":")).encode()


def mapping_info(
    name: str,
    broker: str = NAME,
    epoch: int = 7,
    *,
    dirty: bool = False,
    leads: Mapping[int, int] | None = None,
) -> dict[str, object]:
    """A TopicQueueMappingInfo as a 5.x broker writes it; ``leads``: physical by logical queue."""
    ids = {0: 0, 1: 1} if leads is None else leads
    return {
        "bname": broker, "currIdMap": {str(key): value for key, value in ids.items()},
        "dirty": dirty, "epoch": epoch, "scope": "__global__", "topic": name, "totalQueues": 2,
    }  # fmt: skip


def compressed_body(
    records: Iterable[bytes],
    *,
    data_version: bytes = b'{"counter":1,"stateVersion":2,"timestamp":3}',
    filters: bytes = b"[]",
    infos: Iterable[bytes] | None = (),
) -> bytes:
    """The compressed body of 103; without ``infos`` it ends where brokers before 5.0 end it."""
    listed = list(records)
    parts = [_block(data_version), struct.pack(">i", len(listed)), *map(_block, listed)]
    parts.append(_block(filters))
    if infos is not None:
        known = list(infos)
        parts += [struct.pack(">i", len(known)), *map(_block, known)]
    return zlib.compress(b"".join(parts), 9)


def _block(data: bytes) -> bytes:
    return struct.pack(">i", len(data)) + data
