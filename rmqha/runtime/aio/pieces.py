"""Several pieces in one write, so that whoever writes still hears when it is enough."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Sequence

Piece = bytes | bytearray | memoryview


def forgets_to_pause(version: tuple[int, ...]) -> bool:
    """Whether asyncio's own transports in this release of Python take pieces without a bound.

    Their ``writelines`` does not call ``pause_writing`` there (CVE-2024-12254), so a peer that does
    not read makes the writer keep everything. Python 3.11 joins the pieces; uvloop is right in all.
    """
    return (3, 12) <= version < (3, 12, 9) or (3, 13) <= version < (3, 13, 2)


_JOINS = forgets_to_pause(sys.version_info[:3])


def write_pieces(transport: asyncio.Transport, pieces: Sequence[Piece]) -> None:
    """Write these in their order, without a copy where the transport can be trusted with that."""
    if _JOINS and type(transport).__module__.startswith("asyncio."):
        transport.write(b"".join(pieces))
    else:
        transport.writelines(pieces)
