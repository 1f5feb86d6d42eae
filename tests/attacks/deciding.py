"""Attacks on who decides: forged roles, Raft, replication, routes, brokers' names, configuration.

Rows X1, X2, X8, X9, X10 and X27.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import struct
from collections.abc import Iterator
from itertools import count, cycle

from rmqha.controller.raft import hello as greeting
from rmqha.controller.raft import messages as m
from tests.attacks.attacker import ONEWAY, READ_BYTES, Run, frame

NOWHERE = "127.0.0.1:9"
EPOCH = 1 << 30
OFFSET_FAR = 1 << 60
VERSION_FAR = 1 << 62
MEMBERS = 3
TERMS = (5, 1 << 19, 1 << 40, (1 << 53) - 1, (1 << 63) - 1)
DLEDGER_VOTE, DLEDGER_BEAT, DLEDGER_PUSH = 51001, 51002, 51004


def forged_roles(run: Run) -> None:
    """X1: tell every broker of another master, in the next epoch and in one far ahead."""

    def shots() -> Iterator[tuple[str, bytes]]:
        body = json.dumps({"syncStateSet": [7], "syncStateSetEpoch": EPOCH}).encode()
        for number in count():
            for broker in run.target.brokers:
                epoch = (2, 3, 50, EPOCH)[number % 4]
                fields = {
                    "masterBrokerId": 7, "masterAddress": NOWHERE, "masterEpoch": epoch,
                    "syncStateSetEpoch": epoch,
                }  # fmt: skip
                yield broker, frame(1008, fields, body)

    run.fire(shots())


def _ours(number: int, sender: str) -> Iterator[bytes]:
    """What a stranger says to a controller of ours on a new connection."""
    said = greeting.Hello(greeting.PROTOCOL_VERSION, "group1", sender, os.urandom(16))
    yield frame(60002, {}, greeting.pack_hello(said))
    term = TERMS[number % len(TERMS)]
    junk = m.Entry(1, 2, b"junk that no state machine reads")
    for message in (
        m.VoteRequest(term, sender, 10**6, term, transfer=True),
        m.AppendRequest(term, sender, 0, 0, (junk,), 1, 1),
        m.AppendResponse(2, sender, True, 10**6, 0, 1),
        m.SnapshotRequest(term, sender, 10**6, 2, 0, 4, b"junk", 1, 0),
        m.TimeoutNow(term, sender),
    ):
        yield frame(60001, {}, m.encode_message(message), flag=ONEWAY)


def _dledger(number: int, group: str, sender: str, receiver: str) -> Iterator[bytes]:
    """The same to a DLedger controller."""
    term = TERMS[number % len(TERMS)]
    base = {
        "group": group, "localId": sender, "leaderId": sender, "remoteId": receiver, "term": term,
    }  # fmt: skip
    vote = {**base, "ledgerEndIndex": 10**6, "ledgerEndTerm": term}
    yield frame(DLEDGER_VOTE, {}, json.dumps(vote).encode())
    yield frame(DLEDGER_BEAT, {}, json.dumps(base).encode())
    push = {**base, "type": "COMMIT", "commitIndex": 10**6, "batchAppend": False}
    yield frame(DLEDGER_PUSH, {}, json.dumps(push).encode())


def raft(run: Run) -> None:
    """X2: speak as a member: terms far ahead, junk entries, acknowledgements, snapshots."""
    target = run.target

    def shots() -> Iterator[tuple[str, bytes]]:
        for number in count():
            at = number % len(target.raft)
            sender, receiver = f"n{(at + 1 + number % 2) % MEMBERS}", f"n{at}"
            turn = number // len(target.raft)
            for one in (*_ours(turn, sender), *_dledger(turn, target.group, sender, receiver)):
                yield target.raft[at], one

    run.fire(shots())


class _StandIn:
    """One connection in a slave's name.

    Args:
        copies: it asks for the log from its beginning before it acknowledges what is far ahead.
    """

    def __init__(self, peer: socket.socket, slave_id: int, *, copies: bool) -> None:
        self.peer = peer
        self._copies = copies
        peer.settimeout(0)
        peer.send(struct.pack(">ihhq", 1, 0, 0, slave_id))

    def turn(self, run: Run) -> bool:
        """Read what there is and acknowledge; whether one is still let in."""
        try:
            data = self.peer.recv(READ_BYTES)
            run.tally.read_bytes += len(data)
            if not data:
                return False
        except BlockingIOError:
            data = b""
        except OSError:
            return False
        # Whoever copies waits for the master's epochs, and then begins at 0.
        if self._copies and not data:
            return True
        offset = 0 if self._copies else OFFSET_FAR
        self._copies = False
        with contextlib.suppress(BlockingIOError):
            self.peer.send(struct.pack(">iq", 2, offset))
            run.tally.sent += 1
        return True


def stand_in_slave(run: Run) -> None:
    """X8: present a slave's id to every replication port, copy the log, acknowledge far ahead."""
    ports, open_ = run.target.ha, []
    while run.pace():
        number = len(open_)
        if number < 4 * len(ports):
            peer = run.dial(ports[number % len(ports)])
            if peer is not None:
                turn = number // len(ports)
                open_.append(_StandIn(peer, 2 + turn // 2, copies=turn % 2 == 0))
                run.tally.sent += 1
        for one in list(open_):
            try:
                is_in = one.turn(run)
            except OSError:
                is_in = False
            if not is_in:
                run.tally.closed += 1
                open_.remove(one)
                one.peer.close()
        run.tally.held_max = max(run.tally.held_max, len(open_))
    for one in open_:
        one.peer.close()


def _registration(topics: dict[str, object], version: int) -> bytes:
    wrapper = {
        "dataVersion": {"counter": version, "stateVersion": version, "timestamp": version},
        "topicConfigTable": topics,
    }
    return json.dumps({"filterServerList": [], "topicConfigSerializeWrapper": wrapper}).encode()


def a_topic(name: str, queues: int = 4) -> dict[str, object]:
    """One entry of a registration's table."""
    return {
        name: {
            "topicName": name, "readQueueNums": queues, "writeQueueNums": queues, "perm": 6,
            "topicFilterType": "SINGLE_TAG", "topicSysFlag": 0, "order": False,
        }
    }  # fmt: skip


def registration(
    name: str, cluster: str, address: str, broker_id: int, topics: dict[str, object],
    version: int = 1,
) -> bytes:  # fmt: skip
    """A forged 103."""
    fields = {
        "brokerName": name, "brokerAddr": address, "clusterName": cluster,
        "haServerAddr": NOWHERE, "brokerId": broker_id, "enableActingMaster": False,
        "compressed": False,
    }  # fmt: skip
    return frame(103, fields, _registration(topics, version))


def routes(run: Run) -> None:
    """X9: register as broker 0 of the set with the newest version of all, then take it away."""
    target = run.target
    who = {"brokerName": target.broker_name, "clusterName": target.cluster_name}

    def shots() -> Iterator[tuple[str, bytes]]:
        for server in cycle(target.namesrv):
            yield server, registration(
                target.broker_name, target.cluster_name, NOWHERE, 0, a_topic(target.topic),
                VERSION_FAR,
            )  # fmt: skip
            yield server, frame(104, {**who, "brokerAddr": target.master, "brokerId": 0})
            yield server, frame(205, {"brokerName": target.broker_name})
            yield server, frame(216, {"topic": target.topic})

    run.fire(shots())


def brokers_names(run: Run) -> None:
    """X10: heartbeat, register, alter, elect and clean in a broker's name at every controller."""
    target = run.target
    who = {"clusterName": target.cluster_name, "brokerName": target.broker_name}
    only = json.dumps({"syncStateSet": [7], "syncStateSetEpoch": 1}).encode()

    def shots() -> Iterator[tuple[str, bytes]]:
        for at in cycle(target.controllers):
            beat = {
                **who, "brokerAddr": NOWHERE, "epoch": EPOCH - 1, "maxOffset": OFFSET_FAR,
                "confirmOffset": OFFSET_FAR, "heartbeatTimeoutMills": 300_000,
                "electionPriority": 0,
            }  # fmt: skip
            for identity in (1, 2):
                yield at, frame(904, {**beat, "brokerId": identity}, flag=ONEWAY)
            yield at, frame(1003, {**who, "brokerId": 1, "brokerAddress": NOWHERE})
            alter = {"brokerName": target.broker_name, "masterBrokerId": 1, "masterEpoch": 1}
            yield at, frame(1001, alter, only)
            elect = {**who, "brokerId": 2, "designateElect": True, "forceElect": True}
            yield at, frame(1002, elect)
            apply = {**who, "appliedBrokerId": (1 << 63) - 1, "registerCheckCode": "x"}
            yield at, frame(1013, apply)
            clean = {**who, "brokerControllerIdsToClean": "1;2;3", "isCleanLivingBroker": True}
            yield at, frame(1011, clean)

    run.fire(shots())


CHANGES = (
    b"enableElectUncleanMaster=true\nscanInactiveMasterInterval=1\n",
    b"needWaitForService=true\nwaitSecondsForService=2147483647\n",
    b"brokerPermission=0\n",
    b"autoCreateTopicEnable=false\n",
)


def configuration(run: Run) -> None:
    """X27: change and read everybody's configuration (25, 318, 1009; 26, 319, 1010)."""
    target = run.target

    def shots() -> Iterator[tuple[str, bytes]]:
        for change in cycle(CHANGES):
            for at in target.namesrv:
                yield at, frame(318, {}, change)
                yield at, frame(319)
            for at in target.controllers:
                yield at, frame(1009, {}, change)
                yield at, frame(1010)
            for at in target.brokers:
                yield at, frame(25, {}, change)
                yield at, frame(26)

    run.fire(shots())
