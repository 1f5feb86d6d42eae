"""Frames that are never whole, from outside: what ``heldBytesMax`` is for."""

from __future__ import annotations

import contextlib
import select
import socket
import struct

FRAME_BYTES = 16 << 20
HELD_BYTES_MAX = 64 << 20
CLOSED_S = 10.0


def closes_somebody(port: int) -> bool:
    """Whether a server ends one of five connections that make it keep 80 MB together."""
    with contextlib.ExitStack() as stack:
        peers = [
            stack.enter_context(socket.create_connection(("127.0.0.1", port), CLOSED_S))
            for _ in range(5)
        ]
        for peer in peers:
            with contextlib.suppress(ConnectionError):
                peer.sendall(struct.pack(">i", FRAME_BYTES - 4) + bytes(FRAME_BYTES - 1024))
        return bool(select.select(peers, [], [], CLOSED_S)[0])
