"""The table of a node's roles against the core: every row happens, and nothing else does."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from rmqha.base.errors import InvariantBroken
from rmqha.base.machine import Ticked
from rmqha.controller.raft import events as ev
from rmqha.controller.raft import messages as ms
from rmqha.controller.raft.core import RaftCore
from rmqha.controller.raft.node import NEW, RECOVERING, VOTER, Role
from rmqha.controller.raft.role_table import TABLE
from rmqha.controller.raft.settings import RaftSettings

LATER_MS = 100_000
THREE, ONE = ("a", "b", "c"), ("a",)
TERM = 5


def fresh(members: tuple[str, ...] = THREE, kind: str = VOTER) -> RaftCore:
    """A follower of term 5 that has heard nobody for long."""
    state = ev.HardState(TERM, None, ev.Standing(kind, "store-a", ()))
    entry = ms.Entry(1, 1, b"")
    return RaftCore(
        node_id="a", members=members, settings=RaftSettings(), hard_state=state, entries=[entry]
    )


def persisted(core: RaftCore, now_ms: int) -> None:
    """The disk has done all that it was given."""
    core.step(now_ms, ev.Persisted(core.node.persist_seq))


def follower(**given: Any) -> RaftCore:
    return fresh(**given)


def pre_candidate() -> RaftCore:
    core = fresh()
    core.step(LATER_MS, Ticked())
    return core


def candidate() -> RaftCore:
    core = pre_candidate()
    core.step(LATER_MS, ev.Received(ms.PreVoteResponse(TERM + 1, "b", True)))
    return core


def candidate_with_votes() -> RaftCore:
    """Both others have voted; its own vote is not on the disk yet."""
    core = candidate()
    for peer in ("b", "c"):
        core.step(LATER_MS, ev.Received(ms.VoteResponse(TERM + 1, peer, True)))
    return core


def candidate_durable() -> RaftCore:
    """Its own vote is on the disk; nobody else has voted yet."""
    core = candidate()
    persisted(core, LATER_MS)
    return core


def candidate_alone() -> RaftCore:
    core = fresh(ONE)
    core.step(LATER_MS, Ticked())
    return core


def leader() -> RaftCore:
    core = candidate_durable()
    core.step(LATER_MS, ev.Received(ms.VoteResponse(TERM + 1, "b", True)))
    persisted(core, LATER_MS)
    return core


def leader_unheard() -> RaftCore:
    """Nobody has answered its rounds."""
    core = leader()
    core.step(LATER_MS + 60, Ticked())
    return core


def stopped() -> RaftCore:
    core = fresh()
    core.step(LATER_MS, ev.DiskBroken())
    return core


BEGINNINGS = (
    follower, lambda: follower(members=ONE), lambda: follower(kind=NEW),
    lambda: follower(kind=RECOVERING), pre_candidate, candidate, candidate_with_votes,
    candidate_durable, candidate_alone, leader, leader_unheard, stopped,
)  # fmt: skip


def messages(term: int) -> list[ms.Message]:
    """Every message of a term, in the shapes that matter."""
    found: list[ms.Message] = [
        ms.TimeoutNow(term, "b"),
        ms.Readmitted(term, "b", "store-a", ()),
        ms.AppendResponse(term, "b", True, 1, 0, 0),
        ms.AppendResponse(term, "b", False, 0, 1, 0),
        ms.SnapshotResponse(term, "b", 1, 0, 0),
        ms.SnapshotRequest(term, "b", 9, 1, 0, 2, b"xy", 0, 0),
        ms.AppendRequest(term, "b", 0, 0, (), 0, 0),
        ms.AppendRequest(term, "b", 1, 1, (ms.Entry(2, min(term, 2), b"x"),), 0, 0),
    ]
    for yes, (index, of) in itertools.product((True, False), ((0, 0), (9, 9))):
        found += [
            ms.PreVoteRequest(term, "b", index, of),
            ms.PreVoteResponse(term, "b", yes),
            ms.VoteRequest(term, "b", index, of, yes),
            ms.VoteResponse(term, "b", yes),
        ]
    for kind, founders in ((NEW, ()), (RECOVERING, ()), (VOTER, (("a", "store-a"),)), (VOTER, ())):
        found.append(ms.StandingTold(term, "b", kind, "store-b", founders, 1, 1))
    return found


def happenings() -> list[ev.Event]:
    """Every event, in the shapes that matter."""
    meta = ev.SnapshotMeta(1, 1, 1)
    found: list[ev.Event] = [
        Ticked(), ev.Proposed((b"x",)), ev.Persisted(99), ev.ReadRequested(1),
        ev.PeerLost("b"), ev.TransferRequested("b"), ev.TransferRequested(), ev.SnapshotTaken(meta),
        ev.SnapshotInstalled(meta), ev.SpaceChanged(False), ev.SpaceChanged(True),
        ev.DiskWaited(99_999), ev.DiskBroken(),
    ]  # fmt: skip
    terms = (TERM - 1, TERM, TERM + 1, TERM + 2)
    return found + [ev.Received(one) for term in terms for one in messages(term)]


def name_of(event: ev.Event) -> str:
    """An event by its kind; a message that arrived by the message's."""
    return type(event.message if isinstance(event, ev.Received) else event).__name__


def seen() -> set[tuple[str, str, str]]:
    """Every change of role that the core makes, from every beginning, at once and much later."""
    found = set()
    for begin, event, wait_ms in itertools.product(BEGINNINGS, happenings(), (0, LATER_MS)):
        core = begin()
        before = core.node.role
        event_in_term = event
        is_rival = isinstance(event, ev.Received) and isinstance(
            event.message, ms.AppendRequest | ms.SnapshotRequest
        )
        if is_rival and before is Role.LEADER and event.message.term == core.node.term:
            continue  # two leaders of one term: InvariantBroken, see the test below
        core.step(2 * LATER_MS + wait_ms, event_in_term)
        if core.node.role is not before:
            found.add((before.value, name_of(event), core.node.role.value))
    return found


@pytest.mark.costly
def test_roles_when_every_event_comes_in_every_role_then_the_table_says_where_it_leads() -> None:
    """A change that the table lacks is a rule that nobody has thought through."""
    rows = {(row.state, row.event, row.to) for row in TABLE}
    found = seen()
    assert found - rows == set(), "the core does what the table lacks"
    assert rows - found == set(), "the table says what the core never does"
    assert len(rows) == len(TABLE), "a row stands twice"


@pytest.mark.costly
def test_table_when_a_row_is_missing_then_the_core_is_seen_to_lack_it() -> None:
    """The comparison above must not be blind for one row."""
    assert seen() - {(row.state, row.event, row.to) for row in TABLE[1:]} != set()


def test_leader_when_another_leads_its_term_then_the_process_stops() -> None:
    """Election safety (Raft 5.2): no row leads out of that, for it cannot be."""
    core = leader()
    rival = ms.AppendRequest(core.node.term, "b", 0, 0, (), 0, 0)
    with pytest.raises(InvariantBroken, match="two leaders"):
        core.step(2 * LATER_MS, ev.Received(rival))
