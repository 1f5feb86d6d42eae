"""A broker's identity files as text: who it is for good, and who it is about to be.

Final: ``cluster#broker#id``. Temporary: the same and ``#registerCheckCode``. Unlike Java a damaged
file is an error: applying for a new id would leave the old replica in the SyncStateSet for ever.

Source: persistent-broker-id design; RocketMQ's protocol as observed.
"""

from __future__ import annotations

from msgspec import Struct

from rmqha.base.errors import ConfigInvalid, StoreCorrupted

FILE_NAME = "brokerIdentity"
TEMPORARY_SUFFIX = "-temp"
_SEPARATOR = "#"


class Identity(Struct, frozen=True):
    """A broker's name in the controller's eyes.

    Attributes:
        check_code: of a temporary identity, ``<address>;<ms>``; empty in the final one.
    """

    cluster_name: str
    broker_name: str
    broker_id: int
    check_code: str = ""


def encode_identity(identity: Identity) -> bytes:
    """One line without its end.

    Raises:
        ConfigInvalid: a part is empty or holds the separator; Java could not read it back.
    """
    parts = [identity.cluster_name, identity.broker_name, str(identity.broker_id)]
    if identity.check_code:
        parts.append(identity.check_code)
    for part in parts:
        if not part or _SEPARATOR in part:
            raise ConfigInvalid(f"identity: {part!r} is empty or holds {_SEPARATOR!r}")
    return _SEPARATOR.join(parts).encode()


def decode_identity(data: bytes, path: str, *, temporary: bool) -> Identity:
    """Read a file's content.

    Raises:
        StoreCorrupted: it is not such a line; ``path`` is named.
    """
    try:
        parts = data.decode().strip().split(_SEPARATOR)
    except UnicodeDecodeError as error:
        raise StoreCorrupted(f"{path} is not text") from error
    wanted = 4 if temporary else 3
    if len(parts) != wanted or not all(parts) or not _is_id(parts[2]):
        raise StoreCorrupted(f"{path}: {data[:200]!r} is not the identity of a broker")
    return Identity(parts[0], parts[1], int(parts[2]), parts[3] if temporary else "")


def _is_id(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 18
