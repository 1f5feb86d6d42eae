"""How the core of replication is recorded and made again (``runtime/trace``)."""

from __future__ import annotations

from typing import get_args

from msgspec import Struct
from msgspec.structs import replace

from rmqha.ha import events as ev
from rmqha.ha.epochs import EpochCache, EpochEntry
from rmqha.ha.frames import Ack, HandshakeReply, HandshakeRequest, TransferHeader
from rmqha.ha.ha_core import HaCore
from rmqha.ha.settings import HaSettings
from rmqha.ha.state import LogFacts
from rmqha.runtime.trace import Kind


class HaStart(Struct, frozen=True):
    """What a replica's core begins with: the arguments of ``HaCore``.

    Everything it learns of its log and its peers later comes as an event.
    """

    own_id: int
    settings: HaSettings
    log: LogFacts
    epochs: tuple[EpochEntry, ...]
    now_ms: int

    def make(self) -> HaCore:
        """The core; every call makes another, which shares nothing with this."""
        return HaCore(
            own_id=self.own_id,
            settings=self.settings,
            log=replace(self.log),
            epochs=EpochCache(self.epochs),
            now_ms=self.now_ms,
        )


HA_KIND = Kind(
    "ha",
    (
        HaStart, HaSettings, LogFacts, EpochEntry, *get_args(ev.Event),
        Ack, HandshakeRequest, HandshakeReply, TransferHeader,
    ),
    HaStart.make,
)  # fmt: skip
