"""Real replicas and real controllers on simulated hosts, a name server that writes down, a producer."""

from __future__ import annotations

import contextlib
import contextvars
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Self

from rmqha.base.errors import RmqhaError
from rmqha.broker.aio.replica import BrokerReplica
from rmqha.broker.common.settings import BrokerConfig, load_config
from rmqha.ha.events import Role
from rmqha.remoting import fastjson
from rmqha.remoting.aio.client import RemotingClient
from rmqha.remoting.aio.connection import Connection
from rmqha.remoting.aio.server import RemotingServer, unsupported
from rmqha.remoting.command import RemotingCommand
from rmqha.remoting.settings import RemotingSettings
from rmqha.sim.clock import SimClock
from rmqha.sim.cluster import CONTROLLER_PORT, SimCluster, SimOptions
from rmqha.sim.disk import SimDisk
from rmqha.sim.loop import HOST
from rmqha.sim.stalls import SimWatch

NAME = "broker-a"
NAME_SERVER = "10.0.1.1"
CLIENT = "10.0.2.1"
PORT = 10911
TOPIC = "Orders"
QUEUES = 4


def make_config(host: str, controllers: tuple[str, ...], **keys: object) -> BrokerConfig:
    """A replica's configuration with small files and short periods."""
    properties = {
        "enableControllerMode": "true",
        "brokerName": NAME,
        "brokerIP1": host,
        "namesrvAddr": f"{NAME_SERVER}:9876",
        "controllerAddr": ";".join(controllers),
        "storePathRootDir": "/store",
        "mappedFileSizeCommitLog": "65536",
        "mappedFileSizeConsumeQueue": "2000",
        "maxHashSlotNum": "50",
        "maxIndexNum": "200",
        "brokerHeartbeatInterval": "300",
        "controllerHeartBeatTimeoutMills": "4000",
        "syncBrokerMetadataPeriod": "1000",
        "syncControllerMetadataPeriod": "2000",
        "allAckInSyncStateSet": "true",
        "scrubBytesPerSecond": "0",
        **{key: str(value) for key, value in keys.items()},
    }
    return load_config(properties, host_name="h", local_address=host, user_home="/home")


class NameServer:
    """Answers 103 and 104 as Java's does, as far as a broker can tell; keeps every request."""

    def __init__(self) -> None:
        self.registered: list[tuple[dict[str, str], Any]] = []
        self.left: list[dict[str, str]] = []
        self.brokers: dict[int, tuple[str, str]] = {}
        self.answers_master = True
        self.order_conf: bytes = b""
        self.hangs_up = False
        self.route: bytes = b""

    def on_commands(self, connection: Connection, commands: list[RemotingCommand]) -> None:
        """Handle requests."""
        for command in commands:
            fields = dict(command.ext_fields or {})
            if command.code == 103:
                self.registered.append((fields, fastjson.loads(command.body)))
                connection.send(command.reply(0, None, self._listed(fields), self.order_conf))
                if self.hangs_up:
                    connection.close()
            elif command.code == 104:
                self.left.append(fields)
                connection.send(command.reply(0))
            elif command.code == 105 and self.route:
                connection.send(command.reply(0, body=self.route))
            else:
                connection.send(unsupported(command))

    def _listed(self, fields: dict[str, str]) -> dict[str, str]:
        broker_id, address = int(fields["brokerId"]), fields["brokerAddr"]
        self.brokers = {k: v for k, v in self.brokers.items() if v[0] != address}
        self.brokers[broker_id] = (address, fields["haServerAddr"])
        if broker_id == 0 or 0 not in self.brokers or not self.answers_master:
            return {}
        master, ha_address = self.brokers[0]
        return {"masterAddr": master, "haServerAddr": ha_address}

    def on_closed(self, connection: Connection, error: Exception | None) -> None:
        """Nothing to forget."""


@dataclass(frozen=True, slots=True)
class Acked:
    """One acknowledged message."""

    body: bytes
    queue_id: int
    queue_offset: int
    address: str


class ReplicaCluster(SimCluster):
    """Hosts ``c0..`` with controllers, ``10.0.0.1..`` with replicas of one set.

    Args:
        seed: decides everything.
        replicas: how many.
        config_path: of the file that a replica was started with.
        watched: each replica has a watcher, which acts while it stands still.
        spare_controllers: beside the group, and not among ``controllerAddr``; not booted.
        keys: further properties of every replica.
    """

    def __init__(
        self,
        seed: int,
        replicas: int = 3,
        *,
        config_path: str = "",
        watched: bool = False,
        spare_controllers: int = 0,
        **keys: object,
    ) -> None:
        options = SimOptions(broker_sets=0, replicas=replicas, spare_controllers=spare_controllers)
        super().__init__(seed, options)
        self.keys = keys
        self.config_path = config_path
        self._watched = watched
        self._watches: dict[str, SimWatch] = {}
        self.broker_hosts = [f"10.0.0.{number}" for number in range(1, replicas + 1)]
        for host in self.broker_hosts:
            self.disks[host] = SimDisk(random.Random(self.rng.random()))
        self.replicas: dict[str, BrokerReplica] = {}
        self.roles: list[tuple[str, Role, int]] = []
        self.power_lives = dict.fromkeys(self.broker_hosts, 0)
        self.name_server = NameServer()
        self.acked: list[Acked] = []
        self.refused: list[tuple[int, str]] = []
        self._client = self._on(CLIENT, self._make_client)
        self._on(NAME_SERVER, self._start_name_server)

    def _on(self, host: str, make: Callable[[Any, Any], Any]) -> Any:
        context = contextvars.copy_context()
        context.run(HOST.set, host)
        network = self.net.boot(host, context)
        return context.run(make, network, context)

    def _make_client(self, network: Any, context: Any) -> RemotingClient:
        self._client_context = context
        settings = RemotingSettings(invoke_timeout_ms=4000)
        return RemotingClient(network, SimClock(self.loop), settings, connection_ids=self.ids)

    def restart_name_server(self) -> None:
        """It ends, and is there again at once, knowing nobody."""
        self.net.kill(NAME_SERVER, power=False)
        self.name_server.registered.clear()
        self._on(NAME_SERVER, self._start_name_server)

    def _start_name_server(self, network: Any, context: Any) -> None:
        server = RemotingServer(
            network, SimClock(self.loop), RemotingSettings(), self.name_server,
            connection_ids=self.ids,
        )  # fmt: skip
        self.loop.create_task(server.start("", 9876), context=context)

    def _broker(self, host: str, ports: dict[str, Any]) -> BrokerReplica:  # type: ignore[override]  # a replica in an agent's place
        controllers = tuple(f"{h}:{CONTROLLER_PORT}" for h in self.founders)
        watch = SimWatch(self, host, ports["clock"]) if self._watched else None
        if watch is not None:
            self._watches[host] = watch
        replica = self._maker(host)(
            make_config(host, controllers, **self._keys_of(host)),
            boot_id=f"life-{self.power_lives[host]}",
            config_path=self.config_path,
            watch=watch,
            on_fatal=self.loop.errors.append,
            on_role=lambda role, epoch: self._role_taken(host, role, epoch),
            **ports,
        )
        self.replicas[host] = replica
        return replica

    def _maker(self, host: str) -> Callable[..., BrokerReplica]:
        """What makes the replica of a host."""
        del host
        return BrokerReplica

    def _role_taken(self, host: str, role: Role, epoch: int) -> None:
        self.roles.append((host, role, epoch))

    def _keys_of(self, host: str) -> dict[str, object]:
        """Further properties of one replica."""
        del host
        return self.keys

    def kill(self, host: str, *, power: bool = False) -> None:
        """End a host's process at once."""
        self.replicas.pop(host, None)
        if host in self._watches:
            self._watches.pop(host).close()
        if power and host in self.power_lives:
            self.power_lives[host] += 1
        super().kill(host, power=power)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- waiting, asking -----------------------------------------------------------------------------

    def boot_all(self) -> None:
        """Controllers first, then the replicas, one after another."""
        for host in self.founders:
            self.boot(host)
        self.until(lambda: self.leader() is not None, "a controller leader")
        for host in self.broker_hosts:
            self.boot(host)
            self.until(lambda: self.master() is not None, "a master")

    def until(self, predicate: Callable[[], object], what: str, limit_ms: int = 60_000) -> None:
        """Let virtual time pass until something holds.

        Raises:
            AssertionError: it never did; the end of the trace is shown.
        """
        for _ in range(limit_ms // 20):
            if predicate():
                return
            self.run_for(20)
        tail = "\n".join(self.trace.lines[-40:])
        raise AssertionError(f"no {what} within {limit_ms} ms\n{tail}")

    def master(self) -> BrokerReplica | None:
        """The serving master of the highest epoch."""
        found = [one for one in self.replicas.values() if one.role is Role.MASTER]
        return max(found, key=lambda one: one.replicas.place.master_epoch, default=None)

    def host_of(self, replica: BrokerReplica) -> str:
        """Its host."""
        return replica.config.host

    def controller_set(self) -> frozenset[int]:
        """The SyncStateSet at the controllers' leader."""
        leader = self.leader()
        one = None if leader is None else self.controllers[leader].machine.state.sets.get(NAME)
        return frozenset() if one is None else frozenset(one.sync_state_set)

    def in_sync(self) -> bool:
        """Every replica lives and is in the SyncStateSet."""
        ids = {one.replicas.broker_id for one in self.replicas.values()}
        return len(ids) == len(self.broker_hosts) and self.controller_set() == ids

    def ask(
        self, address: str, code: int, fields: dict[str, str] | None = None, body: bytes = b"",
        timeout_ms: int | None = None,
    ) -> RemotingCommand:  # fmt: skip
        """Send a request from the client's host."""
        command = RemotingCommand(code, ext_fields=fields, body=body)
        task = self.loop.create_task(
            self._client.invoke(address, command, timeout_ms), context=self._client_context.copy()
        )
        self.until(task.done, "answer")
        return task.result()

    def ask_together(
        self, address: str, code: int, requests: Sequence[tuple[dict[str, str], bytes]]
    ) -> list[RemotingCommand]:
        """Send many requests at once; their answers in the same order."""
        tasks = [
            self.loop.create_task(
                self._client.invoke(address, RemotingCommand(code, ext_fields=fields, body=body)),
                context=self._client_context.copy(),
            )
            for fields, body in requests
        ]
        self.until(lambda: all(task.done() for task in tasks), "answers")
        return [task.result() for task in tasks]

    def ask_later(
        self, address: str, code: int, fields: dict[str, str], body: bytes = b"",
        told: Callable[[RemotingCommand], object] = bool,
    ) -> None:  # fmt: skip
        """Send a request; ``told`` is given its answer."""
        command = RemotingCommand(code, ext_fields=fields, body=body)

        async def ask() -> None:
            with contextlib.suppress(RmqhaError):
                told(await self._client.invoke(address, command, 60_000))

        self.loop.create_task(ask(), context=self._client_context.copy())

    def send(
        self, number: int, *, to: BrokerReplica | None = None, **fields: str
    ) -> RemotingCommand | None:
        """Send one message to the master; None when there is none or it is silent."""
        master = to or self.master()
        if master is None:
            return None
        body = f"body-{number}".encode()
        address = master.config.address
        try:
            answer = self.ask(address, 310, {**send_fields(number), **fields}, body)
        except RmqhaError:
            return None
        if answer.code == 0:
            got = answer.ext_fields or {}
            offset = int(got["queueOffset"])
            self.acked.append(Acked(body, int(got["queueId"]), offset, address))
        else:
            self.refused.append((answer.code, answer.remark or ""))
        return answer

    def send_without_waiting(self, count: int) -> None:
        """Send to the master; nobody looks at the answers."""
        master = self.master()
        assert master is not None
        for number in range(count):
            self.loop.create_task(
                self._send_blindly(master.config.address, number),
                context=self._client_context.copy(),
            )

    async def _send_blindly(self, address: str, number: int) -> None:
        command = RemotingCommand(310, ext_fields=send_fields(number), body=b"blind" * 20)
        with contextlib.suppress(RmqhaError):
            await self._client.invoke(address, command)

    def send_many(self, count: int) -> None:
        """Send until ``count`` more messages are acknowledged."""
        goal, number = len(self.acked) + count, len(self.acked) * 1000
        while len(self.acked) < goal:
            number += 1
            if self.send(number) is None:
                self.run_for(50)

    def missing_on(self, replica: BrokerReplica) -> list[Acked]:
        """Acknowledged messages that are not where the answer said."""
        found = {}
        for queue_id in range(QUEUES):
            offset = replica.store.reader.min_offset(TOPIC, queue_id)
            while True:
                got = replica.store.reader.get(
                    TOPIC, queue_id, offset, count_max=32, bytes_max=1 << 20
                )
                for index, record in enumerate(got.records):
                    found[(queue_id, offset + index)] = bytes(record)
                if not got.records:
                    break
                offset = got.next_begin_offset
        return [
            one for one in self.acked
            if one.body not in found.get((one.queue_id, one.queue_offset), b"")
        ]  # fmt: skip


def master_of(cluster: ReplicaCluster) -> BrokerReplica:
    """The serving master; a broker whose store has failed is none."""
    found = cluster.master()
    assert found is not None
    assert found.store.failed is None
    return found


def send_fields(number: int, topic: str = TOPIC) -> dict[str, str]:
    """The fields of a 310 request as the Java client sends them."""
    return {
        "a": "PG", "b": topic, "c": "TBW102", "d": str(QUEUES), "e": str(number % QUEUES),
        "f": "0", "g": "1700000000000", "h": "0",
        "i": f"KEYS\x01k{number}\x02UNIQ_KEY\x01U{number}\x02WAIT\x01true\x02TAGS\x01TagA\x02",
        "j": "0", "k": "false", "m": "false", "n": NAME,
    }  # fmt: skip


def log_bytes(replica: BrokerReplica) -> bytes:
    """The commit log up to the confirm offset."""
    store, found = replica.store, b""
    at, end = max(0, store.min_offset), store.confirm_offset
    while at < end:
        size = store.readable(at, end - at)
        found += bytes(store.view(at, size))
        at += size
    return found
