"""What Raft nodes say to each other, and its msgpack form.

A message is the list ``[kind, term, sender, ...]`` of its kind (the class's tag) and its fields as
they are declared. Every message starts with the sender's term and id. Source: Raft dissertation chapters 3
(append, vote), 4.2.3 (disruptive servers), 6.4 (reads), 7 (snapshots), 9.6 (pre-vote), 3.10
(leadership transfer).
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from rmqha.base.errors import RemoteProtocolError
from rmqha.base.ids import Term

TERM_MAX = 1 << 53
TERM_JUMP_MAX = 1 << 20
"""A message this many terms ahead is nobody's of this group: terms grow by elections, one each."""

BoundedTerm = Annotated[Term, Meta(ge=0, le=TERM_MAX)]
Count = Annotated[int, Meta(ge=0, le=1 << 62)]
"""An index, a size, an offset or a round. What is out of bounds does not get past the decoder."""


class Entry(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """One log entry; empty ``data`` is the no-op with which a leader opens its term."""

    log_index: Count
    term: BoundedTerm
    data: bytes


class PreVoteRequest(Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag=0):
    """Would you vote for me in ``term``? Binds nobody."""

    term: BoundedTerm
    sender: str
    last_index: Count
    last_term: BoundedTerm


class PreVoteResponse(Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag=1):
    """``term`` is the asked one when granted, the answering node's own when not."""

    term: BoundedTerm
    sender: str
    granted: bool


class VoteRequest(Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag=2):
    """``transfer``: the old leader asked for this election, so it may disturb it."""

    term: BoundedTerm
    sender: str
    last_index: Count
    last_term: BoundedTerm
    transfer: bool


class VoteResponse(Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag=3):
    """The vote is durable before this leaves."""

    term: BoundedTerm
    sender: str
    granted: bool


class AppendRequest(Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag=4):
    """Entries after ``prev_index``; empty as a heartbeat. ``round`` comes back in the answer."""

    term: BoundedTerm
    sender: str
    prev_index: Count
    prev_term: BoundedTerm
    entries: tuple[Entry, ...]
    commit_index: Count
    round: Count


class AppendResponse(Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag=5):
    """``match_index``: durable up to here when ``success``, else where the logs may still agree."""

    term: BoundedTerm
    sender: str
    success: bool
    match_index: Count
    rejected_prev: Count
    round: Count
    recovering: str = ""
    """The sender's store id while it may not vote: its answer counts for nothing."""


class SnapshotRequest(Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag=6):
    """``data`` is the part of the snapshot at ``offset``; size and digest are of the whole."""

    term: BoundedTerm
    sender: str
    last_index: Count
    last_term: BoundedTerm
    offset: Count
    size: Count
    data: bytes
    round: Count
    digest: Count


class SnapshotResponse(Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag=7):
    """``next_offset``: the first byte still missing; equal to the size when all is held."""

    term: BoundedTerm
    sender: str
    last_index: Count
    next_offset: Count
    round: Count
    recovering: str = ""
    """As in AppendResponse."""


class TimeoutNow(Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag=8):
    """The leader asks this node to take over at once."""

    term: BoundedTerm
    sender: str


class StandingTold(Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag=9):
    """What the sender is in its group (``events.Standing``), and what it wants to know.

    ``round`` is above 0 in a question and comes back as ``answers`` in the answer.
    """

    term: BoundedTerm
    sender: str
    kind: str
    store_id: str
    founders: tuple[tuple[str, str], ...]
    round: Count
    answers: Count


class Readmitted(Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag=10):
    """The leader has caught up the store ``store_id`` of the receiver: it may vote again."""

    term: BoundedTerm
    sender: str
    store_id: str
    founders: tuple[tuple[str, str], ...]


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
    | StandingTold
    | Readmitted
)

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Message).decode


def encode_message(message: Message) -> bytes:
    """Pack as ``[kind, *fields]``."""
    return _encode(message)


def decode_message(data: bytes) -> Message:
    """Unpack what :func:`encode_message` made.

    Raises:
        RemoteProtocolError: anything else.
    """
    try:
        message: Message = _decode(data)
        return message
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise RemoteProtocolError(f"raft message cannot be read: {error}") from error
