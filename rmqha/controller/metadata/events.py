"""The replicated log's events: what happened to a broker set, with all that apply needs.

A record is a msgpack list ``[type, field, ...]``; types 1, 2, 3, 5 and 6 are the ids of Java's
EventType, whose fields these extend by the epochs they lead to: apply compares them with the
state, so that a record can never take effect twice or in another order.
A proposal holds it: ``[1, term, token, [type, field, ...]]``. A term has one leader, so (term, token) names
one proposal of one node, also after that node restarted.

Source: RIP-44; Java 5.3.3 org.apache.rocketmq.controller.impl.event.
"""

from __future__ import annotations

from dataclasses import fields
from operator import attrgetter
from typing import TypeAlias

from rmqha.base.dataclass import dataclass
from rmqha.base.errors import StoreCorrupted
from rmqha.base.ids import BrokerId
from rmqha.controller.metadata.packing import pack, unpack

PROPOSAL_FORMAT = 1
_PROPOSAL = (int, int, int, list)


@dataclass(frozen=True, slots=True)
class AlterSyncStateSet:
    """A master's in-sync replicas changed.

    Attributes:
        new_sync_state_set: ascending ids.
        sync_state_set_epoch: the epoch after the change, the old one plus 1.
    """

    broker_name: str
    new_sync_state_set: tuple[BrokerId, ...]
    sync_state_set_epoch: int


@dataclass(frozen=True, slots=True)
class ApplyBrokerId:
    """A broker took an id; the first one of a set creates the set."""

    cluster_name: str
    broker_name: str
    broker_address: str
    new_broker_id: BrokerId
    register_check_code: str


@dataclass(frozen=True, slots=True)
class ElectMaster:
    """A set has a new master, or none any more.

    Attributes:
        new_master_broker_id: None when the master was lost and nobody could follow.
        master_epoch: the epoch after it; above the old one, by more than 1 when a broker's
            heartbeat told of a higher one (the controller had lost its data).
        trigger: ``broker``, ``admin`` or ``controller``.
        reason: why this one, for people.
        unclean: the new master was not in the SyncStateSet: acknowledged messages may be lost.
    """

    broker_name: str
    new_master_broker_id: BrokerId | None
    master_epoch: int
    trigger: str
    reason: str
    unclean: bool


@dataclass(frozen=True, slots=True)
class CleanBrokerData:
    """Replicas were removed by an operator; ``broker_ids`` None removes the whole set."""

    broker_name: str
    broker_ids: tuple[BrokerId, ...] | None


@dataclass(frozen=True, slots=True)
class UpdateBrokerAddress:
    """A broker registered from another address."""

    cluster_name: str
    broker_name: str
    broker_address: str
    broker_id: BrokerId


Event: TypeAlias = (
    AlterSyncStateSet | ApplyBrokerId | ElectMaster | CleanBrokerData | UpdateBrokerAddress
)

_TYPE_OF: dict[type[Event], int] = {
    AlterSyncStateSet: 1,
    ApplyBrokerId: 2,
    ElectMaster: 3,
    CleanBrokerData: 5,
    UpdateBrokerAddress: 6,
}
_CLASS_OF: dict[int, type[Event]] = {number: cls for cls, number in _TYPE_OF.items()}

_KINDS: dict[str, tuple[type, ...]] = {
    "str": (str,),
    "int": (int,),
    "BrokerId": (int,),
    "bool": (bool,),
    "BrokerId | None": (int, type(None)),
    "tuple[BrokerId, ...]": (list,),
    "tuple[BrokerId, ...] | None": (list, type(None)),
}
"""What msgpack gives back for each annotation in this file; the exact types, bool is no int."""

_INTEGERS = frozenset({int})

_SHAPES: dict[type[Event], tuple[tuple[str, tuple[type, ...]], ...]] = {
    cls: tuple((one.name, _KINDS[str(one.type)]) for one in fields(cls)) for cls in _TYPE_OF
}
"""Field names and kinds in the order they are declared, worked out once: every entry of the log
passes here on every node."""


_VALUES: dict[type[Event], attrgetter[tuple[object, ...]]] = {
    cls: attrgetter(*(name for name, _ in shape)) for cls, shape in _SHAPES.items()
}


def _values(event: Event) -> tuple[object, ...]:
    cls = type(event)
    return (_TYPE_OF[cls], *_VALUES[cls](event))


def to_record(event: Event) -> bytes:
    """Encode one event as ``[type, field, ...]``, fields in the order they are declared."""
    return pack(_values(event))


def from_record(record: bytes) -> Event:
    """Decode one event.

    Raises:
        StoreCorrupted: an unknown type, a missing field or one of another kind. Skipping it
            would let this node's state part from the others'.
    """
    return _from_values(unpack(record, "a log record"))


def _from_values(values: object) -> Event:
    if not isinstance(values, list) or not values:
        raise StoreCorrupted("a log record is not a list with a type")
    cls = _CLASS_OF.get(values[0]) if type(values[0]) is int else None
    if cls is None:
        raise StoreCorrupted(f"a log record has the unknown type {values[0]!r}")
    shape = _SHAPES[cls]
    if len(shape) != len(values) - 1:
        raise StoreCorrupted(f"a {cls.__name__} record has {len(values) - 1} fields")
    arguments = values[1:]
    for position, (name, kinds) in enumerate(shape):
        value = arguments[position]
        if type(value) not in kinds:
            raise StoreCorrupted(f"{cls.__name__}.{name} cannot be {value!r}")
        if type(value) is list:
            if not _INTEGERS.issuperset(map(type, value)):
                raise StoreCorrupted(f"{cls.__name__}.{name} holds something that is no broker id")
            arguments[position] = tuple(value)
    return cls(*arguments)


def to_proposal(term: int, token: int, event: Event) -> bytes:
    """Wrap an event for the log: ``[1, term, token, [type, field, ...]]``."""
    return pack([PROPOSAL_FORMAT, term, token, _values(event)])


def from_proposal(data: bytes) -> tuple[int, int, Event]:
    """Unwrap (term, token, event).

    Raises:
        StoreCorrupted: when the bytes are no proposal of a known format.
    """
    plain = unpack(data, "a proposal")
    # Every entry passes here on every node: a look at the types is quicker than a match.
    if (
        type(plain) is not list
        or tuple(map(type, plain)) != _PROPOSAL
        or plain[0] != PROPOSAL_FORMAT
    ):
        raise StoreCorrupted(f"not a proposal of format {PROPOSAL_FORMAT}: {plain!r:.80}")
    _, term, token, values = plain
    return term, token, _from_values(values)
