"""Changes of a static topic that is also where the command does not look, or not every name server."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from rmqha.client.exchange import Call, Unreachable
from rmqha.remoting import fastjson
from rmqha.remoting.command import RemotingCommand
from rmqha.statictopic.known import PlanRefused, histories
from tests.admin.driving import HERE
from tests.admin.static_cluster import TOPIC, StaticCluster

WHO = f"-t {TOPIC}"
GROW = f"updateStaticTopic -n ns:1 {WHO} -c C -qn 6"
LATER = replace(HERE, now_ms=HERE.now_ms + 60_000)
ORDINARY = {
    "topicName": TOPIC, "perm": 6, "order": False, "readQueueNums": 4, "writeQueueNums": 4,
    "topicFilterType": "SINGLE_TAG", "topicSysFlag": 0, "attributes": {},
}  # fmt: skip


class TwoClusters(StaticCluster):
    """Sets a and b are cluster C, x is cluster D.

    Attributes:
        routes: whether the name server has heard of any topic.
        away: sets that are not listed any more.
    """

    def __init__(self) -> None:
        super().__init__("abx")
        self.routes = True
        self.away: set[str] = set()

    def _answer(self, call: Call) -> RemotingCommand:
        if call.address != "ns:1":
            return super()._answer(call)
        groups = {
            name: {
                "brokerAddrs": {"0": f"{name}:1"}, "brokerName": name,
                "cluster": "D" if name == "x" else "C",
            }
            for name in self.brokers
        }  # fmt: skip
        if call.command.code == 106:
            table = {"C": sorted({"a", "b"} - self.away), "D": ["x"]}
            body = {"brokerAddrTable": groups, "clusterAddrTable": table}
            return call.command.reply(0, body=fastjson.dumps(body))
        having = [groups[name] for name, one in self.brokers.items() if one.config]
        if not self.routes or not having:
            return call.command.reply(17, "no such topic")
        body = {"brokerDatas": having, "queueDatas": []}
        return call.command.reply(0, body=fastjson.dumps(body))


@pytest.fixture(params=["static", "ordinary"])
def elsewhere(request: pytest.FixtureRequest) -> TwoClusters:
    """Cluster D has the topic."""
    cluster = TwoClusters()
    if request.param == "static":
        cluster.run(f"updateStaticTopic -n ns:1 {WHO} -b x -qn 4")
    else:
        cluster.brokers["x"].config = dict(ORDINARY)
    cluster.calls.clear()
    return cluster


@pytest.mark.parametrize("routes", [True, False])
def test_create_when_another_cluster_has_the_topic_then_it_is_refused(
    elsewhere: TwoClusters, *, routes: bool
) -> None:
    """The newer mapping would take all clients over, and what D has would not be read any more."""
    elsewhere.routes = routes
    before = elsewhere.leaders()
    with pytest.raises(PlanRefused, match="broker set x of cluster D has it; -fr true"):
        elsewhere.run(GROW, LATER)
    assert (elsewhere.codes(), elsewhere.leaders()) == ([], before)


def test_create_when_another_cluster_has_the_topic_and_forced_then_it_is_done(
    elsewhere: TwoClusters,
) -> None:
    elsewhere.run(f"{GROW} -fr true", LATER)
    assert {*elsewhere.leaders().values()} >= {"a", "b"}


def test_create_when_a_set_elsewhere_does_not_say_then_it_takes_force() -> None:
    cluster = TwoClusters()
    cluster.down.add("x:1")
    with pytest.raises(PlanRefused, match="broker set x of cluster D does not say: x:1 is down"):
        cluster.run(GROW)
    assert cluster.codes() == []
    cluster.run(f"{GROW} -fr true")
    assert len(cluster.leaders()) == 6


@pytest.mark.parametrize("code", [3, 16])
@pytest.mark.parametrize("routed", [True, False])
def test_create_when_a_set_elsewhere_never_says_then_the_route_decides(
    code: int, *, routed: bool
) -> None:
    """A broker of 4.9 has no static topics; one with other users would stand in the way for good."""
    cluster = TwoClusters()
    cluster.brokers["x"].config = dict(ORDINARY) if routed else None
    answer = cluster.answer
    cluster.answer = lambda call: (  # type: ignore[method-assign]
        call.command.reply(code, "no") if call.address == "x:1" else answer(call)
    )
    if routed:
        with pytest.raises(PlanRefused, match="broker set x of cluster D has it"):
            cluster.run(GROW)
        return
    cluster.run(GROW)
    assert len(cluster.leaders()) == 6


def test_create_when_the_route_names_a_set_then_it_need_not_be_asked(
    elsewhere: TwoClusters,
) -> None:
    elsewhere.down.add("x:1")
    with pytest.raises(PlanRefused, match="broker set x of cluster D has it; -fr true"):
        elsewhere.run(GROW, LATER)
    assert "x:1" not in {call.address for call in elsewhere.calls}


def test_change_when_the_topic_is_known_then_sets_elsewhere_are_not_asked() -> None:
    """The routes tell, and clusters that have nothing to do with it may be down."""
    cluster = TwoClusters()
    cluster.run(GROW)
    cluster.down.add("x:1")
    cluster.run(f"updateStaticTopic -n ns:1 {WHO} -c C -qn 8", LATER)
    assert len(cluster.leaders()) == 8


UNHEARD = "dead:1 is down; broker sets that no other name server lists are passed over"
WORDS = f"{TOPIC} is elsewhere as well: broker set x of cluster D has it"


@pytest.mark.parametrize(
    "line", ["migrateLogicalQueue -fb a", "migrateLogicalQueue -fb a --dry-run",
             "updateLogicalQueueMapping -c C"],
)  # fmt: skip
def test_change_when_another_cluster_has_it_as_well_by_now_then_it_is_a_warning(line: str) -> None:
    """Force would be the way past a refusal, and gives up sets that are away."""
    cluster = TwoClusters()
    cluster.run(GROW)
    cluster.brokers["x"].config = dict(ORDINARY)
    first, *others = cluster.run(f"{line} -n ns:1 {WHO}", LATER)
    assert first.warnings == (WORDS,)
    assert [one.warnings for one in others] == [()] * len(others)
    assert [one.failures for one in (first, *others)] == [()] * (1 + len(others))


def test_change_when_the_topic_is_elsewhere_and_a_set_is_away_then_its_segments_stay() -> None:
    cluster = TwoClusters()
    cluster.run(GROW)
    for name in "ab":
        cluster.brokers[name].ends = dict.fromkeys(range(6), (0, 8))
    cluster.run(f"migrateLogicalQueue -n ns:1 {WHO} -fb b -b a", LATER)
    before = histories(cluster.known())
    assert {segments[0].broker_name for segments in before.values()} == {"a", "b"}
    cluster.brokers["x"].config = dict(ORDINARY)
    gone = cluster.brokers.pop("b")
    cluster.away = {"b"}
    cluster.run(
        f"updateStaticTopic -n ns:1 {WHO} -c C -qn 8", replace(LATER, now_ms=LATER.now_ms + 60_000)
    )
    cluster.brokers["b"] = gone
    assert {number: histories(cluster.known())[number] for number in before} == before


def test_create_when_a_name_server_does_not_answer_then_it_takes_force() -> None:
    """The other was started anew, and has not heard of the set that leads the topic."""
    cluster = TwoNameServers("ac")
    cluster.run(f"updateStaticTopic -n ns:1 {WHO} -b c -qn 4")
    cluster.brokers["a"].config = cluster.brokers["a"].detail = None
    cluster.down.add("dead:1")
    create = f"updateStaticTopic -n dead:1;new:1 {WHO} -c C -qn 4"
    cluster.calls.clear()
    with pytest.raises(PlanRefused, match="a name server does not say: dead:1 is down; -fr true"):
        cluster.run(create, LATER)
    assert (cluster.codes(), {*cluster.leaders().values()}) == ([], {"c"})
    first, _ = cluster.run(f"{create} -fr true", LATER)
    assert first.warnings == (UNHEARD,)


@pytest.mark.parametrize("code", [105, 106])
def test_create_when_a_name_server_answers_one_question_alone_then_it_takes_force(
    code: int,
) -> None:
    """Where the sets are, or where the topic is: the other one is what may be missing."""
    cluster = StaticCluster("a")
    answer = cluster.answer

    def ailing(call: Call) -> RemotingCommand:
        if call.address == "slow:1":
            if call.command.code == code:
                raise Unreachable("slow:1 did not answer")
            body = {"brokerAddrTable": {}, "clusterAddrTable": {}}
            return call.command.reply(0 if code == 105 else 17, body=fastjson.dumps(body))
        return answer(call)

    cluster.answer = ailing  # type: ignore[method-assign]
    with pytest.raises(PlanRefused, match="a name server does not say: slow:1 did not answer"):
        cluster.run(f"updateStaticTopic -n ns:1;slow:1 {WHO} -c C -qn 4")


def test_change_when_something_was_left_unfinished_then_it_warns_once() -> None:
    cluster = StaticCluster("abc")
    cluster.run(f"updateStaticTopic -n ns:1 {WHO} -b a -qn 4")
    assert cluster.run_killed(f"migrateLogicalQueue -n ns:1 {WHO} -fb a -b b", 9, LATER)
    cluster.down.add("dead:1")
    much_later = replace(LATER, now_ms=LATER.now_ms + 60_000)
    reports = cluster.run(f"migrateLogicalQueue -n ns:1;dead:1 {WHO} -fb b -b c", much_later)
    assert [one.warnings for one in reports] == [(UNHEARD,), (), ()]


def test_change_when_a_name_server_does_not_answer_then_it_is_a_warning() -> None:
    cluster = StaticCluster("ab")
    cluster.run(GROW)
    cluster.down.add("dead:1")
    first, _ = cluster.run(f"updateStaticTopic -n ns:1;dead:1 {WHO} -c C -qn 8", LATER)
    assert (first.warnings, len(cluster.leaders())) == ((UNHEARD,), 8)


class TwoNameServers(StaticCluster):
    """``new:1`` was started anew, and set c has not registered there yet."""

    def _answer(self, call: Call) -> RemotingCommand:
        if call.address == "new:1":
            names = [name for name in self.brokers if name != "c"]
            if call.command.code == 105:
                return call.command.reply(17, "no such topic")
            groups = {
                name: {"brokerAddrs": {"0": f"{name}:1"}, "brokerName": name, "cluster": "C"}
                for name in names
            }
            body = {"brokerAddrTable": groups, "clusterAddrTable": {"C": names}}
            return call.command.reply(0, body=fastjson.dumps(body))
        return super()._answer(call)


@pytest.mark.parametrize("servers", ["new:1;ns:1", "ns:1;new:1"])
def test_change_when_a_name_server_lacks_a_set_then_the_others_are_believed(servers: str) -> None:
    """Its queues would be given to others, as if it had never had any."""
    cluster = TwoNameServers("abc")
    create = f"updateStaticTopic -n {servers} {WHO} -c C -qn 6"
    cluster.run(create)
    before = cluster.leaders()
    assert {*before.values()} == {"a", "b", "c"}
    (report,) = cluster.run(create, LATER)
    assert (report.plain, cluster.leaders()) == ("nothing to do\n", before)


def test_change_when_no_name_server_answers_then_it_says_so() -> None:
    cluster = StaticCluster("a")
    cluster.down |= {"ns:1", "other:1"}
    with pytest.raises(Unreachable, match="ns:1 is down; other:1 is down"):
        cluster.run(f"updateStaticTopic -n ns:1;other:1 {WHO} -c C -qn 6")
