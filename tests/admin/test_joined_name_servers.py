"""What several name servers say together: of broker sets, and of where a topic is."""

from __future__ import annotations

from typing import Any

import pytest

from rmqha.client.brokers import joined_cluster_info, sets_with_topic
from rmqha.client.exchange import Call, Refused, Unreachable
from rmqha.remoting import fastjson
from rmqha.remoting.command import RemotingCommand
from tests.admin.driving import Answer, drive

SERVERS = ("n1:1", "n2:1")


def group(name: str, **addresses: str) -> dict[str, Any]:
    """The members of a broker set; ids stand behind a letter."""
    ids = {key[1:]: address for key, address in addresses.items()}
    return {"brokerAddrs": ids, "brokerName": name, "cluster": "C"}


def saying(**answers: object) -> Answer:
    """What each name server says: a code with which it refuses, a body, or nothing."""

    def answer(call: Call) -> RemotingCommand:
        found = answers.get(call.address.partition(":")[0])
        if found is None:
            raise Unreachable(f"{call.address} is down")
        if isinstance(found, int):
            return call.command.reply(found, "no")
        return call.command.reply(0, body=fastjson.dumps(found))

    return answer


def cluster(*groups: dict[str, Any]) -> dict[str, Any]:
    """106."""
    table = {one["brokerName"]: one for one in groups}
    return {"brokerAddrTable": table, "clusterAddrTable": {"C": [*table]}}


def test_sets_when_name_servers_differ_then_joined_and_the_first_counts() -> None:
    """One may not have heard yet that another broker is the master."""
    first = cluster(group("a", _0="a:2"))
    second = cluster(group("a", _0="a:1", _2="a:3"), group("b", _0="b:1"))
    (found, unheard), calls = drive(joined_cluster_info(SERVERS), saying(n1=first, n2=second))
    assert [call.address for call in calls] == [*SERVERS]
    addresses = {name: dict(one.broker_addrs) for name, one in found.broker_addr_table.items()}
    assert addresses == {"a": {0: "a:2", 2: "a:3"}, "b": {0: "b:1"}}
    assert found.cluster_addr_table == {"C": ("a", "b")}
    assert unheard == ()


def test_sets_when_a_name_server_is_down_then_the_others_tell_and_it_is_named() -> None:
    (found, unheard), _ = drive(
        joined_cluster_info(SERVERS), saying(n2=cluster(group("a", _0="a:1")))
    )
    assert ([*found.broker_addr_table], [*map(str, unheard)]) == (["a"], ["n1:1 is down"])


@pytest.mark.parametrize(
    ("first", "second", "joined"),
    [
        ({"_0": "b", "_1": "a"}, {"_0": "a", "_2": "b"}, {0: "b", 1: "a"}),
        ({"_1": "a", "_2": "b"}, {"_0": "a", "_2": "b"}, {0: "a", 2: "b"}),
        ({"_0": "a", "_2": "b"}, {"_1": "a", "_2": "b"}, {0: "a", 2: "b"}),
    ],
)
def test_sets_when_two_name_servers_list_a_broker_under_two_ids_then_it_is_there_once(
    first: dict[str, str], second: dict[str, str], joined: dict[int, str]
) -> None:
    """One has heard of the failover, and the other not yet. A broker was told twice."""
    answer = saying(n1=cluster(group("s", **first)), n2=cluster(group("s", **second)))
    (found, _), _ = drive(joined_cluster_info(SERVERS), answer)
    assert dict(found.broker_addr_table["s"].broker_addrs) == joined


@pytest.mark.parametrize(
    ("answers", "error", "words"),
    [
        ({}, Unreachable, "n1:1 is down; n2:1 is down"),
        ({"n2": 1}, Refused, "n2:1: CODE: 1"),
        ({"n1": 2}, Refused, "n1:1: CODE: 2"),
    ],
)
def test_sets_when_nobody_tells_then_it_is_said_why(
    answers: dict[str, object], error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        drive(joined_cluster_info(SERVERS), saying(**answers))


def test_topic_when_name_servers_differ_then_it_is_where_any_says() -> None:
    one, two = ({"brokerDatas": [group(name, _0=f"{name}:1")], "queueDatas": []} for name in "ab")
    found, _ = drive(sets_with_topic(SERVERS, "T"), saying(n1=one, n2=two))
    assert found == ({"a": "C", "b": "C"}, ())
    found, _ = drive(sets_with_topic(SERVERS, "T"), saying(n1=17, n2=two))
    assert found == ({"b": "C"}, ())


def test_topic_when_nobody_knows_it_then_it_is_nowhere_and_else_unknown() -> None:
    """That all are down says nothing of the topic."""
    (found, unheard), _ = drive(sets_with_topic(SERVERS, "T"), saying(n1=17))
    assert (found, [*map(str, unheard)]) == ({}, ["n2:1 is down"])
    (found, unheard), _ = drive(sets_with_topic(SERVERS, "T"), saying(n1=17, n2=1))
    assert (found, [type(one) for one in unheard]) == ({}, [Refused])
    with pytest.raises(Unreachable, match="n1:1 is down; n2:1 is down"):
        drive(sets_with_topic(SERVERS, "T"), saying())
