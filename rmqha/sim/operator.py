"""An operator with scripts of his own: broker sets that exist on paper only, changed all the time.

Real brokers change the controllers' log a few times a second, and a story lasts ten. This client
registers sets, elects, alters, moves and cleans, one request at a time, so that a story has
enough entries for snapshots and compactions, and every field of the state a value of its own. In some
stories he also sends what is out of date (``late_requests``).
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter

import orjson

from rmqha.base.errors import InvariantBroken, RmqhaError
from rmqha.base.invariants import invariant
from rmqha.remoting.aio.client import RemotingClient
from rmqha.remoting.codes import RequestCode, ResponseCode
from rmqha.remoting.command import FLAG_ONEWAY, RemotingCommand
from rmqha.runtime.ports import Clock
from rmqha.sim.calls import CallLog
from rmqha.sim.late_requests import LateRequests, PaperSet
from rmqha.verify.history import EpochHistory

CLUSTER = "Paper"
SETS_MAX = 3
IDS_MAX = 4
INVOKE_MS = 400
BURST_MAX = 12
ADOPTED = 0.1
"""Of what is done, so much is bringing sets of other controllers, where they take them."""
LATE = 0.25
"""Of what is done, so much comes too late, where anything does."""


class Operator:
    """Asks for one change after another.

    Args:
        controllers: addresses.
        think_ms: pause between two requests, at most.
        rng: seeded.
        client, clock: of the operator's host.
        history: checks that no answer is older than one already given.
        bursts: share of requests that are many at a time.
        adopting: the controllers take in brokers of sets that lived under others.
        calls: records every request and its answer; not where an id may come back by adoption,
            for the model knows none.
        late: draws what comes too late; None where nothing does.
        counts: told what was answered to that.
    """

    def __init__(
        self,
        controllers: tuple[str, ...],
        *,
        think_ms: float,
        rng: random.Random,
        client: RemotingClient,
        clock: Clock,
        history: EpochHistory,
        bursts: float = 0.0,
        adopting: bool = False,
        calls: CallLog | None = None,
        late: random.Random | None = None,
        counts: Counter[str] | None = None,
    ) -> None:
        self._controllers = controllers
        self._think_ms = think_ms
        self._rng = rng
        self._client = client
        self._clock = clock
        self._history = history
        self._bursts = bursts
        self._adopting = adopting
        self._calls = None if adopting else calls
        self._late_rng = late
        told = Counter() if counts is None else counts
        self._late = LateRequests(
            self._ask,
            self._take_id,
            self._signs_of_life,
            clock.sleep,
            late or random.Random(0),
            told,
        )
        self._target = 0
        self._sets: list[PaperSet] = []
        self._names = 0
        self._issued: dict[tuple[str, int], str] = {}
        self.working = True
        self.done = 0

    async def work(self) -> None:
        """Go on while ``working``; an error of the network is an answer like any other."""
        while self.working:
            await self._clock.sleep(self._rng.uniform(0.2, 1.0) * self._think_ms)
            try:
                await self._one()
            except InvariantBroken:
                raise
            except RmqhaError:
                self._target += 1

    async def _one(self) -> None:
        rng = self._rng
        if self._adopting and rng.random() < ADOPTED:
            await self._adopt()
            return
        if len(self._sets) < SETS_MAX and (not self._sets or rng.random() < 0.1):
            self._names += 1
            self._sets.append(PaperSet(f"paper-{self._names}", [], []))
        one = rng.choice(self._sets)
        if one.ids and self._late_rng is not None and self._late_rng.random() < LATE:
            await self._late.send(one)
            return
        kinds = [self._take_id] if len(one.ids) < IDS_MAX else []
        if one.ids:
            kinds += [self._move, self._elect, self._alter, self._alter, self._clean_id]
        if one.ids and rng.random() < 0.05:
            kinds = [self._clean_set]
        elif one.ids and self._bursts and rng.random() < self._bursts:
            kinds = [self._burst]
        await rng.choice(kinds)(one)

    async def _ask(
        self, code: RequestCode, fields: dict[str, str], body: bytes = b""
    ) -> RemotingCommand:
        name = fields["brokerName"]
        floor = self._history.invoked(name)
        address = self._controllers[self._target % len(self._controllers)]
        command = RemotingCommand(code, ext_fields=fields, body=body)
        asked = self._calls.asked(code, fields, body) if self._calls is not None else None
        answer = None
        try:
            answer = await self._client.invoke(address, command, INVOKE_MS)
        finally:
            if self._calls is not None and asked is not None:
                self._calls.answered(asked, answer)
        if answer.code == ResponseCode.CONTROLLER_NOT_LEADER:
            self._target += 1
        shown = (answer.ext_fields or {}).get("masterEpoch")
        if shown is not None:
            self._history.returned(name, floor, int(shown))
        self.done += answer.code == ResponseCode.SUCCESS
        return answer

    async def _beat(self, one: PaperSet, broker_id: int) -> None:
        """Let the controller that is asked next believe that a paper broker lives."""
        fields = self._signs_of_life(one.name, broker_id)
        address = self._controllers[self._target % len(self._controllers)]
        command = RemotingCommand(RequestCode.BROKER_HEARTBEAT, flag=FLAG_ONEWAY, ext_fields=fields)
        await self._client.invoke_oneway(address, command, INVOKE_MS)

    def _signs_of_life(self, name: str, broker_id: int) -> dict[str, str]:
        return {
            "clusterName": CLUSTER,
            "brokerName": name,
            "brokerId": str(broker_id),
            "brokerAddr": f"paper:{broker_id}",
            "epoch": "-1",
            "maxOffset": "0",
            "confirmOffset": "0",
            "heartbeatTimeoutMills": "60000",
        }

    async def _take_id(self, one: PaperSet) -> int | None:
        names = {"clusterName": CLUSTER, "brokerName": one.name}
        answer = await self._ask(RequestCode.CONTROLLER_GET_NEXT_BROKER_ID, names)
        wanted = (answer.ext_fields or {}).get("nextBrokerId")
        if answer.code != ResponseCode.SUCCESS or wanted is None:
            return None
        check = f"{one.name}:{wanted};{self._rng.randint(0, 1 << 30)}"
        key = (one.name, int(wanted))
        answer = await self._ask(
            RequestCode.CONTROLLER_APPLY_BROKER_ID,
            {**names, "appliedBrokerId": wanted, "registerCheckCode": check},
        )
        if answer.code != ResponseCode.SUCCESS:
            return None
        known = self._issued.setdefault(key, check)
        invariant(known == check, "a broker id was given out twice", broker=key)
        one.ids.append(int(wanted))
        return int(wanted)

    async def _move(self, one: PaperSet) -> None:
        one.stamps += 1
        broker_id = self._rng.choice(one.ids)
        fields = {
            "clusterName": CLUSTER,
            "brokerName": one.name,
            "brokerId": str(broker_id),
            "brokerAddress": f"paper-{broker_id}:{one.stamps}",
        }
        await self._ask(RequestCode.CONTROLLER_REGISTER_BROKER, fields)

    async def _adopt(self) -> None:
        """A set that has lived elsewhere comes: who lacks messages registers first, and asks."""
        self._names += 1
        name = f"kept-{self._names}"
        for broker_id, offset in ((1, 1_000_000), (2, 10)):
            fields = {
                **self._signs_of_life(name, broker_id),
                "epoch": "7",
                "maxOffset": str(offset),
            }
            # Answered, so heard: what is asked next is decided by who knows.
            await self._ask(RequestCode.BROKER_HEARTBEAT, fields)
        for broker_id in (2, 1):
            fields = {"clusterName": CLUSTER, "brokerName": name, "brokerId": str(broker_id)}
            address = {"brokerAddress": f"kept-{broker_id}:1"}
            answer = await self._ask(RequestCode.CONTROLLER_REGISTER_BROKER, {**fields, **address})
            if answer.code != ResponseCode.SUCCESS:
                return
            await self._ask(RequestCode.CONTROLLER_ELECT_MASTER, {**fields, "brokerId": "2"})

    async def _burst(self, one: PaperSet) -> None:
        """Many brokers move at once: a log with much in it that is not committed yet."""
        moves = [self._move(one) for _ in range(self._rng.randint(3, BURST_MAX))]
        ends = await asyncio.gather(*moves, return_exceptions=True)
        for error in ends:
            if isinstance(error, BaseException):
                raise error

    async def _elect(self, one: PaperSet) -> None:
        broker_id = self._rng.choice(one.ids)
        await self._beat(one, broker_id)
        fields = {
            "clusterName": CLUSTER,
            "brokerName": one.name,
            "brokerId": str(broker_id),
            "designateElect": self._rng.choice(("true", "false")),
        }
        await self._ask(RequestCode.CONTROLLER_ELECT_MASTER, fields)

    async def _alter(self, one: PaperSet) -> None:
        answer = await self._ask(RequestCode.CONTROLLER_GET_REPLICA_INFO, {"brokerName": one.name})
        fields = answer.ext_fields or {}
        if answer.code != ResponseCode.SUCCESS or "masterBrokerId" not in fields:
            return
        known = orjson.loads(answer.body)
        master = int(fields["masterBrokerId"])
        other = self._rng.choice(one.ids)
        await self._beat(one, other)
        members = {master, *known["syncStateSet"]}
        members = members - {other} | {master} if other in members else members | {other}
        alter = {
            "brokerName": one.name,
            "masterBrokerId": str(master),
            "masterEpoch": fields["masterEpoch"],
        }
        body = orjson.dumps(
            {"syncStateSet": sorted(members), "syncStateSetEpoch": known["syncStateSetEpoch"]}
        )
        self._late.sent(one.name, alter, body)
        await self._ask(RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET, alter, body)

    async def _clean_id(self, one: PaperSet) -> None:
        if len(one.ids) < 2:
            return
        broker_id = self._rng.choice(one.ids)
        # Until the answer is here nobody knows whether the set is still there: the last id that
        # is cleaned takes it along, and ids begin anew.
        self._sets.remove(one)
        answer = await self._ask(
            RequestCode.CLEAN_BROKER_DATA,
            {
                "clusterName": CLUSTER,
                "brokerName": one.name,
                "brokerControllerIdsToClean": str(broker_id),
                "isCleanLivingBroker": "true",
            },
        )
        if answer.code == ResponseCode.SUCCESS:
            one.ids.remove(broker_id)
            one.cleaned.append(broker_id)
            self._sets.append(one)

    async def _clean_set(self, one: PaperSet) -> None:
        """The name is never used again: its epochs would begin anew."""
        self._sets.remove(one)
        await self._ask(
            RequestCode.CLEAN_BROKER_DATA,
            {
                "clusterName": CLUSTER,
                "brokerName": one.name,
                "brokerControllerIdsToClean": "",
                "isCleanLivingBroker": "true",
            },
        )
