"""One client a worker: its connections are there for the next task, whose queues are others.

Spark's workers run one task after the other. Whoever is master is asked anew for each.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from rmqha.client.access import Access
from rmqha.client.aio.master_client import MasterClient
from rmqha.client.exchange import Refused
from rmqha.client.logical import mapping_request
from rmqha.client.routes import QueueKey
from rmqha.pipeline.spark import worker
from rmqha.remoting import fastjson
from rmqha.remoting.values import as_object

CLIENTS_MAX = 4
"""Of different options, in one worker."""
CLIENT_AGE_MAX_MS = 300_000
"""Then connections are made anew, with the certificates of then."""
_POLICY, _COMPACTION = "cleanup.policy", "COMPACTION"
_LET_GO_MS = 1
"""While nobody ran its loop a client has not heard that a connection was closed."""


class LiveClient(MasterClient):
    """A client that also tells what kind of topic a queue is of."""

    def is_compacted(self, queue: QueueKey) -> bool:
        """Whether a topic loses older messages of a key, so that offsets without messages are none lost.

        A broker that does not tell, or not this user, has no such topic: a hole is then a loss.

        Raises:
            Unreachable: as ``Masters.on_master``.
            RemoteProtocolError: the answer is malformed.
        """
        try:
            answer = self.call(
                self._masters.on_queue(queue, functools.partial(mapping_request, queue.topic))
            )
        except Refused:
            return False
        attributes = as_object(fastjson.loads(answer.body)).get("attributes")
        return attributes is not None and as_object(attributes).get(_POLICY) == _COMPACTION


class Way(NamedTuple):
    """How a cluster is asked; see ``MasterClient``."""

    name_servers: Sequence[str]
    timeout_ms: int
    failover_timeout_ms: int
    group: str
    access: Access

    def connect(self) -> LiveClient:
        """A client of one's own; raises as ``MasterClient``."""
        return LiveClient(
            self.name_servers,
            timeout_ms=self.timeout_ms,
            failover_timeout_ms=self.failover_timeout_ms,
            group=self.group,
            access=self.access,
        )


class _Kept(NamedTuple):
    way: Way
    client: LiveClient
    made_ms: float


_kept: list[_Kept] = []
"""The one used last stands last."""


@contextmanager
def borrowed(way: Way) -> Iterator[LiveClient]:
    """A client for one task, kept for the next one; not if the task fails, nor outside of Spark.

    Raises:
        ConfigInvalid: files of its access cannot be used.
    """
    kept = _take(way)
    is_sound = False
    try:
        yield kept.client
        is_sound = True
    except GeneratorExit:
        # Nobody wants the rest of the rows: between two calls nothing is on its way.
        is_sound = True
        raise
    finally:
        if is_sound and worker.is_task():
            _keep(kept)
        else:
            kept.client.close()


def _take(way: Way) -> _Kept:
    for number, kept in enumerate(_kept):
        if kept.way == way:
            del _kept[number]
            if kept.client.clock.now_ms() - kept.made_ms < CLIENT_AGE_MAX_MS:
                kept.client.sleep(_LET_GO_MS)
                kept.client.forget_masters()
                return kept
            kept.client.close()
            break
    client = way.connect()
    return _Kept(way, client, client.clock.now_ms())


def _keep(kept: _Kept) -> None:
    _kept.append(kept)
    while len(_kept) > CLIENTS_MAX:
        _kept.pop(0).client.close()
