"""What a producer is told of messages that wait for the master's disk, or whose master ends."""

from __future__ import annotations

import asyncio
from typing import Any, cast

from rmqha.base.ids import ConnectionId
from rmqha.broker.aio.replica import BrokerReplica
from rmqha.remoting.codes import ResponseCode
from rmqha.remoting.command import RemotingCommand
from tests.broker.replicas import TOPIC, ReplicaCluster, master_of, send_fields
from tests.broker.test_durable_positions import cut_power, started
from tests.broker.test_producer_services import bodies, stored
from tests.store.harness import message

PAGES = 3 * 4096
"""A body that has a page of its own, which a power cut takes with all that was not flushed."""


class Producer:
    """A connection whose requests come in exactly the turns of the loop that a test wants."""

    def __init__(self, master: BrokerReplica) -> None:
        self.id, self.peer, self.is_closing = ConnectionId(1 << 40), "10.0.2.9:1", False
        self.answers: dict[int, RemotingCommand] = {}
        self._sends = master._send.sends
        self._told = asyncio.Event()

    def asks(self, number: int) -> None:
        """Send a message, whose number is the request's."""
        body = b"%d" % number * PAGES
        request = RemotingCommand(310, number, ext_fields=send_fields(number), body=body)
        answer = self._sends.send(cast(Any, self), request)
        if answer is not None:
            self.send(answer)

    def send(self, answer: RemotingCommand) -> None:
        """What the broker answers."""
        self.answers[answer.opaque] = answer
        self._told.set()

    async def hears_of(self, number: int) -> int:
        """Wait until a message is answered; with which code."""
        while number not in self.answers:
            await self._told.wait()
            self._told.clear()
        return self.answers[number].code


def test_sends_when_a_flush_ends_between_two_then_power_takes_none_that_is_acknowledged() -> None:
    """Both wait together, and a flush that somebody else asked for had begun before the second."""
    with started("SYNC_FLUSH", 1) as cluster:
        master, loop = master_of(cluster), cluster.loop
        producer = Producer(master)
        end = master.store.append(message()).end
        # All of one turn: the flush takes what is there between the two messages.
        loop.call_soon(loop.call_soon, producer.asks, 1)
        flush = loop.create_task(master.store.flusher.flush(end))
        loop.call_soon(loop.call_soon, producer.asks, 2)
        loop.run_until_complete(flush)
        assert end < master.store.flusher.flushed_offset < master.store.max_offset
        assert loop.run_until_complete(producer.hears_of(2)) == ResponseCode.SUCCESS
        assert producer.answers[1].code == ResponseCode.SUCCESS
        cut_power(cluster)
        cluster.boot(cluster.broker_hosts[0])
        cluster.until(lambda: cluster.master() is not None, "a master")
        cluster.until(lambda: len(stored(cluster, TOPIC)) >= 2, "both messages")
        assert bodies(stored(cluster, TOPIC)) == [b"1" * PAGES, b"2" * PAGES]


def test_send_when_its_master_ends_meanwhile_then_it_is_stored_and_not_confirmed() -> None:
    """12 with its place, for the record may live on: after a 14 clients send the message once more."""
    with ReplicaCluster(72, replicas=2) as cluster:
        cluster.boot_all()
        cluster.until(cluster.in_sync, "a SyncStateSet of two")
        master = master_of(cluster)
        for host in cluster.broker_hosts:
            if host != master.config.host:
                cluster.net.cut(host, master.config.host)
        producer = Producer(master)
        cluster.loop.call_soon(producer.asks, 1)
        cluster.run_for(20)
        assert (producer.answers, master._send.sends.waiting_count) == ({}, 1)
        cluster.loop.run_until_complete(master.close())
        answer = producer.answers[1]
        assert answer.code == ResponseCode.FLUSH_SLAVE_TIMEOUT
        fields = answer.ext_fields or {}
        assert (fields["queueId"], fields["queueOffset"]) == ("1", "0")
