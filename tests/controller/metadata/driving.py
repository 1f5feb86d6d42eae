"""A machine with a commit loop around it: everything proposed commits at once, or when told."""

from __future__ import annotations

from collections import deque
from collections.abc import Generator
from dataclasses import dataclass, field
from typing import TypeVar

from rmqha.base.machine import Note, Ticked
from rmqha.controller.machine import (
    Committed,
    ConnectionClosed,
    ControllerEvent,
    ControllerMachine,
    LeadershipChanged,
    MachineSettings,
    Notify,
    Propose,
    Reply,
    RequestReceived,
    RouteUnknown,
    WatchRoute,
)
from rmqha.controller.metadata.messages import Effects
from rmqha.controller.metadata.status import Status
from rmqha.remoting.heartbeat import Heartbeat
from rmqha.runtime.parts import at_once

CLUSTER, NAME = "DefaultCluster", "broker-a"
ResultT = TypeVar("ResultT")


def in_parts(work: Generator[None, None, ResultT]) -> tuple[ResultT, int]:
    """What work that is done in parts returns, and how often others had their turn."""
    found: list[ResultT] = []

    def to_its_end() -> Generator[None, None, None]:
        found.append((yield from work))

    parts = sum(1 for _ in to_its_end())
    return found[0], parts


def whole(work: Generator[None, None, ResultT]) -> ResultT:
    """What work that is done in parts returns, done at once."""
    return at_once(work)


@dataclass
class Driver:
    """Drives one leader; connection n belongs to broker n."""

    settings: MachineSettings = field(default_factory=MachineSettings)
    now_ms: int = 1_000_000
    machine: ControllerMachine = field(init=False)
    log: list[bytes] = field(default_factory=list)
    held: deque[Propose] = field(default_factory=deque)
    hold: bool = False
    token: int = 0
    notified: list[Notify] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)
    replies: dict[int, Reply] = field(default_factory=dict)
    watched: list[WatchRoute] = field(default_factory=list)
    routes: bool = False

    def __post_init__(self) -> None:
        self.machine = ControllerMachine(self.settings)
        self.step(LeadershipChanged(True, 1))

    def status(self) -> Status:
        """The machine's figures."""
        return whole(self.machine.status(self.now_ms))

    def step(self, event: ControllerEvent) -> None:
        self.carry_out(self.machine.step(self.now_ms, event))

    def carry_out(self, effects: Effects) -> None:
        for effect in effects:
            match effect:
                case Propose():
                    self.held.append(effect)
                case Reply():
                    assert effect.token not in self.replies, "a request is answered once"
                    self.replies[effect.token] = effect
                case Notify():
                    self.notified.append(effect)
                case WatchRoute():
                    self.watched.append(effect)
                    if not self.routes:
                        unseen = RouteUnknown(effect.broker_name, effect.master_epoch)
                        self.carry_out(self.machine.step(self.now_ms, unseen))
                case Note():
                    self.notes.append(effect)
        while self.held and not self.hold:
            self.commit_one()

    def commit_one(self) -> None:
        self.log.append(self.held.popleft().record)
        self.step(Committed(len(self.log), self.log[-1]))

    def send(self, code: int, connection: int, body: bytes = b"", **ext_fields: object) -> int:
        """Send a request and return its token."""
        self.token += 1
        texts = {key: str(value) for key, value in ext_fields.items()}
        self.step(RequestReceived(self.token, connection, code, texts, body))
        return self.token

    def ask(self, code: int, connection: int, body: bytes = b"", **ext_fields: object) -> Reply:
        """Send a request and return its answer."""
        return self.replies[self.send(code, connection, body, **ext_fields)]

    def register(self, broker_id: int, connection: int | None = None) -> None:
        """1013 and 1003 of one broker."""
        on = broker_id if connection is None else connection
        applied = self.ask(
            1013, on, clusterName=CLUSTER, brokerName=NAME, appliedBrokerId=broker_id,
            registerCheckCode=f"h:{broker_id};1",
        )  # fmt: skip
        assert applied.code == 0
        registered = self.ask(
            1003, on, clusterName=CLUSTER, brokerName=NAME, brokerId=broker_id,
            brokerAddress=f"h:{broker_id}",
        )  # fmt: skip
        assert registered.code == 0

    def beat(self, broker_id: int, connection: int | None = None, **more: object) -> None:
        """904 of one broker."""
        fields = {"clusterName": CLUSTER, "brokerName": NAME, "brokerId": broker_id, **more}
        on = broker_id if connection is None else connection
        texts = {key: str(value) for key, value in fields.items()}
        self.carry_out(self.machine.heartbeat(self.now_ms, on, Heartbeat.of(texts)))

    def elect(self, broker_id: int, *, designate: bool = False, connection: int = 0) -> Reply:
        """1002 from a broker, or (designate) from mqadmin."""
        return self.ask(
            1002, connection or (99 if designate else broker_id), clusterName=CLUSTER,
            brokerName=NAME, brokerId=broker_id, designateElect=str(designate).lower(),
        )  # fmt: skip

    def alter(self, master: int, master_epoch: object, ids: list[int], set_epoch: int) -> Reply:
        """1001 of a master."""
        body = f'{{"syncStateSet":{ids},"syncStateSetEpoch":{set_epoch}}}'.encode()
        return self.ask(
            1001, master, body, brokerName=NAME, masterBrokerId=master, masterEpoch=master_epoch
        )

    def pair(self) -> None:
        """Brokers 1 (master, epoch 1) and 2, both in sync, set epoch 2."""
        for broker_id in (1, 2):
            self.register(broker_id)
            self.beat(broker_id, epoch=-1, maxOffset=0)
        assert self.elect(1).code == 0
        assert self.alter(1, 1, [1, 2], 1).code == 0

    def close(self, connection: int) -> None:
        self.step(ConnectionClosed(connection))

    def pass_time(self, duration_ms: int) -> None:
        """Let time pass, ticking exactly when the machine asks to."""
        end_ms = self.now_ms + duration_ms
        for _ in range(100_000):
            due_ms = self.machine.next_deadline_ms()
            if due_ms is None or due_ms > end_ms:
                break
            self.now_ms = max(due_ms, self.now_ms)
            self.step(Ticked())
        else:
            raise AssertionError("the machine asks to be ticked without end")
        self.now_ms = end_ms

    def master(self) -> tuple[int | None, int]:
        """(master, epoch) of the set."""
        one = self.machine.state.sets[NAME]
        return one.master_broker_id, one.master_epoch

    def told(self) -> list[str]:
        """Addresses notified since the last call, in order."""
        addresses = [one.address for one in self.notified]
        self.notified.clear()
        return addresses
