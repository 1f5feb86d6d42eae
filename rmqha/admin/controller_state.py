"""What controllers keep, as a file that people read before other controllers take it in.

Java's controllers tell it over the wire (1005, 1006, 1012); clusters and what is doubtful come from
the brokers themselves. What nobody could tell stays ``null``, with a remark.
"""

from __future__ import annotations

import msgspec
from msgspec import Struct

from rmqha.base.errors import RemoteProtocolError
from rmqha.remoting.broker_set_state import BrokerSetState

FORMAT = 1


class ControllerState(
    Struct, frozen=True, rename="camel", forbid_unknown_fields=True, omit_defaults=True
):
    """This is what one export found.

    Attributes:
        format: of this file.
        exported_ms: since 1970.
        controllers: addresses of the whole group that was asked: all must be stopped before the
            sets are taken in.
        broker_sets: by name.
        remarks: by set's name: what is doubtful or unknown.
        not_exported: by set's name: why it is not here.
        rescued_group: the name of a group of ours that lost its majority, and out of whose store
            this is; None of an export. No group of that name may take it in.
    """

    format: int
    exported_ms: int
    controllers: tuple[str, ...]
    broker_sets: tuple[BrokerSetState, ...]
    remarks: dict[str, tuple[str, ...]]
    not_exported: dict[str, str]
    rescued_group: str | None = None

    def encode(self) -> bytes:
        """Write the file."""
        return msgspec.json.format(_encode(self), indent=2) + b"\n"

    @classmethod
    def decode(cls, content: bytes) -> ControllerState:
        """Read the file.

        Raises:
            RemoteProtocolError: it is none, or of a newer release.
        """
        try:
            found = _decode(content)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise RemoteProtocolError(f"not an exported state of controllers: {error}") from error
        if found.format != FORMAT:
            raise RemoteProtocolError(f"the file has format {found.format}; this reads {FORMAT}")
        return found


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(ControllerState).decode
