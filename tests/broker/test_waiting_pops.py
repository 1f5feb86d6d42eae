"""Pops that wait, one by one: what goes wrong with one is told to its client, and ends nobody else."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from rmqha.base.errors import RemoteProtocolError
from tests.broker.replicas import ReplicaCluster, master_of, send_fields
from tests.broker.subscriber import Subscriber
from tests.broker.test_crowds import POP


@pytest.fixture
def alone() -> Iterator[ReplicaCluster]:
    """One replica, which reigns, with a message that was popped."""
    with ReplicaCluster(seed=21, replicas=1) as one:
        one.boot_all()
        put(one)
        yield one


def put(cluster: ReplicaCluster) -> None:
    """Send a message."""
    fields = send_fields(0) | {"e": "0"}
    assert cluster.ask(master_of(cluster).config.address, 310, fields, b"x").code == 0


@pytest.mark.parametrize("found_by", ["arrival", "the end of its time"])
def test_pop_when_it_meets_what_nobody_thought_of_then_it_is_refused_and_all_others_go_on(
    alone: ReplicaCluster, found_by: str
) -> None:
    """It stayed, held the other pops up, and ended who had told that the queue has grown: the broker."""
    master = master_of(alone)
    client, waiting = Subscriber(alone, master.config.address), master.pop.pops._waiting
    asked = [POP | {"pollTime": 500, "consumerGroup": name} for name in "AB"]
    assert [client.ask(200050, one).code for one in asked] == [0, 0]
    held = [client.tell(200050, one) for one in asked]
    alone.until(lambda: len(waiting) == 2, "the pops", 200)
    plain, met = waiting._serve, list[str]()

    def serve(asked: object) -> bool:
        met.append("met")
        if len(met) == 1:
            raise RemoteProtocolError("nobody thought of it")
        return plain(asked)  # type: ignore[arg-type]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(waiting, "_serve", serve)
        if found_by == "arrival":
            put(alone)
        alone.until(lambda: all(it in client.answers for it in held), "the answers", 1_000)
    codes = sorted(client.answers[number].code for number in held)
    assert codes == ([0, 1] if found_by == "arrival" else [1, 210])
    assert len(waiting) == 0
    assert not waiting._broker.arrivals._told
    put(alone)
    assert client.ask(200050, asked[0]).code == 0
