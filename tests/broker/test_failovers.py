"""Failovers, each right after something was acknowledged; nothing of it may be gone.

``RMQHA_FAILOVERS=1000`` plays as many; each kind comes equally often.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable

import pytest

from rmqha.broker.aio.replica import BrokerReplica
from rmqha.store.record import Record
from tests.broker.replicas import QUEUES, TOPIC, ReplicaCluster, master_of, send_fields
from tests.broker.test_pop_in_simulator import pop
from tests.broker.test_producer_services import bodies, end, half, stored

FAILOVERS = int(os.environ.get("RMQHA_FAILOVERS", "54"))
MOST_PER_CLUSTER = 54
BACK_MS = 1_000
STREAM = "Stream"
"""Of which a consumer commits each message."""

ASK = {
    "readQueueNums": "8", "writeQueueNums": "8", "perm": "6", "order": "false",
    "defaultTopic": "TBW102", "topicFilterType": "SINGLE_TAG", "topicSysFlag": "0",
}  # fmt: skip

Check = Callable[[BrokerReplica], None]


class Failovers:
    """One cluster whose master is killed again and again.

    Attributes:
        checks: what must hold at every later master, too.
    """

    def __init__(self, cluster: ReplicaCluster) -> None:
        self.cluster = cluster
        self.number = self.turn = 0
        self.counts: Counter[str] = Counter()
        self.checks: list[Check] = []
        self.bodies: list[bytes] = []
        self.committed: list[tuple[float, int]] = []
        self.position = 0

    def ask(self, code: int, fields: dict[str, str], body: bytes = b"") -> None:
        """A request that succeeds."""
        answer = self.cluster.ask(master_of(self.cluster).config.address, code, fields, body)
        assert answer.code == 0, (code, fields, answer.remark)

    def send(self, more: str = "") -> bytes:
        """One message to the topic of all."""
        fields = send_fields(self.number)
        fields["i"] += more
        body = f"body-{self.number}".encode()
        self.ask(310, fields, body)
        self.bodies.append(body)
        return body

    # -- what is acknowledged right before -----------------------------------------------------------

    def topic_made(self) -> Check:
        """17."""
        name = f"T{self.number}"
        self.ask(17, {"topic": name, **ASK})
        return lambda master: has_topic(master, name, 6)

    def topic_made_by_a_send(self) -> Check:
        """310 to a topic that there is not."""
        name = f"S{self.number}"
        self.ask(310, send_fields(self.number, name), b"x")
        return lambda master: has_topic(master, name, 6)

    def topic_changed(self) -> Check:
        """17 once more."""
        name = f"C{self.number}"
        self.ask(17, {"topic": name, **ASK})
        self.cluster.run_for(50)
        self.ask(17, {"topic": name, **ASK, "perm": "4"})
        return lambda master: has_topic(master, name, 4)

    def topic_deleted(self) -> Check:
        """215, and what was in the topic is not there when it is made again."""
        name = f"D{self.number}"
        self.ask(17, {"topic": name, **ASK})
        self.ask(310, {**send_fields(0, name), "e": "0"}, b"old")
        self.ask(215, {"topic": name})

        def check(master: BrokerReplica) -> None:
            assert master.topics.table.get(name) is None
            assert not master.store.reader.has_topic(name)

        return check

    def group_made(self) -> Check:
        """200."""
        name, most = f"G{self.number}", self.number % 16
        self.ask(200, {}, json.dumps({"groupName": name, "retryMaxTimes": most}).encode())

        def check(master: BrokerReplica) -> None:
            group = master.groups.table.get(name)
            assert group is not None
            assert group.retry_max_times == most

        return check

    def group_deleted(self) -> Check:
        """207."""
        name = f"E{self.number}"
        self.ask(200, {}, json.dumps({"groupName": name}).encode())
        self.ask(207, {"groupName": name})

        def check(master: BrokerReplica) -> None:
            assert master.groups.table.get(name) is None

        return check

    def delayed(self) -> Check:
        """A delay level and a timer."""
        for more in ("DELAY\x011\x02", "TIMER_DELAY_MS\x011000\x02"):
            self.send(more)
            self.number += 1
        return lambda master: None

    def transaction(self) -> Check:
        """A half message that is committed after the failover, by whoever reigns."""
        fields = half(self.cluster, self.number)
        self.bodies.append(f"body-{self.number}".encode())

        def check(master: BrokerReplica) -> None:
            records: list[Record] = stored(self.cluster, "RMQ_SYS_TRANS_HALF_TOPIC", 1)
            offset = int(fields["commitLogOffset"])
            assert any(one.physical_offset == offset for one in records)
            if f"end {offset}" not in self.counts:
                assert end(self.cluster, fields, 8) == 0
                self.counts[f"end {offset}"] = 1

        return check

    def popped(self) -> Check:
        """A message that was popped and not acknowledged comes again."""
        self.send()
        assert pop(self.cluster)[0] in (0, 210)
        return lambda master: None

    KINDS = (
        topic_made, topic_made_by_a_send, topic_changed, topic_deleted, group_made, group_deleted,
        delayed, transaction, popped,
    )  # fmt: skip

    # -- one failover ----------------------------------------------------------------------------------

    def commit(self) -> None:
        """A consumer commits all along, one message further each time."""
        self.ask(310, {**send_fields(0, STREAM), "e": "0"}, b"stream")
        self.position += 1
        fields = {
            "consumerGroup": "Steady", "topic": STREAM, "queueId": "0",
            "commitOffset": str(self.position),
        }  # fmt: skip
        self.ask(15, fields)
        self.committed.append((self.cluster.loop.time() * 1000, self.position))

    def play(self) -> None:
        """Acknowledge one thing, kill the master, and look at the next one."""
        kind = self.KINDS[self.turn % len(self.KINDS)]
        self.turn += 1
        self.number += 1
        for _ in range(12):
            self.commit()
            self.cluster.run_for(100)
        self.checks.append(kind(self))
        self.counts[kind.__name__] += 1
        old = master_of(self.cluster)
        host = self.cluster.host_of(old)
        killed_ms = self.cluster.loop.time() * 1000
        self.cluster.kill(host)
        self.cluster.until(lambda: self.cluster.master() not in (None, old), "new master")
        master = master_of(self.cluster)
        for check in self.checks:
            check(master)
        self._check_position(master, killed_ms)
        self.cluster.boot(host)
        self.cluster.until(self.cluster.in_sync, "all three", 120_000)

    def _check_position(self, master: BrokerReplica, killed_ms: float) -> None:
        found = master.offsets.table.query("Steady", STREAM, 0) or 0
        at_least = max(
            (offset for at, offset in self.committed if at <= killed_ms - BACK_MS), default=0
        )
        assert at_least <= found <= self.position
        self.position = found
        self.committed = [(killed_ms - BACK_MS, found)]

    def finish(self) -> None:
        """Every delayed, committed and popped message comes."""
        missing = set(self.bodies)

        def all_come() -> bool:
            missing.difference_update(bodies(stored(self.cluster, TOPIC)))
            return not missing

        self.cluster.until(all_come, "all deliveries", 60_000)
        again: set[bytes] = set()
        wanted = set(bodies(stored(self.cluster, TOPIC)))

        def all_popped() -> bool:
            again.update(one.body for one in pop(self.cluster)[1])
            return wanted <= again

        self.cluster.until(all_popped, "all messages by pop", 120_000)


def has_topic(master: BrokerReplica, name: str, perm: int) -> None:
    """A topic is there, as it was asked for."""
    topic = master.topics.table.get(name)
    assert topic is not None, name
    assert topic.perm == perm


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("part", range((FAILOVERS + MOST_PER_CLUSTER - 1) // MOST_PER_CLUSTER))
def test_failovers_when_each_comes_right_after_an_answer_then_nothing_is_lost(part: int) -> None:
    """Topics, groups, delays, timers, transactions and pops as acknowledged; a position at most
    one second back, and never ahead."""
    with ReplicaCluster(
        seed=100 + part, messageDelayLevel="1s 5s", haHousekeepingInterval=2_000,
        timerFlushIntervalMs=200,
    ) as cluster:  # fmt: skip
        cluster.boot_all()
        cluster.until(cluster.in_sync, "SyncStateSet of three")
        story = Failovers(cluster)
        story.ask(
            17, {"topic": TOPIC, **ASK, "readQueueNums": str(QUEUES), "writeQueueNums": str(QUEUES)}
        )
        story.ask(200, {}, b'{"groupName": "Steady"}')
        count = min(MOST_PER_CLUSTER, FAILOVERS - part * MOST_PER_CLUSTER)
        for _ in range(count):
            story.play()
        story.finish()
        played = sum(story.counts[kind.__name__] for kind in Failovers.KINDS)
        assert played == count
        assert all(story.counts[kind.__name__] for kind in Failovers.KINDS[:count])
