"""Pulls of messages that are in no memory: others are served meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from rmqha.broker.admin.aio.oldest_message import OldestMessage
from rmqha.broker.common.aio.cold_answers import patient
from rmqha.broker.pull.aio import pull_requests
from rmqha.ha.events import Role
from rmqha.remoting.command import RemotingCommand
from rmqha.store.aio import cold_reads, pulling
from tests.broker.replicas import TOPIC, ReplicaCluster, log_bytes, master_of

READ_MS = 400.0
NEAR_BYTES = 1_000
"""Some three messages."""

CODES = {"filtered pull": 11, "pop": 200050, "filtered pop": 200050, "told of a pop": 200054,
         "peek": 200052, "by key": 12, "by unique key": 12, "by place": 33, "by time": 29,
         "earliest": 32, "ends of a topic": 202, "how far a group is": 208, "all groups": 317,
         "reset": 222, "sent back": 36, "runtime figures": 28}  # fmt: skip


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[ReplicaCluster]:
    """A set in whose log the last messages only count as near."""
    monkeypatch.setattr(cold_reads, "COLD_BYTES", NEAR_BYTES)
    one = ReplicaCluster(seed=31, replicas=2, slaveReadEnable="true")
    one.boot_all()
    one.until(one.in_sync, "SyncStateSet of two")
    one.send_many(40)
    one.run_for(500)
    yield one
    one.close()


def fields() -> dict[str, str]:
    """Of a pull of the first queue from its begin."""
    return {
        "consumerGroup": "G", "topic": TOPIC, "queueId": "0", "queueOffset": "0",
        "maxMsgNums": "32", "sysFlag": "4", "commitOffset": "0", "suspendTimeoutMillis": "0",
        "subscription": "*", "subVersion": "0", "expressionType": "TAG",
    }  # fmt: skip


def pull(cluster: ReplicaCluster) -> RemotingCommand:
    """One pull, answered."""
    return cluster.ask(master_of(cluster).config.address, 11, fields())


@pytest.mark.costly
def test_pull_when_cold_then_it_is_answered_after_the_read_and_others_before(
    cluster: ReplicaCluster,
) -> None:
    """The loop stood still for it: 34 ms for everybody."""
    master = master_of(cluster)
    hot = pull(cluster)
    cluster.disks[master.config.host].mood.read_ms = READ_MS
    begun_s = cluster.loop.time()
    cluster.ask_later(master.config.address, 11, fields())
    assert cluster.send(7).code == 0  # type: ignore[union-attr]  # it answers
    assert (cluster.loop.time() - begun_s) * 1000 < READ_MS
    cold = pull(cluster)
    assert (cluster.loop.time() - begun_s) * 1000 >= READ_MS
    assert (hot.code, cold.code) == (0, 0)
    assert cold.body[: len(hot.body)] == hot.body


def test_pull_when_the_role_ends_during_its_read_then_it_is_refused(
    cluster: ReplicaCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A log may be cut meanwhile: what was found before is not sent any more."""
    master = master_of(cluster)
    cluster.disks[master.config.host].mood.read_ms = READ_MS
    cluster.loop.call_later(READ_MS / 2000, setattr, master, "role", None)
    answer = pull(cluster)
    assert answer.code == 14
    master.role = Role.MASTER


@pytest.mark.costly
def test_pull_when_the_disk_fails_then_the_broker_stops_as_with_any_failed_disk(
    cluster: ReplicaCluster,
) -> None:
    """A page that cannot be read was a SIGBUS."""
    master = master_of(cluster)
    mood = cluster.disks[master.config.host].mood
    mood.read_ms, mood.unreadable = READ_MS, True
    cluster.ask_later(master.config.address, 11, fields())
    for _ in range(100):
        cluster.loop.run_until_complete(_turn())
        if cluster.loop.errors:
            break
    assert "cannot be read" in str(cluster.loop.errors[0])
    cluster.loop.errors.clear()


POP = {"consumerGroup": "G", "topic": TOPIC, "queueId": "0", "maxMsgNums": "4",
       "invisibleTime": "60000", "pollTime": "0", "bornTime": "0", "initMode": "0",
       "expType": "TAG", "exp": "*"}  # fmt: skip
SQL = {"expressionType": "SQL92", "subscription": "KEYS IS NOT NULL"}


def asked(cluster: ReplicaCluster, what: str) -> dict[str, str]:
    """The fields of a request that looks into the log."""
    queue = {"topic": TOPIC, "queueId": "0"}
    first = cluster.acked[0]
    store = master_of(cluster).store
    place = store.pulling.place(TOPIC, first.queue_id, first.queue_offset)
    middle = store.reader.store_timestamp(TOPIC, 0, 5)
    return {
        "filtered pull": {**fields(), **SQL},
        "pop": POP,
        "filtered pop": {**POP, "expType": "SQL92", "exp": "KEYS IS NOT NULL"},
        "told of a pop": {**POP, "expType": "SQL92", "exp": "KEYS IS NOT NULL"},
        "peek": POP,
        "by key": {"topic": TOPIC, "key": "k1", "maxNum": "9"},
        "by unique key": {"topic": TOPIC, "key": "U1", "_UNIQUE_KEY_QUERY": "true"},
        "by place": {"offset": str(place)},
        "by time": {**queue, "timestamp": str(middle)},
        "earliest": queue,
        "ends of a topic": {"topic": TOPIC},
        "how far a group is": {"consumerGroup": "G", "topic": TOPIC},
        "all groups": {},
        "runtime figures": {},
        "reset": {"topic": TOPIC, "group": "G", "timestamp": str(middle), "isForce": "true"},
        "sent back": {"offset": str(place), "group": "G", "delayLevel": "1", "originTopic": TOPIC},
    }[what]


def log_ends_cold(cluster: ReplicaCluster) -> None:
    """The newest message of the topic is far behind the log's end as well."""
    for number in range(12):
        assert cluster.send(number, b="OTHER") is not None
    cluster.run_for(500)


@pytest.mark.costly
@pytest.mark.few
@pytest.mark.parametrize("what", sorted(CODES))
def test_request_when_it_looks_at_what_is_cold_then_others_are_answered_meanwhile(
    cluster: ReplicaCluster, what: str
) -> None:
    """Each of them waited for the disk in the event loop, and everybody with it."""
    log_ends_cold(cluster)
    master = master_of(cluster)
    master.config.values["enablePropertyFilter"] = "true"
    address, code, given = master.config.address, CODES[what], asked(cluster, what)
    pull(cluster)  # which makes the group
    commits = {**POP, "commitOffset": "1"}
    for queue_id in range(4):
        assert cluster.ask(address, 15, {**commits, "queueId": str(queue_id)}).code == 0
    # What a pop takes is not there for the next one, and how old the log is is read once.
    changes = what in ("pop", "filtered pop", "sent back", "runtime figures")
    hot = None if changes else cluster.ask(address, code, given)
    # Its slave has asked for them before; so it is when retention has moved the log's beginning.
    master.admin._oldest = OldestMessage(master.store, master.tasks)
    cluster.disks[master.config.host].mood.read_ms = READ_MS
    begun_s = cluster.loop.time()
    answers: list[RemotingCommand] = []
    cluster.ask_later(address, code, given, told=answers.append)
    assert cluster.send(7).code == 0  # type: ignore[union-attr]  # it answers
    assert not answers
    assert (cluster.loop.time() - begun_s) * 1000 < READ_MS
    cluster.until(lambda: answers, "the answer", 60_000)
    assert (cluster.loop.time() - begun_s) * 1000 >= READ_MS
    cold = answers[0]
    assert cold.code == 0
    if hot is not None:
        assert (cold.code, len(cold.body), sorted(cold.ext_fields or {})) == (
            hot.code, len(hot.body), sorted(hot.ext_fields or {}),
        )  # fmt: skip


@pytest.mark.costly
def test_filtered_pull_when_much_is_cold_and_little_wanted_then_it_goes_on_where_it_was(
    cluster: ReplicaCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is looked at twice, and nothing that is wanted is passed over."""
    log_ends_cold(cluster)
    master = master_of(cluster)
    master.config.values["enablePropertyFilter"] = "true"
    monkeypatch.setattr(pulling, "FETCH_BYTES", 400)
    last = cluster.acked[36]
    wanted = {**SQL, "subscription": f"UNIQ_KEY = 'U{last.body.decode().removeprefix('body-')}'"}
    cluster.disks[master.config.host].mood.read_ms = 20.0
    begun_s = cluster.loop.time()
    found = cluster.ask(
        master.config.address, 11, {**fields(), **wanted, "queueId": str(last.queue_id)}
    )
    assert (found.code, last.body in found.body) == (0, True)
    assert (cluster.loop.time() - begun_s) * 1000 > 3 * 20.0
    none = {**fields(), **SQL, "subscription": "UNIQ_KEY = 'nobody'"}
    monkeypatch.setattr(pull_requests, "FETCHES_MAX", 2)
    first = cluster.ask(master.config.address, 11, none)
    following = int((first.ext_fields or {})["nextBeginOffset"])
    assert (first.code, 0 < following < 10) == (20, True)
    monkeypatch.setattr(pull_requests, "FETCHES_MAX", 99)
    rest = cluster.ask(master.config.address, 11, {**none, "queueOffset": str(following)})
    assert (rest.code, (rest.ext_fields or {})["nextBeginOffset"]) == (20, "10")


@pytest.mark.costly
def test_slave_when_what_it_lacks_is_cold_then_the_master_answers_others_meanwhile(
    cluster: ReplicaCluster,
) -> None:
    """A slave that comes back far behind made its master stand still with each batch."""
    master = master_of(cluster)
    slave = next(host for host, one in cluster.replicas.items() if one is not master)
    cluster.kill(slave)
    cluster.until(lambda: len(cluster.controller_set()) == 1, "a set of one", 60_000)
    cluster.send_many(30)
    mood = cluster.disks[master.config.host].mood
    mood.read_ms = 8_000.0
    cluster.boot(slave)
    cluster.run_for(6_000)
    assert cluster.replicas[slave].store.max_offset < master.store.max_offset
    begun_s = cluster.loop.time()
    assert cluster.send(7).code == 0  # type: ignore[union-attr]  # it answers
    assert cluster.loop.time() - begun_s < 0.1
    mood.read_ms = 0.0
    cluster.until(cluster.in_sync, "SyncStateSet of two")
    cluster.run_for(1_000)
    assert log_bytes(cluster.replicas[slave]) == log_bytes(master)


@pytest.mark.costly
def test_handler_when_it_has_to_wait_then_it_is_asked_again_and_answers_once(
    cluster: ReplicaCluster,
) -> None:
    """What it does before it has seen all would be done twice."""
    log_ends_cold(cluster)
    master = master_of(cluster)
    place = int(asked(cluster, "by place")["offset"])
    looks: list[int] = []
    sent: list[RemotingCommand] = []

    class Told:
        """A connection."""

        def send(self, answer: RemotingCommand) -> None:
            sent.append(answer)

    def handler(_: object, request: RemotingCommand) -> RemotingCommand:
        looks.append(place)
        master.store.reader.look(place)
        return request.reply(0, "told")

    cluster.disks[master.config.host].mood.read_ms = READ_MS
    asks = patient(master, handler)

    async def ask() -> RemotingCommand | None:
        return asks(Told(), RemotingCommand(33))  # type: ignore[arg-type]

    assert cluster.loop.run_until_complete(ask()) is None
    cluster.until(lambda: sent, "an answer")
    cluster.run_for(1_000)
    assert [answer.remark for answer in sent] == ["told"]
    assert len(looks) == 3  # before the read, after it, and on a disk that keeps nothing once more


async def _turn() -> None:
    """A little virtual time, whatever fails in it."""
    await asyncio.sleep(0.01)
