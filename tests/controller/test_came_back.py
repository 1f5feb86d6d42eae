"""Replicas that come back with less than they had confirmed: emptied, or after a power cut."""

from __future__ import annotations

import pytest

from rmqha.controller.machine import Committed, LeadershipChanged, MachineSettings, Reply
from rmqha.controller.metadata.why_elected import CAME_BACK
from tests.controller.metadata.driving import CLUSTER, NAME, Driver

CONFIRMED = 700
Offsets = dict[str, int]


def offsets(end: int, confirmed: int | None = None) -> Offsets:
    """What a heartbeat says of the log."""
    return {"epoch": 1, "maxOffset": end, "confirmOffset": end if confirmed is None else confirmed}


@pytest.fixture
def driver() -> Driver:
    """A master and a slave, which both have confirmed something, and are gone."""
    found = Driver(MachineSettings(elections_per_set=8, elections_in_all=100))
    found.pair()
    for broker_id in (1, 2):
        found.beat(broker_id, **offsets(CONFIRMED + 50, CONFIRMED))
    return found


def all_gone(driver: Driver) -> None:
    """Nobody is left, and no master."""
    for connection in (1, 2):
        driver.close(connection)
    driver.pass_time(200)
    assert driver.master()[0] is None


def listening_anew(before: Driver) -> Driver:
    """A controller that has the same log, and has heard nobody yet."""
    driver = Driver(now_ms=before.now_ms)
    for record in before.log:
        driver.log.append(record)
        driver.step(Committed(len(driver.log), record))
    return driver


def why_not(driver: Driver, broker_id: int) -> str:
    """The last verdict on a replica, as the election's history has it."""
    last = driver.machine.state.sets[NAME].elections[-1]
    return next(one.verdict for one in last.why.candidates if one.broker_id == broker_id)


@pytest.mark.parametrize("end", [0, CONFIRMED - 1])
def test_replica_when_it_comes_back_with_less_than_it_had_confirmed_then_it_waits_for_the_others(
    driver: Driver, end: int
) -> None:
    """An emptied member of the SyncStateSet that started first was elected, and what was acknowledged
    was served by nobody any more."""
    all_gone(driver)
    for _ in range(60):
        driver.beat(2, connection=12, **offsets(end, 0))
        driver.pass_time(1_000)
    refused = driver.elect(2, connection=12)
    assert (refused.code, CAME_BACK in (refused.remark or "")) == (2012, True)
    assert driver.master()[0] is None
    driver.beat(1, connection=11, **offsets(CONFIRMED + 50, CONFIRMED))
    assert driver.master()[0] == 1


def test_replica_when_it_comes_back_with_what_it_had_confirmed_then_it_is_elected_at_once(
    driver: Driver,
) -> None:
    """What only it had of the rest was acknowledged to nobody; a kill or a power cut may take it."""
    all_gone(driver)
    driver.beat(2, connection=12, **offsets(CONFIRMED))
    assert driver.master()[0] == 2


def test_replicas_when_all_have_come_back_with_less_then_the_best_of_them_is_elected(
    driver: Driver,
) -> None:
    """A power cut of all of them: nobody has more."""
    all_gone(driver)
    driver.beat(1, connection=11, **offsets(300))
    driver.pass_time(1_000)
    assert driver.master()[0] is None
    driver.beat(2, connection=12, **offsets(400))
    assert driver.master()[0] == 2


def test_slave_when_its_master_dies_before_it_has_caught_up_then_it_is_not_elected(
    driver: Driver,
) -> None:
    """It lost its last half second with the power, and the master had not yet sent that again."""
    driver.close(2)
    driver.beat(2, connection=12, **offsets(CONFIRMED - 100))
    driver.close(1)
    driver.pass_time(30_000)
    driver.beat(2, connection=12, **offsets(CONFIRMED - 100))
    assert driver.master()[0] is None


def test_slave_when_it_has_caught_up_then_it_is_as_good_as_before(driver: Driver) -> None:
    driver.close(2)
    driver.beat(2, connection=12, **offsets(CONFIRMED - 100))
    driver.beat(2, connection=12, **offsets(CONFIRMED))
    driver.close(1)
    driver.pass_time(200)
    assert driver.master()[0] == 2


def test_slave_when_its_master_takes_it_in_anew_then_what_it_lacked_is_forgotten(
    driver: Driver,
) -> None:
    """After an unclean election its log was cut below what it had confirmed."""
    driver.close(2)
    assert driver.alter(1, 1, [1], 2).code == 0
    driver.beat(2, connection=12, **offsets(100))
    assert driver.alter(1, 1, [1, 2], 3).code == 0
    driver.close(1)
    driver.pass_time(200)
    assert driver.master()[0] == 2


def test_replica_when_an_operator_names_it_then_it_is_elected_all_the_same(driver: Driver) -> None:
    """The others will not come back."""
    all_gone(driver)
    driver.beat(2, connection=12, **offsets(0))
    assert driver.elect(2, designate=True).code == 0
    assert driver.master()[0] == 2


def test_replica_when_another_broker_names_it_then_it_is_not_elected(driver: Driver) -> None:
    """A master that lost power names its heirs one after another, and knows nothing of them."""
    all_gone(driver)
    driver.beat(2, connection=12, **offsets(0))
    fields = {"brokerName": NAME, "brokerId": 2, "designateElect": "true", "completeOnly": "true"}
    assert driver.ask(1002, 11, **fields).code == 2012
    assert driver.master()[0] is None


def name_heir(driver: Driver, broker_id: int, **more: str) -> Reply:
    """What a master asks that lost power."""
    fields = {"brokerName": NAME, "brokerId": broker_id, "designateElect": "true"}
    return driver.ask(1002, 1, **fields, completeOnly="true", **more)


def test_master_when_its_heirs_came_back_with_less_then_it_is_told_that_it_is_the_best(
    driver: Driver,
) -> None:
    """It lost power, and its only heir was emptied: each waited for the other, for ever."""
    driver.close(2)
    driver.beat(2, connection=12, **offsets(0))
    refused = name_heir(driver, 2)
    assert (refused.code, refused.ext_fields) == (2012, {"masterIsBest": "true"})
    assert name_heir(driver, 1, anew="true").code == 2004
    assert driver.master() == (None, 2)
    assert driver.elect(1).code == 0
    assert driver.master() == (1, 3)
    assert name_heir(driver, 1, anew="true").code == 2011, "it is alone now, and reigns"


def test_master_when_it_asks_to_be_elected_anew_and_an_heir_is_whole_then_it_is_not(
    driver: Driver,
) -> None:
    """The heir may have what the power took from the master."""
    assert name_heir(driver, 1, anew="true").code == 2011
    assert driver.master() == (1, 1)


def test_slave_when_it_asks_to_be_elected_anew_then_it_is_not(driver: Driver) -> None:
    driver.close(2)
    driver.beat(2, connection=12, **offsets(0))
    assert name_heir(driver, 2, anew="true").code == 2012
    assert driver.master() == (1, 1)


def test_emptied_replica_when_old_entries_are_read_again_then_they_do_not_vouch_for_it(
    driver: Driver,
) -> None:
    """A restarted controller heard it first, and then applied how a master had once taken it in."""
    anew = Driver(now_ms=driver.now_ms)
    anew.step(LeadershipChanged(False, 1))
    anew.beat(2, connection=12, **offsets(0))
    for record in driver.log:
        anew.log.append(record)
        anew.step(Committed(len(anew.log), record))
    anew.step(LeadershipChanged(True, 2))
    refused = anew.elect(2, connection=12)
    assert (refused.code, CAME_BACK in (refused.remark or "")) == (2012, True)


def register(driver: Driver, broker_id: int) -> None:
    """A broker is back, over another connection, and has not beaten yet."""
    fields = {"clusterName": CLUSTER, "brokerName": NAME, "brokerId": broker_id}
    answer = driver.ask(1003, 10 + broker_id, **fields, brokerAddress=f"h:{broker_id}")
    assert answer.code == 0


def test_master_when_both_lost_the_end_of_their_logs_then_its_reign_ends_and_the_best_is_elected(
    driver: Driver,
) -> None:
    """The machine of both was back before anybody missed them. Each waited for the other, for ever."""
    driver.close(1)
    register(driver, 1)
    driver.close(2)
    driver.beat(2, connection=12, **offsets(CONFIRMED - 100))
    assert name_heir(driver, 2).ext_fields == {"masterIsBest": "true"}
    assert name_heir(driver, 1, anew="true").code == 2004
    driver.beat(1, connection=11, **offsets(CONFIRMED - 200))
    assert driver.master() == (2, 3)


def test_heir_when_its_master_had_said_that_nothing_was_written_then_that_is_not_believed_any_more() -> (
    None
):
    """It restarted since, and has not said what it has now."""
    driver = Driver()
    driver.pair()
    for broker_id in (1, 2):
        driver.beat(broker_id, **offsets(0))
    driver.close(1)
    register(driver, 1)
    driver.close(2)
    driver.beat(2, connection=12, **offsets(0))
    assert name_heir(driver, 2).code == 2012


def test_members_when_one_has_not_said_what_it_has_then_the_others_are_not_the_best(
    driver: Driver,
) -> None:
    """All are there, and the one that is known came back with less."""
    all_gone(driver)
    driver.beat(1, connection=11, **offsets(300))
    register(driver, 2)
    assert driver.elect(1, connection=11).code == 2012
    driver.beat(2, connection=12, **offsets(400))
    assert driver.master()[0] == 2


def test_master_when_it_came_back_with_less_and_says_so_then_a_whole_slave_that_asks_is_elected(
    driver: Driver,
) -> None:
    """Java's masters resume their epochs after a loss of power."""
    driver.close(1)
    driver.beat(1, connection=11, **offsets(CONFIRMED - 100))
    assert driver.elect(2).code == 0
    assert driver.master() == (2, 2)


def test_master_when_its_heir_came_back_with_less_and_is_gone_again_then_it_is_not_the_best(
    driver: Driver,
) -> None:
    driver.close(2)
    driver.beat(2, connection=12, **offsets(0))
    driver.close(12)
    driver.pass_time(200)
    assert name_heir(driver, 2).ext_fields == {}


@pytest.mark.parametrize("asker", [1, 2])
def test_master_when_it_has_only_not_beaten_over_a_new_connection_then_it_is_kept(
    driver: Driver, asker: int
) -> None:
    """Controllers were restarted one after another: each such window took a healthy master's epoch."""
    driver.close(1)
    register(driver, 1)
    assert driver.elect(asker, connection=10 + asker).code == 2011
    assert driver.master() == (1, 1)
    anew = listening_anew(driver)
    register(anew, 1)
    anew.beat(2, connection=12, **offsets(CONFIRMED))
    assert anew.elect(asker, connection=10 + asker).code == 2011
    assert anew.master() == (1, 1)


def test_master_when_its_heir_has_not_said_what_it_has_then_it_does_not_end_its_reign(
    driver: Driver,
) -> None:
    """The heir is whole, and says so a moment later: what the power took from the master was lost."""
    anew = listening_anew(driver)
    for broker_id in (1, 2):
        register(anew, broker_id)
    assert name_heir(anew, 2).ext_fields == {}
    assert name_heir(anew, 1, anew="true").code == 2011
    anew.beat(2, connection=12, **offsets(CONFIRMED))
    assert name_heir(anew, 2).code == 0
    assert anew.master() == (2, 2)


@pytest.mark.parametrize("says", [None, {}, offsets(CONFIRMED)])
def test_heir_when_it_came_with_nothing_and_its_master_is_there_then_it_is_not_elected(
    driver: Driver, says: Offsets | None
) -> None:
    """A master that lost power names its heir, and may not say what it has itself: the heir was emptied,
    and was elected by controllers that began to listen only now."""
    anew = listening_anew(driver)
    anew.beat(2, connection=12, **offsets(0))
    if says is None:
        register(anew, 1)
    else:
        anew.beat(1, **says)
    refused = name_heir(anew, 2)
    assert (refused.code, refused.ext_fields) == (2012, {"masterIsBest": "true"})
    assert name_heir(anew, 1, anew="true").code == 2004
    anew.beat(1, **offsets(CONFIRMED))
    assert anew.master()[0] == 1


def test_master_when_another_heir_is_missing_then_it_is_not_the_best(driver: Driver) -> None:
    """What that one holds may be acknowledged."""
    driver.register(3)
    driver.beat(3, **offsets(CONFIRMED))
    assert driver.alter(1, 1, [1, 2, 3], 2).code == 0
    driver.close(2)
    driver.beat(2, connection=12, **offsets(0))
    assert name_heir(driver, 2).ext_fields == {}  # 3 is there, and an heir
    driver.close(3)
    assert name_heir(driver, 2).ext_fields == {}


def test_replica_when_unclean_elections_are_allowed_then_it_is_elected_by_its_log() -> None:
    """As every other one that lacks something."""
    driver = Driver(MachineSettings(enable_elect_unclean_master=True))
    driver.pair()
    driver.beat(2, **offsets(CONFIRMED))
    all_gone(driver)
    driver.beat(2, connection=12, **offsets(10))
    assert driver.master()[0] == 2


def test_election_when_one_came_back_with_less_then_its_history_says_so(driver: Driver) -> None:
    driver.close(2)
    driver.beat(2, connection=12, **offsets(0))
    driver.close(1)
    driver.pass_time(200)
    assert driver.master() == (None, 2)
    assert why_not(driver, 2) == CAME_BACK


def test_replica_when_its_log_is_empty_then_it_waits_whatever_this_controller_has_heard(
    driver: Driver,
) -> None:
    """One that has started anew does not know what the set had."""
    all_gone(driver)
    anew = listening_anew(driver)
    anew.beat(2, connection=12, **offsets(0))
    anew.pass_time(30_000)
    anew.beat(2, connection=12, **offsets(0))
    assert anew.master()[0] is None
    anew.beat(1, connection=11, **offsets(CONFIRMED))
    assert anew.master()[0] == 1


def test_replica_when_nothing_was_ever_written_then_it_is_elected_at_once() -> None:
    """Whoever tries a failover on a new cluster sees one."""
    driver = Driver()
    driver.pair()
    for broker_id in (1, 2):
        driver.beat(broker_id, **offsets(0))
    driver.close(1)
    driver.pass_time(200)
    assert driver.master()[0] == 2


@pytest.mark.parametrize("anew", [False, True])
def test_replica_when_it_has_not_said_what_it_has_then_nobody_takes_it_for_what_it_was(
    driver: Driver, *, anew: bool
) -> None:
    """It registers, and its heartbeat is late: what the controller knows is of the process before."""
    all_gone(driver)
    if anew:
        driver = listening_anew(driver)
    fields = {"clusterName": CLUSTER, "brokerName": NAME, "brokerId": 2, "brokerAddress": "h:2"}
    assert driver.ask(1003, 12, **fields).code == 0
    driver.pass_time(6_000)
    assert driver.elect(2, connection=12).code == 2012
    driver.beat(2, connection=12, **offsets(0))
    driver.pass_time(1_000)
    assert driver.master()[0] is None
    driver.beat(2, connection=12, **offsets(CONFIRMED))
    assert driver.master()[0] == 2


def test_slave_when_its_last_heartbeat_was_before_the_first_message_then_it_is_elected_at_once() -> (
    None
):
    """Heartbeats come once a second, and a message was acknowledged since: README's tour."""
    driver = Driver()
    driver.pair()
    driver.beat(1, **offsets(CONFIRMED))
    driver.close(1)
    driver.pass_time(200)
    assert driver.master()[0] == 2


def test_slave_when_another_one_is_taken_in_then_it_lacks_what_it_lacked(driver: Driver) -> None:
    """Who was in the set before is vouched for by nobody."""
    driver.register(3)
    driver.beat(3, **offsets(0))
    driver.close(2)
    driver.beat(2, connection=12, **offsets(CONFIRMED - 100))
    assert driver.alter(1, 1, [1, 2, 3], 2).code == 0
    driver.close(3)
    driver.close(1)
    driver.pass_time(200)
    assert driver.master()[0] is None


def test_slave_when_its_heartbeats_connection_ends_then_it_has_said_nothing_over_the_next(
    driver: Driver,
) -> None:
    """Another process may have begun while the former one's connection was still open."""
    fields = {"clusterName": CLUSTER, "brokerName": NAME, "brokerId": 2, "brokerAddress": "h:2"}
    assert driver.ask(1003, 12, **fields).code == 0
    driver.close(2)
    driver.close(1)
    driver.pass_time(1_000)
    assert driver.master()[0] is None
    driver.beat(2, connection=12, **offsets(CONFIRMED))
    assert driver.master()[0] == 2
