"""Which member of a group may consume a queue in order: leases that their holders renew.

The locks live in memory, as in Java: after a failover the first who asks gets them, and the client
that held one before notices within its own 30 seconds.

Source: RebalanceLockManager of RocketMQ 5.1.1 to 5.5.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from typing import NamedTuple

from rmqha.broker.common.json_members import MessageQueue

LEASE_MS = 60_000
LEASES_A_TURN = 4_096


class _Lease(NamedTuple):
    client_id: str
    renewed_ms: int


class QueueLocks:
    """The leases of all groups.

    Args:
        locks_max: leases of all groups together; further queues are not locked.
    """

    def __init__(self, locks_max: int) -> None:
        self._max = locks_max
        self._groups: dict[str, dict[MessageQueue, _Lease]] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def lock(
        self, now_ms: int, group: str, client_id: str, queues: Iterable[MessageQueue]
    ) -> list[MessageQueue]:
        """Take or renew leases; returns the queues that the client holds afterwards."""
        leases = self._groups.setdefault(group, {})
        held: list[MessageQueue] = []
        for queue in queues:
            lease = leases.get(queue)
            if lease is None:
                if self._count >= self._max:
                    continue
                self._count += 1
            elif lease.client_id != client_id and not _is_over(lease, now_ms):
                continue
            leases[queue] = _Lease(client_id, now_ms)
            held.append(queue)
        if not leases:
            del self._groups[group]
        return held

    def unlock(self, group: str, client_id: str, queues: Iterable[MessageQueue]) -> None:
        """Give leases back; those of others stay."""
        leases = self._groups.get(group, {})
        for queue in queues:
            lease = leases.get(queue)
            if lease is not None and lease.client_id == client_id:
                del leases[queue]
                self._count -= 1
        if not leases:
            self._groups.pop(group, None)

    def forget(self, is_void: Callable[[MessageQueue], bool]) -> None:
        """Forget the leases of these queues, whoever holds them."""
        for group in list(self._groups):
            for queue, lease in list(self._groups[group].items()):
                if is_void(queue):
                    self._drop(group, queue, lease)

    def has_any(self, now_ms: int, group: str) -> bool:
        """Whether a group consumes any queue in order now."""
        leases = self._groups.get(group)
        return leases is not None and not all(_is_over(one, now_ms) for one in leases.values())

    def expire(self, now_ms: int) -> Generator[None, None, None]:
        """Forget the leases that are over, in parts: they bind nobody, and only take room."""
        looked_at = 0
        for group in list(self._groups):
            for queue, lease in list(self._groups.get(group, {}).items()):
                looked_at += 1
                if looked_at % LEASES_A_TURN == 0:
                    yield
                if _is_over(lease, now_ms):
                    self._drop(group, queue, lease)

    def _drop(self, group: str, queue: MessageQueue, lease: _Lease) -> None:
        """Forget a lease, unless it was renewed or given back meanwhile."""
        leases = self._groups.get(group, {})
        if leases.get(queue) is not lease:
            return
        del leases[queue]
        self._count -= 1
        if not leases:
            del self._groups[group]


def _is_over(lease: _Lease, now_ms: int) -> bool:
    return now_ms - lease.renewed_ms > LEASE_MS
