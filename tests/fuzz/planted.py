"""A decoder with a mistake that only a fuzzer which sees what is covered comes to."""

from __future__ import annotations

from rmqha.base.errors import RemoteProtocolError
from tests.fuzz.target import Target


def decode(data: bytes) -> int:
    """Four letters, one condition behind the other; then a length that nobody checks."""
    if data[:1] != b"R":
        raise RemoteProtocolError("no mark")
    if data[1:2] != b"M":
        raise RemoteProtocolError("no mark")
    if data[2:3] != b"Q":
        raise RemoteProtocolError("no mark")
    if data[3:4] != b"\x07":
        raise RemoteProtocolError("another version")
    return data[4 + data[4]]


TARGETS = (Target("planted", decode, (RemoteProtocolError,), (b"seed",)),)
