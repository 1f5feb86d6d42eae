"""A broker set: a master and its slaves with the real HA core, in every order of things.

The controller is an abstract one that keeps RIP-44's rules: it elects a member of the SyncStateSet
that lives, which is the whole set then, its epochs grow, and it applies an alteration that names
the epoch of the set that it holds. Time stands still until it is let go on, for all at once.

Checked in every state: what a producer was told is durable on all who may be elected, and so is
what consumers of a master were shown; a slave that follows holds a beginning of its master's log
with the same epochs; no log is cut below its own confirmOffset. Who cannot be elected may cut what
was acknowledged: it fetches it again before it can.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator
from hashlib import blake2b
from typing import Any, NamedTuple

import msgspec

from rmqha.base.errors import RmqhaError
from rmqha.base.ids import MasterEpoch, SyncStateSetEpoch
from rmqha.base.invariants import invariant
from rmqha.sim.explore import broker_set
from rmqha.sim.explore.broker_set import (
    BUDGETS,
    Controller,
    Facts,
    Life,
    Move,
    Scene,
    Seen,
    check_electable,
    check_follows,
    check_shown,
    facts_of,
)
from rmqha.sim.explore.replica import Input, Item, ReplicaDisk, RunningReplica, replica_plain
from rmqha.sim.explore.walk import State, Violation

TICK_MS = 2_000
"""A step of time: longer than a slave may be behind, shorter than a connection may be silent."""

SETTLE_MAX = 5_000
RECORDS_OF_START_MAX = 10

_pack = msgspec.msgpack.Encoder(enc_hook=list).encode


class Stepped(NamedTuple):
    """A life after an input: what it sent, and what a producer heard."""

    life: int
    sent: tuple[tuple[int, int], ...] = ()
    acked: tuple[tuple[int, int], ...] = ()
    error: RmqhaError | None = None


class Pool:
    """Values by number, each once."""

    def __init__(self) -> None:
        self.items: list[Any] = []
        self._numbers: dict[Any, int] = {}

    def number(self, item: Any, key: Any = None) -> int:
        """The number of a value; values of one key are one."""
        found = self._numbers.setdefault(item if key is None else key, len(self.items))
        if found == len(self.items):
            self.items.append(item)
        return found


# Of a pair: whether they are connected (number * 2 + 1), what goes to the master, and to the slave.
OPEN, UP, DOWN = range(3)


class Replicas:
    """A space for ``walk.Walk``.

    A state: lives, three numbers a pair of slave and master, the controller, what was seen, the
    time, and the budgets used.

    Attributes:
        start: where the walk begins; what it takes to come there uses no budget.
        records_before: records have numbers above it; those of the start are the lowest.
    """

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        self.count = scene.replicas
        self.ids = range(1, self.count + 1)
        self.lives, self.items, self.links, self.words = Pool(), Pool(), Pool(), Pool()
        self.facts: list[Facts] = []
        self._steps: dict[tuple[int, Input], Stepped] = {}
        self.records_before = 0
        self.links.number(())
        self._at = self.count + 3 * self.count * self.count
        """Controller, seen, time, and behind them the budgets."""
        lives = [self._life(Life(one, True, ReplicaDisk())) for one in self.ids]
        words = (self.words.number(Controller()), self.words.number(Seen()))
        state = (*lives, *([0] * (self._at - self.count)), *words, 0, *([0] * len(BUDGETS)))
        begun = STARTS[scene.start](self, self._in_step(state))
        self.start = (*begun[: self._at + 3], *([0] * len(BUDGETS)))
        self.records_before = RECORDS_OF_START_MAX

    def _in_step(self, state: State) -> State:
        first = Controller(MasterEpoch(1), SyncStateSetEpoch(1), 1, (1,))
        state = (*state[: self._at], self.words.number(first), *state[self._at + 1 :])
        for kind in ("put", "pass", "pass"):
            state = self.after(self.settled(state), Move(kind, 1))
        state = self.settled(state)
        ids = self.controller(state).ids
        invariant(len(ids) == self.count, "a broker set does not come into step", ids=ids)
        return state

    def diverged(self, state: State) -> State:
        """The second has been elected; it and the first have written a record each."""
        for move in (Move("elect", 2), Move("put", 1), Move("tell", 2)):
            state = self.after(state, move)
        while not self.of(state, 2).may_put:
            state = self.after(state, Move("disk", 2))
        return self.after(state, Move("put", 2))

    def asked(self, state: State) -> State:
        """The last has lost its connection, and its master has asked for a set without it."""
        last = self.count
        for move in (Move("reset", last, 1), Move("up", 1, last)):
            state = self.after(state, move)
        return state

    def settled(self, state: State) -> State:
        """The state when nothing moves any more without time."""
        for _ in range(SETTLE_MAX):
            for move in self._free_moves(state):
                after = self.after(state, move)
                if after != state:
                    state = after
                    break
            else:
                return state
        invariant(False, "a broker set does not settle")
        return state

    # -- looking -------------------------------------------------------------------------------

    def key(self, state: State) -> bytes:
        """128 bits that tell states apart."""
        return blake2b(array("I", state).tobytes(), digest_size=16).digest()

    def detail_of(self, state: State, move: Move) -> str | None:
        """What a delivery brings."""
        if move.kind not in ("up", "down"):
            return None
        item = self._first(state, move)
        return item.kind if item.frame is None else type(item.frame).__name__

    def controller(self, state: State | list[int]) -> Controller:
        """What the controller holds."""
        found: Controller = self.words.items[state[self._at]]
        return found

    def seen(self, state: State | list[int]) -> Seen:
        """What was promised."""
        found: Seen = self.words.items[state[self._at + 1]]
        return found

    def of(self, state: State | list[int], one: int) -> Facts:
        """What is known of a replica."""
        return self.facts[state[one - 1]]

    def _now_ms(self, state: State | list[int]) -> int:
        return state[self._at + 2] * TICK_MS

    def _pair(self, slave: int, master: int) -> int:
        return self.count + 3 * ((slave - 1) * self.count + master - 1)

    def _first(self, state: State | list[int], move: Move) -> Item:
        """The item that a delivery brings."""
        way = UP if move.kind == "up" else DOWN
        pair = (move.number, move.replica) if way == UP else (move.replica, move.number)
        found: Item = self.items.items[self.links.items[state[self._pair(*pair) + way]][0]]
        return found

    # -- moves ---------------------------------------------------------------------------------

    def moves(self, state: State) -> Iterator[Move]:
        """Everything that can happen next, within the budgets."""
        yield from self._free_moves(state)
        used = state[self._at + 3 :]
        budgets = zip(BUDGETS, used, self.scene.budgets, strict=True)
        left = {kind for kind, so_far, most in budgets if so_far < most}
        controller = self.controller(state)
        for one in self.ids:
            facts = self.of(state, one)
            if facts.up:
                for move in self._bounded(facts, one, controller):
                    if move.kind in left:
                        yield move
            for other in self.ids:
                if "reset" in left and state[self._pair(one, other)] % 2:
                    yield Move("reset", one, other)
        if "pass" in left:
            yield Move("pass")

    def _free_moves(self, state: State) -> Iterator[Move]:
        epoch = self.controller(state).epoch
        for one in self.ids:
            facts = self.of(state, one)
            if not facts.up:
                yield Move("restart", one)
                continue
            for kind in facts.moves:
                yield Move(kind, one)
            if facts.told < epoch:
                yield Move("tell", one)
            if facts.due_ms is not None and facts.due_ms <= self._now_ms(state):
                yield Move("due", one)
            if facts.target and self.of(state, facts.target).up:
                yield Move("connect", one)
            for other in self.ids:
                if state[self._pair(other, one) + UP]:
                    yield Move("up", one, other)
                if state[self._pair(one, other) + DOWN]:
                    yield Move("down", one, other)

    def _bounded(self, facts: Facts, one: int, controller: Controller) -> Iterator[Move]:
        if facts.may_put:
            yield Move("put", one)
        if one in controller.ids:
            yield Move("elect", one)
        for kept in range(facts.flushed, len(facts.log) + 1):
            yield Move("crash", one, kept)
        if facts.may_lose:
            yield Move("lost", one)
        if one == controller.master and facts.reigns:
            yield Move("poll", one)

    # -- what a move comes to --------------------------------------------------------------------

    def after(self, state: State, move: Move) -> State:
        """The state after a move, checked.

        Raises:
            Violation: a property does not hold there.
        """
        shown = list(state)
        if move.kind in BUDGETS:
            shown[self._at + 3 + BUDGETS.index(move.kind)] += 1
        try:
            self._happen(shown, move)
            self._check(shown)
        except RmqhaError as error:
            raise Violation(move, error) from error
        return tuple(shown)

    def _happen(self, shown: list[int], move: Move) -> None:  # noqa: C901 - one case a move
        one = move.replica
        match move.kind:
            case "up" | "down":
                self._deliver(shown, move)
            case "put":
                used = shown[self._at + 3 + BUDGETS.index("put")]
                self._give(shown, one, "put", self.records_before + used)
            case "elect":
                epoch, set_epoch, _, _ = self.controller(shown)
                elected = Controller(
                    MasterEpoch(epoch + 1), SyncStateSetEpoch(set_epoch + 1), one, (one,)
                )
                shown[self._at] = self.words.number(elected)
            case "tell":
                epoch, set_epoch, master, ids = self.controller(shown)
                self._give(shown, one, "told", (epoch, master, frozenset(ids), set_epoch))
            case "alter":
                self._alter(shown, move)
            case "poll":
                _, set_epoch, _, ids = self.controller(shown)
                self._give(shown, one, "polled", (frozenset(ids), set_epoch))
            case "connect":
                self._connect(shown, move)
            case "reset":
                self._end(shown, one, move.number, lost=True)
            case "crash":
                self._crash(shown, move)
            case "restart":
                life: Life = self.lives.items[shown[one - 1]]
                began = life._replace(up=True, began_ms=self._now_ms(shown))
                shown[one - 1] = self._life(began)
            case "pass":
                shown[self._at + 2] += 1
            case kind:  # disk, due, answered, lost
                self._give(shown, one, kind)

    def _give(self, shown: list[int], one: int, kind: str, what: Any = None) -> None:
        before = shown[one - 1]
        step = self._stepped(before, Input(kind, self._now_ms(shown), what))
        if step.error is not None:
            raise step.error
        shown[one - 1] = step.life
        for to, number in step.sent:
            self._send(shown, one, to, number)
        seen = self.seen(shown)
        if step.acked:
            acked = tuple(sorted({*seen.acked, *step.acked}))
            shown[self._at + 1] = self.words.number(seen._replace(acked=acked))

    def _stepped(self, number: int, given: Input) -> Stepped:
        found = self._steps.get((number, given))
        if found is None:
            life: Life = self.lives.items[number]
            try:
                replica = life.played()
                replica.take(given)
            except RmqhaError as error:
                found = Stepped(number, error=error)
            else:
                after = self._life(life._replace(inputs=(*life.inputs, given)), replica)
                sent = tuple((to, self.items.number(item)) for to, item in replica.sent)
                found = Stepped(after, sent, tuple(replica.acked))
            self._steps[number, given] = found
        return found

    def _life(self, life: Life, replica: RunningReplica | None = None) -> int:
        if life.up and replica is None:
            replica = life.played()
        what = life.disk if replica is None else replica_plain(replica)
        number = self.lives.number(life, _pack([life.id, what]))
        if number == len(self.facts):
            disk = life.disk
            off = Facts(False, disk.log, len(disk.log), disk.epochs)
            self.facts.append(off if replica is None else facts_of(replica))
        return number

    # -- connections -----------------------------------------------------------------------------

    def _send(self, shown: list[int], sender: int, to: int, number: int) -> None:
        """What belongs to a connection that has ended is dropped; an end ends it."""
        item: Item = self.items.items[number]
        way = DOWN if item.kind == "of master" else UP
        at = self._pair(to, sender) if way == DOWN else self._pair(sender, to)
        ends = item.frame is None and item.kind != "begins"
        if shown[at] // 2 != item.conn:
            return
        if ends:
            shown[at + (UP + DOWN - way)] = 0  # nobody reads any more what comes the other way
        if shown[at] % 2:
            shown[at + way] = self._with(shown[at + way], number)
            shown[at] -= ends

    def _with(self, link: int, number: int) -> int:
        return self.links.number((*self.links.items[link], number))

    def _end(self, shown: list[int], slave: int, master: int, *, lost: bool) -> None:
        """A connection ends without a word; ``lost``: also what is on its way."""
        at = self._pair(slave, master)
        if not shown[at] % 2:
            return
        for way, kind in ((UP, "of slave"), (DOWN, "of master")):
            items = self.links.items[shown[at + way]]
            if lost:
                items = tuple(n for n in items if self.items.items[n].kind == "begins")
            end = self.items.number(Item(kind, shown[at] // 2))
            shown[at + way] = self.links.number((*items, end))
        shown[at] -= 1

    def _connect(self, shown: list[int], move: Move) -> None:
        slave, master = move.replica, self.of(shown, move.replica).target
        at = self._pair(slave, master)
        number = shown[at] // 2 + 1
        shown[at] = number * 2 + 1
        begins = self.items.number(Item("begins", number))
        shown[at + UP] = self._with(shown[at + UP], begins)
        self._give(shown, slave, "connected", number)

    def _deliver(self, shown: list[int], move: Move) -> None:
        item = self._first(shown, move)
        way = UP if move.kind == "up" else DOWN
        pair = (move.number, move.replica) if way == UP else (move.replica, move.number)
        at = self._pair(*pair) + way
        shown[at] = self.links.number(self.links.items[shown[at]][1:])
        self._give(shown, move.replica, "arrived", (move.number, item))

    # -- lives -----------------------------------------------------------------------------------

    def _crash(self, shown: list[int], move: Move) -> None:
        one = move.replica
        facts = self.of(shown, one)
        disk = ReplicaDisk(facts.log[: move.number], facts.confirm, facts.epochs)
        shown[one - 1] = self._life(Life(one, False, disk))
        for other in self.ids:
            for pair, way in (((one, other), DOWN), ((other, one), UP)):
                self._end(shown, *pair, lost=False)
                shown[self._pair(*pair) + way] = 0

    # -- the controller --------------------------------------------------------------------------

    def _alter(self, shown: list[int], move: Move) -> None:
        asked = self.of(shown, move.replica).asked
        assert asked is not None
        decided, answer = broker_set.altered(self.controller(shown), move.replica, asked)
        shown[self._at] = self.words.number(decided)
        self._give(shown, move.replica, "altered", answer)

    # -- properties ------------------------------------------------------------------------------

    def _check(self, shown: list[int]) -> None:
        controller = self.controller(shown)
        for one in self.ids:
            facts = self.of(shown, one)
            if facts.reigns:
                seen = self.seen(shown)
                longest = check_shown(facts.log[: facts.confirm], seen.shown)
                shown[self._at + 1] = self.words.number(seen._replace(shown=longest))
            for master in self.ids:
                reigning = self.of(shown, master)
                connected = shown[self._pair(one, master)] % 2
                if facts.follows and connected and reigning.reigns:
                    check_follows(facts, reigning, one, master)
        for one in controller.ids:
            check_electable(self.of(shown, one), self.seen(shown), one)


STARTS: dict[str, Callable[[Replicas, State], State]] = {
    "in step": lambda _, state: state,
    "diverged": Replicas.diverged,
    "asked": Replicas.asked,
}
"""Where a walk can begin, by name."""
