"""importControllerState: our controllers take in what others kept, when those are stopped.

Not in the Java tool. Once the old controllers are stopped nobody can change a broker's role or a
SyncStateSet any more, so what the brokers say then is how it stays: each set is compared with its
brokers first (1007, 907), and none is taken in while one differs, or is one that the leader would refuse:
its own rule is asked here. Then they are given to the leader (60013, a code of our own), which takes in
no set that it knows.
"""

from __future__ import annotations

import click

from rmqha.admin.commands.export_controller_state import COLUMNS, set_row
from rmqha.admin.controller_state import ControllerState
from rmqha.admin.replicas_info import replicas_infos
from rmqha.admin.report import Report, Table
from rmqha.admin.set_comparison import compare, from_brokers
from rmqha.admin.set_takeable import need_takeable
from rmqha.admin.spec import CommandSpec, controllers_option, file_option, names_option
from rmqha.base.errors import RmqhaError
from rmqha.client.exchange import Exchange, Refused, Unreachable, ask, ask_any, ask_leader
from rmqha.remoting import fastjson
from rmqha.remoting.bodies import ReplicasInfo
from rmqha.remoting.broker_set_state import BrokerSetState
from rmqha.remoting.codes import RequestCode, ResponseCode
from rmqha.remoting.command import RemotingCommand
from rmqha.remoting.headers import ext_fields
from rmqha.remoting.values import as_object

IMPORTED, CHECKED, LEFT_OUT = "imported", "may be imported", "left out"


class StillRunning(RmqhaError):
    """An old controller answers: it and ours would give one set two masters."""


class SameGroup(RmqhaError):
    """Nodes of the group that was lost could come back into this one."""


def run(
    controllers: tuple[str, ...],
    content: bytes | None,
    broker_names: tuple[str, ...],
    unverified: tuple[str, ...],
    by_brokers: tuple[str, ...],
    check_only: bool,
) -> Exchange[Report]:
    """Compare every set with its brokers, and have the leader take them in if none differs.

    Where one differs nothing is taken in: the old controllers can still be started again, and
    must not once ours may have elected somebody.

    Raises:
        click.UsageError: there is no file, or it has no such set.
        RemoteProtocolError: the file cannot be read.
        StillRunning: an old controller is not stopped.
    """
    if content is None:
        raise click.UsageError("give the exported file with -f")
    state = ControllerState.decode(content)
    known = {one.broker_name for one in state.broker_sets}
    for name in (*broker_names, *unverified, *by_brokers):
        if name not in known:
            raise click.UsageError(f"the file has no broker set {name}")
    yield from _need_stopped(state)
    yield from _need_another_group(controllers, state.rescued_group)
    wanted = [
        one for one in state.broker_sets if not broker_names or one.broker_name in broker_names
    ]
    failures: list[RmqhaError] = []
    results = {one.broker_name: CHECKED for one in wanted}
    known_here = yield from _known_here(controllers, list(results), failures, check_only)
    compared: list[BrokerSetState] = []
    for one in wanted:
        name = one.broker_name
        try:
            found = yield from _as_compared(one, name in by_brokers, name in unverified)
            need_takeable(found, known_here.get(name))
            compared.append(found)
        except RmqhaError as error:
            failures.append(error)
            results[name] = LEFT_OUT
    if not failures and not check_only:
        for one in compared:
            try:
                results[one.broker_name] = yield from _take_in(controllers, one)
            except RmqhaError as error:
                failures.append(error)
                results[one.broker_name] = LEFT_OUT
    rows = [set_row(one, results[one.broker_name]) for one in wanted]
    plain = "".join(f"{name}\t{result}\n" for name, result in results.items() if result != LEFT_OUT)
    table = Table("Imported", (*COLUMNS[:-1], "Result"), rows)
    return Report(plain, results, (table,), tuple(failures))


def _known_here(
    controllers: tuple[str, ...], names: list[str], failures: list[RmqhaError], check_only: bool
) -> Exchange[dict[str, ReplicasInfo]]:
    """What ours keep of these sets already; brokers can be compared with before ours run."""
    try:
        _, found = yield from replicas_infos(controllers, names)
    except Unreachable as error:
        if not check_only:
            raise
        failures.append(error)
        return {}
    return found


def _as_compared(
    one: BrokerSetState, by_brokers: bool, unverified: bool
) -> Exchange[BrokerSetState]:
    """The set as the file has it and its brokers confirm, or as its brokers have it."""
    if by_brokers:
        return (yield from from_brokers(one))
    yield from compare(one, unverified=unverified)
    return one


def _need_stopped(state: ControllerState) -> Exchange[None]:
    """Ours may stand at the same addresses: they know a question that Java's do not.

    Of a group of ours that was lost none may run, in minority or not.

    Raises:
        StillRunning: one runs.
        Refused: somebody runs there who does not say what it is.
    """
    for address in state.controllers:
        try:
            answer = yield from ask(address, RemotingCommand(RequestCode.GET_CONTROLLER_VIEW))
        except Unreachable:
            continue
        except Refused as error:
            if error.code != ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                raise  # somebody runs there, and does not say what it is
        else:
            group = as_object(fastjson.loads(answer.body)).get("group")
            if state.rescued_group is None or group != state.rescued_group:
                continue
        raise StillRunning(f"the old controller at {address} runs: stop it first")


def _need_another_group(controllers: tuple[str, ...], rescued_group: str | None) -> Exchange[None]:
    """Controllers listen to nobody of another group, and so to none that was lost."""
    if rescued_group is None:
        return
    _, answer = yield from ask_any(controllers, RequestCode.CONTROLLER_GET_METADATA_INFO)
    if (answer.ext_fields or {}).get("group") == rescued_group:
        raise SameGroup(
            f"the new controllers are of group {rescued_group}, as those that were lost, who could"
            " come back and vote: give them another controllerDLegerGroup, and empty stores"
        )


def _take_in(controllers: tuple[str, ...], one: BrokerSetState) -> Exchange[str]:
    fields = ext_fields(brokerName=one.broker_name)
    request = RemotingCommand(RequestCode.IMPORT_BROKER_SET, ext_fields=fields, body=one.encode())
    yield from ask_leader(controllers, request)
    return IMPORTED


def _options() -> list[click.Option]:
    return [
        controllers_option(),
        file_option("-f", "--file", "content", help="What exportControllerState wrote."),
        names_option("-b", "--brokerNames", "broker_names", help="Only these broker sets."),
        names_option(
            "-u", "--unverified", "unverified",
            help="Broker sets to take in though their masters do not answer.",
        ),
        names_option(
            "-r", "--from-brokers", "by_brokers",
            help="Broker sets to take as their brokers are: the master, alone in sync, a new epoch.",
        ),
        click.Option(
            ["--check", "check_only"], is_flag=True, help="Compare only; change nothing."
        ),
    ]  # fmt: skip


SPEC = CommandSpec(
    "importControllerState", "Have controllers take in what others kept.", _options, run
)
