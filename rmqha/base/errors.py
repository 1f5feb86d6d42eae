"""The one error tree. Refusals that a protocol foresees are values, not exceptions."""

from __future__ import annotations


class RmqhaError(Exception):
    """Every error that rmqha raises on purpose."""


class ConfigInvalid(RmqhaError):
    """A configuration file or flag holds something that cannot be used."""


class LocalProtocolError(RmqhaError):
    """This side tried to do something its protocol does not allow."""


class RemoteProtocolError(RmqhaError):
    """The peer sent bytes that its protocol does not allow; the connection is closed."""


class FrameTooLarge(RemoteProtocolError):
    """A frame's announced length is over the limit, or below the smallest legal one."""


class HeaderMalformed(RemoteProtocolError):
    """A frame's header cannot be read."""


class ConnectFailed(RmqhaError):
    """No connection could be made to an address."""


class LookupFailed(RmqhaError):
    """The addresses behind a name could not be found now; there may be some."""


class ConnectionLost(RmqhaError):
    """A connection ended while an answer was awaited.

    Attributes:
        rejected: for what this side ended it; empty where that is nobody's fault.
    """

    def __init__(self, text: str, rejected: str = "") -> None:
        super().__init__(text)
        self.rejected = rejected


class RequestTimeout(RmqhaError):
    """No answer came within the deadline."""


class StoreCorrupted(RmqhaError):
    """Stored bytes that were once durable cannot be read back; nothing was changed."""


class StoreDamaged(StoreCorrupted):
    """The middle of a message store is damaged: the message names file, offset and reason."""


class MessageIllegal(RmqhaError):
    """A message that the store's format or its settings cannot hold; nothing was written."""


class StoreMismatch(RmqhaError):
    """A store belongs to another cluster or node, or was written by a newer format."""


class StoreInUse(RmqhaError):
    """Another process uses the store."""


class DiskFailed(RmqhaError):
    """A write or an fsync failed; what the disk holds is unknown from here on."""


class DiskFull(DiskFailed):
    """There is no space left; nothing was written, and the same may be tried again."""


class InvariantBroken(RmqhaError):
    """A safety rule does not hold. The process must stop: going on could lose data."""


class EffectUnknown(InvariantBroken):
    """A core asked for something that its shell does not know: it would be left undone."""
