"""Bringing a follower over the compacted prefix: the newest snapshot, chunk by chunk.

Source: dissertation chapter 5. The bytes never pass through here on the leader: the shell reads
them from the file that the effect names.
"""

from __future__ import annotations

from rmqha.controller.raft import reads, standing
from rmqha.controller.raft.events import (
    CompactLog,
    InstallSnapshot,
    SendSnapshot,
    SnapshotMeta,
    StoreSnapshotChunk,
)
from rmqha.controller.raft.members import Members
from rmqha.controller.raft.messages import AppendResponse, SnapshotRequest, SnapshotResponse
from rmqha.controller.raft.node import Node, Role
from rmqha.controller.raft.progress import HEARD_HEARTBEATS, Mode, Progress

# -- leader ------------------------------------------------------------------------------------


def send_chunk(node: Node, peer: str, progress: Progress) -> bool:
    """Send the next chunk, unless one is on its way; whether anything went."""
    if progress.mode is not Mode.SNAPSHOT or progress.snapshot != node.snapshot:
        progress.start_snapshot(node.snapshot)
        node.note("raft_snapshot_sending", peer=peer, index=node.snapshot.last_index)
    if progress.waiting:
        return False
    progress.chunk_sent()
    length = min(node.settings.snapshot_chunk_bytes, node.snapshot.size - progress.snapshot_offset)
    node.sends_after.append(
        SendSnapshot(
            peer, node.term, node.snapshot, progress.snapshot_offset, max(0, length), node.round
        )
    )
    return True


def on_snapshot_response(node: Node, now_ms: int, message: SnapshotResponse) -> None:
    """The follower says what it still misses."""
    if message.term > node.term:
        node.become_follower(now_ms, message.term, None)
        return
    progress = node.progress.get(message.sender)
    if node.role is not Role.LEADER or message.term != node.term or progress is None:
        return
    standing.follower_answered(node, progress, message)
    reads.round_answered(node, now_ms, progress, message.round)
    meta = progress.snapshot
    if progress.mode is not Mode.SNAPSHOT or meta is None or meta.last_index != message.last_index:
        return
    if progress.snapshot_offset < message.next_offset < meta.size:
        progress.chunk_taken(message.next_offset)
        node.advanced_ms = now_ms
        send_chunk(node, message.sender, progress)
    elif message.next_offset < progress.snapshot_offset:
        progress.began_anew(message.next_offset)
    # An answer that says what is known is one to a copy. The last one comes as an AppendResponse,
    # when the snapshot is loaded.


def is_under_way(node: Node, now_ms: int) -> bool:
    """Whether a follower has a part of the snapshot and answers: one that is away waits for nothing."""
    since_ms = now_ms - HEARD_HEARTBEATS * node.settings.heartbeat_ms
    return any(
        one.mode is Mode.SNAPSHOT and one.snapshot_offset > 0 and one.answered_ms > since_ms
        for one in node.progress.values()
    )


def taken(node: Node, meta: SnapshotMeta) -> None:
    """The shell has made a snapshot: forget what it covers, but for a few trailing entries."""
    if meta.last_index <= node.snapshot.last_index:
        return
    node.snapshot = meta
    keep_from = meta.last_index - node.settings.trailing_entries
    if keep_from > node.log.base_index:
        node.log.compact_to(keep_from)
        node.forget_groups(keep_from)
        node.immediate.append(CompactLog(keep_from))


# -- follower ----------------------------------------------------------------------------------


def on_snapshot_request(node: Node, now_ms: int, message: SnapshotRequest) -> None:
    """Keep a chunk if it is the next one; install when it was the last."""
    if message.term < node.term:
        _answer(node, message, 0)
        return
    if message.term > node.term or node.role is not Role.FOLLOWER:
        node.become_follower(now_ms, message.term, message.sender)
    node.heard_leader(now_ms, message.sender)
    if message.last_index <= node.commit_index:
        # It is here already (a repeated last chunk, or an old leader's plan): say so.
        held = AppendResponse(
            node.term,
            node.id,
            True,
            node.durable_index_committed(),
            0,
            message.round,
            node.recovering_id,
        )
        node.send(message.sender, held)
        return
    meta = SnapshotMeta(message.last_index, message.last_term, message.size, message.digest)
    if node.installing or not _takes(node, meta, message):
        _answer(node, message, node.incoming_offset if node.incoming == meta else 0)
        return
    node.immediate.append(StoreSnapshotChunk(message.offset, message.data))
    node.incoming_offset += len(message.data)
    _answer(node, message, node.incoming_offset)
    if node.incoming_offset == message.size:
        node.installing = True
        node.immediate.append(InstallSnapshot(meta))


def _takes(node: Node, meta: SnapshotMeta, message: SnapshotRequest) -> bool:
    """Whether this is the next chunk of the snapshot under way, or the first of a new one."""
    if meta.size > node.settings.snapshot_bytes_max:
        node.note("raft_snapshot_refused", "error", size=meta.size, index=meta.last_index)
        return False
    if message.offset == 0 and node.incoming != meta:
        node.incoming = meta
        node.incoming_offset = 0
    return (
        node.incoming == meta
        and message.offset == node.incoming_offset
        and message.offset + len(message.data) <= meta.size
    )


def _answer(node: Node, message: SnapshotRequest, next_offset: int) -> None:
    node.send(
        message.sender,
        SnapshotResponse(
            node.term, node.id, message.last_index, next_offset, message.round, node.recovering_id
        ),
    )


def installed(node: Node, meta: SnapshotMeta, group: Members | None) -> None:
    """The shell has made the snapshot durable and loaded it: start the log behind it."""
    node.installing = False
    node.incoming = None
    node.incoming_offset = 0
    if meta.last_index <= node.commit_index:
        return  # entries have overtaken it: nothing that was applied is taken back
    # Raft 7: what the log holds behind the snapshot stays if the two agree, else all of it goes.
    if node.log.term_at(meta.last_index) == meta.term:
        node.log.compact_to(meta.last_index)
        node.forget_groups(meta.last_index)
    else:
        node.log.reset_to(meta.last_index, meta.term)
        node.group_loaded(meta.last_index, group)
        node.durable_index = meta.last_index
    node.durable_index = max(node.durable_index, meta.last_index)
    node.snapshot = meta
    node.commit_index = meta.last_index
    node.note("raft_snapshot_installed", index=meta.last_index, term=meta.term, size=meta.size)
    if node.leader_id is not None:
        held = AppendResponse(node.term, node.id, True, meta.last_index, 0, 0, node.recovering_id)
        node.send(node.leader_id, held)
