"""What scenarios of the virtual cluster share."""

from __future__ import annotations

from rmqha.ha.events import PutStatus
from rmqha.ha.settings import HaSettings
from rmqha.verify.logs import check_converged
from tests.ha.cluster import Cluster

ALL_ACK = HaSettings(all_ack_in_sync_state_set=True)
LEARNER = HaSettings(all_ack_in_sync_state_set=True, async_learner=True)
BODY = b"." * 150  # with its 8-byte head a record has 158 bytes, as in AutoSwitchHATest


def puts(cluster: Cluster, broker_id: int, count: int, body: bytes = BODY) -> list[int]:
    tokens = []
    for _ in range(count):
        token = cluster[broker_id].put(body)
        assert isinstance(token, int), token
        tokens.append(token)
    cluster.settle()
    return tokens


def statuses(cluster: Cluster, broker_id: int, tokens: list[int]) -> list[PutStatus | None]:
    return [cluster[broker_id].done.get(token) for token in tokens]


def seen(cluster: Cluster, broker_id: int) -> int:
    """Records that consumers of a replica can read."""
    return len(cluster[broker_id].log.dispatched)


def together(cluster: Cluster, master: int) -> None:
    for broker_id, replica in cluster.replicas.items():
        if broker_id != master and replica.up:
            check_converged(cluster[master].snapshot(), replica.snapshot())
    cluster.verify()
