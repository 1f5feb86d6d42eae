"""The whole name server in virtual time: its port, its files, what it sends by itself."""

from __future__ import annotations

import asyncio
import contextvars
import itertools
import random
from collections.abc import Callable, Coroutine, Iterator, Mapping
from typing import Any

import pytest

from rmqha.base.errors import ConnectionLost, DiskFailed, RmqhaError, StoreCorrupted
from rmqha.namesrv.aio.service import NameServer
from rmqha.namesrv.settings import load_config
from rmqha.remoting import fastjson
from rmqha.remoting.aio.client import RemotingClient
from rmqha.remoting.aio.connection import Connection
from rmqha.remoting.aio.server import RemotingServer
from rmqha.remoting.command import RemotingCommand
from rmqha.remoting.settings import RemotingSettings
from rmqha.runtime.aio.properties_file import PropertiesFile
from rmqha.runtime.properties import parse_properties
from rmqha.sim.clock import SimClock
from rmqha.sim.disk import SimDisk
from rmqha.sim.loop import HOST, SimLoop
from rmqha.sim.net import SimNet
from rmqha.sim.trace import Trace, TraceLogger
from tests.namesrv.node import broker_fields, registration_body, topic

PORT = 9876
KV_PATH = "/home/namesrv/kvConfig.json"
BODY = registration_body([topic("A"), topic("B")])
ORDERED = {"namespace": "ORDER_TOPIC_CONFIG", "key": "A", "value": "b:4"}


class SlowDisk(SimDisk):
    """A disk that can be told to wait, or to fail."""

    def __init__(self) -> None:
        super().__init__(random.Random(1))
        self.gate: asyncio.Event | None = None
        self.broken = False
        self.writes = 0

    async def write_atomic(self, path: str, data: bytes) -> None:
        """Replace a file."""
        if self.gate is not None:
            await self.gate.wait()
        if self.broken:
            raise DiskFailed("no space left")
        self.writes += 1
        await super().write_atomic(path, data)


class World:
    """A simulated network with one name server on host ``ns``."""

    def __init__(self) -> None:
        self.loop = SimLoop()
        self.trace = Trace(self.loop)
        self.net = SimNet(self.loop, random.Random(7))
        self.ids = itertools.count(1)
        self.disk = SlowDisk()
        self.contexts: dict[str, contextvars.Context] = {}
        self.clients: dict[str, RemotingClient] = {}
        self.server: NameServer | None = None

    def on(self, host: str, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Run work on a host, in the background."""
        return self.loop.create_task(work, context=self.contexts[host].copy())

    def do(self, host: str, work: Coroutine[Any, Any, Any]) -> Any:
        """Run work on a host until it ends."""
        return self.loop.run_until_complete(self.on(host, work))

    def boot(self, host: str) -> Any:
        """A host's network."""
        context = contextvars.copy_context()
        context.run(HOST.set, host)
        self.contexts[host] = context
        return self.net.boot(host, context)

    def start(self, settings: Mapping[str, str] | None = None, port: int = PORT) -> int:
        """Start the name server; returns its port."""
        network = self.boot("ns")
        self.server = NameServer(
            load_config(dict(settings or {}), user_home="/home"),
            clock=SimClock(self.loop),
            disk=self.disk,
            network=network,
            log=TraceLogger(self.trace, "ns"),
            connection_ids=self.ids,
        )
        found: int = self.do("ns", self.server.start("0.0.0.0", port))
        return found

    def stop(self) -> None:
        """Stop the name server in order."""
        assert self.server is not None
        self.do("ns", self.server.stop())

    def client(self, host: str) -> RemotingClient:
        """A host's client, with one connection to the name server."""
        if host not in self.clients:
            network = self.boot(host)
            self.clients[host] = RemotingClient(
                network, SimClock(self.loop), RemotingSettings(idle_timeout_ms=0),
                connection_ids=self.ids,
            )  # fmt: skip
        return self.clients[host]

    def send(
        self, host: str, code: int, fields: Mapping[str, str] | None = None, body: bytes = b""
    ) -> asyncio.Task[RemotingCommand]:
        """Send a request; its answer comes in the background."""
        command = RemotingCommand(code, ext_fields=dict(fields or {}), body=body, version=479)
        return self.on(host, self.client(host).invoke(f"ns:{PORT}", command, 20_000))

    def ask(
        self, host: str, code: int, fields: Mapping[str, str] | None = None, body: bytes = b""
    ) -> RemotingCommand:
        """Send a request and wait for its answer."""
        return self.loop.run_until_complete(self.send(host, code, fields, body))

    def addresses(self) -> dict[str, str]:
        """The brokers of set b by id."""
        table = fastjson.loads(self.ask("client", 106).body)["brokerAddrTable"]
        found: dict[str, str] = table.get("b", {}).get("brokerAddrs", {})
        return found

    def run_for(self, ms: float) -> None:
        """Let time pass."""
        self.loop.run_until_complete(asyncio.sleep(ms / 1000))

    def run_until(self, done: Callable[[], object], limit_ms: float = 10_000) -> float:
        """Let time pass until it is so; returns how long that took."""
        start = self.loop.time()
        while not done():
            assert (self.loop.time() - start) * 1000 < limit_ms, "\n".join(self.trace.lines)
            self.run_for(1)
        return (self.loop.time() - start) * 1000


@pytest.fixture
def world() -> Iterator[World]:
    """A network; nothing may have failed unseen in it."""
    one = World()
    yield one
    for host, client in one.clients.items():
        one.do(host, client.close())
    if one.server is not None:
        one.stop()
    assert [] == one.loop.errors
    one.loop.close()


class DeafBroker:
    """Takes one-way requests and keeps them."""

    def __init__(self) -> None:
        self.got: list[RemotingCommand] = []

    def on_commands(self, connection: Connection, commands: list[RemotingCommand]) -> None:
        """Keep them."""
        self.got += commands

    def on_closed(self, connection: Connection, error: Exception | None) -> None:
        """Nothing to do."""


def test_broker_when_its_process_dies_then_it_leaves_the_route_within_milliseconds(
    world: World,
) -> None:
    """kill -9 resets its connections; Java reacts to the same thing."""
    world.start()
    world.ask("b1", 103, broker_fields(), BODY)
    assert {"0": "10.0.0.1:10911"} == world.addresses()
    world.net.kill("b1", power=False)
    del world.clients["b1"]
    assert world.run_until(lambda: not world.addresses(), 50) < 50


@pytest.mark.slow
def test_broker_when_it_loses_power_then_it_leaves_when_its_time_is_up(world: World) -> None:
    """Nobody tells of it: only its own timeout and the scan every 5 s do."""
    world.start()
    world.ask("b1", 103, broker_fields(heartbeatTimeoutMillis=9_000), BODY)
    world.net.kill("b1", power=True)
    del world.clients["b1"]
    assert 9_000 < world.run_until(lambda: not world.addresses(), 20_000) < 14_100


@pytest.mark.costly
def test_broker_when_it_is_silent_then_its_connection_is_closed_as_well(world: World) -> None:
    """So that it notices and registers anew."""
    world.start()
    world.ask("b1", 103, broker_fields(heartbeatTimeoutMillis=3_000), BODY)
    waiting = world.on("b1", _wait_for_the_end(world))
    world.run_until(waiting.done, 20_000)


async def _wait_for_the_end(world: World) -> None:
    clock = SimClock(world.loop)
    network = world.net.boot("probe", world.contexts["b1"])
    ended = asyncio.get_running_loop().create_future()
    connection = Connection(
        next(world.ids),  # type: ignore[arg-type]  # numbers serve as ids
        clock,
        RemotingSettings(idle_timeout_ms=0),
        on_commands=lambda *_: None,
        on_closed=lambda _, error: ended.set_result(error),
    )
    await network.connect("ns", PORT, lambda: connection, timeout_ms=1000)
    fields = broker_fields(brokerAddr="10.0.0.9:1", brokerId=9, heartbeatTimeoutMillis=1)
    connection.send(RemotingCommand(103, ext_fields=fields, body=BODY))
    await ended


def test_connection_when_it_is_idle_for_120_s_then_it_is_closed(world: World) -> None:
    """serverChannelMaxIdleTimeSeconds; a broker that registers every 30 s never is."""
    world.start({"serverChannelMaxIdleTimeSeconds": "120"})
    world.ask("b1", 103, broker_fields(heartbeatTimeoutMillis=10_000_000), BODY)
    world.run_for(119_000)
    assert world.addresses()
    world.run_for(2_000)
    assert not world.addresses()


@pytest.mark.parametrize("alive", [True, False])
def test_brokers_when_the_smallest_id_changes_then_they_are_sent_905(
    world: World, *, alive: bool
) -> None:
    """One-way, over the name server's own connection; a dead broker is no reason to fail."""
    world.start({"notifyMinBrokerIdChanged": "true"})
    network = world.boot("10.0.0.2")
    broker = DeafBroker()
    port = RemotingServer(
        network, SimClock(world.loop), RemotingSettings(), broker, connection_ids=world.ids
    )
    if alive:
        world.do("10.0.0.2", port.start("0.0.0.0", 10911))
    slave = broker_fields(brokerId=2, brokerAddr="10.0.0.2:10911", enableActingMaster=True)
    world.ask("b1", 103, broker_fields(enableActingMaster=True), BODY)
    world.ask("b2", 103, slave, BODY)
    world.net.kill("b1", power=False)
    del world.clients["b1"]
    assert world.server is not None
    server = world.server
    world.run_until(lambda: broker.got or server.notifications_lost)
    assert alive == (not server.notifications_lost)
    if alive:
        expected = {
            "minBrokerId": "2", "minBrokerAddr": "10.0.0.2:10911",
            "offlineBrokerAddr": "10.0.0.1:10911",
        }  # fmt: skip
        assert [(905, True, expected)] == [
            (one.code, one.is_oneway, one.ext_fields) for one in broker.got
        ]
        world.do("10.0.0.2", port.close())


def test_kv_when_power_fails_after_the_answer_then_it_is_still_there(world: World) -> None:
    """An answered put is on disk; and Java's file is where Java has it."""
    world.start()
    assert 0 == world.ask("client", 100, ORDERED).code
    world.net.kill("ns", power=True)
    world.loop.end_host("ns")
    world.disk.power_cut()
    world.clients.clear()
    world.server = None
    found = world.loop.run_until_complete(world.disk.read(KV_PATH))
    assert found == b'{"configTable":{"ORDER_TOPIC_CONFIG":{"A":"b:4"}}}'
    world.start()
    assert {"value": "b:4"} == world.ask("client", 101, ORDERED).ext_fields


def test_kv_when_the_disk_waits_then_so_does_the_answer_and_many_share_a_write(
    world: World,
) -> None:
    """A thousand puts must not be a thousand writes, one after the other."""
    world.start()
    world.disk.gate = asyncio.Event()
    puts = [world.send("client", 100, {**ORDERED, "key": f"T{n}"}) for n in range(1000)]
    world.run_for(1000)
    assert not any(put.done() for put in puts)
    assert world.addresses() == {}
    world.disk.gate.set()
    world.run_until(lambda: all(put.done() for put in puts))
    assert {0} == {put.result().code for put in puts}
    assert world.disk.writes <= 3
    table = fastjson.loads(world.do("ns", world.disk.read(KV_PATH)))["configTable"]
    assert 1000 == len(table["ORDER_TOPIC_CONFIG"])


def test_kv_when_too_many_wait_for_the_disk_then_the_next_is_told_busy(world: World) -> None:
    """What waits is memory; nothing of a refused put has happened."""
    world.start({"defaultThreadPoolQueueCapacity": "5"})
    world.disk.gate = asyncio.Event()
    puts = [world.send("client", 100, ORDERED)]
    world.run_for(10)  # now it is being written, and waits no more
    puts += [world.send("client", 100, ORDERED) for _ in range(7)]
    world.run_for(1000)
    assert [2, 2] == [put.result().code for put in puts if put.done()]
    world.disk.gate.set()
    world.run_until(lambda: all(put.done() for put in puts))
    assert [0] * 6 + [2] * 2 == sorted(put.result().code for put in puts)


def test_kv_when_the_disk_fails_then_the_answer_says_so_and_the_next_may_succeed(
    world: World,
) -> None:
    """Java answers success."""
    world.start()
    world.disk.broken = True
    answer = world.ask("client", 100, ORDERED)
    assert (1, "changed, but not stored: no space left") == (answer.code, answer.remark)
    world.disk.broken = False
    assert 0 == world.ask("client", 102, {"namespace": "other", "key": "k"}).code
    assert b"b:4" in world.do("ns", world.disk.read(KV_PATH))


def test_kv_when_writing_it_fails_in_another_way_then_everybody_is_told(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The task that writes ends; who waits for it, or for the next write, must not wait for ever."""
    world.start()
    world.disk.gate = asyncio.Event()
    failing = world.disk.write_atomic

    async def odd(path: str, data: bytes) -> None:
        await failing(path, data)
        raise ValueError("nobody reckons with this")

    monkeypatch.setattr(world.disk, "write_atomic", odd)
    puts = [world.send("client", 100, ORDERED)]
    world.run_for(10)  # now it is being written
    puts.append(world.send("client", 100, ORDERED))
    world.run_for(10)
    world.disk.gate.set()
    world.run_until(lambda: all(put.done() for put in puts))
    assert {(put.result().code, put.result().remark) for put in puts} == {
        (1, f"changed, but not stored: {KV_PATH} was not written")
    }
    monkeypatch.undo()
    assert world.ask("client", 100, ORDERED).code == 0


def test_stop_when_a_put_waits_for_the_disk_then_it_is_stored_all_the_same(world: World) -> None:
    """SIGTERM loses nothing that was taken."""
    world.start()
    world.disk.gate = asyncio.Event()
    put = world.send("client", 100, ORDERED)
    world.run_for(100)
    assert world.server is not None
    stopping = world.on("ns", world.server.stop())
    world.run_for(500)
    assert not stopping.done()
    world.disk.gate.set()
    world.run_until(stopping.done)
    world.run_until(put.done)
    with pytest.raises(ConnectionLost):
        put.result()
    assert b"b:4" in world.do("ns", world.disk.read(KV_PATH))
    world.server = None


def test_start_when_the_kv_file_is_damaged_then_it_is_named_and_left_alone(world: World) -> None:
    """Somebody can still mend it."""
    network = world.boot("ns")
    world.do("ns", world.disk.make_dirs("/home/namesrv"))
    world.do("ns", world.disk.write_atomic(KV_PATH, b"{broken"))
    server = NameServer(
        load_config({}, user_home="/home"), clock=SimClock(world.loop), disk=world.disk,
        network=network, log=TraceLogger(world.trace, "ns"), connection_ids=world.ids,
    )  # fmt: skip
    with pytest.raises(StoreCorrupted, match=KV_PATH):
        world.do("ns", server.start("0.0.0.0", PORT))
    assert b"{broken" == world.do("ns", world.disk.read(KV_PATH))


def test_config_when_it_changes_then_the_file_has_all_of_it(world: World) -> None:
    """A restart with the same file must not forget what an operator changed."""
    world.start({"someKey": "x"})
    assert 0 == world.ask("client", 318, body=b"enableTopicList=false\n").code
    text = world.do("ns", world.disk.read("/home/namesrv/namesrv.properties")).decode()
    assert {"enableTopicList=false", "someKey=x", "listenPort=9876"} <= set(text.splitlines())


def test_config_when_a_controller_writes_the_same_file_then_neither_undoes_the_other(
    world: World,
) -> None:
    """Without ``-c`` both may be told the same ``configStorePath`` by the environment."""
    path = "/home/namesrv/namesrv.properties"
    network = world.boot("ns")
    world.do("ns", world.disk.make_dirs("/home/namesrv"))
    file = PropertiesFile(world.disk, path, is_edited=False)
    world.server = NameServer(
        load_config({}, user_home="/home"), clock=SimClock(world.loop), disk=world.disk,
        network=network, log=TraceLogger(world.trace, "ns"), connection_ids=world.ids,
        config_file=file,
    )  # fmt: skip
    world.do("ns", world.server.start("0.0.0.0", PORT))
    for number in ("7", "8"):
        file.take({"scanInactiveMasterInterval": number})
        world.do("ns", file.write(lambda: {"enableTopicList": "as at the start"}))
        assert 0 == world.ask("client", 318, body=b"enableTopicList=false\n").code
    text = world.do("ns", world.disk.read(path)).decode()
    assert parse_properties(text) == {"enableTopicList": "false", "scanInactiveMasterInterval": "8"}
    # One that was not written is not brought back once the file is read again.
    file.take({"orderMessageEnable": "false"})
    assert world.server.change_config({"orderMessageEnable": "true"}) is None
    world.do("ns", file.write(dict))
    assert "orderMessageEnable" not in world.do("ns", world.disk.read(path)).decode()


def test_port_when_0_is_asked_for_then_the_one_in_use_is_told(world: World) -> None:
    """Fixtures start many name servers side by side."""
    port = world.start(port=0)
    assert world.server is not None
    assert 0 < port == world.server.port


def test_request_when_no_name_server_knows_it_then_3_and_one_way_ones_are_never_answered(
    world: World,
) -> None:
    """A client that waits for no answer would take it for another's."""
    world.start()
    answer = world.ask("client", 1005)
    assert (3, " request type 1005 not supported") == (answer.code, answer.remark)
    client = world.client("client")
    for code in (1005, 106, 100):
        command = RemotingCommand(code, ext_fields=dict(ORDERED))
        world.do("client", client.invoke_oneway(f"ns:{PORT}", command))
    world.ask("client", 106)
    assert world.server is not None
    assert {106: 2, 100: 1} == world.server.requests


def test_connection_when_it_sends_no_frames_then_it_alone_is_closed(world: World) -> None:
    """A peer's mistake is its own."""
    world.start()
    world.ask("b1", 103, broker_fields(), BODY)

    async def noise() -> None:
        ended = asyncio.get_running_loop().create_future()

        class Raw(asyncio.Protocol):
            def connection_made(self, transport: asyncio.BaseTransport) -> None:
                transport.write(b"GET / HTTP/1.1\r\n\r\n")  # type: ignore[attr-defined]  # simulated

            def connection_lost(self, exc: Exception | None) -> None:
                ended.set_result(None)

        network = world.net.boot("evil", world.contexts["evil"])
        await network.connect("ns", PORT, Raw, timeout_ms=1000)
        await ended

    world.boot("evil")
    world.do("evil", noise())
    assert {"0": "10.0.0.1:10911"} == world.addresses()
    assert world.server is not None
    assert 1 == world.server.protocol_errors


def test_client_when_the_server_is_gone_then_it_fails_as_ever(world: World) -> None:
    """The world's own client, so that the tests above can trust it."""
    world.boot("ns")
    with pytest.raises(RmqhaError):
        world.ask("client", 106)
