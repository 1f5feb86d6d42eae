"""addController, removeController, transferControllerLeader: change the controllers' own group.

Not in the Java tool: its controllers' group is fixed by their files. The codes are rmqha's own
(60020, 60021); a Java controller refuses them as unknown.
"""

from __future__ import annotations

import click

from rmqha.admin.report import Report, Table
from rmqha.admin.spec import CommandSpec, controllers_option
from rmqha.client.exchange import Call, Exchange, Refused, ask_leader
from rmqha.remoting.codes import RequestCode, ResponseCode
from rmqha.remoting.command import RemotingCommand
from rmqha.remoting.headers import ext_fields

WAIT_MS = 60_000
_COLUMNS = ("Controller", "Done", "Remark")


def add(controllers: tuple[str, ...], node_id: str, address: str, wait_s: int) -> Exchange[Report]:
    """Let a controller join, and wait until it votes."""
    fields = ext_fields(action="add", nodeId=node_id, address=address, waitMs=wait_s * 1000)
    answer = yield from _ask_leader(controllers, fields, wait_s)
    said = answer.remark or "it votes"
    return _report("addController", node_id, "joined" if not answer.remark else "joins", said)


def remove(controllers: tuple[str, ...], node_id: str, wait_s: int) -> Exchange[Report]:
    """Remove a controller; the leader among them hands over by itself."""
    fields = ext_fields(action="remove", nodeId=node_id, waitMs=wait_s * 1000)
    answer = yield from _ask_leader(controllers, fields, wait_s)
    if answer.remark:
        return _report("removeController", node_id, "nothing to do", answer.remark)
    said = "it may be stopped now; take it out of the files of the others and of the brokers"
    return _report("removeController", node_id, "removed", said)


def transfer(controllers: tuple[str, ...], node_id: str | None) -> Exchange[Report]:
    """Move leadership to a controller, or to the one that is furthest."""
    request = RemotingCommand(
        RequestCode.TRANSFER_CONTROLLER_LEADER, ext_fields=ext_fields(nodeId=node_id)
    )
    leader, _ = yield from ask_leader(controllers, request)
    said = f"{leader} has handed over"
    return _report("transferControllerLeader", node_id or "any", "leads", said)


def _ask_leader(
    controllers: tuple[str, ...], fields: dict[str, str], wait_s: int
) -> Exchange[RemotingCommand]:
    """Ask whoever leads, with all the time that joining may take."""
    probe = RemotingCommand(RequestCode.GET_CONTROLLER_VIEW)
    leader, _ = yield from ask_leader(controllers, probe)
    request = RemotingCommand(RequestCode.CHANGE_CONTROLLER_MEMBERS, ext_fields=fields)
    answer = yield Call(leader, request, wait_s * 1000 + 3_000)
    if answer.code == ResponseCode.CONTROLLER_NOT_LEADER:
        _, answer = yield from ask_leader(controllers, request)
    if answer.code != ResponseCode.SUCCESS:
        raise Refused(leader, answer.code, answer.remark or "")
    return answer


def _report(command: str, node_id: str, done: str, said: str) -> Report:
    data = {"nodeId": node_id, "done": done, "remark": said}
    table = Table(command, _COLUMNS, [(node_id, done, said)])
    return Report(f"{command} {node_id}: {done}; {said}\n", data, (table,))


def _node_option(help_text: str, *, required: bool = True) -> click.Option:
    return click.Option(["-i", "--nodeId", "node_id"], required=required, help=help_text)


def _wait_option() -> click.Option:
    return click.Option(
        ["-w", "--wait", "wait_s"],
        type=click.IntRange(min=0, max=600),
        default=WAIT_MS // 1000,
        show_default=True,
        help="Seconds to wait until it is done.",
    )


def _add_options() -> list[click.Option]:
    return [
        controllers_option(),
        _node_option("Its controllerDLegerSelfId."),
        click.Option(["--address", "address"], required=True, help="Where it listens, host:port."),
        _wait_option(),
    ]


def _remove_options() -> list[click.Option]:
    return [controllers_option(), _node_option("Whom to remove."), _wait_option()]


def _transfer_options() -> list[click.Option]:
    help_text = "Who shall lead; the one that is furthest if it is left out."
    return [controllers_option(), _node_option(help_text, required=False)]


ADD = CommandSpec("addController", "Let a controller join its group.", _add_options, add)
REMOVE = CommandSpec(
    "removeController", "Remove a controller from its group.", _remove_options, remove
)
TRANSFER = CommandSpec(
    "transferControllerLeader", "Move leadership of the controllers.", _transfer_options, transfer
)
