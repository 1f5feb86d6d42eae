"""The port of a broker that is alive: it takes connections, and answers whatever is asked."""

from __future__ import annotations

import contextlib
import json
import socket
import struct
import threading
from typing import Self

ONE_WAY = 2
RESPONSE = 1
_HEAD = struct.Struct(">II")


class Door:
    """Listens on a port of its own until it is closed.

    Attributes:
        address: where.
    """

    def __init__(self) -> None:
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listening.getsockname()[1]}"
        self._peers: list[socket.socket] = []
        self._start(self._accept)

    def close(self) -> None:
        """End it, and what came in through it."""
        for one in (self._listening, *self._peers):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _start(self, work: object, *facts: object) -> None:
        threading.Thread(target=work, args=facts, daemon=True).start()  # type: ignore[arg-type]

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                peer, _ = self._listening.accept()
                self._peers.append(peer)
                self._start(self._serve, peer)

    def _serve(self, peer: socket.socket) -> None:
        with contextlib.suppress(OSError, ValueError), peer.makefile("rb") as stream:
            while head := stream.read(_HEAD.size):
                total, packed = _HEAD.unpack(head)
                size = packed & 0xFFFFFF
                header = json.loads(stream.read(total - 4)[:size])
                if not header["flag"] & (ONE_WAY | RESPONSE):
                    peer.sendall(_answer(header["opaque"]))


def _answer(opaque: int) -> bytes:
    header = {
        "code": 0, "flag": RESPONSE, "language": "PYTHON", "opaque": opaque,
        "serializeTypeCurrentRPC": "JSON", "version": 479,
    }  # fmt: skip
    raw = json.dumps(header).encode()
    return _HEAD.pack(4 + len(raw), len(raw)) + raw
