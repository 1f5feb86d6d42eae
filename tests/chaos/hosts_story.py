"""Played by ``test_hosts.py`` in a namespace of its own: datagrams between hosts under faults."""

from __future__ import annotations

import subprocess
import sys
import time

from rmqha.chaos.aio.hosts import Hosts, enter
from rmqha.chaos.scenarios import Fault, Kind

SENT = 100
DELAY_MS = 1000
LATEST_S = 20.0
PORT = 7000
COUNT = f"""
import socket
one = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
one.bind(("0.0.0.0", {PORT}))
print("ready", flush=True)
got = 0
while True:
    data, sender = one.recvfrom(100)
    if data == b"end":
        one.sendto(b"%d" % got, sender)
        got = 0
    else:
        got += 1
"""
SEND = f"""
import socket, sys
one = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for _ in range({SENT}):
    one.sendto(b"x", (sys.argv[1], {PORT}))
"""
ASK = f"""
import socket, sys
one = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
one.settimeout(5)
one.sendto(b"end", ("127.0.0.1", {PORT}))
print(one.recv(100).decode())
"""


CONNECT = f"""
import socket, sys, time
listening = socket.create_server(("0.0.0.0", {PORT}), family=socket.AF_INET)
print("ready", flush=True)
while True:
    one, _ = listening.accept()
    while data := one.recv(1 << 16):
        one.sendall(data)
"""
EXCHANGE = f"""
import socket, sys, time
one = socket.create_connection((sys.argv[1], {PORT}))
begun = time.monotonic()
one.sendall(b"x")
one.recv(1)
print((time.monotonic() - begun) * 1000)
one.sendall(b"y" * 300_000)
left = 300_000
while left:
    left -= len(one.recv(1 << 16))
"""


def main() -> None:
    """Print how many of a hundred datagrams arrived, a line for each way."""
    enter(sys.argv[1:], "tests.chaos.hosts_story")
    tell(Hosts())
    hosts = Hosts()  # the first ones are gone, with their names and addresses
    with_counters(hosts, lambda: told(hosts, "again", "a", "b"))


def tell(hosts: Hosts) -> None:
    """The whole story of three links."""

    def story() -> None:
        for source, target in (("a", "b"), ("b", "a")):
            told(hosts, "whole", source, target)
        hosts.apply(Fault(Kind.PARTITION, links=frozenset({("a", "b")})))
        for source, target in (("a", "b"), ("b", "a")):
            told(hosts, "one way", source, target)
        hosts.apply(Fault(Kind.PARTITION, links=frozenset({("a", "b"), ("b", "a")})))
        for source, target in (("a", "b"), ("b", "a"), ("hub", "a")):
            told(hosts, "cut", source, target)
        hosts.apply(Fault(Kind.LOSS, links=frozenset({("a", "b")}), loss_percent=80))
        print(f"some: {arrived(hosts, 'a', 'b')}")
        hosts.apply(None)
        for source, target in (("a", "b"), ("b", "a")):
            told(hosts, "healed", source, target)
        hosts.delay("a", DELAY_MS, 20, seed=1)
        for source, target in (("a", "b"), ("b", "a"), ("hub", "a")):
            print(f"late {source} to {target}: {arrived_late(hosts, source, target)}")
        print(
            f"late there and back: {2 * DELAY_MS <= there_and_back_ms(hosts) <= 2 * DELAY_MS + 500}"
        )
        hosts.restore("a")
        told(hosts, "in time", "b", "a")
        print(f"in time there and back: {there_and_back_ms(hosts) < DELAY_MS}")

    with_counters(hosts, story)


def with_counters(hosts: Hosts, story: object) -> None:
    """Play it while every host counts what it hears."""
    counters = []
    for name in ("a", "b"):
        hosts.add(name)
        one = subprocess.Popen(
            [*hosts.prefix(name), sys.executable, "-c", COUNT], stdout=subprocess.PIPE
        )
        assert one.stdout is not None
        assert one.stdout.readline() == b"ready\n"
        counters.append(one)
    try:
        story()  # type: ignore[operator]
    finally:
        for one in counters:
            one.kill()
            one.wait()
        hosts.close()


def there_and_back_ms(hosts: Hosts) -> float:
    """A byte over a connection that exists, from b to a and back; then more than fits one frame."""
    with subprocess.Popen(
        [*hosts.prefix("a"), sys.executable, "-c", CONNECT], stdout=subprocess.PIPE
    ) as one:
        assert one.stdout is not None
        assert one.stdout.readline() == b"ready\n"
        asked = subprocess.run(
            [*hosts.prefix("b"), sys.executable, "-c", EXCHANGE, hosts.addresses["a"]],
            capture_output=True, text=True, check=True, timeout=30,
        )  # fmt: skip
        one.kill()
    return float(asked.stdout)


def told(hosts: Hosts, what: str, source: str, target: str) -> None:
    """Print how much of what one sends another hears."""
    print(f"{what} {source} to {target}: {arrived(hosts, source, target)}")


def arrived(hosts: Hosts, source: str, target: str) -> int:
    """Send a hundred datagrams; how many arrived."""
    send(hosts, source, target)
    return counted(hosts, target)


def arrived_late(hosts: Hosts, source: str, target: str) -> tuple[int, int]:
    """The same where they take their time: how many were there at once, and in the end."""
    send(hosts, source, target)
    at_once = found = counted(hosts, target)
    end_s = time.monotonic() + LATEST_S
    while found < SENT and time.monotonic() < end_s:
        found += counted(hosts, target)
    return at_once, found


def send(hosts: Hosts, source: str, target: str) -> None:
    """A hundred datagrams."""
    prefix = [] if source == "hub" else hosts.prefix(source)
    subprocess.run([*prefix, sys.executable, "-c", SEND, hosts.addresses[target]], check=True)


def counted(hosts: Hosts, target: str) -> int:
    """How many have come to a host since it was asked last."""
    asked = subprocess.run(
        [*hosts.prefix(target), sys.executable, "-c", ASK],
        capture_output=True,
        text=True,
        check=True,
    )
    return int(asked.stdout)


if __name__ == "__main__":
    main()
