"""Controllers under a scenario, and brokers that are nothing but connections.

What a controller knows of a broker is what comes over the wire, so a scenario needs no broker: it
sends what one would send. Heartbeats are sent as requests, so that they count when the call ends.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable
from typing import TypeVar

from rmqha.testing.real import wire
from rmqha.testing.real.controllers import Controllers, ReplicaInfo
from rmqha.testing.real.processes import WaitTimeout, wait_until

CLUSTER = "DefaultCluster"
APPLY_BROKER_ID = 1013
REGISTER_BROKER = 1003
GET_NEXT_BROKER_ID = 1012
ELECT_MASTER = 1002
ALTER_SYNC_STATE_SET = 1001
CLEAN_BROKER_DATA = 1011
HEARTBEAT = 904
PATIENT_MS = 120_000
"""A heartbeat that lasts longer than any scenario."""
ANSWER_TIMEOUT_S = 10.0
PROBE_S = 0.5

_T = TypeVar("_T")


class Stage:
    """A group that runs, for one scenario.

    Attributes:
        controllers: the group.
        name: a broker set of the scenario's own.
    """

    def __init__(self, controllers: Controllers, name: str) -> None:
        self.controllers = controllers
        self.name = name
        self._brokers: list[Broker] = []

    @property
    def leader(self) -> str:
        """The leader's address."""
        return self.controllers.addresses[self.controllers.wait_for_leader()]

    def broker(self, broker_id: int, name: str | None = None) -> Broker:
        """A broker of the scenario's set, or of another, that has said nothing yet."""
        return self.broker_at(self.leader, broker_id, name)

    def broker_at(self, address: str, broker_id: int, name: str | None = None) -> Broker:
        """The same, speaking to a controller that may not lead."""
        one = Broker(address, name or self.name, broker_id)
        self._brokers.append(one)
        return one

    def replicas(self, count: int, name: str | None = None) -> list[Broker]:
        """A set of so many replicas, all alive and in sync, the first one master."""
        found = [self.broker(number, name) for number in range(1, count + 1)]
        for one in found:
            one.register()
            one.beat()
        found[0].elect()
        if count > 1:
            found[0].alter(range(1, count + 1), self.seen(name))
        return found

    def seen(self, name: str | None = None) -> ReplicaInfo:
        """What the leader says about a set (1004)."""
        info = self.info(name)
        assert info is not None, f"the leader knows no set {name or self.name}"
        return info

    def info(self, name: str | None = None) -> ReplicaInfo | None:
        """The same; None where there is no such set."""
        return self.controllers.replica_info(name or self.name)

    def alive(self, name: str | None = None) -> dict[int, bool]:
        """Who counts as alive (1006), by id."""
        found = self.controllers.sync_state_set(name or self.name) or {}
        both = [*found.get("inSyncReplicas", ()), *found.get("notInSyncReplicas", ())]
        return {one["brokerId"]: one["alive"] for one in both}

    def ask(self, code: int, ext: dict[str, object], body: bytes = b"") -> wire.Answer:
        """A request to the leader by nobody in particular, as mqadmin would send it."""
        return wire.invoke(self.leader, code, ext, body, ANSWER_TIMEOUT_S)

    def calm(self, duration_s: float = 1.0) -> int:
        """Wait until one node has led for a while, all agreeing; returns it.

        Nodes that another scenario has restarted find each other again meanwhile.
        """
        since, leader = time.monotonic(), self.controllers.wait_for_agreement()
        while time.monotonic() - since < duration_s:
            time.sleep(0.05)
            now = self.controllers.wait_for_agreement()
            if now != leader:
                since, leader = time.monotonic(), now
        return leader

    def followers(self) -> list[int]:
        """The nodes that do not lead."""
        leader = self.controllers.wait_for_agreement()
        return [one for one in range(len(self.controllers.nodes)) if one != leader]

    def serves(self, node: int) -> bool:
        """Whether a node answers as leader; one that is away does not."""
        with contextlib.suppress(OSError):
            address = self.controllers.addresses[node]
            answer = wire.invoke(address, wire.GET_REPLICA_INFO, {"brokerName": "x"}, b"", PROBE_S)
            return answer.code != wire.NOT_LEADER
        return False

    def close(self) -> None:
        """Close the connections that are left."""
        for one in self._brokers:
            one.connection.close()


class Broker:
    """What one broker says, over one connection."""

    def __init__(self, address: str, name: str, broker_id: int) -> None:
        self.name = name
        self.broker_id = broker_id
        self.address = f"127.0.0.1:{broker_id}"  # nobody listens there
        self.connection = wire.Connection(address, ANSWER_TIMEOUT_S)

    def again(self) -> Broker:
        """The same broker on another connection, which is open already."""
        one = Broker(self.connection.address, self.name, self.broker_id)
        # Any request opens it; this one names no broker.
        one.connection.invoke(wire.GET_METADATA_INFO)
        return one

    def register(self) -> None:
        """Take the id, then register with it."""
        self.apply()
        self.connection.ask(
            REGISTER_BROKER, {**self._who(), "brokerId": self.broker_id, **self._where()}
        )

    def apply(self) -> int:
        """Take the id (1013); the answer's code."""
        check = f"{self.address};{self.broker_id}"
        asked = {"appliedBrokerId": self.broker_id, "registerCheckCode": check}
        return self.connection.invoke(APPLY_BROKER_ID, {**self._who(), **asked}).code

    def enter(self, **more: object) -> wire.Answer:
        """Register (1003), with what a scenario says otherwise."""
        said = {"brokerId": self.broker_id, **self._where(), "invokeTime": _now_ms(), **more}
        return self.connection.invoke(REGISTER_BROKER, {**self._who(), **said})

    def beat(self, **more: object) -> None:
        """A heartbeat (904), of a broker with an empty log unless told otherwise."""
        said = {
            "brokerId": self.broker_id, "brokerAddr": self.address, "epoch": -1, "maxOffset": 0,
            "confirmOffset": 0, "heartbeatTimeoutMills": PATIENT_MS, "electionPriority": 1,
            **more,
        }  # fmt: skip
        self.connection.ask(HEARTBEAT, {**self._who(), **said})

    def elect(self, *, designate: bool = False) -> wire.Answer:
        """Ask for an election (1002)."""
        said = {"brokerId": self.broker_id, "designateElect": designate, "invokeTime": _now_ms()}
        return self.connection.invoke(ELECT_MASTER, {**self._who(), **said})

    def alter(self, ids: Iterable[int], now: ReplicaInfo) -> wire.Answer:
        """Tell who is in sync (1001), as the master of the newest epoch."""
        members = ",".join(str(one) for one in ids)
        body = f'{{"syncStateSet":[{members}],"syncStateSetEpoch":{now.sync_state_set_epoch}}}'
        said = {
            "masterBrokerId": self.broker_id, "masterEpoch": now.master_epoch,
            "invokeTime": _now_ms(),
        }  # fmt: skip
        return self.connection.ask(ALTER_SYNC_STATE_SET, {**self._who(), **said}, body.encode())

    def poll(self) -> None:
        """Ask for the master (1004), as brokers do every few seconds."""
        self.connection.ask(wire.GET_REPLICA_INFO, {"brokerName": self.name})

    def die(self) -> None:
        """Close the connection, as the end of a process does."""
        self.connection.close()

    def _who(self) -> dict[str, object]:
        return {"clusterName": CLUSTER, "brokerName": self.name}

    def _where(self) -> dict[str, object]:
        return {"brokerAddress": self.address}


def within(seconds: float, found: Callable[[], _T | None]) -> _T | None:
    """Wait for something that may never come; None when it does not."""

    def safely() -> _T | None:
        with contextlib.suppress(OSError):
            return found()
        return None

    try:
        return wait_until(safely, seconds, "it")
    except WaitTimeout:
        return None


def _now_ms() -> int:
    return int(time.time() * 1000)
