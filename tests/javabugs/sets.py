"""Java's bugs in ids, registration, cleaning, the SyncStateSet and the figures about them."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from rmqha.auth import server_rules
from rmqha.controller import machine
from rmqha.controller.metadata import apply, decide_alter, decide_clean, decide_register, elect
from rmqha.controller.metadata.decide import WRITES
from rmqha.controller.metadata.decision import Decision
from rmqha.controller.metadata.events import BrokerDataCleaned
from rmqha.ha.sync_state_set import SyncStateSet
from rmqha.remoting.codes import RequestCode, ResponseCode
from tests.javabugs.mutant import Mutant


def identity_files_are_worth_nothing(patch: pytest.MonkeyPatch) -> None:
    """#6586, #4857: who has an id from controllers that lost their data is refused for ever."""

    def refused(state: Any, context: Any, broker_set: Any, fields: Any, remark: str) -> Decision:
        return Decision(ResponseCode.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED, remark)

    patch.setattr(decide_register, "_adopted_or_refused", refused)


def ids_are_counted(patch: pytest.MonkeyPatch) -> None:
    """#7414: the next id is the number of brokers that ever came, plus one."""
    honest = apply._apply_broker_id

    def counted(state: Any, event: Any) -> Any:
        known = state.sets.get(event.broker_name)
        count = 0 if known is None else known.last_issued_id
        applied = honest(state, event)
        if applied.changed:
            state.sets[event.broker_name].last_issued_id = count + 1
        return applied

    patch.setattr(apply, "_apply_broker_id", counted)


def cleaned_ids_are_free(patch: pytest.MonkeyPatch) -> None:
    """#7704: whoever asks for a cleaned id gets it."""
    honest = apply._forget_members

    def forget(broker_set: Any, gone: Any, master_cleaned: bool) -> None:
        honest(broker_set, gone, master_cleaned)
        broker_set.retired_ids = ()

    patch.setattr(apply, "_forget_members", forget)


def cleaned_masters_stay(patch: pytest.MonkeyPatch) -> None:
    """A master that was cleaned is named as before, without an address."""
    honest = apply._forget_members

    def keep(broker_set: Any, gone: Any, master_cleaned: bool) -> None:
        honest(broker_set, gone, False)

    patch.setattr(apply, "_check", lambda broker_set: None)
    patch.setattr(apply, "_forget_members", keep)


def cleaning_the_living_takes_the_set(patch: pytest.MonkeyPatch) -> None:
    """``isCleanLivingBroker`` drops everything, whatever ids are named."""

    def everything(name: str, ids: Any) -> BrokerDataCleaned:
        return BrokerDataCleaned(name, None)

    patch.setattr(decide_clean, "BrokerDataCleaned", everything)


def cleaning_believes_the_cluster(patch: pytest.MonkeyPatch) -> None:
    """A living broker counts as dead when the request names another cluster."""
    honest = decide_clean.decide_clean_broker_data

    def trusting(state: Any, context: Any, ext_fields: Any, body: bytes) -> Any:
        cluster = ext_fields.get("clusterName", "")

        def alive(broker_set: Any, context: Any, broker_id: Any) -> bool:
            found = context.live.alive(context.now_ms, cluster, broker_set.broker_name, broker_id)
            return bool(found)

        patch.setattr(decide_clean, "_alive", alive)
        return honest(state, context, ext_fields, body)

    patch.setitem(WRITES, RequestCode.CLEAN_BROKER_DATA, trusting)


def registering_trusts_the_brokers_clock(patch: pytest.MonkeyPatch) -> None:
    """#8380: a heartbeat's age is told by ``invokeTime``; none means 0."""
    honest = decide_register._registered

    def by_its_clock(broker_set: Any, context: Any, ext_fields: Any, asker: Any) -> Any:
        now_ms = int(ext_fields.get("invokeTime", 0))
        live = context.live
        master = live.info(
            broker_set.cluster_name, broker_set.broker_name, broker_set.master_broker_id
        )
        heard_ms = 0 if master is None else master.heard_ms
        fields = honest(broker_set, context, ext_fields, broker_set.master_broker_id)
        alive = now_ms - heard_ms <= 10_000
        return fields if alive else {one: fields[one] for one in ("clusterName", "brokerName")}

    patch.setattr(decide_register, "_registered", by_its_clock)


def registering_names_dead_masters(patch: pytest.MonkeyPatch) -> None:
    """#5631: 1003 does not look whether the master lives."""
    honest = decide_register._registered

    def any_master(broker_set: Any, context: Any, ext_fields: Any, asker: Any) -> Any:
        return honest(broker_set, context, ext_fields, broker_set.master_broker_id)

    patch.setattr(decide_register, "_registered", any_master)


def registering_answers_the_old_address(patch: pytest.MonkeyPatch) -> None:
    """#4808, #5745: a master that moved is told where it was."""
    honest = decide_register.decide_register_broker

    def stale(state: Any, context: Any, ext_fields: Any, body: bytes) -> Any:
        decision = honest(state, context, ext_fields, body)
        known = state.sets.get(ext_fields["brokerName"])
        address = None if known is None else known.address(known.master_broker_id)
        if "masterAddress" not in decision.ext_fields or address is None:
            return decision
        return replace(decision, ext_fields={**decision.ext_fields, "masterAddress": address})

    patch.setitem(WRITES, RequestCode.CONTROLLER_REGISTER_BROKER, stale)


def addresses_stay_as_they_were(patch: pytest.MonkeyPatch) -> None:
    """Nobody learns where a broker has moved to."""
    patch.setattr(apply, "_update_address", lambda one, event: apply._UNTOLD)


def alter_breaks_without_a_master(patch: pytest.MonkeyPatch) -> None:
    """#7293: the comparison with a master that is none throws; the answer is its text."""
    honest = decide_alter._check_asker

    def thrown(broker_set: Any, ext_fields: Any, known_epoch: int) -> Any:
        if broker_set.master_broker_id is None:
            return Decision(ResponseCode.SYSTEM_ERROR, "java.lang.NullPointerException")
        return honest(broker_set, ext_fields, known_epoch)

    patch.setattr(decide_alter, "_check_asker", thrown)


def expansions_count_when_they_are_answered(patch: pytest.MonkeyPatch) -> None:
    """#5663: a master waits for the set that it knows, not for the one that may be in force."""
    patch.setattr(SyncStateSet, "possible", property(lambda self: (self.ids,)))


def cleaning_keeps_the_epoch(patch: pytest.MonkeyPatch) -> None:
    """#6342: the set changes, its epoch does not."""
    honest = apply._forget_members

    def keep(broker_set: Any, gone: Any, master_cleaned: bool) -> None:
        before = broker_set.sync_state_set_epoch
        honest(broker_set, gone, master_cleaned)
        broker_set.sync_state_set_epoch = before

    patch.setattr(apply, "_forget_members", keep)


def anybody_may_change_anything(patch: pytest.MonkeyPatch) -> None:
    """#5096, #10956: a controller asks nobody who they are."""
    patch.setattr(server_rules, "ASKING", range(1 << 17))


def one_active_broker_is_not_counted(patch: pytest.MonkeyPatch) -> None:
    """#8454: the figure starts one too low."""
    honest = machine.status

    def low(*facts: Any, **more: Any) -> Any:
        found = yield from honest(*facts, **more)
        for one in found["broker_sets"]:
            one["active_brokers"] -= 1
        return found

    patch.setattr(machine, "status", low)


def hung_disks_win_elections(patch: pytest.MonkeyPatch) -> None:
    """#6468: heartbeats go on while a disk stands still, and nobody asks for more."""
    patch.setattr(elect, "_usable_first", lambda one, said: (False, elect.rank(one, said)))


REQUESTS, HERE = "controller/metadata/test_requests.py", "controller/test_java_bugs.py"
CLEANED = "test_clean_when_a_living_master_is_named_then_only_it_goes_and_the_epoch_grows"

MUTANTS = (
    Mutant(7, identity_files_are_worth_nothing, REQUESTS,
           "test_register_broker_when_adoption_is_on_then_the_id_is_taken_in",
           "(adopted.code, adopted.ext_fields) == (0, ext)"),
    Mutant(9, ids_are_counted, REQUESTS,
           "test_apply_broker_id_when_refused_then_2014_and_the_names", 'nextBrokerId"] == "6"'),
    Mutant(9, cleaned_ids_are_free, REQUESTS,
           "test_apply_broker_id_when_the_id_was_cleaned_then_nobody_gets_it",
           "refused.code == 2014"),
    Mutant(10, cleaned_masters_stay, REQUESTS, CLEANED, "driver.master() == (None, 2)"),
    Mutant(10, cleaning_the_living_takes_the_set, HERE,
           "test_clean_when_one_living_id_is_named_then_the_others_stay", "== [[1]]"),
    Mutant(11, registering_trusts_the_brokers_clock, HERE,
           "test_register_when_the_broker_s_clock_is_wrong_then_ours_counts", 'told.get("masterBrokerId") == "1"'),
    Mutant(15, expansions_count_when_they_are_answered, "ha/test_issues.py",
           "test_5663_the_response_of_an_expansion_is_lost",
           "statuses(cluster, 1, [token]) == [None]"),
    Mutant(16, cleaning_keeps_the_epoch, REQUESTS, CLEANED, "sync_state_set_epoch == 3"),
    Mutant(19, anybody_may_change_anything, "auth/test_check.py",
           "test_change_when_no_super_user_asks_then_it_is_refused",
           'signed(code, BROKER, brokerName="broker-a")', given={"code": 1011}),
    Mutant(23, registering_answers_the_old_address, REQUESTS,
           "test_register_broker_when_the_master_moved_then_the_new_address",
           'moved.ext_fields["masterAddress"]'),
    Mutant(23, addresses_stay_as_they_were, HERE,
           "test_master_when_it_returns_at_another_address_then_its_slaves_hear_of_it",
           '== ["moved:1"]'),
    Mutant(27, registering_names_dead_masters, HERE,
           "test_register_when_the_master_is_dead_then_it_is_not_named", "answer.ext_fields == SET"),
    Mutant(28, alter_breaks_without_a_master, REQUESTS,
           "test_alter_when_there_is_no_master_then_2002_with_null", "answer.code == 2002"),
    Mutant(29, one_active_broker_is_not_counted, "controller/test_machine.py",
           "test_status_when_asked_then_counts_and_roles", 'one["active_brokers"] == 2'),
    Mutant(30, cleaning_believes_the_cluster, HERE,
           "test_clean_when_the_cluster_is_a_typo_then_a_living_broker_stays", "== 2009"),
    Mutant(40, hung_disks_win_elections, REQUESTS,
           "test_elect_when_the_longest_log_is_on_a_disk_that_stalls_then_another_reigns",
           "driver.master() == (3, 2)"),
)  # fmt: skip
