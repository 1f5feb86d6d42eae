"""What Raft nodes say to each other, and its msgpack form.

Tuples, not dataclasses: a leader makes one per peer and batch, and msgpack packs them as they
are. Every message starts with the sender's term and id. Source: Raft dissertation chapters 3
(append, vote), 4.2.3 (disruptive servers), 6.4 (reads), 7 (snapshots), 9.6 (pre-vote), 3.10
(leadership transfer).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import msgpack

from rmqha.base.errors import RemoteProtocolError


class Entry(NamedTuple):
    """One log entry; empty ``data`` is the no-op with which a leader opens its term."""

    log_index: int
    term: int
    data: bytes


class PreVoteRequest(NamedTuple):
    """Would you vote for me in ``term``? Binds nobody."""

    term: int
    sender: str
    last_index: int
    last_term: int


class PreVoteResponse(NamedTuple):
    """``term`` is the asked one when granted, the answering node's own when not."""

    term: int
    sender: str
    granted: bool


class VoteRequest(NamedTuple):
    """``transfer``: the old leader asked for this election, so it may disturb it."""

    term: int
    sender: str
    last_index: int
    last_term: int
    transfer: bool


class VoteResponse(NamedTuple):
    """The vote is durable before this leaves."""

    term: int
    sender: str
    granted: bool


class AppendRequest(NamedTuple):
    """Entries after ``prev_index``; empty as a heartbeat. ``round`` comes back in the answer."""

    term: int
    sender: str
    prev_index: int
    prev_term: int
    entries: tuple[Entry, ...]
    commit_index: int
    round: int


class AppendResponse(NamedTuple):
    """``match_index``: durable up to here when ``success``, else where the logs may still agree."""

    term: int
    sender: str
    success: bool
    match_index: int
    rejected_prev: int
    round: int


class SnapshotRequest(NamedTuple):
    """``data`` is the part of the snapshot at ``offset``; ``size`` is the whole."""

    term: int
    sender: str
    last_index: int
    last_term: int
    offset: int
    size: int
    data: bytes
    round: int


class SnapshotResponse(NamedTuple):
    """``next_offset``: the first byte still missing; equal to the size when all is held."""

    term: int
    sender: str
    last_index: int
    next_offset: int
    round: int


class TimeoutNow(NamedTuple):
    """The leader asks this node to take over at once."""

    term: int
    sender: str


Message = (
    PreVoteRequest
    | PreVoteResponse
    | VoteRequest
    | VoteResponse
    | AppendRequest
    | AppendResponse
    | SnapshotRequest
    | SnapshotResponse
    | TimeoutNow
)

KINDS: tuple[type[Message], ...] = (
    PreVoteRequest,
    PreVoteResponse,
    VoteRequest,
    VoteResponse,
    AppendRequest,
    AppendResponse,
    SnapshotRequest,
    SnapshotResponse,
    TimeoutNow,
)
KIND_OF: dict[type[Message], int] = {kind: number for number, kind in enumerate(KINDS)}
FIELD_TYPES: dict[str, type] = {
    "term": int,
    "sender": str,
    "last_index": int,
    "last_term": int,
    "granted": bool,
    "transfer": bool,
    "prev_index": int,
    "prev_term": int,
    "entries": list,
    "commit_index": int,
    "round": int,
    "success": bool,
    "match_index": int,
    "rejected_prev": int,
    "offset": int,
    "size": int,
    "data": bytes,
    "next_offset": int,
}
SHAPES: tuple[tuple[type, ...], ...] = tuple(
    tuple(FIELD_TYPES[name] for name in kind._fields) for kind in KINDS
)


def encode_message(message: Message) -> bytes:
    """Pack as ``[kind, *fields]``."""
    packed: bytes = msgpack.packb((KIND_OF[type(message)], *message), use_bin_type=True)
    return packed


def decode_message(data: bytes) -> Message:
    """Unpack what :func:`encode_message` made.

    Raises:
        RemoteProtocolError: anything else.
    """
    try:
        kind, *fields = msgpack.unpackb(data, raw=False, use_list=True)
        shape = SHAPES[kind]
        if kind < 0 or tuple(map(type, fields)) != shape:
            raise RemoteProtocolError(f"raft message of kind {kind} has wrong fields")
        cls = KINDS[kind]
        if cls is AppendRequest:
            fields[4] = tuple(_entry(item) for item in fields[4])
        message: Message = cls(*fields)
        return message
    except RemoteProtocolError:
        raise
    except (ValueError, TypeError, IndexError, msgpack.UnpackException) as error:
        raise RemoteProtocolError(f"raft message cannot be read: {error}") from error


def _entry(item: Any) -> Entry:
    log_index, term, data = item
    if type(log_index) is not int or type(term) is not int or type(data) is not bytes:
        raise RemoteProtocolError("raft entry has wrong fields")
    return Entry(log_index, term, data)
