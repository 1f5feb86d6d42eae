"""Several broker sets with a real name server on simulated hosts, and a static topic over them."""

from __future__ import annotations

import asyncio
import contextvars
import random
import struct
from collections.abc import Sequence
from typing import Any

from rmqha.broker.aio.replica import BrokerReplica
from rmqha.ha.events import Role
from rmqha.namesrv.aio.service import NameServer
from rmqha.namesrv.settings import load_config
from rmqha.remoting import fastjson
from rmqha.remoting.command import RemotingCommand
from rmqha.runtime.logs import Logger
from rmqha.sim.clock import SimClock
from rmqha.sim.disk import SimDisk
from rmqha.sim.loop import HOST
from rmqha.statictopic.mapping import LogicQueueMappingItem, TopicQueueMappingDetail
from tests.broker.replicas import ReplicaCluster, send_fields

STATIC = "Static"
GROUP = "CG"
_BODY_SIZE_AT = 84
"""In a record with addresses of IPv4."""


class SetsCluster(ReplicaCluster):
    """Broker sets ``broker-a``, ``broker-b`` .. of as many replicas each.

    Args:
        sets: how many.
        replicas: of each.
    """

    def __init__(self, seed: int, sets: int = 2, replicas: int = 1, **keys: object) -> None:
        super().__init__(seed, sets * replicas, **keys)
        names = [f"broker-{chr(ord('a') + number)}" for number in range(sets)]
        self.hosts_of = {
            name: self.broker_hosts[at * replicas : (at + 1) * replicas]
            for at, name in enumerate(names)
        }

    def _keys_of(self, host: str) -> dict[str, object]:
        (name,) = [name for name, hosts in self.hosts_of.items() if host in hosts]
        return {**self.keys, "brokerName": name}

    def _start_name_server(self, network: Any, context: Any) -> None:
        disk = SimDisk(random.Random(1))
        config = load_config({"listenPort": "9876"}, user_home="/home")

        async def start() -> None:
            server = NameServer(
                config, clock=SimClock(self.loop), disk=disk, network=network,
                log=Logger(node="namesrv"), connection_ids=self.ids,
            )  # fmt: skip
            self.routes = server
            await server.start("")

        self.loop.create_task(start(), context=context)

    def boot_all(self) -> None:
        """Controllers first, then all replicas, until every set has its master in sync."""
        for host in self.controller_hosts:
            self.boot(host)
        self.until(lambda: self.leader() is not None, "a controller leader")
        for name, hosts in self.hosts_of.items():
            for host in hosts:
                self.boot(host)
            self.until(lambda name=name: self.master_of(name) is not None, "a master")

    def master_of(self, name: str) -> BrokerReplica | None:
        """The serving master of a set."""
        found = [
            one for one in self.replicas.values()
            if one.config.broker_name == name and one.role is Role.MASTER
        ]  # fmt: skip
        return max(found, key=lambda one: one.replicas.place.master_epoch, default=None)

    def address(self, name: str) -> str:
        """Where to ask the set's master."""
        master = self.master_of(name)
        assert master is not None, name
        return master.config.address

    def wall_ms(self) -> int:
        """The brokers' clock."""
        return next(iter(self.replicas.values())).clock.wall_ms()

    def collect(
        self, address: str, code: int, fields: dict[str, str], body: bytes = b""
    ) -> list[RemotingCommand]:
        """Send a request; its answer is in the list once it has come."""
        found: list[RemotingCommand] = []

        async def ask() -> None:
            command = RemotingCommand(code, ext_fields=fields, body=body)
            found.append(await self._client.invoke(address, command, 20_000))

        self.loop.create_task(ask(), context=self._client_context.copy())
        return found

    def in_sync(self) -> bool:
        """Every replica lives and is in its SyncStateSet."""
        leader = self.leader()
        sets = {} if leader is None else self.controllers[leader].machine.state.sets
        return all(
            name in sets
            and {self.replicas[host].broker_id for host in hosts if host in self.replicas}
            == set(sets[name].sync_state_set)
            and len(sets[name].sync_state_set) == len(hosts)
            for name, hosts in self.hosts_of.items()
        )

    # -- a static topic ------------------------------------------------------------------------------

    def tell(
        self, name: str, epoch: int, queues: dict[int, Sequence[LogicQueueMappingItem]],
        *, total: int, physical: int,
    ) -> RemotingCommand:  # fmt: skip
        """Send a 513 to a set's master."""
        detail = TopicQueueMappingDetail(
            STATIC, total, name, epoch,
            hosted_queues={key: tuple(items) for key, items in queues.items()},
        )  # fmt: skip
        fields = {
            "topic": STATIC, "defaultTopic": "TBW102", "readQueueNums": str(physical),
            "writeQueueNums": str(physical), "perm": "6", "topicFilterType": "SINGLE_TAG",
            "topicSysFlag": "0", "order": "false", "force": "false",
        }  # fmt: skip
        body = fastjson.dumps(detail.members())
        answer = self.ask(self.address(name), 513, fields, body)
        assert answer.code == 0, answer.remark
        return answer

    def clean(self, name: str) -> None:
        """Have a set's master drop what has expired, as it does at its hour."""
        task = self.cleaning(name)
        self.until(task.done, "a clean table")
        task.result()

    def cleaning(self, name: str) -> asyncio.Task[None]:
        """Have it begin with that."""
        master = self.master_of(name)
        assert master is not None, name
        context = contextvars.copy_context()
        context.run(HOST.set, self.host_of(master))
        return self.loop.create_task(master.logical.cleaning.clean(), context=context)

    def put(self, name: str, number: int, queue: int, **fields: str) -> RemotingCommand:
        """Send one message to a logical queue; the answer, whatever it is."""
        more = send_fields(number, STATIC) | {"e": str(queue)} | fields
        return self.ask(self.address(name), 310, more, b"body-%d" % number)

    def pull(self, name: str, queue: int, offset: int, **fields: str) -> RemotingCommand:
        """Pull from a logical queue, without waiting."""
        more = {
            "consumerGroup": GROUP, "topic": STATIC, "queueId": str(queue),
            "queueOffset": str(offset), "maxMsgNums": "32", "sysFlag": "4", "commitOffset": "0",
            "suspendTimeoutMillis": "0", "subscription": "*", "subVersion": "0",
            "expressionType": "TAG", "bname": "__syslo__global__",
        }  # fmt: skip
        return self.ask(self.address(name), 11, more | fields)

    def consume(self, name: str, queue: int, offset: int = 0) -> list[tuple[int, bytes]]:
        """Read a logical queue as a client of 5.x does, until there is nothing: offset and body."""
        found: list[tuple[int, bytes]] = []
        while True:
            answer = self.pull(name, queue, offset)
            fields = answer.ext_fields or {}
            if answer.code == 0:
                delta = int(fields.get("offsetDelta", "0"))
                found += [(at + delta, body) for at, body in messages_in(answer.body)]
            elif answer.code == 19:
                return found
            assert answer.code in (0, 20, 21), answer
            offset = int(fields["nextBeginOffset"])


def messages_in(body: bytes) -> list[tuple[int, bytes]]:
    """Queue offset and body of each message in a pull's answer."""
    found, at = [], 0
    while at < len(body):
        size, _, _, _, _, queue_offset = struct.unpack_from(">iIIiiq", body, at)
        (length,) = struct.unpack_from(">i", body, at + _BODY_SIZE_AT)
        start = at + _BODY_SIZE_AT + 4
        found.append((queue_offset, body[start : start + length]))
        at += size
    return found


def segment(gen: int, queue_id: int, name: str, logic_offset: int = -1) -> LogicQueueMappingItem:
    """One segment of a logical queue."""
    return LogicQueueMappingItem(gen, queue_id, name, logic_offset)
