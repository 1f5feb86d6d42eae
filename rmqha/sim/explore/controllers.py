"""Controllers over an abstract log: requests, commits, leader changes and closes in any order.

The machines are real (``controller.machine``); Raft is a list. What the leader proposes commits in
order; a leader that loses office leaves some of what it proposed committed and the rest nowhere; a
new one has applied all of the log. Followers apply when they like.

In every state: one request in flight a broker set, each request answered exactly once, and equal
states after equal logs. Of every log: the masters property of ``verify.masters``.
"""

from __future__ import annotations

import pickle
from array import array
from collections.abc import Callable, Iterator
from hashlib import blake2b
from typing import NamedTuple

from msgspec import Struct

from rmqha.base.errors import RmqhaError
from rmqha.base.ids import Term
from rmqha.base.invariants import invariant
from rmqha.base.machine import Ticked
from rmqha.controller.machine import ControllerMachine
from rmqha.controller.metadata import messages as cm
from rmqha.controller.metadata.events import MasterElected, SyncStateSetAltered, from_proposal
from rmqha.sim.explore.walk import State, Violation
from rmqha.verify.masters import MastersProperty

CLUSTER, NAME = "explored", "broker-a"
TICK_MS = 200
"""One step of time; a closed connection's grace is over by then."""
DEADLINES_MAX = 100
"""In one step of time."""

SETTINGS = cm.MachineSettings(watch_name_server_route=False, cold_start_grace_ms=TICK_MS)


class Ask(NamedTuple):
    """A request that may be sent once, at any moment.

    Attributes:
        words: for the trace.
        connection: whose; broker n's is n, and an operator's 99.
    """

    words: str
    code: int
    connection: int
    ext_fields: dict[str, str]
    body: bytes = b""


class Scene(Struct, frozen=True):
    """What may happen.

    Attributes:
        asks: at most ``requests`` of them, in any order.
        leaders: changes of leadership; refusals: proposals that Raft refuses.
        closes: connections of brokers that close; ticks: steps of time.
        prepared: asked before the walk begins, each committed at once.
    """

    asks: tuple[Ask, ...]
    machines: int = 2
    requests: int = 3
    leaders: int = 1
    refusals: int = 0
    closes: int = 1
    ticks: int = 1
    prepared: tuple[Ask, ...] = ()


class Move(NamedTuple):
    """One thing that happens; ``number`` says which request, machine or connection.

    ``kept`` proposals are committed in the end although their leader loses office.
    """

    kind: str
    number: int = 0
    kept: int = 0


class Stepped(NamedTuple):
    """A machine after a step, and what it wants of its shell."""

    machine: int
    proposed: tuple[bytes, ...] = ()
    replied: tuple[int, ...] = ()
    error: RmqhaError | None = None


class Pool:
    """Values by number, each once."""

    def __init__(self) -> None:
        self.items: list[bytes] = []
        self._numbers: dict[bytes, int] = {}

    def number(self, item: bytes) -> int:
        """The number of a value."""
        found = self._numbers.setdefault(item, len(self.items))
        if found == len(self.items):
            self.items.append(item)
        return found


# A state: machines..., then these.
LOG, PENDING, LEADER, TERM, TICKS, SENT, REPLIED, CHANGES, REFUSALS, CLOSED = range(10)


def _stepped_at(
    machine: ControllerMachine, now_ms: int, event: cm.ControllerEvent
) -> list[cm.ControllerEffect]:
    """What a machine does; in a step of time it is looked at whenever something is due.

    Else all of it were late, and a machine that was away takes nobody for dead at once.
    """
    effects: list[cm.ControllerEffect] = []
    if isinstance(event, Ticked):
        for _ in range(DEADLINES_MAX):
            due_ms = machine.next_deadline_ms()
            if due_ms is None or due_ms >= now_ms:
                break
            effects += machine.step(due_ms, event)
        else:
            raise AssertionError(f"{DEADLINES_MAX} deadlines in {TICK_MS} ms")
    return effects + list(machine.step(now_ms, event))


class Controllers:
    """A space for ``walk.Walk``."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        self.machines = Pool()
        self.lists = Pool()
        self._steps: dict[tuple[int, bytes, int], Stepped] = {}
        self._snapshots: dict[int, bytes] = {}
        self._applied: dict[int, tuple[int, bytes]] = {}
        blank = self.machines.number(pickle.dumps(ControllerMachine(SETTINGS)))
        nothing = self.lists.number(pickle.dumps(()))
        rest = [nothing, nothing, 0, 0, 0, 0, 0, 0, 0, 0]
        state: State = (*[blank] * scene.machines, *rest)
        state = self.after(state, Move("lead", 0))
        for place, ask in enumerate(scene.prepared):
            state = self._asked(state, ask, 1000 + place)
            while self._list(state, PENDING):
                state = self.after(state, Move("commit"))
        for one in range(1, scene.machines):
            while self._index(state, one) < len(self._list(state, LOG)):
                state = self.after(state, Move("apply", one))
        shown = list(state)
        shown[scene.machines + CHANGES] = shown[scene.machines + REPLIED] = 0
        self.start: State = tuple(shown)

    # -- looking -------------------------------------------------------------------------------

    def key(self, state: State) -> bytes:
        """128 bits that tell states apart."""
        return blake2b(array("Q", state).tobytes(), digest_size=16).digest()

    def detail_of(self, state: State, move: Move) -> str | None:
        """The request of a move, in words."""
        return self.scene.asks[move.number].words if move.kind == "ask" else None

    def _at(self, state: State, what: int) -> int:
        return state[self.scene.machines + what]

    def _list(self, state: State, what: int) -> tuple[bytes, ...]:
        found: tuple[bytes, ...] = pickle.loads(self.lists.items[self._at(state, what)])
        return found

    def _index(self, state: State, machine: int) -> int:
        return self._view(state[machine])[0]

    def _view(self, machine: int) -> tuple[int, bytes]:
        """How far a machine has applied, and the state that it has come to."""
        found = self._applied.get(machine)
        if found is None:
            one: ControllerMachine = pickle.loads(self.machines.items[machine])
            found = self._applied[machine] = (one.applied_index, one.snapshot())
        return found

    # -- moves -----------------------------------------------------------------------------------

    def moves(self, state: State) -> Iterator[Move]:
        """Everything that can happen next."""
        scene = self.scene
        sent, pending = self._at(state, SENT), self._list(state, PENDING)
        if sent.bit_count() < scene.requests:
            every = range(len(scene.asks))
            yield from (Move("ask", number) for number in every if not sent >> number & 1)
        if pending:
            yield Move("commit")
            if self._at(state, REFUSALS) < scene.refusals:
                yield Move("refuse")
        for machine in range(scene.machines):
            if machine + 1 != self._at(state, LEADER):
                yield from self._moves_of_follower(state, machine)
        if self._at(state, LEADER) and self._at(state, CHANGES) < scene.leaders:
            for kept in range(len(pending) + 1):
                yield Move("depose", kept=kept)
        yield from self._moves_around(state)

    def _moves_around(self, state: State) -> Iterator[Move]:
        closed = self._at(state, CLOSED)
        if closed.bit_count() < self.scene.closes:
            yield from (Move("close", one) for one in (1, 2) if not closed >> one & 1)
        if self._at(state, TICKS) < self.scene.ticks:
            yield Move("tick")

    def _moves_of_follower(self, state: State, machine: int) -> Iterator[Move]:
        if self._index(state, machine) < len(self._list(state, LOG)):
            yield Move("apply", machine)
        elif not self._at(state, LEADER):
            yield Move("lead", machine)

    # -- what a move comes to ----------------------------------------------------------------------

    def after(self, state: State, move: Move) -> State:
        """The state after a move, checked.

        Raises:
            Violation: a property does not hold there.
        """
        try:
            after = _HAPPEN[move.kind](self, state, move)
            self._check(after)
        except RmqhaError as error:
            raise Violation(move, error) from error
        return after

    def ask(self, state: State, move: Move) -> State:
        """A request arrives at the leader, or where nobody leads at the first machine."""
        shown = list(state)
        shown[self.scene.machines + SENT] |= 1 << move.number
        return self._asked(tuple(shown), self.scene.asks[move.number], move.number)

    def _asked(self, state: State, ask: Ask, token: int) -> State:
        at = max(self._at(state, LEADER) - 1, 0)
        request = cm.RequestReceived(token, ask.connection, ask.code, ask.ext_fields, ask.body)
        return self._stepped(state, at, request)

    def commit(self, state: State, _move: Move) -> State:
        """The leader's oldest proposal is committed, and applied there."""
        pending = self._list(state, PENDING)
        state = self._logged(self._with(state, PENDING, pending[1:]), pending[:1])
        return self.apply(state, Move("apply", self._at(state, LEADER) - 1))

    def apply(self, state: State, move: Move) -> State:
        """A machine applies the next record of the log."""
        index = self._index(state, move.number) + 1
        record = self._list(state, LOG)[index - 1]
        return self._stepped(state, move.number, cm.Committed(index, record))

    def refuse(self, state: State, _move: Move) -> State:
        """Raft does not take the leader's newest proposal."""
        pending = self._list(state, PENDING)
        state = self._with(state, PENDING, pending[:-1])
        state = self._counted(state, REFUSALS)
        return self._stepped(state, self._at(state, LEADER) - 1, cm.ProposalDropped(pending[-1]))

    def depose(self, state: State, move: Move) -> State:
        """The leader loses office; the first ``kept`` of its proposals are committed in the end."""
        leader = self._at(state, LEADER) - 1
        pending = self._list(state, PENDING)
        state = self._logged(self._with(state, PENDING, ()), pending[: move.kept])
        shown = list(self._counted(state, CHANGES))
        shown[self.scene.machines + LEADER] = 0
        gone = cm.LeadershipChanged(is_leader=False, term=Term(self._at(state, TERM) + 1))
        return self._stepped(tuple(shown), leader, gone)

    def lead(self, state: State, move: Move) -> State:
        """A machine that has applied the whole log takes office."""
        shown = list(self._counted(state, TERM))
        shown[self.scene.machines + LEADER] = move.number + 1
        term = shown[self.scene.machines + TERM]
        return self._stepped(tuple(shown), move.number, cm.LeadershipChanged(True, Term(term)))

    def close(self, state: State, move: Move) -> State:
        """A broker's connection to the leader ends."""
        shown = list(state)
        shown[self.scene.machines + CLOSED] |= 1 << move.number
        at = max(self._at(state, LEADER) - 1, 0)
        return self._stepped(tuple(shown), at, cm.ConnectionClosed(move.number))

    def tick(self, state: State, _move: Move) -> State:
        """Time passes, and every machine looks at the clock."""
        state = self._counted(state, TICKS)
        for machine in range(self.scene.machines):
            state = self._stepped(state, machine, Ticked())
        return state

    def _counted(self, state: State, what: int) -> State:
        shown = list(state)
        shown[self.scene.machines + what] += 1
        return tuple(shown)

    def _with(self, state: State, what: int, items: tuple[bytes, ...]) -> State:
        shown = list(state)
        shown[self.scene.machines + what] = self.lists.number(pickle.dumps(items))
        return tuple(shown)

    def _logged(self, state: State, records: tuple[bytes, ...]) -> State:
        return self._with(state, LOG, (*self._list(state, LOG), *records))

    def _stepped(self, state: State, machine: int, event: cm.ControllerEvent) -> State:
        step = self._step(state[machine], event, self._at(state, TICKS))
        if step.error is not None:
            raise step.error
        shown = list(state)
        shown[machine] = step.machine
        replied = shown[self.scene.machines + REPLIED]
        for token in step.replied:
            if token < 1000:
                invariant(not replied >> token & 1, "a request was answered twice", token=token)
                replied |= 1 << token
        shown[self.scene.machines + REPLIED] = replied
        state = tuple(shown)
        if step.proposed:
            state = self._with(state, PENDING, (*self._list(state, PENDING), *step.proposed))
        return state

    def _step(self, machine: int, event: cm.ControllerEvent, ticks: int) -> Stepped:
        key = (machine, pickle.dumps(event), ticks)
        found = self._steps.get(key)
        if found is None:
            one: ControllerMachine = pickle.loads(self.machines.items[machine])
            try:
                effects = _stepped_at(one, 1_000_000 + ticks * TICK_MS, event)
                # Twice, so that what is shared within no longer shows.
                kept = pickle.dumps(pickle.loads(pickle.dumps(one)))
                found = Stepped(
                    self.machines.number(kept),
                    tuple(e.record for e in effects if isinstance(e, cm.Propose)),
                    tuple(e.token for e in effects if isinstance(e, cm.Reply)),
                )
            except RmqhaError as error:
                found = Stepped(machine, error=error)
            self._steps[key] = found
        return found

    # -- properties --------------------------------------------------------------------------------

    def _check(self, state: State) -> None:
        pending = self._list(state, PENDING)
        names = [from_proposal(record)[2].broker_name for record in pending]
        invariant(len(names) == len(set(names)), "two requests of a set are in flight", names=names)
        unanswered = self._at(state, SENT) & ~self._at(state, REPLIED)
        invariant(
            not unanswered or bool(pending), "a request is never answered", requests=bin(unanswered)
        )
        log = self._list(state, LOG)
        for machine in range(self.scene.machines):
            index, snapshot = self._view(state[machine])
            expected = self._snapshot_of(log[:index])
            invariant(
                snapshot == expected,
                "two states differ after one log",
                machine=machine,
                index=index,
            )
        self._snapshot_of(log)

    def _snapshot_of(self, records: tuple[bytes, ...]) -> bytes:
        """What a machine that only hears this log comes to; the log is checked on the way."""
        number = self.lists.number(pickle.dumps(records))
        found = self._snapshots.get(number)
        if found is None:
            found = self._snapshots[number] = replayed(records)
        return found


_HAPPEN: dict[str, Callable[[Controllers, State, Move], State]] = {
    "ask": Controllers.ask,
    "commit": Controllers.commit,
    "apply": Controllers.apply,
    "refuse": Controllers.refuse,
    "depose": Controllers.depose,
    "lead": Controllers.lead,
    "close": Controllers.close,
    "tick": Controllers.tick,
}


def replayed(records: tuple[bytes, ...]) -> bytes:
    """The snapshot after a log.

    Raises:
        InvariantBroken: the log breaks the masters property, or alters to unregistered replicas.
    """
    machine = ControllerMachine(SETTINGS)
    masters = MastersProperty()
    for index, record in enumerate(records, 1):
        event = from_proposal(record)[2]
        before = machine.state.sets.get(event.broker_name)
        members = before.sync_state_set if before is not None else ()
        if isinstance(event, SyncStateSetAltered) and before is not None:
            invariant(
                set(event.new_sync_state_set) <= set(before.replicas),
                "a SyncStateSet holds a replica that is not registered",
                members=event.new_sync_state_set,
            )
        machine.step(0, cm.Committed(index, record))
        after = machine.state.sets.get(event.broker_name)
        if after is None:
            masters.forget(event.broker_name)
            continue
        masters.observe(
            event.broker_name,
            after.master_epoch,
            after.master_broker_id,
            sync_state_set_before=members if isinstance(event, MasterElected) else None,
        )
    return machine.snapshot()


# -- what brokers and operators ask ------------------------------------------------------------


def _who(broker: int, **more: object) -> dict[str, str]:
    fields = {"clusterName": CLUSTER, "brokerName": NAME, "brokerId": broker, **more}
    return {key: str(value) for key, value in fields.items()}


def apply_id(broker: int) -> Ask:
    """Ask for a broker id (1013)."""
    fields = _who(broker, appliedBrokerId=broker, registerCheckCode=f"h:{broker};1")
    return Ask(f"1013 of broker {broker}", 1013, broker, fields)


def register(broker: int, address: str) -> Ask:
    """Register with an id (1003)."""
    return Ask(f"1003 of broker {broker}", 1003, broker, _who(broker, brokerAddress=address))


def beat(broker: int) -> Ask:
    """Send a heartbeat (904)."""
    fields = _who(broker, brokerAddr=f"h:{broker}", epoch=1, maxOffset=broker * 10)
    return Ask(f"904 of broker {broker}", 904, broker, fields)


def elect(broker: int, *, designate: bool = False) -> Ask:
    """Ask for an election (1002)."""
    fields = _who(broker, designateElect=str(designate).lower())
    who = "an operator" if designate else "itself"
    return Ask(f"1002 for broker {broker} by {who}", 1002, 99 if designate else broker, fields)


def alter(ids: tuple[int, ...], set_epoch: int, *, master: int = 1, master_epoch: int = 1) -> Ask:
    """Ask for another SyncStateSet (1001)."""
    body = f'{{"syncStateSet":{list(ids)},"syncStateSetEpoch":{set_epoch}}}'.encode()
    fields = _who(master, masterBrokerId=master, masterEpoch=master_epoch)
    return Ask(f"1001 to {list(ids)} after epoch {set_epoch}", 1001, master, fields, body)


def clean(broker: int) -> Ask:
    """1011, living or not."""
    fields = _who(broker, brokerControllerIdsToClean=broker, isCleanLivingBroker="true")
    return Ask(f"1011 of broker {broker}", 1011, 99, fields)


PAIR = (apply_id(1), apply_id(2), beat(1), beat(2), elect(1), alter((1, 2), 1))
"""Brokers 1 (master, epoch 1) and 2, both in the SyncStateSet of epoch 2."""

EVERYTHING = Scene(
    asks=(apply_id(3), register(2, "new:2"), beat(2), elect(2), elect(2, designate=True),
          alter((1,), 2), alter((1, 2, 3), 2), clean(2), clean(1)),
    prepared=PAIR,
)  # fmt: skip
