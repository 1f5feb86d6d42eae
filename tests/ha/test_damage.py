"""A slave whose master sent a damaged record: nothing behind it is acknowledged, nothing kept is cut."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmqha.base.errors import StoreDamaged
from rmqha.base.machine import Ticked
from rmqha.ha import events as ev
from rmqha.ha.events import PutStatus
from rmqha.ha.frames import HandshakeReply, TransferHeader
from rmqha.ha.ha_core import HaCore
from rmqha.ha.settings import HaSettings
from rmqha.ha.state import LogFacts
from rmqha.store.aio.message_store import MessageStore
from tests.ha.test_loopback import Node, until
from tests.ha.test_odd_peers import left
from tests.ha.test_sessions import EPOCHS, finish, follow, replica
from tests.ha.test_with_store import content, put, stop, store_node
from tests.store.harness import message

END = 4_000


def following() -> tuple[HaCore, int]:
    """A slave whose log ends at ``END``, and its connection."""
    core = replica(HaSettings(ack_flushed_data=False), own_id=2)
    conn = follow(core)
    finish(core, core.step(0, ev.MasterSent(conn, HandshakeReply(END, 4, tuple(EPOCHS)))))
    return core, conn


def body(
    core: HaCore, conn: int, offset: int, length: int, damaged_at: int | None
) -> list[ev.Effect]:
    """A body arrives, in a log that is damaged then."""
    header = TransferHeader(length, offset, 4, 2_500, offset + length)
    core.step(0, ev.MasterSent(conn, header))
    return core.step(0, ev.BodyReceived(conn, offset, length, damaged_at))


def cuts(effects: list[ev.Effect]) -> list[int | None]:
    return [one.acknowledged for one in effects if isinstance(one, ev.CutInvalidTail)]


def test_slave_when_a_body_came_damaged_then_nothing_of_it_is_acknowledged_or_confirmed() -> None:
    """It went on behind the damage: an election cut what the master had been told is there."""
    core, conn = following()
    effects = body(core, conn, END, 500, 4_100)
    assert not [one for one in effects if isinstance(one, (ev.SendAck, ev.SetConfirmOffset))]
    assert left(effects) == ["what it sent is damaged at 4100"]
    assert cuts(effects) == [END]
    assert not [
        one for one in core.step(0, ev.Flushed(4_500)) if isinstance(one, (ev.SendAck, ev.Flush))
    ]
    (cut,) = [one for one in effects if isinstance(one, ev.CutInvalidTail)]
    core.step(0, ev.TailCut(cut.seq, 4_100))
    assert (core.ha.log.max_offset, core.ha.log.acknowledged) == (4_100, None)


def test_slave_when_its_connection_ended_in_a_damaged_body_then_it_is_cut_all_the_same() -> None:
    """What has arrived is counted: it must not look like half a record that may be durable."""
    core, conn = following()
    assert body(core, conn, END, 100, None) == [
        ev.SetConfirmOffset(4_100), ev.SendAck(conn, 4_100),
    ]  # fmt: skip
    core.step(0, ev.MasterSent(conn, TransferHeader(500, 4_100, 4, 2_500, 4_600)))
    now_ms = HaSettings().ha_housekeeping_interval_ms + 1
    assert left(core.step(now_ms, Ticked())) == ["the master is silent"]
    # Nothing is cut that the next connection does not wait for.
    assert cuts(core.step(now_ms, ev.BodyReceived(conn, 4_100, 200, 4_150))) == []
    assert cuts(core.step(now_ms, Ticked())) == [4_100]


def test_master_when_all_it_sends_is_damaged_then_it_is_asked_more_and_more_seldom() -> None:
    """Ten times a second, for as long as its record is damaged."""
    core, tries, now_ms = replica(own_id=2), list[int](), 0
    effects = core.step(0, ev.ChangedToSlave(5, 1, "h:1"))
    entries = tuple(core.ha.epochs.entries)
    while now_ms < 10_000:
        for one in (one for one in finish(core, effects) if isinstance(one, ev.Connect)):
            tries.append(now_ms)
            finish(core, core.step(now_ms, ev.MasterConnected(one.conn)))
            reply = HandshakeReply(1 << 20, 5, entries)
            finish(core, core.step(now_ms, ev.MasterSent(one.conn, reply)))
            header = TransferHeader(500, END, 5, END, END)
            core.step(now_ms, ev.MasterSent(one.conn, header))
            for cut in core.step(now_ms, ev.BodyReceived(one.conn, END, 500, END)):
                if isinstance(cut, ev.CutInvalidTail):
                    core.step(now_ms, ev.TailCut(cut.seq, END))
        now_ms = max(now_ms + 1, core.next_deadline_ms or 0)
        effects = core.step(now_ms, Ticked())
    assert 4 <= len(tries) <= 10


def hurt(store: MessageStore, wrong: int, times: int) -> None:
    """The next ``times`` bodies in which the head at ``wrong`` comes have a flipped bit in its magic."""
    real, left_over = store.write, times

    def write(offset: int, data: memoryview) -> None:
        nonlocal left_over
        changed = bytearray(data)
        if offset <= wrong + 5 < offset + len(data) and left_over:
            left_over -= 1
            changed[wrong + 5 - offset] ^= 1
        real(offset, memoryview(changed))

    store.write = write  # type: ignore[method-assign]


@pytest.mark.costly
async def test_slave_when_a_bit_flipped_on_the_way_then_it_asks_again_and_has_all(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It acknowledged all of it, and ended when its consumers came to the damage."""
    one, first = await store_node(1, tmp_path)
    two, second = await store_node(2, tmp_path)
    assert await one.service.change_to_master(1, frozenset({1}), 1)
    places = list[int]()
    for number in range(20):
        places.append(first.max_offset)
        assert await put(one, first, b"%d" % number * 40) is PutStatus.PUT_OK
    hurt(second, places[10], times=2)
    assert await two.service.change_to_slave(1, 1, one.address)
    await until(lambda: one.ids == {1, 2})
    assert content(first) == content(second)
    assert capsys.readouterr().out.count("ha_body_damaged") == 2
    await stop(one, first)
    await stop(two, second)
    assert one.failed == two.failed == []


async def kept(tmp_path: Path) -> tuple[Node, MessageStore, int, int]:
    """A replica with a durable log that is damaged, where that is, and where it ends."""
    two, store = await store_node(2, tmp_path)
    places = [store.append(message(number)).offset for number in range(20)]
    data, wrong = bytearray(store.view(0, store.max_offset)), places[10]
    data[wrong + 5] ^= 1
    await store.truncate(0)
    store.reserve(0, len(data))
    store.write(0, memoryview(data))
    store.received(0, len(data))
    await store.flush(len(data))
    two.core.ha.log = LogFacts(store.file_size, 0, len(data), len(data))
    return two, store, wrong, len(data)


@pytest.mark.parametrize("role", ["master", "slave"])
async def test_role_when_what_is_durable_lies_behind_damage_then_it_is_refused_and_nothing_is_cut(
    tmp_path: Path, role: str
) -> None:
    """The new master threw away what was acknowledged, without a word."""
    two, store, wrong, end = await kept(tmp_path)
    if role == "master":
        assert not await two.service.change_to_master(2, frozenset({2}), 3)
    else:
        await two.service.change_to_slave(2, 1, "127.0.0.1:1")
    await until(lambda: bool(two.failed))
    (error,) = two.failed
    assert isinstance(error, StoreDamaged)
    assert f"damaged at offset {wrong}" in str(error)
    assert store.max_offset == end
    await stop(two, store)


@pytest.mark.parametrize("more", [0, 1])
async def test_role_when_nothing_behind_damage_was_acknowledged_then_it_is_cut(
    tmp_path: Path, more: int
) -> None:
    """It is durable only because the disk was quicker; the master has it."""
    two, store, wrong, end = await kept(tmp_path)
    two.core.ha.log.acknowledged = wrong + more
    assert await two.service.change_to_master(2, frozenset({2}), 3) is not bool(more)
    assert store.max_offset == (end if more else wrong)
    assert [type(one) for one in two.failed] == [StoreDamaged] * more
    await stop(two, store)
