"""The client of somebody else's cluster, with name servers and a master that say what a test wants."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from rmqha.base.errors import ConnectFailed, RmqhaError
from rmqha.remoting.bodies import ClusterInfo
from rmqha.remoting.codes import RequestCode, ResponseCode
from rmqha.remoting.command import RemotingCommand
from rmqha.runtime.aio.clock import SystemClock
from rmqha.runtime.aio.net import TcpNetwork
from rmqha.testing.client import NotYet, RefusedForGood
from rmqha.testing.external import ExternalClient
from rmqha.testing.real.wire import Stored
from rmqha.testing.topics import Queues

ROUTE = (
    b'{"brokerDatas":[],"filterServerTable":{},"queueDatas":[{"brokerName":"broker-a","perm":6,'
    b'"readQueueNums":6,"topicSysFlag":0,"writeQueueNums":6}]}'
)
Said = Mapping[tuple[str, int], RemotingCommand]


class Client(ExternalClient):
    """Is answered what is scripted; whoever has no answer is not there."""

    def __init__(self, said: Said) -> None:
        super().__init__(["n0", "n1"], "broker-a", "g", TcpNetwork(), SystemClock())
        self._broker_name = "broker-a"
        self._said = said
        self.asked: list[tuple[str, int]] = []

    async def ask(self, address: str, code: int, *_: Any, **__: Any) -> RemotingCommand:
        """Note it."""
        self.asked.append((address, code))
        if (address, code) not in self._said:
            raise ConnectFailed(f"{address} is not there")
        return self._said[address, code]

    async def master(self) -> str | None:
        """Always the same."""
        return "m"


def said(address: str, code: int, answer: int, body: bytes = b"") -> Said:
    """One answer."""
    return {(address, code): RemotingCommand(answer, remark="so it is", body=body)}


ASK = RequestCode.GET_ROUTEINFO_BY_TOPIC
MAKE = RequestCode.UPDATE_AND_CREATE_TOPIC
TELL = RequestCode.GET_TOPIC_CONFIG
TABLE = RequestCode.GET_ALL_TOPIC_CONFIG
UNMAKE = RequestCode.DELETE_TOPIC_IN_BROKER
FORGET = RequestCode.DELETE_TOPIC_IN_NAMESRV
NOT_THERE = ResponseCode.TOPIC_NOT_EXIST
EIGHT = b'{"topicName":"Eight","readQueueNums":8,"writeQueueNums":8,"perm":6}'
UNKNOWN = {**said("n0", ASK, NOT_THERE), **said("n1", ASK, NOT_THERE)}
"""What name servers say that have just been restarted."""


async def test_topic_when_the_first_name_server_is_dead_then_the_second_one_is_asked() -> None:
    """Nothing could be sent or read while it was down, though clients went on."""
    client = Client(said("n1", ASK, ResponseCode.SUCCESS, ROUTE))
    assert await client.find_topic("m", "Six") == Queues(6, 6)
    client = Client({**said("n1", ASK, NOT_THERE), **said("m", TELL, NOT_THERE)})
    assert await client.find_topic("m", "None") is None


async def test_topic_when_no_name_server_answers_then_the_last_reason_is_told() -> None:
    client = Client({})
    with pytest.raises(RmqhaError, match="n1 is not there"):
        await client.find_topic("m", "Six")
    assert client.asked == [("n0", ASK), ("n1", ASK)]


async def test_topic_when_the_first_name_server_does_not_know_it_then_the_second_one_does() -> None:
    """It was made anew with fewer queues, and deleted in the end with all that was in it."""
    client = Client({**said("n0", ASK, NOT_THERE), **said("n1", ASK, ResponseCode.SUCCESS, ROUTE)})
    assert await client.create_topic("m", "Six") == Queues(6, 6)
    assert client.asked == [("n0", ASK), ("n1", ASK)]
    await client.delete_what_it_made()
    assert len(client.asked) == 2


async def test_topic_when_no_name_server_knows_it_but_the_master_then_it_is_the_master_s() -> None:
    """A broker tells name servers of its topics in turns; they know none until then."""
    client = Client({**UNKNOWN, **said("m", TELL, ResponseCode.SUCCESS, EIGHT)})
    assert await client.create_topic("m", "Eight") == Queues(8, 8)
    assert client.asked == [("n0", ASK), ("n1", ASK), ("m", TELL)]
    await client.delete_what_it_made()
    assert len(client.asked) == 3


@pytest.mark.parametrize(("topic", "found"), [("Eight", Queues(8, 8)), ("None", None)])
async def test_topic_when_the_master_is_old_then_its_table_says_whether_it_is_there(
    topic: str, found: Queues | None
) -> None:
    """Brokers before 5.0 do not know 351."""
    old = said("m", TELL, ResponseCode.REQUEST_CODE_NOT_SUPPORTED)
    table = b'{"topicConfigTable":{"Eight":%b}}' % EIGHT
    client = Client({**UNKNOWN, **old, **said("m", TABLE, ResponseCode.SUCCESS, table)})
    assert await client.find_topic("m", topic) == found


@pytest.mark.parametrize("how", ["silent", "refuses", "refuses its table"])
async def test_topic_when_the_master_does_not_say_whether_it_is_there_then_it_is_not_made(
    how: str,
) -> None:
    answers = {
        "silent": {}, "refuses": said("m", TELL, ResponseCode.NO_PERMISSION),
        "refuses its table": {
            **said("m", TELL, ResponseCode.REQUEST_CODE_NOT_SUPPORTED),
            **said("m", TABLE, ResponseCode.NO_PERMISSION),
        },
    }  # fmt: skip
    client = Client({**UNKNOWN, **answers[how], **said("m", MAKE, ResponseCode.SUCCESS)})
    with pytest.raises(RmqhaError):
        await client.create_topic("m", "Eight")
    assert ("m", MAKE) not in client.asked


async def test_topic_when_another_broker_set_has_it_then_it_is_not_made_here() -> None:
    """Its producers and consumers would come here, too. Who does not answer does not hold it up."""
    client = Client({
        **UNKNOWN, **said("m", TELL, NOT_THERE), **said("m", MAKE, ResponseCode.SUCCESS),
        **said("other", TELL, ResponseCode.SUCCESS, EIGHT),
    })  # fmt: skip
    addresses = {"a": '0:"m"', "b": '0:"silent",1:"x"', "c": '0:"other"', "d": '1:"slave"'}
    sets = ",".join(
        f'"broker-{name}":{{"brokerName":"broker-{name}","brokerAddrs":{{{known}}}}}'
        for name, known in addresses.items()
    )
    client._choose(ClusterInfo.decode(b'{"brokerAddrTable":{%b}}' % sets.encode()))
    with pytest.raises(RefusedForGood, match=r"^topic 'Eight' has no queue at broker-a$"):
        await client.create_topic("m", "Eight")
    assert client.asked[2:] == [("m", TELL), ("silent", TELL), ("other", TELL)]
    del client._masters["broker-c"]
    assert await client.create_topic("m", "Eight") == Queues(4, 4)


async def test_topic_when_a_name_server_did_not_say_that_it_lacks_it_then_its_route_stays() -> None:
    """It may be somebody's. Where the run knows that it was not there, it is deleted."""
    absent = {**said("n1", ASK, NOT_THERE), **said("m", TELL, NOT_THERE)}
    client = Client({**absent, **said("m", MAKE, ResponseCode.SUCCESS)})
    await client.create_topic("m", "New")
    done = ResponseCode.SUCCESS
    deletions = (("m", UNMAKE), ("n0", FORGET), ("n1", FORGET))
    client._said = {key: RemotingCommand(done) for key in deletions}
    client.asked.clear()
    with pytest.raises(NotYet, match=r"^left there: topic New \(n0 had not said before .*\)$"):
        await client.delete_what_it_made()
    assert client.asked == [("m", UNMAKE), ("n1", FORGET)]


async def test_topic_when_no_master_makes_it_then_there_is_nothing_to_delete() -> None:
    """The run's end asked for its deletion, which is refused as well, and was an error."""
    client = Client(said("m", MAKE, ResponseCode.INVALID_PARAMETER))
    with pytest.raises(RefusedForGood):
        await client.make_topic("m", "not a topic!", Queues(4, 4))
    client.asked.clear()
    await client.delete_what_it_made()
    assert client.asked == []


async def test_topic_when_it_was_made_once_then_a_later_refusal_leaves_it_to_be_deleted() -> None:
    """It is there; and one that was asked for and not answered may be."""
    made = said("m", MAKE, ResponseCode.SUCCESS)
    client = Client(made)
    await client.make_topic("m", "Named", Queues(4, 4))
    client._said = said("m", MAKE, ResponseCode.INVALID_PARAMETER)
    with pytest.raises(RefusedForGood):
        await client.make_topic("m", "Named", Queues(4, 4))
    client._said = {}
    with pytest.raises(ConnectFailed):
        await client.make_topic("m", "Unheard", Queues(4, 4))
    with pytest.raises(NotYet, match=r"topic Named .*topic Unheard "):
        await client.delete_what_it_made()


class Queue(Client):
    """Three queues: one whose first five messages have expired with all others, one with two, one empty."""

    EDGES = ((5, 5), (1, 3), (0, 0))

    def __init__(self) -> None:
        super().__init__({})

    async def find_topic(self, address: str, topic: str) -> Queues | None:
        """As many."""
        return Queues(len(self.EDGES), len(self.EDGES))

    async def pull(
        self, address: str, topic: str, queue: int, offset: int, count: int = 1
    ) -> tuple[list[Stored], int]:
        """One message at a time; who asks for what is not there is told where to go on."""
        low, high = self.EDGES[queue]
        if not low <= offset < high:
            return [], low if offset < low else high
        return [Stored(queue, offset, 100 * offset, topic, b"m")], offset + 1


async def test_ends_when_all_of_a_queue_has_expired_then_it_ends_where_it_ended() -> None:
    """An end of 0 would say of all that was ever acknowledged there that it is lost."""
    client = Queue()
    assert client.ends_of("T") == {}
    found = await client.consume("T", 1.0)
    assert [(one.queue_id, one.queue_offset) for one in found] == [(1, 1), (1, 2)]
    assert client.ends_of("T") == {0: 5, 1: 3, 2: 0}


async def test_ends_when_the_topic_is_gone_then_its_queues_end_at_their_beginning(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It went with all that was in it: the ends of before would say that all is there."""
    client = Queue()
    await client.consume("T", 1.0)

    async def nowhere(*_: object) -> None:
        return None

    monkeypatch.setattr(client, "find_topic", nowhere)
    assert await client.consume("T", 1.0) == []
    assert client.ends_of("T") == {0: 0, 1: 0, 2: 0}
