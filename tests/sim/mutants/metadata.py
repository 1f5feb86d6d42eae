"""Bugs in what the controllers agree on."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from rmqha.controller import machine
from rmqha.controller.metadata import apply, decide_alter, decide_elect
from rmqha.controller.metadata.decision import Context
from rmqha.controller.metadata.state import BrokerSet
from rmqha.remoting.codes import ResponseCode
from tests.sim.mutants.mutant import Mutant


def anyone_alive_becomes_master(patch: pytest.MonkeyPatch) -> None:
    """The SyncStateSet is not asked."""
    honest = decide_elect.elect_master

    def loose(state: Any, context: Context, request: Any) -> Any:
        return honest(state, replace(context, enable_elect_unclean_master=True), request)

    patch.setattr(machine, "elect_master", loose)


def epochs_stand_still(patch: pytest.MonkeyPatch) -> None:
    """An election forgets to open a new epoch."""
    honest = apply._elect_master

    def lazy(broker_set: BrokerSet, event: Any) -> Any:
        before = broker_set.master_epoch
        applied = honest(broker_set, event)
        if before > 0:
            broker_set.master_epoch = before
        return applied

    patch.setattr(apply, "_elect_master", lazy)


def epochs_grow_by_themselves(patch: pytest.MonkeyPatch) -> None:
    """A change of the SyncStateSet opens a master epoch."""
    honest = apply._alter_sync_state_set

    def busy(broker_set: BrokerSet, event: Any, tell: bool) -> Any:
        broker_set.master_epoch += 1
        return honest(broker_set, event, tell)

    patch.setattr(apply, "_alter_sync_state_set", busy)


def sync_state_set_epochs_stand_still(patch: pytest.MonkeyPatch) -> None:
    """An election changes the SyncStateSet in its old epoch."""
    honest = apply._elect_master

    def lazy(broker_set: BrokerSet, event: Any) -> Any:
        before = broker_set.sync_state_set_epoch
        applied = honest(broker_set, event)
        broker_set.sync_state_set_epoch = before
        return applied

    patch.setattr(apply, "_elect_master", lazy)


def state_depends_on_the_node(patch: pytest.MonkeyPatch) -> None:
    """Applying an event reads something that is not in the log."""
    honest = apply._alter_sync_state_set
    counter = iter(range(1 << 40))

    def moody(broker_set: BrokerSet, event: Any, tell: bool) -> Any:
        applied = honest(broker_set, event, tell)
        broker_set.sync_state_set_epoch += next(counter) % 2
        return applied

    patch.setattr(apply, "_alter_sync_state_set", moody)


def ids_are_given_out_again(patch: pytest.MonkeyPatch) -> None:
    """A cleaned id is free for the next broker."""
    honest = apply._forget_members

    def forget(broker_set: BrokerSet, gone: Any, master_cleaned: bool) -> None:
        honest(broker_set, gone, master_cleaned)
        broker_set.retired_ids = ()
        broker_set.last_issued_id = max(broker_set.replicas)

    patch.setattr(apply, "_forget_members", forget)


def answers_are_never_dropped(patch: pytest.MonkeyPatch) -> None:
    """1004 goes on telling what it told first."""
    patch.setattr(BrokerSet, "changed", lambda self: None)


def first_elections_wait_for_nobody(patch: pytest.MonkeyPatch) -> None:
    """A set that has lived elsewhere gets the first that asks, whoever else is heard."""
    patch.setattr(decide_elect, "_awaits_newer", lambda broker_set, context, newest: False)


def cleaning_keeps_the_epoch(patch: pytest.MonkeyPatch) -> None:
    """A cleaned master leaves its epoch to the next one."""
    honest = apply._forget_members

    def keep(broker_set: BrokerSet, gone: Any, master_cleaned: bool) -> None:
        before = broker_set.sync_state_set_epoch
        honest(broker_set, gone, master_cleaned)
        broker_set.sync_state_set_epoch = before

    patch.setattr(apply, "_forget_members", keep)


def cleaned_ids_come_back_with_the_next_clean(patch: pytest.MonkeyPatch) -> None:
    """Only the ids of the newest cleaning stay retired."""
    honest = apply._forget_members

    def forget(broker_set: BrokerSet, gone: Any, master_cleaned: bool) -> None:
        broker_set.retired_ids = ()
        honest(broker_set, gone, master_cleaned)

    patch.setattr(apply, "_forget_members", forget)


def alter_ignores_the_set_epoch(patch: pytest.MonkeyPatch) -> None:
    """A SyncStateSet of before replaces the one of now."""
    honest = decide_alter._check_asker

    def check(broker_set: BrokerSet, ext_fields: Any, known_epoch: int) -> Any:
        return honest(broker_set, ext_fields, broker_set.sync_state_set_epoch)

    patch.setattr(decide_alter, "_check_asker", check)


def alter_ignores_the_master_epoch(patch: pytest.MonkeyPatch) -> None:
    """Who was master before may speak for its reign of now."""
    honest = decide_alter._check_asker

    def check(broker_set: BrokerSet, ext_fields: Any, known_epoch: int) -> Any:
        of_now = {**ext_fields, "masterEpoch": str(broker_set.master_epoch)}
        return honest(broker_set, of_now, known_epoch)

    patch.setattr(decide_alter, "_check_asker", check)


def alter_takes_the_dead_in(patch: pytest.MonkeyPatch) -> None:
    """Nobody asks whether a replica lives that is said to be in sync."""
    honest = decide_alter._check_members

    def check(broker_set: BrokerSet, context: Context, members: Any) -> Any:
        refused = honest(broker_set, context, members)
        dead = refused is not None and refused.code == ResponseCode.CONTROLLER_BROKER_NOT_ALIVE
        return None if dead else refused

    patch.setattr(decide_alter, "_check_members", check)


MUTANTS = (
    Mutant(anyone_alive_becomes_master, "an elected master was in the SyncStateSet", 50),
    Mutant(epochs_stand_still, "a stale master epoch was read", 6),
    Mutant(epochs_grow_by_themselves, "a new master epoch has another master"),
    Mutant(sync_state_set_epochs_stand_still, "one SyncStateSet epoch has one set"),
    Mutant(state_depends_on_the_node, "two nodes applied the same entries and differ"),
    Mutant(ids_are_given_out_again, "a broker id was given out twice"),
    Mutant(answers_are_never_dropped, "no order of the calls explains their answers", 3),
    Mutant(
        first_elections_wait_for_nobody, "a first master had an older log than one that was heard"
    ),
    Mutant(cleaning_keeps_the_epoch, "one SyncStateSet epoch has one set"),
    Mutant(
        cleaned_ids_come_back_with_the_next_clean,
        "no order of the calls explains their answers",
        27,
    ),
    Mutant(alter_ignores_the_set_epoch, "no order of the calls explains their answers", 5),
    Mutant(alter_ignores_the_master_epoch, "no order of the calls explains their answers", 5),
    Mutant(alter_takes_the_dead_in, "a dead replica was taken into a SyncStateSet", 5),
)
