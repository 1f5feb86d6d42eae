"""Java's bugs in who counts as alive."""

from __future__ import annotations

from typing import Any

import pytest

from rmqha.base.ids import BrokerId
from rmqha.controller import scan
from rmqha.controller.liveness import LiveBroker, Liveness
from rmqha.controller.machine import ControllerMachine
from rmqha.controller.metadata import decide_elect
from rmqha.remoting.heartbeat import Heartbeat
from tests.javabugs.mutant import Mutant

SCAN_MS = 5_000


def entries_keep_their_first_connection(patch: pytest.MonkeyPatch) -> None:
    """#11045: a heartbeat on a newer connection leaves the entry bound to the older one."""
    honest = Liveness._bind

    def pinned(self: Liveness, broker: LiveBroker, connection: int) -> None:
        if broker.connection is None:
            honest(self, broker, connection)

    patch.setattr(Liveness, "_bind", pinned)


def a_close_takes_one_broker(patch: pytest.MonkeyPatch) -> None:
    """The end of a connection counts for the first of the brokers that share it."""
    honest = Liveness.connection_closed

    def first_only(self: Liveness, now_ms: int, connection: int) -> None:
        bound = self._by_connection.get(connection, {})
        for identity in list(bound)[1:]:
            del bound[identity]
        honest(self, now_ms, connection)

    patch.setattr(Liveness, "connection_closed", first_only)


def a_close_is_death(patch: pytest.MonkeyPatch) -> None:
    """Nobody waits whether a broker connects again."""
    honest = Liveness._lose_connection

    def at_once(self: Liveness, now_ms: int, broker: LiveBroker) -> None:
        self.close_grace_ms = 0
        honest(self, now_ms, broker)

    patch.setattr(Liveness, "_lose_connection", at_once)


def a_cold_leader_trusts_its_empty_table(patch: pytest.MonkeyPatch) -> None:
    """#9682: a master that was never heard by this leader counts as dead."""
    honest = scan.wants_election

    def cold(*facts: Any, **more: Any) -> bool:
        return honest(*facts, **{**more, "cold_until_ms": 0})

    patch.setattr(scan, "wants_election", cold)


def an_asker_needs_a_heartbeat(patch: pytest.MonkeyPatch) -> None:
    """Who asks for an election is dead until its heartbeat has come, too."""
    honest = decide_elect._alive

    def strict(broker_set: Any, context: Any, asker: Any, broker_id: Any) -> bool:
        return honest(broker_set, context, None, broker_id)

    patch.setattr(decide_elect, "_alive", strict)
    patch.setattr(ControllerMachine, "_hear_sender", lambda *facts: None)


def only_heartbeats_count(patch: pytest.MonkeyPatch) -> None:
    """#10812: a broker that asks for its master every second may be dead."""
    patch.setattr(Liveness, "heard_on", lambda *facts: None)


def silence_waits_for_a_scan(patch: pytest.MonkeyPatch) -> None:
    """Who has fallen silent is dead at the next scan, every 5 s."""
    honest = Liveness.expire

    def now_and_then(self: Liveness, now_ms: int, *bounds: int) -> Any:
        return honest(self, now_ms // SCAN_MS * SCAN_MS, *bounds)

    due = Liveness.next_deadline_ms

    def next_scan(self: Liveness) -> int | None:
        due_ms = due(self)
        return None if due_ms is None else -(-due_ms // SCAN_MS) * SCAN_MS

    patch.setattr(Liveness, "expire", now_and_then)
    patch.setattr(Liveness, "next_deadline_ms", next_scan)


def the_scan_never_runs(patch: pytest.MonkeyPatch) -> None:
    """#10416, #9717: nobody looks for silent brokers."""
    patch.setattr(Liveness, "expire", lambda *facts: [])
    patch.setattr(Liveness, "next_deadline_ms", lambda self: None)
    patch.setattr(scan, "wants_election", lambda *facts, **more: False)


def followers_hear_nobody(patch: pytest.MonkeyPatch) -> None:
    """#5712: a node that does not lead takes no notice of a connection that closes."""
    honest = ControllerMachine._connection_closed

    def deaf(self: ControllerMachine, now_ms: int, connection: int) -> Any:
        return honest(self, now_ms, connection) if self.is_leader else []

    patch.setattr(ControllerMachine, "_connection_closed", deaf)


def first_confirm_offsets_are_dropped(patch: pytest.MonkeyPatch) -> None:
    """What a broker's first heartbeat says of its confirmOffset is not kept."""
    honest = Liveness.heartbeat

    def dropped(self: Liveness, now_ms: int, connection: int, beat: Heartbeat) -> Any:
        known = self.info(beat.cluster_name, beat.broker_name, BrokerId(beat.broker_id))
        broker = honest(self, now_ms, connection, beat)
        if broker is not None and known is None:
            broker.confirm_offset = -1
        return broker

    patch.setattr(Liveness, "heartbeat", dropped)


TABLE, MACHINE, HERE = (
    "controller/test_liveness.py", "controller/test_machine.py", "controller/test_java_bugs.py",
)  # fmt: skip

MUTANTS = (
    Mutant(1, entries_keep_their_first_connection, TABLE,
           "test_close_when_it_is_a_stale_connection_s_then_ignored", "alive(live, 5_000)"),
    Mutant(2, a_close_takes_one_broker, TABLE,
           "test_close_when_a_connection_is_shared_then_all_its_brokers_get_the_grace",
           "live.expire(110)"),
    Mutant(3, a_close_is_death, HERE,
           "test_close_when_the_broker_is_back_at_once_then_it_stays_master",
           "driver.master() == (1, 1)"),
    Mutant(5, a_cold_leader_trusts_its_empty_table, MACHINE,
           "test_leadership_when_the_master_was_never_heard_then_spared_for_the_cold_start",
           "restarted.master() == (1, 1)"),
    Mutant(6, an_asker_needs_a_heartbeat, "controller/metadata/test_requests.py",
           "test_elect_when_the_heartbeat_comes_late_then_the_asker_counts_as_alive",
           "driver.elect(2, connection=12).code == 0"),
    Mutant(17, only_heartbeats_count, TABLE,
           "test_heard_on_when_a_set_asks_then_only_its_brokers_of_that_connection_live_longer",
           "live.expire(11_000)"),
    Mutant(25, silence_waits_for_a_scan, MACHINE,
           "test_failover_when_the_master_hangs_then_elected_after_its_timeout",
           "driver.master() == (2, 2)"),
    Mutant(41, the_scan_never_runs, MACHINE,
           "test_failover_when_the_master_hangs_then_elected_after_its_timeout",
           "driver.master() == (2, 2)"),
    Mutant(26, followers_hear_nobody, MACHINE,
           "test_leadership_when_leader_and_master_died_together_then_one_short_outage",
           "driver.master() == (2, 2)"),
    Mutant(39, first_confirm_offsets_are_dropped, HERE,
           "test_first_heartbeat_when_it_has_a_confirm_offset_then_it_is_taken", "said == {1: 400}"),
)  # fmt: skip
