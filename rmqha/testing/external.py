"""A cluster that somebody else runs, for tests that leave it whole: it is known by its name servers.

Its messages are looked at as those of a cluster of our own; nothing of it is started, broken or
mended here. Topics and the group that this run made are deleted at its end; others are left as they
are. The group, and the topic where none is named, are its alone: workers and other runs may use the
cluster at the same time, and each deletes what it made.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping, Sequence
from typing import Any, Self

from msgspec import Struct

from rmqha.base.errors import RmqhaError
from rmqha.client.brokers import masters_by_set
from rmqha.remoting import fastjson
from rmqha.remoting.bodies import ClusterInfo
from rmqha.remoting.codes import RequestCode, ResponseCode
from rmqha.runtime.aio.clock import SystemClock
from rmqha.runtime.aio.net import TcpNetwork
from rmqha.runtime.ports import Clock, Network
from rmqha.testing.client import PULL_MESSAGES_MAX, ClusterClient, NotYet, RefusedForGood
from rmqha.testing.loop_thread import LoopThread
from rmqha.testing.real.wire import Stored
from rmqha.testing.sends import GROUP
from rmqha.testing.settings import Plan
from rmqha.testing.topics import Queues, queues_listed, queues_made, routed_queues
from rmqha.testing.traffic import TOPIC, AioMessages
from rmqha.testing.verbs import MessageVerbs

__tracebackhide__ = True  # pytest leaves the frames of this file out of its reports
CONNECT_TIMEOUT_S = 10.0
TABLE_TIMEOUT_MS = 5_000
VERBS_OF_OURS = frozenset(
    (
        "cont", "controllers", "brokers", "heal", "isolate", "kill", "leader", "node", "nodes",
        "partition", "restart", "shut_down", "slow_disk", "stop", "wait_in_sync",
    )
)  # fmt: skip


class NotOurs(AttributeError):
    """A verb for clusters that the test itself has started."""


class Elsewhere(Struct, frozen=True):
    """A broker of a cluster that somebody else runs."""

    name: str
    address: str


class ExternalClient(ClusterClient):
    """The client of a cluster of which only name servers are known.

    Args:
        name_servers: their addresses.
        broker_name: the broker set to use; None for the first by name that has a master.
        group: to read as; made at the first pull.
        network, clock: the ports.
    """

    def __init__(
        self,
        name_servers: Sequence[str],
        broker_name: str | None,
        group: str,
        network: Network,
        clock: Clock,
    ) -> None:
        super().__init__(Plan((), (), ()), network, clock)
        self._group = group
        self.name_servers = tuple(name_servers)
        self._wanted = broker_name
        self._masters: dict[str, str] = {}
        # By topic, which name servers had said that there is none.
        self._lacked: dict[str, frozenset[str]] = {}
        self._made: dict[str, frozenset[str]] = {}
        self._group_at: set[str] = set()

    @property
    def broker_name(self) -> str:
        """The broker set that is used, once its master was found."""
        return self._broker_name

    async def master(self) -> str | None:
        """The master that the first name server which answers has for the broker set."""
        for server in self.name_servers:
            try:
                answer = await self.ask(server, RequestCode.GET_BROKER_CLUSTER_INFO)
            except RmqhaError as error:
                self.last_refusal = str(error)
                continue
            if answer.code == ResponseCode.SUCCESS:
                return self._choose(ClusterInfo.decode(answer.body))
        return None

    def _choose(self, info: ClusterInfo) -> str | None:
        self._masters = masters_by_set(info)
        for name, address in sorted(self._masters.items()):
            if self._wanted in (None, name):
                self._wanted = self._broker_name = name
                return address
        names = ", ".join(sorted(info.broker_addr_table)) or "none"
        self.last_refusal = f"broker sets there: {names}; with a master and wanted: none"
        return None

    async def find_topic(self, address: str, topic: str) -> Queues | None:
        """The queues that the broker set has of a topic; None when there is no such topic.

        A name server that was restarted, or with which not every broker registers, may know less than
        the others. What it does not know is asked of them and of the masters: who makes a topic that
        is there takes queues from it.

        Raises:
            RefusedForGood: the topic is other broker sets'.
            RmqhaError: no name server answers, or the master does not; the last reason.
        """
        failed = RmqhaError("no name server knows a route")
        lacking: set[str] = set()
        for server in self.name_servers:
            code = RequestCode.GET_ROUTEINFO_BY_TOPIC
            try:
                answer = await self.ask(server, code, {"topic": topic})
            except RmqhaError as error:
                failed = error
                continue
            if answer.code == ResponseCode.TOPIC_NOT_EXIST:
                lacking.add(server)
            if answer.code == ResponseCode.SUCCESS:
                found = routed_queues(answer.body, self._broker_name)
                if found is None:
                    raise self._elsewhere(topic)
                return found
        if not lacking:
            raise failed
        made = await self._queues_at(address, topic)
        if made is None:
            await self._look_elsewhere(address, topic)
            self._lacked[topic] = frozenset(lacking)
        return made

    def _elsewhere(self, topic: str) -> RefusedForGood:
        return RefusedForGood(f"topic {topic!r} has no queue at {self._broker_name}")

    async def _queues_at(self, address: str, topic: str) -> Queues | None:
        """The queues of a topic by a master's word; None when it has none.

        Raises:
            RmqhaError: it did not say.
        """
        answer = await self.ask(address, RequestCode.GET_TOPIC_CONFIG, {"topic": topic})
        if answer.code == ResponseCode.SUCCESS:
            return queues_made(answer.body)
        if answer.code == ResponseCode.TOPIC_NOT_EXIST:
            return None
        if answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:  # an old broker
            code = RequestCode.GET_ALL_TOPIC_CONFIG
            answer = await self.ask(address, code, timeout_ms=TABLE_TIMEOUT_MS)
            if answer.code == ResponseCode.SUCCESS:
                return queues_listed(answer.body, topic)
        raise RmqhaError(f"{address} does not tell of {topic}: {answer.code} {answer.remark}")

    async def _look_elsewhere(self, address: str, topic: str) -> None:
        """Ask the masters of other broker sets for a topic; who does not answer is taken at the name
        servers' word.

        Raises:
            RefusedForGood: one of them has it.
        """
        for other in self._masters.values():
            if other == address:
                continue
            try:
                found = await self._queues_at(other, topic)
            except RmqhaError:
                continue
            if found is not None:
                raise self._elsewhere(topic)

    async def make_topic(self, address: str, topic: str, queues: Queues) -> bool:
        """Have the master make a topic, and remember that, unless no master makes such a one."""
        is_new = topic not in self._made
        if is_new:  # before it is asked: it may do it and not be heard
            self._made[topic] = self._lacked.get(topic, frozenset())
        try:
            return await super().make_topic(address, topic, queues)
        except RefusedForGood:
            if is_new:
                del self._made[topic]
            raise

    async def pull(
        self, address: str, topic: str, queue: int, offset: int, count: int = PULL_MESSAGES_MAX
    ) -> tuple[list[Stored], int]:
        """Pull as a group of our own, which is made where it is not."""
        if address not in self._group_at:
            body = fastjson.dumps({"groupName": self._group})
            await self.ask(address, RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, body)
            self._group_at.add(address)
        return await super().pull(address, topic, queue, offset, count)

    async def delete_what_it_made(self) -> None:
        """Delete topics and the group that were not there before.

        Raises:
            NotYet: names what is left, after all the rest was deleted.
        """
        address = await self.master() if self._made or self._group_at else None
        failed: dict[str, str] = {}
        for topic, lacked in self._made.items():
            fields, what = {"topic": topic}, f"topic {topic}"
            code = RequestCode.DELETE_TOPIC_IN_BROKER
            failed[what] = await self._why_not(address, code, fields)
            for server in self.name_servers if not failed[what] else ():
                code = RequestCode.DELETE_TOPIC_IN_NAMESRV
                why = f"{server} had not said before that it knows of none"
                if server in lacked:
                    why = await self._why_not(server, code, fields)
                failed[what] = failed[what] or why
        if self._group_at:
            fields = {"groupName": self._group, "cleanOffset": "true"}
            code = RequestCode.DELETE_SUBSCRIPTIONGROUP
            failed[f"group {self._group}"] = await self._why_not(address, code, fields)
        self._made.clear()
        left = ", ".join(f"{what} ({why})" for what, why in failed.items() if why)
        if left:
            raise NotYet(f"left there: {left}")

    async def _why_not(self, address: str | None, code: int, fields: Mapping[str, str]) -> str:
        """Ask for a deletion; the reason if it fails, else nothing."""
        if address is None:
            return self.last_refusal
        try:
            answer = await self.ask(address, code, dict(fields))
        except RmqhaError as error:
            return str(error)
        done = answer.code == ResponseCode.SUCCESS
        return "" if done else f"{address} answered {answer.code}: {answer.remark}"


def own_name(name: str) -> str:
    """A name that no other worker and no other run has; a worker can be told by it."""
    worker = os.environ.get("PYTEST_XDIST_WORKER", "")
    return "_".join(filter(None, (name, worker, secrets.token_hex(4))))


class AioExternal(AioMessages):
    """The verbs in the event loop."""

    client: ExternalClient

    @classmethod
    async def connect(cls, name_servers: Sequence[str], broker_name: str | None) -> Self:
        """Find the cluster.

        Raises:
            NotYet: no name server answers, or none knows such a broker set with a master.
        """
        client = ExternalClient(
            name_servers, broker_name, own_name(GROUP), TcpNetwork(None), SystemClock()
        )
        core = cls(client, own_name(TOPIC))
        try:
            await core.wait_for_master(CONNECT_TIMEOUT_S)
        except NotYet:
            await client.close()
            raise
        return core

    async def wait_for_master(self, timeout_s: float) -> Elsewhere:
        """Wait until name servers list one."""
        await self.client.until(
            self.client.master, f"master at {', '.join(self.client.name_servers)}", timeout_s,
            lambda: f"; {self.client.last_refusal}",
        )  # fmt: skip
        found = await self.master()
        if found is None:
            raise NotYet(f"the master has gone; {self.client.last_refusal}")
        return found

    async def master(self) -> Elsewhere | None:
        """Whom clients find."""
        address = await self.client.master()
        return None if address is None else Elsewhere(self.client.broker_name, address)

    async def close(self) -> None:
        """End what sends, and leave the cluster as it was found."""
        try:
            try:
                await self.end_workloads()  # one that goes on would make its topic anew
            finally:
                await self.client.delete_what_it_made()
        finally:
            await self.client.close()


class ExternalCluster(MessageVerbs):
    """A cluster of somebody else, with the verbs of :class:`RmqCluster` that break nothing.

    Args:
        namesrv_addr: ``host:port;host:port``, as clients have it.
        broker_name: the broker set that the cluster's own client uses; by default the first.

    Raises:
        NotYet: nothing to use was found.
    """

    def __init__(self, namesrv_addr: str, broker_name: str | None = None) -> None:
        self.namesrv_addr = namesrv_addr
        servers = [one.strip() for one in namesrv_addr.split(";") if one.strip()]
        if not servers:
            raise ValueError(f"no address of a name server in {namesrv_addr!r}")
        thread = LoopThread("rmqha external cluster")
        try:
            self._core = thread.call(AioExternal.connect(servers, broker_name))
        except BaseException:
            thread.close()
            raise
        super().__init__(self._core, thread)
        self._is_closed = False

    def __getattr__(self, verb: str) -> Any:
        if verb in VERBS_OF_OURS:
            raise NotOurs(
                f"{verb}: the cluster at {self.namesrv_addr} was not started by this run, which"
                " neither breaks nor mends it; a test that does wants rmq_cluster"
            )
        raise AttributeError(verb)

    def master(self) -> Elsewhere | None:
        """The master that clients find at this moment."""
        return self._call(self._core.master())

    def wait_for_master(self, *, timeout_s: float = CONNECT_TIMEOUT_S) -> Elsewhere:
        """Wait until clients find a master.

        Raises:
            NotYet: there is none.
        """
        return self._call(self._core.wait_for_master(timeout_s))

    def report(self, lines: int = 0, *, all_lines: bool = False) -> str:
        """What a failed test shows; its logs are where its owner keeps them."""
        del lines, all_lines
        state = "closed" if self._is_closed else self.master() or "nobody is master"
        return f"external cluster at {self.namesrv_addr}: {state}"

    def close(self) -> None:
        """Delete the topics and the group that this run made, and end the connections.

        Raises:
            NotYet: names what could not be deleted.
        """
        if self._is_closed:
            return
        self._is_closed = True
        try:
            self._call(self._core.close())
        finally:
            self._thread.close()
