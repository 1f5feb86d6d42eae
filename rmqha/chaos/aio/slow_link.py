"""A process that stands in a host's link and lets every frame pass later.

``python -m rmqha.chaos.aio.slow_link A B DELAY_MS JITTER_MS SEED`` takes what arrives at one interface
to the other, both ways, each frame after the delay and a part of the jitter. Frames may overtake each
other, as on a long way. It ends when it is killed, and says ``ready`` when frames pass.

Frames keep what the kernel has left to do of them (a checksum, the cutting of a large one): packet
sockets carry it in front of each frame. Source: packet(7), ``PACKET_VNET_HDR``.
"""

from __future__ import annotations

import random
import selectors
import socket
import struct
import sys

from rmqha.chaos.line import Line
from rmqha.runtime.aio.clock import SystemClock

ETH_P_ALL = 3
SOL_PACKET = 263
ADD_MEMBERSHIP, VNET_HDR, IGNORE_OUTGOING = 1, 15, 23
PROMISCUOUS = 1
FRAME_MAX = (1 << 16) + 64
BUFFER_BYTES = 8 << 20


def _opened(interface: str) -> socket.socket:
    one = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
    one.setsockopt(SOL_PACKET, VNET_HDR, 1)
    one.setsockopt(SOL_PACKET, IGNORE_OUTGOING, 1)
    one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER_BYTES)
    one.bind((interface, ETH_P_ALL))
    all_frames = struct.pack("iHH8s", socket.if_nametoindex(interface), PROMISCUOUS, 0, b"")
    one.setsockopt(SOL_PACKET, ADD_MEMBERSHIP, all_frames)
    one.setblocking(False)
    return one


def main(first: str, second: str, delay_ms: str, jitter_ms: str, seed: str) -> None:
    """Pass frames on until killed."""
    ends = (_opened(first), _opened(second))
    line = Line(int(delay_ms), int(jitter_ms), random.Random(seed))
    clock = SystemClock()
    selector = selectors.DefaultSelector()
    for way, end in enumerate(ends):
        selector.register(end, selectors.EVENT_READ, way)
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    while True:
        wait_ms = line.wait_ms(clock.now_ms())
        for key, _ in selector.select(None if wait_ms is None else wait_ms / 1000):
            try:
                frame = ends[key.data].recv(FRAME_MAX)
            except OSError:
                continue  # its interface is down for a moment
            line.take(clock.now_ms(), 1 - key.data, frame)
        for way, frame in line.due(clock.now_ms()):
            try:
                ends[way].send(frame)
            except OSError:
                continue  # a full queue drops, as on any way


if __name__ == "__main__":
    main(*sys.argv[1:])
