"""Our name server beside Java's: the same script, the same broker, the same mqadmin."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from rmqha.testing.real import wire
from rmqha.testing.real.java import JavaBroker, NameServer
from rmqha.testing.real.mqadmin import mqadmin
from rmqha.testing.real.name_servers import PythonNameServer
from rmqha.testing.real.processes import allocate_ports, wait_until
from tests.interop import required
from tests.namesrv.node import (
    broker_fields,
    compressed_body,
    mapping_info,
    registration_body,
    topic,
)

BROKER_NAME = "broker-a"
GONE_AT_ONCE_S = 1.0
Step = tuple[int, Mapping[str, str], bytes, int]


class Both:
    """A Java name server and ours."""

    def __init__(self, folder: Path) -> None:
        ports = allocate_ports()
        self.java = NameServer(folder / "java-namesrv", ports[0])
        self.ours = PythonNameServer(folder / "our-namesrv", ports[1])
        for server in (self.java, self.ours):
            server.start()
        for server in (self.java, self.ours):
            server.wait_ready()

    @property
    def addresses(self) -> tuple[str, str]:
        """Java's first."""
        return self.java.address, self.ours.address

    def close(self) -> None:
        """Kill both."""
        self.java.child.kill()
        self.ours.child.kill()


@pytest.fixture(scope="module")
def both(folder: Path) -> Iterator[Both]:
    """Both name servers."""
    required.require_classpath()
    one = Both(folder)
    yield one
    one.close()


@pytest.fixture
def fresh(tmp_path: Path) -> Iterator[Both]:
    """Both name servers, for this test only: Java lists most of the script's brokers for ever,
    for of those that share a connection its end takes one only."""
    required.require_classpath()
    one = Both(tmp_path)
    yield one
    one.close()


@pytest.fixture(scope="module")
def broker(both: Both, folder: Path) -> Iterator[JavaBroker]:
    """A classic Java master that registers with both."""
    # Without its timer wheel a 5.3.3 broker fails to delete topics.
    settings = {
        "enableControllerMode": False, "brokerRole": "ASYNC_MASTER", "brokerId": 0,
        "timerWheelEnable": True,
    }  # fmt: skip
    one = JavaBroker(
        folder / "broker", allocate_ports(), 1, ";".join(both.addresses), "", settings=settings
    )
    one.start()
    one.wait_ready()
    for address in both.addresses:
        wait_until(lambda a=address: addresses_at(a), 30.0, f"the broker to be listed at {address}")
    yield one
    one.child.kill()


def addresses_at(name_server: str) -> dict[int, str]:
    """The broker's set at a name server, by id."""
    with wire.Connection(name_server) as connection:
        return wire.broker_addresses(connection, BROKER_NAME, BROKER_NAME)


# -- the same script -----------------------------------------------------------------------------


def ask(
    connection: wire.Connection, step: Step, opaque: int
) -> tuple[int, dict[str, str], bytes, Any]:
    """Send one step as a client of its release."""
    code, fields, body, version = step
    peer = connection._connected(time.monotonic() + 5)
    frame = wire.encode(code, fields, body, opaque)
    assert len(str(version)) == 3
    peer.sendall(frame.replace(b'"version":479', b'"version":%d' % version, 1))
    header, answer = connection._read_frame(peer, time.monotonic() + 5)
    assert header["opaque"] == opaque
    return header["code"], header.get("extFields") or {}, answer, header.get("remark")


def step(
    code: int, fields: Mapping[str, str] | None = None, body: bytes = b"", version: int = 479
) -> Step:
    """One request of a client of some release."""
    return code, fields or {}, body, version


def look() -> Iterator[Step]:
    """Routes for new and for old clients, and the clusters.

    The static topic's for new ones only: old ones are shown no queue of it (PARITY).
    """
    for name in ("A", "B", "C/\u00fc"):
        yield step(105, {"topic": name})
        yield step(105, {"topic": name}, version=317)
    yield step(105, {"topic": "M"})
    yield step(106)


def looked_at(*changes: Step) -> Iterator[Step]:
    """Each change, and what can be seen of it."""
    for change in changes:
        yield change
        yield from look()


A, B = topic("A"), topic("B", flag=1)
WHOLE = registration_body([A, B])
ORDER = {"namespace": "ORDER_TOPIC_CONFIG", "key": "A", "value": "b:4"}
QUEUES = b'{"queueDatas":[{"brokerName":"%s","perm":6,"readQueueNums":3,"writeQueueNums":3}]}'


def first_steps() -> Iterator[Step]:
    """An empty name server, a master, a slave, questions about them."""
    yield step(105, {"topic": "A", "acceptStandardJsonOnly": "true"}, version=317)
    yield from (step(code) for code in (106, 206, 304, 311, 999, 1005))
    yield from looked_at(step(103, broker_fields(), WHOLE))
    yield step(103, broker_fields(brokerAddr="h2:1", haServerAddr="h2:2", brokerId=2), WHOLE)
    yield step(103, broker_fields(bodyCrc32=5), WHOLE)
    yield step(901, {"clusterName": "C", "brokerName": "b"})
    yield step(901, {"clusterName": "C", "brokerName": "none"})
    yield step(322, broker_fields(), b'{"counter":1,"stateVersion":1,"timestamp":5}')
    yield step(322, broker_fields(), b'{"counter":2,"stateVersion":1,"timestamp":5}')
    yield step(322, broker_fields(brokerAddr="none:1"), b'{"counter":2}')
    yield from looked_at(
        *(step(code, {"brokerName": name}) for code in (205, 327) for name in ("b", "none"))
    )


def topic_steps() -> Iterator[Step]:
    """KV configuration, topic lists, single topics, deleted topics."""
    yield from (step(code, ORDER) for code in (101, 219, 100, 101, 219))
    yield step(100, {"key": "A"})
    yield step(103, broker_fields(), WHOLE)
    yield from (step(code, ORDER) for code in (102, 101, 219))
    yield from (step(code) for code in (311, 312, 313))
    yield step(224, {"cluster": "none"})
    for name in ("b", "none"):
        yield step(217, {"topic": name}, QUEUES % name.encode())
        yield step(105, {"topic": name})
    deletes = [step(216, {"topic": "B", "clusterName": name}) for name in ("none", "C")]
    yield from looked_at(*deletes, step(216, {"topic": "A"}))


def registration_steps() -> Iterator[Step]:
    """Both compressed forms, mappings, epochs, zones, names beyond ASCII."""
    packed = compressed_body([b"A 3 3 6 SINGLE_TAG {}", b"B 5 6 7 SINGLE_TAG"])
    old = compressed_body([b"A 4 3 6 SINGLE_TAG", b"B 5 6 7 SINGLE_TAG"], infos=None)
    static = topic("M")
    mapped = registration_body([A, B, static], 3, 1, {"M": mapping_info("M")}, ["f:1"])
    other = broker_fields(brokerAddr="h3:1")
    yield from looked_at(
        step(103, broker_fields(compressed=True), packed),
        step(103, broker_fields(compressed=True, enableActingMaster=None), old, 399),
        step(103, broker_fields(), mapped),
        step(103, other, registration_body([A, B], 2)),
        step(103, other, registration_body([A, B], 4)),
    )
    slave = broker_fields(brokerAddr="h4:1", brokerId=3, __ZONE_NAME="z1")
    yield step(103, slave, registration_body([A, B], 4))
    for zone in ("z1", "Z1", "z2", " "):
        yield step(105, {"topic": "A", "__ZONE_MODE": "true", "__ZONE_NAME": zone})
    strange = broker_fields(brokerName="\u00fc", brokerAddr="h5:1", clusterName="C/<\u00fc>")
    yield from looked_at(step(103, strange, registration_body([topic("C/\u00fc"), A])))
    yield step(205, {"brokerName": "\u00fc"})


def config_steps() -> Iterator[Step]:
    """What may be changed, what not, and what it changes.

    Not a key that there is not: Java answers success, and ours names it (PARITY).
    """
    for line in ("orderMessageEnable=true", "kvConfigPath=/x", "rocketmqHome=/x", ""):
        yield step(318, {}, line.encode())
    yield step(318, {}, b"enableTopicList=false")
    yield step(224, {"cluster": "C"})
    yield step(311)
    yield step(318, {}, b"enableAllTopicList=false")
    yield step(206)
    yield step(318, {}, b"enableTopicList=true\nenableAllTopicList=true\norderMessageEnable=false")


def script() -> Iterator[Step]:
    """Requests of every kind, good and bad, of new and old clients."""
    yield from first_steps()
    yield from topic_steps()
    yield from registration_steps()
    yield from config_steps()


def in_order(body: bytes) -> Any:
    """A body whose lists, which come from Java's hash maps, have one order."""

    def put(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: put(item) for key, item in value.items()}
        if isinstance(value, list):
            return sorted(map(put, value), key=lambda item: json.dumps(item, sort_keys=True))
        return value

    return put(wire.loads(body))


def test_answers_when_the_same_script_is_played_then_equal(fresh: Both) -> None:
    """Code, fields, remark and body; bodies to the byte unless Java's hash order shows in a list."""
    with wire.Connection(fresh.java.address) as java, wire.Connection(fresh.ours.address) as ours:
        to_the_byte = count = 0
        for count, step in enumerate(script(), 1):
            expected, answer = ask(java, step, count), ask(ours, step, count)
            assert expected[:2] == answer[:2], step
            if expected[0] != wire.SUCCESS:
                assert expected[3] == answer[3], step
            to_the_byte += expected[2] == answer[2]
            if expected[2] != answer[2]:
                assert in_order(expected[2]) == in_order(answer[2]), step
                assert sorted(expected[2]) == sorted(answer[2]), step
    assert count > 100
    assert to_the_byte > count * 0.9


@pytest.mark.parametrize(
    ("fields", "body"),
    [
        (broker_fields(), b"garbage"),
        (broker_fields(), b"[]"),
        (broker_fields(brokerId=None), b""),
        (broker_fields(compressed=True), b"junk"),
        (broker_fields(compressed=True), compressed_body([b"A 3"])),
    ],
    ids=["no JSON", "no object", "no id", "not deflated", "a short record"],
)
def test_registration_when_it_is_garbage_then_java_s_code(
    both: Both, fields: dict[str, str], body: bytes
) -> None:
    """The remarks are stack traces there, and reasons here."""
    codes = [wire.invoke(address, 103, fields, body).code for address in both.addresses]
    assert [1, 1] == codes


# -- the same broker and mqadmin -----------------------------------------------------------------


def printed(both: Both, *command: str) -> list[str]:
    """What mqadmin prints, by name server."""
    outputs = [mqadmin(*command, "-n", address) for address in both.addresses]
    for output in outputs:
        assert "Exception" not in output, output
    return outputs


def columns(output: str, count: int) -> list[list[str]]:
    """The first columns; the others are figures of the moment."""
    return [line.split()[:count] for line in output.splitlines()]


def test_mqadmin_when_it_lists_then_both_name_servers_say_the_same(
    both: Both, broker: JavaBroker
) -> None:
    """clusterList, topicList, topicRoute, as operators and their scripts read them."""
    java, ours = printed(both, "clusterList")
    assert columns(java, 5) == columns(ours, 5)
    assert broker.address in ours
    java, ours = printed(both, "topicList")
    assert sorted(java.splitlines()) == sorted(ours.splitlines())
    assert "SELF_TEST_TOPIC" in ours
    java, ours = printed(both, "topicRoute", "-t", BROKER_NAME)
    assert java == ours
    assert broker.address in ours
    java, ours = printed(both, "topicRoute", "-t", "SELF_TEST_TOPIC", "-l")
    assert java == ours


def test_mqadmin_when_a_topic_is_made_and_deleted_then_both_follow(
    both: Both, broker: JavaBroker
) -> None:
    """updateTopic, ordered at that (it writes KV configuration), and deleteTopic."""
    for address in both.addresses:
        name = f"T{address.rpartition(':')[2]}"
        made = mqadmin(
            "updateTopic", "-n", address, "-t", name, "-c", "DefaultCluster", "-o", "true"
        )
        assert f"create topic to {broker.address} success." in made
        for other in both.addresses:
            wait_until(
                lambda o=other, n=name: wire.invoke(o, wire.GET_ROUTE, {"topic": n}).code == 0,
                10.0, f"{name} at {other}",
            )  # fmt: skip
        order = {"namespace": "ORDER_TOPIC_CONFIG", "key": name}
        assert f"{BROKER_NAME}:8" == wire.invoke(address, 101, order).ext["value"]
    for address in both.addresses:
        name = f"T{address.rpartition(':')[2]}"
        gone = mqadmin("deleteTopic", "-n", address, "-t", name, "-c", "DefaultCluster")
        assert gone.count("success") == 2, gone
        answer = wire.invoke(address, wire.GET_ROUTE, {"topic": name})
        assert wire.TOPIC_NOT_EXIST == answer.code


def test_mqadmin_when_it_asks_for_the_configuration_then_every_java_key_is_there(
    both: Both,
) -> None:
    """getNamesrvConfig."""
    java, ours = printed(both, "getNamesrvConfig")
    pattern = re.compile(r"^(\w+)\s+=  (.*)$", re.MULTILINE)
    theirs, mine = dict(pattern.findall(java)), dict(pattern.findall(ours))
    assert len(theirs) > 30
    own_paths = {"configStorePath", "kvConfigPath", "listenPort", "rocketmqHome"}
    assert {k: v for k, v in theirs.items() if k not in own_paths} == {
        key: mine[key] for key in theirs if key not in own_paths
    }


def test_mqadmin_when_it_wipes_the_write_permission_then_both_clear_one_bit(
    both: Both, broker: JavaBroker
) -> None:
    """wipeWritePerm, and addWritePerm back.

    A deleted topic changes the broker's data version, but only its next registration tells of it,
    and takes the wiped permission back. A topic made here tells at once."""
    with wire.Connection(broker.address) as connection:
        wire.create_topic(connection, "NewestVersion", 1)
    for address in both.addresses:
        wait_until(
            lambda a=address: wire.invoke(a, wire.GET_ROUTE, {"topic": "NewestVersion"}).code == 0,
            10.0, f"the broker's newest version at {address}",
        )  # fmt: skip
    for command, bit in (("wipeWritePerm", 0), ("addWritePerm", 2)):
        java, ours = printed(both, command, "-b", BROKER_NAME)
        count = re.compile(r"\d+(?=\S*$)|, (\d+)")
        assert count.findall(java.replace(both.java.address, "")) == count.findall(
            ours.replace(both.ours.address, "")
        )
        for address in both.addresses:
            route = wire.invoke(address, wire.GET_ROUTE, {"topic": "SELF_TEST_TOPIC"}).json()
            assert bit == route["queueDatas"][0]["perm"] & 2, address


def test_broker_when_it_is_killed_then_it_is_gone_at_once(both: Both, broker: JavaBroker) -> None:
    """kill -9; afterwards it comes back for whoever needs it."""
    assert addresses_at(both.ours.address)
    broker.child.kill()
    moment = time.monotonic()
    wait_until(lambda: not addresses_at(both.ours.address), GONE_AT_ONCE_S, "our route to be empty")
    assert time.monotonic() - moment < GONE_AT_ONCE_S
    broker.start()
    broker.wait_ready()
    wait_until(lambda: addresses_at(both.ours.address), 30.0, "the broker to be listed again")
