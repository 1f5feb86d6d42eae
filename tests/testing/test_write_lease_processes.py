"""The write lease with real processes, clocks and signals: no master writes behind the next one's back.

``tests/broker/test_write_lease_in_simulator.py`` has the rules in virtual time. Here SIGSTOP stops a
process in the middle of whatever it does, and links are cut between processes; clients still reach
the master, and nobody waits for slaves (``allAckInSyncStateSet=false``, Java's default).
"""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime

import pytest

from rmqha.ha.membership import CHECK_PERIOD_MS_MAX
from rmqha.testing.cluster import RmqCluster
from rmqha.testing.nodes import Node
from rmqha.testing.real import wire
from rmqha.testing.real.processes import wait_until

pytestmark = pytest.mark.slow

TIMEOUT_MS = 3_000
"""controllerHeartBeatTimeoutMills; the lease is four fifths of it."""

UNSAFE = 14
UNSURE = 12
"""Written, and a slave that may be elected did not say that it has it."""

SLAVE_TIMEOUT_MS = 1_000
NEAR_S = (SLAVE_TIMEOUT_MS + CHECK_PERIOD_MS_MAX) / 1000
"""A slave that is connected and acknowledges nothing counts as gone after so long."""

UNSURE_MAX = 3
"""Each takes ``slaveTimeout``, and slaves count as near for little longer."""

EXPIRED = "the write lease has expired"
ELECTED_S = 20.0
TOPIC = "Leased"
_numbers = itertools.count()


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RmqCluster]:
    """One cluster for the module."""
    settings = {
        "allAckInSyncStateSet": False,
        "controllerHeartBeatTimeoutMills": TIMEOUT_MS,
        "slaveTimeout": SLAVE_TIMEOUT_MS,
    }
    with RmqCluster(
        tmp_path_factory.mktemp("lease"), replicas=2, processes=True, broker_settings=settings
    ) as cluster:
        yield cluster


@pytest.fixture
def cluster(shared: RmqCluster) -> RmqCluster:
    """The cluster, mended."""
    shared.heal()
    return shared


def send(connection: wire.Connection, timeout_s: float = 10.0) -> wire.Answer:
    """One message, to this broker and no other."""
    number = next(_numbers)
    return wire.send_message(
        connection, TOPIC, 0, b"%d" % number, keys=f"K{number}", default_queues=4,
        timeout_s=timeout_s,
    )  # fmt: skip


def said(nodes: list[Node], event: str, since: datetime) -> list[datetime]:
    """When these nodes logged an event: by one clock, for they are processes of one machine."""
    lines = [json.loads(line) for node in nodes for line in node.log.read_text().splitlines()]
    stamps = [datetime.fromisoformat(one["timestamp"]) for one in lines if one["event"] == event]
    return sorted(stamp for stamp in stamps if stamp > since)


def others_than(cluster: RmqCluster, master: Node) -> list[Node]:
    """Everybody who could tell a master that it is none any more."""
    return [node for node in cluster.nodes if node is not master]


def elected(cluster: RmqCluster) -> str | None:
    """The master by the leading controller's word."""
    found = cluster.set_info()
    return None if found is None else found.master_address


def test_7017_master_when_cut_off_then_it_refuses_while_it_still_is_the_master(
    cluster: RmqCluster,
) -> None:
    """Writes go on until the lease ends, are refused then, and only later somebody else is elected."""
    old = cluster.wait_for_master()
    with wire.Connection(old.place.address) as connection:
        assert send(connection).code == 0
        cluster.partition(old, others_than(cluster, old))
        cut = datetime.now(UTC)
        answered, unsure = [], 0
        while (answer := send(connection)).code in (0, UNSURE):
            if answer.code == 0:
                answered.append(datetime.now(UTC))
                continue
            # The lease has ended, and the slaves were heard a moment ago: their links are cut last.
            unsure += 1
            assert unsure <= UNSURE_MAX, answer.remark
        assert (answer.code, EXPIRED in answer.remark) == (UNSAFE, True), answer.remark
        assert answered, "a master may write for as long as its lease lasts"
        new = cluster.wait_for_master(other_than=old, timeout_s=ELECTED_S)
        (lost,) = said([old], "write_lease_lost", cut)
        first_elected, *_ = said(others_than(cluster, old), "master_elected", cut)
        assert cut < lost < first_elected, "refused too late"
        # The last write was asked for, and so taken, after the one before was answered.
        assert max([cut, *answered[:-1]]) < first_elected, "two masters took writes"
        assert elected(cluster) == new.place.address
        assert send(connection).code == UNSAFE
    with wire.Connection(new.place.address) as connection:
        assert send(connection).code == 0


def stopped_until_replaced(
    cluster: RmqCluster, old: Node, connection: wire.Connection, then: Callable[[], None]
) -> wire.Answer:
    """What a master says to a write that came while it was stopped, until another was elected.

    What its slaves had said before it was stopped is too old then to count.

    Args:
        then: done once the master is stopped.
    """
    heard_s = time.monotonic()
    cluster.stop(old)
    then()
    with ThreadPoolExecutor(1) as pool:
        # The kernel takes the request; the process sees it when it goes on.
        waiting = pool.submit(send, connection, timeout_s=3 * ELECTED_S)
        try:
            cluster.wait_for_master(other_than=old, timeout_s=ELECTED_S)
            wait_until(lambda: time.monotonic() - heard_s > NEAR_S, ELECTED_S, "silence")
        finally:
            cluster.cont(old)
        return waiting.result()


def test_master_when_it_was_stopped_for_too_long_then_its_first_write_is_refused(
    cluster: RmqCluster,
) -> None:
    """SIGSTOP: what waited in its socket meets a lease that ended while it could not look."""
    old = cluster.wait_for_master()
    with wire.Connection(old.place.address) as connection:
        assert send(connection).code == 0
        # Nobody is to tell it: the lease alone must stop it.
        cluster.partition(old, others_than(cluster, old))
        # What its slaves had said is read when these are answered: nothing of theirs waits as well.
        assert [send(connection).code for _ in range(2)] == [0, 0]
        answer = stopped_until_replaced(cluster, old, connection, lambda: None)
    assert (answer.code, EXPIRED in answer.remark) == (UNSAFE, True), answer.remark


def test_master_when_words_of_its_slaves_waited_as_well_then_it_acknowledges_nothing(
    cluster: RmqCluster,
) -> None:
    """They count as near when it goes on, and are waited for in vain; then it refuses.

    The links are cut once it is stopped, while the slaves answer what it sent last.
    """
    old = cluster.wait_for_master()
    with wire.Connection(old.place.address) as connection:
        cluster.wait_in_sync(2)
        assert send(connection).code == 0

        def cut() -> None:
            cluster.partition(old, others_than(cluster, old))

        answer = stopped_until_replaced(cluster, old, connection, cut)
        answers = [answer]
        while answers[-1].code == UNSURE and len(answers) <= UNSURE_MAX:
            answers.append(send(connection))
    assert {one.code for one in answers[:-1]} <= {UNSURE}
    assert (answers[-1].code, EXPIRED in answers[-1].remark) == (UNSAFE, True), answers
