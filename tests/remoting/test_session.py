"""The client session: every request ends once, whatever order things happen in."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from rmqha.base.errors import LocalProtocolError
from rmqha.remoting.command import RemotingCommand
from rmqha.remoting.session import OPAQUE_MAX, OPAQUE_MIN, ClientSession, Silence


def test_opaque_wraps_like_javas_int() -> None:
    """A number over 32 bits does not fit the frame."""
    session = ClientSession(10, first_opaque=OPAQUE_MAX)
    assert OPAQUE_MAX == session.start(0, RemotingCommand(1), 10)
    assert OPAQUE_MIN == session.start(0, RemotingCommand(1), 10)


def test_opaque_in_use_is_passed_over() -> None:
    """Two waiting requests of one number would get each other's answers."""
    session = ClientSession(10, first_opaque=5)
    session.start(0, RemotingCommand(1), 10)
    session._next_opaque = 5
    assert 6 == session.start(0, RemotingCommand(1), 10)


def test_silence_when_two_requests_in_a_row_bring_nothing_then_the_peer_is_silent() -> None:
    """A request to a host that is gone would time out, and the next, until the kernel gives up."""
    silence = Silence()
    assert not silence.timed_out(100, 100)
    assert silence.timed_out(100, 100)
    assert silence.timed_out(100, 100)


def test_silence_when_anything_came_since_the_first_was_sent_then_it_is_none() -> None:
    """A peer that is slow with some requests and answers others keeps its connection."""
    silence = Silence()
    assert not silence.timed_out(100, 150), "another request was answered meanwhile"
    assert not silence.timed_out(150, 150)
    assert not silence.timed_out(150, 200), "a late answer"
    assert not silence.timed_out(200, 200)
    assert silence.timed_out(200, 200)


def test_pending_limit_is_reached_and_recovers() -> None:
    """Without the limit a silent peer fills the memory."""
    session = ClientSession(2)
    first = RemotingCommand(1)
    session.start(0, first, 10)
    session.start(0, RemotingCommand(1), 10)
    with pytest.raises(LocalProtocolError):
        session.start(0, RemotingCommand(1), 10)
    assert session.receive(first.reply(0))
    session.start(0, RemotingCommand(1), 10)


def test_oneway_is_not_awaited() -> None:
    """Nothing would ever answer it."""
    session = ClientSession(1)
    command = RemotingCommand(904)
    session.start_oneway(command)
    assert command.is_oneway
    assert not session._pending
    assert session.next_deadline_ms is None


def test_closed_session_starts_nothing() -> None:
    """A request on a dead connection would wait for its whole timeout."""
    session = ClientSession(1)
    session.start(0, RemotingCommand(1), 10)
    assert [0] == session.close()
    assert [] == session.close()
    with pytest.raises(LocalProtocolError):
        session.start(0, RemotingCommand(1), 10)
    with pytest.raises(LocalProtocolError):
        session.start_oneway(RemotingCommand(1))


def test_answered_requests_leave_no_trail_of_deadlines() -> None:
    """At 100k requests a second with 3 s timeouts the heap would hold 300k dead entries."""
    session = ClientSession(10)
    for _ in range(10_000):
        command = RemotingCommand(1)
        session.start(0, command, 3000)
        session.receive(command.reply(0))
    assert len(session._deadlines) < 200


class SessionMachine(RuleBasedStateMachine):
    """Compares the session with a plain dict of deadlines."""

    def __init__(self) -> None:
        super().__init__()
        self.session = ClientSession(8)
        self.model: dict[int, int] = {}
        self.now_ms = 0

    @precondition(lambda self: len(self.model) < 8)
    @rule(timeout_ms=st.integers(0, 50))
    def start(self, timeout_ms: int) -> None:
        opaque = self.session.start(self.now_ms, RemotingCommand(1), timeout_ms)
        assert opaque not in self.model
        self.model[opaque] = self.now_ms + timeout_ms

    @rule(opaque=st.integers(0, 30))
    def receive(self, opaque: int) -> None:
        expected = self.model.pop(opaque, None) is not None
        assert expected == self.session.receive(RemotingCommand(0, opaque, 1))

    @rule(opaque=st.integers(0, 30))
    def forget(self, opaque: int) -> None:
        self.model.pop(opaque, None)
        self.session.forget(opaque)

    @rule(delay_ms=st.integers(0, 40))
    def expire(self, delay_ms: int) -> None:
        self.now_ms += delay_ms
        due = sorted((at, opaque) for opaque, at in self.model.items() if at <= self.now_ms)
        for _, opaque in due:
            del self.model[opaque]
        assert [opaque for _, opaque in due] == self.session.expire(self.now_ms)

    @invariant()
    def same_waiting_requests(self) -> None:
        assert len(self.model) == len(self.session._pending)
        assert min(self.model.values(), default=None) == self.session.next_deadline_ms


TestSessionMachine = SessionMachine.TestCase
TestSessionMachine.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
