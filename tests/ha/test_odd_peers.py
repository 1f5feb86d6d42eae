"""Peers that are slow, strange or hostile, and settings with which nothing would ever be sent."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any, cast

import pytest

from rmqha.base.errors import ConfigInvalid, ConnectFailed, DiskFull, StoreCorrupted
from rmqha.base.ids import SyncStateSetEpoch
from rmqha.base.machine import Ticked
from rmqha.ha import events as ev
from rmqha.ha.aio import client
from rmqha.ha.aio.client import HEARD_EVERY_MS, MasterConnection
from rmqha.ha.aio.connection import SlaveConnection
from rmqha.ha.aio.epoch_file import EpochFile
from rmqha.ha.epochs import EpochCache, EpochEntry
from rmqha.ha.frames import (
    Ack,
    HandshakeReply,
    HandshakeRequest,
    TransferHeader,
    encode_ack,
    encode_handshake_request,
    encode_transfer_header,
    without_passed,
)
from rmqha.ha.ha_core import HaCore
from rmqha.ha.settings import HaSettings, load_ha_settings
from rmqha.ha.sync_state_set import STRANGERS_MAX, SyncStateSet
from rmqha.runtime.aio.disk import SystemDisk
from rmqha.runtime.aio.net import TcpNetwork
from tests.ha.memory_log import MemoryLog
from tests.ha.test_loopback import Node
from tests.ha.test_sessions import finish, joined, reigning, replica

SILENT_MS = HaSettings().ha_housekeeping_interval_ms


def following(reply: HandshakeReply) -> tuple[HaCore, int, list[ev.Effect]]:
    """An empty slave whose master has answered the handshake."""
    core = replica(own_id=2, min_offset=-1, max_offset=0, flushed_offset=0)
    effects = finish(core, core.step(0, ev.ChangedToSlave(1, 1, "h:1")))
    conn = next(one.conn for one in effects if isinstance(one, ev.Connect))
    finish(core, core.step(0, ev.MasterConnected(conn)))
    return core, conn, finish(core, core.step(0, ev.MasterSent(conn, reply)))


def left(effects: list[ev.Effect]) -> list[str]:
    return [one.reason for one in effects if isinstance(one, ev.CloseMaster)]


def test_master_when_it_names_a_negative_epoch_then_nothing_of_it_is_written() -> None:
    """The epoch file got a line that its reader refused, and the slave never started again."""
    _, _, effects = following(HandshakeReply(100, -5, (EpochEntry(-5, 0),)))
    assert not [one for one in effects if isinstance(one, ev.WriteEpochs)]
    assert left(effects)
    assert not EpochCache().append(EpochEntry(-1, 0))


@pytest.mark.parametrize("heard", [True, False])
def test_master_when_a_body_takes_longer_than_the_silence_that_is_allowed(heard: bool) -> None:
    """A body of 1 MiB at 50 KB/s: it was thrown away and asked for again, every twenty seconds."""
    core, conn, _ = following(HandshakeReply(10_000, 1, (EpochEntry(1, 0),)))
    core.step(0, ev.MasterSent(conn, TransferHeader(2_000, 0, 1, 0, 0)))
    for now_ms in range(0, 2 * SILENT_MS, 1_000):
        if heard:
            core.step(now_ms, ev.MasterHeard(conn))
        reasons = left(core.step(now_ms, Ticked()))
        if reasons:
            break
    assert reasons == ([] if heard else ["the master is silent"])
    core.step(now_ms, ev.MasterHeard(conn + 1))  # of a connection that is none
    assert left(core.step(now_ms + SILENT_MS + 1, Ticked())) == (
        ["the master is silent"] if heard else []
    )


class Ear:
    """An owner that notes what it is told; its log's clock is set by the test."""

    def __init__(self) -> None:
        self.told: list[Any] = []
        self.rejected = Counter[str]()
        self.in_flight_bytes_max = 1
        self.busy_wait = lambda: None

    def give(self, event: Any) -> None:
        self.told.append(event)


async def test_slave_when_a_body_comes_in_pieces_then_the_core_hears_of_it_now_and_then(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each piece would be a step of the core."""
    log, ear, clock = MemoryLog(1 << 20), Ear(), [1_000]
    monkeypatch.setattr(log.room, "now_ms", lambda: clock[0])
    connection = MasterConnection(cast(client.Owner, ear), 7, log)
    connection.data_received(encode_transfer_header(TransferHeader(1_000, 0, 1, 0, 0)))
    for _ in range(40):
        clock[0] += HEARD_EVERY_MS // 4
        connection.data_received(bytes(10))
    heard = [one for one in ear.told if isinstance(one, ev.MasterHeard)]
    assert len(heard) in {10, 11}
    assert {one.conn for one in heard} == {7}
    connection.data_received(bytes(600))
    assert isinstance(ear.told[-1], ev.BodyReceived)
    connection.close()


def test_slave_when_it_sends_very_many_acknowledgements_then_few_count() -> None:
    """21,000 of them in one read held the master's loop for half a second."""
    ear = Ear()
    connection = SlaveConnection(cast(Any, ear))
    connection.data_received(encode_handshake_request(HandshakeRequest(2)))
    connection.data_received(b"".join(encode_ack(offset) for offset in range(20_000)))
    assert [one.frame for one in ear.told] == [HandshakeRequest(2), Ack(0), Ack(19_999)]


def test_frames_of_which_others_say_more_are_left_out() -> None:
    """The first tells where to go on, the last how far the slave is."""
    hello = HandshakeRequest(2)
    for given, kept in (
        ([], []),
        ([hello], [hello]),
        ([Ack(1), Ack(2)], [Ack(1), Ack(2)]),
        ([hello, Ack(1), Ack(2), Ack(3), Ack(4)], [hello, Ack(1), Ack(4)]),
        ([Ack(1), Ack(2), Ack(3), hello, Ack(4)], [Ack(1), Ack(3), hello, Ack(4)]),
    ):
        assert without_passed(given) == kept


def test_master_when_strangers_come_with_ever_new_ids_then_it_forgets_them() -> None:
    """Each left an entry for as long as the process ran."""
    core = reigning()
    for conn in range(1, 2_000):
        finish(core, joined(core, conn, 10 + conn, 4_000))
        core.step(conn, ev.SlaveClosed(conn, "bye"))
    assert len(core.members.sync_state_set._caught_up_ms) <= STRANGERS_MAX + 1


@pytest.mark.parametrize(
    "key",
    [
        "checkSyncStateSetPeriod", "haHousekeepingInterval", "haMaxTimeSlaveNotCatchup",
        "haSendHeartbeatInterval", "maxHaTransferByteInSecond", "slaveTimeout",
    ],
)  # fmt: skip
@pytest.mark.parametrize("value", ["0", "-1"])
def test_setting_with_which_nothing_would_work_is_refused(key: str, value: str) -> None:
    """A period of 0 kept the loop busy for ever; a rate of 0 sent heartbeats and never a byte."""
    with pytest.raises(ConfigInvalid, match=key):
        load_ha_settings({key: value})
    load_ha_settings({key: "1"})


async def test_address_with_an_impossible_port_is_one_that_cannot_be_reached() -> None:
    """It came from a name server, and ended the broker."""
    with pytest.raises(ConnectFailed, match="99999"):
        await TcpNetwork().connect("127.0.0.1", 99_999, asyncio.Protocol, timeout_ms=1_000)


async def test_role_when_replication_has_ended_then_it_is_refused(tmp_path: Path) -> None:
    """Who asked for one waited for ever."""
    node = Node(2, tmp_path, HaSettings(), MemoryLog(16_384))
    await node.start()
    await node.service.close()
    async with asyncio.timeout(5):
        assert not await node.service.change_to_slave(1, 1, "127.0.0.1:1")


async def test_epoch_file_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    """Of an empty one was said that a list index is out of range."""
    path = tmp_path / "epochFileCheckpoint"
    path.write_bytes(b"")
    with pytest.raises(StoreCorrupted, match=r"/epochFileCheckpoint: epoch file is empty"):
        await EpochFile(SystemDisk(), str(path)).load()


@pytest.mark.parametrize("end", [1_700, 1_580, 0])
def test_slave_when_it_shares_only_what_it_has_deleted_then_it_cuts_nothing(end: int) -> None:
    """Its log begins at 2000, the master's ends before: a cut would throw all of it away, what was
    acknowledged included. One whose log is empty is no better a judge than the others."""
    core = replica(own_id=2, min_offset=2_000)
    effects = finish(core, core.step(0, ev.ChangedToSlave(5, 1, "h:1")))
    conn = next(one.conn for one in effects if isinstance(one, ev.Connect))
    finish(core, core.step(0, ev.MasterConnected(conn)))
    entries = (EpochEntry(1, 0), EpochEntry(2, min(end, 1_580)), EpochEntry(3, min(end, 1_600)))
    effects = finish(core, core.step(0, ev.MasterSent(conn, HandshakeReply(end, 3, entries))))
    assert not [one for one in effects if isinstance(one, ev.TruncateLog)]
    assert left(effects) == ["no consistent point: manual handling is needed"]


def test_slave_when_it_is_always_twenty_seconds_behind_then_it_has_not_caught_up_since() -> None:
    """It acknowledges something all the time, and is no replica to elect all the same."""
    core, behind = reigning(HaSettings(in_sync_replicas=1)), 20
    joined(core, 1, 2, 4_000)
    ends = [4_000]
    for second in range(1, 90):
        ends.append(4_000 + 10 * second)
        finish(core, core.step(1_000 * second, ev.Appended(ends[-1])))
        finish(core, core.step(1_000 * second, ev.SlaveWritable(1)))
        acked = Ack(ends[max(0, second - behind)])
        finish(core, core.step(1_000 * second, ev.SlaveSent(1, acked)))
    caught_up_ms = core.sessions[1].caught_up_ms
    assert caught_up_ms is not None
    assert 1_000 * behind <= 89_000 - caught_up_ms <= 2_000 * behind + 1_000


def test_set_that_was_asked_for_counts_until_a_poll_can_no_longer_be_older_than_it() -> None:
    """Its answer was lost: the controller may hold it though an earlier poll says otherwise."""
    members = SyncStateSet(1)
    members.adopt({1}, SyncStateSetEpoch(5))
    wider = frozenset({1, 2})
    assert members.ask(0, wider)
    members.lost()
    members.confirmed(10, {1}, SyncStateSetEpoch(5), settle_ms=6_000)
    assert wider in members.possible
    members.confirmed(6_000, {1}, SyncStateSetEpoch(5), settle_ms=6_000)
    assert wider not in members.possible


def test_epoch_that_ends_where_the_log_begins_now_is_still_told() -> None:
    """A slave whose log ends there has no other epoch in common."""
    core = reigning()
    finish(core, core.step(0, ev.Trimmed(1_600)))
    assert [entry.epoch for entry in core.ha.epochs.entries] == [2, 3, 4]
    finish(core, core.step(0, ev.Trimmed(1_601)))
    assert [entry.epoch for entry in core.ha.epochs.entries] == [3, 4]


async def test_epoch_file_when_one_of_both_fails_then_the_other_has_ended_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next try wrote into the same temporary file as what was still under way."""
    disk, ended, real = SystemDisk(), list[str](), SystemDisk.write_atomic
    file = EpochFile(disk, str(tmp_path / "epochFileCheckpoint"))
    await file.write([EpochEntry(1, 0)])

    async def write_atomic(path: str, data: bytes) -> None:
        if not path.endswith(".bak"):
            raise DiskFull(path)
        await asyncio.sleep(0.05)
        await real(disk, path, data)
        ended.append(path)

    monkeypatch.setattr(disk, "write_atomic", write_atomic)
    with pytest.raises(DiskFull):
        await file.write([EpochEntry(2, 0)])
    assert len(ended) == 1


MADE_UP = 2**31 - 1


@pytest.mark.parametrize("way", ["handshake", "heartbeat"])
def test_master_when_it_names_an_epoch_of_which_no_controller_told_then_it_is_left(
    way: str,
) -> None:
    """It was believed and written down: every later role was refused, over restarts as well."""
    core = replica(own_id=2)
    effects = finish(core, core.step(0, ev.ChangedToSlave(5, 1, "h:1")))
    conn = next(one.conn for one in effects if isinstance(one, ev.Connect))
    finish(core, core.step(0, ev.MasterConnected(conn)))
    entries, end = core.ha.epochs.entries, core.ha.log.max_offset
    more = (EpochEntry(MADE_UP, end),) if way == "handshake" else ()
    effects = finish(
        core, core.step(0, ev.MasterSent(conn, HandshakeReply(end, 5, entries + more)))
    )
    if way == "heartbeat":
        assert left(effects) == []
        header = TransferHeader(0, end, MADE_UP, end, end)
        effects = finish(core, core.step(0, ev.MasterSent(conn, header)))
    assert left(effects) == [f"epoch {MADE_UP} of a master that was named in epoch 5"]
    assert core.ha.epochs.entries == entries
    effects = finish(core, core.step(1, ev.ChangedToMaster(6, frozenset({2}), 2)))
    assert not [one for one in effects if isinstance(one, ev.RoleRefused)]


def test_master_when_it_was_elected_again_then_it_is_followed_once_the_slave_is_told() -> None:
    """The master hears of its epoch first."""
    core = replica(own_id=2)
    effects = finish(core, core.step(0, ev.ChangedToSlave(5, 1, "h:1")))
    conn = next(one.conn for one in effects if isinstance(one, ev.Connect))
    finish(core, core.step(0, ev.MasterConnected(conn)))
    entries, end = core.ha.epochs.entries, core.ha.log.max_offset
    finish(core, core.step(0, ev.MasterSent(conn, HandshakeReply(end, 5, entries))))
    again = TransferHeader(0, end, 6, end, end)
    assert left(finish(core, core.step(10, ev.MasterSent(conn, again))))
    effects = finish(core, core.step(20, ev.ChangedToSlave(6, 1, "h:1")))
    effects += finish(core, core.step(20, Ticked()))
    conn = next(one.conn for one in effects if isinstance(one, ev.Connect))
    finish(core, core.step(20, ev.MasterConnected(conn)))
    reply = HandshakeReply(end, 6, (*entries, EpochEntry(6, end)))
    assert left(finish(core, core.step(20, ev.MasterSent(conn, reply)))) == []
    assert core.ha.epochs.last_epoch == 6


def test_slave_when_bodies_have_no_room_then_it_asks_more_and_more_seldom() -> None:
    """Each connection begins well: ten a second, for as long as the disk was full."""
    core = replica(own_id=2)
    entries, end = core.ha.epochs.entries, core.ha.log.max_offset
    effects, tries, now_ms = core.step(0, ev.ChangedToSlave(5, 1, "h:1")), list[int](), 0
    while now_ms < 10_000:
        for one in (one for one in finish(core, effects) if isinstance(one, ev.Connect)):
            tries.append(now_ms)
            finish(core, core.step(now_ms, ev.MasterConnected(one.conn)))
            finish(
                core,
                core.step(now_ms, ev.MasterSent(one.conn, HandshakeReply(1 << 20, 5, entries))),
            )
            for size in (0, 1_000):
                header = TransferHeader(size, end, 5, end, end)
                finish(core, core.step(now_ms, ev.MasterSent(one.conn, header)))
            finish(core, core.step(now_ms, ev.MasterClosed(one.conn, "the disk is full")))
        now_ms = max(now_ms + 1, core.next_deadline_ms or 0)
        effects = core.step(now_ms, Ticked())
    assert 4 <= len(tries) <= 10
