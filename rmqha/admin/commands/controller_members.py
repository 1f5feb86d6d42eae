"""addController, removeController, transferControllerLeader: change the controllers' own group.

Not in the Java tool: its controllers' group is fixed by their files. The codes are rmqha's own
(60020, 60021); a Java controller refuses them as unknown.
"""

from __future__ import annotations

import click

from rmqha.admin.report import Report, Table
from rmqha.admin.spec import CommandSpec, controllers_option
from rmqha.base.errors import RmqhaError
from rmqha.client.exchange import Call, Exchange, NotFound, Refused, ask_leader
from rmqha.remoting import fastjson
from rmqha.remoting.codes import RequestCode, ResponseCode
from rmqha.remoting.command import RemotingCommand
from rmqha.remoting.headers import ext_fields

WAIT_MS = 60_000
_LEADERS_MAX = 3
"""So many leaders are asked one after the other, where each loses its leadership meanwhile."""
_COLUMNS = ("Controller", "Done", "Remark")


class NoVoteYet(RmqhaError):
    """A controller was added, and got no vote in the time that there was for it."""


def add(controllers: tuple[str, ...], node_id: str, address: str, wait_s: int) -> Exchange[Report]:
    """Let a controller join, and wait until it votes.

    It stays a member without a vote when that takes longer; who waited is told of a failure, so
    that no script goes on to remove another one.
    """
    fields = ext_fields(action="add", nodeId=node_id, address=address, waitMs=wait_s * 1000)
    _, answer = yield from _ask_leader(controllers, fields, wait_s)
    if not answer.remark:
        return _report("addController", node_id, "joined", "it votes")
    failures = (NoVoteYet(f"{node_id} has no vote after {wait_s} s"),) if wait_s else ()
    return _report("addController", node_id, "joins", answer.remark, failures)


def remove(controllers: tuple[str, ...], node_id: str, wait_s: int) -> Exchange[Report]:
    """Remove a controller; the leader among them hands over by itself.

    An id of no member is a failure: a script would go on and stop a voter.
    """
    fields = ext_fields(action="remove", nodeId=node_id, waitMs=wait_s * 1000)
    members, answer = yield from _ask_leader(controllers, fields, wait_s)
    # One that was a member a moment ago was removed by the request that a new leader got again.
    if answer.remark and node_id not in members:
        failures = (NotFound(answer.remark),)
        return _report("removeController", node_id, "nothing to do", answer.remark, failures)
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
) -> Exchange[tuple[frozenset[str], RemotingCommand]]:
    """Ask whoever leads, with all the time that joining may take.

    Returns:
        The ids of the members before the request, as the first leader told them; and the answer.
    """
    members: frozenset[str] | None = None
    request = RemotingCommand(RequestCode.CHANGE_CONTROLLER_MEMBERS, ext_fields=fields)
    for last in (*[False] * (_LEADERS_MAX - 1), True):
        probe = RemotingCommand(RequestCode.GET_CONTROLLER_VIEW)
        leader, seen = yield from ask_leader(controllers, probe)
        members = members or _ids(seen)
        answer = yield Call(leader, request, wait_s * 1000 + 3_000)
        if answer.code == ResponseCode.SUCCESS:
            return members, answer
        if last or answer.code != ResponseCode.CONTROLLER_NOT_LEADER:
            raise Refused(leader, answer.code, answer.remark or "")
    raise AssertionError("the last round returns or raises")


def _ids(seen: RemotingCommand) -> frozenset[str]:
    return frozenset(member["id"] for member in fastjson.loads(seen.body)["members"])


def _report(
    command: str, node_id: str, done: str, said: str, failures: tuple[RmqhaError, ...] = ()
) -> Report:
    data = {"nodeId": node_id, "done": done, "remark": said}
    table = Table(command, _COLUMNS, [(node_id, done, said)])
    return Report(f"{command} {node_id}: {done}; {said}\n", data, (table,), failures)


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
