"""A master's decisions about its replicas: who is in, how far consumers read, which puts are done.

The three hang together: a slave that is asked for counts at once, and one that joins holds all
that was acknowledged before. So they are taken together, in one order, after every change.

Source: RIP-44, "ConfirmOffset" and "A solution without losing messages".
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from rmqha.base.ids import SyncStateSetEpoch
from rmqha.ha.confirm_offset import compute_confirm_offset
from rmqha.ha.events import AlterSyncStateSet, PutCompleted, PutStatus
from rmqha.ha.master_session import MasterSession
from rmqha.ha.put_waits import PutWaits, acked_level
from rmqha.ha.state import HaState
from rmqha.ha.sync_state_set import Bar, Candidate, SyncStateSet

CHECK_PERIOD_MS_MAX = 1_000
"""The set is looked at this often at least, whatever Java's longer period says."""


class Membership:
    """Of one master; kept over role changes, since put waits and sets outlive sessions.

    Args:
        ha: the replica.
        sessions: the connections of its slaves; owned by the core.
    """

    def __init__(self, ha: HaState, sessions: Mapping[int, MasterSession]) -> None:
        self._ha = ha
        self._sessions = sessions
        self.sync_state_set = SyncStateSet(ha.own_id)
        self.waits = PutWaits()
        self.lease_until_ms: int | None = None
        self.reign_number = 0
        self._held = 0

    def acks(self) -> dict[int, int]:
        """What each slave that may be in the set holds, by its id: one number a slave."""
        return {
            session.slave_id: session.ack_offset
            for session in self._sessions.values()
            if session.slave_id is not None
            and session.ack_offset is not None
            and not session.learner
        }

    @property
    def held_by_all(self) -> int:
        """Bytes of the log that each replica has which may be elected."""
        others = self.sync_state_set.union - {self._ha.own_id}
        acks = self.acks()
        return min((acks.get(member, 0) for member in others), default=self._ha.log.max_offset)

    def confirmed(self, now_ms: int, ids: frozenset[int], epoch: SyncStateSetEpoch) -> None:
        """The controller's word."""
        settle_ms = self._ha.settings.alter_settle_ms
        if self.sync_state_set.confirmed(now_ms, ids, epoch, settle_ms):
            self._ha.note("sync_state_set_confirmed", ids=sorted(ids), epoch=epoch)

    def changed(self, now_ms: int) -> None:
        """An acknowledgement, a connection or the set has changed: decide everything anew.

        Members come first: a slave that is asked for now counts in what follows.
        """
        ha, members = self._ha, self.sync_state_set
        slaves = [
            Candidate(one.slave_id, one.ack_offset, one.caught_up_ms, one.learner)
            for one in self._sessions.values()
            if one.slave_id is not None
        ]
        bar = self._bar(now_ms)
        lag_ms_max = ha.settings.ha_max_time_slave_not_catchup_ms
        wished = members.wish(now_ms, slaves, bar, lag_ms_max)
        if ha.settings.all_ack_in_sync_state_set and len(wished) == 1:
            members.let_join(now_ms, slaves, bar)
        # RIP-44, "AlterSyncStateSet": the master reports, the controller decides. From here on both
        # sets count, the old and the new one, until an answer settles which it is.
        if members.ask(now_ms, wished):
            ha.emit(AlterSyncStateSet(wished, members.epoch))
            ha.note("sync_state_set_asked", ids=sorted(wished), before=sorted(members.ids))
        self.move_confirm()
        self._complete_puts(now_ms)

    def _bar(self, now_ms: int) -> Bar:
        """A slave that joins holds all that was acknowledged, or that consumers may have seen."""
        ha = self._ha
        last = ha.epochs.last
        held = 0
        if ha.settings.all_ack_in_sync_state_set:
            held = ha.log.confirm_offset
        elif ha.settings.in_sync_replicas > 1:
            # What some replicas have acknowledged stays acknowledged when they leave.
            held = self._held = max(self._held, self._level(now_ms))
        return Bar(held, last.start if last is not None else 0)

    def move_confirm(self) -> None:
        """Recompute where confirmOffset stands.

        With SYNC_FLUSH a power cut must not take what was confirmed. The others' disks have what they
        acknowledge; but this master may be elected once more, alone in the set, and its own counts.
        """
        ha, log = self._ha, self._ha.log
        durable = log.flushed_offset if ha.settings.ack_flushed_data else log.max_offset
        offset = compute_confirm_offset(
            max_offset=max(log.confirm_offset, min(log.max_offset, durable)),
            confirm_offset=ha.log.confirm_offset,
            own_id=ha.own_id,
            union=self.sync_state_set.union,
            acks=self.acks(),
            all_ack=ha.settings.all_ack_in_sync_state_set,
        )
        ha.set_confirm(offset)

    # -- puts ------------------------------------------------------------------------------------

    def is_leased(self, now_ms: int) -> bool:
        """Whether the controllers surely have elected nobody else; see ``LeaseGranted``."""
        return self.lease_until_ms is None or now_ms < self.lease_until_ms

    def check_put(self, *, wait_store_ok: bool, now_ms: int | None) -> PutStatus:
        """What a put would meet before anything is written.

        The smallest set that the controller may hold counts for ``minInSyncReplicas``; Java
        takes the largest. Without the lease all are needed who may be elected: a put that one
        of them does not acknowledge would be written to time out.
        """
        if now_ms is not None and not self.is_leased(now_ms) and not self._all_near(now_ms):
            return PutStatus.WRITE_LEASE_EXPIRED
        settings = self._ha.settings
        if wait_store_ok and not settings.duplication_enable:
            if self.sync_state_set.smallest_size < settings.min_in_sync_replicas:
                return PutStatus.IN_SYNC_REPLICAS_NOT_ENOUGH
            if self.waits.is_full:
                return PutStatus.OS_PAGE_CACHE_BUSY
        return PutStatus.PUT_OK

    def _all_near(self, now_ms: int) -> bool:
        """Whether everybody who may be elected is heard and keeps up, as far as can be seen."""
        settings = self._ha.settings
        patience_ms = settings.slave_timeout_ms + CHECK_PERIOD_MS_MAX
        silence_ms = settings.slave_timeout_ms + settings.ha_send_heartbeat_interval_ms
        near = {
            session.slave_id
            for session in self._sessions.values()
            if session.caught_up_ms is not None
            and now_ms - session.caught_up_ms <= patience_ms
            and now_ms - session.last_read_ms <= silence_ms
        }
        return self.sync_state_set.union <= near | {self._ha.own_id}

    def wait(self, now_ms: int, token: int, end_offset: int, *, reigning: bool) -> None:
        """Complete a put now if it is, else when acknowledgements or its deadline come.

        Behind a put that waits there is nothing to look at: all of them wait for one number.
        """
        settings, first = self._ha.settings, self.waits.first_offset
        is_first = first is None or end_offset < first
        if not reigning or self.waits.is_full:
            self._end(token, PutStatus.FLUSH_SLAVE_TIMEOUT)
        elif settings.duplication_enable or (is_first and end_offset <= self._level(now_ms)):
            self._end(token, PutStatus.PUT_OK)
        else:
            self.waits.add(token, end_offset, now_ms + settings.slave_timeout_ms)

    def give_up_puts(self) -> None:
        """This replica reigns no more; what the next master keeps is not known."""
        self.reign_number += 1
        for token in self.waits.take_all():
            self._end(token, PutStatus.FLUSH_SLAVE_TIMEOUT)
        self._held = 0

    def expire_puts(self, now_ms: int) -> None:
        """End the puts whose own deadline has come; no other put waits for them."""
        for token in self.waits.expired(now_ms):
            self._end(token, PutStatus.FLUSH_SLAVE_TIMEOUT)

    def _complete_puts(self, now_ms: int) -> None:
        if len(self.waits):
            for token in self.waits.reached(self._level(now_ms)):
                self._end(token, PutStatus.PUT_OK)

    def _end(self, token: int, status: PutStatus) -> None:
        self._ha.emit(PutCompleted(token, status))

    def _level(self, now_ms: int) -> int:
        settings = self._ha.settings
        if not settings.all_ack_in_sync_state_set and not self.is_leased(now_ms):
            # Another master may have been elected: only what it holds whoever it is, is safe.
            settings = replace(settings, all_ack_in_sync_state_set=True)
        return acked_level(
            settings=settings,
            own_id=self._ha.own_id,
            max_offset=self._ha.log.max_offset,
            possible=self.sync_state_set.possible,
            acks=self.acks(),
        )
