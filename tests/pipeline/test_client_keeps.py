"""What a live client keeps of what it was told: routes, masters, leaders; and what it pairs with what."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rmqha.base.errors import RequestTimeout
from rmqha.client.aio.master_client import MasterClient
from rmqha.client.aio.writable import NEW_TOPIC_QUEUES, ROUTE_AGE_MS, WritableQueues
from rmqha.client.exchange import Exchange, Refused, Unreachable
from rmqha.client.offsets import Edge
from rmqha.client.pull import Pulled
from rmqha.client.routes import QueueKey, TopicRoute
from rmqha.remoting.codes import RequestCode, ResponseCode
from rmqha.remoting.command import RemotingCommand
from rmqha.remoting.topic_names import AUTO_CREATE_TOPIC
from rmqha.statictopic.mapping import GLOBAL_SCOPE, mock_broker_name
from rmqha.testing.cluster import RmqCluster
from rmqha.testing.sends import send_fields
from tests.namesrv.node import NAME, Node, mapping_info

TOPIC, OTHER = "Orders", "Others"
READ, BOTH = 4, 6
QUEUE = QueueKey(TOPIC, "broker-a", 0)


def route_of(perm: int, queues: int = 1, broker_name: str = "broker-a") -> TopicRoute:
    """The route of a topic that one broker set has."""
    data = (
        b'{"queueDatas":[{"brokerName":"%s","readQueueNums":%d,"writeQueueNums":%d,"perm":%d,'
        b'"topicSysFlag":0}],"brokerDatas":[]}'
    )
    return TopicRoute.decode(data % (broker_name.encode(), queues, queues, perm))


class NameServers:
    """What they tell, and how often they were asked.

    Attributes:
        routes: of topics; an exception is raised.
    """

    def __init__(self) -> None:
        self.routes: dict[str, TopicRoute | Exception] = {}
        self.asked: list[str] = []

    def route(self, _: object, topic: str) -> Exchange[TopicRoute]:
        """Stands for ``topic_route``."""
        yield from ()
        self.asked.append(topic)
        found = self.routes.get(topic, Refused("n:1", 17, "no such topic"))
        if isinstance(found, Exception):
            raise found
        return found


@pytest.fixture
def servers(monkeypatch: pytest.MonkeyPatch) -> NameServers:
    """In the place of real ones."""
    made = NameServers()
    monkeypatch.setattr("rmqha.client.aio.masters.topic_route", made.route)
    return made


@pytest.fixture
def live() -> Iterator[MasterClient]:
    """A client of nobody."""
    with MasterClient(["n:1"], timeout_ms=100, failover_timeout_ms=1_000, group="g") as made:
        yield made


@pytest.fixture
def later(live: MasterClient, monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Has time pass for what the client keeps."""
    now = 0.0

    class Clock(type(live.clock)):  # type: ignore[misc]
        def now_ms(self) -> float:
            return now

    def passes(by_ms: float) -> None:
        nonlocal now
        now += by_ms

    monkeypatch.setattr(live, "_writables", WritableQueues(live._masters, Clock()))
    return passes


# -- writable queues -------------------------------------------------------------------------------


def test_topic_when_it_is_drained_then_no_longer_filled_after_half_a_minute(
    servers: NameServers, live: MasterClient, later: Callable[[float], None]
) -> None:
    """Its queues were kept until a send failed, which it never does."""
    servers.routes[TOPIC] = route_of(BOTH)
    assert live.writable(TOPIC) == [QUEUE]
    servers.routes[TOPIC] = route_of(READ)
    later(ROUTE_AGE_MS - 1)
    assert live.writable(TOPIC) == [QUEUE]
    assert servers.asked == [TOPIC]
    later(1)
    assert live.writable(TOPIC) == []
    later(ROUTE_AGE_MS - 1)
    assert live.writable(TOPIC) == []
    assert servers.asked == [TOPIC] * 2


def test_queues_when_masters_are_forgotten_then_those_of_all_topics_are_asked_for_again(
    servers: NameServers, live: MasterClient
) -> None:
    """Who says that everything may be different means the queues, too."""
    for topic in (TOPIC, OTHER):
        servers.routes[topic] = route_of(BOTH)
        assert len(live.writable(topic)) == 1
        servers.routes[topic] = route_of(BOTH, queues=2, broker_name="broker-b")
    live.forget_masters()
    for topic in (TOPIC, OTHER):
        assert live.writable(topic) == [QueueKey(topic, "broker-b", n) for n in (0, 1)]


@pytest.mark.parametrize(
    "problem", [Unreachable("away"), Refused("n:1", 17, "just started"), Refused("n:1", 1, "")]
)
def test_queues_when_no_name_server_tells_them_again_then_what_is_known_counts(
    servers: NameServers, live: MasterClient, later: Callable[[float], None], problem: Exception
) -> None:
    """Brokers take messages all the same; they are asked once, and again half a minute later."""
    servers.routes[TOPIC] = route_of(BOTH)
    assert live.writable(TOPIC) == [QUEUE]
    servers.routes[TOPIC] = problem
    for times in (2, 3):
        later(ROUTE_AGE_MS)
        for _ in range(3):
            assert live.writable(TOPIC) == [QUEUE]
        assert servers.asked == [TOPIC] * times
    servers.routes[TOPIC] = route_of(READ)
    later(ROUTE_AGE_MS)
    assert live.writable(TOPIC) == []


def test_queues_when_a_broker_has_made_the_topic_then_its_own_follow_the_templates(
    servers: NameServers, live: MasterClient, later: Callable[[float], None]
) -> None:
    """The template is asked for no more."""
    servers.routes[AUTO_CREATE_TOPIC] = route_of(BOTH, queues=8)
    assert live.writable(TOPIC) == [QueueKey(TOPIC, "broker-a", n) for n in range(NEW_TOPIC_QUEUES)]
    servers.routes[TOPIC] = route_of(BOTH, queues=5)
    later(ROUTE_AGE_MS)
    assert live.writable(TOPIC) == [QueueKey(TOPIC, "broker-a", n) for n in range(5)]
    assert servers.asked == [TOPIC, AUTO_CREATE_TOPIC, TOPIC]


def test_queues_when_old_then_who_sends_meanwhile_does_not_ask_as_well(
    servers: NameServers, live: MasterClient, later: Callable[[float], None]
) -> None:
    """A crowd of sends would ask a thousand times at once."""
    servers.routes[TOPIC] = route_of(BOTH)
    live.writable(TOPIC)
    later(ROUTE_AGE_MS)
    # One by one up to where the first waits for the name server.
    first, *others = [live._writables.of(TOPIC) for _ in range(3)]
    asked = live._masters.find_route

    async def slow(topic: str, *, is_patient: bool = True) -> TopicRoute | None:
        for one in others:
            assert await one == [QUEUE]
        return await asked(topic, is_patient=is_patient)

    live._masters.find_route = slow  # type: ignore[method-assign]
    assert live.call(first) == [QUEUE]
    assert servers.asked == [TOPIC] * 2


@pytest.mark.slow
def test_topic_of_a_broker_when_it_is_drained_then_its_clients_stop(tmp_path: Path) -> None:
    """The same with servers."""

    def made(queue: QueueKey) -> RemotingCommand:
        fields = send_fields(queue.topic, 1, 0, (queue.broker_name, queue.queue_id))
        return RemotingCommand(RequestCode.SEND_MESSAGE_V2, ext_fields=fields, body=b"x")

    with RmqCluster(tmp_path, controllers=1, replicas=1) as cluster:
        cluster.produce(b"1", topic=TOPIC)
        given = {"timeout_ms": 2_000, "failover_timeout_ms": 300}
        names = cluster.namesrv_addr.split(";")
        with MasterClient(names, group="g", **given) as live:  # type: ignore[arg-type]
            assert live.writable(TOPIC)
            fields = {
                "topic": TOPIC, "defaultTopic": AUTO_CREATE_TOPIC, "readQueueNums": "4",
                "writeQueueNums": "4", "perm": str(READ), "topicFilterType": "SINGLE_TAG",
                "topicSysFlag": "0", "order": "false",
            }  # fmt: skip
            asked = RemotingCommand(RequestCode.UPDATE_AND_CREATE_TOPIC, ext_fields=fields)
            live.call(live._masters.ask(cluster.wait_for_master().address, asked))
            while (route := live.route(TOPIC)) is None or route.queues[0].perm != READ:
                live.sleep(20)
            live.forget_masters()
            assert live.writable(TOPIC) == []
            with pytest.raises(Unreachable, match="no broker takes messages"):
                live.call(live.send(TOPIC, 0, made))


# -- sends ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("moved", ["mastership", "topic"])
def test_send_when_what_was_known_is_out_of_date_then_the_next_attempt_asks_anew(
    servers: NameServers, live: MasterClient, monkeypatch: pytest.MonkeyPatch, moved: str
) -> None:
    """Else every attempt goes where the first one went, until the time is over."""
    masters, asked = {"broker-a": "a:1", "broker-b": "b:1"}, list[str]()

    def told(_: object) -> Exchange[None]:
        yield from ()

    async def ask(address: str, command: RemotingCommand, *_: object) -> RemotingCommand:
        asked.append(address)
        if address == "a:1":
            raise Refused(address, ResponseCode.SYSTEM_BUSY, "a slave")
        return command.reply(ResponseCode.SUCCESS)

    monkeypatch.setattr("rmqha.client.aio.masters.cluster_info", told)
    monkeypatch.setattr("rmqha.client.aio.masters.masters_by_set", lambda _: dict(masters))
    monkeypatch.setattr(live._masters, "ask", ask)
    servers.routes[TOPIC] = route_of(BOTH)
    live.writable(TOPIC)
    assert live.call(live._masters.master_for(QUEUE)) == "a:1"
    if moved == "mastership":
        masters["broker-a"] = "b:1"
    else:
        servers.routes[TOPIC] = route_of(BOTH, broker_name="broker-b")
    made = live.send(TOPIC, 0, lambda _: RemotingCommand(RequestCode.SEND_MESSAGE_V2))
    assert live.call(made).code == ResponseCode.SUCCESS
    assert asked == ["a:1", "b:1"]


# -- masters and leaders ---------------------------------------------------------------------------


async def test_leaders_when_forgotten_then_a_logical_queue_is_found_where_it_has_moved(
    servers: NameServers, live: MasterClient
) -> None:
    """Else it would be looked for at its old leader, which refuses it, for ever."""

    def led_by(name: str) -> TopicRoute:
        node = Node()
        node.register(mappings={"A": mapping_info("A")})
        body = node.ask(105, {"topic": "A"}).body
        return TopicRoute.decode(body.replace(b'"%s"' % NAME.encode(), b'"%s"' % name.encode()))

    servers.routes["A"] = led_by("old")
    masters, queue = live._masters, QueueKey("A", mock_broker_name(GLOBAL_SCOPE), 0)
    assert await masters.leader(queue) == "old"
    servers.routes["A"] = led_by("new")
    assert await masters.leader(queue) == "old"
    assert servers.asked == ["A"], "it is known"
    masters.forget()
    assert await masters.leader(queue) == "new"


# -- pulls -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("failed", [1, 2, 3])
def test_pulls_when_one_fails_then_those_behind_it_are_not_taken_for_it(
    live: MasterClient, monkeypatch: pytest.MonkeyPatch, failed: int
) -> None:
    """Answers are paired with what was asked by their order: with one left out all would be wrong."""
    ranges = [(number * 10, 10) for number in range(4)]

    async def address(_: QueueKey) -> str:
        return "a:1"

    async def first(_: QueueKey, offset: int, *__: object) -> Pulled:
        return Pulled(0, "FOUND", offset + 10, Edge(0, 40), b"")

    async def answered(_: str, command: RemotingCommand, __: object) -> RemotingCommand:
        offset = int(command.ext_fields["queueOffset"])
        if offset == failed * 10:
            raise RequestTimeout("scripted")
        return RemotingCommand(0, ext_fields={"nextBeginOffset": str(offset + 10)})

    monkeypatch.setattr(live._masters, "master_for", address)
    monkeypatch.setattr(live._masters, "ask", answered)
    monkeypatch.setattr(live, "_pull", first)
    found = live.pulls(QUEUE, ranges)
    assert [one.next_offset for one in found] == [(at + 1) * 10 for at in range(failed)]


@pytest.mark.parametrize("code", [ResponseCode.SYSTEM_ERROR, ResponseCode.SYSTEM_BUSY])
def test_route_when_the_name_servers_are_not_ready_then_they_are_asked_again(
    servers: NameServers, live: MasterClient, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    """Brokers register within a minute; a client that gave up lost its sends and streams."""
    found = iter([Refused("n:1", code, "name server not ready"), Unreachable("away")])

    def route(_: object, topic: str) -> Exchange[TopicRoute]:
        if (problem := next(found, None)) is not None:
            raise problem
        return (yield from servers.route(_, topic))

    monkeypatch.setattr("rmqha.client.aio.masters.topic_route", route)
    servers.routes[TOPIC] = route_of(BOTH)
    assert live.writable(TOPIC) == [QUEUE]


def test_route_when_the_name_servers_never_are_ready_then_that_is_said_in_time(
    servers: NameServers,
) -> None:
    servers.routes[TOPIC] = Refused("n:1", 1, "name server not ready")
    with (
        MasterClient(["n:1"], timeout_ms=100, failover_timeout_ms=120, group="g") as live,
        pytest.raises(Refused, match="not ready"),
    ):
        live.writable(TOPIC)
    assert 2 <= len(servers.asked) <= 4


@pytest.mark.parametrize(
    ("code", "remark"), [(17, "no"), (ResponseCode.NO_PERMISSION, "no"), (1, "disable")]
)
def test_route_when_another_moment_changes_nothing_then_that_is_said_at_once(
    servers: NameServers, live: MasterClient, code: int, remark: str
) -> None:
    """``disable`` is ``enableAllTopicList=false``: it was asked for a minute, 20 times a second."""
    servers.routes[TOPIC] = Refused("n:1", code, remark)
    if code == ResponseCode.TOPIC_NOT_EXIST:
        assert live.route(TOPIC) is None
    else:
        with pytest.raises(Refused):
            live.route(TOPIC)
    assert servers.asked == [TOPIC]


@pytest.mark.parametrize(
    ("code", "times"), [(ResponseCode.SYSTEM_BUSY, 2), (ResponseCode.NO_PERMISSION, 1)]
)
def test_master_when_its_answer_will_not_change_then_it_is_asked_once(
    live: MasterClient, monkeypatch: pytest.MonkeyPatch, code: int, times: int
) -> None:
    """A user who may not was told so when the time of a failover was over, as an unreachable master."""
    asked = 0

    async def master(_: str) -> str:
        return "a:1"

    async def ask(address: str, command: RemotingCommand, *_: object) -> RemotingCommand:
        nonlocal asked
        asked += 1
        if asked < times or code == ResponseCode.NO_PERMISSION:
            raise Refused(address, code, "no")
        return command.reply(ResponseCode.SUCCESS)

    monkeypatch.setattr(live._masters, "_master", master)
    monkeypatch.setattr(live._masters, "ask", ask)
    made = live._masters.on_master("broker-a", lambda: RemotingCommand(RequestCode.GET_MAX_OFFSET))
    if code == ResponseCode.NO_PERMISSION:
        with pytest.raises(Refused):
            live.call(made)
    else:
        assert live.call(made).code == ResponseCode.SUCCESS
    assert asked == times
