"""Locks of queues (41, 42): who gives any, for which queues, and how long the others wait meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from types import SimpleNamespace
from typing import Any

import pytest

from rmqha.base.ids import ConnectionId
from rmqha.broker.common.aio.answers import Answers
from rmqha.broker.common.json_members import MessageQueue
from rmqha.broker.groups.aio import lock_requests
from rmqha.broker.groups.aio.lock_requests import (
    LOCK_QUEUES_MAX,
    QUEUES_A_TURN,
    LockBody,
    LockProcessor,
)
from rmqha.broker.groups.queue_locks import QueueLocks
from rmqha.broker.logical.aio import lock_requests as logical_lock_requests
from rmqha.broker.logical.aio.lock_requests import LogicalLocks
from rmqha.broker.logical.place import FORWARDED_FIELD
from rmqha.ha.events import Role
from rmqha.remoting import fastjson
from rmqha.remoting.command import FLAG_ONEWAY, RemotingCommand
from rmqha.runtime.aio.tasks import Tasks
from rmqha.runtime.logs import Logger
from rmqha.statictopic.mapping import TopicQueueMappingDetail
from tests.broker.broker_sets import GROUP, STATIC, SetsCluster
from tests.broker.old_client import JAVA_4_9_8
from tests.broker.test_old_clients import A, C, at_c, led_by_a, move, three

__all__ = ["three"]

NAME_OF_5 = "__syslo__global__"
NOBODY: Any = None


class Started(Answers):
    """Keeps the work that was started."""

    def __init__(self) -> None:
        log = Logger(node="test")
        super().__init__(Tasks(log), log)
        self.work: list[Coroutine[Any, Any, None]] = []

    def start(self, work: Coroutine[Any, Any, None], *_: object, **__: object) -> None:
        self.work.append(work)


class Connection:
    """Keeps what is sent."""

    id = ConnectionId(1)

    def __init__(self) -> None:
        self.sent: list[RemotingCommand] = []

    def send(self, answer: RemotingCommand) -> None:
        self.sent.append(answer)

    def wait(self, behind: list[RemotingCommand]) -> None:
        """Nothing more comes anyway."""

    def resume(self) -> None:
        """Nothing was left."""


async def answered(connection: Any) -> None:
    """Wait for an answer."""
    for _ in range(99):
        if connection.sent:
            break
        await asyncio.sleep(0)


def connected() -> Any:
    """A client's connection."""
    return Connection()


def broker(role: Role | None = Role.MASTER) -> Any:
    """A broker with the cores that locks need; the first set leads both queues of ``STATIC``."""
    led = {queue: tuple(items) for queue, items in led_by_a().items()}
    mapping = TopicQueueMappingDetail(STATIC, 2, A, 1, hosted_queues=led)
    return SimpleNamespace(
        role=role, clock=SimpleNamespace(now_ms=lambda: 0), locks=QueueLocks(100_000),
        mappings=SimpleNamespace(table=SimpleNamespace(items={STATIC: mapping}), on_changed=[]),
        answers=Started(),
    )  # fmt: skip


def asking(
    queues: list[MessageQueue], *, code: int = 41, client: str = "c", version: int = 479,
    fields: dict[str, str] | None = None, **more: object,
) -> RemotingCommand:  # fmt: skip
    """The request."""
    members = {
        "consumerGroup": GROUP, "clientId": client, "mqSet": [one.members() for one in queues],
    }  # fmt: skip
    body = fastjson.dumps(members | more)
    return RemotingCommand(code, version=version, ext_fields=fields, body=body)


def held(answer: RemotingCommand | None) -> list[tuple[str, int]]:
    """The queues that the client has."""
    assert answer is not None
    assert answer.code == 0, answer.remark
    found = fastjson.loads(answer.body)["lockOKMQSet"]
    return [(one["topic"], one["queueId"]) for one in found]


@pytest.mark.parametrize("role", [Role.SLAVE, None])
def test_lock_when_the_broker_is_no_master_then_only_another_replica_gets_one(
    role: Role | None,
) -> None:
    """After a switch a consumer with the route of before would hold a queue beside one with the new."""
    one, queue = broker(role), MessageQueue("T", A, 0)
    locks = LockProcessor(one)
    assert held(locks.handle(connected(), asking([queue]))) == []
    assert len(one.locks) == 0
    strict = asking([queue], onlyThisBroker=True)
    assert held(locks.handle(connected(), strict)) == [("T", 0)]
    given = asking([queue], code=42)
    assert locks.handle(connected(), given).code == 0
    assert len(one.locks) == 0, "who held it gives it back anywhere"


@pytest.mark.parametrize("fields", [None, {FORWARDED_FIELD: "true"}])
def test_lock_when_another_set_leads_the_queue_then_this_one_gives_none(
    fields: dict[str, str] | None,
) -> None:
    """Asked by a client of 5.x that missed a remap, or by a set that is wrong about the leader."""
    one = broker()
    ordinary = LockProcessor(one).handle
    locks = LogicalLocks(one, NOBODY, {41: ordinary, 42: ordinary}, NOBODY)
    led, gone = MessageQueue(STATIC, NAME_OF_5, 0), MessageQueue(STATIC, NAME_OF_5, 7)
    never, plain = MessageQueue("Never", NAME_OF_5, 0), MessageQueue("T", A, 7)
    asked = asking([led, gone, never, plain], fields=fields)
    answer = locks.handlers()[41](connected(), asked)
    assert held(answer) == [(STATIC, 0), ("T", 7)]
    assert len(one.locks) == 2
    one.mappings.table.items.clear()
    assert held(locks.handlers()[41](connected(), asking([led], client="d"))) == []


def test_lock_when_its_queue_has_moved_then_a_client_that_missed_it_has_it_no_more(
    three: SetsCluster,
) -> None:
    """Its pulls are passed on to the new leader: both consumers would get the same messages."""
    queue = MessageQueue(STATIC, NAME_OF_5, 0)

    def lock(name: str, client: str) -> list[tuple[str, int]]:
        body = asking([queue], client=client).body
        return held(three.ask(three.address(name), 41, {}, body))

    assert lock(A, "stale") == [(STATIC, 0)]
    move(three, A, C, at_c(), 2_000)
    assert lock(C, "fresh") == [(STATIC, 0)]
    assert lock(A, "stale") == []


# -- very many -----------------------------------------------------------------------------------------


async def in_steps(work: Coroutine[Any, Any, None]) -> int:
    """Do it; how often others had their turn."""
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    task = asyncio.create_task(others())
    await work
    task.cancel()
    return turns


@pytest.mark.parametrize("code", [41, 42])
async def test_locks_when_very_many_then_others_have_their_turn(code: int) -> None:
    """A request of 100,000 queues stopped the loop for half a second."""
    one, connection = broker(), connected()
    handle = LockProcessor(one).handle
    queues = [MessageQueue("T", A, number) for number in range(4 * QUEUES_A_TURN)]
    one.locks.lock(0, GROUP, "c", queues if code == 42 else [])
    assert handle(connection, asking(queues, code=code)) is None
    assert await in_steps(answered(connection)) >= 5
    assert [answer.code for answer in connection.sent] == [0]
    assert len(one.locks) == (len(queues) if code == 41 else 0)
    await asyncio.sleep(0)
    few = asking(queues[:QUEUES_A_TURN], code=code)
    assert handle(connection, few) is not None


def test_locks_when_more_than_any_client_has_then_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is locked then."""
    assert LOCK_QUEUES_MAX == 16_384
    monkeypatch.setattr(lock_requests, "LOCK_QUEUES_MAX", 2)
    one, queues = broker(), [MessageQueue("T", A, number) for number in range(3)]
    handle = LockProcessor(one).handle
    answer = handle(connected(), asking(queues))
    assert answer is not None
    assert (answer.code, answer.remark, len(one.locks)) == (1, "more than 2 queues", 0)
    assert held(handle(connected(), asking(queues[:2]))) == [("T", 0), ("T", 1)]


class Counted(MessageQueue):
    """Counts with how many others it was compared."""

    count = 0

    def __eq__(self, other: object) -> bool:
        Counted.count += 1
        return super().__eq__(other)

    def __hash__(self) -> int:
        return super().__hash__()


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> type[Counted]:
    """Queues of requests count."""
    monkeypatch.setattr(lock_requests, "MessageQueue", Counted)
    monkeypatch.setattr(Counted, "count", 0)
    return Counted


@pytest.mark.parametrize("code", [41, 42])
async def test_locks_when_an_old_client_has_many_then_none_is_compared_with_all_others(
    counted: type[Counted], code: int
) -> None:
    """With 100,000 the loop stood still for a minute."""
    one, connection, count = broker(), connected(), 300
    ordinary = LockProcessor(one).handle
    locks = LogicalLocks(one, NOBODY, {41: ordinary, 42: ordinary}, NOBODY)
    queues = [MessageQueue("T", A, number) for number in range(count)]
    one.locks.lock(0, GROUP, "c", queues if code == 42 else [])
    request = asking(queues, code=code, version=JAVA_4_9_8)
    assert locks.handlers()[code](connection, request) is None
    await one.answers.work[0]
    assert counted.count <= 10 * count
    assert len(held(connection.sent[0])) == len(one.locks) == (count if code == 41 else 0)


@pytest.mark.parametrize("code", [41, 42])
async def test_locks_when_an_old_client_wants_no_answer_then_it_gets_none(code: int) -> None:
    """Java's clients give queues back one way; an answer to it is nobody's, also that it was garbage."""
    one, connection = broker(), connected()
    locks = of_old_clients(one)
    garbage = asking([], code=code, version=JAVA_4_9_8, mqSet=[{"topic": "T", "brokerName": 1}])
    for request in (asking([MessageQueue("T", A, 0)], code=code, version=JAVA_4_9_8), garbage):
        request.flag |= FLAG_ONEWAY
        assert locks.handlers()[code](connection, request) is None
        await one.answers.work.pop()
        assert connection.sent == []


def of_old_clients(one: Any) -> LogicalLocks:
    """What they ask."""
    ordinary = LockProcessor(one).handle
    return LogicalLocks(one, NOBODY, {41: ordinary, 42: ordinary}, NOBODY)


async def test_unlock_when_an_old_clients_long_lock_is_under_way_then_it_is_done_after_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The queues were locked for a minute for who had given them back; other groups wait for nobody."""
    monkeypatch.setattr(lock_requests, "QUEUES_A_TURN", 1)
    one, connection = broker(), connected()
    locks = of_old_clients(one)
    queues = [MessageQueue("T", A, number) for number in range(8)]
    asked = [
        asking(queues, version=JAVA_4_9_8), asking(queues[6:], code=42, version=JAVA_4_9_8),
        asking(queues[:1], version=JAVA_4_9_8, consumerGroup="another"),
    ]  # fmt: skip
    for number, request in enumerate(asked):
        request.opaque = number
        assert locks.handlers()[request.code](connection, request) is None
    await asyncio.gather(*one.answers.work)
    assert [answer.opaque for answer in connection.sent] == [2, 0, 1]
    assert len(one.locks) == 6 + 1
    one.answers.work.clear()
    assert len(locks._orders) == 0


async def test_locks_when_too_many_old_clients_ask_at_once_then_the_next_asks_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each may wait for other sets for seconds."""
    assert logical_lock_requests.UNDER_WAY_MAX == 1_024
    monkeypatch.setattr(logical_lock_requests, "UNDER_WAY_MAX", 2)
    one, connection = broker(), connected()
    handle = of_old_clients(one).handlers()[41]
    request = asking([MessageQueue("T", A, 0)], version=JAVA_4_9_8)
    assert handle(connection, request) is None
    assert handle(connection, request) is None
    refused = handle(connection, request)
    assert refused is not None
    assert (refused.code, len(one.answers.work)) == (2, 2)
    await asyncio.gather(*one.answers.work)
    assert handle(connection, request) is None
    await one.answers.work[-1]


@pytest.mark.parametrize("said", [1, "true", "false", {}, None])
def test_lock_when_it_does_not_say_true_then_it_is_for_more_than_this_broker(said: object) -> None:
    """A text or a number is no word of another replica's, which alone a slave gives a lock for."""
    one = broker(Role.SLAVE)
    asked = asking([MessageQueue("T", A, 0)], onlyThisBroker=said)
    assert held(LockProcessor(one).handle(connected(), asked)) == []


async def test_lock_when_a_set_says_no_then_who_leads_is_asked_for_anew() -> None:
    """It may have led before a remap, and the next client would be sent there again."""
    one, forgotten = broker(), list[str]()
    sets: Any = SimpleNamespace(forget_places=forgotten.append)
    asked = LockBody.read(asking([]).body)
    queue = MessageQueue(STATIC, NAME_OF_5, 7)
    place: Any = SimpleNamespace(leaders={7: C}, names=[A, C])
    locks = LogicalLocks(one, sets, {}, NOBODY)

    async def places(topic: str) -> Any:
        return place

    async def no(name: str, code: int, *_: object, **__: object) -> RemotingCommand:
        return RemotingCommand(0, body=b'{"lockOKMQSet":[]}')

    sets.places, sets.ask = places, no
    assert await locks._lock_elsewhere(asked, [queue]) == set()
    assert forgotten == [STATIC]


async def test_locks_when_an_old_clients_request_is_garbage_then_it_is_told_so() -> None:
    """Nothing is locked, and no operator is woken."""
    one, connection = broker(), connected()
    ordinary = LockProcessor(one).handle
    locks = LogicalLocks(one, NOBODY, {41: ordinary, 42: ordinary}, NOBODY)
    request = asking([], version=JAVA_4_9_8, mqSet=[{"topic": "T", "brokerName": 1}])
    assert locks.handlers()[41](connection, request) is None
    await one.answers.work[0]
    assert (connection.sent[0].code, len(one.locks)) == (1, 0)
