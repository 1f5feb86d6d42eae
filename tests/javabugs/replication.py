"""Java's bugs in replication and in what brokers tell name servers, put into ours."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from msgspec.structs import replace

from rmqha.broker.membership.write_lease import WriteLease
from rmqha.ha import frames, membership, role, slave_session
from rmqha.ha.epochs import EpochCache, spans
from rmqha.ha.events import PutStatus, SlaveClosed
from rmqha.ha.ha_core import HaCore
from rmqha.ha.master_session import MasterSession
from rmqha.ha.membership import Membership
from rmqha.ha.sync_state_set import SyncStateSet
from rmqha.namesrv import register
from rmqha.store import record
from tests.javabugs.mutant import Mutant

ISSUES = "ha/test_issues.py"
WAKE_UPS_BYTES = 5 * 32 * 1024


def any_controller_is_enough(patch: pytest.MonkeyPatch) -> None:
    """#7017: a master that one controller still answers goes on writing."""

    def newest(lease: WriteLease) -> int:
        return max(lease._vouched.values(), default=0) + lease.lease_ms

    patch.setattr(WriteLease, "_promised_ms", newest)


def confirm_follows_the_connected(patch: pytest.MonkeyPatch) -> None:
    """#6662: confirmOffset is the smallest of those slaves that are connected."""
    honest = membership.compute_confirm_offset

    def connected(**facts: Any) -> int:
        facts["union"] = facts["union"] & (facts["acks"].keys() | {facts["own_id"]})
        return honest(**facts)

    patch.setattr(membership, "compute_confirm_offset", connected)


def confirm_counts_who_joins(patch: pytest.MonkeyPatch) -> None:
    """#6728: a slave that has just connected is in the minimum, with nothing."""

    def everybody(**facts: Any) -> int:
        acks, own = facts["acks"], facts["own_id"]
        others = (facts["union"] | acks.keys()) - {own}
        return min((acks.get(one, 0) for one in others), default=facts["max_offset"])

    patch.setattr(membership, "compute_confirm_offset", everybody)


def a_reelected_master_forgets_its_epoch(patch: pytest.MonkeyPatch) -> None:
    """#9689: the entry of the reign before goes, and its bytes have no epoch."""
    honest = role.change_to_master_when_last_role_is_master

    def forgetful(replica: Any, command: Any) -> Any:
        replica.ha.epochs._entries = replica.ha.epochs._entries[:-1]
        yield from honest(replica, command)

    patch.setattr(role, "change_to_master_when_last_role_is_master", forgetful)


def empty_epochs_are_cut_with_the_log(patch: pytest.MonkeyPatch) -> None:
    """#9942: an epoch that begins at the end of the log goes as if it began behind it."""

    def drop(cache: EpochCache, log_end: int) -> bool:
        return cache._keep([entry for entry in cache.entries if entry.start < log_end])

    patch.setattr(EpochCache, "drop_beyond", drop)


def logs_that_begin_together_are_one(patch: pytest.MonkeyPatch) -> None:
    """#6505: two epochs of one start are taken for one history, whatever their numbers."""

    def by_start(local: Any, local_max: int, remote: Any, remote_max: int) -> int:
        theirs = {span.start: span for span in spans(remote, remote_max)}
        for span in reversed(spans(local, local_max)):
            if span.start in theirs:
                return min(span.end, theirs[span.start].end)
        return -1

    patch.setattr(slave_session, "find_consistent_point", by_start)


def a_reelected_master_begins_anew(patch: pytest.MonkeyPatch) -> None:
    """#6344: connections are closed and queue offsets built again."""
    patch.setattr(role, "change_to_master_when_last_role_is_master", role.change_to_master)


def the_own_set_is_kept(patch: pytest.MonkeyPatch) -> None:
    """#6342: a new master believes the set that it had, in the controllers' epoch."""

    def keep(known: SyncStateSet, _: Iterable[int], epoch: int) -> None:
        known.ids, known.epoch = known.ids | {known.own_id}, epoch

    patch.setattr(SyncStateSet, "adopt", keep)


def who_left_is_put_back(patch: pytest.MonkeyPatch) -> None:
    """#9897: of two that leave together each report has the other one in it."""
    honest, ever = SyncStateSet.wish, set()

    def wish(known: SyncStateSet, *facts: Any) -> frozenset[int]:
        ever.update(known.ids)
        wished = honest(known, *facts)
        gone = ever - wished
        return wished if len(gone) < 2 else frozenset(ever - {max(gone - known.ids or gone)})

    patch.setattr(SyncStateSet, "wish", wish)


def the_check_ends_when_somebody_misses(patch: pytest.MonkeyPatch) -> None:
    """#7219: the master is in no table of its own; the check throws, and never runs again."""
    honest, ended = Membership.changed, set()

    def check(members: Membership, now_ms: int) -> None:
        if not members._sessions:
            ended.add(id(members))
        if id(members) not in ended:
            honest(members, now_ms)

    patch.setattr(Membership, "changed", check)


def the_dead_are_waited_for(patch: pytest.MonkeyPatch) -> None:
    """#5651: a put needs a slave that has left the set."""
    honest, ever = membership.acked_level, set()

    def level(**facts: Any) -> int:
        ever.update(*facts["possible"])
        return honest(**{**facts, "possible": [frozenset(ever)]})

    patch.setattr(membership, "acked_level", level)


def consumers_always_wait(patch: pytest.MonkeyPatch) -> None:
    """#7656: without allAckInSyncStateSet confirmOffset waits for slaves as with it."""
    honest = membership.compute_confirm_offset
    patch.setattr(
        membership, "compute_confirm_offset", lambda **facts: honest(**{**facts, "all_ack": True})
    )


def one_acknowledgement_more_is_needed(patch: pytest.MonkeyPatch) -> None:
    """#9642: the master itself does not count."""
    honest = membership.acked_level

    def level(**facts: Any) -> int:
        settings = facts["settings"]
        return honest(
            **{
                **facts,
                "settings": replace(settings, in_sync_replicas=settings.in_sync_replicas + 1),
            }
        )

    patch.setattr(membership, "acked_level", level)


def roles_are_not_asked_for(patch: pytest.MonkeyPatch) -> None:
    """#6508: a broker serves before it knows whether it is the master."""
    patch.setattr(HaCore, "check_put", lambda core, **_: PutStatus.PUT_OK)


def five_wake_ups_are_all(patch: pytest.MonkeyPatch) -> None:
    """#1535: a put is given up when the slave lacks more than five transfers of 32 KiB."""
    honest = Membership.wait

    def wait(members: Membership, now_ms: int, token: int, end_offset: int, **facts: Any) -> None:
        if end_offset - max(members.acks().values(), default=0) > WAKE_UPS_BYTES:
            members._end(token, PutStatus.FLUSH_SLAVE_TIMEOUT)
        else:
            honest(members, now_ms, token, end_offset, **facts)

    patch.setattr(Membership, "wait", wait)


def closed_connections_are_kept(patch: pytest.MonkeyPatch) -> None:
    """#8875: who has gone stays in the list."""
    honest = HaCore._from_slave

    def from_slave(core: HaCore, now_ms: int, event: Any) -> None:
        if not isinstance(event, SlaveClosed):
            honest(core, now_ms, event)

    patch.setattr(HaCore, "_from_slave", from_slave)


def cut_bytes_are_records(patch: pytest.MonkeyPatch) -> None:
    """#10666: a record is read wherever it lies; what was cut off comes back."""
    honest = record._check_parts

    def anywhere(buffer: Any, position: int, size: int, _: int, *others: Any) -> Any:
        physical = record._FIXED.unpack_from(buffer, position)[6]
        return honest(buffer, position, size, physical, *others)

    patch.setattr(record, "_check_parts", anywhere)


def acknowledgements_are_believed(patch: pytest.MonkeyPatch) -> None:
    """#3015, #1155: a slave may acknowledge what the log has not."""

    def acked(session: MasterSession, now_ms: int, offset: int) -> bool:
        session.ack_offset = offset
        return True

    patch.setattr(MasterSession, "acked", acked)


def a_batch_waits_for_its_acknowledgement(patch: pytest.MonkeyPatch) -> None:
    """#3664: one batch is on its way at a time."""
    honest = MasterSession.pump

    def pump(session: MasterSession, now_ms: int) -> None:
        if session.next_offset is None or (session.ack_offset or 0) >= session.next_offset:
            honest(session, now_ms)

    patch.setattr(MasterSession, "pump", pump)


def unknown_states_are_passed_over(patch: pytest.MonkeyPatch) -> None:
    """#6306: a state that nobody sends is logged, and the stream read on."""
    needs = {**frames._NEEDS}

    class Lenient(dict[int, int]):
        def get(self, state: int, default: Any = None) -> Any:  # type: ignore[override]
            return needs.get(state, frames._ACK.size)

    patch.setattr(frames, "_NEEDS", Lenient())


def the_last_registration_wins(patch: pytest.MonkeyPatch) -> None:
    """#6316: a master that was replaced takes the route back."""
    patch.setattr(register, "_is_stale", lambda *facts: False)


MUTANTS = (
    Mutant(42, any_controller_is_enough, "broker/test_write_lease.py",
           "test_lease_when_some_are_silent_then_a_majority_and_the_leader_keep_it",
           "lease.is_held is held", given={"silent": ("c1:1", "c2:1"), "held": False}),
    Mutant(43, confirm_follows_the_connected, ISSUES,
           "test_6662_a_partitioned_master_with_one_slave_does_not_advance_its_confirm_offset",
           "puts(cluster, 1, 5)"),
    Mutant(44, confirm_counts_who_joins, ISSUES,
           "test_6728_a_joining_slave_neither_stalls_nor_moves_the_confirm_offset",
           "puts(cluster, 1, 5)"),
    Mutant(45, a_reelected_master_forgets_its_epoch, ISSUES,
           "test_9689_the_same_master_is_elected_again_under_load",
           "together(cluster, 1)"),
    Mutant(46, empty_epochs_are_cut_with_the_log, ISSUES,
           "test_6505_two_masters_of_equal_start_do_not_share_an_epoch", "together(cluster, 2)"),
    Mutant(47, logs_that_begin_together_are_one, ISSUES,
           "test_6505_two_masters_of_equal_start_do_not_share_an_epoch", "together(cluster, 2)"),
    Mutant(48, a_reelected_master_begins_anew, ISSUES,
           "test_6344_master_to_master_keeps_connections_and_queue_offsets",
           "cluster[1].log.rebuilt == rebuilt == 1"),
    Mutant(49, the_own_set_is_kept, ISSUES,
           "test_6342_a_new_master_adopts_the_controllers_set_then_shrinks_it",
           "cluster[1].core.members.sync_state_set.ids == {1, 2, 3}"),
    Mutant(50, who_left_is_put_back, ISSUES,
           "test_9897_two_slaves_that_leave_together_leave_together",
           "cluster.sync_state_set == {1}"),
    Mutant(51, the_check_ends_when_somebody_misses, ISSUES,
           "test_7219_a_master_missing_from_the_table_neither_flaps_nor_stops_the_check",
           "cluster.sync_state_set == {1, 2}"),
    Mutant(52, the_dead_are_waited_for, ISSUES,
           "test_5651_a_dead_slave_is_not_waited_for_once_the_set_has_shrunk",
           "set(statuses(cluster, 1, tokens)) == {PutStatus.PUT_OK}"),
    Mutant(53, consumers_always_wait, ISSUES,
           "test_7656_without_all_ack_consumers_do_not_wait_for_slaves",
           "seen(cluster, 1) == 10"),
    Mutant(54, one_acknowledgement_more_is_needed, ISSUES,
           "test_9642_each_count_of_acknowledgements_is_reached_exactly",
           "(replicas >= needed)", given={"needed": 2}),
    Mutant(55, roles_are_not_asked_for, ISSUES,
           "test_6508_a_replica_without_a_role_takes_no_puts",
           "assert before is PutStatus.SERVICE_NOT_AVAILABLE"),
    Mutant(56, five_wake_ups_are_all, ISSUES,
           "test_1535_a_record_of_four_mebibytes_is_acknowledged",
           "cluster[1].done[token] is PutStatus.PUT_OK"),
    Mutant(57, closed_connections_are_kept, ISSUES,
           "test_8875_ten_thousand_reconnects_leave_one_session",
           "len(cluster[1].core.sessions) == 1"),
    Mutant(58, cut_bytes_are_records, "store/test_record.py",
           "test_records_of_another_place_are_no_records", "check_crc=True).size == -1"),
    Mutant(59, acknowledgements_are_believed, "ha/test_sessions.py",
           "test_g10_an_impossible_acknowledgement_ends_the_connection",
           "closed(joined(core, 1, 2, offset)) == [1]", given={"offset": 4_001}),
    Mutant(60, a_batch_waits_for_its_acknowledgement, "ha/test_sessions.py",
           "test_3664_batches_follow_each_other_without_acknowledgements",
           "list(range(0, 1_100, 100))"),
    Mutant(61, unknown_states_are_passed_over, "ha/test_frames.py",
           "test_6306_an_unknown_state_ends_the_connection",
           "parser.feed(good + junk) == [HandshakeRequest(7)]", given={"state": 5}),
    Mutant(62, the_last_registration_wins, "namesrv/test_register.py",
           "test_two_masters_when_both_register_then_the_larger_epoch_wins",
           '{"0": SLAVE if wins else MASTER} == node.addresses()',
           given={"epoch": 1, "wins": False}),
)  # fmt: skip
