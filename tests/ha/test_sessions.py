"""One core against hand-made peers: the rules of each connection, and of puts."""

from __future__ import annotations

import struct

import pytest

from rmqha.base.errors import ConfigInvalid
from rmqha.base.machine import Note, Ticked
from rmqha.ha import events as ev
from rmqha.ha import membership
from rmqha.ha.epochs import EpochCache, EpochEntry
from rmqha.ha.events import PutStatus, describe
from rmqha.ha.frames import Ack, HandshakeReply, HandshakeRequest, TransferHeader
from rmqha.ha.ha_core import HaCore
from rmqha.ha.put_waits import PutWaits
from rmqha.ha.settings import SLAVES_MAX, HaSettings, load_ha_settings
from rmqha.ha.state import LogFacts
from rmqha.ha.sync_state_set import ASKED_MAX, SyncStateSet

TRANSFER = struct.Struct(">iiqiqq")
EPOCHS = [EpochEntry(1, 0), EpochEntry(2, 1_580), EpochEntry(3, 1_600), EpochEntry(4, 2_500)]


def replica(settings: HaSettings | None = None, *, own_id: int = 1, **facts: int) -> HaCore:
    values = {"min_offset": 0, "max_offset": 4_000, "flushed_offset": 4_000, **facts}
    epochs = [one for one in EPOCHS if values["max_offset"] > one.start >= 0]
    log = LogFacts(2_000, confirm_offset=0, **values)
    return HaCore(
        own_id=own_id,
        settings=settings or HaSettings(),
        log=log,
        epochs=EpochCache(epochs),
        now_ms=0,
    )


def finish(core: HaCore, effects: list[ev.Effect], now_ms: int = 0) -> list[ev.Effect]:
    """Let everything that waits succeed at once; returns all effects."""
    seen: list[ev.Effect] = []
    while effects:
        effect = effects.pop(0)
        seen.append(effect)
        match effect:
            case ev.CutInvalidTail(seq):
                effects += core.step(now_ms, ev.TailCut(seq, core.ha.log.max_offset))
            case ev.TruncateLog(seq, offset):
                effects += core.step(now_ms, ev.LogTruncated(seq, offset))
            case ev.WriteEpochs(seq):
                effects += core.step(now_ms, ev.EpochsWritten(seq))
            case ev.WaitDispatched(seq):
                effects += core.step(now_ms, ev.DispatchReached(seq))
            case _:
                pass
    return seen


def reigning(settings: HaSettings | None = None, epoch: int = 4, **facts: int) -> HaCore:
    core = replica(settings, **facts)
    finish(core, core.step(0, ev.ChangedToMaster(epoch, frozenset({1}), 1)))
    return core


def joined(core: HaCore, conn: int, slave_id: int, offset: int, **flags: bool) -> list[ev.Effect]:
    core.step(0, ev.SlaveConnected(conn, "peer"))
    core.step(0, ev.SlaveSent(conn, HandshakeRequest(slave_id, **flags)))
    return core.step(0, ev.SlaveSent(conn, Ack(offset)))


def batches(effects: list[ev.Effect]) -> list[tuple[int, int, int, int]]:
    """Offset, length, epoch and epoch start of each batch."""
    found = []
    for one in effects:
        if isinstance(one, ev.SendBatch):
            _, size, offset, epoch, start, _ = TRANSFER.unpack(one.header)
            assert (size, offset) == (one.length, one.offset)
            found.append((offset, size, epoch, start))
    return found


def closed(effects: list[ev.Effect]) -> list[int]:
    return [one.conn for one in effects if isinstance(one, ev.CloseSlave)]


def test_g5_every_batch_is_labelled_with_the_epoch_of_its_bytes() -> None:
    """No batch crosses an epoch or a file, and none carries the next epoch's number."""
    core = reigning()
    sent = batches(joined(core, 1, 2, 500))
    while more := batches(core.step(0, ev.SlaveWritable(1))):
        sent += more
    assert sent == [
        (500, 1_080, 1, 0),
        (1_580, 20, 2, 1_580),
        (1_600, 400, 3, 1_600),
        (2_000, 500, 3, 1_600),
        (2_500, 1_500, 4, 2_500),
    ]


def test_3664_batches_follow_each_other_without_acknowledgements() -> None:
    """#3664, #3667: stop-and-wait makes 2 ms of delay cost nine tenths of the speed."""
    core = reigning(HaSettings(ha_transfer_batch_size=100))
    sent = batches(joined(core, 1, 2, 0))
    for _ in range(10):
        sent += batches(core.step(0, ev.SlaveWritable(1)))
    assert [offset for offset, *_ in sent] == list(range(0, 1_100, 100))


@pytest.mark.parametrize(("last_file", "start"), [(False, 0), (True, 2_000)])
def test_g24_an_empty_slave_begins_at_a_files_beginning(last_file: bool, start: int) -> None:
    """Its first file is filled from the beginning."""
    core = reigning(max_offset=3_900)
    assert batches(joined(core, 1, 2, 0, sync_from_last_file=last_file))[0][0] == start


@pytest.mark.parametrize("offset", [0, 100])
def test_slave_when_a_crash_brought_back_files_of_which_epochs_are_forgotten_then_it_begins_behind(
    offset: int,
) -> None:
    """The epoch file was written and the files not yet deleted: each connection ended in an error."""
    core = reigning(max_offset=3_900)
    core.ha.epochs = EpochCache(EPOCHS[1:])
    effects = joined(core, 1, 2, offset)
    assert closed(effects) == []
    if offset:
        # Of what it lacks nobody can say in which epoch it was written.
        told = [one.facts["reason"] for one in effects if isinstance(one, Note)]
        assert "the log begins at 2000" in told[-1]
        assert batches(effects) == []
    else:
        assert batches(effects)[0][0] == 2_000


def test_g11_a_newer_connection_closes_the_older_and_counts_once() -> None:
    """Two connections of one slave are one replica."""
    core = reigning(HaSettings(in_sync_replicas=3))
    joined(core, 1, 2, 4_000)
    core.step(0, ev.SlaveConnected(2, "peer"))
    assert closed(core.step(0, ev.SlaveSent(2, HandshakeRequest(2)))) == [1]
    core.step(0, ev.SlaveSent(2, Ack(4_000)))
    assert core.members.acks() == {2: 4_000}


@pytest.mark.parametrize("offset", [-1, 4_001, 1 << 60])
def test_g10_an_impossible_acknowledgement_ends_the_connection(offset: int) -> None:
    """#3015: it would complete puts that no slave holds."""
    core = reigning()
    assert closed(joined(core, 1, 2, offset)) == [1]
    assert core.members.acks() == {}


def test_g10_an_acknowledgement_of_what_was_not_sent_or_that_goes_back() -> None:
    """A slave holds only what this connection gave it."""
    core = reigning(HaSettings(ha_transfer_batch_size=100))
    joined(core, 1, 2, 500)
    assert closed(core.step(0, ev.SlaveSent(1, Ack(700)))) == [1]
    joined(core, 2, 3, 500)
    core.step(0, ev.SlaveSent(2, Ack(600)))
    assert closed(core.step(0, ev.SlaveSent(2, Ack(599)))) == [2]


@pytest.mark.parametrize("slave_id", [0, -1, 1])
def test_g10_only_ids_of_others_are_served(slave_id: int) -> None:
    """0 is no id, 1 is this master; also a 5.1.0 handshake."""
    core = reigning()
    core.step(0, ev.SlaveConnected(1, "peer"))
    assert closed(core.step(0, ev.SlaveSent(1, HandshakeRequest(slave_id)))) == [1]


def test_g1_a_handshake_is_answered_once_in_one_write() -> None:
    """A second reply would find a Java slave in TRANSFER and cost 5 s."""
    core = reigning()
    core.step(0, ev.SlaveConnected(1, "peer"))
    (reply,) = core.step(0, ev.SlaveSent(1, HandshakeRequest(2)))
    assert isinstance(reply, ev.SendToSlave)
    assert len(reply.data) == 20 + 12 * 4
    assert core.step(0, ev.SlaveSent(1, HandshakeRequest(2))) == []


def test_a_slave_that_comes_too_early_is_answered_after_the_election() -> None:
    """A Java slave that is turned away waits 5 s."""
    core = replica()
    core.step(0, ev.SlaveConnected(1, "peer"))
    assert core.step(0, ev.SlaveSent(1, HandshakeRequest(2))) == []
    effects = finish(core, core.step(0, ev.ChangedToMaster(4, frozenset({1}), 1)))
    order = [type(one).__name__ for one in effects if type(one).__name__ != "Note"]
    assert order == [
        "CutInvalidTail", "SetConfirmOffset", "WriteEpochs", "WaitDispatched",
        "RoleChanged", "SendToSlave",
    ]  # fmt: skip


def test_heartbeats_and_silence_of_a_slave() -> None:
    """5 s since the last write, 20 s since the last read; the offset is what comes next."""
    core = reigning()
    joined(core, 1, 2, 4_000)
    assert batches(core.step(4_999, Ticked())) == [(4_000, 0, 4, 2_500)]  # confirmOffset moved
    core.step(5_000, ev.SlaveWritable(1))
    assert batches(core.step(9_998, Ticked())) == []
    assert batches(core.step(9_999, Ticked())) == [(4_000, 0, 4, 2_500)]
    assert closed(core.step(20_001, Ticked())) == [1]


def test_time_passes_while_a_master_that_stays_master_takes_up_a_new_epoch() -> None:
    """Its sessions stay open, but no heartbeat may leave yet: a deadline for it would spin."""
    core = reigning()
    joined(core, 1, 2, 4_000)
    core.step(100, ev.ChangedToMaster(core.ha.epochs.last_epoch + 1, frozenset({1}), 2))
    assert not core.is_serving
    assert core.sessions
    core.step(6_000, Ticked())
    assert core.next_deadline_ms is not None
    assert core.next_deadline_ms > 6_000


def test_flow_control_sends_so_much_in_a_second() -> None:
    """haFlowControlEnable: headers count; the next second has a new allowance."""
    settings = HaSettings(ha_flow_control_enable=True, max_ha_transfer_byte_in_second=300)
    core = reigning(settings)
    core.step(0, Ticked())
    assert batches(joined(core, 1, 2, 0)) == [(0, 300, 1, 0)]
    assert batches(core.step(500, ev.SlaveWritable(1))) == []
    assert core.next_deadline_ms == 1_000
    assert batches(core.step(1_000, Ticked())) == [(300, 300, 1, 0)]


def test_frames_never_exceed_what_a_java_slave_can_read() -> None:
    """Header and body share its 4 MiB buffer."""
    settings = HaSettings(ha_transfer_batch_size=1 << 30)
    assert settings.transfer_body_bytes + 36 == 4 << 20
    assert HaSettings().transfer_body_bytes == 1 << 20
    assert load_ha_settings({"haTransferBatchSize": "32768"}).transfer_body_bytes == 32_768


def test_the_number_of_connections_is_bounded_and_idle_ones_go_first() -> None:
    """Neither a flood of connections nor seventy that say nothing keep a slave out (X21)."""
    core = reigning()
    for conn in range(SLAVES_MAX):
        assert closed(core.step(0, ev.SlaveConnected(conn, "peer"))) == []
    core.step(0, ev.SlaveSent(0, HandshakeRequest(7)))
    assert closed(core.step(0, ev.SlaveConnected(100, "peer"))) == [1]
    for conn in [*range(2, SLAVES_MAX), 100]:
        core.step(0, ev.SlaveSent(conn, HandshakeRequest(1000 + conn)))
    assert closed(core.step(0, ev.SlaveConnected(101, "peer"))) == [0]


def test_slaves_that_acknowledge_are_never_closed_for_a_stranger() -> None:
    """A full port refuses whoever comes last then."""
    core = reigning()
    for conn in range(SLAVES_MAX):
        core.step(0, ev.SlaveConnected(conn, "peer"))
        core.step(0, ev.SlaveSent(conn, HandshakeRequest(1000 + conn)))
        core.step(0, ev.SlaveSent(conn, Ack(0)))
    assert closed(core.step(0, ev.SlaveConnected(999, "peer"))) == [999]


def follow(core: HaCore) -> int:
    """Up to the handshake; returns the connection."""
    effects = finish(core, core.step(0, ev.ChangedToSlave(9, 5, "m:1")))
    (connect,) = [one for one in effects if isinstance(one, ev.Connect)]
    (hello,) = core.step(0, ev.MasterConnected(connect.conn))
    assert isinstance(hello, ev.SendToMaster)
    assert len(hello.data) == 16
    return connect.conn


def test_g20_the_cut_comes_first_then_the_epochs_then_the_acknowledgement() -> None:
    """And it leaves at once."""
    core = replica(own_id=2)
    conn = follow(core)
    reply = HandshakeReply(3_000, 7, (EpochEntry(1, 0), EpochEntry(2, 1_580), EpochEntry(7, 1_590)))
    first = core.step(0, ev.MasterSent(conn, reply))
    (cut,) = [one for one in first if isinstance(one, ev.TruncateLog)]
    assert cut.offset == 1_590
    second = core.step(0, ev.LogTruncated(cut.seq, 1_590))
    (write,) = [one for one in second if not isinstance(one, ev.Note)]
    assert isinstance(write, ev.WriteEpochs)
    assert write.entries == reply.entries
    third = core.step(0, ev.EpochsWritten(write.seq))
    assert [one for one in third if isinstance(one, ev.SendAck)] == [ev.SendAck(conn, 1_590)]


def test_slave_when_the_epoch_of_its_bytes_is_not_durable_then_they_are_not_confirmed() -> None:
    """A crash forgets the epoch, and the next handshake cuts what consumers have read here."""
    core = replica(own_id=2)
    conn = follow(core)
    finish(core, core.step(0, ev.MasterSent(conn, HandshakeReply(4_000, 4, tuple(EPOCHS)))))
    core.step(0, ev.MasterSent(conn, TransferHeader(100, 4_000, 5, 4_000, 4_100)))
    arrived = core.step(0, ev.BodyReceived(conn, 4_000, 100))
    (write,) = [one for one in arrived if isinstance(one, ev.WriteEpochs)]
    assert not [one for one in arrived if isinstance(one, (ev.SetConfirmOffset, ev.SendAck))]
    assert core.step(0, ev.EpochsWritten(write.seq)) == [
        ev.SetConfirmOffset(4_100), ev.SendAck(conn, 4_100),
    ]  # fmt: skip


def test_g1_a_duplicate_reply_in_transfer_does_no_harm() -> None:
    """Java's slave stops for 5 s."""
    core = replica(own_id=2)
    conn = follow(core)
    reply = HandshakeReply(4_000, 4, tuple(EPOCHS))
    finish(core, core.step(0, ev.MasterSent(conn, reply)))
    assert core.step(0, ev.MasterSent(conn, reply)) == []


@pytest.mark.parametrize(
    ("max_offset", "header"),
    [
        (4_000, TransferHeader(0, 3_999, 4, 2_500, 0)),
        (4_000, TransferHeader(10, 4_001, 4, 2_500, 0)),
        (3_999, TransferHeader(10, 3_999, 4, 2_500, 0)),
        (0, TransferHeader(10, 100, 4, 0, 0)),
        (0, TransferHeader(10, -1, 4, 0, 0)),
    ],
)
def test_a_frame_that_does_not_fit_the_log_ends_the_connection(
    max_offset: int, header: TransferHeader
) -> None:
    """A gap, an overlap, a file's end crossed, an empty log begun inside a file."""
    core = replica(own_id=2, max_offset=max_offset)
    conn = follow(core)
    finish(core, core.step(0, ev.MasterSent(conn, HandshakeReply(4_000, 4, tuple(EPOCHS)))))
    effects = core.step(0, ev.MasterSent(conn, header))
    assert [one.conn for one in effects if isinstance(one, ev.CloseMaster)] == [conn]


def test_an_empty_java_masters_heartbeat_of_minus_one_is_taken() -> None:
    """Recorded from a real broker: its next offset is -1 while its log is empty."""
    core = replica(own_id=2, max_offset=0, min_offset=-1, flushed_offset=0)
    conn = follow(core)
    finish(core, core.step(0, ev.MasterSent(conn, HandshakeReply(0, 1, (EpochEntry(1, 0),)))))
    assert core.step(0, ev.MasterSent(conn, TransferHeader(0, -1, 1, 0, 0))) == []


def test_slave_when_its_log_begins_within_the_master_s_then_it_knows_no_epoch_of_before() -> None:
    """An epoch of bytes that it does not have would be told as its own at the next handshake."""
    core = replica(own_id=2, max_offset=0, min_offset=-1, flushed_offset=0)
    conn = follow(core)
    finish(core, core.step(0, ev.MasterSent(conn, HandshakeReply(4_000, 4, tuple(EPOCHS)))))
    core.step(0, ev.MasterSent(conn, TransferHeader(100, 2_000, 3, 1_600, 0)))
    arrived = core.step(0, ev.BodyReceived(conn, 2_000, 100))
    (write,) = [one for one in arrived if isinstance(one, ev.WriteEpochs)]
    assert write.entries == (EpochEntry(3, 1_600),)


def again(core: HaCore, conn: int) -> int:
    """The connection is lost, and there is another."""
    core.step(0, ev.MasterClosed(conn, "reset"))
    effects = finish(core, core.step(9_000, Ticked()), 9_000)
    (connect,) = [one for one in effects if isinstance(one, ev.Connect)]
    core.step(9_000, ev.MasterConnected(connect.conn))
    return connect.conn


def test_slave_when_its_log_is_cut_by_the_same_master_then_it_flushes_what_comes_after() -> None:
    """What was asked for beyond the cut was never asked for again: it acknowledged nothing more."""
    core = replica(HaSettings(ack_flushed_data=True), own_id=2, flushed_offset=2_000)
    conn = follow(core)
    reply = HandshakeReply(4_000, 4, tuple(EPOCHS))
    effects = finish(core, core.step(0, ev.MasterSent(conn, reply)))
    assert [one.offset for one in effects if isinstance(one, ev.Flush)] == [4_000]
    core.step(0, ev.Flushed(4_000))
    conn = again(core, conn)
    shorter = HandshakeReply(3_000, 4, tuple(EPOCHS))
    effects = finish(core, core.step(0, ev.MasterSent(conn, shorter)), 9_000)
    assert ev.SendAck(conn, 3_000) in effects
    core.step(9_000, ev.MasterSent(conn, TransferHeader(500, 3_000, 4, 2_500, 0)))
    effects = core.step(9_000, ev.BodyReceived(conn, 3_000, 500))
    assert [one.offset for one in effects if isinstance(one, ev.Flush)] == [3_500]
    assert ev.SendAck(conn, 3_500) in core.step(9_000, ev.Flushed(3_500))


def test_slave_when_a_half_record_is_cut_off_its_end_then_it_flushes_what_comes_after() -> None:
    """A connection may break inside a record; what is left is asked for anew."""
    core = replica(HaSettings(ack_flushed_data=True), own_id=2, flushed_offset=2_000)
    conn = follow(core)
    finish(core, core.step(0, ev.MasterSent(conn, HandshakeReply(4_000, 4, tuple(EPOCHS)))))
    core.step(0, ev.MasterClosed(conn, "reset"))
    (cut,) = [one for one in core.step(9_000, Ticked()) if isinstance(one, ev.CutInvalidTail)]
    effects = finish(core, core.step(9_000, ev.TailCut(cut.seq, 3_900)), 9_000)
    (connect,) = [one for one in effects if isinstance(one, ev.Connect)]
    core.step(9_000, ev.MasterConnected(connect.conn))
    reply = HandshakeReply(4_000, 4, tuple(EPOCHS))
    effects = finish(core, core.step(9_000, ev.MasterSent(connect.conn, reply)), 9_000)
    assert [one.offset for one in effects if isinstance(one, ev.Flush)] == [3_900]


def test_slave_when_its_tail_is_not_flushed_then_it_names_no_earlier_place_to_begin_at() -> None:
    """The first acknowledgement says where the master goes on: a frame inside the log ends it."""
    core = replica(HaSettings(ack_flushed_data=True), own_id=2, flushed_offset=2_000)
    conn = follow(core)
    effects = finish(
        core, core.step(0, ev.MasterSent(conn, HandshakeReply(4_000, 4, tuple(EPOCHS))))
    )
    assert not [one for one in effects if isinstance(one, ev.SendAck)]
    assert ev.SendAck(conn, 4_000) in core.step(0, ev.Flushed(4_000))


def test_without_a_consistent_point_the_slave_says_so_and_waits() -> None:
    """2.4: -1 needs an operator; nothing is cut."""
    core = replica(own_id=2)
    conn = follow(core)
    effects = core.step(0, ev.MasterSent(conn, HandshakeReply(9, 8, (EpochEntry(8, 0),))))
    assert any("ha_no_consistent_point" in describe(one) for one in effects)
    assert not [one for one in effects if isinstance(one, ev.TruncateLog)]
    assert core.next_deadline_ms == 5_000


def test_each_put_has_its_own_deadline_and_completion_follows_offsets() -> None:
    """A stuck put delays nobody."""
    waits = PutWaits()
    waits.add(1, 900, 50)
    waits.add(2, 100, 3_000)
    waits.add(3, 200, 10)
    assert waits.expired(10) == [3]
    assert waits.reached(500) == [2]
    assert (waits.next_deadline_ms, len(waits)) == (50, 1)
    assert waits.expired(50) == [1]
    assert waits.next_deadline_ms is None


def test_a_thousand_puts_wait_and_one_acknowledgement_ends_them() -> None:
    """Puts that were told FLUSH_SLAVE_TIMEOUT are not told again."""
    core = reigning(HaSettings(all_ack_in_sync_state_set=True))
    joined(core, 1, 2, 4_000)
    core.step(0, ev.SyncStateSetConfirmed(frozenset({1, 2}), 2))
    core.step(0, ev.Appended(5_000))
    for token in range(1_000):
        assert (
            core.step(token % 7, ev.PutWaited(token, 4_001 + token % 999, core.reign_number)) == []
        )
    core.step(8, ev.SlaveWritable(1))
    done = core.step(9, ev.SlaveSent(1, Ack(5_000)))
    ended = [one.token for one in done if isinstance(one, ev.PutCompleted)]
    assert sorted(ended) == list(range(1_000))
    assert all(one.status is PutStatus.PUT_OK for one in done if isinstance(one, ev.PutCompleted))


def test_put_when_the_set_shrinks_below_the_least_then_it_is_not_acknowledged() -> None:
    """minInSyncReplicas is what a producer is promised; Java acknowledges what the master alone holds."""
    core = reigning(HaSettings(all_ack_in_sync_state_set=True, min_in_sync_replicas=2))
    joined(core, 1, 2, 4_000)
    core.step(0, ev.SyncStateSetConfirmed(frozenset({1, 2}), 2))
    core.step(0, ev.Appended(4_500))
    assert core.step(0, ev.PutWaited(7, 4_500, core.reign_number)) == []
    core.step(10, ev.SlaveClosed(1, "gone"))
    effects = core.step(20, ev.SyncStateSetConfirmed(frozenset({1}), 3))
    assert not [one for one in effects if isinstance(one, ev.PutCompleted)]
    joined(core, 2, 2, 4_500)
    effects = core.step(30, ev.SyncStateSetConfirmed(frozenset({1, 2}), 4))
    assert ev.PutCompleted(7, PutStatus.PUT_OK) in effects


def test_put_when_its_reign_is_told_of_twice_then_it_waits_for_whom_may_be_a_member() -> None:
    """What was asked for since the first time may still be applied, and then its slave be elected."""
    core = reigning(HaSettings(all_ack_in_sync_state_set=True))
    asked = joined(core, 1, 2, 4_000)
    assert [one.ids for one in asked if isinstance(one, ev.AlterSyncStateSet)] == [{1, 2}]
    finish(core, core.step(0, ev.ChangedToMaster(4, frozenset({1}), 1)))
    core.step(0, ev.Appended(4_500))
    assert core.step(0, ev.PutWaited(7, 4_500, core.reign_number)) == []
    core.step(1, ev.SlaveWritable(1))
    ended = core.step(2, ev.SlaveSent(1, Ack(4_500)))
    assert ev.PutCompleted(7, PutStatus.PUT_OK) in ended


def test_put_when_it_comes_after_its_reign_then_it_is_not_acknowledged() -> None:
    """It waited for the disk; meanwhile another master reigned, and its place is another record's."""
    core = reigning()
    core.step(0, ev.Appended(4_500))
    written = core.reign_number
    finish(core, core.step(0, ev.ChangedToSlave(5, 2, "m:1")))
    finish(core, core.step(0, ev.ChangedToMaster(6, frozenset({1}), 3)))
    refused = core.step(0, ev.PutWaited(7, 4_500, written))
    assert refused == [ev.PutCompleted(7, PutStatus.FLUSH_SLAVE_TIMEOUT)]
    taken = core.step(0, ev.PutWaited(8, 4_500, core.reign_number))
    assert taken == [ev.PutCompleted(8, PutStatus.PUT_OK)]


def test_behind_a_put_that_waits_acknowledgements_are_not_looked_at_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One that is before it is answered at once; those behind it cost a place in the queue."""
    core = reigning(HaSettings(all_ack_in_sync_state_set=True))
    joined(core, 1, 2, 4_000)
    core.step(0, ev.SyncStateSetConfirmed(frozenset({1, 2}), 2))
    core.step(0, ev.Appended(5_000))
    assert core.step(0, ev.PutWaited(1, 4_500, core.reign_number)) == []
    assert core.step(0, ev.PutWaited(2, 3_900, core.reign_number)) == [
        ev.PutCompleted(2, PutStatus.PUT_OK)
    ]
    with monkeypatch.context() as patch:
        patch.setattr(membership, "acked_level", None)
        assert (
            core.step(0, ev.PutWaited(3, 4_500, core.reign_number))
            == core.step(0, ev.PutWaited(4, 5_000, core.reign_number))
            == []
        )
    core.step(8, ev.SlaveWritable(1))
    done = core.step(9, ev.SlaveSent(1, Ack(4_500)))
    ended = [one.token for one in done if isinstance(one, ev.PutCompleted)]
    assert sorted(ended) == [1, 3]
    assert core.members.waits.first_offset == 5_000
    late = core.step(9 + core.ha.settings.slave_timeout_ms, Ticked())
    assert ev.PutCompleted(4, PutStatus.FLUSH_SLAVE_TIMEOUT) in late
    assert core.members.waits.first_offset is None


def test_unanswered_requests_are_bounded() -> None:
    """A controller that never answers makes no list grow."""
    members = SyncStateSet(1)
    members.adopt({1}, 1)
    for number in range(2, 50):
        members.ask(number * 2_000, frozenset({1, number}))
        members.lost()
    assert len(members.asked) == ASKED_MAX
    assert members.confirmed(0, {1, 2}, 2, 6_000)
    assert members.possible == (frozenset({1, 2}),)


def test_settings_have_javas_names_and_refuse_nonsense() -> None:
    """broker.conf is shared with Java."""
    loaded = load_ha_settings({"allAckInSyncStateSet": "TRUE", "inSyncReplicas": " 2 ", "x": "y"})
    assert (loaded.all_ack_in_sync_state_set, loaded.in_sync_replicas) == (True, 2)
    for bad in ({"slaveTimeout": "soon"}, {"haHousekeepingInterval": "0"}):
        with pytest.raises(ConfigInvalid):
            load_ha_settings(bad)


@pytest.mark.parametrize("all_ack", [True, False])
def test_confirm_offset_when_the_own_disk_has_less_then_it_ends_there(all_ack: bool) -> None:
    """With SYNC_FLUSH a master that loses power may reign once more, alone in its set: what its slaves
    were told, and consumers have seen, must be there still."""
    settings = HaSettings(ack_flushed_data=True, all_ack_in_sync_state_set=all_ack)
    core = reigning(settings)
    assert core.ha.log.confirm_offset == 4_000
    core.step(1, ev.Appended(6_000))
    assert core.ha.log.confirm_offset == 4_000
    core.step(2, ev.Flushed(5_000))
    assert core.ha.log.confirm_offset == 5_000
    core.step(3, ev.Flushed(6_000))
    assert core.ha.log.confirm_offset == 6_000


def test_confirm_offset_when_nobody_waits_for_disks_then_it_follows_the_log() -> None:
    """ASYNC_FLUSH promises nothing that a power cut must not take."""
    core = reigning(HaSettings())
    core.step(1, ev.Appended(6_000))
    assert core.ha.log.confirm_offset == 6_000
