"""Requests that come too late, twice, or from who believes what is no longer so: all must be refused.

An alter is repeated as a frame that was held up somewhere would come; one names the master epoch of an
earlier reign, as a master would that read only half of an answer; one names a replica that has just
died; and a newcomer asks for an id that was cleaned, perhaps long ago. What the answers say is counted,
so that a batch shows that each check was reached.
"""

from __future__ import annotations

import random
from collections import Counter, deque
from collections.abc import Awaitable, Callable
from typing import NamedTuple, Protocol

import orjson
from msgspec import Struct

from rmqha.base.invariants import invariant
from rmqha.remoting.codes import RequestCode, ResponseCode
from rmqha.remoting.command import RemotingCommand
from rmqha.sim.coverage import REFUSED

REMEMBERED = 5
"""Alters of one set that may be repeated."""

ANSWERS = (
    ResponseCode.CONTROLLER_FENCED_MASTER_EPOCH,
    ResponseCode.CONTROLLER_FENCED_SYNC_STATE_SET_EPOCH,
    ResponseCode.CONTROLLER_BROKER_NOT_ALIVE,
)
*FENCES, CLEANED_ID, OLDER_CLEANED_ID = REFUSED
COUNTED = dict(zip(map(int, ANSWERS), FENCES, strict=True))

LAST_BREATH_MS, DEAD_MS = 1, 50
"""A replica says that it may be silent for so long, and is silent for so long."""
IDS_MAX = 6
"""So many replicas a set may have for one more to come, and die."""


class PaperSet(Struct):
    """What the operator knows of one set.

    Attributes:
        ids: taken and not cleaned.
        cleaned: in their order.
        stamps: changes of addresses so far.
    """

    name: str
    ids: list[int]
    cleaned: list[int]
    stamps: int = 0


class Ask(Protocol):
    """Sends a request to the controller that is asked just now."""

    def __call__(
        self, code: RequestCode, fields: dict[str, str], body: bytes = b""
    ) -> Awaitable[RemotingCommand]:
        """Its answer; an error of the network is raised."""


class Alter(NamedTuple):
    """A 1001 as it was sent."""

    fields: dict[str, str]
    body: bytes


class Known(NamedTuple):
    """What 1004 tells of a set with a master."""

    master: int
    master_epoch: int
    members: tuple[int, ...]
    members_epoch: int


class LateRequests:
    """Remembers what an operator sent, and sends more of that kind.

    Args:
        ask: sends a request.
        take_id: lets a replica join a set; its id, or None.
        signs_of_life: the fields of a heartbeat.
        sleep: lets milliseconds pass.
        rng: seeded, of its own: stories without late requests stay as they are.
        counts: told what was answered.
    """

    def __init__(
        self,
        ask: Ask,
        take_id: Callable[[PaperSet], Awaitable[int | None]],
        signs_of_life: Callable[[str, int], dict[str, str]],
        sleep: Callable[[float], Awaitable[None]],
        rng: random.Random,
        counts: Counter[str],
    ) -> None:
        self._ask = ask
        self._take_id = take_id
        self._signs_of_life = signs_of_life
        self._sleep = sleep
        self._rng = rng
        self._counts = counts
        self._alters: dict[str, deque[Alter]] = {}

    def sent(self, name: str, fields: dict[str, str], body: bytes) -> None:
        """An alter leaves, and may come again."""
        kept = self._alters.setdefault(name, deque(maxlen=REMEMBERED))
        kept.append(Alter(fields, body))

    async def send(self, one: PaperSet) -> None:
        """One of them, as far as there is what it needs."""
        rng = self._rng
        kinds = [self._reign_again]
        kinds += [self._repeat] * 2 * (one.name in self._alters)
        kinds += [self._take_cleaned] * bool(one.cleaned)
        kinds += [self._name_the_dead] * (len(one.ids) < IDS_MAX)
        await rng.choice(kinds)(one)

    async def _repeat(self, one: PaperSet) -> None:
        old = self._rng.choice(self._alters[one.name])
        code = RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET
        self._answered(await self._ask(code, old.fields, old.body))

    async def _take_cleaned(self, one: PaperSet) -> None:
        broker_id = self._rng.choice(one.cleaned)
        fields = {
            **self._signs_of_life(one.name, broker_id),
            "appliedBrokerId": str(broker_id),
            "registerCheckCode": f"late:{broker_id};{self._rng.randint(0, 1 << 30)}",
        }
        answer = await self._ask(RequestCode.CONTROLLER_APPLY_BROKER_ID, fields)
        if answer.code == ResponseCode.CONTROLLER_BROKER_ID_INVALID:
            self._counts[CLEANED_ID] += 1
            self._counts[OLDER_CLEANED_ID] += broker_id != one.cleaned[-1]

    async def _name_the_dead(self, one: PaperSet) -> None:
        """A replica joins, is heard for the last time, and is named.

        Whoever gives an id hears its replica, and nobody else has: once that controller has answered
        to the last breath, and time has passed, the replica is dead for all of them.
        """
        broker_id = await self._take_id(one)
        if broker_id is None:
            return
        fields = self._signs_of_life(one.name, broker_id)
        breath = {**fields, "heartbeatTimeoutMills": str(LAST_BREATH_MS)}
        answer = await self._ask(RequestCode.BROKER_HEARTBEAT, breath)
        known = await self._known(one.name)
        if answer.code != ResponseCode.SUCCESS or known is None:
            return
        await self._sleep(DEAD_MS)
        members = (*known.members, broker_id)
        answer = await self._alter(one.name, known, known.master_epoch, members)
        invariant(
            answer.code != ResponseCode.SUCCESS,
            "a dead replica was taken into a SyncStateSet",
            broker_name=one.name,
            broker_id=broker_id,
        )

    async def _reign_again(self, one: PaperSet) -> None:
        """The SyncStateSet's epoch of now, and the epoch of an earlier reign."""
        known = await self._known(one.name)
        other = self._rng.choice(one.ids)
        if known is None:
            return
        members = {known.master, *known.members} ^ ({other} - {known.master})
        await self._alter(one.name, known, self._rng.randrange(known.master_epoch), tuple(members))

    async def _known(self, name: str) -> Known | None:
        answer = await self._ask(RequestCode.CONTROLLER_GET_REPLICA_INFO, {"brokerName": name})
        fields = answer.ext_fields or {}
        if answer.code != ResponseCode.SUCCESS or "masterBrokerId" not in fields:
            return None
        told = orjson.loads(answer.body)
        return Known(
            int(fields["masterBrokerId"]), int(fields["masterEpoch"]),
            tuple(told["syncStateSet"]), int(told["syncStateSetEpoch"]),
        )  # fmt: skip

    async def _alter(
        self, name: str, known: Known, master_epoch: int, members: tuple[int, ...]
    ) -> RemotingCommand:
        fields = {
            "brokerName": name,
            "masterBrokerId": str(known.master),
            "masterEpoch": str(master_epoch),
        }
        body = {"syncStateSet": sorted(members), "syncStateSetEpoch": known.members_epoch}
        answer = await self._ask(
            RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET, fields, orjson.dumps(body)
        )
        self._answered(answer)
        return answer

    def _answered(self, answer: RemotingCommand) -> None:
        if answer.code in COUNTED:
            self._counts[COUNTED[answer.code]] += 1
