"""What goes into and comes out of the name server's core."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from types import MappingProxyType
from typing import NamedTuple, Protocol

from msgspec import Struct, field

from rmqha.base.machine import Note, Ticked
from rmqha.remoting.data_version import DataVersion


class QueueData(NamedTuple):
    """A topic's queues on one broker set."""

    broker_name: str
    perm: int
    read_queue_nums: int
    topic_sys_flag: int
    write_queue_nums: int

    def members(self) -> dict[str, str | int]:
        """The JSON members, under Java's names."""
        return {
            "brokerName": self.broker_name,
            "perm": self.perm,
            "readQueueNums": self.read_queue_nums,
            "topicSysFlag": self.topic_sys_flag,
            "writeQueueNums": self.write_queue_nums,
        }


class MappingInfo(NamedTuple):
    """Which logical queues of a static topic one broker serves, and from which physical ones."""

    topic: str
    broker_name: str
    scope: str
    total_queues: int
    epoch: int
    dirty: bool
    curr_id_map: tuple[tuple[int, int], ...]

    def members(self) -> dict[str, object]:
        """The JSON members, under Java's names."""
        return {
            "bname": self.broker_name,
            "currIdMap": dict(self.curr_id_map),
            "dirty": self.dirty,
            "epoch": self.epoch,
            "scope": self.scope,
            "topic": self.topic,
            "totalQueues": self.total_queues,
        }


class Registration(Struct, frozen=True):
    """A 103 that has been read.

    Attributes:
        broker_id: 0 for a master.
        heartbeat_timeout_ms: how long it lives without another sign of life.
        enable_acting_master: None from a broker before 5.0, which is never prime slave.
        topics: by name, each with this broker's queues.
        filter_servers: None leaves what is known.
        mapping_infos: by topic.
        serves_old_clients: whether it serves logical queues to clients that know none.
        account: the user who signed it; empty where nobody is asked to.
        is_super: whether that user speaks for all broker sets by the settings' word.
    """

    cluster_name: str
    broker_name: str
    address: str
    ha_address: str
    broker_id: int
    heartbeat_timeout_ms: int
    enable_acting_master: bool | None
    zone_name: str | None
    data_version: DataVersion
    topics: Mapping[str, QueueData]
    filter_servers: tuple[str, ...] | None = ()
    mapping_infos: Mapping[str, MappingInfo] = field(default_factory=dict)
    serves_old_clients: bool = False
    account: str = ""
    is_super: bool = False


class ElectedMaster(NamedTuple):
    """Who the controllers say is master of a broker set.

    Attributes:
        replicas: addresses of all replicas of the set, the master's among them.
    """

    address: str
    epoch: int
    replicas: frozenset[str]


class ElectedMasters(Protocol):
    """What an embedded controller knows; a name server without one has none of this."""

    def elected_master(self, broker_name: str) -> tuple[str, int, frozenset[str]] | None:
        """Address and epoch of a set's master, and all addresses; None without set or master."""


class ConnectionClosed(Struct, frozen=True):
    """A connection has ended, whichever side closed it."""

    connection_id: int


class TimerRang(Struct, frozen=True):
    """It is time to look for silent brokers, and has been since ``due_ms``."""

    due_ms: int


NamesrvEvent = ConnectionClosed | Ticked | TimerRang


class Again(Struct, frozen=True):
    """Give this event in the loop's next turn, or later: part of the work is left."""

    event: NamesrvEvent
    after_ms: int = 0


class NotifyMinBrokerId(Struct, frozen=True):
    """Tell brokers (905, one-way) that the smallest id of their set is another."""

    addresses: tuple[str, ...]
    fields: dict[str, str]


class CloseConnection(Struct, frozen=True):
    """Close the connection of a broker that has fallen silent."""

    connection_id: int


NamesrvEffect = NotifyMinBrokerId | CloseConnection | Again | Note


class Stored(Enum):
    """A file that must be written before a request is answered."""

    KV_CONFIG = "kv_config"
    CONFIG = "config"


class Answer(NamedTuple):
    """The response to a request, and what else must be done.

    Attributes:
        effects: carried out in order, whether the response is wanted or not.
        stored: the file that must be written first; None for none.
        changed: keys of the configuration that have other values now.
    """

    code: int
    remark: str | None = None
    ext_fields: dict[str, str] | None = None
    body: bytes = b""
    effects: tuple[NamesrvEffect, ...] = ()
    stored: Stored | None = None
    changed: Mapping[str, str] = MappingProxyType({})
