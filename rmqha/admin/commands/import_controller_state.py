"""importControllerState: our controllers take in what others kept, when those are stopped.

Not in the Java tool. Once the old controllers are stopped nobody can change a broker's role or a
SyncStateSet any more, so what the brokers say then is how it stays: each set is compared with its
brokers first (1007, 907), and one that differs is left out. Then it is given to the leader (60013,
a code of our own), which takes in no set that it knows.
"""

from __future__ import annotations

import click

from rmqha.admin.commands.export_controller_state import COLUMNS, last_epoch, set_row
from rmqha.admin.controller_state import ControllerState
from rmqha.admin.report import Report, Table
from rmqha.admin.spec import CommandSpec, controllers_option, file_option, names_option
from rmqha.base.errors import RmqhaError
from rmqha.base.ids import MASTER_ID
from rmqha.client.exchange import Exchange, Refused, Unreachable, ask, ask_leader
from rmqha.remoting import fastjson
from rmqha.remoting.bodies import EpochEntryCache
from rmqha.remoting.broker_set_state import BrokerSetState
from rmqha.remoting.codes import RequestCode, ResponseCode
from rmqha.remoting.command import RemotingCommand
from rmqha.remoting.headers import ext_fields
from rmqha.remoting.values import as_array, as_number, as_object

AGAIN = "Start the old controllers, export again, and stop them"
IMPORTED, CHECKED, LEFT_OUT = "imported", "may be imported", "left out"


class StillRunning(RmqhaError):
    """An old controller answers: it and ours would give one set two masters."""


class NotAsExported(RmqhaError):
    """The brokers of a set are not as the file says, or cannot be asked."""


def run(
    controllers: tuple[str, ...],
    content: bytes | None,
    broker_names: tuple[str, ...],
    unverified: tuple[str, ...],
    check_only: bool,
) -> Exchange[Report]:
    """Compare each set with its brokers, and have the leader take it in.

    Raises:
        click.UsageError: there is no file, or it has no such set.
        RemoteProtocolError: the file cannot be read.
        StillRunning: an old controller is not stopped.
    """
    if content is None:
        raise click.UsageError("give the exported file with -f")
    state = ControllerState.decode(content)
    known = {one.broker_name for one in state.broker_sets}
    for name in (*broker_names, *unverified):
        if name not in known:
            raise click.UsageError(f"the file has no broker set {name}")
    yield from _need_stopped(state.controllers)
    rows: list[tuple[object, ...]] = []
    failures: list[RmqhaError] = []
    results: dict[str, str] = {}
    for one in state.broker_sets:
        if broker_names and one.broker_name not in broker_names:
            continue
        try:
            yield from _compare(one, unverified=one.broker_name in unverified)
            result = CHECKED if check_only else (yield from _take_in(controllers, one))
        except RmqhaError as error:
            failures.append(error)
            result = LEFT_OUT
        results[one.broker_name] = result
        rows.append(set_row(one, result))
    plain = "".join(f"{name}\t{result}\n" for name, result in results.items() if result != LEFT_OUT)
    table = Table("Imported", (*COLUMNS[:-1], "Result"), rows)
    return Report(plain, results, (table,), tuple(failures))


def _need_stopped(addresses: tuple[str, ...]) -> Exchange[None]:
    """Ours may stand at the same addresses: they know a question that Java's do not."""
    for address in addresses:
        try:
            yield from ask(address, RemotingCommand(RequestCode.GET_CONTROLLER_VIEW))
        except Unreachable:
            continue
        except Refused as error:
            if error.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                raise StillRunning(f"the old controller at {address} runs: stop it first") from None


def _take_in(controllers: tuple[str, ...], one: BrokerSetState) -> Exchange[str]:
    fields = ext_fields(brokerName=one.broker_name)
    request = RemotingCommand(RequestCode.IMPORT_BROKER_SET, ext_fields=fields, body=one.encode())
    yield from ask_leader(controllers, request)
    return IMPORTED


def _compare(one: BrokerSetState, *, unverified: bool) -> Exchange[None]:
    """Compare a set with its brokers.

    The master is asked before the others: what its in-sync slaves had then, they must have now.

    Raises:
        NotAsExported: it is another one now, or its master does not answer.
    """
    if one.cluster_name is None:
        raise NotAsExported(f"{one.broker_name}: the file does not know its cluster")
    acknowledged = 0
    if one.master_broker_id is not None:
        try:
            acknowledged = yield from _compare_master(one, one.master_broker_id)
        except Unreachable as error:
            if not unverified:
                raise NotAsExported(
                    f"{one.broker_name}: its master does not answer, so that nobody knows whether"
                    f" the file is right ({error}); --unverified {one.broker_name} takes its word"
                ) from error
    for each in one.replicas:
        try:
            cache = yield from _epochs(one, each.broker_id, each.broker_address)
        except Unreachable:
            continue  # it need not be there, as before
        # Java's file has no epoch in which nothing was written: a lower one says nothing.
        if last_epoch(cache) > one.master_epoch:
            raise NotAsExported(
                f"{one.broker_name}: broker {each.broker_id} knows epoch {last_epoch(cache)}, the"
                f" file {one.master_epoch}: somebody was elected after the export. {AGAIN}"
            )
        if each.broker_id in one.sync_state_set and cache.max_offset < acknowledged:
            raise NotAsExported(
                f"{one.broker_name}: broker {each.broker_id} is in the file's SyncStateSet, and"
                f" its log ends at {cache.max_offset}, before {acknowledged}. {AGAIN}"
            )


def _epochs(one: BrokerSetState, broker_id: int, address: str) -> Exchange[EpochEntryCache]:
    try:
        answer = yield from ask(address, RemotingCommand(RequestCode.GET_BROKER_EPOCH_CACHE))
    except Refused as error:
        raise NotAsExported(f"{one.broker_name}: broker {broker_id} refuses: {error}") from error
    cache = EpochEntryCache.decode(answer.body)
    if (cache.cluster_name, cache.broker_name) != (one.cluster_name, one.broker_name):
        raise NotAsExported(
            f"{one.broker_name}: behind {address} of broker {broker_id} there is one of"
            f" {cache.broker_name} in {cache.cluster_name}"
        )
    return cache


def _compare_master(one: BrokerSetState, master: int) -> Exchange[int]:
    """How far the slaves that are in sync had come when the master was asked.

    Raises:
        NotAsExported: it is no master, or with another number in sync.
    """
    address = one.address(master) or ""
    cache = yield from _epochs(one, master, address)
    request = RemotingCommand(RequestCode.GET_BROKER_HA_STATUS)
    try:
        answer = yield from ask(address, request)
    except Refused as error:
        raise NotAsExported(f"{one.broker_name}: its master refuses: {error}") from error
    status = as_object(fastjson.loads(answer.body))
    if status.get("master") is not True or cache.broker_id != MASTER_ID:
        raise NotAsExported(f"{one.broker_name}: broker {master} is no master now. {AGAIN}")
    in_sync = as_number(status.get("inSyncSlaveNums"))
    if in_sync != len(one.sync_state_set) - 1:
        raise NotAsExported(
            f"{one.broker_name}: its master has {in_sync} slaves in sync, the file"
            f" {len(one.sync_state_set) - 1}. {AGAIN}"
        )
    slaves = map(as_object, as_array(status.get("haConnectionInfo")))
    ends = [as_number(slave.get("slaveAckOffset")) for slave in slaves if slave.get("inSync")]
    return min(ends, default=0)


def _options() -> list[click.Option]:
    return [
        controllers_option(),
        file_option("-f", "--file", "content", help="What exportControllerState wrote."),
        names_option("-b", "--brokerNames", "broker_names", help="Only these broker sets."),
        names_option(
            "-u", "--unverified", "unverified",
            help="Broker sets to take in though their masters do not answer.",
        ),
        click.Option(
            ["--check", "check_only"], is_flag=True, help="Compare only; change nothing."
        ),
    ]  # fmt: skip


SPEC = CommandSpec(
    "importControllerState", "Have controllers take in what others kept.", _options, run
)
