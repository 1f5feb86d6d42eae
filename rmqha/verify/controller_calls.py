"""What a controller may answer about one broker set, one call at a time: a model to check against.

Written from RIP-44 and docs/PARITY.md, and not from the code: it knows ids, retired ids, the master
and its epoch, the SyncStateSet and its epoch. Who is alive is soft state that no client can see, so an
election may choose any member that the rules allow, a refusal proves nothing, and the controller may
elect or lose a master by itself at any moment. What it pins down: ids are given once, epochs count,
an elected master was in the SyncStateSet, an alter names the epochs it changes, and reads tell the
newest of all that.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from msgspec import Struct

ALONE_MAX = 4
"""So many elections and losses by the controller itself between two calls are thought of at most."""


class View(NamedTuple):
    """What an answer tells; ``master_epoch`` None where it tells of no master."""

    master: int | None
    master_epoch: int | None
    members: tuple[int, ...]
    members_epoch: int


class SetState(NamedTuple):
    """One broker set; the one without ids does not exist."""

    ids: tuple[tuple[int, str], ...] = ()
    retired: tuple[int, ...] = ()
    last_id: int = 0
    master: int | None = None
    master_epoch: int = 0
    members: tuple[int, ...] = ()
    members_epoch: int = 0


class ApplyId(Struct, frozen=True):
    """1013. ``granted`` None: nobody saw the answer."""

    broker_id: int
    check_code: str
    granted: bool | None = None


class NextId(Struct, frozen=True):
    """1012, and the id that it named."""

    next_id: int


class Read(Struct, frozen=True):
    """1004 or 1003 (``broker_id`` given), and what it told; None when the set, or the id, was unknown."""

    view: View | None
    broker_id: int | None = None


class Elect(Struct, frozen=True):
    """1002. ``view`` is the answer; ``kept`` when the old master stays; both unset when unseen."""

    broker_id: int | None
    designate: bool
    view: View | None = None
    kept: bool = False


class Alter(Struct, frozen=True):
    """1001. ``epoch_after`` is the answer's; None when unseen."""

    master: int
    master_epoch: int
    members: tuple[int, ...]
    members_epoch: int
    epoch_after: int | None = None


class Clean(Struct, frozen=True):
    """1011; ``broker_ids`` None removes all. ``done`` False: nobody saw that it was done."""

    broker_ids: tuple[int, ...] | None
    done: bool = True


Call = ApplyId | NextId | Read | Elect | Alter | Clean


def after(state: SetState, call: Call) -> Iterator[SetState]:
    """The states in which a call can leave the set; none when its answer is wrong."""
    match call:
        case ApplyId():
            yield from _apply_id(state, call)
        case NextId(next_id):
            if next_id == state.last_id + 1:
                yield state
        case Read():
            yield from _read(state, call)
        case Elect():
            yield from _elect(state, call)
        case Alter():
            yield from _alter(state, call)
        case Clean(broker_ids):
            if state.ids:
                yield from dict.fromkeys(_cleaned(one, broker_ids) for one in _alone(state))


def _read(state: SetState, call: Read) -> Iterator[SetState]:
    known = bool(state.ids)
    if call.broker_id is not None:
        known = any(one == call.broker_id for one, _ in state.ids)
    if call.view is None and not known:
        yield state
    elif call.view is not None and known:
        yield from told(state, call.view)


def told(state: SetState, view: View) -> Iterator[SetState]:
    """The states of this moment that an answer fits: this one, or one to which it came by itself."""
    for one in (state, *_by_itself(state, view)):
        masters = (one.master, one.master_epoch)
        if view.master_epoch is not None and masters != (view.master, view.master_epoch):
            continue
        if (one.members, one.members_epoch) == (view.members, view.members_epoch):
            yield one


def _by_itself(state: SetState, view: View) -> Iterator[SetState]:
    """Where elections and losses by the controller may have led, as far as a view asks for it."""
    if state.master is not None:
        yield state._replace(master=None, master_epoch=state.master_epoch + 1)
    elections = view.members_epoch - state.members_epoch
    if elections < 1 or len(view.members) != 1 or view.members[0] not in state.members:
        return
    (elected,) = view.members
    # Between two elections of one member its loss; before the first one it may have been, too.
    losses = [elections - 1]
    if state.master is not None:
        losses = [elections] if state.master == elected else [elections - 1, elections]
    for lost in losses:
        chosen = state._replace(
            master=elected,
            master_epoch=state.master_epoch + elections + lost,
            members=(elected,),
            members_epoch=view.members_epoch,
        )
        yield chosen
        yield chosen._replace(master=None, master_epoch=chosen.master_epoch + 1)


def _apply_id(state: SetState, call: ApplyId) -> Iterator[SetState]:
    taken = dict(state.ids).get(call.broker_id)
    free = taken is None and call.broker_id not in state.retired
    free = free and (bool(state.ids) or call.broker_id == 1)
    if call.granted is False:
        if not free and taken != call.check_code:
            yield state
    elif taken is not None and taken == call.check_code:
        yield state
    elif free:
        yield state._replace(
            ids=tuple(sorted((*state.ids, (call.broker_id, call.check_code)))),
            last_id=max(state.last_id, call.broker_id),
        )


def _elect(state: SetState, call: Elect) -> Iterator[SetState]:
    if call.kept:
        if call.view is not None and call.view.master is not None:
            yield from told(state, call.view)
        return
    starts = [state]
    if call.view is not None:
        # What the controller did by itself just before: it lost the old master, for example.
        before = call.view._replace(members_epoch=call.view.members_epoch - 1)
        for elected in state.members:
            starts += _by_itself(state, before._replace(members=(elected,)))
    for one in dict.fromkeys(starts):
        yield from _elected(one, call)


def _elected(state: SetState, call: Elect) -> Iterator[SetState]:
    first = state.master_epoch == 0 or not state.members
    candidates = [one for one, _ in state.ids] if first else list(state.members)
    for elected in candidates:
        if elected == state.master or (call.designate and elected != call.broker_id):
            continue
        epoch = state.master_epoch + 1
        if call.view is not None and first:
            # A set that lived under a controller without its data goes on where its brokers were.
            epoch = max(epoch, call.view.master_epoch or 0)
        chosen = state._replace(
            master=elected,
            master_epoch=epoch,
            members=(elected,),
            members_epoch=state.members_epoch + 1,
        )
        view = View(elected, epoch, chosen.members, chosen.members_epoch)
        if call.view is None or call.view == view:
            yield chosen


def _alter(state: SetState, call: Alter) -> Iterator[SetState]:
    asked = View(call.master, call.master_epoch, (call.master,), call.members_epoch)
    ids = {one for one, _ in state.ids}
    if not set(call.members) <= ids or call.master not in call.members:
        return
    if call.epoch_after not in (None, call.members_epoch + 1):
        return
    for one in dict.fromkeys((state, *_by_itself(state, asked))):
        epochs = (one.master, one.master_epoch, one.members_epoch)
        if epochs == (call.master, call.master_epoch, call.members_epoch):
            yield one._replace(members=call.members, members_epoch=call.members_epoch + 1)


def _alone(state: SetState) -> list[SetState]:
    """Where the controller may have brought a set by itself before somebody cleans it.

    No answer tells of that: an election before it leaves other members, and another epoch.
    """
    found = fresh = [state]
    for _ in range(ALONE_MAX):
        fresh = [later for one in fresh for later in _one_step(one) if later not in found]
        found = [*found, *dict.fromkeys(fresh)]
    return found


def _one_step(state: SetState) -> Iterator[SetState]:
    epoch = state.master_epoch + 1
    if state.master is not None:
        yield state._replace(master=None, master_epoch=epoch)
    for one in state.members:
        if one != state.master:
            yield state._replace(
                master=one,
                master_epoch=epoch,
                members=(one,),
                members_epoch=state.members_epoch + 1,
            )


def _cleaned(state: SetState, broker_ids: tuple[int, ...] | None) -> SetState:
    gone = {one for one, _ in state.ids if broker_ids is None or one in broker_ids}
    left = tuple((one, code) for one, code in state.ids if one not in gone)
    if not left:
        return SetState()
    members = tuple(one for one in state.members if one not in gone)
    lost = state.master in gone
    return state._replace(
        ids=left,
        retired=tuple(sorted({*state.retired, *gone})),
        master=None if lost else state.master,
        master_epoch=state.master_epoch + lost,
        members=members,
        members_epoch=state.members_epoch + (members != state.members),
    )
