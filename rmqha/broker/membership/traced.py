"""How a broker's dealings with its controllers are recorded and made again (``runtime/trace``)."""

from __future__ import annotations

from typing import get_args

from msgspec import Struct

from rmqha.broker.common.replicas_settings import ReplicasSettings
from rmqha.broker.membership import events as ev
from rmqha.broker.membership.core import ReplicasCore
from rmqha.broker.membership.write_lease import LeaseEvent, WriteLease
from rmqha.runtime.trace import Kind
from rmqha.store.identity import Identity


class LeaseStart(Struct, frozen=True):
    """What a write lease begins with."""

    controllers: tuple[str, ...]
    lease_ms: int
    timeout_ms: int | None = None

    def make(self) -> WriteLease:
        """Make the core anew."""
        return WriteLease(self.controllers, self.lease_ms, self.timeout_ms)


REPLICAS_KIND = Kind("replicas", (ReplicasSettings, Identity, *get_args(ev.Event)), ReplicasCore)
"""It begins with its settings alone; the identity files come with ``Started``."""

LEASE_KIND = Kind("write_lease", (LeaseStart, *get_args(LeaseEvent)), LeaseStart.make)
