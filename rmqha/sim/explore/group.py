"""A group as a tuple of small numbers, and every move that it can make.

Members, messages, links and pasts are kept once each in tables, and a state names them by their
number. A step of a member depends on the member and the move alone (the cores are pure), so each is
computed once, however many states of the group it occurs in.

A state is ``(member of each node, link of each ordered pair, past, used budget of each kind)``.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator
from hashlib import blake2b
from itertools import permutations
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec

from rmqha.base.errors import RmqhaError
from rmqha.controller.raft.messages import Message
from rmqha.controller.raft.node import NEW, VOTER
from rmqha.controller.raft.settings import RaftSettings
from rmqha.sim.explore.bounds import BOUNDED, Bounds
from rmqha.sim.explore.checks import (
    Past,
    check_durable,
    check_logs_match,
    check_state_machine,
    held_count,
)
from rmqha.sim.explore.member import Member, Seen, member_plain, store_id
from rmqha.sim.explore.moves import OFF, Lost, Move, moved, moves_of
from rmqha.sim.explore.standings import check_became
from rmqha.sim.explore.values import plain
from rmqha.sim.explore.walk import State, Violation

Item = TypeVar("Item")

_pack = msgspec.msgpack.Encoder().encode
_BUDGET = {kind: number for number, kind in enumerate(BOUNDED)}


class Table(Generic[Item]):
    """Each value once, by number."""

    def __init__(self, key: Callable[[Item], bytes]) -> None:
        self.items: list[Item] = []
        self._key = key
        self._numbers: dict[bytes, int] = {}

    def number(self, item: Item) -> int:
        """The number of a value, a new one if it is new."""
        key = self._key(item)
        found = self._numbers.get(key)
        if found is None:
            found = self._numbers[key] = len(self.items)
            self.items.append(item)
        return found


class Stepped(NamedTuple):
    """What a move of a member comes to: the member after it, (to, message) sent, what was seen."""

    member: int
    sent: tuple[tuple[int, int], ...] = ()
    seen: tuple[Seen, ...] = ()
    error: RmqhaError | None = None


class Group:
    """The members of one group, the links between them, and what they may still do."""

    def __init__(self, bounds: Bounds) -> None:
        self.bounds = bounds
        self.count = bounds.nodes
        self.names = tuple(f"n{i}" for i in range(self.count))
        self._same = {name: name for name in self.names}
        self.members: Table[Member] = Table(lambda m: _pack(member_plain(m, self._same)))
        self.messages: Table[Message | Lost] = Table(lambda m: _pack(plain(m, self._same)))
        self.links: Table[tuple[int, ...]] = Table(_pack)
        self.pasts: Table[Past] = Table(_pack)
        self._steps: dict[tuple[Any, ...], Stepped] = {}
        self._own: dict[int, tuple[Move, ...]] = {}
        self._held: dict[tuple[int, int], int] = {}
        self._checked: set[tuple[Any, int, int]] = set()
        self._pasts_after: dict[tuple[int, int, tuple[Seen, ...]], int] = {}
        self.links.number(())
        self.pasts.number(Past())
        self._past_at = self.count + self.count * self.count
        settings = RaftSettings(
            trailing_entries=0, entries_per_request_max=bounds.entries_per_request
        )
        kind = NEW if bounds.start == "new" else VOTER
        self.start: State = (
            *(self.members.number(Member(name, self.names, settings, kind)) for name in self.names),
            *([0] * (self.count * self.count)),
            0,
            *([0] * len(BOUNDED)),
        )
        self._renamed: dict[tuple[str, int, int], int] = {}
        self._renamed_numbers: dict[bytes, int] = {}
        orders = permutations(range(self.count)) if bounds.symmetry else [tuple(range(self.count))]
        self._orders = list(orders)
        self._new_names = [self._names_in(order) for order in self._orders]

    def _names_in(self, order: tuple[int, ...]) -> dict[str, str]:
        """New names of nodes and of their stores, when nodes change places."""
        names = {self.names[i]: self.names[j] for i, j in enumerate(order)}
        stores = range(1, self.bounds.wipes + self.bounds.damages + 2)
        ids = {store_id(i, n): store_id(j, n) for i, j in names.items() for n in stores}
        return {**names, **ids}

    # -- looking -----------------------------------------------------------------------------

    def member(self, state: State, node: int) -> Member:
        """A node as it is in a state."""
        return self.members.items[state[node]]

    def link(self, state: State, sender: int, to: int) -> tuple[int, ...]:
        """Messages on their way, the oldest first."""
        return self.links.items[state[self.count + sender * self.count + to]]

    def past(self, state: State) -> Past:
        """What has been seen up to a state."""
        return self.pasts.items[state[self._past_at]]

    def detail_of(self, state: State, move: Move) -> str | None:
        """The kind of the message that a move delivers."""
        if move.kind != "deliver":
            return None
        message = self.messages.items[self.link(state, move.peer, move.node)[move.number]]
        return "PeerLost" if isinstance(message, tuple) else type(message).__name__

    def key(self, state: State) -> bytes:
        """128 bits that tell states apart; equal for states that differ by names, if asked for."""
        if len(self._orders) == 1:
            return blake2b(array("I", state).tobytes(), digest_size=16).digest()
        best = min(self._in_order(state, number) for number in range(len(self._orders)))
        return blake2b(array("I", best).tobytes(), digest_size=16).digest()

    def _in_order(self, state: State, number: int) -> list[int]:
        count, order = self.count, self._orders[number]
        shown = list(state)
        renamed = self._rename
        for node in range(count):
            shown[order[node]] = renamed("m", state[node], number)
            for peer in range(count):
                link = state[count + node * count + peer]
                at = count + order[node] * count + order[peer]
                shown[at] = renamed("l", link, number) if link else 0
        shown[self._past_at] = renamed("p", state[self._past_at], number)
        return shown

    def _rename(self, kind: str, item: int, order: int) -> int:
        found = self._renamed.get((kind, item, order))
        if found is not None:
            return found
        names = self._new_names[order]
        what: Any
        if kind == "m":
            what = member_plain(self.members.items[item], names)
        elif kind == "l":
            what = [_pack(plain(self.messages.items[one], names)) for one in self.links.items[item]]
            if self.bounds.reorder:
                what.sort()
        else:
            past = self.pasts.items[item]
            lost = sorted((names[node], count) for node, count in past.lost)
            what = plain(past._replace(lost=()), names), lost
        packed = _pack([kind, what])
        number = self._renamed_numbers.setdefault(packed, len(self._renamed_numbers) + 1)
        self._renamed[kind, item, order] = number
        return number

    # -- moves -------------------------------------------------------------------------------

    def moves(self, state: State) -> Iterator[Move]:
        """Everything that can happen next, within the budgets."""
        used = state[self._past_at + 1 :]
        left = [most > so_far for most, so_far in zip(self.bounds.budgets, used, strict=True)]
        for node in range(self.count):
            for move in self._own_moves(state[node], node):
                budget = _BUDGET.get(move.kind)
                if budget is None or left[budget]:
                    yield move
            for sender in range(self.count):
                link = state[self.count + sender * self.count + node]
                if link:
                    yield from self._link_moves(link, sender, node, left)
        if left[_BUDGET["reset"]]:
            for node in range(self.count):
                for peer in range(node):
                    yield Move("reset", node, peer)

    def _link_moves(self, link: int, sender: int, node: int, left: list[bool]) -> Iterator[Move]:
        waiting = self.links.items[link]
        for number in range(len(waiting) if self.bounds.reorder else 1):
            yield Move("deliver", node, sender, number)
            if isinstance(self.messages.items[waiting[number]], tuple):
                continue
            if left[_BUDGET["drop"]]:
                yield Move("drop", node, sender, number)
            if left[_BUDGET["duplicate"]]:
                yield Move("duplicate", node, sender, number)

    def _own_moves(self, number: int, node: int) -> tuple[Move, ...]:
        found = self._own.get(number)
        if found is None:
            found = self._own[number] = tuple(
                moves_of(self.members.items[number], node, self.count)
            )
        return found

    # -- what a move comes to ------------------------------------------------------------------

    def after(self, state: State, move: Move) -> State:
        """The state after a move, checked.

        Raises:
            Violation: a property does not hold there.
        """
        try:
            return self._after_move(state, move)
        except RmqhaError as error:
            raise Violation(move, error) from error

    def _after_move(self, state: State, move: Move) -> State:
        shown = list(state)
        budget = _BUDGET.get(move.kind)
        if budget is not None:
            shown[self._past_at + 1 + budget] += 1
        if move.kind in ("deliver", "drop", "duplicate"):
            self._take(shown, move)
            if move.kind == "drop":
                return tuple(shown)
        if move.kind == "reset":
            self._cut(shown, move)
            return tuple(shown)
        node = move.node
        number, kind, detail = self.step_of(state, move)
        step = self._stepped(number, kind, detail)
        if step.error is not None:
            raise step.error
        shown[node] = step.member
        if kind in OFF:
            self._down(shown, node)
        for to, sent in step.sent:
            self._put(shown, node, to, sent)
        if number != step.member:
            self._stood(shown, node, number)
        self._check(shown, node, step.seen)
        return tuple(shown)

    def step_of(self, state: State, move: Move) -> tuple[int, str, int]:
        """A move as ``moved`` takes it: the member, what happens to it, and with what."""
        detail = move.number
        kind = move.kind
        if kind in ("deliver", "duplicate"):
            kind = "deliver"
            detail = self.link(state, move.peer, move.node)[move.number]
        elif kind == "propose":
            detail = state[self._past_at + 1 + _BUDGET["propose"]] + 1
        elif kind == "read":
            detail = len(self.past(state).committed)
        elif kind == "transfer":
            detail = move.peer
        return state[move.node], kind, detail

    def _take(self, shown: list[int], move: Move) -> None:
        if move.kind == "duplicate":
            return
        at = self.count + move.peer * self.count + move.node
        waiting = self.links.items[shown[at]]
        rest = (*waiting[: move.number], *waiting[move.number + 1 :])
        shown[at] = self.links.number(rest)

    def _put(self, shown: list[int], sender: int, to: int, message: int) -> None:
        if self.members.items[shown[to]].core is None:
            return  # nobody listens
        at = self.count + sender * self.count + to
        waiting = (*self.links.items[shown[at]], message)
        shown[at] = self.links.number(tuple(sorted(waiting)) if self.bounds.reorder else waiting)

    def _down(self, shown: list[int], node: int) -> None:
        """What was on its way to a node is gone; what it sent arrives before its end is seen."""
        for peer in range(self.count):
            if peer != node:
                shown[self.count + peer * self.count + node] = 0
                self._put(shown, node, peer, self.messages.number((self.names[node],)))

    def _cut(self, shown: list[int], move: Move) -> None:
        for sender, to in ((move.node, move.peer), (move.peer, move.node)):
            shown[self.count + sender * self.count + to] = 0
            self._put(shown, sender, to, self.messages.number((self.names[sender],)))

    def _stepped(self, number: int, kind: str, detail: int) -> Stepped:
        key = (number, kind, detail)
        found = self._steps.get(key)
        if found is None:
            try:
                member = self.moved(number, kind, detail)
                found = self._kept(member)
            except RmqhaError as error:
                found = Stepped(number, error=error)
            self._steps[key] = found
        return found

    def _kept(self, member: Member) -> Stepped:
        sent = tuple(
            (self.names.index(to), self.messages.number(message)) for to, message in member.sent
        )
        return Stepped(self.members.number(member), sent, tuple(member.seen))

    def moved(self, number: int, kind: str, detail: int) -> Member:
        """A member after one move; its ``told`` says in words what it did.

        Raises:
            RmqhaError: a safety rule of the core, or of a member, does not hold.
        """
        member = self.members.items[number]
        what: int | Message | Lost = detail
        if kind == "deliver":
            what = self.messages.items[detail]
        elif kind == "transfer":
            return moved(member, kind, self.names[detail])
        return moved(member, kind, what)

    # -- properties, each looked at once for what it depends on ------------------------------------

    def _check(self, shown: list[int], node: int, seen: tuple[Seen, ...]) -> None:
        past = shown[self._past_at]
        if seen:
            past = shown[self._past_at] = self._past_after(past, node, seen)
        mine = shown[node]
        self._once(check_state_machine, mine, past, self.pasts.items)
        for peer in range(self.count):
            if peer != node:
                self._once(check_logs_match, mine, shown[peer], self.members.items)
        committed = len(self.pasts.items[past].committed)
        held = [
            self._held_by(one, past) if self._counts(one) else committed
            for one in shown[: self.count]
        ]
        check_durable(held, self.pasts.items[past])

    def _stood(self, shown: list[int], node: int, before: int) -> None:
        """Note what becomes of a node's standing."""
        was, now = (self.members.items[one].disk.hard_state for one in (before, shown[node]))
        if was.standing is now.standing:
            return
        name, past = self.names[node], self.pasts.items[shown[self._past_at]]
        if was.standing.store_id != now.standing.store_id:
            if was.standing.kind == VOTER and was.term > 0:
                past = past.with_lost(name)
            if not any(self._counts(one) for one in shown[: self.count]):
                past = Past()  # Nobody is left who knows anything: all begins anew.
        else:
            held = self._held_by(shown[node], shown[self._past_at])
            check_became(was, now, self.names, held, dict(past.lost).get(name))
            if now.standing.kind == VOTER:
                past = past.with_back(name)
        shown[self._past_at] = self.pasts.number(past)

    def _counts(self, member: int) -> bool:
        return self.members.items[member].disk.hard_state.standing.kind == VOTER

    def _past_after(self, past: int, node: int, seen: tuple[Seen, ...]) -> int:
        key = (past, node, seen)
        found = self._pasts_after.get(key)
        if found is None:
            after = self.pasts.items[past].with_seen(self.names[node], seen)
            found = self._pasts_after[key] = self.pasts.number(after)
        return found

    def _once(
        self, check: Callable[[Member, Any], None], member: int, other: int, items: list[Any]
    ) -> None:
        key = (check, member, other)
        if key not in self._checked:
            check(self.members.items[member], items[other])
            self._checked.add(key)

    def _held_by(self, member: int, past: int) -> int:
        found = self._held.get((member, past))
        if found is None:
            found = held_count(self.members.items[member], self.pasts.items[past])
            self._held[member, past] = found
        return found
