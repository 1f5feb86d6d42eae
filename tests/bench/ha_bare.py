"""What the machine itself can do: loops over sockets and mapped files without any protocol.

One process sends a file's bytes, another takes them. Run by ``bench_ha``; each role by itself:
``python -m tests.bench.ha_bare send|take ...``.
"""

from __future__ import annotations

import mmap
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

FRAME_BYTES = 1 << 20
HEADER = bytes(36)
SENDFILE, SENDMSG = "sendfile", "sendmsg"
DISCARD = "-"


def send(port: int, path: str, size: int, how: str) -> None:
    """Connect and send the first ``size`` bytes of a file in frames."""
    peer = socket.create_connection(("127.0.0.1", port))
    peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as mapped:
        whole = memoryview(mapped)
        at = 0
        while at < size:
            length = min(FRAME_BYTES, size - at)
            if how == SENDFILE:
                peer.sendall(HEADER, socket.MSG_MORE)
                end = at + length
                while at < end:
                    at += os.sendfile(peer.fileno(), file.fileno(), at, end - at)
            else:
                _send_all(peer, whole, at, length)
                at += length
        whole.release()
    peer.recv(1)


def _send_all(peer: socket.socket, whole: memoryview, at: int, length: int) -> None:
    sent = peer.sendmsg([HEADER, whole[at : at + length]])
    total = length + len(HEADER)
    while sent < total:
        start = max(0, sent - len(HEADER))
        sent += peer.send(whole[at + start : at + length])


def take(path: str, size: int, file_size: int) -> None:
    """Accept one connection, take ``size`` body bytes into a mapped file or nowhere, print MB/s."""
    listener = socket.create_server(("127.0.0.1", 0))
    print(listener.getsockname()[1], flush=True)
    peer, _ = listener.accept()
    header = memoryview(bytearray(len(HEADER)))
    room: Callable[[int, int], memoryview]
    if path == DISCARD:
        block = memoryview(bytearray(FRAME_BYTES))
        room = lambda at, length: block[:length]  # noqa: E731 - the other of two rooms
    else:
        fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        os.posix_fallocate(fd, 0, file_size)
        whole = memoryview(mmap.mmap(fd, file_size))
        room = lambda at, length: whole[at : at + length]  # noqa: E731
    _fill(peer, header)
    start, at = time.perf_counter(), 0
    while at < size:
        length = min(FRAME_BYTES, size - at)
        _fill(peer, room(at, length))
        at += length
        if at < size:
            _fill(peer, header)
    print(size / 1e6 / (time.perf_counter() - start), flush=True)
    peer.sendall(b"x")


def _fill(peer: socket.socket, room: memoryview) -> None:
    got = 0
    while got < len(room):
        count = peer.recv_into(room[got:])
        if not count:
            raise EOFError
        got += count


def claim_memory(folder: Path, size: int) -> None:
    """Touch as much memory as a file of ``size`` will need, and give it back to the kernel.

    A virtual machine's host takes back memory that was free for a while. The first file after such
    a pause then measures the host's page faults (a fifth of the speed), whoever writes it.
    """
    block = bytes(1 << 20)
    with tempfile.TemporaryFile(dir=folder, buffering=0) as file:
        for _ in range(size // len(block) + 1):
            file.write(block)


def measure(source: Path, size: int, how: str, *, to_file: bool, folder: Path) -> float:
    """MB/s of one pair of processes."""
    file_size = source.stat().st_size
    with tempfile.TemporaryDirectory(dir=folder) as fresh:
        claim_memory(folder, size)
        target = str(Path(fresh) / "taken") if to_file else DISCARD
        module = [sys.executable, "-m", "tests.bench.ha_bare"]
        taker = subprocess.Popen(
            [*module, "take", target, str(size), str(file_size)], stdout=subprocess.PIPE, text=True
        )
        assert taker.stdout is not None
        port = taker.stdout.readline().strip()
        sender = subprocess.Popen([*module, "send", port, str(source), str(size), how])
        rate = float(taker.stdout.readline())
        assert sender.wait(10) == taker.wait(10) == 0
        taker.stdout.close()
    return rate


if __name__ == "__main__":
    role, *rest = sys.argv[1:]
    if role == "send":
        send(int(rest[0]), rest[1], int(rest[2]), rest[3])
    else:
        take(rest[0], int(rest[1]), int(rest[2]))
