"""When a master holds sends for a planned switch, and who gets them in the end.

States: idle -> waiting (for the target to be near) -> holding (new sends are kept, what was taken
is finished) -> ready (the target holds all) -> passing on (this broker follows; its sends go to
the new master), or back to idle, where the sends that were kept are written here.

Once the target holds all, this broker asks the controllers for the election: whoever asked for the
switch would need longer. (The mqadmin of an older release does so itself.)

Rules:
- Whoever asks need not come back: every state ends by its own deadline, and this broker goes on
  as what it is then. The election is the controllers'; nothing here makes anybody master.
- Sends are passed on only by a broker that has taken up its role as a slave: until then nobody
  knows that another was elected.
- Nothing is held for a target that is not in the SyncStateSet, or far behind.

Source: issues #3747 and #3858; Java switches at once and fails what comes meanwhile.
"""

from __future__ import annotations

from enum import Enum
from typing import TypeAlias

from msgspec import Struct

HOLD_MS_MAX = 2_000
"""Clients wait 3 s for an answer."""

PASS_ON_MS = 65_000
"""Java clients look for a route every 30 s; one question may fail."""

TAKEN_MS = 200
"""Whoever asked is answered when the new master has taken a send, or so long after this broker follows."""

NEAR_BYTES = 1 << 20
"""A target that lacks no more gets it in the time for which sends are held."""


class Phase(Enum):
    """See the module's text."""

    IDLE = "idle"
    WAITING = "waiting"
    HOLDING = "holding"
    READY = "ready"
    PASSING_ON = "passing on"


class Facts(Struct, frozen=True):
    """What the broker sees at a moment.

    Attributes:
        is_master: it serves as one, by a valid lease.
        target_in_sync: the target is in every SyncStateSet that the controllers may hold.
        target_lacks: bytes of this log; None when it is not connected.
        unanswered: sends that are written and wait for replicas or the disk.
    """

    is_master: bool
    target_in_sync: bool
    target_lacks: int | None
    unanswered: int


class Answer(Struct, frozen=True):
    """Tell who asked: ``refusal`` None when all is ready for the election, or it is over."""

    refusal: str | None


class Elect(Struct, frozen=True):
    """Have the controllers elect ``target``; ``refused`` or ``role_taken`` says what came of it."""

    target: int


class TakeBack(Struct, frozen=True):
    """Ask for that election no more."""


class WriteHere(Struct, frozen=True):
    """The sends that are kept, in their order: this broker goes on as master, or refuses them."""


class PassOn(Struct, frozen=True):
    """The sends that are kept, in their order, and new ones until the end: to the new master."""


HandoverEffect: TypeAlias = Answer | Elect | TakeBack | WriteHere | PassOn


class Handover:
    """Of one broker; at most one at a time.

    Attributes:
        phase: where it is.
        target: the id that was asked for last.
    """

    def __init__(self) -> None:
        self.phase = Phase.IDLE
        self.target = 0
        self._until_ms = 0
        self._hold_ms = 0
        self._elects = self._owes = False
        self._taken_by_ms = 0

    @property
    def owes(self) -> bool:
        """An election went well, and whoever asked is yet to hear of it."""
        return self._owes and self.phase is Phase.PASSING_ON

    @property
    def holds(self) -> bool:
        """Sends are not written here: they are kept, or passed on."""
        return self.phase in (Phase.HOLDING, Phase.READY, Phase.PASSING_ON)

    @property
    def deadline_ms(self) -> int | None:
        """When ``ticked`` is due at the latest."""
        return None if self.phase is Phase.IDLE else self._until_ms

    def asked(
        self,
        now_ms: int,
        target: int,
        wait_ms: int,
        hold_ms: int,
        facts: Facts,
        *,
        elects: bool = False,
    ) -> list[HandoverEffect]:
        """Somebody wants to switch to ``target``, and will wait so long for it to come near.

        Args:
            elects: this broker asks for the election; without it whoever asks here does.
        """
        if not facts.is_master:
            return [Answer("this broker is not the master, or its write lease has run out")]
        if self.phase in (Phase.WAITING, Phase.HOLDING, Phase.READY):
            return [Answer(f"a switch to broker {self.target} is under way")]
        self.target, self._hold_ms = target, min(max(hold_ms, 1), HOLD_MS_MAX)
        self.phase, self._until_ms = Phase.WAITING, now_ms + max(wait_ms, 0)
        self._elects = self._owes = elects
        return self.looked(now_ms, facts)

    def looked(self, now_ms: int, facts: Facts) -> list[HandoverEffect]:
        """Time has passed, or replicas have acknowledged; asked for often while not idle."""
        match self.phase:
            case Phase.WAITING:
                return self._waited(now_ms, facts)
            case Phase.HOLDING:
                return self._held(now_ms, facts)
            case Phase.READY if now_ms >= self._until_ms:
                return self._given_up("no election was heard of in time")
            case Phase.PASSING_ON if now_ms >= self._until_ms:
                self.phase = Phase.IDLE
            case Phase.PASSING_ON if now_ms >= self._taken_by_ms:
                return self._paid()
        return []

    def taken(self) -> list[HandoverEffect]:
        """The new master has taken a send."""
        return self._paid() if self.phase is Phase.PASSING_ON else []

    def refused(self, reason: str) -> list[HandoverEffect]:
        """The controllers have surely not elected the target."""
        return self._given_up(reason) if self._elects and self.phase is Phase.READY else []

    def withdrawn(self) -> list[HandoverEffect]:
        """Whoever asked says that nobody was elected."""
        if self.phase is Phase.WAITING:
            self.phase = Phase.IDLE
            return [Answer("withdrawn")]
        if self.phase is Phase.HOLDING:
            return [Answer("withdrawn"), *self._go_on()]
        return self._given_up("withdrawn") if self.phase is Phase.READY else []

    def role_taken(self, now_ms: int, *, is_master: bool) -> list[HandoverEffect]:
        """This broker has taken up a role, by an election of whomever."""
        if self.phase is Phase.IDLE or (self.phase is Phase.PASSING_ON and not is_master):
            return []
        effects: list[HandoverEffect] = []
        between = "another election came between"
        match self.phase:
            case Phase.READY if is_master:
                return self._given_up(between)
            case Phase.WAITING | Phase.HOLDING:
                effects.append(Answer(between))
                self._owes = False
            case Phase.PASSING_ON:
                effects += self._paid()
            case _:
                pass
        if is_master or self.phase is Phase.WAITING:
            return effects + self._go_on()
        self.phase, self._until_ms = Phase.PASSING_ON, now_ms + PASS_ON_MS
        self._taken_by_ms = now_ms + TAKEN_MS
        return [*effects, PassOn()]

    def _waited(self, now_ms: int, facts: Facts) -> list[HandoverEffect]:
        lacks = facts.target_lacks
        if facts.is_master and facts.target_in_sync and lacks is not None and lacks <= NEAR_BYTES:
            self.phase, self._until_ms = Phase.HOLDING, now_ms + self._hold_ms
            return self._held(now_ms, facts)
        if facts.is_master and now_ms < self._until_ms:
            return []
        self.phase = Phase.IDLE
        return [Answer(self._why_not(facts))]

    def _held(self, now_ms: int, facts: Facts) -> list[HandoverEffect]:
        caught_up = facts.target_in_sync and facts.target_lacks == 0 and not facts.unanswered
        if caught_up and facts.is_master:
            self.phase = Phase.READY
            return [Elect(self.target) if self._elects else Answer(None)]
        if facts.target_in_sync and facts.target_lacks is not None and now_ms < self._until_ms:
            return []
        return [Answer(self._why_not(facts)), *self._go_on()]

    def _why_not(self, facts: Facts) -> str:
        if not facts.is_master:
            return "this broker is no longer the master"
        if facts.target_lacks is None:
            return f"broker {self.target} is not connected to its master"
        if not facts.target_in_sync:
            return f"broker {self.target} is not in the SyncStateSet"
        if facts.target_lacks == 0:
            return f"{facts.unanswered} sends are not acknowledged by the others"
        return f"broker {self.target} lacks {facts.target_lacks} bytes"

    def _given_up(self, reason: str) -> list[HandoverEffect]:
        """Of one that was ready: whoever asked has had an answer, unless this broker elects."""
        on = self._go_on()
        return [TakeBack(), Answer(reason), *on] if self._elects else on

    def _paid(self) -> list[HandoverEffect]:
        owed, self._owes = self._owes, False
        return [Answer(None)] if owed else []

    def _go_on(self) -> list[HandoverEffect]:
        held, self.phase = self.holds, Phase.IDLE
        return [WriteHere()] if held else []
