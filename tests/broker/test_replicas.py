"""The ReplicasManager's decisions, one at a time."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from rmqha.base.machine import Note
from rmqha.broker.membership import events as ev
from rmqha.broker.membership.controller_requests import heartbeat_fields
from rmqha.ha.events import Role
from rmqha.remoting.bodies import SyncStateSet
from rmqha.store.identity import Identity
from tests.broker.driver import ADDRESS, CLUSTER, LEADER, NAME, OTHER, SETTINGS, Driver, mastership

SET_1 = SyncStateSet((1,), 1).encode()


def test_register_when_no_master_is_known_then_it_heartbeats_and_asks_for_an_election() -> None:
    """The first broker of a set; the election looks at who is alive, so the heartbeat goes first."""
    driver = Driver()
    driver.register_as(1)
    made = driver.answer(1003, 0, {}, SyncStateSet((), 0).encode())
    kinds = [type(one) for one in made]
    assert kinds.index(ev.Beat) < kinds.index(ev.Ask)
    elect = driver.asked(1002)
    assert elect.fields["brokerId"] == "1"
    assert elect.fields["designateElect"] == "false"
    driver.give(ev.Answered(elect.token, 0, mastership(1, 1), b'{"syncStateSet":[1]}'))
    assert driver.take(ev.BecomeMaster) == [ev.BecomeMaster(1, frozenset({1}), 1)]
    assert type(driver.effects[-1]) is ev.Beat, (
        "answered while the role is taken up: the lease begins"
    )
    assert driver.core.place.role is None
    made = driver.give(ev.RoleSettled(1, accepted=True))
    assert ev.ServeAs(Role.MASTER, 1) in made


def test_election_when_this_is_an_asynchronous_learner_then_it_asks_for_none_and_follows() -> None:
    """#10013: a learner that asked first reigned, and the replicas that count came after it."""
    driver = Driver(settings=replace(SETTINGS, async_learner=True))
    driver.register_as(1)
    driver.answer(1003, 0, {}, SyncStateSet((), 0).encode())
    assert not driver.has_asked(1002)
    driver.tick_until_asked(1004)
    driver.answer(1004, 0, {"masterEpoch": "2"}, SyncStateSet((), 0).encode())
    assert not driver.has_asked(1002)
    driver.tick_until_asked(1004)
    driver.answer(1004, 0, mastership(2, 3), SyncStateSet((2,), 2).encode())
    assert driver.take(ev.BecomeSlave) == [ev.BecomeSlave(3, 2, "10.0.0.2:10911")]


@pytest.mark.parametrize("code", [0, 2011])
def test_elect_when_another_reigns_then_it_is_followed(code: int) -> None:
    """2011 is as good as success: it names the master."""
    driver = Driver()
    driver.register_as(2)
    driver.answer(1003, 0, {}, SyncStateSet((), 0).encode())
    driver.answer(1002, code, mastership(1, 4), b'{"syncStateSet":[1]}')
    assert driver.take(ev.BecomeSlave) == [ev.BecomeSlave(4, 1, "10.0.0.1:10911")]
    assert not driver.has_asked(1002)


def test_elect_when_refused_then_it_is_asked_again_with_growing_pauses() -> None:
    """2012 comes until a member of the set is back; hammering the controller would not help."""
    driver = Driver()
    driver.register_as(2)
    driver.answer(1003, 0, {}, SyncStateSet((1,), 1).encode())
    pauses = []
    for _ in range(8):
        before = driver.now_ms
        driver.answer(1002, 2012)
        driver.tick_until_asked(1002)
        pauses.append(driver.now_ms - before)
    assert pauses[0] <= 100
    assert max(pauses) <= driver.core.settings.elect_retry_ms_max
    assert pauses[-1] > pauses[0]


def test_heartbeats_when_an_id_is_known_then_they_go_to_every_controller_each_interval() -> None:
    """Not to the leader only: the next leader must know who is alive."""
    driver = Driver()
    driver.reign()
    beats, moments = [], []
    while len(beats) < 5:
        driver.tick()
        for beat in driver.take(ev.Beat):
            beats.append(beat)
            moments.append(driver.now_ms)
    assert all(beat.addresses == (LEADER, OTHER) for beat in beats)
    assert {later - earlier for earlier, later in pairwise(moments)} == {1000}
    assert beats[0].fields["heartbeatTimeoutMills"] == "10000"
    assert beats[0].fields["writeLease"] == "false"
    assert beats[0].fields["brokerAddr"] == ADDRESS


@pytest.mark.parametrize(("lease_ms", "said"), [(0, "false"), (8_000, "true")])
def test_heartbeat_when_masters_have_a_write_lease_then_it_says_so(
    lease_ms: int, said: str
) -> None:
    """Controllers replace by a silence of a second only who acknowledges nothing after it."""
    fields = heartbeat_fields(replace(SETTINGS, write_lease_ms=lease_ms), 1)
    assert fields["writeLease"] == said


def test_poll_when_the_epoch_is_newer_then_the_role_follows() -> None:
    """A lost notification costs one period."""
    driver = Driver()
    driver.reign(1)
    driver.tick_until_asked(1004)
    driver.answer(1004, 0, mastership(3, 2), SyncStateSet((3,), 2).encode())
    assert driver.take(ev.BecomeSlave) == [ev.BecomeSlave(2, 3, "10.0.0.3:10911")]


def test_poll_when_the_master_is_gone_then_an_election_is_asked_for() -> None:
    """How a surviving replica recovers after "lost master": the epoch grew, nobody reigns."""
    driver = Driver()
    driver.reign(1)
    driver.tick_until_asked(1004)
    driver.answer(1004, 0, {"masterEpoch": "2"}, SET_1)
    assert driver.has_asked(1002)


def test_poll_when_busy_then_it_comes_back_soon() -> None:
    """SYSTEM_BUSY puts a poll off; a whole period would be too long."""
    driver = Driver()
    driver.reign()
    driver.tick_until_asked(1004)
    before = driver.now_ms
    driver.answer(1004, 2)
    driver.tick_until_asked(1004)
    assert driver.now_ms - before == driver.core.settings.busy_retry_ms


def test_poll_when_the_set_is_unknown_then_it_registers_again() -> None:
    """2008."""
    driver = Driver()
    driver.reign()
    driver.tick_until_asked(1004)
    driver.answer(1004, 2008)
    assert driver.has_asked(1003)
    assert not driver.has_asked(1012)


def hinted(epoch: int = 3, master_id: int = 2) -> Driver:
    """A master of epoch 2 that was sent a 1008; questions out of before are forgotten."""
    driver = Driver()
    driver.reign(2)
    driver.take(ev.Ask)
    body = SyncStateSet((master_id,), epoch).encode()
    driver.give(ev.Notified(mastership(master_id, epoch), body))
    return driver


def test_notification_when_anybody_names_another_master_then_only_questions_follow() -> None:
    """A made-up master would make replicas cut their logs; a made-up epoch fence them for good."""
    driver = hinted(1 << 30)
    assert driver.core.place.role is Role.MASTER
    assert driver.core.place.master_epoch == 2
    asked = driver.take(ev.Ask)
    assert {(ask.code, ask.address) for ask in asked} == {(1004, LEADER), (1004, OTHER)}
    for ask in asked:
        driver.give(ev.Answered(ask.token, 0, mastership(1, 2), SET_1))
    assert driver.take(ev.BecomeSlave) == []
    assert driver.core.place.role is Role.MASTER


def test_notification_when_any_controller_confirms_it_then_the_role_changes() -> None:
    """Whoever told may lead since a moment ago: not only the leader that is known is asked."""
    driver = hinted()
    first, second = driver.take(ev.Ask)
    driver.give(ev.Answered(first.token, 2007))
    assert not driver.take(ev.BecomeSlave)
    driver.give(ev.Answered(second.token, 0, mastership(2, 3), SyncStateSet((2,), 3).encode()))
    assert driver.take(ev.BecomeSlave) == [ev.BecomeSlave(3, 2, "10.0.0.2:10911")]
    assert driver.core.search.leader == LEADER, "one that does not lead is no failure of the leader"


def test_notification_when_strangers_send_many_then_questions_are_few() -> None:
    """At most one round every fifty milliseconds, whatever arrives."""
    driver = hinted()
    gap_ms = driver.core.settings.check_gap_ms
    rounds = 0
    for _ in range(100):
        driver.give(ev.Notified(mastership(2, 9), SyncStateSet((2,), 9).encode()))
        driver.tick(10)
        asked = [ask for ask in driver.take(ev.Ask) if ask.code == 1004]
        rounds += sum(ask.address == OTHER for ask in asked)
        for ask in asked:
            driver.give(ev.Answered(ask.token, 0, mastership(1, 2), SET_1))
    assert 2 <= rounds <= 1 + 100 * 10 // gap_ms


def test_notification_when_it_comes_while_one_is_checked_then_it_is_checked_after() -> None:
    """The answers that are under way may be from before it."""
    driver = hinted()
    asked = driver.take(ev.Ask)
    driver.give(ev.Notified(mastership(3, 4), SyncStateSet((3,), 4).encode()))
    for ask in asked:
        driver.give(ev.Answered(ask.token, 0, mastership(2, 3), SyncStateSet((2,), 3).encode()))
    driver.take(ev.Ask)
    driver.tick(driver.core.settings.check_gap_ms)
    assert [ask.code for ask in driver.take(ev.Ask)].count(1004) >= 2


def test_notification_when_nobody_answers_then_the_leader_is_polled_soon() -> None:
    """The hint may have been true, and its sender in the middle of its own failover."""
    driver = hinted()
    for ask in driver.take(ev.Ask):
        driver.give(ev.Unanswered(ask.token, sent=False))
    driver.tick_until_asked(1004, driver.core.settings.busy_retry_ms + 1)


@pytest.mark.parametrize("epoch", [1, 2])
def test_notification_when_it_says_nothing_new_then_nobody_is_asked(epoch: int) -> None:
    """Duplicates and stale notifications are harmless."""
    driver = Driver()
    driver.register_as(2)
    body = SyncStateSet((1,), 2).encode()
    driver.answer(1003, 0, mastership(1, 2), body)
    driver.give(ev.RoleSettled(2, accepted=True))
    driver.take(ev.Ask)
    driver.give(ev.Notified(mastership(1, epoch), body))
    assert not driver.has_asked(1004)


def test_notification_when_malformed_then_nothing_happens() -> None:
    """Anybody can send 1008."""
    driver = Driver()
    driver.reign(1)
    driver.give(ev.Notified({"masterBrokerId": "two", "masterEpoch": "9"}, b"no json"))
    driver.give(ev.Notified(None, b""))
    assert driver.core.place.master_epoch == 1


def test_role_when_the_log_is_ahead_then_nothing_is_served() -> None:
    """Controllers that lost their state begin at epoch 1 again; this log knows better."""
    driver = Driver()
    driver.register_as(1)
    driver.answer(1003, 0, mastership(1, 1), SET_1)
    driver.give(ev.RoleSettled(1, accepted=False))
    assert driver.core.place.role is None
    assert driver.core.place.refused_epoch == 1
    assert driver.take(ev.ServeAs) == []


def test_leader_when_it_steps_down_then_the_next_one_is_found_and_the_poll_goes_on() -> None:
    """2007 has no redirect."""
    driver = Driver()
    driver.reign()
    driver.tick_until_asked(1004)
    driver.answer(1004, 2007)
    driver.tick_until_asked(1005) if not driver.has_asked(1005) else None
    driver.lead(OTHER)
    driver.tick_until_asked(1004)
    assert driver.asked(1004).address == OTHER


def test_leader_when_followers_name_a_dead_one_then_they_are_not_asked_without_pause() -> None:
    """A stale answer and a refused connection take no time: a loop of both must."""
    driver = Driver()
    driver.reign()
    driver.tick_until_asked(1004)
    started = driver.now_ms
    for _ in range(10):
        token = driver.asked(1004).token
        driver.give(ev.Unanswered(token, sent=False))
        while not driver.has_asked(1004):
            for ask in [one for one in driver.take(ev.Ask) if one.code == 1005]:
                driver.give(ev.Answered(ask.token, 0, {"controllerLeaderAddress": LEADER}))
            if not driver.has_asked(1004):
                driver.tick()
    assert driver.now_ms - started > 5_000


@pytest.mark.parametrize("heard", [False, True])
def test_controllers_when_none_leads_then_people_are_told_at_once_and_every_half_minute(
    *, heard: bool
) -> None:
    """A broker said "boot success" and nothing more, and nobody knew why it served nothing."""
    driver = Driver()
    driver.start()
    begun, told = driver.now_ms, []
    while driver.now_ms - begun < 100_000:
        for ask in [one for one in driver.take(ev.Ask) if one.code == 1005]:
            if heard and ask.address == OTHER:
                driver.give(ev.Answered(ask.token, 0, {"isLeader": "false"}))
            else:
                driver.give(ev.Unanswered(ask.token, sent=False))
        told += [
            (driver.now_ms - begun, one) for one in driver.take(Note) if one.level == "warning"
        ]
        driver.tick()
    assert [at // 30_000 for at, _ in told] == [0, 1, 2, 3]
    assert told[0][0] < 1_000
    event = "controllers_without_leader" if heard else "controllers_unreachable"
    assert {one.event for _, one in told} == {event}
    assert told[0][1].facts == {"controllers": [LEADER, OTHER]}


# -- the SyncStateSet ----------------------------------------------------------------------------


def altered() -> tuple[Driver, ev.Ask]:
    """A master that has asked for {1, 2}."""
    driver = Driver()
    driver.reign(1)
    driver.give(ev.AlterWanted(frozenset({1, 2}), 1))
    return driver, driver.asked(1001)


def test_alter_when_confirmed_then_replication_learns_set_and_epoch() -> None:
    """Only the controller's answer counts."""
    driver, ask = altered()
    assert SyncStateSet.decode(ask.body) == SyncStateSet((1, 2), 1)
    assert ask.fields["masterEpoch"] == "1"
    driver.give(ev.Answered(ask.token, 0, {}, SyncStateSet((1, 2), 2).encode()))
    assert driver.take(ev.ConfirmSet) == [ev.ConfirmSet(frozenset({1, 2}), 2)]


@pytest.mark.parametrize("code", [2000, 2001, 2002, 2003, 2006, 2013])
def test_alter_when_surely_not_applied_then_it_is_refused_and_the_truth_is_asked_for(
    code: int,
) -> None:
    """The epochs here are out of date: a poll brings the right ones at once."""
    driver, ask = altered()
    driver.give(ev.Answered(ask.token, code))
    (end,) = driver.take(ev.EndAlter)
    assert end == ev.EndAlter(refused=True, for_a_member=code in (2003, 2006))
    assert driver.has_asked(1004)


@pytest.mark.parametrize("code", [1, 2, 2007, 2015])
def test_alter_when_the_leader_may_have_applied_it_then_it_counts_as_lost(code: int) -> None:
    """A leader that lost its term may have committed what it answers with an error."""
    driver, ask = altered()
    driver.give(ev.Answered(ask.token, code))
    assert driver.take(ev.EndAlter) == [ev.EndAlter(refused=False)]


@pytest.mark.parametrize("sent", [False, True])
def test_alter_when_unanswered_then_only_an_unsent_one_is_refused(*, sent: bool) -> None:
    """Without a connection nothing can have been applied."""
    driver, ask = altered()
    driver.give(ev.Unanswered(ask.token, sent=sent))
    assert driver.take(ev.EndAlter) == [ev.EndAlter(refused=not sent)]


@pytest.mark.parametrize("sent", [False, True, None])
def test_alter_when_an_older_one_is_refused_late_then_the_newest_may_still_be_applied(
    sent: bool | None,
) -> None:
    """A set that the controller holds would not be waited for, and a new master lack puts."""
    driver, older = altered()
    driver.give(ev.Told(mastership(1, 2), SyncStateSet((1,), 3).encode()))
    driver.give(ev.RoleSettled(2, accepted=True))
    driver.effects.clear()
    driver.give(ev.AlterWanted(frozenset({1, 2}), 3))
    newest = driver.asked(1001)
    answer = ev.Answered(older.token, 2001) if sent is None else ev.Unanswered(older.token, sent)
    driver.give(answer)
    assert driver.take(ev.EndAlter) == [ev.EndAlter(refused=False)]
    driver.give(ev.Answered(newest.token, 2001))
    assert driver.take(ev.EndAlter) == [ev.EndAlter(refused=True)]


def test_alter_when_answered_in_a_later_epoch_then_the_set_is_not_believed() -> None:
    """The set of an old reign says nothing of the new one."""
    driver, ask = altered()
    driver.give(ev.Told(mastership(1, 2), SyncStateSet((1,), 3).encode()))
    driver.give(ev.Answered(ask.token, 0, {}, SyncStateSet((1, 2), 2).encode()))
    assert driver.take(ev.ConfirmSet) == []
    assert driver.take(ev.EndAlter) == [ev.EndAlter(refused=False)]


# -- the master's HA address -----------------------------------------------------------------------


def following() -> Driver:
    """A slave of broker 1 in epoch 1, whose master's HA address is not known."""
    driver = Driver()
    driver.register_as(2)
    driver.answer(1003, 0, mastership(1, 1), SET_1)
    driver.give(ev.RoleSettled(1, accepted=True))
    return driver


def test_ha_address_when_the_master_tells_it_then_it_is_followed() -> None:
    """906, the fast route; it goes to the master's own port."""
    driver = following()
    ask = driver.asked(906)
    assert ask.address == "10.0.0.1:10911"
    driver.give(ev.Answered(ask.token, 0, {"masterHaAddress": "10.0.0.1:10912"}))
    assert driver.take(ev.FollowMaster) == [ev.FollowMaster("10.0.0.1:10912")]


def test_ha_address_when_later_answers_are_empty_then_the_known_one_stays() -> None:
    """Java sets the address to null here, and the slave stops replicating."""
    driver = following()
    driver.answer(906, 0, {"masterHaAddress": "10.0.0.1:10912"})
    driver.take(ev.FollowMaster)
    driver.give(ev.NameServerAnswered("10.0.0.1:10911", ""))
    driver.give(ev.NameServerAnswered("", ""))
    driver.tick_until_asked(906)
    driver.answer(906, 0, {})
    assert driver.take(ev.FollowMaster) == []
    assert driver.core.place.master_ha_address == "10.0.0.1:10912"


def test_ha_address_when_another_reigns_then_the_old_master_is_followed_no_more() -> None:
    """Its HA port may answer for long; and who was silent says nothing of the next one."""
    driver = following()
    driver.answer(906, 0, {"masterHaAddress": "10.0.0.1:10912"})
    for _ in range(6):
        driver.tick_until_asked(906)
        driver.answer(906, 0, {})
    driver.take(ev.FollowMaster)
    driver.give(ev.Told(mastership(3, 2), SyncStateSet((3,), 2).encode()))
    driver.give(ev.RoleSettled(2, accepted=True))
    assert driver.take(ev.FollowMaster) == []
    driver.answer(906, 0, {})
    driver.tick_until_asked(906, driver.core.settings.retry_ms + 1)


def test_answer_when_it_is_of_an_earlier_epoch_then_nothing_changes() -> None:
    """RIP-44, Elect Master: it was said before what is known, and was overtaken."""
    driver = Driver()
    driver.register_as(2)
    driver.answer(1003, 0, mastership(1, 3), SyncStateSet((1,), 3).encode())
    driver.give(ev.RoleSettled(3, accepted=True))
    driver.take(ev.BecomeSlave)
    for master_id in (2, 3):
        driver.give(ev.Told(mastership(master_id, 2), SyncStateSet((master_id,), 2).encode()))
    assert [*driver.take(ev.BecomeMaster), *driver.take(ev.BecomeSlave)] == []
    place = driver.core.place
    assert (place.role, place.master_id, place.master_epoch) == (Role.SLAVE, 1, 3)


def test_ha_address_when_a_name_server_still_lists_the_old_master_then_it_is_ignored() -> None:
    """After a failover a name server may lag: its HA address is the dead master's."""
    driver = following()
    driver.give(ev.NameServerAnswered("10.0.0.9:10911", "10.0.0.9:10912"))
    assert driver.take(ev.FollowMaster) == []
    driver.give(ev.NameServerAnswered("10.0.0.1:10911", "10.0.0.1:10912"))
    assert driver.take(ev.FollowMaster) == [ev.FollowMaster("10.0.0.1:10912")]


# -- whatever comes ------------------------------------------------------------------------------------

ANSWERS = st.tuples(
    st.sampled_from([0, 1, 2, 2001, 2007, 2008, 2010, 2011, 2012, 2013]),
    st.integers(0, 3),
    st.integers(0, 6),
    st.frozensets(st.integers(1, 3), min_size=0, max_size=3),
    st.integers(0, 9),
)
MOVES = st.one_of(
    st.tuples(st.just("answer"), ANSWERS),
    st.tuples(st.just("silence"), st.booleans()),
    st.tuples(st.just("notify"), ANSWERS),
    st.tuples(st.just("tick"), st.integers(1, 6_000)),
    st.tuples(st.just("settle"), st.booleans()),
    st.tuples(st.just("alter"), st.frozensets(st.integers(1, 3), min_size=1)),
)


@given(st.lists(MOVES, max_size=60))
def test_any_story_when_told_then_epochs_only_grow_and_every_alteration_ends(
    moves: list[tuple[str, object]],
) -> None:
    """Controllers may say anything, in any order, or nothing."""
    driver = Driver()
    driver.register_as(1)
    wanted = ended = 0
    epochs = [0]
    for kind, value in moves:
        asks = [one for one in driver.effects if isinstance(one, ev.Ask)]
        match kind:
            case "answer" if asks:
                driver.effects.remove(asks[0])
                code, *said = value  # type: ignore[misc]  # drawn by ANSWERS
                driver.give(ev.Answered(asks[0].token, code, *told(*said)))
            case "silence" if asks:
                driver.effects.remove(asks[0])
                driver.give(ev.Unanswered(asks[0].token, sent=bool(value)))
            case "notify":
                driver.give(ev.Notified(*told(*value[1:])))  # type: ignore[index]  # as above
            case "tick":
                driver.tick(value)  # type: ignore[arg-type]  # as above
            case "settle":
                epoch = driver.core.place.master_epoch
                driver.give(ev.RoleSettled(epoch, accepted=bool(value)))
            case "alter":
                wanted += 1
                driver.give(ev.AlterWanted(value, 1))  # type: ignore[arg-type]  # as above
        changes = [*driver.take(ev.BecomeMaster), *driver.take(ev.BecomeSlave)]
        ended += len(driver.take(ev.EndAlter))
        assert len(changes) <= 1
        for change in changes:
            assert change.epoch > epochs[-1]
            epochs.append(change.epoch)
            assert driver.core.place.role is None
        jobs = [one.code for one in driver.effects if isinstance(one, ev.Ask)]
        for code, most in ((1003, 1), (1002, 1), (1004, 3), (906, 1)):
            assert jobs.count(code) <= most, jobs
        assert driver.core.next_deadline_ms is not None
    out = sum(1 for one in driver.effects if isinstance(one, ev.Ask) and one.code == 1001)
    assert ended <= wanted
    assert ended + out + len(driver.take(ev.ConfirmSet)) >= wanted


def told(
    master_id: int, epoch: int, ids: frozenset[int], set_epoch: int
) -> tuple[dict[str, str], bytes]:
    """What a controller may say of a set."""
    fields = mastership(master_id, epoch) if master_id else {"masterEpoch": str(epoch)}
    fields["nextBrokerId"] = str(max(1, master_id))
    return fields, SyncStateSet(tuple(sorted(ids)), set_epoch).encode()


# -- a master that lost power --------------------------------------------------------------------------


def lost_power(ids: tuple[int, ...], *, promised: bool = True) -> Driver:
    """Broker 1, which the controllers still take for master of epoch 3, lost the end of it."""
    driver = Driver(settings=replace(SETTINGS, slaves_must_acknowledge=promised))
    driver.files.final = Identity(CLUSTER, NAME, 1)
    driver.start()
    driver.lead()
    driver.take(ev.StartReplication)
    driver.give(ev.ReplicationStarted(lost_epoch=3))
    driver.answer(1003, 0, mastership(1, 3), SyncStateSet(ids, 7).encode())
    return driver


def emptied(ids: tuple[int, ...], *, by: int = 1003, code: int = 0) -> Driver:
    """Broker 1, which the controllers still take for master of epoch 3, holds nothing any more."""
    driver = Driver()
    driver.files.final = Identity(CLUSTER, NAME, 1)
    driver.start()
    driver.lead()
    driver.take(ev.StartReplication)
    driver.give(ev.ReplicationStarted(is_empty=True))
    if by != 1003:
        driver.answer(1003, 0, {}, SyncStateSet(ids, 7).encode())
    driver.answer(by, code, mastership(1, 3), SyncStateSet(ids, 7).encode())
    return driver


@pytest.mark.parametrize(("by", "code"), [(1003, 0), (1002, 2011)])
def test_master_when_its_log_is_gone_then_it_lets_another_one_reign(by: int, code: int) -> None:
    """Somebody has emptied it while nobody else could be elected: the controllers still name it."""
    driver = emptied((1, 2), by=by, code=code)
    assert driver.take(ev.BecomeMaster) == []
    driver.tick_until_asked(1002)
    asked = driver.asked(1002)
    assert (asked.fields["designateElect"], asked.fields["brokerId"]) == ("true", "2")
    assert asked.fields["completeOnly"] == "true", "it does not know what the other one has"
    driver.take(ev.Beat)
    driver.tick(20_000)
    assert driver.take(ev.Beat) == [], "the controllers shall miss it"


def test_master_when_its_log_is_empty_and_nobody_else_is_in_the_set_then_it_reigns() -> None:
    """Nobody else has anything: a new set, for instance."""
    driver = emptied((1,))
    assert driver.take(ev.BecomeMaster) == [ev.BecomeMaster(3, frozenset({1}), 7)]


def test_replica_when_its_log_is_empty_and_it_is_elected_upon_its_request_then_it_reigns() -> None:
    """The controllers know what others lack."""
    driver = emptied((1, 2), by=1002)
    assert [one.epoch for one in driver.take(ev.BecomeMaster)] == [3]


def test_lost_power_when_others_are_in_the_set_then_each_is_proposed_in_turn() -> None:
    """The first heir may be dead; nobody reigns until one lives."""
    driver = lost_power((1, 2, 3))
    assert driver.take(ev.BecomeMaster) == []
    heirs = []
    for _ in range(4):
        driver.tick_until_asked(1002)
        ask = driver.asked(1002)
        assert ask.fields["designateElect"] == "true"
        heirs.append(ask.fields["brokerId"])
        driver.give(ev.Answered(ask.token, 2012))
    assert set(heirs) == {"2", "3"}
    assert driver.take(ev.Leave) == []
    driver.tick_until_asked(1002)
    driver.answer(1002, 0, mastership(3, 4), b'{"syncStateSet":[3]}')
    assert driver.take(ev.BecomeSlave) == [ev.BecomeSlave(4, 3, "10.0.0.3:10911")]
    driver.tick(60_000)
    assert not driver.has_asked(1002)


def test_lost_power_when_nothing_was_promised_then_each_is_proposed_once_and_then_it_leaves() -> (
    None
):
    """Those who are dead may stay so: Java's master would reign, and this one must within bounds."""
    driver = lost_power((1, 2, 3), promised=False)
    heirs = []
    for _ in range(2):
        assert driver.take(ev.Leave) == []
        driver.tick_until_asked(1002)
        ask = driver.asked(1002)
        heirs.append(ask.fields["brokerId"])
        driver.give(ev.Answered(ask.token, 2012))
    assert set(heirs) == {"2", "3"}
    assert len(driver.take(ev.Leave)) == 1
    left_ms = driver.now_ms
    driver.tick_until_asked(1004)
    assert driver.now_ms - left_ms <= SETTINGS.elect_retry_ms_max
    driver.answer(1004, 0, mastership(1, 3), SyncStateSet((1, 2, 3), 7).encode())
    assert len(driver.take(ev.Leave)) == 1
    assert driver.take(ev.Beat) == []
    driver.take(ev.Ask)
    driver.tick_until_asked(1004)
    driver.answer(1004, 0, {"masterEpoch": "4"}, SyncStateSet((1, 2, 3), 8).encode())
    asked = [one for one in driver.take(ev.Ask) if one.code == 1002]
    (elect,) = [one for one in asked if one.fields["designateElect"] == "false"]
    driver.give(ev.Answered(elect.token, 0, mastership(1, 5), b'{"syncStateSet":[1]}'))
    assert driver.take(ev.BecomeMaster)[0].epoch == 5
    told = [one for one in driver.take(Note) if one.event == "waits_to_be_missed"]
    assert [one.facts["limit_ms"] for one in told] == [SETTINGS.controller_heart_beat_timeout_ms]


def test_lost_power_when_all_heirs_came_back_with_less_then_it_asks_to_be_elected_anew() -> None:
    """The only heir was emptied: master and heir each waited for the other, for ever."""
    driver = lost_power((1, 2))
    driver.tick_until_asked(1002)
    ask = driver.asked(1002)
    assert (ask.fields["brokerId"], "anew" in ask.fields) == ("2", False)
    driver.give(ev.Answered(ask.token, 2012, {"masterIsBest": "true"}))
    driver.tick_until_asked(1002)
    ask = driver.asked(1002)
    assert ask.fields["brokerId"] == "1"
    assert (ask.fields["designateElect"], ask.fields["anew"]) == ("true", "true")
    driver.give(ev.Answered(ask.token, 2004))
    driver.answer(1004, 0, {"masterEpoch": "4"}, SyncStateSet((1, 2), 8).encode())
    asked = [one for one in driver.take(ev.Ask) if one.code == 1002]
    (elect,) = [one for one in asked if one.fields["designateElect"] == "false"]
    driver.give(ev.Answered(elect.token, 0, mastership(1, 5), b'{"syncStateSet":[1]}'))
    assert driver.take(ev.BecomeMaster)[0].epoch == 5
    driver.tick(60_000)
    assert not driver.has_asked(1002)


def test_lost_power_when_an_heir_is_back_meanwhile_then_it_is_named_again() -> None:
    """It copied from somebody, or another member is back."""
    driver = lost_power((1, 2))
    driver.tick_until_asked(1002)
    driver.answer(1002, 2012, {"masterIsBest": "true"})
    driver.tick_until_asked(1002)
    driver.answer(1002, 2011, mastership(1, 3), b'{"syncStateSet":[1,2]}')
    driver.tick_until_asked(1002)
    assert driver.asked(1002).fields["brokerId"] == "2"


def test_lost_power_when_elected_anew_then_a_late_refusal_proposes_nobody_any_more() -> None:
    """A hand-over that was under way would take the new epoch from it as soon as an heir lives."""
    driver = lost_power((1, 2))
    driver.tick_until_asked(1002)
    proposal = driver.asked(1002)
    driver.tick_until_asked(1004)
    driver.answer(1004, 0, mastership(1, 5), SyncStateSet((1,), 8).encode())
    assert driver.take(ev.BecomeMaster)[0].epoch == 5
    driver.give(ev.Answered(proposal.token, 2012))
    driver.tick(60_000)
    assert not driver.has_asked(1002)


def test_lost_power_when_the_last_other_leaves_while_it_is_asked_for_then_nobody_is_proposed() -> (
    None
):
    """Its refusal comes when there is nobody to propose; asking for nobody ended the process."""
    driver = lost_power((1, 2))
    driver.tick_until_asked(1002)
    proposal = driver.asked(1002)
    driver.tick_until_asked(1004)
    driver.answer(1004, 0, mastership(1, 3), SyncStateSet((1,), 8).encode())
    driver.give(ev.Answered(proposal.token, 2012))
    driver.tick(60_000)
    assert not driver.has_asked(1002)


def test_lost_power_when_the_controller_says_the_master_lives_then_it_goes_on_asking() -> None:
    """2011 names this broker: it is the very thing to be changed."""
    driver = lost_power((1, 2, 3))
    for _ in range(3):
        driver.tick_until_asked(1002)
        driver.answer(1002, 2011, mastership(1, 3), b'{"syncStateSet":[1,2,3]}')
    driver.tick_until_asked(1002)
    assert driver.take(ev.BecomeMaster) == []


def test_lost_power_when_the_last_other_leaves_the_set_then_nobody_is_proposed_any_more() -> None:
    """Who was due to be proposed is no member now; asking for nobody ended the process."""
    driver = lost_power((1, 2))
    for _ in range(100):
        driver.tick()
        if driver.has_asked(1002):
            driver.give(ev.Answered(driver.asked(1002).token, 2012))
        if driver.has_asked(1004):
            break
    driver.answer(1004, 0, mastership(1, 3), SyncStateSet((1,), 8).encode())
    driver.tick(60_000)
    assert len(driver.take(ev.Leave)) >= 1
    assert driver.take(ev.BecomeMaster) == []


def test_lost_power_when_alone_in_the_set_then_it_waits_to_be_missed_and_elected_anew() -> None:
    """In its old epoch it would write a second history beside what its slaves may hold."""
    driver = lost_power((1,))
    for _ in range(3):
        driver.tick_until_asked(1004)
        driver.answer(1004, 0, mastership(1, 3), SyncStateSet((1,), 7).encode())
    assert driver.take(ev.BecomeMaster) == []
    assert driver.take(ev.Beat) == []
    assert len(driver.take(ev.Leave)) == 4
    assert not driver.has_asked(1002)
    driver.tick_until_asked(1004)
    made = driver.answer(1004, 0, {"masterEpoch": "4"}, SyncStateSet((1,), 8).encode())
    assert [type(one) for one in made if isinstance(one, (ev.Beat, ev.Ask))] == [ev.Beat, ev.Ask]
    driver.answer(1002, 0, mastership(1, 5), b'{"syncStateSet":[1]}')
    assert driver.take(ev.BecomeMaster)[0].epoch == 5


def test_lost_power_when_a_new_epoch_names_this_broker_then_it_reigns() -> None:
    """The controllers elected anew: that epoch begins where this log ends."""
    driver = lost_power((1, 2))
    driver.give(ev.Told(mastership(1, 4), SyncStateSet((1,), 8).encode()))
    assert driver.take(ev.BecomeMaster) == [ev.BecomeMaster(4, frozenset({1}), 8)]
