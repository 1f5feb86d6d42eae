"""HTTP ports: names, numbers of connections, silence; and the exporter behind one."""

from __future__ import annotations

import asyncio
import os
from functools import partial
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web

from rmqha.runtime.exposure import is_loopback, open_doors
from rmqha.runtime.tls_settings import read_tls, with_tls_file
from rmqha.web.aio import port as ports
from rmqha.web.aio.exporter import Exporter
from rmqha.web.aio.port import BoundedPort, Hosts, _Guard
from rmqha.web.names import LOCAL, machine_names

HOSTS = Hosts(frozenset({"broker-1", "broker-1.example.com", "localhost"}))
POD_HOSTS = """# Kubernetes-managed hosts file.
127.0.0.1\tlocalhost
10.1.2.3\tbroker-0.broker.dev.svc.cluster.local\tbroker-0  # broker-0.comment.com
10.1.2.4\tbroker-01.example.com
"""
POD_RESOLVER = (
    "nameserver 10.96.0.10\nsearch dev.svc.cluster.local Cluster.Local.\n\noptions ndots:5\n"
)


@pytest.mark.parametrize(
    ("header", "allowed"),
    [
        ("127.0.0.1:5557", True), ("[::1]:5557", True), ("10.1.2.3", True), ("localhost", True),
        ("BROKER-1:9", True), ("broker-1.example.com:9", True), ("broker-1.", True),
        ("evil.example.com", False), ("broker-10", False), ("broker-1evil.com", False), ("", False),
        ("localhost.evil.com", False), ("broker-1.evil.com", False),
        ("broker-1.example.com.evil.com:9", False), ("127.0.0.1.evil.com", False),
    ],
)  # fmt: skip
def test_host_is_this_machines_name_or_an_address(header: str, allowed: bool) -> None:
    """A page of somebody else makes a browser ask under its own name, which he can choose."""
    assert HOSTS.allow(header) is allowed
    assert Hosts(frozenset("*")).allow(header)


def test_names_of_a_pod_are_those_that_its_own_files_know() -> None:
    """Its full name and the domains in which it looks others up; nothing that anybody could register."""
    assert machine_names("Broker-0", POD_HOSTS, POD_RESOLVER) == {
        "broker-0", "localhost", "localhost.localdomain",
        "broker-0.broker.dev.svc.cluster.local", "broker-0.broker.dev.svc",
        "broker-0.dev.svc.cluster.local", "broker-0.cluster.local",
    }  # fmt: skip
    # broker-0.broker and broker-0.broker.dev would be names in domains of the internet.


@pytest.mark.parametrize(
    ("hosts", "resolver", "more"),
    [
        ("127.0.1.1 one.example.com one\n", "", {"one.example.com"}),
        ("127.0.1.1 one\n", "domain example.com\n", {"one.example.com"}),
        ("", "search\n;search evil.com\n# search evil.com\n", set[str]()),
        ("127.0.0.1", "nameserver 10.0.0.1", set[str]()),
    ],
)
def test_names_of_a_machine_are_those_that_its_own_files_know(
    hosts: str, resolver: str, more: set[str]
) -> None:
    """Either file may know the domain, or neither."""
    assert machine_names("one", hosts, resolver) == {"one", *LOCAL, *more}


def test_hosts_of_a_machine_are_read_when_it_starts_and_may_be_added_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is given counts as it stands, and its longer forms do not."""
    name = os.uname().nodename.lower()
    (tmp_path / "hosts").write_bytes(b"10.0.0.1 %s.a.test\xff %s.b.test\n" % ((name.encode(),) * 2))
    monkeypatch.setattr(ports, "HOSTS_FILE", tmp_path / "hosts")
    monkeypatch.setattr(ports, "RESOLVER_FILE", tmp_path / "none")
    hosts = Hosts.of_machine([" Broker.Example.Com. ", ""])
    for allowed in (name, f"{name}.b.test", "broker.example.com", "localhost"):
        assert hosts.allow(f"{allowed}:5557"), allowed
    for refused in (f"{name}.evil.com", "broker.example.com.evil.com", f"{name}.c.test", ""):
        assert not hosts.allow(f"{refused}:5557"), refused


async def _get(port: int, host: str) -> tuple[int, str]:
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"http://127.0.0.1:{port}/metrics", headers={"Host": host}) as answer,
    ):
        return answer.status, await answer.text()


async def test_exporter_answers_scrapes_one_at_a_time_under_its_names() -> None:
    """It had a thread for each connection, and answered to any name."""
    running = most = 0

    def scrape() -> bytes:
        nonlocal running, most
        running += 1
        most = max(most, running)
        running -= 1
        return b"up 1\n"

    exporter = Exporter(scrape, "text/plain", HOSTS)
    port = await exporter.start("127.0.0.1", 0)
    answers = await asyncio.gather(*(_get(port, "localhost") for _ in range(6)))
    assert answers == [(200, "up 1\n")] * 6
    assert most == 1
    status, text = await _get(port, "evil.example.com")
    assert status == 421
    assert "up" not in text
    await exporter.close()


async def _served() -> tuple[BoundedPort, int]:
    async def hello(_: web.Request) -> web.Response:
        return web.Response(text="hello")

    app = web.Application()
    app.router.add_get("/metrics", hello)
    served = BoundedPort(app)
    return served, await served.start("127.0.0.1", 0)


ASKS = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n"


async def test_port_when_all_places_are_held_then_who_has_waited_longest_makes_room(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """128 connections of one byte each kept /livez from everybody, and a supervisor restarted the server."""
    monkeypatch.setattr(ports, "CONNECTIONS_MAX", 4)
    served, port = await _served()
    crowd = [await asyncio.open_connection("127.0.0.1", port) for _ in range(4)]
    for _, one in crowd[1:]:
        one.write(b"G")
    crowd[0][1].write(ASKS)
    assert b"hello" in await crowd[0][0].readuntil(b"hello")
    for number in range(1, 4):
        assert await _get(port, "localhost") == (200, "hello")
        async with asyncio.timeout(5):
            assert await crowd[number][0].read() == b"", "in the order in which they came"
            while len(served._open) == 4:  # noqa: ASYNC110 - nobody tells that a close was seen
                await asyncio.sleep(0)
        crowd.append(await asyncio.open_connection("127.0.0.1", port))
        assert served.rejected["http_connections"] == number, "a place that was free is taken"
    crowd[0][1].write(ASKS)
    assert b"hello" in await crowd[0][0].readuntil(b"hello"), "it has asked, and waited less"
    for _, one in crowd:
        one.close()
        await one.wait_closed()
    await served.close()


async def test_places_when_two_come_at_once_then_two_others_go(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A listening socket gives several at a time, before any that was closed is gone."""
    monkeypatch.setattr(ports, "CONNECTIONS_MAX", 4)
    port, closed = BoundedPort(web.Application()), list[int]()
    guards = [_Guard(object(), port) for _ in range(7)]
    for number, guard in enumerate(guards):
        monkeypatch.setattr(guard, "close", partial(closed.append, number))
    guards[1].answering = 1
    assert all(port.admit(guard, guard.protocol) for guard in guards)
    assert closed == [0, 2, 3]
    assert port.rejected == {"http_connections": 3}


async def test_port_when_all_are_being_answered_then_nobody_loses_a_place(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A crowd is refused at once; when it goes the port serves again."""
    monkeypatch.setattr(ports, "CONNECTIONS_MAX", 4)
    gate, begun = asyncio.Event(), asyncio.Semaphore(0)

    async def slow(_: web.Request) -> web.Response:
        begun.release()
        await gate.wait()
        return web.Response(text="hello")

    app = web.Application()
    app.router.add_get("/metrics", slow)
    served = BoundedPort(app)
    port = await served.start("127.0.0.1", 0)
    crowd = [asyncio.create_task(_get(port, "localhost")) for _ in range(4)]
    for _ in crowd:
        await begun.acquire()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    assert await reader.read() == b""
    assert served.rejected == {"http_connections": 1}
    writer.close()
    gate.set()
    assert await asyncio.gather(*crowd) == [(200, "hello")] * 4
    assert await _get(port, "localhost") == (200, "hello")
    await served.close()


@pytest.mark.costly
async def test_connection_that_says_nothing_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    """And one that has asked may keep its connection."""
    monkeypatch.setattr(ports, "FIRST_REQUEST_S", 0.05)
    served, port = await _served()
    for said in (b"", b"G", b"GET /metrics HTTP/1.1\r\n"):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(said)
        async with asyncio.timeout(5):
            assert await reader.read() == b""
        writer.close()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for _ in range(2):
        writer.write(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert b"hello" in await reader.readuntil(b"hello")
        await asyncio.sleep(0.1)  # longer than a silent one is suffered
    writer.close()
    await served.close()


# -- open doors ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("host", "local"),
    [("127.0.0.1", True), ("127.8.0.1", True), ("::1", True), ("[::1]", True), ("localhost", True),
     ("0.0.0.0", False), ("", False), ("::", False), ("10.0.0.1", False), ("broker-1", False)],
)  # fmt: skip
def test_loopback_addresses(host: str, local: bool) -> None:
    """An unknown name counts as one that others reach."""
    assert is_loopback(host) is local


def test_doors_close_one_by_one() -> None:
    """Each sentence goes with the setting that it names."""
    values = {"bindAddress": "0.0.0.0", "enableControllerMode": "true"}
    plain = read_tls({})
    assert len(open_doors("broker", values, plain)) == 2
    assert len(open_doors("controller", values, plain)) == 2
    assert len(open_doors("name server", values, plain)) == 1
    assert open_doors("broker", {**values, "bindAddress": "127.0.0.1"}, plain) == ()
    (left,) = open_doors("broker", {**values, "haSecret": "0123456789abcdef"}, plain)
    assert "authenticationEnabled" in left
    (left,) = open_doors("controller", {**values, "authenticationEnabled": "true"}, plain)
    assert "raftSecret" in left
    files = {
        "tls.server.certPath": "c", "tls.server.keyPath": "k", "tls.server.trustCertPath": "t",
        "tls.server.authClient": "true",
    }  # fmt: skip
    closed = {"tls.server.mode": "enforcing", "tls.server.need.client.auth": "require", **files}
    assert open_doors("broker", values, read_tls(closed)) == ()
    assert len(open_doors("broker", {**values, "haTlsEnable": "false"}, read_tls(closed))) == 2
    # Whoever may come without TLS, or without a certificate, has shown none.
    for key, word in (
        ("tls.server.mode", "permissive"), ("tls.server.mode", "disabled"),
        ("tls.server.need.client.auth", "optional"), ("tls.server.need.client.auth", "none"),
    ):  # fmt: skip
        assert len(open_doors("broker", values, read_tls({**closed, key: word}))) == 2


def test_doors_when_the_file_of_tls_says_otherwise_then_it_counts() -> None:
    """What a process's own file says of TLS is not what its ports speak."""
    own = {
        "bindAddress": "0.0.0.0", "tls.server.mode": "enforcing",
        "tls.server.need.client.auth": "require", "tls.server.authClient": "true",
        "tls.server.trustCertPath": "t", "tls.server.certPath": "c", "tls.server.keyPath": "k",
    }  # fmt: skip
    assert open_doors("name server", own, read_tls(with_tls_file(own, None))) == ()
    opened = read_tls(with_tls_file(own, "tls.server.need.client.auth=none\n"))
    assert len(open_doors("name server", own, opened)) == 1
    text = "".join(f"{key}={value}\n" for key, value in own.items() if key.startswith("tls."))
    bare = {"bindAddress": "0.0.0.0"}
    assert open_doors("name server", bare, read_tls(with_tls_file(bare, text))) == ()
