"""Heartbeats and reads take short cuts past ``step``: they must be what ``step`` does."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from rmqha.controller.machine import (
    Configured,
    ConnectionClosed,
    HeartbeatHeard,
    LeadershipChanged,
    MachineSettings,
    Reply,
    RequestReceived,
)
from rmqha.controller.metadata.answers import reply
from rmqha.remoting.heartbeat import Heartbeat
from tests.controller.metadata.driving import CLUSTER, NAME, Driver

BROKERS = (1, 2, 3)
READ_FIELDS = {1004: {"brokerName": NAME}, 1006: {}, 1012: {"brokerName": NAME}}

Step = tuple[str, int, int]
steps = st.lists(
    st.tuples(
        st.sampled_from(["beat", "read", "close", "wait", "tick", "elect", "lead"]),
        st.integers(0, 3),
        st.integers(0, 4_000),
    ),
    min_size=5,
    max_size=40,
)


class Shortened(Driver):
    """A machine whose heartbeats and reads take the short cuts, as the service does."""

    def hear(self, connection: int, beat: Heartbeat) -> None:
        """904."""
        self.carry_out(self.machine.heartbeat(self.now_ms, connection, beat))

    def read(self, connection: int, code: int, fields: dict[str, str]) -> Reply:
        """1004, 1006 or 1012."""
        return reply(0, self.machine.read(self.now_ms, connection, code, fields))


class Stepped(Driver):
    """A machine to which everything comes by ``step``."""

    def hear(self, connection: int, beat: Heartbeat) -> None:
        """904."""
        self.step(HeartbeatHeard(connection, beat))

    def read(self, connection: int, code: int, fields: dict[str, str]) -> Reply:
        """1004, 1006 or 1012."""
        effects = self.machine.step(self.now_ms, RequestReceived(0, connection, code, fields))
        (answer,) = effects
        assert isinstance(answer, Reply)
        return answer


def take(driver: Shortened | Stepped, step: Step) -> list[Reply]:
    """One step of the story; what the reads answered."""
    what, broker, number = step
    answers: list[Reply] = []
    if what == "beat":
        epoch = driver.machine.state.sets[NAME].master_epoch
        beat = Heartbeat(broker, CLUSTER, NAME, epoch, number, number, 1_000)
        driver.hear(broker + 10 * (number % 2), beat)
    elif what == "read":
        answers = [driver.read(broker, code, fields) for code, fields in READ_FIELDS.items()]
    elif what == "close":
        driver.step(ConnectionClosed(broker))
    elif what == "wait":
        driver.now_ms += number
    elif what == "tick":
        driver.pass_time(number)
    elif what == "elect" and broker:
        driver.elect(broker)
    elif what == "lead":
        driver.step(LeadershipChanged(is_leader=broker > 0, term=2 + number))
    return answers


@pytest.mark.costly
@given(story=steps)
def test_short_cuts_when_any_story_is_told_then_they_do_what_step_does(story: list[Step]) -> None:
    """Tests and the explorer drive ``step``: a short cut that differs would run untested."""
    settings = MachineSettings(cold_start_grace_ms=500)
    short, stepped = Shortened(settings), Stepped(settings)
    for driver in (short, stepped):
        driver.pair()
    for step in story:
        assert take(short, step) == take(stepped, step)
        assert short.notes == stepped.notes
        assert short.notified == stepped.notified
        assert short.log == stepped.log
        assert short.status() == stepped.status()
        assert short.machine.next_deadline_ms() == stepped.machine.next_deadline_ms()


def test_short_cuts_when_they_wake_a_broker_then_step_says_the_same() -> None:
    """The story above must not pass for want of anything to say."""
    short, stepped = Shortened(), Stepped()
    for driver in (short, stepped):
        driver.pair()
        driver.step(ConnectionClosed(1))
        driver.pass_time(500)
        for step in (("beat", 1, 5), ("read", 2, 0)):
            take(driver, step)
    assert [note.event for note in short.notes] == [note.event for note in stepped.notes]
    assert "broker_active" in [note.event for note in short.notes]


def test_configured_when_stepped_then_the_settings_are_in_force() -> None:
    """1009 changes them; beside ``step`` a trace would not have the change."""
    driver = Driver()
    settings = replace(driver.machine.settings, broker_sets_max=7)
    driver.step(Configured(settings))
    assert driver.machine.settings == settings
