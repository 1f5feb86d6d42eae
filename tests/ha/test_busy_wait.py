"""When a loop stays awake for an answer, and when it leaves the processor to others."""

from __future__ import annotations

import asyncio
import os
from collections import Counter, deque
from collections.abc import Callable
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqha.base.errors import ConfigInvalid
from rmqha.ha.aio.connection import SlaveConnection
from rmqha.ha.busy_wait import ANSWERED, FEW_BYTES, LEFT_OUT_MAX, SHARED, SHARED_US, VAIN, BusyWait
from rmqha.ha.settings import BUSY_WAIT_US_MAX, load_ha_settings
from rmqha.runtime.aio.processor import SystemProcessor

WINDOW_US = 100
TURN_US = 2


class Machine:
    """Turns, one after another, by a clock that they move."""

    def __init__(self, aside_us: int = 1) -> None:
        self.us, self.aside_us, self.turns = 0, aside_us, 0
        self.asides = 0
        self._due = deque[Callable[[], object]]()

    def now_us(self) -> int:
        return self.us

    def step_aside(self) -> None:
        self.asides += 1
        self.us += self.aside_us

    def soon(self, callback: Callable[[], object]) -> None:
        self._due.append(callback)

    def turn(self) -> bool:
        """Whether the loop had something to do, and so did not sleep."""
        self.us += TURN_US
        self.turns += 1
        callbacks, self._due = self._due, deque()
        for callback in callbacks:
            callback()
        return bool(callbacks)

    def run(self) -> int:
        """Turns until it sleeps."""
        return next(n for n in range(10_000) if not self.turn())


def waiting(machine: Machine) -> tuple[BusyWait, Counter[str]]:
    ended = Counter[str]()
    return BusyWait(machine, WINDOW_US, ended), ended


def test_answer_when_it_comes_within_the_window_then_the_loop_was_awake() -> None:
    machine = Machine()
    wait, ended = waiting(machine)
    wait.expect()
    assert all(machine.turn() for _ in range(10))
    assert machine.us < WINDOW_US
    wait.came()
    assert machine.run() == 1, "the turn that was asked for, and sleep"
    assert ended == {ANSWERED: 1}


def test_window_when_it_is_over_then_the_loop_sleeps() -> None:
    machine = Machine()
    wait, ended = waiting(machine)
    wait.expect()
    machine.run()
    assert WINDOW_US <= machine.us <= WINDOW_US + 2 * (TURN_US + 1)
    assert ended == {VAIN: 1}
    wait.came()
    assert ended == {VAIN: 1}, "nobody waited for it"


def test_others_when_they_are_let_in_then_the_wait_is_over() -> None:
    machine = Machine(aside_us=SHARED_US)
    wait, ended = waiting(machine)
    wait.expect()
    machine.run()
    assert machine.asides == 1
    assert ended == {SHARED: 1}


def test_waits_when_they_were_vain_then_ever_more_are_left_out_until_an_answer_comes() -> None:
    machine = Machine()
    wait, ended = waiting(machine)
    left_out, since = [], 0
    for _ in range(3 * LEFT_OUT_MAX):
        wait.expect()
        if machine.run():
            left_out.append(since)
            since = 0
        else:
            since += 1
    assert left_out == [0, *((1 << n) - 1 for n in range(1, 11)), LEFT_OUT_MAX][: len(left_out)]
    assert left_out[-1] == LEFT_OUT_MAX
    assert ended == {VAIN: len(left_out)}
    while not machine.turn():
        wait.expect()
    wait.came()
    machine.run()
    wait.expect()
    assert machine.run() > 1, "one answer is enough"


def test_expecting_when_it_waits_already_then_the_window_begins_anew_in_one_chain_of_turns() -> (
    None
):
    machine = Machine()
    wait, ended = waiting(machine)
    wait.expect()
    for _ in range(20):
        machine.turn()
        wait.expect()
    assert machine.asides == 20, "one a turn"
    wait.came()
    wait.expect()
    machine.turn()
    assert machine.asides == 21, "the turn that was due goes on, and no second one"
    machine.run()
    assert ended == {ANSWERED: 1, VAIN: 1}


def test_connection_when_it_has_gone_then_nothing_is_waited_for() -> None:
    machine = Machine()
    wait, ended = waiting(machine)
    wait.expect()
    wait.stop()
    assert machine.run() == 1
    assert ended == {}


@given(st.lists(st.tuples(st.sampled_from(["expect", "came", "turn", "stop"]), st.integers(0, 40))))
def test_any_order_then_no_loop_is_awake_for_longer_than_the_window(
    acts: list[tuple[str, int]],
) -> None:
    machine = Machine()
    wait, ended = waiting(machine)
    expected = 0
    for act, us in acts:
        machine.us += us
        if act == "turn":
            machine.turn()
        else:
            getattr(wait, act)()
            expected += act == "expect"
    begun = machine.us
    machine.run()
    assert machine.us - begun <= WINDOW_US + 3 * (TURN_US + 1)
    assert ended.total() <= expected


class Transport:
    """Takes all that is written."""

    def __init__(self) -> None:
        self.written = 0

    def set_write_buffer_limits(self, high: int) -> None:
        pass

    def get_extra_info(self, _: str) -> tuple[str, int]:
        return "127.0.0.1", 1

    def write(self, data: bytes) -> None:
        self.written += len(data)

    def writelines(self, data: list[bytes]) -> None:
        self.written += sum(map(len, data))

    def abort(self) -> None:
        pass


@pytest.mark.asyncio
async def test_master_when_it_sent_records_then_it_waits_and_after_a_heartbeat_it_does_not() -> (
    None
):
    machine, ended = Machine(), Counter[str]()

    class Owner:
        def __init__(self) -> None:
            self.in_flight_bytes_max = 1 << 20
            self.rejected = Counter[str]()

        def busy_wait(self) -> BusyWait:
            return BusyWait(machine, WINDOW_US, ended)

        def give(self, _: object) -> None:
            pass

        def opened(self, _: object) -> int:
            return 1

        def forgotten(self, _: int) -> None:
            pass

    connection = SlaveConnection(Owner())
    connection.connection_made(cast(asyncio.Transport, Transport()))
    connection.send_batch(b"header", None)
    assert not machine.turn(), "nobody acknowledges a heartbeat at once"
    connection.send_batch(b"header", memoryview(bytes(FEW_BYTES + 1)))
    assert not machine.turn(), "many puts are under way"
    connection.send_batch(b"header", memoryview(bytes(FEW_BYTES)))
    assert machine.turn()
    connection.data_received(b"")
    assert ended == {ANSWERED: 1}
    connection.send_batch(b"header", memoryview(b"records"))
    connection.abort()
    machine.run()
    assert ended == {ANSWERED: 1}, "and not one in vain"


def test_processor_when_the_loop_stays_awake_then_others_have_their_turn() -> None:
    """What it is made of: a real loop, whose turns come without sleep, reads what arrives."""

    async def read() -> tuple[bytes, Counter[str]]:
        loop = asyncio.get_running_loop()
        reads, writes = os.pipe()
        got = loop.create_future()
        ended = Counter[str]()
        wait = BusyWait(SystemProcessor(), 5_000_000, ended)

        def readable() -> None:
            wait.came()
            loop.remove_reader(reads)
            got.set_result(os.read(reads, 9))

        loop.add_reader(reads, readable)
        wait.expect()
        os.write(writes, b"an answer")
        data = await asyncio.wait_for(got, 30)
        os.close(reads), os.close(writes)
        return data, ended

    data, ended = asyncio.run(read())
    assert data == b"an answer"
    assert ended.total() == 1


@pytest.mark.parametrize("text", ["-1", str(BUSY_WAIT_US_MAX + 1), "soon"])
def test_setting_when_it_is_none_then_it_is_refused(text: str) -> None:
    with pytest.raises(ConfigInvalid, match="haBusyWaitMicros"):
        load_ha_settings({"haBusyWaitMicros": text})
    assert load_ha_settings({"haBusyWaitMicros": "200"}).ha_busy_wait_us == 200
    assert load_ha_settings({}).ha_busy_wait_us == 0
