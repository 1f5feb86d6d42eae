"""Opening a node's store: the log and the snapshot together, and what becomes of a damaged one.

A store of which something durable is missing is set aside (``*.damaged``), and the node starts
with an empty one, as ``recovering``: it does not vote until a leader has caught it up
(``raft/standing.py``, ADR 0018). While that is done a mark says so: half of a log may look whole, and
its node would vote though it has forgotten what the other half held. A group of one has nobody who could, and refuses to start: by what
can still be read of the log, for the file names those who founded the group.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Generator

from msgspec import Struct

from rmqha.base.errors import StoreCorrupted, StoreMismatch
from rmqha.base.ids import NO_TERM
from rmqha.controller.aio.snapshots import SUFFIX, Snapshots
from rmqha.controller.aio.wal import Wal, WalContent, is_segment, read_durable
from rmqha.controller.raft import wal_layout as layout
from rmqha.controller.raft.events import HardState, SnapshotMeta, Standing
from rmqha.controller.raft.members import Members, decode_members, from_snapshot, is_members
from rmqha.controller.raft.node import NEW, RECOVERING, VOTER
from rmqha.runtime.aio.turns import in_turns
from rmqha.runtime.ports import Disk

SET_ASIDE = ".damaged"
TEMPORARY = ".tmp"


class Opened(Struct, frozen=True):
    """A store that is ready.

    Attributes:
        damage: why what was there has been set aside; empty when all was well.
    """

    snapshot: SnapshotMeta
    content: WalContent
    damage: str = ""


async def open_store(
    disk: Disk,
    directory: str,
    wal: Wal,
    snapshots: Snapshots,
    *,
    members: tuple[str, ...],
    node_id: str,
    new_store_id: str,
    check_snapshot: Callable[[bytes], Generator[None, None, None]],
) -> Opened:
    """Open log and snapshot.

    Args:
        members: the group, by the configuration.
        node_id: this node.
        new_store_id: for a store that is made now.
        check_snapshot: raises StoreCorrupted or StoreMismatch for a state that cannot be loaded.

    Raises:
        StoreCorrupted: damaged, and there are no other members; nothing was changed.
        StoreMismatch: another group's or node's store, or of other members.
        DiskFailed: it cannot be written.
    """
    await disk.make_dirs(directory)
    for name in await disk.list_dir(directory):
        if name.endswith(TEMPORARY):
            await disk.remove(os.path.join(directory, name))
    begun = await _begun_aside(disk, directory)
    if begun is not None:
        return await _start_anew(disk, directory, wal, snapshots, new_store_id, begun)
    try:
        meta = await snapshots.open()
        if meta.last_index > 0:
            await in_turns(check_snapshot(snapshots.data))
        content = await wal.open(
            meta,
            fresh=Standing(NEW, new_store_id),
            unknown=Standing(VOTER, "", tuple((one, "") for one in sorted(members))),
        )
    except StoreCorrupted as error:
        if await _is_alone(wal, snapshots, members, node_id):
            raise
        return await _start_anew(disk, directory, wal, snapshots, new_store_id, str(error))
    named = from_snapshot(snapshots.data)[0] is not None if meta.last_index else False
    if not named and not any(is_members(entry.data) for entry in content.entries):
        _check_members(content.hard_state.standing, members, node_id)
    return Opened(meta, content)


async def _is_alone(wal: Wal, snapshots: Snapshots, members: tuple[str, ...], node_id: str) -> bool:
    """Whether a damaged store is that of a group of one, as far as can be told."""
    group: Members | None = None
    try:
        if snapshots.meta.last_index > 0:
            group = from_snapshot(snapshots.data)[0]
        for entry in await wal.readable():
            if entry.log_index > snapshots.meta.last_index and is_members(entry.data):
                group = decode_members(entry.data)
    except StoreCorrupted:
        pass  # what was read before it counts
    return (members if group is None else group.ids) == (node_id,)


def _check_members(standing: Standing, members: tuple[str, ...], node_id: str) -> None:
    """A mistake in a file must not make a second group of an old store.

    Not where the log says who the members are, and not for a node that joins a group that others
    founded.
    """
    founders = sorted(node for node, _ in standing.founders)
    if node_id in founders and founders != sorted(members):
        raise StoreMismatch(
            f"the store belongs to the group of {', '.join(founders)}, but the configuration names"
            f" {', '.join(sorted(members))}"
        )


async def _begun_aside(disk: Disk, directory: str) -> str | None:
    """Why a store is being set aside, if an earlier start has begun with that and not ended."""
    if layout.ASIDE_MARK not in await disk.list_dir(directory):
        return None
    try:
        said = await read_durable(disk, os.path.join(directory, layout.ASIDE_MARK))
    except StoreCorrupted as error:
        return str(error)  # that it is there says enough
    return said.decode(errors="replace")


async def _start_anew(
    disk: Disk, directory: str, wal: Wal, snapshots: Snapshots, store_id: str, damage: str
) -> Opened:
    mark = os.path.join(directory, layout.ASIDE_MARK)
    names = await disk.list_dir(directory)
    if layout.ASIDE_MARK not in names:
        for name in names:
            if name.endswith(SET_ASIDE):
                await disk.remove(os.path.join(directory, name))
        await disk.write_atomic(mark, damage.encode())
    for name in names:
        if is_segment(name) or name.endswith(SUFFIX):
            path = os.path.join(directory, name)
            if layout.ASIDE_MARK in names and name + SET_ASIDE in names:
                await disk.remove(
                    path
                )  # begun anew by a start that died, behind what it had set aside
            else:
                await disk.rename(path, path + SET_ASIDE)
    snapshots.forget()
    hard_state = HardState(standing=Standing(RECOVERING, store_id))
    await wal.start_anew(hard_state)
    await disk.remove(mark)
    return Opened(SnapshotMeta(), WalContent(hard_state, 0, NO_TERM, [], False), damage)
