"""Until when a master may write by itself: as long as no controller can have given it up.

A controller elects another master when it has not heard this one for the timeout that the
broker's own heartbeats name. So an answered heartbeat is a promise: from the moment when it was
*sent*, that controller waits for the timeout. The lease is that timeout less a margin for clocks
of different rates, counted from the oldest promise that matters: of a majority of the
controllers, and of the one that leads. A closed connection takes a promise back at once, as it
does on the controller's side.

A heartbeat's answer does not say who is master. So a lease begins, or begins again, only when the
leader has said so in answer to a question sent after such promises, and put in order with its
elections; from then on they need only follow each other without a gap, for nobody can be elected
in between.

Who the controllers are is said twice: by the broker's configuration, and by the leader. A majority is
needed of both, for neither is always right: the one may name nodes that are no members yet or no more,
which no election asks, the other may be a few seconds old.

``lease_table.py`` has the states, the bound and the invariants; tests hold it against this core.

Without the lease a master may still write what every replica acknowledges that could be elected
(``ha/membership.py``). See ADR 0016 for the bound and its limits.

Source: #7017 and ADR 0016. Java has nothing like it.
"""

from __future__ import annotations

from typing import NamedTuple, assert_never

from msgspec import Struct

from rmqha.base.machine import Note, Ticked

NEVER = -1
UNSAID = -1


class Reigned(Struct, frozen=True):
    """This broker is the set's master from here on, or still."""


class Deposed(Struct, frozen=True):
    """It is not."""


class Vouched(Struct, frozen=True):
    """A controller answered a heartbeat with success.

    Attributes:
        sent_ms: when the heartbeat was sent, by the broker's clock; never when the answer came.
        promise_ms: for how long the controller waits, as it said; ``UNSAID`` for the broker's own
            timeout. 0 is no promise.
    """

    controller: str
    sent_ms: int
    promise_ms: int = UNSAID


class Confirmed(Struct, frozen=True):
    """The leading controller said that this broker is master, in its newest known epoch.

    Attributes:
        number: of the ``Confirm`` upon which it was asked.
    """

    number: int


class Left(Struct, frozen=True):
    """The connection to a controller has ended: it may miss this broker from now on."""

    controller: str


class Led(Struct, frozen=True):
    """A controller leads, as far as this broker knows."""

    controller: str


class Named(Struct, frozen=True):
    """Who the controllers are from here on.

    Attributes:
        configured: by ``controllerAddr``.
        members: by the word of who leads them; empty while nobody has said it.
    """

    configured: tuple[str, ...]
    members: tuple[str, ...] = ()


class Fenced(Struct, frozen=True):
    """Somebody may have another elected, whatever was promised (``stall_watch.py``)."""


class Unfenced(Struct, frozen=True):
    """Nobody does any more: the lease may begin again, as after a gap."""


LeaseEvent = (
    Reigned | Deposed | Vouched | Confirmed | Left | Led | Named | Fenced | Unfenced | Ticked
)


class Grant(NamedTuple):
    """Replication may complete puts by its own settings until then; 0 for not at all."""

    until_ms: int


class Confirm(NamedTuple):
    """Have the leading controller say who is master (1002), unless a question is under way.

    Attributes:
        number: the same for as long as an answer to an earlier one is as good.
    """

    number: int


LeaseEffect = Grant | Confirm | Note


class WriteLease:
    """One broker's lease.

    Args:
        controllers: the addresses that heartbeats go to; none while they are looked up.
        lease_ms: how long an answered heartbeat counts, where the controller does not say that it
            waits for less than ``timeout_ms``.
        timeout_ms: what heartbeats name, of which the lease is the part without the margin; None
            for a lease without a margin.

    Attributes:
        until_ms: the first moment without the lease; 0 when there is none.
        is_held: as it was last told; for logs and figures, never for a decision.
        losses: how often it was lost by a master.
    """

    def __init__(
        self, controllers: tuple[str, ...], lease_ms: int, timeout_ms: int | None = None
    ) -> None:
        self.lease_ms = lease_ms
        self._timeout_ms = lease_ms if timeout_ms is None else timeout_ms
        self.until_ms = 0
        self.is_held = False
        self.losses = 0
        self._groups: tuple[tuple[str, ...], ...] = (controllers,) if controllers else ()
        self._all = frozenset(controllers)
        self._vouched: dict[str, int] = {}
        self._leader = ""
        self._reigns = False
        self._fenced = False
        self._proved = False
        self._candidate_until_ms = 0
        self._candidates = 0

    @property
    def next_deadline_ms(self) -> int | None:
        """When to send ``Ticked`` next."""
        return self.until_ms if self.is_held else None

    def step(self, now_ms: int, event: LeaseEvent) -> list[LeaseEffect]:
        """Take one event; a grant comes before the note about it."""
        if now_ms >= self.until_ms:
            # A promise that comes now leaves a gap, in which another may have been elected.
            self._proved = False
        match event:
            case Reigned():
                self._reigns = True
            case Deposed():
                # Promises were made to a master; one that reigns again needs newer ones.
                self._reigns = False
                self._vouched.clear()
            case Vouched(controller, sent_ms, promise_ms):
                # An old promise may be answered after a newer one.
                known = self._vouched.get(controller, NEVER)
                short_ms = self._shortfall_ms(promise_ms)
                self._vouched[controller] = max(known, min(sent_ms, now_ms) - short_ms)
            case Left(controller):
                self._vouched.pop(controller, None)
            case Led() | Named():
                self._learn(event)
            case Confirmed(number):
                # An answer to an older question may speak of a time before the gap.
                known = number == self._candidates and now_ms < self._candidate_until_ms
                self._proved = self._proved or known
            case Fenced() | Unfenced():
                self._fenced = isinstance(event, Fenced)
                self._proved = self._proved and not self._fenced
            case Ticked():
                pass
            case _:
                assert_never(event)
        return self._decide(now_ms)

    def _decide(self, now_ms: int) -> list[LeaseEffect]:
        made: list[LeaseEffect] = []
        promised_ms = self._promised_ms() if self._reigns and not self._fenced else 0
        self._look_for_proof(now_ms, promised_ms)
        if self._candidate_until_ms:
            made.append(Confirm(self._candidates))
        until_ms = promised_ms if self._proved else 0
        if until_ms != self.until_ms:
            self.until_ms = until_ms
            made.append(Grant(until_ms))
        held = now_ms < until_ms
        if held and not self.is_held:
            made.append(Note("write_lease_held", "info", {"for_ms": until_ms - now_ms}))
        elif self.is_held and not held and self._reigns:
            self.losses += 1
            silent = [one for one in sorted(self._all) if not self._counts(one, now_ms)]
            made.append(Note("write_lease_lost", "warning", {"silent": silent}))
        self.is_held = held
        return made

    def _learn(self, event: Led | Named) -> None:
        """Count others from here on.

        A proof stands if the promises of those who count now hold as well: until this moment nobody
        was elected for the promises of before, and from it on nobody can be for theirs. A question
        that is under way may be answered for a time before they were given.

        Where nobody has said who the members are, one controller may be a majority of what the
        configuration names, and go on promising alone: the leader has to speak first.
        """
        if isinstance(event, Led):
            self._leader = event.controller
            return
        self._groups = tuple(group for group in (event.configured, event.members) if group)
        self._all = frozenset(event.configured + event.members)
        self._vouched = {one: at for one, at in self._vouched.items() if one in self._all}
        self._candidate_until_ms = 0
        self._proved = self._proved and bool(event.members)

    def _look_for_proof(self, now_ms: int, promised_ms: int) -> None:
        """Keep the oldest promise that still holds until a question sent after it is answered."""
        known_ms = self._candidate_until_ms
        if self._proved or now_ms >= promised_ms:
            self._candidate_until_ms = 0
            self._proved = self._proved and now_ms < promised_ms
        elif not known_ms or known_ms > promised_ms or now_ms >= known_ms:
            self._candidate_until_ms = promised_ms
            self._candidates += 1

    def _shortfall_ms(self, promise_ms: int) -> int:
        """By how much a promise is shorter than the lease, with the lease's margin."""
        if promise_ms == UNSAID:
            return 0
        return max(0, self.lease_ms - promise_ms * self.lease_ms // self._timeout_ms)

    def _counts(self, controller: str, now_ms: int) -> bool:
        sent_ms = self._vouched.get(controller, NEVER)
        return sent_ms != NEVER and now_ms < sent_ms + self.lease_ms

    def _promised_ms(self) -> int:
        """Until when the controllers wait; 0 when too few have promised anything."""
        oldest_ms = min((self._oldest_ms(group) for group in self._groups), default=NEVER)
        if self._leader in self._all:
            # By other names than the configured ones the leader is one of the majority, or not.
            oldest_ms = min(oldest_ms, self._vouched.get(self._leader, NEVER))
        return 0 if oldest_ms == NEVER else oldest_ms + self.lease_ms

    def _oldest_ms(self, group: tuple[str, ...]) -> int:
        """The oldest promise of the newest that are a majority."""
        sent = sorted((self._vouched.get(one, NEVER) for one in group), reverse=True)
        return sent[len(group) // 2]
