"""Says hello to whoever listens at an address, sends each line that it hears, and tells each answer."""

from __future__ import annotations

import socket
import sys
import threading


def main(host: str, port: str) -> None:
    """Until there are no more lines."""
    with socket.create_connection((host, int(port))) as peer:
        peer.sendall(b"hello\n")
        tells = threading.Thread(target=tell, args=(peer,), daemon=True)
        tells.start()
        for line in sys.stdin:
            peer.sendall(line.encode())


def tell(peer: socket.socket) -> None:
    """Its answers, and its end."""
    with peer.makefile("r") as answers:
        for answer in answers:
            sys.stdout.write(answer)
            sys.stdout.flush()
    sys.stdout.write("closed\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
