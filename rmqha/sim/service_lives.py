"""Clients of a broker's services while its set fails over: delays, timers, transactions, pops, locks.

They are the same in the simulator and in front of real processes (``chaos/aio/services.py``). Each of
them goes on with whoever says that it is the master, and asks again for what it was not told
where its protocol asks again. What was acknowledged is noted for ``verify/services.py``.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import random
from collections.abc import Awaitable, Callable, Iterator

from rmqha.base.invariants import invariant
from rmqha.broker.aio.replica import BrokerReplica
from rmqha.remoting.codes import RequestCode, ResponseCode
from rmqha.remoting.command import RemotingCommand
from rmqha.sim.clock import WALL_START_MS
from rmqha.sim.service_reads import (
    ORDER_GROUP,
    ORDERED,
    POP_GROUP,
    POPPED,
    PRODUCERS,
    SERVED,
    Popped,
    check_sent,
    popped,
    properties_of,
    records_of,
)
from rmqha.verify.pop_times import PopTimes
from rmqha.verify.services import (
    COMMITTED,
    DELAYED,
    TIMER,
    OrderedReads,
    PopReads,
    Promise,
    ServicePromises,
)

Process = tuple[str, int]
Ask = Callable[[RemotingCommand], Awaitable[tuple[RemotingCommand | None, Process]]]
"""Ask whoever says that it is the master; who that was."""

LEVELS_MS = (1_000, 2_000)
LEVELS = "1s 2s"
TIMER_PRECISION_MS = 100
INVISIBLE_MS = 1_000
CHANGED_MS, LATER_MS = (300, 3_000), (300, 6_000)
"""The latter is much more than a broker waits for the last acknowledgements, which is two seconds."""
POP_MARGIN_MS = 100
COMMIT, ROLLBACK = 8, 12
PULL_NOT_FOUND = 19
PAUSES_S = 0.01, 0.04, 0.15
LIMIT_S = 90.0
"""What was promised must have come by then, in peace; a check point may wait for a minute."""

LOOK_S = 0.1


class ServiceLives:
    """All of these clients of one broker set.

    Args:
        name: of the set.
        ask: see above.
        now_s: the loop's time.
        dice: from the seed, and nobody else's.
        count: told what happened, for coverage.
        wall_ms: the brokers' wall clock; by default that of the simulator.
        reigns: how many there have been; nothing is asked of a single one where that is not known.
        marked: messages have keys, tags and properties, and pops may be long.
    """

    def __init__(
        self, name: str, ask: Ask, now_s: Callable[[], float], dice: random.Random,
        count: Callable[[str], None], wall_ms: Callable[[], int] | None = None,
        reigns: Callable[[], int] | None = None, *, marked: bool = True,
    ) -> None:  # fmt: skip
        self._name = name
        self._ask = ask
        self._now_s = now_s
        self._marked = marked
        self._dice = dice
        self._count = count
        self._wall_ms = wall_ms or self._simulated_wall_ms
        self._reigns = reigns or itertools.count().__next__
        # Of whoever answered last.
        self._reign: object = None
        self._number = 0
        self._ordered = 0
        self.promises = ServicePromises()
        self.ordered = OrderedReads()
        self._decided: dict[str, int] = {}
        self._to_pop: set[bytes] = set()
        self._pop_acks: set[bytes] = set()
        self._pops = PopReads()
        self._times = PopTimes()
        self._places: dict[bytes, int] = {}

    def tasks(self, is_over: Callable[[], bool]) -> Iterator[tuple[str, Awaitable[None]]]:
        """All that goes on until it is over."""
        steps = {
            "delays": self._delay, "timers": self._timer, "transactions": self._transaction,
            "puts to pop": self._put_to_pop, "pops": self._pop_some, "ordered puts": self._put_next,
            "orderly o1": lambda: self._consume("o1"), "orderly o2": lambda: self._consume("o2"),
        }  # fmt: skip
        for name, step in steps.items():
            yield name, self._repeat(step, is_over)

    async def _repeat(
        self, step: Callable[[], Awaitable[None]], is_over: Callable[[], bool]
    ) -> None:
        while not is_over():
            await asyncio.sleep(self._dice.choice(PAUSES_S))
            await step()

    def _simulated_wall_ms(self) -> int:
        return WALL_START_MS + int(self._now_s() * 1000)

    # -- requests ------------------------------------------------------------------------------------

    async def _asked(self, code: int, fields: dict[str, str], body: bytes = b"") -> RemotingCommand:
        """The answer; one that says that nothing is known when there was none."""
        before = self._reigns()
        answer, process = await self._ask(RemotingCommand(code, ext_fields=fields, body=body))
        # What began in another reign is of none.
        after = self._reigns()
        self._reign = (process, after) if before == after else object()
        return answer or RemotingCommand(int(ResponseCode.SYSTEM_BUSY))

    async def _send(
        self, topic: str, body: bytes, properties: str = "", *, half: bool = False
    ) -> dict[str, str] | None:
        """Send a message; the fields of the answer once it is acknowledged."""
        marks = "".join(
            f"{name}\x01{value}\x02"
            for name, value in properties_of(body, marked=self._marked).items()
        )
        fields = {
            "a": PRODUCERS, "b": topic, "c": "TBW102", "d": "1", "e": "0", "f": "4" if half else "0",
            "g": "1700000000000", "h": "0", "i": marks + properties,
            "j": "0", "k": "false", "m": "false", "n": self._name,
        }  # fmt: skip
        answer = await self._asked(RequestCode.SEND_MESSAGE_V2, fields, body)
        if answer.code != ResponseCode.SUCCESS:
            return None
        found = dict(answer.ext_fields or {})
        self._places[body] = int(found["msgId"][-16:], 16)
        return found

    def _body(self, what: str) -> bytes:
        self._number += 1
        return f"{what}{self._number}".encode()

    # -- delays, timers ------------------------------------------------------------------------------

    async def _delay(self) -> None:
        level = self._dice.randint(1, len(LEVELS_MS))
        due_ms = self._wall_ms() + LEVELS_MS[level - 1]
        await self._later(DELAYED, "D", f"DELAY\x01{level}\x02", due_ms)

    async def _timer(self) -> None:
        delay_ms = self._dice.choice((300, 1_000, 2_500))
        due_ms = self._wall_ms() + delay_ms - TIMER_PRECISION_MS
        await self._later(TIMER, "T", f"TIMER_DELAY_MS\x01{delay_ms}\x02", due_ms)

    async def _later(self, kind: str, mark: str, properties: str, due_ms: int) -> None:
        body = self._body(mark)
        self.promises.early_ms[body] = due_ms
        if await self._send(SERVED, body, properties) is not None:
            self.promises.promised[body] = Promise(kind, due_ms)
            self._count(f"{kind} acknowledged")

    # -- transactions --------------------------------------------------------------------------------

    async def _transaction(self) -> None:
        """A half message whose end is decided at once, and told now, or only when asked."""
        body, now_ms = self._body("X"), self._wall_ms()
        decision = self._dice.choice((COMMIT, COMMIT, ROLLBACK))
        self._decided[body.decode()] = decision
        if decision == ROLLBACK:
            self.promises.rolled_back.add(body)
        found = await self._send(
            SERVED, body, f"TRAN_MSG\x01true\x02PGROUP\x01{PRODUCERS}\x02", half=True
        )
        if found is None:
            return
        if decision == COMMIT:
            # Told or not: whoever reigns asks until it knows.
            self.promises.promised[body] = Promise(COMMITTED, now_ms)
        if self._dice.random() < 0.4:
            self._count("half message left open")
            return
        offset = str(int(found["msgId"][-16:], 16))
        answer = await self._end(found["queueOffset"], offset, decision, is_asked=False)
        if answer.code == ResponseCode.SUCCESS:
            self._count(
                "transaction committed" if decision == COMMIT else "transaction rolled back"
            )

    async def _end(
        self, queue_offset: str, offset: str, decision: int, *, is_asked: bool
    ) -> RemotingCommand:
        fields = {
            "producerGroup": PRODUCERS, "tranStateTableOffset": queue_offset,
            "commitLogOffset": offset, "commitOrRollback": str(decision),
            "fromTransactionCheck": str(is_asked).lower(), "msgId": "", "transactionId": "",
        }  # fmt: skip
        return await self._asked(RequestCode.END_TRANSACTION, fields)

    async def answer_check(self, question: RemotingCommand) -> None:
        """A master asks how a transaction ended (39)."""
        fields = question.ext_fields or {}
        decision = self._decided.get(fields.get("transactionId", ""))
        if decision is None:
            return
        self._count("half message asked about")
        await self._end(
            fields["tranStateTableOffset"], fields["commitLogOffset"], decision, is_asked=True
        )

    # -- pop -----------------------------------------------------------------------------------------

    async def _put_to_pop(self) -> None:
        body = self._body("P")
        if await self._send(POPPED, body) is not None:
            self._to_pop.add(body)
            self._pops.was_sent(self._reign, body)
            self._times.was_sent(self._reign, body)

    async def _pop(self) -> list[Popped]:
        fields = {
            "consumerGroup": POP_GROUP, "topic": POPPED, "queueId": "-1", "maxMsgNums": "8",
            "invisibleTime": str(INVISIBLE_MS), "pollTime": "0", "bornTime": "0", "initMode": "0",
            "expType": "TAG", "exp": "*",
        }  # fmt: skip
        found = list(
            popped(
                await self._asked(RequestCode.POP_MESSAGE, fields), self._name, marked=self._marked
            )
        )
        for one in found:
            self._pops.was_given(self._reign, one.body)
            if self._times.was_given(self._reign, one.body, one.pop_ms, one.visible_ms):
                self._count("pop judged for visibility")
        return found

    async def _acknowledge(self, one: Popped) -> None:
        self._pop_acks.add(one.body)
        answer = await self._asked(RequestCode.ACK_MESSAGE, one.fields)
        if answer.code == ResponseCode.SUCCESS:
            self._count("pop acknowledged")
            in_time = self._wall_ms() < one.visible_ms - POP_MARGIN_MS
            if in_time and self._pops.was_acknowledged(self._reign, one.body):
                self._count("popped message consumed")

    async def _pop_some(self) -> None:
        """Acknowledge some, ask for another time for some, and forget the others."""
        for one in await self._pop():
            self._count("message popped")
            what = self._dice.random()
            if what < 0.5:
                await self._acknowledge(one)
            elif what < 0.7:
                times_ms = LATER_MS if self._marked else CHANGED_MS
                await self._change(one, self._dice.choice(times_ms))

    async def _change(self, one: Popped, invisible_ms: int) -> None:
        """Ask for another time, from now on."""
        fields = {**one.fields, "invisibleTime": str(invisible_ms)}
        self._times.is_changing(self._reign, one.body)
        # It begins when the broker has the request, and that is later than now.
        visible_ms = self._wall_ms() + invisible_ms
        answer = await self._asked(RequestCode.CHANGE_MESSAGE_INVISIBLETIME, fields)
        if answer.code != ResponseCode.SUCCESS:
            return
        self._count("invisible time changed")
        in_time = self._wall_ms() < one.visible_ms - POP_MARGIN_MS
        if in_time and self._times.was_changed(self._reign, one.body, visible_ms):
            self._count("changed time known")

    # -- orderly consumers ---------------------------------------------------------------------------

    async def _put_next(self) -> None:
        """The next number, again and again until it is acknowledged."""
        found = await self._send(ORDERED, str(self._ordered + 1).encode())
        if found is not None:
            self._ordered += 1
            self.ordered.acked.append(self._ordered)

    async def _consume(self, client: str) -> None:
        """Take the queue's lock, consume some, store how far it came, and give it back."""
        body = json.dumps(
            {
                "consumerGroup": ORDER_GROUP, "clientId": client,
                "mqSet": [{"topic": ORDERED, "brokerName": self._name, "queueId": 0}],
            }
        ).encode()  # fmt: skip
        answer, process = await self._ask(RemotingCommand(RequestCode.LOCK_BATCH_MQ, body=body))
        if answer is None or answer.code or b'"queueId"' not in bytes(answer.body):
            return
        self.ordered.locked(process, client)
        self._count("queue locked")
        for _ in range(self._dice.randint(1, 4)):
            await self._read_some()
        self.ordered.unlocking(process, client)
        answer, _ = await self._ask(RemotingCommand(RequestCode.UNLOCK_BATCH_MQ, body=body))
        if answer is None:
            # It may arrive at any time, and then end a later lock of this client.
            self.ordered.unknown.add(process)

    async def _read_some(self) -> bool:
        """Read from where the group's stored offset is; whether there was anything new."""
        where = {"consumerGroup": ORDER_GROUP, "topic": ORDERED, "queueId": "0"}
        answer = await self._asked(RequestCode.QUERY_CONSUMER_OFFSET, where)
        at = 0
        if answer.code == ResponseCode.SUCCESS:
            at = int((answer.ext_fields or {})["offset"])
        elif answer.code != ResponseCode.QUERY_NOT_FOUND:
            return True
        fields = {
            **where, "queueOffset": str(at), "maxMsgNums": "8", "sysFlag": "4", "commitOffset": "0",
            "suspendTimeoutMillis": "0", "subscription": "*", "subVersion": "0",
            "expressionType": "TAG",
        }  # fmt: skip
        answer = await self._asked(RequestCode.PULL_MESSAGE, fields)
        if answer.code == ResponseCode.SUCCESS:
            for record in records_of(bytes(answer.body)):
                check_sent(record, marked=self._marked)
                self.ordered.read.setdefault(int(bytes(record.body)))
                at = record.queue_offset + 1
            self._count("messages read in order")
            done = {**where, "commitOffset": str(at)}
            await self._asked(RequestCode.UPDATE_CONSUMER_OFFSET, done)
            return True
        return answer.code != PULL_NOT_FOUND

    # -- the end -------------------------------------------------------------------------------------

    def forget_lost(self, master: BrokerReplica) -> int:
        """Expect nothing of what is not in the last master's log.

        Returns:
            How many messages that were acknowledged are not.
        """
        look = master.store.reader.look
        lost: set[bytes] = set()
        for body, offset in self._places.items():
            record = look(offset)
            if record is None or bytes(record.body) != body:
                lost.add(body)
        self.promises.promised = {
            body: one for body, one in self.promises.promised.items() if body not in lost
        }
        self._to_pop -= lost
        self.ordered.acked = [n for n in self.ordered.acked if str(n).encode() not in lost]
        return len(lost)

    async def finish(
        self, stored: Callable[[], Awaitable[dict[bytes, int]]], open_count: Callable[[], int],
        late_ms: int | None = None,
    ) -> None:  # fmt: skip
        """All is mended and nobody sends any more: what was promised comes.

        Args:
            stored: when each message that consumers can read was stored first, by the wall clock.
            open_count: transactions that the master takes for open, where that can be known.
            late_ms: what is due comes within it, where nothing else takes a machine's time.

        Raises:
            InvariantBroken: see ``verify/services.py``; or it does not come in time.
        """
        until_s, peace_ms = self._now_s() + LIMIT_S, self._wall_ms()
        left = self._to_pop - self._pop_acks
        while True:
            found = await stored()
            self.promises.check(found)
            if late_ms is not None:
                self.promises.check_late(found, peace_ms, self._wall_ms(), late_ms)
            for one in await self._pop():
                left.discard(one.body)
                await self._acknowledge(one)
            missing = self.promises.missing(found)
            if not missing and not left and not open_count():
                break
            if self._now_s() >= until_s:
                for kind, body in missing.items():
                    invariant(False, f"an acknowledged {kind} never came", body=body)
                invariant(
                    not left, "a message that nobody acknowledged is popped no more", left=left
                )
                invariant(False, "a transaction that ended is still taken for open")
            await asyncio.sleep(LOOK_S)
        while await self._read_some():
            invariant(self._now_s() < until_s, "a queue has no end")
        self.ordered.check()
        self._count("services checked")
