"""The replicated log's events: what happened to a broker set, with all that apply needs.

A record is a msgpack list ``[type, field, ...]``; types 1, 2, 3, 5 and 6 are the ids of Java's
EventType, whose fields these extend by the epochs they lead to: apply compares them with the
state, so that a record can never take effect twice or in another order. Java names its events by
what was asked for; so do ``KINDS``, the names that people read in logs and in a lake.
A proposal holds it: ``[1, term, token, [type, field, ...]]``. A term has one leader, so (term, token) names
one proposal of one node, also after that node restarted. Beside proposals the log holds ``[2, term]``, where
nodes take the digest of their state, and ``[3, log index, digest]``, what the leader's was (ADR 0019).

Source: RIP-44; Java 5.3.3 org.apache.rocketmq.controller.impl.event.
"""

from __future__ import annotations

import operator
from typing import TypeAlias

import msgspec
from msgspec import Struct

from rmqha.base.errors import StoreCorrupted
from rmqha.base.ids import BrokerId, MasterEpoch, SyncStateSetEpoch, Term
from rmqha.controller.metadata.election_records import Why

PROPOSAL_FORMAT = 1
ELECT_MASTER = 3


class SyncStateSetAltered(Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag=1):
    """A master's in-sync replicas changed.

    Attributes:
        new_sync_state_set: ascending ids.
        sync_state_set_epoch: the epoch after the change, the old one plus 1.
    """

    broker_name: str
    new_sync_state_set: tuple[BrokerId, ...]
    sync_state_set_epoch: SyncStateSetEpoch


class BrokerIdTaken(Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag=2):
    """A broker took an id; the first one of a set creates the set."""

    cluster_name: str
    broker_name: str
    broker_address: str
    new_broker_id: BrokerId
    register_check_code: str


class MasterElected(
    Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag=ELECT_MASTER
):
    """A set has a new master, or none any more.

    Attributes:
        new_master_broker_id: None when the master was lost and nobody could follow.
        master_epoch: the epoch after it; above the old one, by more than 1 when a broker's
            heartbeat told of a higher one (the controller had lost its data).
        trigger: ``broker``, ``admin`` or ``controller``.
        reason: why this one, for people.
        unclean: the new master was not in the SyncStateSet: acknowledged messages may be lost.
        why: what it was decided on; None in logs of before and where no history is kept. It is
            then left out of the record, which older releases can read.
    """

    broker_name: str
    new_master_broker_id: BrokerId | None
    master_epoch: MasterEpoch
    trigger: str
    reason: str
    unclean: bool
    why: Why | None = None


class BrokerDataCleaned(Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag=5):
    """Replicas were removed by an operator; ``broker_ids`` None removes the whole set."""

    broker_name: str
    broker_ids: tuple[BrokerId, ...] | None


class BrokerAddressUpdated(Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag=6):
    """A broker registered from another address."""

    cluster_name: str
    broker_name: str
    broker_address: str
    broker_id: BrokerId


class BrokerSetImported(Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag=7):
    """A set that has lived under other controllers goes on here, as they left it.

    Not one of Java's. Older releases refuse a log that holds it.

    Attributes:
        last_issued_id: the highest id ever taken.
        replicas: (id, address), ascending.
        master_epoch: theirs; the next election's is above it.
        sync_state_set_epoch: above theirs, so that a running master takes the set from here.
        sync_state_set: ascending ids.
        master_broker_id: None when they had no master for it.
    """

    cluster_name: str
    broker_name: str
    last_issued_id: int
    replicas: tuple[tuple[BrokerId, str], ...]
    master_epoch: MasterEpoch
    sync_state_set_epoch: SyncStateSetEpoch
    sync_state_set: tuple[BrokerId, ...]
    master_broker_id: BrokerId | None


Event: TypeAlias = (
    SyncStateSetAltered
    | BrokerIdTaken
    | MasterElected
    | BrokerDataCleaned
    | BrokerAddressUpdated
    | BrokerSetImported
)


KINDS: dict[str, type[Struct]] = {
    "AlterSyncStateSet": SyncStateSetAltered,
    "ApplyBrokerId": BrokerIdTaken,
    "ElectMaster": MasterElected,
    "CleanBrokerData": BrokerDataCleaned,
    "UpdateBrokerAddress": BrokerAddressUpdated,
    "ImportBrokerSet": BrokerSetImported,
}
"""What an event is called outside this code. Lakes and logs hold these names: they never change."""
_kinds: dict[type, str] = {shape: kind for kind, shape in KINDS.items()}


def kind_of(said: Said) -> str:
    """Name an event as logs and lakes do; a record about the state has its class's name."""
    return _kinds.get(type(said)) or type(said).__name__


class _Proposal(
    Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag=PROPOSAL_FORMAT
):
    term: Term
    token: int
    event: Event


class StateMarked(Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag=2):
    """Each node takes the digest of its state here; ``term`` is the leader's who asks."""

    term: Term


class StateCompared(Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag=3):
    """What the leader's digest was.

    Attributes:
        log_index: of the ``StateMarked`` at which it was taken.
        digest: 16 hexadecimal digits.
    """

    log_index: int
    digest: str


STATE_RECORDS = (StateMarked, StateCompared)

Said: TypeAlias = Event | StateMarked | StateCompared
"""What the data of an entry says."""

_old_fields = operator.attrgetter(
    *(name for name in MasterElected.__struct_fields__ if name != "why")
)
_encode = msgspec.msgpack.Encoder().encode
_decode_proposal = msgspec.msgpack.Decoder(_Proposal).decode
_decode_entry = msgspec.msgpack.Decoder(_Proposal | StateMarked | StateCompared).decode


def to_proposal(term: Term, token: int, event: Event) -> bytes:
    """Wrap an event for the log: ``[1, term, token, [type, field, ...]]``."""
    if isinstance(event, MasterElected) and event.why is None:
        return _encode([PROPOSAL_FORMAT, term, token, [ELECT_MASTER, *_old_fields(event)]])
    return _encode(_Proposal(term, token, event))


def from_proposal(data: bytes) -> tuple[int, int, Event]:
    """Unwrap (term, token, event).

    Raises:
        StoreCorrupted: an unknown format or type, a missing field or one of another kind.
            Skipping it would let this node's state part from the others'.
    """
    try:
        proposal = _decode_proposal(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise StoreCorrupted(f"not a proposal of format {PROPOSAL_FORMAT}: {error}") from error
    return proposal.term, proposal.token, proposal.event


def to_mark(record: StateMarked | StateCompared) -> bytes:
    """Encode a record about the state: ``[2, term]`` or ``[3, log index, digest]``."""
    return _encode(record)


def from_entry(data: bytes) -> Said:
    """What an entry says, whoever proposed it.

    Raises:
        StoreCorrupted: the bytes are of no known format.
    """
    try:
        found: _Proposal | StateMarked | StateCompared = _decode_entry(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise StoreCorrupted(f"not a proposal and no state record: {error}") from error
    return found.event if isinstance(found, _Proposal) else found
