"""Sends one frame again and again to a port, and reads nothing: ``flood.py PORT HEX SECONDS``."""

from __future__ import annotations

import socket
import sys
import time

CHUNK_BYTES = 1 << 18


def main(port: int, frame: bytes, seconds: float) -> None:
    """Send until the time is over; a connection that is closed is opened again."""
    data = frame * (CHUNK_BYTES // len(frame) + 1)
    end = time.monotonic() + seconds
    sent = 0
    while time.monotonic() < end:
        try:
            with socket.create_connection(("127.0.0.1", port), timeout=1) as one:
                while time.monotonic() < end:
                    sent += one.send(data)
        except OSError:
            continue
    print(sent // len(frame))


if __name__ == "__main__":
    main(int(sys.argv[1]), bytes.fromhex(sys.argv[2]), float(sys.argv[3]))
