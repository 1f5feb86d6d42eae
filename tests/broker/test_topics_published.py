"""17 and 18 are answered when the topic is on disk and name servers know it, or cannot in time."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from rmqha.broker.topics.aio.topic_requests import TOLD_MS
from rmqha.remoting import fastjson
from rmqha.remoting.command import RemotingCommand
from tests.broker.replicas import NAME_SERVER, ReplicaCluster

FIELDS = {
    "topic": "Young", "readQueueNums": "2", "writeQueueNums": "2", "perm": "6",
    "topicFilterType": "SINGLE_TAG", "order": "false", "defaultTopic": "TBW102",
}  # fmt: skip


@pytest.fixture
def cluster() -> Iterator[ReplicaCluster]:
    """One replica, registered."""
    one = ReplicaCluster(seed=51, replicas=1)
    one.boot_all()
    one.until(lambda: one.name_server.registered, "registration")
    one.run_for(500)
    yield one
    one.close()


def create(cluster: ReplicaCluster, code: int = 17, **fields: str) -> tuple[RemotingCommand, int]:
    """Make a topic; the answer, and after how many milliseconds it came."""
    master = cluster.master()
    assert master is not None
    body = b""
    if code == 18:
        topic = {"topicName": "Young", "readQueueNums": 2, "writeQueueNums": 2, "perm": 6}
        body = fastjson.dumps({"topicConfigList": [topic]})
    before = cluster.loop.time()
    answer = cluster.ask(master.config.address, code, {**FIELDS, **fields}, body, timeout_ms=10_000)
    return answer, round((cluster.loop.time() - before) * 1000)


def listed(cluster: ReplicaCluster) -> set[str]:
    """The topics that the name server was told last."""
    _, body = cluster.name_server.registered[-1]
    return set(body["topicConfigSerializeWrapper"]["topicConfigTable"])


@pytest.mark.costly
@pytest.mark.parametrize("code", [17, 18])
def test_topic_when_created_then_the_answer_follows_the_name_server_and_the_disk(
    cluster: ReplicaCluster, code: int
) -> None:
    """Who asks for the route at once finds it; a power cut right after the answer takes nothing."""
    assert "Young" not in listed(cluster)
    answer, _ = create(cluster, code)
    assert answer.code == 0
    assert "Young" in listed(cluster)
    master = cluster.master()
    assert master is not None
    host = cluster.host_of(master)
    cluster.kill(host, power=True)
    cluster.boot(host)
    cluster.until(lambda: cluster.master() not in (None, master), "master")
    after = cluster.master()
    assert after is not None
    assert after.topics.table.get("Young") is not None


def test_topic_when_it_is_so_already_then_nobody_is_told(cluster: ReplicaCluster) -> None:
    """The same again changes nothing, as in Java."""
    create(cluster)
    count = len(cluster.name_server.registered)
    assert create(cluster)[0].code == 0
    assert len(cluster.name_server.registered) == count


def test_topic_when_a_name_server_is_silent_then_the_answer_comes_all_the_same(
    cluster: ReplicaCluster,
) -> None:
    """Java waits for 24 s, and its mqadmin gives up before that; ours hears of it later."""
    master = cluster.master()
    assert master is not None
    host = master.config.host
    cluster.net.cut(host, NAME_SERVER)
    answer, waited_ms = create(cluster)
    assert answer.code == 0
    assert 0.95 * TOLD_MS <= waited_ms < 1.2 * TOLD_MS  # clocks of hosts differ
    cluster.net.heal()
    cluster.until(lambda: "Young" in listed(cluster), "registration", 60_000)


def test_wheel_topic_when_timers_are_off_then_it_does_not_exist() -> None:
    """``timerWheelEnable=false``: as in Java, there is nothing to deliver from it."""
    with ReplicaCluster(seed=52, replicas=1, timerWheelEnable="false") as cluster:
        cluster.boot_all()
        master = cluster.master()
        assert master is not None
        assert master.topics.table.get("rmq_sys_wheel_timer") is None
        assert master.topics.table.get("SCHEDULE_TOPIC_XXXX") is not None
