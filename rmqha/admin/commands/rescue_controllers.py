"""rescueControllers: what is left of a group that lost its majority for good, for a new group.

Not in the Java tool. Works on the stores of stopped nodes. A node that is left cannot know what the
lost ones had committed without it, and must not go on as if it knew: its store is written into a
file, and a new group of another name, with empty stores, takes that in with ``importControllerState``,
which compares each set with its brokers. The lost nodes are of another group from then on, to which
nobody listens, so that they can neither vote nor lead there (ADR 0036).
"""

from __future__ import annotations

from collections.abc import Iterable

import click
import msgspec

from rmqha.admin.commands.export_controller_state import COLUMNS, set_row
from rmqha.admin.controller_state import FORMAT, ControllerState
from rmqha.admin.report import Report, Table
from rmqha.admin.spec import CommandSpec, Here, controllers_option, text_option
from rmqha.base.errors import ConfigInvalid, RmqhaError
from rmqha.client.exchange import Exchange, Refused, Unreachable, ask
from rmqha.controller.metadata.state import BrokerSet
from rmqha.controller.offline import StoreRead, read_store
from rmqha.remoting.broker_set_state import BrokerSetState, RegisteredReplica
from rmqha.remoting.codes import RequestCode
from rmqha.remoting.command import RemotingCommand

ID_LEAP = 100
"""So far above the next id that is known goes that of the file: the lost nodes may have given out some
behind the last entry here, and no id may come twice."""

NO_MAJORITY = (
    "{} is the newest store that is left: it ends with entry {} of term {}. What was committed"
    " behind that by the lost nodes alone is gone: elections, SyncStateSets, addresses, ids,"
    " registrations. The import compares each set with its brokers, and says which differ."
)
_STORES = ("Store", "Group", "Node", "Standing", "Term", "Last entry", "Its term", "Broker sets")


class NotAccepted(RmqhaError):
    """Nothing is written before somebody has accepted what may be lost."""


class NotLost(RmqhaError):
    """A controller of the group answers."""


def run(
    controllers: tuple[str, ...],
    stores: tuple[str, ...],
    output: str,
    accept_loss: bool,
    forgive_damage: bool,
    here: Here,
) -> Exchange[Report]:
    """Take the newest of the stores for what the group had agreed on.

    Raises:
        NotLost: a node of the group runs.
        ConfigInvalid: the stores are of several groups.
        StoreCorrupted, StoreMismatch, StoreInUse, DiskFailed: a store cannot be read.
    """
    for address in controllers:
        yield from _need_silence(address)
    read = {path: read_store(here.read_folder(path), forgiving=forgive_damage) for path in stores}
    groups = sorted({one.group for one in read.values()})
    if len(groups) > 1:
        raise ConfigInvalid(f"the stores are of several groups: {', '.join(groups)}")
    newest = max(read, key=lambda path: read[path].end)
    told = NO_MAJORITY.format(newest, read[newest].last_index, read[newest].last_term)
    state = _state(read[newest], controllers, here.now_ms)
    if not accept_loss:
        report = _report(read, state, told)
        refused = NotAccepted(f"{told} Nothing was written; --accept-loss writes {output}")
        return Report(report.plain, report.data, report.tables, (refused,))
    return Report("", {}, (), files={output: state.encode()}, then=_written(read, state, told))


def _need_silence(address: str) -> Exchange[None]:
    """Whoever answers still belongs to the group, and may vote in it."""
    try:
        yield from ask(address, RemotingCommand(RequestCode.CONTROLLER_GET_METADATA_INFO))
    except Unreachable:
        return
    except Refused:
        pass
    raise NotLost(f"the controller at {address} runs: stop all of the group first")


def _state(read: StoreRead, controllers: tuple[str, ...], now_ms: int) -> ControllerState:
    sets = tuple(_set(one) for _, one in sorted(read.state.sets.items()))
    remark = f"as of entry {read.last_index} of term {read.last_term}: a newer one may be lost"
    remarks: dict[str, tuple[str, ...]] = {one.broker_name: (remark,) for one in sets}
    return ControllerState(FORMAT, now_ms, controllers, sets, remarks, {}, read.group)


def _set(one: BrokerSet) -> BrokerSetState:
    return BrokerSetState(
        cluster_name=one.cluster_name,
        broker_name=one.broker_name,
        next_broker_id=one.last_issued_id + 1 + ID_LEAP,
        master_broker_id=one.master_broker_id,
        master_epoch=one.master_epoch,
        sync_state_set=one.sync_state_set,
        sync_state_set_epoch=one.sync_state_set_epoch,
        replicas=tuple(
            RegisteredReplica(broker_id, one.replicas[broker_id].address)
            for broker_id in sorted(one.replicas)
        ),
    )


def _written(read: dict[str, StoreRead], state: ControllerState, told: str) -> Exchange[Report]:
    """What is told when the file is there; it asks nobody any more."""
    yield from ()
    return _report(read, state, told)


def _report(read: dict[str, StoreRead], state: ControllerState, told: str) -> Report:
    stores = [
        (path, one.group, one.node, one.standing, one.term, one.last_index, one.last_term,
         len(one.state.sets))
        for path, one in read.items()
    ]  # fmt: skip
    rows: Iterable[tuple[object, ...]] = [set_row(one, "") for one in state.broker_sets]
    tables = (Table("Stores", _STORES, stores), Table("Broker sets", COLUMNS, [*rows]))
    data = {"mayBeLost": told, **msgspec.to_builtins(state)}
    return Report(f"{told}\n", data, tables)


def _options() -> list[click.Option]:
    return [
        controllers_option(),
        click.Option(
            ["-s", "--store", "stores"], multiple=True, required=True,
            help="controllerStorePath/rmqha of a node that is left, or a copy; several times.",
        ),
        text_option("-o", "--output", "output", required=True, help="The file to be written."),
        click.Option(
            ["--accept-loss", "accept_loss"], is_flag=True,
            help="What only the lost nodes held may be gone.",
        ),
        click.Option(
            ["--forgive-damage", "forgive_damage"], is_flag=True,
            help="Cut a damaged last frame of a store, with what it held.",
        ),
    ]  # fmt: skip


SPEC = CommandSpec(
    "rescueControllers", "Write what is left of a group without majority into a file.", _options,
    run, needs_here=True,
)  # fmt: skip
