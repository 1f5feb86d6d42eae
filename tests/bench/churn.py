"""Clients that come, say something right or wrong, and go, for as long as a soak lasts."""

from __future__ import annotations

import contextlib
import random
import socket
import struct
import threading
from collections import Counter
from collections.abc import Sequence
from typing import Self

from rmqha.remoting.address import parse_address

PATIENCE_S = 0.5
ANSWERED = "answered"
HEADER = b'{"code":1005,"flag":0,"language":"JAVA","opaque":1,"version":477,"serializeTypeCurrentRPC":"JSON"}'  # fmt: skip


def frame(header: bytes, body: bytes = b"", kind: int = 0) -> bytes:
    """Length, kind and length of the header, header, body."""
    return struct.pack(">iI", 4 + len(header) + len(body), kind << 24 | len(header)) + header + body


BAD = {
    "negative length": struct.pack(">i", -5) + b"x" * 16,
    "length of a gigabyte": struct.pack(">iI", 1 << 30, 8) + b"x" * 64,
    "header longer than its frame": struct.pack(">iI", 12, 1 << 20) + b"{}      ",
    "unknown serialization": frame(HEADER, kind=9),
    "no JSON": frame(b"\xff\xfe{code:"),
    "JSON of another kind": frame(b"[1,2,3]"),
    "code of another kind": frame(HEADER.replace(b"1005", b'"x"', 1)),
    "half a frame": frame(HEADER)[:17],
    "HTTP": b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    "zeros": bytes(64),
}
"""What is wrong, and its bytes."""


class Churn:
    """Opens ``per_s`` connections a second, to one address after another.

    Args:
        addresses: of RocketMQ's protocol.
        per_s: connections a second; every other one sends something bad.
        seed: which is drawn.
    """

    def __init__(self, addresses: Sequence[str], per_s: float, seed: int = 1) -> None:
        self.done: Counter[str] = Counter()
        self._addresses = [parse_address(one) for one in addresses]
        self._period_s = 1 / per_s
        self._random = random.Random(seed)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="churn", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join(30)

    def _run(self) -> None:
        while not self._stopping.wait(self._period_s):
            address = self._random.choice(self._addresses)
            bad = self._random.choice([*BAD])
            for what, data in (("good", frame(HEADER)), (bad, BAD[bad])):
                self.done[self._visit(address, what, data)] += 1

    def _visit(self, address: tuple[str, int], what: str, data: bytes) -> str:
        try:
            with socket.create_connection(address, PATIENCE_S) as peer:
                peer.settimeout(PATIENCE_S)
                peer.sendall(data)
                if what == "half a frame":
                    return what
                with contextlib.suppress(TimeoutError):
                    answer = peer.recv(4096)
                    if what == "good":
                        return ANSWERED if answer else "good, closed"
        except OSError:
            # A server that is down is part of the soak; one that hangs up on rubbish as well.
            return "good, refused" if what == "good" else what
        return "good, silent" if what == "good" else what
