"""A TCP proxy that hands on every byte a fixed time after it came, in both directions.

A process of its own: ``python -m tests.bench.delay_proxy TARGET_PORT DELAY_MS``; it prints the port
it listens on. What is on its way is bounded; nothing waits for acknowledgements of the far side.
"""

from __future__ import annotations

import contextlib
import queue
import socket
import sys
import threading
import time

BLOCK_BYTES = 1 << 20
BLOCKS_MAX = 64


def pump(source: socket.socket, target: socket.socket, delay_s: float) -> None:
    """Read in one thread, write in another, each block when its time has come."""
    free: queue.SimpleQueue[memoryview] = queue.SimpleQueue()
    moving: queue.SimpleQueue[tuple[float, memoryview, int]] = queue.SimpleQueue()
    for _ in range(BLOCKS_MAX):
        free.put(memoryview(bytearray(BLOCK_BYTES)))

    def write() -> None:
        with contextlib.suppress(OSError):
            while True:
                due, block, size = moving.get()
                if not size:
                    break
                left = due - time.monotonic()
                if left > 0:
                    time.sleep(left)
                target.sendall(block[:size])
                free.put(block)
        with contextlib.suppress(OSError):
            target.shutdown(socket.SHUT_RDWR)

    threading.Thread(target=write, daemon=True).start()
    size = 1
    while size:
        block = free.get()
        try:
            size = source.recv_into(block)
        except OSError:
            size = 0
        moving.put((time.monotonic() + delay_s, block, size))


def serve(target_port: int, delay_s: float) -> None:
    """Accept for ever."""
    listener = socket.create_server(("127.0.0.1", 0))
    print(listener.getsockname()[1], flush=True)
    while True:
        near, _ = listener.accept()
        far = socket.create_connection(("127.0.0.1", target_port))
        for one in (near, far):
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for source, target in ((near, far), (far, near)):
            threading.Thread(target=pump, args=(source, target, delay_s), daemon=True).start()


if __name__ == "__main__":
    serve(int(sys.argv[1]), float(sys.argv[2]) / 1000)
