"""``controllerAddr`` while a broker runs: whom it asks, whom it beats to, and by whom it holds its lease."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from rmqha.broker.aio.replica import BrokerReplica
from rmqha.broker.membership import events as ev
from rmqha.broker.membership.aio.manager import ReplicasManager
from rmqha.broker.membership.leader_search import MEMBERS_NAMED_MAX, LeaderSearch, members_of
from rmqha.broker.membership.stall_page import PAGE_BYTES, StallPage
from rmqha.remoting.codes import ResponseCode
from rmqha.remoting.headers import ext_fields
from rmqha.sim.cluster import CONTROLLER_PORT
from rmqha.testing.cluster import RmqCluster
from rmqha.testing.nodes import Node
from rmqha.testing.plugin import Factory
from rmqha.testing.real import wire
from rmqha.testing.real.processes import wait_until
from tests.broker.driver import LEADER, OTHER, Driver
from tests.broker.replicas import ReplicaCluster, master_of

END_S = 20.0
NEW, LATEST = "c3:9878", "c4:9878"


def told(leader: str, *members: str) -> dict[str, str]:
    """What the leader says of its group (1005)."""
    peers = "".join(f"n{number}:{one};" for number, one in enumerate(members))
    return {"controllerLeaderAddress": leader, "isLeader": "true", "peers": peers}


@pytest.mark.parametrize(
    ("peers", "voters"),
    [
        ("n0:10.0.0.1:1;n1:[::1]:2;", ("10.0.0.1:1", "[::1]:2")),
        ("n0:10.0.0.1:1;n1:10.0.0.1:1;", ("10.0.0.1:1",)),
        ("", ("10.0.0.1:1",)),
        ("10.0.0.1:9880;10.0.0.2:9880;", ("10.0.0.1:1",)),  # JRaft: ids, which are of other ports
        ("n1:10.0.0.2:1;", ("10.0.0.1:1",)),  # it names others, and not itself
        ("n0:10.0.0.1:1;n1:nowhere;", ("10.0.0.1:1",)),
        (";".join(f"n{i}:10.0.0.1:{i + 1}" for i in range(MEMBERS_NAMED_MAX + 1)), ("10.0.0.1:1",)),
    ],
)
def test_members_when_a_leader_names_them_then_they_are_believed_if_it_is_one(
    peers: str, voters: tuple[str, ...]
) -> None:
    """At least the leader itself, in words that a broker can reach it by."""
    assert members_of({"peers": peers}, "10.0.0.1:1") == (voters, ())


def test_members_when_some_do_not_vote_yet_then_they_hear_of_this_broker_and_do_not_count() -> None:
    """Of three that vote and three that join four were a majority, with one vote among them."""
    driver = Driver()
    driver.reign()
    driver.give(ev.ControllersNamed((LEADER, OTHER)))
    ask = next(one for one in driver.take(ev.Ask) if (one.code, one.address) == (1005, LEADER))
    fields = told(LEADER, LEADER, OTHER, NEW, LATEST) | {"voters": "n0;n1"}
    driver.give(ev.Answered(ask.token, 0, fields))
    assert driver.core.search.members == (LEADER, OTHER)
    assert driver.take(ev.Beat)[-1].addresses == (LEADER, OTHER, NEW, LATEST)
    fields["voters"] = "n2;n3"
    assert members_of(fields, LEADER) == ((LEADER,), ()), "who leads votes"


def test_controllers_when_others_are_named_then_they_are_asked_and_hear_of_this_broker_at_once() -> (
    None
):
    """Not in the round that is under way, nor with the next heartbeat: they may lead in a moment."""
    driver = Driver()
    driver.reign()
    driver.tick(10)
    driver.effects.clear()
    driver.give(ev.ControllersNamed((LEADER, OTHER, NEW)))
    assert [one.addresses for one in driver.take(ev.Beat)] == [(LEADER, OTHER, NEW)]
    asked = [one.address for one in driver.take(ev.Ask) if one.code == 1005]
    assert asked == [LEADER, OTHER, NEW]
    assert driver.core.search.leader == LEADER, "it is one of them: nothing waits"


def test_controllers_when_a_member_is_taken_out_too_early_then_it_is_beaten_to_all_the_same() -> (
    None
):
    """It would take this broker for dead as soon as it leads."""
    driver = Driver()
    driver.reign()
    driver.give(ev.ControllersNamed((LEADER, OTHER)))
    asks = {one.address: one for one in driver.take(ev.Ask) if one.code == 1005}
    driver.effects.clear()
    driver.give(ev.Answered(asks[LEADER].token, 0, told(LEADER, LEADER, OTHER, NEW)))
    assert driver.take(ev.Beat)[-1].addresses == (LEADER, OTHER, NEW)
    driver.give(ev.ControllersNamed((LEADER,)))
    assert driver.take(ev.Beat)[-1].addresses == (LEADER, OTHER, NEW)
    (ask,) = [one for one in driver.take(ev.Ask) if (one.code, one.address) == (1005, LEADER)]
    driver.give(ev.Answered(ask.token, 0, told(LEADER, LEADER)))
    driver.effects.clear()
    driver.tick(2_000)
    assert driver.take(ev.Beat)[-1].addresses == (LEADER,), "it is no member any more"


def test_controllers_when_all_are_others_then_the_former_group_is_not_listened_to() -> None:
    """A group that another one was put in the place of; its leader may still run."""
    driver = Driver()
    driver.reign()
    driver.give(ev.ControllersNamed((LEADER, OTHER)))
    late = next(one for one in driver.take(ev.Ask) if (one.code, one.address) == (1005, LEADER))
    driver.give(ev.ControllersNamed((NEW, LATEST)))
    assert driver.core.search.leader is None
    driver.give(ev.Answered(late.token, 0, told(LEADER, LEADER, OTHER)))
    assert driver.core.search.leader is None
    (ask,) = [one for one in driver.take(ev.Ask) if (one.code, one.address) == (1005, NEW)]
    driver.give(ev.Answered(ask.token, 0, told(NEW, NEW, LATEST)))
    assert driver.core.search.leader == NEW
    assert driver.core.search.controllers == (NEW, LATEST)


def test_controllers_when_a_resolver_has_other_addresses_then_the_members_go_on_to_count() -> None:
    """A list of one, of which nobody knows that it is a member's, would give the lease by its word alone."""
    driver = Driver()
    driver.reign()
    driver.give(ev.ControllersNamed((LEADER, OTHER)))
    ask = next(one for one in driver.take(ev.Ask) if (one.code, one.address) == (1005, LEADER))
    driver.give(ev.Answered(ask.token, 0, told(LEADER, LEADER, OTHER)))
    driver.give(ev.ControllersNamed((NEW,), same_group=True))
    search = driver.core.search
    assert (search.leader, search.members) == (LEADER, (LEADER, OTHER))
    assert search.controllers == (NEW, LEADER, OTHER)
    assert driver.take(ev.Beat)[-1].addresses == (NEW, LEADER, OTHER)
    driver.give(ev.ControllersNamed((NEW,)))
    assert (search.leader, search.members) == (None, ()), "an operator names another group"


@pytest.mark.parametrize("first", [0, 1])
def test_controllers_when_a_name_points_at_another_group_then_the_former_leader_is_heard_no_more(
    first: int,
) -> None:
    """Both lead, each its own group: who of them answered last would have had the broker."""
    driver = Driver()
    driver.reign()
    driver.give(ev.ControllersNamed((LEADER, OTHER)))
    ask = next(one for one in driver.take(ev.Ask) if (one.code, one.address) == (1005, LEADER))
    driver.give(ev.Answered(ask.token, 0, told(LEADER, LEADER, OTHER)))
    driver.effects.clear()
    driver.give(ev.ControllersNamed((NEW,), same_group=True))
    asks = {one.address: one.token for one in driver.take(ev.Ask) if one.code == 1005}
    words = [told(LEADER, LEADER, OTHER), told(LATEST, LATEST, "c5:9878")]
    for number in (first, 1 - first):
        driver.give(ev.Answered(asks[(LEADER, NEW)[number]], 0, words[number]))
    search = driver.core.search
    assert (search.leader, search.members) == (LATEST, (LATEST, "c5:9878"))
    assert search.controllers == (NEW, LATEST, "c5:9878")


@pytest.mark.parametrize(
    ("configured", "former", "latter"),
    [
        ((LEADER, NEW), (LEADER, OTHER, NEW), (NEW, LATEST)),
        ((LEADER, NEW), (LEADER,), (NEW,)),
        ((LEADER, NEW), (LEADER,), (NEW, LATEST)),
        ((LEADER,), (LEADER, OTHER), (NEW, LATEST)),
    ],
)
def test_controllers_when_it_may_be_the_same_group_then_all_of_a_round_are_heard(
    configured: tuple[str, ...], former: tuple[str, ...], latter: tuple[str, ...]
) -> None:
    """A member is left, a leader names itself alone (JRaft), or nobody has put its group in the name."""
    search = LeaderSearch(configured, "salt")
    for token, address in enumerate((LEADER, NEW)):
        search.asked(token, address)
    assert search.answered(0, told(LEADER, *former))
    search.asked(2, OTHER)
    assert search.answered(1, told(NEW, *latter))
    assert (search.leader, search.is_open) == (NEW, True)


def test_leader_when_it_is_looked_for_twice_at_a_time_then_it_is_looked_for_again_later() -> None:
    """Who the members are is asked every ten seconds: not once more, and then never again."""
    driver = Driver()
    driver.reign()
    driver.give(ev.ControllersNamed((LEADER, OTHER)))
    asks = [one for one in driver.take(ev.Ask) if one.code == 1005]
    driver.tick_until_asked(1004)
    driver.answer(1004, ResponseCode.CONTROLLER_NOT_LEADER)
    driver.tick(100)
    assert not driver.has_asked(1005), "those are still being asked"
    for one in asks:
        driver.give(ev.Answered(one.token, 0, told(LEADER, LEADER, OTHER)))
    driver.tick_until_asked(1005)


# -- the watcher -----------------------------------------------------------------------------------


def test_page_when_controllers_are_named_then_the_watcher_reads_them() -> None:
    """It is another process, and speaks for the broker when that stands still."""
    memory = memoryview(bytearray(PAGE_BYTES))
    broker, watcher = StallPage(memory), StallPage(memory)
    assert watcher.controllers() == ()
    broker.name_controllers((LEADER, OTHER))
    assert watcher.controllers() == (LEADER, OTHER)
    broker.name_controllers((NEW,))
    assert watcher.controllers() == (NEW,)
    broker.name_controllers(tuple(f"controller-{number}.example:9878" for number in range(200)))
    assert watcher.controllers() == (NEW,), "more than fit in are not told"


def test_page_when_read_while_it_is_written_then_the_list_of_before_counts() -> None:
    """Half of two lists would be controllers that nobody has named."""
    memory = memoryview(bytearray(PAGE_BYTES))
    broker, watcher = StallPage(memory), StallPage(memory)
    broker.name_controllers((LEADER,))
    assert watcher.controllers() == (LEADER,)
    memory.cast("q")[9] += 1
    memory[128:130] = b"XX"
    assert watcher.controllers() == (LEADER,)


# -- a cluster whose controllers are replaced ----------------------------------------------------------


FOUNDERS, ALL, LEFT = ("c0", "c1", "c2"), ("c0", "c1", "c2", "c3", "c4"), ("c2", "c3", "c4")


@pytest.fixture
def cluster() -> Iterator[ReplicaCluster]:
    """Two replicas that wait for nobody, three controllers, and two that stand by."""
    keys = {"allAckInSyncStateSet": "false", "slaveTimeout": "1000"}
    with ReplicaCluster(seed=41, replicas=2, spare_controllers=2, watched=True, **keys) as one:
        one.boot_all()
        one.until(one.in_sync, "SyncStateSet of two")
        one.until(lambda: held(master_of(one)), "write lease")
        yield one


def held(replica: BrokerReplica) -> bool:
    """Whether it may write by itself at this moment."""
    return replica.ha is not None and replica.ha.is_leased


def name(cluster: ReplicaCluster, *hosts: str) -> None:
    """Tell every broker of these controllers."""
    listed = ";".join(f"{host}:{CONTROLLER_PORT}" for host in hosts)
    for replica in cluster.replicas.values():
        answer = cluster.ask(replica.config.address, 25, {}, f"controllerAddr={listed}".encode())
        assert answer.code == 0, answer.remark


def change(cluster: ReplicaCluster, action: str, host: str) -> None:
    """Have a controller join or leave its group, as mqadmin does."""
    fields = ext_fields(
        action=action, nodeId=f"n{host[1:]}", address=f"{host}:{CONTROLLER_PORT}", waitMs=20_000
    )

    def done() -> bool:
        leader = cluster.leader()
        if leader is None:
            return False
        address = f"{leader}:{CONTROLLER_PORT}"
        return cluster.ask(address, 60020, fields, timeout_ms=25_000).code == 0

    cluster.until(done, f"{action} {host}")


def members(replica: BrokerReplica) -> set[str]:
    """The hosts that a broker takes for members."""
    return {one.partition(":")[0] for one in replica.replicas.search.members}


def move(cluster: ReplicaCluster, check: object) -> None:
    """Replace c0 and c1 by c3 and c4, by docs/OPERATIONS.md."""
    assert callable(check)
    for host in ("c3", "c4"):
        cluster.boot(host)
    name(cluster, *ALL)
    check()
    for host in ("c3", "c4"):
        change(cluster, "add", host)
        check()
    for host in ("c0", "c1"):
        change(cluster, "remove", host)
        check()
        cluster.kill(host)
    name(cluster, *LEFT)
    check()


def test_controllers_when_the_group_is_moved_then_no_write_is_refused_and_nobody_is_elected(
    cluster: ReplicaCluster,
) -> None:
    """No broker is restarted, no lease lost; and then the new group elects as the old one did."""
    old, sent = master_of(cluster), 0
    assert old.manager.lease is not None

    def check() -> None:
        nonlocal sent
        for _ in range(5):
            sent += 1
            assert cluster.send(sent, to=old).code == 0  # type: ignore[union-attr]  # it answers
            cluster.run_for(200)

    move(cluster, check)
    for replica in cluster.replicas.values():
        cluster.until(lambda one=replica: members(one) == set(LEFT), "the new members")  # type: ignore[misc]  # bound here
    assert (cluster.master(), old.manager.lease.losses) == (old, 0)
    assert set(old.replicas.search.controllers) == {f"{one}:{CONTROLLER_PORT}" for one in LEFT}
    cluster.kill(old.config.host)
    cluster.until(lambda: cluster.master() not in (None, old), "a new master")


def test_promise_when_its_controller_is_none_any_more_then_it_shortens_no_pause(
    cluster: ReplicaCluster,
) -> None:
    """A master beats as often as the shortest promise asks for; a removed one's answer may come late."""
    manager = master_of(cluster).manager
    assert isinstance(manager, ReplicasManager)
    before = manager.core._promise_ms
    manager._promised("c9:9878", 0, {"promiseMillis": "100"})
    assert manager.core._promise_ms == before
    manager._promised(f"c1:{CONTROLLER_PORT}", 0, {"promiseMillis": "100"})
    assert manager.core._promise_ms == 100


def test_lease_when_two_of_five_are_no_members_yet_then_they_cannot_give_it(
    cluster: ReplicaCluster,
) -> None:
    """With c3 and c4 named too early, c0 and they were a majority of five; c1 and c2 elect somebody."""
    for host in ("c3", "c4"):
        cluster.boot(host)
    name(cluster, *ALL)
    old = master_of(cluster)
    cluster.until(lambda: cluster.leader() is not None, "leader")
    leader = cluster.leader()
    assert leader is not None
    cut_off = [one for one in FOUNDERS if one != leader]
    others = [one.config.host for one in cluster.replicas.values() if one is not old]
    for here in (old.config.host, leader, "c3", "c4"):
        for there in (*cut_off, *others):
            cluster.net.cut(here, there)
            cluster.net.cut(there, here)

    def elected() -> bool:
        return any(
            host in cluster.controllers
            and cluster.controllers[host].machine.state.sets["broker-a"].master_epoch > 1
            for host in cut_off
        )

    cluster.until(lambda: not held(old) or elected(), "an end", limit_ms=20_000)
    assert not elected(), "two masters"
    cluster.until(elected, "another master", limit_ms=20_000)
    assert not held(old)


# -- five controllers become three, on real sockets -----------------------------------------------------


@pytest.mark.costly
def test_controllers_when_two_of_five_go_then_a_shorter_list_bears_a_failure_again(
    rmq_cluster_factory: Factory,
) -> None:
    """Three that live were all of five's majority; told of three, the master misses one and writes on."""
    cluster = rmq_cluster_factory(
        controllers=5, replicas=2, broker_settings={"allAckInSyncStateSet": "false"}
    )
    master = cluster.wait_for_master()
    cluster.produce(20)
    wait_until(lambda: runtime(master)["writeLeaseHeld"] == "true", END_S, "the lease")
    leader = cluster.wait_for_leader()
    gone = [one for one in cluster.controllers if one is not leader][:2]
    for node in gone:
        remove(cluster, cluster.controllers.index(node))
        cluster.shut_down(node)
    left = [one for one in cluster.controllers if one not in gone]
    listed = ";".join(one.place.address for one in left)
    for node in cluster.brokers:
        wire.invoke(node.place.address, 25, {}, f"controllerAddr={listed}".encode())
    cluster.kill(next(one for one in left if one is not leader))
    cluster.produce(20)
    table = runtime(master)
    assert (table["writeLeaseHeld"], table["writeLeaseLosses"]) == ("true", "0")
    assert cluster.master() is master
    cluster.assert_nothing_lost()


def runtime(node: Node) -> dict[str, str]:
    """What mqadmin shows of a broker."""
    return dict(wire.invoke(node.place.address, 28, {}).json()["table"])


def remove(cluster: RmqCluster, number: int) -> None:
    """Have a controller leave its group, as mqadmin does."""

    def done() -> bool:
        leader = cluster.wait_for_leader()
        fields: dict[str, object] = {"action": "remove", "nodeId": f"n{number}", "waitMs": "10000"}
        answer = wire.invoke(leader.place.address, 60020, fields, timeout_s=15.0)
        return answer.code == wire.SUCCESS

    wait_until(done, END_S, f"n{number} removed")
