"""Messages while writes wait for the disk: they stand in a row, and nobody else waits with them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from rmqha.broker.admin.aio.prometheus import Collector
from rmqha.broker.aio.replica import BrokerReplica
from rmqha.broker.send.aio import roomy_sends
from rmqha.broker.send.aio.roomy_sends import BUSY
from rmqha.broker.send.aio.undecided_sends import HELD_MS
from rmqha.ha.events import Role
from rmqha.remoting.codes import RequestCode, ResponseCode
from rmqha.remoting.command import FLAG_ONEWAY, RemotingCommand
from rmqha.store.aio.dispatcher import Dispatcher
from rmqha.store.aio.room import EASED_MS, SLOW_MS
from tests.broker.replicas import TOPIC, ReplicaCluster, log_bytes, master_of, send_fields
from tests.broker.test_producer_services import stored

QUEUE = 0


@pytest.fixture(params=[True, False], ids=["all ack", "alone"])
def cluster(request: pytest.FixtureRequest) -> Iterator[ReplicaCluster]:
    """Two replicas in sync, whose master has stored a message."""
    keys = {
        "allAckInSyncStateSet": str(request.param).lower(), "sendsInFlightMax": "50",
        "messageIndexEnable": "false",
    }  # fmt: skip
    with ReplicaCluster(41, replicas=2, **keys) as one:
        one.boot_all()
        one.until(one.in_sync, "a SyncStateSet of two")
        one.send_many(4)
        yield one


def run_short(master: BrokerReplica) -> None:
    """A write has just waited."""
    clock = master.clock
    master.store.room.wrote(clock.now_ms() - SLOW_MS)
    assert master.store.room.is_short


def hang(cluster: ReplicaCluster, duration_ms: int) -> None:
    """The master's disk takes nothing for so long; its process goes on."""
    cluster.disks[master_of(cluster).config.host].hang(duration_ms, fails=False)


def sent(cluster: ReplicaCluster, count: int, first: int = 100) -> list[RemotingCommand]:
    """Send messages to one queue without waiting; their answers, as they come."""
    answers: list[RemotingCommand] = []
    address = master_of(cluster).config.address
    for number in range(first, first + count):
        fields = {**send_fields(number), "e": str(QUEUE)}
        cluster.ask_later(address, 310, fields, b"body-%d" % number, told=answers.append)
    return answers


def bodies(cluster: ReplicaCluster) -> list[bytes]:
    """Of the queue, in its order."""
    return [one.body for one in stored(cluster, TOPIC) if one.queue_id == QUEUE]


def test_sends_when_writes_wait_then_they_are_taken_in_their_order(
    cluster: ReplicaCluster,
) -> None:
    run_short(master_of(cluster))
    answers = sent(cluster, 20)
    cluster.until(lambda: len(answers) == 20, "all answers", 500)
    assert {one.code for one in answers} == {ResponseCode.SUCCESS}
    assert bodies(cluster)[-20:] == [b"body-%d" % number for number in range(100, 120)]


def test_sends_when_the_disk_stands_still_then_others_are_served_meanwhile(
    cluster: ReplicaCluster,
) -> None:
    """All that the loop does waited with the first of them; now each send does, and nothing else."""
    master = master_of(cluster)
    end = master.store.max_offset
    run_short(master)
    hang(cluster, 1_000)
    answers = sent(cluster, 3)
    fields = {"topic": TOPIC, "queueId": "0"}
    began_s = cluster.loop.time()
    found = cluster.ask(master.config.address, RequestCode.GET_MAX_OFFSET, fields)
    assert found.code == ResponseCode.SUCCESS
    assert cluster.loop.time() - began_s < 0.1
    assert (answers, master.store.max_offset) == ([], end)
    assert master.store.writes.oldest_ms > 0, "a disk that stands still is noticed"
    cluster.until(lambda: len(answers) == 3, "answers", 1_500)
    assert {one.code for one in answers} == {ResponseCode.SUCCESS}


@pytest.mark.costly
def test_sends_when_they_would_wait_for_too_long_then_refused_and_not_written(
    cluster: ReplicaCluster,
) -> None:
    """A client that has given up sends it again; the first one must not be there then."""
    master = master_of(cluster)
    before = bodies(cluster)
    run_short(master)
    hang(cluster, HELD_MS + 1_000)
    answers = sent(cluster, 3)
    cluster.until(lambda: len(answers) == 3, "refusals", HELD_MS + 200)
    assert {(one.code, one.remark) for one in answers} == {(ResponseCode.SYSTEM_BUSY, BUSY)}
    cluster.run_for(1_500)
    assert bodies(cluster) == before
    again = sent(cluster, 3)
    cluster.until(lambda: len(again) == 3, "answers", 500)
    assert {one.code for one in again} == {ResponseCode.SUCCESS}


@pytest.mark.costly
@pytest.mark.parametrize("bound", ["count", "bytes"])
def test_sends_when_too_many_wait_then_the_next_ones_are_refused(
    cluster: ReplicaCluster, monkeypatch: pytest.MonkeyPatch, bound: str
) -> None:
    """What waits is kept in memory."""
    if bound == "bytes":
        monkeypatch.setattr(roomy_sends, "HELD_BYTES_MAX", 50 * (1024 + len(b"body-100")))
    else:
        assert master_of(cluster).config.integer("sendsInFlightMax") == 50
    run_short(master_of(cluster))
    hang(cluster, 500)
    answers = sent(cluster, 60)
    cluster.until(lambda: len(answers) == 10, "refusals", 300)
    assert {one.code for one in answers} == {ResponseCode.SYSTEM_BUSY}
    cluster.until(lambda: len(answers) == 60, "answers", 1_000)
    assert bodies(cluster)[-50:] == [b"body-%d" % number for number in range(100, 150)]


def test_sends_when_the_broker_is_master_no_more_then_they_are_refused(
    cluster: ReplicaCluster,
) -> None:
    """Their turn comes when another has been elected."""
    master = master_of(cluster)
    run_short(master)
    hang(cluster, 1_500)
    answers = sent(cluster, 3)
    cluster.run_for(50)
    master.role = Role.SLAVE
    end = master.store.max_offset
    cluster.until(lambda: len(answers) == 3, "refusals", 2_000)
    assert {one.code for one in answers} == {ResponseCode.SERVICE_NOT_AVAILABLE}
    assert "slave" in str(answers[0].remark)
    assert master.store.max_offset == end


def test_sends_when_their_client_has_gone_then_they_are_not_written(
    cluster: ReplicaCluster,
) -> None:
    master = master_of(cluster)
    before = bodies(cluster)
    run_short(master)
    hang(cluster, 500)
    sent(cluster, 3)
    cluster.run_for(50)
    sends = master._send.sends
    assert (len(sends.row), sends.waiting_count) == (3, 3)
    for transport in [*cluster.net.transports]:
        if "10.0.2.1" in (transport.host, transport.peer_host):
            transport.abort()
    cluster.run_for(20)
    assert (len(sends.row), sends.waiting_count) == (0, 0)
    cluster.run_for(1_000)
    assert bodies(cluster) == before


def test_sends_when_nobody_wants_an_answer_then_they_are_written_after_their_client_has_gone(
    cluster: ReplicaCluster,
) -> None:
    """It does not send them again."""
    master = master_of(cluster)
    run_short(master)
    hang(cluster, 500)
    fields = {**send_fields(100), "e": str(QUEUE)}
    command = RemotingCommand(310, flag=FLAG_ONEWAY, ext_fields=fields, body=b"body-100")
    send = cluster._client.invoke_oneway(master.config.address, command)
    cluster.loop.create_task(send, context=cluster._client_context.copy())
    cluster.run_for(50)
    assert len(master._send.sends.row) == 1
    for transport in [*cluster.net.transports]:
        if "10.0.2.1" in (transport.host, transport.peer_host):
            transport.abort()
    cluster.run_for(1_000)
    assert bodies(cluster)[-1] == b"body-100"


@pytest.mark.parametrize("tags", ["", "INNER_BATCH\x01no\x02DELAY\x011\x02"], ids=["plain", "not"])
def test_send_when_written_then_the_time_that_it_took_is_looked_at(
    cluster: ReplicaCluster, monkeypatch: pytest.MonkeyPatch, tags: str
) -> None:
    """A message like most goes another way than others."""
    room, told = master_of(cluster).store.room, list[int]()
    monkeypatch.setattr(room, "wrote", told.append)
    # The dispatcher looks at its own time.
    monkeypatch.setattr(Dispatcher, "_step_run", lambda *_: 0)
    fields = send_fields(7)
    assert cluster.send(7, i=fields["i"] + tags) is not None
    assert len(told) == 1


def test_sends_when_the_broker_ends_then_nothing_waits(cluster: ReplicaCluster) -> None:
    master = master_of(cluster)
    run_short(master)
    hang(cluster, 500)
    sent(cluster, 3)
    cluster.run_for(50)
    master._send.sends.close()
    assert len(master._send.sends.row) == 0


@pytest.mark.costly
def test_sends_when_writes_wait_no_more_then_they_are_taken_at_once(
    cluster: ReplicaCluster,
) -> None:
    """A row for each message costs a thread's work."""
    master = master_of(cluster)
    run_short(master)
    assert master._send.sends.row.holds
    answers = sent(cluster, 2)
    cluster.until(lambda: len(answers) == 2, "answers", 500)
    cluster.run_for(EASED_MS)
    assert not master.store.room.is_short
    assert not master._send.sends.row.holds


@pytest.mark.costly
@pytest.mark.parametrize("seed", range(50, 56))
def test_sends_when_the_master_dies_while_they_wait_then_what_was_acknowledged_is_there(
    seed: int,
) -> None:
    """In any place of the row."""
    with ReplicaCluster(seed, replicas=3) as cluster:
        cluster.boot_all()
        cluster.until(cluster.in_sync, "a SyncStateSet of three")
        cluster.send_many(2)
        counted = 0
        for round_ in range(3):
            old = master_of(cluster)
            run_short(old)
            hang(cluster, cluster.rng.randint(0, 30))
            acked: set[bytes] = set()
            for number in range(30):
                body = b"round-%d-%d" % (round_, number)
                cluster.ask_later(
                    old.config.address, 310, send_fields(number), body,
                    told=lambda one, body=body, acked=acked: one.code or acked.add(body),  # type: ignore[misc]
                )  # fmt: skip
            cluster.run_for(cluster.rng.randint(1, 90))
            promised = frozenset(acked)
            cluster.kill(old.config.host)
            cluster.until(lambda old=old: cluster.master() not in (None, old), "a new master")  # type: ignore[misc]
            cluster.send_many(1)
            counted += len(promised)
            assert promised <= {one.body for one in stored(cluster, TOPIC)}
            cluster.boot(old.config.host)
            cluster.until(cluster.in_sync, "a SyncStateSet of three again")
        assert counted
        assert len({log_bytes(one) for one in cluster.replicas.values()}) == 1


@pytest.mark.costly
def test_metrics_when_writes_wait_then_they_say_so(cluster: ReplicaCluster) -> None:
    """Whoever is called at night sees whether the disk is why sends are slow."""
    master = master_of(cluster)
    labels = {"cluster": "c", "node_type": "broker", "node_id": "b", "address": "a"}

    def shown() -> list[float]:
        found = cluster.loop.run_until_complete(master.admin.scrape())
        samples = [
            sample for metric in Collector(labels, lambda: found).collect()
            for sample in metric.samples if sample.name.startswith("rmqha_store_writes_wait")
        ]  # fmt: skip
        return [sample.value for sample in samples if not sample.name.endswith("_created")]

    assert shown() == [0, 0]
    run_short(master)
    assert shown() == [1, 1]
    cluster.run_for(EASED_MS)
    assert shown() == [0, 1]
