"""Drives a ReplicasCore by hand: effects out, answers in, identity files in memory.

The controller's side of registration is the real ``decide`` and ``apply`` of the controller room.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rmqha.base.machine import Ticked
from rmqha.broker.common.replicas_settings import ReplicasSettings
from rmqha.broker.membership import events as ev
from rmqha.broker.membership.core import ReplicasCore
from rmqha.broker.membership.events import Effect, Event
from rmqha.broker.membership.identity import RemoveTemporary, WriteIdentity, WriteTemporary
from rmqha.remoting.bodies import SyncStateSet
from rmqha.remoting.codes import RequestCode
from rmqha.remoting.headers import ext_fields
from rmqha.store.identity import Identity

CLUSTER, NAME, ADDRESS = "DefaultCluster", "broker-a", "10.0.0.1:10911"
LEADER, OTHER = "c1:9878", "c2:9878"
SETTINGS = ReplicasSettings(CLUSTER, NAME, ADDRESS, (LEADER, OTHER))
WALL_MS = 1_700_000_000_000


class Files:
    """The two identity files."""

    def __init__(self) -> None:
        self.final: Identity | None = None
        self.temporary: Identity | None = None


class Driver:
    """One life of a broker's core."""

    def __init__(self, files: Files | None = None, settings: ReplicasSettings = SETTINGS) -> None:
        self.files = Files() if files is None else files
        self.core = ReplicasCore(settings)
        self.now_ms = 1_000
        self.effects: list[Effect] = []

    def give(self, event: Event) -> list[Effect]:
        """One step."""
        made = self.core.step(self.now_ms, event)
        self.effects += made
        return made

    def start(self) -> list[Effect]:
        """Begin with what the files hold."""
        return self.give(ev.Started(WALL_MS, self.files.final, self.files.temporary))

    def take(self, kind: type[Any]) -> list[Any]:
        """The effects of one kind so far; they are taken out."""
        found = [one for one in self.effects if type(one) is kind]
        self.effects = [one for one in self.effects if type(one) is not kind]
        return found

    def asked(self, code: int) -> ev.Ask:
        """The one request of this code that is out."""
        (found,) = [one for one in self.effects if isinstance(one, ev.Ask) and one.code == code]
        self.effects.remove(found)
        return found

    def has_asked(self, code: int) -> bool:
        """Whether a request of this code is out."""
        return any(isinstance(one, ev.Ask) and one.code == code for one in self.effects)

    def answer(
        self, code: int, response: int = 0, fields: Mapping[str, str] | None = None,
        body: bytes = b"",
    ) -> list[Effect]:  # fmt: skip
        """Answer the request of a code."""
        return self.give(ev.Answered(self.asked(code).token, response, fields, body))

    def lead(self, leader: str = LEADER) -> None:
        """All controllers name the leader."""
        for ask in [one for one in self.take(ev.Ask) if one.code == 1005]:
            is_leader = "true" if ask.address == leader else "false"
            fields = {"controllerLeaderAddress": leader, "isLeader": is_leader}
            self.give(ev.Answered(ask.token, 0, fields))

    def tick(self, ms: int = 0) -> list[Effect]:
        """Let time pass to the next deadline, or by ``ms``."""
        due = self.core.next_deadline_ms or self.now_ms
        self.now_ms = self.now_ms + ms if ms else max(self.now_ms, due)
        return self.give(Ticked())

    def tick_until_asked(self, code: int, limit_ms: int = 60_000) -> None:
        """Let time pass until a request of a code goes out."""
        end = self.now_ms + limit_ms
        while not self.has_asked(code):
            assert self.now_ms < end, f"{code} was never asked: {self.effects}"
            self.tick()

    def disk(self) -> None:
        """Carry out what waits for the disk or for replication, and tell so."""
        while True:
            waits = [
                one for one in self.effects
                if isinstance(
                    one, WriteTemporary | RemoveTemporary | WriteIdentity | ev.StartReplication
                )
            ]  # fmt: skip
            if not waits:
                return
            self.effects.remove(waits[0])
            self.do(waits[0])
            self.done(waits[0])

    def do(self, effect: Effect) -> None:
        """What the disk does for an effect."""
        match effect:
            case WriteTemporary(identity):
                self.files.temporary = identity
            case RemoveTemporary():
                self.files.temporary = None
            case WriteIdentity(identity):
                self.files.final, self.files.temporary = identity, None
            case _:
                pass

    def done(self, effect: Effect) -> None:
        """The event that ends an effect."""
        match effect:
            case WriteTemporary(identity):
                self.give(ev.TemporaryWritten(identity))
            case RemoveTemporary():
                self.give(ev.TemporaryRemoved())
            case WriteIdentity(identity):
                self.give(ev.IdentityWritten(identity))
            case ev.StartReplication():
                self.give(ev.ReplicationStarted())
            case _:
                raise AssertionError(effect)

    def register_as(self, broker_id: int = 1) -> None:
        """Begin with a final identity file, find the leader, and come to 1003."""
        self.files.final = Identity(CLUSTER, NAME, broker_id)
        self.start()
        self.lead()
        self.disk()
        assert self.has_asked(RequestCode.CONTROLLER_REGISTER_BROKER)

    def reign(self, epoch: int = 1) -> None:
        """Register as broker 1 and become the master of an epoch."""
        self.register_as(1)
        self.answer(1003, 0, mastership(1, epoch), SyncStateSet((1,), epoch).encode())
        self.give(ev.RoleSettled(epoch, accepted=True))
        self.effects.clear()


def mastership(
    master_id: int, epoch: int, address: str = "", set_epoch: int | None = None
) -> dict[str, str]:
    """The fields by which a controller names a master."""
    return ext_fields(
        masterBrokerId=master_id,
        masterAddress=address or f"10.0.0.{master_id}:10911",
        masterEpoch=epoch,
        syncStateSetEpoch=epoch if set_epoch is None else set_epoch,
    )
