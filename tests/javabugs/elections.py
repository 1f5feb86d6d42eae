"""Java's bugs in elections and in telling their outcome."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from msgspec.structs import replace

from rmqha.controller import scan
from rmqha.controller.aio.notifier import Notifier
from rmqha.controller.machine import ControllerMachine
from rmqha.controller.metadata import announce, decide_elect, elect, lanes
from rmqha.controller.metadata.decision import Decision
from rmqha.controller.metadata.events import MasterElected
from rmqha.controller.scan import Scan
from rmqha.remoting.codes import ResponseCode
from tests.javabugs.mutant import Mutant


class _CastToInt:
    """An offset that is compared by the difference, cast to 32 bits; the larger comes first."""

    def __init__(self, offset: int) -> None:
        self.offset = offset

    def __lt__(self, other: _CastToInt) -> bool:
        return bool((other.offset - self.offset) & 1 << 31)


def offsets_are_compared_as_int(patch: pytest.MonkeyPatch) -> None:
    """#10578: the difference of two offsets is cast to an int."""
    honest = elect.rank

    def cast(broker_id: Any, said: Any) -> Any:
        epoch, offset, *others = honest(broker_id, said)
        return epoch, _CastToInt(-offset), *others

    patch.setattr(elect, "rank", cast)


def epochs_start_anew(patch: pytest.MonkeyPatch) -> None:
    """#6586: an election looks at the controller's own epochs only."""
    patch.setattr(decide_elect, "_highest_heartbeat_epoch", lambda *facts: -1)


def _blindly(state: Any, context: Any, request: Any, honest: Any) -> Any:
    broker_set = state.sets.get(request.broker_name)
    if broker_set is None or broker_set.master_epoch or request.asker is None:
        return honest(state, context, request)
    event = MasterElected(
        broker_set.broker_name, request.asker, 1, request.trigger, request.reason, False
    )
    return Decision(ResponseCode.SUCCESS, event=event)


def the_first_asker_is_elected_blindly(patch: pytest.MonkeyPatch) -> None:
    """#10013: a first election does not look whether the asker is registered, or alive."""
    patch.setattr(decide_elect, "elect_master", partial(_blindly, honest=decide_elect.elect_master))


def minus_one_is_a_broker(patch: pytest.MonkeyPatch) -> None:
    """``electMaster -b -1`` asks for a broker that nobody can be."""
    patch.setattr(decide_elect, "broker_id_field", lambda fields, name: int(fields[name]))


def dead_slaves_ask_for_elections(patch: pytest.MonkeyPatch) -> None:
    """#8380, #10875: the scan looks for dead slaves instead of dead masters."""

    def inverted(now_ms: int, broker_set: Any, live: Any, **rest: Any) -> bool:
        cluster, name = broker_set.cluster_name, broker_set.broker_name
        return any(
            not live.alive(now_ms, cluster, name, one)
            for one in broker_set.replicas
            if one != broker_set.master_broker_id
        )

    patch.setattr(scan, "wants_election", inverted)


def each_attempt_loses_the_master_again(patch: pytest.MonkeyPatch) -> None:
    """A set that has no master loses it with each try, an epoch at a time."""
    honest = decide_elect._lost

    def again(broker_set: Any, request: Any) -> Any:
        before, broker_set.master_broker_id = broker_set.master_broker_id, -1
        decision = honest(broker_set, request)
        broker_set.master_broker_id = before
        return decision

    patch.setattr(decide_elect, "_lost", again)
    patch.setattr(
        scan, "wants_election", lambda now_ms, one, live, **rest: not one.master_broker_id
    )


def a_kept_master_is_a_failure(patch: pytest.MonkeyPatch) -> None:
    """2011 makes the controller try its own election three times."""
    honest = ControllerMachine._decide

    def stubborn(self: ControllerMachine, now_ms: int, work: Any) -> Any:
        decision = honest(self, now_ms, work)
        for _ in range(2):
            if work.request is None and decision.code == ResponseCode.CONTROLLER_MASTER_STILL_EXIST:
                self._elections.count(self.state, work, decision.code)
                decision = honest(self, now_ms, work)
        return decision

    patch.setattr(ControllerMachine, "_decide", stubborn)


def unclean_elections_are_silent(patch: pytest.MonkeyPatch) -> None:
    """#4771: who may have lost messages is master like any other."""
    honest = decide_elect._elected

    def silent(broker_set: Any, context: Any, request: Any, elected: Any, unclean: bool) -> Any:
        return honest(broker_set, context, request, elected, False)

    patch.setattr(decide_elect, "_elected", silent)


def elections_without_a_change_spend_an_epoch(patch: pytest.MonkeyPatch) -> None:
    """#6505, #9689: the same master again, in an epoch of its own."""
    honest = decide_elect._kept

    def anew(broker_set: Any) -> Any:
        event = MasterElected(
            broker_set.broker_name, broker_set.master_broker_id, broker_set.master_epoch + 1,
            "broker", "asked", False,
        )  # fmt: skip
        return replace(honest(broker_set), code=ResponseCode.SUCCESS, event=event)

    patch.setattr(decide_elect, "_kept", anew)


def brokers_are_told_one_after_another(patch: pytest.MonkeyPatch) -> None:
    """#6346: the next broker is told when the one before has taken it."""
    honest = Notifier.notify

    def in_turn(self: Notifier, address: str, ext_fields: Any, body: bytes) -> None:
        if not self._newest:
            honest(self, address, ext_fields, body)

    patch.setattr(Notifier, "notify", in_turn)


def deaths_are_told_once(patch: pytest.MonkeyPatch) -> None:
    """#5009, #6382: an election that could not be committed is not tried again."""
    honest = Scan.part

    def blind(self: Scan, *facts: Any) -> list[str]:
        honest(self, *facts)
        return []

    patch.setattr(Scan, "part", blind)


def all_sets_share_a_thread(patch: pytest.MonkeyPatch) -> None:
    """#7163: a set's request waits for the commit of another set's."""
    patch.setattr(lanes.Lanes, "busy", lambda self, name: bool(self._in_flight))


def notifications_have_no_body(patch: pytest.MonkeyPatch) -> None:
    """1008 comes without the SyncStateSet, on which a broker's thread ends."""
    honest = announce._notify

    def bare(*facts: Any) -> Any:
        return replace(honest(*facts), body=b"")

    patch.setattr(announce, "_notify", bare)


REQUESTS, MACHINE, HERE = (
    "controller/metadata/test_requests.py", "controller/test_machine.py",
    "controller/test_java_bugs.py",
)  # fmt: skip

MUTANTS = (
    Mutant(4, offsets_are_compared_as_int, REQUESTS,
           "test_elect_when_offsets_are_2_31_apart_then_the_longer_log_wins",
           "driver.master() == (3, 2)"),
    Mutant(7, epochs_start_anew, HERE,
           "test_epoch_when_the_controllers_lost_their_data_then_above_what_brokers_know",
           "driver.master() == (1, 8)"),
    Mutant(8, the_first_asker_is_elected_blindly, REQUESTS,
           "test_elect_when_first_and_nobody_fits_then_refused_without_an_epoch",
           "driver.elect(broker_id, designate=True).code == code",
           given={"broker_id": 7, "code": 2010}),
    Mutant(8, minus_one_is_a_broker, REQUESTS,
           "test_elect_when_mqadmin_gives_minus_one_then_a_healthy_master_stays",
           "driver.elect(-1, designate=True).code == 2011"),
    Mutant(11, dead_slaves_ask_for_elections, HERE,
           "test_slave_when_it_is_dead_then_no_election_is_tried", "elections(driver) =="),
    Mutant(12, each_attempt_loses_the_master_again, HERE,
           "test_master_when_nobody_can_follow_then_one_epoch_is_spent",
           "driver.master() == (None, 2)"),
    Mutant(13, a_kept_master_is_a_failure, HERE,
           "test_own_election_when_a_master_is_there_by_then_it_is_tried_once",
           "elections(driver) =="),
    Mutant(14, unclean_elections_are_silent, MACHINE,
           "test_failover_when_unclean_is_on_then_an_outsider_is_elected_loudly",
           'driver.notes[-1].event == "master_elected_unclean"'),
    Mutant(18, elections_without_a_change_spend_an_epoch, REQUESTS,
           "test_elect_when_the_master_lives_then_2011_and_no_new_epoch", "answer.code == 2011"),
    Mutant(20, brokers_are_told_one_after_another, HERE,
           "test_notifier_when_a_broker_hangs_then_the_others_are_told",
           'far.told == ["h:2", "h:3"]'),
    Mutant(21, deaths_are_told_once, MACHINE,
           "test_dropped_when_a_proposal_cannot_commit_then_2007_and_the_next_runs",
           "driver.master() == (2, 2)"),
    Mutant(22, all_sets_share_a_thread, MACHINE,
           "test_queue_when_one_is_in_flight_then_the_others_decide_on_its_outcome",
           "len(driver.held) == 2"),
    Mutant(24, notifications_have_no_body, MACHINE,
           "test_notify_when_an_operator_chose_then_the_old_master_hears_at_once",
           "driver.notified[0].body =="),
)  # fmt: skip
