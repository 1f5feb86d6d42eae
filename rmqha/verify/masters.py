"""Never two masters in one epoch, epochs never go back, and only in-sync replicas are elected.

Feed it what any node says about a broker set; it raises at the first observation that breaks a
rule. Nodes lag behind each other, so "going back" is judged by observer.

Source: RIP-44.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from rmqha.base.ids import BrokerId
from rmqha.base.invariants import invariant

Position = tuple[int, int]
"""Epoch and offset of a broker's log, as a heartbeat tells them."""


class MastersProperty:
    """The masters of all broker sets over a run."""

    def __init__(self) -> None:
        """Start with nothing observed."""
        self._masters: dict[tuple[str, int], BrokerId] = {}
        self._epochs: dict[tuple[str, str], int] = {}
        self._members: dict[tuple[str, int], tuple[BrokerId, ...]] = {}

    def observe_first(
        self, broker_name: str, master: BrokerId, heard: Mapping[BrokerId, Position]
    ) -> None:
        """A set that has lived under other controllers has got its first master here.

        Args:
            broker_name: the set.
            master: who was elected; no operator had designated it.
            heard: what every living broker of the set had told before, registered or not.

        Raises:
            InvariantBroken: one of them has a newer log.
        """
        newest = max(heard, key=lambda one: (heard[one], one == master), default=master)
        invariant(
            newest == master,
            "a first master had an older log than one that was heard",
            broker_name=broker_name,
            master=master,
            heard=sorted(heard.items()),
        )

    def observe(
        self,
        broker_name: str,
        master_epoch: int,
        master_broker_id: BrokerId | None,
        *,
        sync_state_set_before: Iterable[BrokerId] | None = None,
        unclean: bool = False,
        observer: str = "",
    ) -> None:
        """Take one observation.

        Args:
            broker_name: the set.
            master_epoch: its epoch, from 0.
            master_broker_id: its master in that epoch, None when it has none.
            sync_state_set_before: the SyncStateSet from which the election chose; None when
                unknown, empty at a first election.
            unclean: the election was allowed to leave the SyncStateSet.
            observer: the node, or client, that saw it.

        Raises:
            InvariantBroken: a rule does not hold.
        """
        seen = self._epochs.get((observer, broker_name), 0)
        invariant(
            master_epoch >= seen,
            "a master epoch went back",
            broker_name=broker_name,
            observer=observer,
            before=seen,
            now=master_epoch,
        )
        self._epochs[observer, broker_name] = master_epoch
        if master_broker_id is None:
            return
        first = self._masters.setdefault((broker_name, master_epoch), master_broker_id)
        invariant(
            first == master_broker_id,
            "one epoch has one master",
            broker_name=broker_name,
            master_epoch=master_epoch,
            masters=(first, master_broker_id),
            observer=observer,
        )
        before = None if sync_state_set_before is None else tuple(sync_state_set_before)
        invariant(
            unclean or not before or master_broker_id in before,
            "an elected master was in the SyncStateSet",
            broker_name=broker_name,
            master_epoch=master_epoch,
            master=master_broker_id,
            sync_state_set_before=before,
        )

    def observe_members(
        self, broker_name: str, sync_state_set_epoch: int, sync_state_set: tuple[BrokerId, ...]
    ) -> None:
        """Take one observation of a SyncStateSet.

        Raises:
            InvariantBroken: it had other members in the same epoch.
        """
        key = (broker_name, sync_state_set_epoch)
        first = self._members.setdefault(key, sync_state_set)
        invariant(
            first == sync_state_set,
            "one SyncStateSet epoch has one set",
            broker_name=broker_name,
            sync_state_set_epoch=sync_state_set_epoch,
            sets=(first, sync_state_set),
        )

    def observe_step(
        self,
        broker_name: str,
        before: tuple[int, BrokerId | None],
        after: tuple[int, BrokerId | None],
    ) -> None:
        """Take (master epoch, master) before and after one applied entry.

        Raises:
            InvariantBroken: a new epoch began with the same master.
        """
        invariant(
            after[0] == before[0] or after[1] != before[1],
            "a new master epoch has another master",
            broker_name=broker_name,
            before=before,
            after=after,
        )

    def forget(self, broker_name: str) -> None:
        """An operator removed the whole set: its epochs start anew."""
        self._masters = {key: one for key, one in self._masters.items() if key[0] != broker_name}
        self._epochs = {key: one for key, one in self._epochs.items() if key[1] != broker_name}
        self._members = {key: one for key, one in self._members.items() if key[0] != broker_name}
