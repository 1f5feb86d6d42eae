"""Replication: what a leader sends, what a follower does with it, and what commits.

Source: Raft 5.3 and 5.4.2; pipelining and the conflict hint as in the dissertation, 10.2.1.
"""

from __future__ import annotations

from rmqha.base.ids import Term
from rmqha.base.invariants import invariant
from rmqha.controller.raft import reads, snapshots, standing
from rmqha.controller.raft.events import Refused
from rmqha.controller.raft.messages import AppendRequest, AppendResponse, Entry, TimeoutNow
from rmqha.controller.raft.node import Node, Role
from rmqha.controller.raft.progress import Mode, Progress

SPARE_BYTES = 64 * 1024
"""So much of the reserve's room is for entries."""

ENTRY_OVERHEAD_BYTES = 64

# -- leader ------------------------------------------------------------------------------------


def propose(node: Node, records: tuple[bytes, ...]) -> None:
    """Append records of the own term and send them to every follower that is in step."""
    backlog = node.log.last_index - node.commit_index
    full = backlog + len(records) > node.settings.uncommitted_entries_max
    busy = node.transfer_target is not None or full or node.no_space
    if node.role is not Role.LEADER or busy:
        node.immediate.append(Refused(records, ()))
        return
    first = node.log.last_index + 1
    node.append_entries(
        tuple(Entry(first + i, node.term, record) for i, record in enumerate(records))
    )
    for peer in node.peers:
        send_entries(node, peer, node.progress[peer])


def heartbeat(node: Node, now_ms: int) -> None:
    """Open the round whose time has come, and try again what was not answered."""
    node.next_heartbeat_ms = now_ms + node.settings.heartbeat_ms
    if node.leaving:
        node.leaving_told()
    for progress in node.progress.values():
        progress.heartbeat_due()
    ask_all(node, now_ms)


def ask_all(node: Node, now_ms: int) -> None:
    """Open a new round and send it to all, with entries where some are missing.

    A read that needs a round does not wait for the heartbeat, and does not put it off: whether a
    quorum answers at all, and whether a successor has taken over, is judged when that is due.
    """
    reads.open_round(node, now_ms)
    for peer in node.peers:
        progress = node.progress[peer]
        if not send_entries(node, peer, progress):
            send_empty(node, peer, progress)


def send_empty(node: Node, peer: str, progress: Progress) -> None:
    """A heartbeat; it also checks that what was sent ahead has arrived."""
    prev = progress.next_index - 1
    prev_term = node.log.term_at(prev)
    if prev_term is None:
        prev, prev_term = node.log.base_index, node.log.base_term
    node.send(peer, _request(node, prev, prev_term, ()))


def send_entries(node: Node, peer: str, progress: Progress) -> bool:
    """Send what a follower is missing, as far as its window allows; whether anything went."""
    sent = False
    limits = node.settings
    while progress.next_index <= node.log.last_index:
        if progress.mode is Mode.REPLICATE:
            if len(progress.in_flight) >= limits.requests_in_flight_max:
                break
        elif progress.waiting:
            break
        prev = progress.next_index - 1
        prev_term = node.log.term_at(prev)
        if progress.mode is Mode.SNAPSHOT or prev_term is None:
            return snapshots.send_chunk(node, peer, progress)
        entries = node.log.entries_from(
            progress.next_index, limits.entries_per_request_max, limits.bytes_per_request_max
        )
        node.send(peer, _request(node, prev, prev_term, entries))
        sent = True
        if progress.mode is Mode.PROBE:
            progress.offered()
            break
        progress.sent(entries[-1].log_index)
    return sent


def _request(node: Node, prev: int, prev_term: Term, entries: tuple[Entry, ...]) -> AppendRequest:
    return AppendRequest(
        node.term, node.id, prev, prev_term, entries, node.commit_index, node.round
    )


def on_append_response(node: Node, now_ms: int, message: AppendResponse) -> None:
    """Move the follower's progress; commit what a quorum now holds."""
    if message.term > node.term:
        node.become_follower(now_ms, message.term, None)
        return
    progress = node.progress.get(message.sender)
    if node.role is not Role.LEADER or message.term != node.term or progress is None:
        return
    standing.follower_answered(node, progress, message)
    reads.round_answered(node, now_ms, progress, message.round)
    if message.success:
        if progress.is_first_at(message.match_index):
            node.advanced_ms = now_ms
        _on_success(node, message, progress)
    elif _is_news(message, progress):
        progress.probe_from(message.match_index + 1)
        send_entries(node, message.sender, progress)


def _is_news(message: AppendResponse, progress: Progress) -> bool:
    """Whether a rejection is not an answer to something already given up."""
    if progress.mode is Mode.SNAPSHOT or message.rejected_prev <= progress.match_index:
        return False
    return progress.mode is Mode.REPLICATE or message.rejected_prev == progress.next_index - 1


def _on_success(node: Node, message: AppendResponse, progress: Progress) -> None:
    invariant(
        message.match_index <= node.log.last_index,
        "a follower acknowledged entries that were never sent",
        follower=message.sender,
        match_index=message.match_index,
        last_index=node.log.last_index,
    )
    declined = progress.takes_nothing(message.match_index)
    news = progress.matched(message.match_index)
    installed = progress.snapshot is None or message.match_index >= progress.snapshot.last_index
    if progress.mode is not Mode.REPLICATE and installed and not declined:
        progress.replicate()
    if news:
        node.advance_commit()
    standing.readmit_if_caught_up(node, message.sender, progress)
    send_entries(node, message.sender, progress)
    transfer_if_caught_up(node)


def transfer_if_caught_up(node: Node) -> None:
    """Tell the chosen successor to take over once it holds every entry."""
    target = node.transfer_target
    if target is None or node.transfer_sent:
        return
    if node.progress[target].match_index == node.log.last_index:  # 0 while it may not vote
        node.transfer_sent = True
        # The successor may be elected at any time from here on, whatever its voters have heard.
        node.lease_given_up = True
        node.send(target, TimeoutNow(node.term, node.id))


# -- follower ----------------------------------------------------------------------------------


def on_append_request(node: Node, now_ms: int, message: AppendRequest) -> None:
    """Take the leader's entries; answer only for what is durable here."""
    if message.term < node.term:
        # Raft 5.1: a leader of an old term is told so, and steps down.
        node.late_leader_heard(now_ms, message.sender)
        node.send(
            message.sender,
            _response(node, message, success=False, match_index=0, rejected=message.prev_index),
        )
        return
    invariant(
        not (node.role is Role.LEADER and message.term == node.term),
        "two leaders in one term",
        term=node.term,
        here=node.id,
        there=message.sender,
    )
    if message.term > node.term or node.role is not Role.FOLLOWER:
        # Raft 5.2: a candidate that hears the leader of its own term has lost.
        node.become_follower(now_ms, message.term, message.sender)
    node.heard_leader(now_ms, message.sender)
    if node.installing:
        # Nothing is taken, but the leader was heard: without an answer it would lose its majority
        # where this is one of two voters that live.
        held = node.durable_index_committed()
        node.send(message.sender, _response(node, message, success=True, match_index=held))
        return
    prev, entries = message.prev_index, message.entries
    if prev < node.log.base_index:
        # The compacted prefix is committed, so it agrees by itself.
        entries = tuple(entry for entry in entries if entry.log_index > node.log.base_index)
        prev = node.log.base_index
    elif node.log.term_at(prev) != message.prev_term:
        # Raft 5.3, log matching: nothing is taken behind an entry that differs. The hint goes
        # back by a whole term, so that a long conflict costs few round trips.
        hint = node.log.conflict_hint(prev)
        node.send(
            message.sender,
            _response(node, message, success=False, match_index=hint, rejected=message.prev_index),
        )
        return
    last = _merge(node, prev, _that_fit(node, entries))
    # Raft 5.3: not beyond what agrees with this leader; what follows may be an old leader's.
    node.commit_to(min(message.commit_index, last))
    durable = last if node.new_entries else min(last, node.durable_index)
    node.send(message.sender, _response(node, message, success=True, match_index=durable))


def _response(
    node: Node, request: AppendRequest, *, success: bool, match_index: int, rejected: int = 0
) -> AppendResponse:
    return AppendResponse(
        node.term, node.id, success, match_index, rejected, request.round, node.recovering_id
    )


def _that_fit(node: Node, entries: tuple[Entry, ...]) -> tuple[Entry, ...]:
    """The entries for which there is space; the rest stays with the leader, who sends it again.

    Without space there is still the reserve's room: enough to bring two nodes together, and for
    the empty entries with which leaders open their terms.
    """
    if not node.no_space:
        return entries
    fit = 0
    for entry in entries:
        size = len(entry.data) and len(entry.data) + ENTRY_OVERHEAD_BYTES
        if node.spare_bytes < size:
            break
        node.spare_bytes -= size
        fit += 1
    return entries[:fit]


def _merge(node: Node, prev: int, entries: tuple[Entry, ...]) -> int:
    """Append what is new, cutting a conflicting suffix first; the last index that now agrees."""
    for position, entry in enumerate(entries):
        term = node.log.term_at(entry.log_index)
        if term == entry.term:
            continue  # Raft 5.3: a late request must not cut what a newer one has brought
        if term is not None:
            node.truncate_from(entry.log_index)
        node.append_entries(entries[position:])
        break
    return entries[-1].log_index if entries else prev
