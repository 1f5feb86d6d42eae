"""Brokers whose name servers and controllers stand behind a name: they come and go, and are followed."""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any, cast

import pytest
from aiohttp import web
from msgspec.structs import replace

from rmqha.base.errors import LookupFailed
from rmqha.broker.admin.aio.status_page import BrokerPage
from rmqha.broker.aio.replica import BrokerReplica
from rmqha.broker.common.settings import BrokerConfig, load_config
from rmqha.broker.naming.address_list import AddressList
from rmqha.broker.naming.aio.lookups import AddressLookup, Lookups
from rmqha.broker.naming.aio.registration import NamesrvRegistration
from rmqha.broker.naming.messages import Registered
from rmqha.broker.topics.mapping_table import MappingTable
from rmqha.broker.topics.topic_table import TopicTable
from rmqha.remoting import fastjson
from rmqha.remoting.aio.client import RemotingClient
from rmqha.remoting.aio.server import RemotingServer
from rmqha.remoting.settings import RemotingSettings
from rmqha.runtime.aio.clock import SystemClock
from rmqha.runtime.aio.names import SystemNames
from rmqha.runtime.aio.net import TcpNetwork
from rmqha.runtime.aio.tasks import Tasks
from rmqha.runtime.logs import Logger
from rmqha.runtime.ports import Names, Network
from rmqha.sim.clock import SimClock
from rmqha.sim.loop import SimLoop
from tests.broker.replicas import NAME_SERVER, TOPIC, NameServer, ReplicaCluster, master_of

OTHER = "10.0.1.2"
FIRST, SECOND = "127.0.0.1", "127.0.0.2"
NAMES = {
    "fetchNameSrvAddrByDnsLookup": "true", "namesrvAddr": "namesrv:9876",
    "updateNameServerAddrPeriod": "5000", "registerNameServerPeriod": "10000",
    "registerBrokerTimeoutMills": "6000",
}  # fmt: skip
CONTROLLERS = {
    "fetchControllerAddrByDnsLookup": "true", "controllerAddr": "controllers:9878",
    "updateControllerAddrPeriod": "5000",
}  # fmt: skip


class Told:
    """A resolver that says what a test wants.

    Attributes:
        found: the addresses of each name; a name without any is unknown.
        asked: the names, in the order in which they were asked for.
    """

    def __init__(self, **found: list[str]) -> None:
        self.found = found
        self.asked: list[str] = []

    async def resolve(self, host: str, *, timeout_ms: int) -> list[str]:
        """Say it at once."""
        assert timeout_ms > 0
        self.asked.append(host)
        if host not in self.found:
            raise LookupFailed(f"{host}: no such name")
        return self.found[host]

    async def get(self, url: str, *, timeout_ms: int) -> str:
        """Nobody is there."""
        raise LookupFailed(f"{url}: no answer within {timeout_ms} ms")


class NamedCluster(ReplicaCluster):
    """One replica that looks its servers up, and two name servers.

    Attributes:
        names: its resolver.
        other: the second name server.
    """

    def __init__(self, names: Told, **keys: object) -> None:
        super().__init__(seed=67, replicas=1, **keys)
        self.names = names
        self.other = NameServer()
        self._on(OTHER, self._start_other)

    def _start_other(self, network: Any, context: Any) -> None:
        server = RemotingServer(
            network, SimClock(self.loop), RemotingSettings(), self.other, connection_ids=self.ids
        )
        self.loop.create_task(server.start("", 9876), context=context)

    def _maker(self, host: str) -> Callable[..., BrokerReplica]:
        del host
        return functools.partial(BrokerReplica, names=cast(Names, self.names))

    def stop(self) -> None:
        """End the replica in order."""
        task = self.loop.create_task(master_of(self).stop())
        self.until(task.done, "an end")
        task.result()


@pytest.fixture
def cluster() -> Iterator[NamedCluster]:
    """Registered at the one name server that its name has."""
    with NamedCluster(Told(namesrv=[NAME_SERVER]), **NAMES) as one:
        one.boot_all()
        one.until(lambda: one.name_server.registered, "registration")
        yield one


def test_name_server_when_it_appears_behind_the_name_then_the_broker_is_registered_there(
    cluster: NamedCluster,
) -> None:
    """Within one look-up, and not with the next change of a topic."""
    assert cluster.other.registered == []
    cluster.names.found["namesrv"] = [OTHER, NAME_SERVER]
    cluster.until(lambda: cluster.other.registered, "registration at both", limit_ms=5_500)
    assert master_of(cluster).name_servers == (f"{NAME_SERVER}:9876", f"{OTHER}:9876")
    assert master_of(cluster).config.values["namesrvAddr"] == "namesrv:9876"
    cluster.stop()
    assert len(cluster.name_server.left) == len(cluster.other.left) == 1, "it leaves both"


@pytest.mark.costly
def test_name_server_when_it_vanishes_then_nobody_waits_for_it_and_it_is_told_no_more(
    cluster: NamedCluster,
) -> None:
    """Its machine is gone: a request that waits until all know of a topic took 24 s for it."""
    cluster.names.found["namesrv"] = [OTHER, NAME_SERVER]
    cluster.until(lambda: cluster.other.registered, "registration at both")
    master = master_of(cluster)
    cluster.net.kill(OTHER, power=True)
    master.topics_changed()
    task = cluster.loop.create_task(master._registration.told(60_000))
    cluster.run_for(10)
    assert not task.done()
    cluster.names.found["namesrv"] = [NAME_SERVER]
    cluster.until(task.done, "an end of the wait", limit_ms=5_500)
    assert task.result()
    assert master.name_servers == (f"{NAME_SERVER}:9876",)
    told = len(cluster.other.registered)
    cluster._on(OTHER, cluster._start_other)
    cluster.run_for(9_000)
    assert len(cluster.other.registered) == told


def test_name_servers_when_the_resolver_fails_then_those_of_before_are_told_on(
    cluster: NamedCluster,
) -> None:
    """Clients would lose every route to it because of somebody else's outage."""
    del cluster.names.found["namesrv"]
    asked, told = len(cluster.names.asked), len(cluster.name_server.registered)
    cluster.run_for(12_000)
    assert len(cluster.names.asked) >= asked + 3
    assert master_of(cluster).name_servers == (f"{NAME_SERVER}:9876",)
    assert len(cluster.name_server.registered) > told


@pytest.mark.costly
def test_start_when_no_name_has_an_address_yet_then_the_broker_looks_on_and_reigns_at_last() -> (
    None
):
    """Pods start in any order. It is up, and serves as soon as it knows somebody."""
    names = Told()
    with NamedCluster(names, **NAMES, **CONTROLLERS) as cluster:
        for host in cluster.founders:
            cluster.boot(host)
        cluster.boot(cluster.broker_hosts[0])
        cluster.run_for(20_000)
        assert cluster.master() is None
        assert {"namesrv", "controllers"} == set(names.asked)
        names.found["controllers"] = list(cluster.founders)
        cluster.until(lambda: cluster.master() is not None, "a master", limit_ms=5_500)
        lease = master_of(cluster).manager.lease
        assert lease is not None
        cluster.until(lambda: lease.is_held, "its write lease", limit_ms=2_000)
        assert cluster.name_server.registered == []
        names.found["namesrv"] = [NAME_SERVER]
        cluster.until(lambda: cluster.name_server.registered, "registration", limit_ms=5_500)


@pytest.mark.costly
def test_controllers_when_their_addresses_change_then_the_same_group_is_asked_and_the_lease_stays() -> (
    None
):
    """One pod of three is replaced; and then the name is changed while the broker runs."""
    names = Told(controllers=["c0", "c1", "c2"], others=["c0", "c1", "c2"])
    with NamedCluster(names, **CONTROLLERS) as cluster:
        cluster.boot_all()
        master = master_of(cluster)
        lease, search = master.manager.lease, master.replicas.search
        assert lease is not None
        cluster.until(lambda: lease.is_held, "its write lease")
        names.found["controllers"] = ["c1", "c2"]
        cluster.until(lambda: search.configured == ("c1:9878", "c2:9878"), "two", limit_ms=5_500)
        assert len(search.members) == 3
        cluster.run_for(10_000)
        assert lease.losses == 0
        answer = cluster.ask(master.config.address, 25, {}, b"controllerAddr=others:9878")
        assert answer.code == 0
        cluster.until(lambda: len(search.configured) == 3, "three", limit_ms=100)
        assert (names.asked[-1], lease.losses) == ("others", 0)
        assert master.config.values["controllerAddr"] == "others:9878"


def test_broker_when_its_name_servers_are_found_then_its_page_and_its_answers_follow_them(
    cluster: NamedCluster,
) -> None:
    """The page links to those that there are; a topic's queues are asked of them."""
    master = master_of(cluster)
    body = fastjson.dumps({"topic": TOPIC, "consumerGroup": "G", "messageModel": "BROADCASTING"})
    queues = [{"brokerName": "elsewhere", "readQueueNums": 1, "writeQueueNums": 1, "perm": 6}]
    cluster.other.route = fastjson.dumps({"queueDatas": queues, "brokerDatas": []})
    assert cluster.send(1) is not None

    def assigned() -> object:
        return fastjson.loads(cluster.ask(master.config.address, 400, {}, body).body)

    none = assigned()
    cluster.names.found["namesrv"] = [OTHER]
    cluster.until(lambda: cluster.other.registered, "registration")
    assert "elsewhere" in str(assigned()), none

    async def others(network: Network) -> list[tuple[str, str]]:
        page = BrokerPage(master, clock=master.clock, network=network, log=Logger())
        found = [(one.kind, one.address) for one in page._others()]
        await page.close()
        return found

    network = cluster._on("10.0.3.1", lambda network, _: network)
    task = cluster.loop.create_task(others(network))
    cluster.until(task.done, "a page")
    assert task.result() == [
        *(("controller", f"c{number}:9878") for number in range(3)),
        ("name server", f"{OTHER}:9876"),
    ]


@pytest.mark.costly
def test_controllers_when_the_leader_names_itself_alone_then_the_list_becomes_no_shorter(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As with JRaft: by a list of one, that one's word alone would be the write lease."""
    monkeypatch.setattr(
        "rmqha.broker.membership.leader_search.members_of", lambda _, leader: ((leader,), ())
    )
    names = Told(controllers=["c0", "c1", "c2"])
    with NamedCluster(names, **CONTROLLERS) as cluster:
        cluster.boot_all()
        search = master_of(cluster).replicas.search
        cluster.until(lambda: len(search.members) == 1, "a leader")
        names.found["controllers"] = ["c1"]
        asked = len(names.asked)
        cluster.until(lambda: len(names.asked) >= asked + 2, "two look-ups", limit_ms=11_000)
        assert search.configured == ("c0:9878", "c1:9878", "c2:9878")


def test_other_sets_when_a_broker_asks_for_them_then_it_asks_the_name_servers_that_were_found(
    cluster: NamedCluster,
) -> None:
    """The name alone is nobody's address: what belongs to another set came to nobody."""
    known = {"cluster": "C", "brokerName": "elsewhere", "brokerAddrs": {"0": "10.9.9.9:1"}}
    cluster.other.route = fastjson.dumps({"queueDatas": [], "brokerDatas": [known]})
    cluster.names.found["namesrv"] = [OTHER]
    cluster.until(lambda: cluster.other.registered, "registration")
    task = cluster.loop.create_task(master_of(cluster).logical._sets.places(TOPIC))
    cluster.until(task.done, "an answer")
    assert task.result().names == ("elsewhere",)


def test_queues_when_no_name_server_is_found_yet_then_clients_keep_what_they_have() -> None:
    """Its own queues alone would take those of all other sets away from them."""
    keys = {
        "fetchNamesrvAddrByAddressServer": "true", "namesrvAddr": "",
        "rmqAddressServerDomain": "env.example",
    }  # fmt: skip
    with NamedCluster(Told(), **keys) as cluster:
        cluster.boot_all()
        assert cluster.send(1) is not None
        body = fastjson.dumps(
            {"topic": TOPIC, "consumerGroup": "G", "messageModel": "BROADCASTING"}
        )
        answer = cluster.ask(master_of(cluster).config.address, 400, {}, body)
        assert (answer.code, fastjson.loads(answer.body)) == (0, {})


# -- on real sockets and in real time


def config_of(**keys: str) -> BrokerConfig:
    """Of a broker alone that looks its name servers up all the time."""
    config = load_config(keys, host_name="b", local_address=FIRST, user_home="/h")
    return replace(config, lookups=replace(config.lookups, namesrv_period_ms=5))


class Real:
    """Name servers on loopback addresses with one port, and who registers with those that are found."""

    def __init__(self) -> None:
        self.clock, self.network = SystemClock(), TcpNetwork()
        self.tasks = Tasks(Logger())
        self.servers: list[RemotingServer] = []
        self.client = RemotingClient(self.network, self.clock, RemotingSettings())
        self.registration = NamesrvRegistration(
            client=self.client, clock=self.clock, log=Logger(), tasks=self.tasks,
            who=lambda: Registered("C", "b", "127.0.0.1:1", "127.0.0.1:2", 0),
            table=TopicTable, mappings=MappingTable, permission=lambda: 6,
            period_ms=30_000, timeout_ms=3_000, on_master=bool, on_ordered=bool,
        )  # fmt: skip

    async def serve(self, host: str, port: int) -> tuple[NameServer, int]:
        """Open a name server; itself and its port."""
        one = NameServer()
        server = RemotingServer(self.network, self.clock, RemotingSettings(), one)
        await server.start(host, port)
        self.servers.append(server)
        return one, server.port

    async def follow(self, config: BrokerConfig, names: Names | None) -> Lookups:
        """Register with whoever is found."""
        lookups = Lookups(
            config, names, self.clock, Logger(), on_name_servers=self.registration.named,
            on_controllers=lambda *_: None, may_forget=lambda: True,
        )  # fmt: skip
        await lookups.start(self.tasks)
        return lookups

    async def close(self) -> None:
        """End all."""
        await self.tasks.close()
        await self.client.close()
        for one in self.servers:
            await one.close(0)


async def until(predicate: Callable[[], object]) -> None:
    """Wait for it, five seconds at most."""
    async with asyncio.timeout(5):
        while not predicate():  # noqa: ASYNC110 - the shells offer no event for this
            await asyncio.sleep(0.002)


def test_name_servers_when_a_name_has_two_addresses_then_both_are_told_and_left() -> None:
    """As a headless service of Kubernetes has it: one port, an address for each pod."""

    async def follow() -> None:
        real, names = Real(), Told(namesrv=[FIRST])
        first, port = await real.serve(FIRST, 0)
        second, _ = await real.serve(SECOND, port)
        keys = {"fetchNameSrvAddrByDnsLookup": "true", "namesrvAddr": f"namesrv:{port}"}
        try:
            lookups = await real.follow(config_of(**keys), cast(Names, names))
            assert lookups.name_servers == (f"{FIRST}:{port}",), "a start waits for the first"
            await until(lambda: first.registered)
            assert second.registered == []
            names.found["namesrv"] = [SECOND, FIRST]
            await until(lambda: second.registered)
            names.found["namesrv"] = [SECOND]
            await until(lambda: len(lookups.name_servers) == 1)
            await until(lambda: len(real.tasks) == 2)  # nothing is left of the first
            await real.registration.unregister()
            assert (first.left, len(second.left)) == ([], 1)
        finally:
            await real.close()

    asyncio.run(follow())


def test_name_servers_when_an_address_server_tells_them_then_they_are_told() -> None:
    """Java's HTTP way; a page of an error takes nobody away."""

    async def follow() -> None:
        real, said = Real(), ["oops; <html>"]
        first, port = await real.serve(FIRST, 0)
        second, _ = await real.serve(SECOND, port)
        asked: list[str] = []

        async def answer(request: web.Request) -> web.Response:
            asked.append(request.path_qs)
            return web.Response(text=said[0])

        app = web.Application()
        app.router.add_get("/rocketmq/{group}", answer)
        runner = web.AppRunner(app)
        await runner.setup()
        site = web.TCPSite(runner, FIRST, 0)
        await site.start()
        server = cast(asyncio.Server, site._server)
        where = f"{FIRST}:{server.sockets[0].getsockname()[1]}"
        keys = {
            "fetchNamesrvAddrByAddressServer": "true", "rmqAddressServerDomain": where,
            "rmqAddressServerSubGroup": "nsaddr-a",
        }  # fmt: skip
        try:
            lookups = await real.follow(config_of(**keys), SystemNames())
            assert (lookups.name_servers, set(asked)) == ((), {"/rocketmq/nsaddr-a"})
            said[0] = f" {FIRST}:{port}; {SECOND}:{port}\n"
            await until(lambda: first.registered and second.registered)
            said[0] = "oops; <html>"
            count = len(asked)
            await until(lambda: len(asked) > count + 1)
            assert lookups.name_servers == (f"{FIRST}:{port}", f"{SECOND}:{port}")
        finally:
            await real.close()
            await runner.cleanup()

    asyncio.run(follow())


def test_start_when_the_resolver_hangs_then_it_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker that never starts helps nobody, and its slaves wait for it."""

    class Hanging(Told):
        async def resolve(self, host: str, *, timeout_ms: int) -> list[str]:
            self.asked.append(host)
            await asyncio.Event().wait()
            raise AssertionError(timeout_ms)

    monkeypatch.setattr("rmqha.broker.naming.aio.lookups.FIRST_MS_MAX", 20)
    keys = {"fetchNameSrvAddrByDnsLookup": "true", "namesrvAddr": "namesrv:1"}

    async def follow() -> None:
        real, names = Real(), Hanging()
        try:
            async with asyncio.timeout(3):
                lookups = await real.follow(config_of(**keys), cast(Names, names))
            assert (lookups.name_servers, names.asked) == ((), ["namesrv"])
        finally:
            await real.close()

    asyncio.run(follow())


def test_lookup_when_there_is_nobody_to_ask_then_that_is_told_and_it_goes_on() -> None:
    """A process that has no resolver: the task that looks up ended, and the broker with it."""

    async def follow() -> None:
        real = Real()
        try:
            keys = {"fetchNameSrvAddrByDnsLookup": "true", "namesrvAddr": "namesrv:1"}
            lookups = await real.follow(config_of(**keys), None)
            assert lookups._running[0].listed._reason == "there is nobody to ask"
            assert len(real.tasks) == 1
        finally:
            await real.close()

    asyncio.run(follow())


def test_lookup_when_it_was_done_early_then_the_next_one_is_a_whole_period_later() -> None:
    """The timer of before would go on: one more look-up for each time that a name was changed."""

    async def follow(loop: SimLoop) -> None:
        asked = list[tuple[str, float]]()

        async def ask(name: str) -> list[str]:
            asked.append((name, round(loop.time())))
            return [name]

        one = AddressLookup(
            AddressList("controllerAddr", "old:1", 60_000), ask, SimClock(loop), Logger(),
            on_change=lambda *_: None,
        )  # fmt: skip
        tasks = Tasks(Logger())
        begun = round(loop.time())
        tasks.start(one.run(), name="look-up")
        await asyncio.sleep(40)
        one.rename(AddressList("controllerAddr", "new:1", 60_000))
        await asyncio.sleep(70)
        await tasks.close()
        assert [(name, at - begun) for name, at in asked] == [
            ("old:1", 0), ("new:1", 40), ("new:1", 100)
        ]  # fmt: skip

    with contextlib.closing(SimLoop()) as loop:
        loop.run_until_complete(follow(loop))


def test_lookup_when_the_name_is_another_meanwhile_then_an_answer_for_the_old_one_is_nothing() -> (
    None
):
    """The controllers of before would be beaten to again, and counted."""

    async def follow() -> None:
        gate, told = asyncio.Event(), list[tuple[tuple[str, ...], bool]]()

        async def ask(name: str) -> list[str]:
            if name == "old:1":
                await gate.wait()
            return [name]

        listed = AddressList("controllerAddr", "old:1", 60_000)
        one = AddressLookup(
            listed, ask, SystemClock(), Logger(), on_change=lambda *found: told.append(found)
        )
        tasks = Tasks(Logger())
        tasks.start(one.run(), name="look-up")
        await asyncio.sleep(0)
        one.rename(AddressList("controllerAddr", "new:1", 60_000))
        gate.set()
        await until(lambda: told)
        await tasks.close()
        assert told == [(("new:1",), False)], "nor are they the same group"

    asyncio.run(follow())
