"""Registrations that take long to read: in turns, and in the order in which they were said."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import cast

import pytest

from rmqha.namesrv import compressed_body, registration
from rmqha.namesrv.aio import registering
from rmqha.namesrv.aio.registering import Registering
from rmqha.namesrv.machine import Request
from rmqha.namesrv.messages import Answer
from rmqha.remoting import fastjson
from rmqha.remoting.aio.connection import Connection
from rmqha.remoting.command import FLAG_ONEWAY, FLAG_RESPONSE, RemotingCommand
from rmqha.remoting.settings import RemotingSettings
from rmqha.runtime.ports import Clock
from rmqha.sim.clock import SimClock
from tests.namesrv.node import MASTER, SLAVE, Node, broker_fields, registration_body, topic
from tests.namesrv.node import compressed_body as compressed
from tests.namesrv.test_service import PORT, World

COMPRESSED = {"compressed": True}
RECORDS = [b"T%d 3 4 6 SINGLE_TAG" % number for number in range(10)]


@pytest.fixture(autouse=True)
def parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """One record a turn."""
    monkeypatch.setattr(compressed_body, "PART", 1)
    monkeypatch.setattr(registration, "PART", 1)


class Turning:
    """A clock whose turns come when the test says so."""

    def __init__(self, node: Node) -> None:
        self.left: list[Callable[[], None]] = []
        self._node = node

    def now_ms(self) -> int:
        """The node's."""
        return self._node.now_ms

    def call_later(self, delay_ms: float, callback: Callable[[], None]) -> None:
        """Keep it."""
        assert delay_ms == 0
        self.left.append(callback)

    def turn(self) -> None:
        """One turn of the loop."""
        now, self.left = self.left, []
        for callback in now:
            callback()


class Held:
    """What a connection does for who answers later."""

    def __init__(self, host: str = "h") -> None:
        self.host = host
        self.behind: list[RemotingCommand] | None = None
        self.error: Exception | None = None

    def wait(self, behind: list[RemotingCommand]) -> None:
        """Keep what came behind."""
        assert self.behind is None
        self.behind = behind

    def resume(self) -> None:
        """Go on."""
        assert self.behind is not None
        self.behind = None

    def abort(self, error: Exception | None = None) -> None:
        """End."""
        self.error = error


class Port:
    """A name server's port as registrations see it."""

    def __init__(self) -> None:
        self.node = Node()
        self.clock = Turning(self.node)
        self.answers: list[tuple[Held, int]] = []
        self.registering = Registering(cast(Clock, self.clock), self.node.machine, self._done)

    def _done(self, connection: Connection, command: RemotingCommand, answer: Answer) -> None:
        self.answers.append((cast(Held, connection), answer.code))

    def say(
        self,
        connection: Held,
        body: bytes = b"",
        code: int = 103,
        number: int = 1,
        **fields: object,
    ) -> int | None:
        """Say it; its code if it is answered at once."""
        said = broker_fields(**fields)
        request = Request(self.node.now_ms, number, 479, said, body)
        command = RemotingCommand(code, ext_fields=said, body=body)
        answer = self.registering.take(cast(Connection, connection), command, request, [])
        return None if answer is None else answer.code

    def run(self) -> int:
        """Turns until nothing is left."""
        turns = 0
        while self.clock.left:
            self.clock.turn()
            turns += 1
        return turns


def test_registration_when_it_is_small_then_it_is_answered_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nearly all are: nothing has to wait for a turn."""
    monkeypatch.setattr(compressed_body, "PART", 5_000)
    port, one = Port(), Held()
    assert port.say(one, compressed(RECORDS), **COMPRESSED) == 0
    assert (len(port.registering), one.behind, port.clock.left) == (0, None, [])


def test_registration_when_it_is_large_then_others_have_their_turns_and_its_connection_waits() -> (
    None
):
    """4.8 million records out of 127 KiB kept everybody waiting for 14 s."""
    port, one = Port(), Held()
    assert port.say(one, compressed(RECORDS), **COMPRESSED) is None
    assert one.behind == []
    port.clock.turn()
    assert not port.node.addresses(), "nothing of it counts before all of it is read"
    assert port.run() >= len(RECORDS) - 2
    assert port.answers == [(one, 0)]
    assert (one.behind, len(port.registering)) == (None, 0)
    assert set(port.node.machine.table.topics) == {f"T{number}" for number in range(10)}


def test_broker_when_it_speaks_over_another_connection_meanwhile_then_the_later_word_counts() -> (
    None
):
    """The large registration of a process that ended would overtake what its successor said."""
    port, old, new, other = Port(), Held(), Held(), Held()
    assert port.say(old, compressed(RECORDS), number=1, **COMPRESSED) is None
    assert port.say(other, number=3, brokerName="o", brokerAddr=SLAVE) == 0, "others do not wait"
    assert port.say(new, number=2, haServerAddr="10.0.0.1:7") is None
    assert port.say(other, code=104, number=3, brokerName="o", brokerAddr=SLAVE) == 0
    port.run()
    assert port.answers == [(old, 0), (new, 0)]
    (live,) = port.node.machine.table.live.values()
    assert (live.connection_id, live.ha_address) == (2, "10.0.0.1:7")


def test_unregistration_when_a_registration_of_the_broker_is_being_read_then_it_comes_behind() -> (
    None
):
    """The broker has left: it must not be listed again a moment later."""
    port, one, two = Port(), Held(), Held()
    assert port.say(one, compressed(RECORDS), **COMPRESSED) is None
    assert port.say(two, code=104) is None
    assert port.say(Held(), code=104, brokerName=None, brokerAddr=MASTER) is None
    port.run()
    assert [code for _, code in port.answers] == [0, 0, 1]
    assert not port.node.addresses()


def test_connection_when_it_ends_while_its_registration_is_read_then_it_is_not_listed() -> None:
    """Nobody would take it off again before its time is up."""
    port, one, two = Port(), Held(), Held()
    assert port.say(one, compressed(RECORDS), **COMPRESSED) is None
    assert (
        port.say(two, brokerName="x", brokerAddr=SLAVE, body=compressed(RECORDS), **COMPRESSED)
        is None
    )
    port.registering.closed(cast(Connection, one))
    port.run()
    assert port.answers == [(two, 0)]
    assert [key.address for key in port.node.machine.table.live] == [SLAVE]
    assert port.say(one, number=1) == 0, "nothing of it is left to wait for"


def test_registrations_when_very_many_wait_then_the_next_is_told_busy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each keeps its frame in memory."""
    body = compressed(RECORDS)
    cost = len(body) + registering.INFLATED_PART
    monkeypatch.setattr(registering, "WAITING_BYTES_MAX", 2 * cost)
    port, codes = Port(), []
    for number in range(3):
        name = f"b{number}"
        codes.append(
            port.say(Held(), body, brokerName=name, brokerAddr=f"h:{number}", **COMPRESSED)
        )
    assert codes == [None, None, 2]
    port.run()
    assert port.say(Held(), body, brokerName="b2", brokerAddr="h:2", **COMPRESSED) is None


def test_registration_when_reading_it_breaks_then_its_connection_ends_and_the_others_go_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As for any other request."""
    port, one, two = Port(), Held(), Held()

    def breaks(request: Request) -> Iterator[None]:
        yield
        yield
        raise ValueError("a bug")

    with monkeypatch.context() as patch:
        patch.setattr(port.node.machine, "reading", breaks)
        assert port.say(one) is None
    assert port.say(two, compressed(RECORDS), brokerAddr=SLAVE, **COMPRESSED) is None
    port.clock.turn()
    with pytest.raises(ValueError, match="a bug"):
        port.clock.turn()
    assert isinstance(one.error, ValueError)
    port.run()
    assert port.answers == [(two, 0)]


def test_registration_when_its_answer_cannot_be_given_then_its_connection_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It would wait for ever, with all that it sent."""
    port, one, two = Port(), Held(), Held()
    assert port.say(one, compressed(RECORDS), **COMPRESSED) is None
    assert (
        port.say(two, compressed(RECORDS), brokerName="x", brokerAddr=SLAVE, **COMPRESSED) is None
    )

    def fails(*_: object) -> None:
        raise ValueError("a bug")

    with monkeypatch.context() as patch:
        patch.setattr(port.registering, "_done", fails)
        with pytest.raises(ValueError, match="a bug"):
            port.run()
    assert isinstance(one.error, ValueError)
    assert one.behind is not None, "what came behind is not handled any more"
    port.run()
    assert port.answers == [(two, 0)]


def test_set_when_another_address_speaks_for_it_meanwhile_then_the_later_word_counts() -> None:
    """The old master's large word ended after its successor's, and the old one was listed."""
    port, old, new, other = Port(), Held(), Held(), Held()
    assert port.say(old, compressed(RECORDS), number=1, **COMPRESSED) is None
    body = registration_body([topic("A"), topic("B")], epoch=2)
    assert port.say(new, body, number=2, brokerAddr="new:1") is None
    assert port.say(other, number=3, brokerName="o", brokerAddr=SLAVE) == 0
    port.run()
    assert port.answers == [(old, 0), (new, 0)]
    assert port.node.addresses() == {"0": "new:1"}


TIMEOUT = {"heartbeatTimeoutMillis": 10_000}


def test_broker_when_its_word_waits_to_be_read_then_it_is_heard() -> None:
    """It was taken off and cut off for its silence, and has said all that it can."""
    port, one, other = Port(), Held(), Held("other")
    assert port.say(one, number=1, **TIMEOUT) == 0
    assert port.say(other, compressed(RECORDS), number=2, brokerName="x", brokerAddr="h:9",
                    **COMPRESSED) is None  # fmt: skip
    port.node.now_ms += 9_000
    assert port.say(one, compressed(RECORDS), number=1, **COMPRESSED, **TIMEOUT) is None
    port.node.tick(20_000)
    assert port.node.addresses() == {"0": MASTER}
    assert port.node.effects == []
    port.registering.closed(cast(Connection, one))
    port.node.tick(10_000)
    assert port.node.addresses() == {"0": MASTER}, "it was heard until then"
    port.node.tick(1)
    assert port.node.addresses() == {}
    port.run()
    assert port.node.machine.table.speaking == {}


def test_broker_when_its_address_waits_in_another_sets_name_then_it_is_not_heard() -> None:
    """A sign of life counts for the set that it names."""
    port, one, other = Port(), Held(), Held("other")
    assert port.say(one, number=1, **TIMEOUT) == 0
    assert port.say(other, compressed(RECORDS), number=2, brokerName="x", **COMPRESSED) is None
    port.node.tick(10_001)
    assert port.node.addresses() == {}


def test_registration_when_it_took_long_to_read_then_its_broker_is_heard_now() -> None:
    """It was as old as its arrival, and taken off as soon as it was listed."""
    port, one = Port(), Held()
    assert port.say(one, compressed(RECORDS), **COMPRESSED, **TIMEOUT) is None
    port.node.now_ms += 20_000
    port.run()
    port.node.tick(10_000)
    assert port.node.addresses() == {"0": MASTER}
    port.node.tick(1)
    assert port.node.addresses() == {}


def test_registrations_when_one_host_sends_many_then_the_next_is_another_hosts() -> None:
    """Those of one host kept all others waiting; each is read to its end before the next."""
    port, flood, other = Port(), Held("flood"), Held("other")
    bad = [Held("flood") for _ in range(3)]
    for number, one in enumerate([flood, *bad]):
        assert port.say(one, compressed(RECORDS), number=number, brokerName=f"x{number}",
                        brokerAddr=f"h:{number}", **COMPRESSED) is None  # fmt: skip
    assert port.say(other, compressed(RECORDS[:3]), number=9, **COMPRESSED) is None
    last = Held("last")  # waits for the one before it, whoever has a turn
    assert port.say(last, number=10, brokerAddr=SLAVE, brokerId=1) is None
    port.run()
    assert [one for one, _ in port.answers] == [flood, other, last, *bad]
    assert port.node.addresses() == {"0": MASTER, "1": SLAVE}
    assert port.say(flood, number=1) == 0
    assert port.registering._hosts == {}


def test_registrations_when_another_host_has_its_turn_then_it_overtakes_no_word_of_its_set() -> (
    None
):
    """The slave's, behind its master's; of two words the later counts."""
    port, flood, one, two = Port(), Held("a"), Held("a"), Held("c")
    assert port.say(flood, compressed(RECORDS), number=1, brokerName="x", brokerAddr="h:1",
                    **COMPRESSED) is None  # fmt: skip
    assert port.say(one, compressed(RECORDS), number=2, **COMPRESSED) is None
    assert port.say(two, number=3, brokerAddr=SLAVE, brokerId=1) is None
    port.run()
    assert [held for held, _ in port.answers] == [flood, one, two]


# -- the whole name server ----------------------------------------------------------------------


@pytest.fixture
def world() -> Iterator[World]:
    """A network with a name server."""
    one = World()
    one.start()
    yield one
    one.stop()
    assert one.loop.errors == []
    one.loop.close()


def _connected(world: World, host: str) -> tuple[Connection, list[RemotingCommand]]:
    network, answers = world.boot(host), list[RemotingCommand]()
    connection = Connection(
        next(world.ids),  # type: ignore[arg-type]  # numbers serve as ids
        SimClock(world.loop), RemotingSettings(idle_timeout_ms=0),
        on_commands=lambda _, commands: answers.extend(commands), on_closed=lambda *_: None,
    )  # fmt: skip
    world.do(host, network.connect("ns", PORT, lambda: connection, timeout_ms=1000))
    return connection, answers


def test_connection_when_it_sends_more_behind_a_large_registration_then_answers_are_in_order(
    world: World,
) -> None:
    """The broker's next word would come first, and its answer before the one it waits for."""
    mine, answers = _connected(world, "b1")
    fields = broker_fields(compressed=True)
    codes = [103, *[105] * 3, 104]
    body = compressed(RECORDS)
    for number, code in enumerate(codes):
        said = {**fields, "topic": "T1"}
        mine.send(RemotingCommand(code, number, ext_fields=said, body=body if code == 103 else b""))
    mine.flush()
    world.run_until(lambda: len(answers) == len(codes))
    assert [(one.opaque, one.code) for one in answers] == [(n, 0) for n in range(len(codes))]
    assert world.addresses() == {}
    for client in world.clients.values():
        world.do("client", client.close())


def test_port_when_a_connection_ends_while_its_registration_is_read_then_it_is_not_listed(
    world: World,
) -> None:
    """Its broker was taken off when it ended, and nothing would take it off again."""
    server, one = world.server, Held()
    assert server is not None
    one.id = 77  # type: ignore[attr-defined]  # of a connection
    said = broker_fields(compressed=True)
    command = RemotingCommand(103, flag=FLAG_ONEWAY, ext_fields=said, body=compressed(RECORDS))
    world.loop.call_soon(server.on_commands, cast(Connection, one), [command])
    world.loop.call_soon(server.on_closed, cast(Connection, one), None)
    world.run_for(10)
    assert one.behind == []
    assert server.machine.table.live == {}


def test_responses_when_a_peer_sends_any_then_nothing_is_done_with_them(world: World) -> None:
    """It asked for none: a 104 that is marked as a response takes nobody off."""
    mine, answers = _connected(world, "b1")
    mine.send(RemotingCommand(103, 1, ext_fields=broker_fields(), body=b""))
    for code in (104, 105):
        mine.send(RemotingCommand(code, 2, FLAG_RESPONSE, ext_fields=broker_fields()))
    mine.send(RemotingCommand(106, 3))
    mine.flush()
    world.run_until(lambda: any(one.opaque == 3 for one in answers))
    assert [one.opaque for one in answers] == [1, 3]
    assert world.server is not None
    assert world.server.requests == {103: 1, 106: 1}
    assert list(world.server.machine.table.live)
    for client in world.clients.values():
        world.do("client", client.close())


def test_static_topics_when_java_registers_very_many_then_their_bare_keys_are_read_in_turns() -> (
    None
):
    """fastjson writes queue ids bare, in each mapping of each static topic."""
    infos = ",".join(
        f'"T{n}":{{"bname":"b","currIdMap":{{0:0,1:{n}}},"dirty":false,"epoch":7,"topic":"T{n}",'
        f'"scope":"__global__","totalQueues":2}}'
        for n in range(9)
    )
    topics = ",".join(f'"T{n}":{{"topicName":"T{n}"}}' for n in range(9))
    body = (
        f'{{"topicConfigSerializeWrapper":{{"topicConfigTable":{{{topics}}},'
        f'"dataVersion":{{"counter":1}},"topicQueueMappingInfoMap":{{{infos}}}}}}}'
    ).encode()
    port, one = Port(), Held()
    assert port.say(one, body) is None
    assert port.run() >= 17
    found = port.node.machine.table.mappings
    assert [found[f"T{n}"]["b"].curr_id_map for n in range(9)] == [
        ((0, 0), (1, n)) for n in range(9)
    ]
    assert fastjson.loads(body)["topicConfigSerializeWrapper"]["dataVersion"] == {"counter": 1}
