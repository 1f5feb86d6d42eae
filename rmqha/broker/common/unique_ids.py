"""UNIQ_KEY for messages whose producer gave none.

Source: MessageClientIDSetter of RocketMQ 5.1.1 to 5.5: 16 bytes in upper-case hex, a prefix of the
process and a number that grows.
"""

from __future__ import annotations

import zlib

_COUNTER_MAX = 0xFFFF_FFFF_FFFF


class UniqueIds:
    """Gives messages their unique ids.

    Args:
        address: of the broker; ids of two brokers differ.
        wall_ms: when the process began; ids of two lives of one broker differ.
    """

    def __init__(self, address: str, wall_ms: int) -> None:
        self._prefix = f"{zlib.crc32(address.encode()):08X}{wall_ms & _COUNTER_MAX:012X}"
        self._count = 0

    def next(self) -> str:
        """32 digits, never the same twice."""
        self._count = (self._count + 1) & _COUNTER_MAX
        return f"{self._prefix}{self._count:012X}"
