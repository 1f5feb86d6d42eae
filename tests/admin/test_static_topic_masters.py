"""Commands that change static topics while a broker set gets another master."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from rmqha.client.exchange import Call, Unreachable
from rmqha.remoting import fastjson
from rmqha.remoting.command import RemotingCommand
from rmqha.statictopic.known import histories
from rmqha.statictopic.rules import topic_error
from tests.admin.driving import HERE
from tests.admin.static_cluster import TOPIC, StaticCluster

WHO = f"-n ns:1 -t {TOPIC}"
CREATE = f"updateStaticTopic {WHO} -b a -qn 4"
DRAIN = f"migrateLogicalQueue {WHO} -fb a"
LATER = replace(HERE, now_ms=HERE.now_ms + 60_000)


@pytest.fixture
def created() -> StaticCluster:
    """Three broker sets, four queues at a, some messages in each."""
    cluster = StaticCluster("abc")
    cluster.run(CREATE)
    cluster.brokers["a"].ends = {queue: (0, 4_000 + 2_000 * queue) for queue in range(4)}
    cluster.calls.clear()
    return cluster


def assert_whole(cluster: StaticCluster) -> None:
    """All brokers agree."""
    assert topic_error(cluster.known().details) is None
    assert len(cluster.known().details) == len(cluster.brokers)


def test_drain_when_a_master_fails_over_amid_it_then_the_new_one_is_told(
    created: StaticCluster,
) -> None:
    """Every step may be done twice."""
    walk = created.run(f"migrateLogicalQueue {WHO} -fb a -b b --dry-run")
    assert len(walk) == 1
    created.masters["b"] = "b:2"
    answer, seen = created.answer, []

    def failing_over(call: object) -> object:
        """The list names the old master until somebody has missed it."""
        seen.append(call.address)  # type: ignore[attr-defined]
        created.masters["b"] = "b:2" if "b:1" in seen and seen[-1] != "b:1" else "b:1"
        created.down = {"b:1"} if len(seen) > 4 else set()
        return answer(call)  # type: ignore[arg-type]

    created.answer = failing_over  # type: ignore[method-assign, assignment]
    created.run(f"migrateLogicalQueue {WHO} -fb a -b b")
    assert "b:2" in seen
    assert set(created.leaders().values()) == {"b"}
    assert_whole(created)


def lagging(cluster: StaticCluster, call: Call) -> RemotingCommand:
    """Set a's ends as a slave tells them that has a hundred messages of each queue."""
    broker = cluster.brokers["a"]
    ends, broker.ends = broker.ends, dict.fromkeys(range(4), (0, 100))
    try:
        return call.command.reply(0, body=cluster._ends(broker, call.command))
    finally:
        broker.ends = ends


def fail_over(cluster: StaticCluster, refusal: str | None) -> None:
    """Set a's master misses the first 513 and is a slave from then on, which lags.

    Args:
        refusal: what it answers to what a master alone may do; None for nothing, as while it stalls,
            and for ends as a Java slave tells them.
    """
    answer = cluster.answer

    def failing_over(call: Call) -> RemotingCommand:
        if call.address != "a:1" or call.command.code not in (202, 513):
            return answer(call)
        if call.command.code == 513:
            cluster.masters["a"] = "a:2"
        if refusal is not None:
            return call.command.reply(1, refusal)
        if call.command.code == 513:
            raise Unreachable("a:1 did not answer")
        return lagging(cluster, call)

    cluster.answer = failing_over  # type: ignore[method-assign]


@pytest.mark.parametrize("refusal", [None, "topics are changed at the master only"])
def test_drain_when_the_old_master_is_a_slave_by_now_then_the_new_one_says_where_queues_end(
    created: StaticCluster, refusal: str | None
) -> None:
    """The slave lacks messages that were acknowledged: their offsets would be given again."""
    created.brokers["a"].ends = dict.fromkeys(range(4), (0, 50_000))
    fail_over(created, refusal)
    *_, last = created.run(f"{DRAIN} -b b")
    assert last.data["finished"] is True
    begins = [one[-1].logic_offset for one in histories(created.known()).values()]
    assert begins == [60_000] * 4
    assert_whole(created)


def replace_javas(cluster: StaticCluster, code: int) -> None:
    """Set a's master is a slave after the first request of this code, takes all and lags, as Java's.

    The new master has not heard of what the old one is told, nor of what it was told lately.
    """
    answer, before = cluster.answer, cluster.brokers["a"].detail

    def replaced(call: Call) -> RemotingCommand:
        if call.address != "a:1":
            return answer(call)
        if cluster.masters["a"] == "a:1":
            if call.command.code != code:
                return answer(call)
            found = call.command.reply(0) if code == 513 else answer(call)
            cluster.masters["a"], cluster.brokers["a"].detail = "a:2", before
            return found
        assert call.command.code in (202, 513)
        return lagging(cluster, call)

    cluster.answer = replaced  # type: ignore[method-assign]


@pytest.mark.parametrize("code", [351, 513])
def test_drain_when_javas_old_master_takes_what_it_is_told_then_the_new_one_is_told_before_it_is_asked(
    created: StaticCluster, code: int
) -> None:
    """Java's slaves take mappings and say where queues end; the master took messages all the while."""
    created.brokers["a"].ends = dict.fromkeys(range(4), (0, 50_000))
    replace_javas(created, code)
    *_, last = created.run(f"{DRAIN} -b b")
    assert last.data["finished"] is True
    begins = [one[-1].logic_offset for one in histories(created.known()).values()]
    assert begins == [60_000] * 4
    assert_whole(created)


@pytest.mark.parametrize("servers", ["new:1;ns:1", "ns:1;new:1"])
def test_drain_when_a_name_server_lacks_the_set_then_the_others_say_that_it_has_another_master(
    created: StaticCluster, servers: str
) -> None:
    """It was started anew. That it does not list a set is no word for the master of before."""
    created.brokers["a"].ends = dict.fromkeys(range(4), (0, 50_000))
    replace_javas(created, 513)
    answer = created.answer

    def listing(call: Call) -> RemotingCommand:
        if call.address != "new:1":
            return answer(call)
        if call.command.code != 106:
            return call.command.reply(17, "no such topic")
        groups = {
            name: {"brokerAddrs": {"0": f"{name}:1"}, "brokerName": name, "cluster": "C"}
            for name in "bc"
        }
        body = {"brokerAddrTable": groups, "clusterAddrTable": {"C": ["b", "c"]}}
        return call.command.reply(0, body=fastjson.dumps(body))

    created.answer = listing  # type: ignore[method-assign]
    *_, last = created.run(f"migrateLogicalQueue -n {servers} -t {TOPIC} -fb a -b b -c C")
    assert last.data["finished"] is True
    begins = [one[-1].logic_offset for one in histories(created.known()).values()]
    assert begins == [60_000] * 4
    assert_whole(created)


def test_drain_when_the_new_master_was_never_told_to_stop_then_it_is_before_it_is_asked(
    created: StaticCluster,
) -> None:
    """An earlier command told the old one, died, and this one had no more to tell it."""
    created.brokers["a"].ends = dict.fromkeys(range(4), (0, 50_000))
    before = created.brokers["a"].detail
    assert created.run_killed(f"{DRAIN} -b b", 7)
    after, created.brokers["a"].detail = created.brokers["a"].detail, before
    assert after != before
    replace_javas(created, 351)
    created.brokers["a"].detail = after
    created.calls.clear()
    created.run(f"{DRAIN} -b b", LATER)
    asked = [call.command.code for call in created.calls if call.address == "a:2"]
    assert asked[:2] == [513, 202]
    begins = [one[-1].logic_offset for one in histories(created.known()).values()]
    assert begins == [60_000] * 4
    assert_whole(created)


@pytest.mark.parametrize("force", [False, True])
def test_drain_when_the_new_master_knows_a_later_change_then_force_alone_overrules_it(
    created: StaticCluster, force: bool
) -> None:
    """It is told the same as any other, and under the same rule."""
    broker = created.brokers["a"]
    assert broker.detail is not None
    old, broker.detail = broker.detail, replace(broker.detail, epoch=broker.detail.epoch + 10**9)
    replace_javas(created, 513)
    broker.detail = old
    *_, last = created.run(f"{DRAIN} -b b -fr {str(force).lower()}")
    assert last.data["finished"] is force
    if force:
        assert_whole(created)
    else:
        assert "is older than" in str(last.failures[0])
        assert len(created.leaders()) == 4


def test_drain_when_a_set_that_leads_nothing_has_another_master_then_it_need_not_be_told_to_stop(
    created: StaticCluster,
) -> None:
    """Messages wait at this point: nobody is told more than must be."""
    answer = created.answer

    def replaced(call: Call) -> RemotingCommand:
        found = answer(call)
        if (call.address, call.command.code) == ("a:1", 513):
            created.masters["b"], created.down = "b:2", {"b:1"}
        return found

    created.answer = replaced  # type: ignore[method-assign]
    created.run(f"{DRAIN} -b b")
    codes = [(call.address, call.command.code) for call in created.calls]
    at = codes.index(("a:1", 513))
    assert codes[at + 1 : at + 3] == [("ns:1", 106), ("a:1", 202)]
    assert ("b:2", 513) in codes[at + 3 :]
    assert_whole(created)


def test_dry_run_when_a_set_has_another_master_then_that_one_is_told_nothing(
    created: StaticCluster,
) -> None:
    """Nobody has stopped leading."""
    replace_javas(created, 351)
    before = created.known()
    created.run(f"{DRAIN} --dry-run")
    assert created.known() == before
    assert 513 not in [call.command.code for call in created.calls]


@pytest.mark.parametrize("code", [None, 1])
def test_drain_when_no_name_server_names_the_masters_amid_it_then_it_goes_on(
    created: StaticCluster, code: int | None
) -> None:
    """Queues have no leader at this point, and nothing says that there is another master."""
    answer, told = created.answer, set()

    def ailing(call: Call) -> RemotingCommand:
        told.update({call.address} if call.command.code == 513 else ())
        if call.address != "ns:1" or not told:
            return answer(call)
        if code is None:
            raise Unreachable("ns:1 is down")
        return call.command.reply(code, "it is starting")

    created.answer = ailing  # type: ignore[method-assign]
    *_, last = created.run(f"{DRAIN} -b b")
    assert last.data["finished"] is True
    assert_whole(created)


def test_change_when_what_was_left_met_another_master_then_it_is_told_by_itself(
    created: StaticCluster,
) -> None:
    """One run finishes what was left, then does what it is for, with what it found out meanwhile."""
    assert created.run_killed(f"{DRAIN} -b b", 6)
    fail_over(created, None)
    answer, told = created.answer, []

    def noting(call: Call) -> RemotingCommand:
        told.extend([call.address] if call.command.code == 513 else [])
        return answer(call)

    created.answer = noting  # type: ignore[method-assign]
    first, second, _ = created.run(f"migrateLogicalQueue {WHO} -fb b -b c", LATER)
    assert ("unfinished" in first.tables[0].title, "unfinished" in second.tables[0].title) == (
        True, False,
    )  # fmt: skip
    assert told.count("a:1") == 1, "it did not answer once"
    assert set(created.leaders().values()) == {"c"}
    assert_whole(created)


@pytest.mark.parametrize("code", [None, 1, 0])
def test_drain_when_a_master_refuses_and_no_name_server_can_say_more_then_it_says_so(
    created: StaticCluster, code: int | None
) -> None:
    """What the broker said is what an operator needs, not what ails a name server."""
    fail_over(created, "there is no room")
    answer = created.answer

    def ailing(call: Call) -> RemotingCommand:
        if call.address != "ns:1" or created.masters["a"] == "a:1":
            return answer(call)
        if code is None:
            raise Unreachable("ns:1 is down")
        return call.command.reply(code, "it is starting", body=b"nothing")

    created.answer = ailing  # type: ignore[method-assign]
    *_, last = created.run(f"{DRAIN} -b b")
    assert (last.data["finished"], len(last.data["steps"])) == (False, 1)
    assert "there is no room" in str(last.failures[0])


def test_drain_when_a_master_refuses_and_there_is_no_other_then_it_says_so(
    created: StaticCluster,
) -> None:
    """Whatever it refused would be refused once more."""
    fail_over(created, "there is no room")
    answer = created.answer

    def named_still(call: Call) -> RemotingCommand:
        found = answer(call)
        created.masters["a"] = "a:1"
        return found

    created.answer = named_still  # type: ignore[method-assign]
    *_, last = created.run(f"{DRAIN} -b b")
    assert (last.data["finished"], len(last.data["steps"])) == (False, 1)
    assert "there is no room" in str(last.failures[0])
    assert created.codes()[-1] != ("a", 202)
