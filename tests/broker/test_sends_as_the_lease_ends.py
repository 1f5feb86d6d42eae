"""A message is written while the write lease runs out: whoever reigns now may not have it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from rmqha.remoting.command import RemotingCommand
from rmqha.store.aio.commit_log import AppendResult
from tests.broker.replicas import TOPIC, ReplicaCluster, master_of, send_fields

LONG_WAY = {"h": "7"}
"""Of a field that few sends have; the long way answers them."""

NO_WAIT = {"i": "KEYS\x01k\x02UNIQ_KEY\x01U\x02WAIT\x01false\x02"}
"""Not to wait for the store does not mean that nobody may be sure of it."""


@pytest.fixture
def cluster() -> Iterator[ReplicaCluster]:
    """Two replicas that wait for nobody: Java's default."""
    keys = {"allAckInSyncStateSet": "false", "slaveTimeout": "1000"}
    with ReplicaCluster(seed=11, replicas=2, **keys) as one:
        one.boot_all()
        one.until(one.in_sync, "SyncStateSet of two")
        one.until(lambda: is_leased(one), "write lease")
        yield one


def is_leased(cluster: ReplicaCluster) -> bool:
    """Whether the master may write by itself at this moment."""
    ha = master_of(cluster).ha
    return ha is not None and ha.is_leased


def answers_to(cluster: ReplicaCluster, fields: dict[str, str]) -> list[RemotingCommand]:
    """Send a message; its answer is in the list once it has come."""
    found: list[RemotingCommand] = []
    values, address = {**send_fields(0), **fields}, master_of(cluster).config.address
    cluster.ask_later(address, 310, values, b"body", found.append)
    return found


def cut_off(cluster: ReplicaCluster) -> None:
    """The slave hears nothing more of a master that is leased."""
    assert is_leased(cluster)
    master = master_of(cluster)
    (slave,) = [one for one in cluster.replicas.values() if one is not master]
    cluster.net.cut(cluster.host_of(master), cluster.host_of(slave))
    cluster.net.cut(cluster.host_of(slave), cluster.host_of(master))


@pytest.mark.parametrize("fields", [LONG_WAY, {**LONG_WAY, **NO_WAIT}], ids=["waits", "no wait"])
def test_send_when_the_lease_ends_in_its_write_then_it_is_not_acknowledged_alone(
    cluster: ReplicaCluster, monkeypatch: pytest.MonkeyPatch, fields: dict[str, str]
) -> None:
    """A write may take long where the machine stands still; others are asked about it then."""
    master = master_of(cluster)
    ha, append = master.ha, master.store.append
    assert ha is not None
    cut_off(cluster)

    def written(*message: object, **more: object) -> AppendResult:
        result = append(*message, **more)  # type: ignore[arg-type]  # whatever it takes
        monkeypatch.setattr(ha, "is_fenced", lambda: True)
        return result

    monkeypatch.setattr(master.store, "append", written)
    found = answers_to(cluster, fields)
    cluster.until(lambda: master.store.reader.max_offset(TOPIC, 0) == 1, "the message", 1_000)
    cluster.until(lambda: found, "an answer", 10_000)
    assert found[0].code != 0


def test_send_when_the_lease_ends_in_its_write_the_quick_way_then_neither(
    cluster: ReplicaCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What nearly every message is takes a way of its own."""
    master, written = master_of(cluster), list[int]()
    plain = master._send.sends._plain
    write_all = plain.write_all
    cluster.send_many(1)  # its topic is there now
    cut_off(cluster)

    def write(*messages: Any) -> list[tuple[int, bytes]]:
        found = write_all(*messages)
        written.append(len(found))
        monkeypatch.setattr(master.ha, "is_fenced", lambda: True)
        return found

    monkeypatch.setattr(plain, "write_all", write)
    found = answers_to(cluster, {})
    cluster.until(lambda: found, "an answer", 10_000)
    assert written == [1]
    assert found[0].code != 0
