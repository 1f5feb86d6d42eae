"""Changes of a static topic that is also where the command does not look, or not every name server."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from rmqha.client.exchange import Call, Unreachable
from rmqha.remoting import fastjson
from rmqha.remoting.command import RemotingCommand
from rmqha.statictopic.known import PlanRefused
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
    """

    def __init__(self) -> None:
        super().__init__("abx")
        self.routes = True

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
            table = {"C": ["a", "b"], "D": ["x"]}
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
    cluster.down.clear()
    answer = cluster.answer
    cluster.answer = lambda call: (  # type: ignore[method-assign]
        call.command.reply(16, "not you") if call.address == "x:1" else answer(call)
    )
    with pytest.raises(PlanRefused, match=r"broker set x of cluster D does not say: .*not you"):
        cluster.run(GROW)
    cluster.run(f"{GROW} -fr true")
    assert len(cluster.leaders()) == 6


def test_change_when_the_topic_is_known_then_sets_elsewhere_are_not_asked() -> None:
    """The routes tell, and clusters that have nothing to do with it may be down."""
    cluster = TwoClusters()
    cluster.run(GROW)
    cluster.down.add("x:1")
    cluster.run(f"updateStaticTopic -n ns:1 {WHO} -c C -qn 8", LATER)
    assert len(cluster.leaders()) == 8


def test_change_when_another_cluster_has_it_as_well_by_now_then_it_is_refused() -> None:
    cluster = TwoClusters()
    cluster.run(GROW)
    cluster.brokers["x"].config = dict(ORDINARY)
    with pytest.raises(PlanRefused, match="broker set x of cluster D has it"):
        cluster.run(f"migrateLogicalQueue -n ns:1 {WHO} -fb a", LATER)


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
