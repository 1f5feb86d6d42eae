"""Which replicas hold everything that was acknowledged: one decider of every change.

While the controller has not answered, it may hold the old set or the new one; both count, in the
way that is safe (#5663). A wish is always computed from the whole state and never from an
earlier wish, so two slaves that leave together leave together (#9897).

Source: RIP-44, "SyncStateSet"; AutoSwitchHAService of RocketMQ 5.1.1 to 5.5.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec import Struct

from rmqha.base.ids import NEVER_ALTERED, SyncStateSetEpoch

ASKED_MAX = 8
"""Different sets that may be asked for before the controller's answer settles one."""

RETRY_MS = 1_000
"""Between two requests for the same set."""

JOIN_MS_MAX = 1_000
"""Puts wait so long at most for a slave that is about to join."""

JOIN_PAUSE_MS = 10_000
"""Between two such attempts."""

ASIDE_MS, ASIDE_MS_MAX = 1_000, 60_000
"""How long a slave is left out of wishes that the controller refused for it; doubled each time."""

ONE_BY_ONE_MS = 60_000
"""So long newcomers are asked for one at a time, after several together were refused."""

STRANGERS_MAX = 64
"""Refused ids that are remembered."""

JOIN_LAG_MS_MAX = 1_000
"""A slave joins when it has everything that the log held so long ago."""


class Candidate(Struct):
    """What is known of a connected slave.

    Attributes:
        ack_offset: what it holds; None before its first acknowledgement.
        caught_up_ms: the last moment of which it has everything; None if there was none.
        learner: it never joins.
    """

    slave_id: int
    ack_offset: int | None
    caught_up_ms: int | None
    learner: bool = False


class Bar(Struct, frozen=True):
    """What a slave must have to join.

    Attributes:
        held_offset: nothing that was acknowledged, or that consumers may have seen, is missing.
        epoch_start: it follows this master's epoch.
    """

    held_offset: int
    epoch_start: int


class SyncStateSet:
    """The set as the controller last confirmed it, and what it may hold by now.

    Attributes:
        ids: the confirmed set.
        epoch: its epoch at the controller.
        asked: sets that were asked for and may have been applied, oldest first.
        awaiting: an answer is still possible, so nothing else is asked for.
        joining: slaves that count already, because they are about to be asked for.
    """

    def __init__(self, own_id: int) -> None:
        self.own_id = own_id
        self.ids: frozenset[int] = frozenset()
        self.epoch = NEVER_ALTERED
        self.asked: list[frozenset[int]] = []
        self.awaiting = False
        self._asked_ms = 0
        self._asked_last: frozenset[int] | None = None
        self._asked_before = False
        self.joining: frozenset[int] = frozenset()
        self._joining_until_ms = 0
        self._join_again_ms = 0
        self._caught_up_ms: dict[int, int] = {}
        # By id: left out of wishes until then, and for how long the last time.
        self._aside: dict[int, tuple[int, int]] = {}
        self._one_by_one_until_ms = 0

    @property
    def possible(self) -> tuple[frozenset[int], ...]:
        """Every set that the controller may hold now, or is about to be asked for."""
        # A request whose answer was lost may have been applied: the controller may elect from that
        # set as well as from the one that was confirmed last.
        joining = (self.ids | self.joining,) if self.joining else ()
        return (self.ids, *self.asked, *joining)

    @property
    def union(self) -> frozenset[int]:
        """Every replica that the controller may elect."""
        return self.ids.union(*self.possible)

    @property
    def smallest_size(self) -> int:
        """Members of the smallest set that the controller may hold."""
        if not self.asked and not self.joining:
            return len(self.ids)  # every put asks
        return min(len(ids) for ids in self.possible)

    def confirmed(
        self, now_ms: int, ids: Iterable[int], epoch: SyncStateSetEpoch, settle_ms: int
    ) -> bool:
        """The controller holds ``ids`` in ``epoch``.

        A newer epoch settles every question. The same one settles them once a request that
        never was answered is surely gone.

        Returns:
            Whether anything changed.
        """
        if epoch < self.epoch:
            return False  # the controller has said something newer since
        settled = epoch > self.epoch or now_ms - self._asked_ms >= settle_ms
        if not settled and (self.awaiting or self.asked):
            return False
        before = (self.ids, self.epoch, tuple(self.asked))
        self.ids, self.epoch = frozenset(ids), epoch
        self.asked = []
        self.awaiting = False
        for member in self.ids:
            self._aside.pop(member, None)
        return before != (self.ids, self.epoch, ())

    def refused(self, now_ms: int, *, for_a_member: bool = False) -> None:
        """The controller did not apply the newest request.

        An earlier one for the same set, of which nothing was heard, may be applied all the same.

        Args:
            for_a_member: it does not know one of those who were asked for, or hears it not. One
                such slave must not keep the others in, or out.
        """
        if not self.awaiting:
            return
        self.awaiting = False
        newcomers = self.asked[-1] - self.ids
        if not self._asked_before:
            # Nothing of this set is on its way any more, so it cannot be applied later.
            self.asked = self.asked[:-1]
        if not for_a_member:
            return
        if len(newcomers) > 1:
            self._one_by_one_until_ms = now_ms + ONE_BY_ONE_MS
        for slave_id in newcomers if len(newcomers) == 1 else ():
            _, before_ms = self._aside.pop(slave_id, (0, ASIDE_MS // 2))
            pause_ms = min(2 * before_ms, ASIDE_MS_MAX)
            if len(self._aside) >= STRANGERS_MAX:
                del self._aside[next(iter(self._aside))]
            self._aside[slave_id] = (now_ms + pause_ms, pause_ms)

    def lost(self) -> None:
        """No answer: both sets stay possible, and another request may be made."""
        self.awaiting = False

    def adopt(self, ids: Iterable[int], epoch: SyncStateSetEpoch) -> None:
        """A new reign: the controller's set is the only one, whatever was asked before (#6342)."""
        self.ids, self.epoch = frozenset(ids), epoch
        self.asked = []
        self.awaiting = False
        self.joining = frozenset()

    def wish(
        self, now_ms: int, slaves: Iterable[Candidate], bar: Bar, lag_ms_max: int
    ) -> frozenset[int]:
        """The set that should be: members that are connected and keep up, and who caught up."""
        slaves = tuple(slaves)
        self._forget_strangers(slaves)
        wished, newcomers = {self.own_id}, []
        for slave in slaves:
            if slave.caught_up_ms is not None:
                known = self._caught_up_ms.get(slave.slave_id, slave.caught_up_ms)
                self._caught_up_ms[slave.slave_id] = max(known, slave.caught_up_ms)
            seen = self._caught_up_ms.get(slave.slave_id)
            if slave.learner or seen is None or now_ms - seen > lag_ms_max:
                # RIP-44, "SyncStateSet": who is behind for so long leaves; a learner never joins.
                continue
            if slave.slave_id in self.ids:
                wished.add(slave.slave_id)
            elif _may_join(now_ms, slave, bar) and not self._is_aside(now_ms, slave.slave_id):
                newcomers.append(slave.slave_id)
        alone = now_ms < self._one_by_one_until_ms
        return frozenset(wished.union(sorted(newcomers)[:1] if alone else newcomers))

    def _forget_strangers(self, slaves: Sequence[Candidate]) -> None:
        """Whoever can connect may have any id, one after the other."""
        if len(self._caught_up_ms) <= STRANGERS_MAX:
            return
        known = self.ids.union(slave.slave_id for slave in slaves)
        self._caught_up_ms = {one: at for one, at in self._caught_up_ms.items() if one in known}

    def _is_aside(self, now_ms: int, slave_id: int) -> bool:
        return now_ms < self._aside.get(slave_id, (0, 0))[0]

    def let_join(self, now_ms: int, slaves: Iterable[Candidate], bar: Bar) -> bool:
        """Count a slave that keeps up with a master that is alone, for a moment.

        Alone, a master acknowledges at once everything it has, and under load no slave ever
        holds that. From here on new puts wait for the slave, so it can reach the bar.

        Returns:
            Whether ``possible`` has changed.
        """
        before = self.joining
        if self.joining:
            if now_ms >= self._joining_until_ms:
                self.joining = frozenset()
        elif self.union == {self.own_id} and now_ms >= self._join_again_ms:
            near = [
                slave.slave_id for slave in slaves
                if _keeps_up(now_ms, slave, bar) and not self._is_aside(now_ms, slave.slave_id)
            ]  # fmt: skip
            if near:
                self.joining = frozenset(near[:1])
                self._joining_until_ms = now_ms + JOIN_MS_MAX
                self._join_again_ms = now_ms + JOIN_PAUSE_MS
        return self.joining != before

    def ask(self, now_ms: int, wished: frozenset[int]) -> bool:
        """Ask for a set, unless it is there already or an answer is awaited.

        Returns:
            Whether the controller must be asked now.
        """
        again = wished == self._asked_last and now_ms - self._asked_ms < RETRY_MS
        if self.awaiting or wished == self.ids or again or len(self.asked) >= ASKED_MAX:
            return False  # at the maximum only the controller's own word helps
        self.joining = frozenset()
        self._asked_before = wished in self.asked
        if self._asked_before:
            self.asked.remove(wished)
        self.asked.append(wished)
        self.awaiting = True
        self._asked_last = wished
        self._asked_ms = now_ms
        return True


def _keeps_up(now_ms: int, slave: Candidate, bar: Bar) -> bool:
    """Whether a slave may join as soon as it holds what the bar asks for."""
    ack, seen = slave.ack_offset, slave.caught_up_ms
    if slave.learner or ack is None or seen is None:
        return False
    return ack >= bar.epoch_start and now_ms - seen <= JOIN_LAG_MS_MAX


def _may_join(now_ms: int, slave: Candidate, bar: Bar) -> bool:
    return _keeps_up(now_ms, slave, bar) and (slave.ack_offset or 0) >= bar.held_offset
