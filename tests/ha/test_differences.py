"""Where replication differs from Java on purpose (``docs/PARITY.md``), one core at a time."""

from __future__ import annotations

from rmqha.base.machine import Ticked
from rmqha.ha import events as ev
from rmqha.ha.epochs import EpochCache, EpochEntry
from rmqha.ha.events import PutStatus
from rmqha.ha.frames import Ack
from rmqha.ha.ha_core import HaCore
from rmqha.ha.settings import HaSettings
from rmqha.ha.state import LogFacts
from tests.ha.test_sessions import TRANSFER, finish, follow, joined, reigning, replica

ALL_ACK = HaSettings(all_ack_in_sync_state_set=True)


def test_the_smallest_set_that_the_controller_may_hold_counts_for_the_minimum() -> None:
    """A shrink that is asked for may be true already: Java still takes puts for the larger set."""
    core = reigning(HaSettings(all_ack_in_sync_state_set=True, min_in_sync_replicas=2))
    joined(core, 1, 2, 4_000)
    core.step(0, ev.SyncStateSetConfirmed(frozenset({1, 2}), 2))
    assert core.check_put() is PutStatus.PUT_OK
    asked = core.step(10, ev.SlaveClosed(1, "gone"))
    assert [one.ids for one in asked if isinstance(one, ev.AlterSyncStateSet)] == [frozenset({1})]
    assert core.check_put() is PutStatus.IN_SYNC_REPLICAS_NOT_ENOUGH


def test_a_member_that_has_not_acknowledged_holds_the_confirm_offset() -> None:
    """Java leaves it out of the minimum, and shows consumers what it lacks."""
    core = reigning(ALL_ACK)
    core.step(0, ev.SyncStateSetConfirmed(frozenset({1, 2}), 2))
    assert core.ha.log.confirm_offset == 4_000
    core.step(1, ev.Appended(4_500))
    assert core.ha.log.confirm_offset == 4_000
    joined(core, 1, 2, 4_000)
    assert core.ha.log.confirm_offset == 4_000
    core.step(2, ev.SlaveSent(1, Ack(4_500)))
    assert core.ha.log.confirm_offset == 4_500


def test_a_master_that_restarts_in_its_epoch_keeps_its_entry() -> None:
    """Java begins the epoch anew at the log's end, and its slaves throw away all they have of it."""
    core = HaCore(
        own_id=1,
        settings=HaSettings(),
        log=LogFacts(2_000, 0, 3_000, 3_000),
        epochs=EpochCache([EpochEntry(1, 0), EpochEntry(2, 1_000)]),
        now_ms=0,
    )
    finish(core, core.step(0, ev.ChangedToMaster(2, frozenset({1}), 1)))
    assert core.ha.epochs.entries == (EpochEntry(1, 0), EpochEntry(2, 1_000))


def test_an_idle_slave_hears_of_a_moved_confirm_offset_after_100_ms() -> None:
    """In Java its consumers wait for the next heartbeat, 5 s."""
    core = reigning(ALL_ACK)
    core.step(0, ev.SyncStateSetConfirmed(frozenset({1, 2}), 2))
    joined(core, 1, 2, 4_000)
    core.step(1_000, ev.Appended(4_500))
    core.step(1_000, ev.SlaveWritable(1))
    core.step(1_001, ev.SlaveSent(1, Ack(4_500)))
    assert core.ha.log.confirm_offset == 4_500
    early = core.step(1_099, Ticked())
    assert not [one for one in early if isinstance(one, ev.SendBatch)]
    assert core.next_deadline_ms == 1_100
    (told,) = [one for one in core.step(1_100, Ticked()) if isinstance(one, ev.SendBatch)]
    assert told.length == 0
    assert TRANSFER.unpack(told.header)[5] == 4_500


def test_a_lost_master_is_tried_again_after_100_ms_then_ever_later_up_to_5_s() -> None:
    """Java waits 5 s each time."""
    core = replica(own_id=2)
    conn, now = follow(core), 0
    waits = []
    for _ in range(8):
        core.step(now, ev.MasterClosed(conn, "gone"))
        due = core.next_deadline_ms
        assert due is not None
        waits.append(due - now)
        now = due
        effects = finish(core, core.step(now, Ticked()), now)
        (conn,) = [one.conn for one in effects if isinstance(one, ev.Connect)]
    assert waits == [100, 200, 400, 800, 1_600, 3_200, 5_000, 5_000]


def test_a_slave_that_keeps_up_with_a_lone_master_holds_puts_for_a_second_at_most() -> None:
    """Else a slave that is never level with a busy master never gets in (#6728)."""
    core = reigning(ALL_ACK)
    joined(core, 1, 2, 3_000)
    core.step(0, ev.SlaveWritable(1))
    asked_at = None
    end = 4_000
    for now in range(10, 5_000, 10):
        end += 100
        core.step(now, ev.Appended(end))
        effects = core.step(now, ev.SlaveWritable(1))
        effects += core.step(now, ev.SlaveSent(1, Ack(end - 100)))
        effects += core.step(now, Ticked())
        if any(isinstance(one, ev.AlterSyncStateSet) for one in effects):
            asked_at = now
            break
    assert asked_at is not None
    assert asked_at <= 1_000
