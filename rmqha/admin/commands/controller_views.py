"""controllerViews: what every controller believes, side by side.

Not in the Java tool, which asks one node and believes it. Nodes apply the same log at their own
pace, so views that differ are looked at again: what differs still, or differs at the same index
of the log, is DIVERGENT.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from rmqha.admin.bodies import understood
from rmqha.admin.report import Report, Table
from rmqha.admin.spec import CommandSpec, controllers_option
from rmqha.base.errors import RemoteProtocolError, RmqhaError
from rmqha.client.exchange import Exchange, Refused, Unreachable, ask
from rmqha.remoting import fastjson
from rmqha.remoting.address import split_addresses
from rmqha.remoting.codes import RequestCode
from rmqha.remoting.command import RemotingCommand
from rmqha.remoting.values import as_array, as_number, as_object, as_text

MATCHING, DIVERGENT, UNAVAILABLE = "MATCHING", "DIVERGENT", "UNAVAILABLE"
LOOKS = 5
NO_SETS = "no broker set is known\n"
_NODES = ("Controller", "Address", "Role", "Term", "Leader", "Applied", "Votes", "Members")
_SETS = ("Broker set", "View", "Master", "Epoch", "SyncStateSet", "Set epoch", "As seen by")


def run(controllers: tuple[str, ...]) -> Exchange[Report]:
    """Ask every controller that is given, and every member that they name.

    Raises:
        Refused: nobody showed a view, and one refused to; Java's controllers do.
        RemoteProtocolError: nobody showed a view that can be understood.
        Unreachable: no controller answered.
    """
    for _ in range(LOOKS):
        views, failures = yield from _look(controllers)
        if not any(_state_of(name, views, needed=1) == DIVERGENT for name in _names(views)):
            break
    if not views:
        answered = next((one for one in failures if not isinstance(one, Unreachable)), None)
        raise answered or Unreachable("; ".join(map(str, failures)))
    newest = max(views.values(), key=lambda view: (view["term"], view["commitIndex"]))
    voters = sum(bool(member["votes"]) for member in newest["members"])
    sets = {name: _state_of(name, views, needed=voters // 2 + 1) for name in _names(views)}
    rows = [row for name, state in sets.items() for row in _set_rows(name, state, views)]
    nodes = [_node_row(member, views) for member in newest["members"]]
    data = {"members": newest["members"], "views": views, "brokerSets": sets}
    plain = "".join(f"{name}\t{state}\n" for name, state in sets.items()) or NO_SETS
    tables = (Table("Controllers", _NODES, nodes), Table("Broker sets", _SETS, rows))
    return Report(plain, data, tables, tuple(failures))


def _look(
    controllers: tuple[str, ...],
) -> Exchange[tuple[dict[str, dict[str, Any]], list[RmqhaError]]]:
    """Views by node id, of all who can be reached; members in them have the addresses of now."""
    waiting, asked = [*controllers], set()
    views: dict[str, dict[str, Any]] = {}
    failures: list[RmqhaError] = []
    while waiting:
        address = waiting.pop(0)
        if address in asked:
            continue
        asked.add(address)
        try:
            request = RemotingCommand(RequestCode.GET_CONTROLLER_VIEW)
            answer = yield from ask(address, request)
            peers = yield from _peers(address)
            with understood(address):
                view = _view(answer.body, peers)
        except (Refused, Unreachable, RemoteProtocolError) as error:
            failures.append(error)
            continue
        views[view["nodeId"]] = view
        waiting += [member["address"] for member in view["members"]]
    return views, failures


def _view(body: bytes, peers: Mapping[str, str]) -> dict[str, Any]:
    """A view of which everything that is compared and shown is there, or an error of Python's."""
    view: dict[str, Any] = fastjson.loads(body)
    for member in view["members"]:
        member["address"] = as_text(peers.get(as_text(member["id"]), member["address"]))
        _node_row(member, {member["id"]: view})
    for name in ("term", "commitIndex"):
        view[name] = as_number(view[name])
    as_text(view["nodeId"]), as_text(view["role"])
    view["brokerSets"] = as_object(view["brokerSets"])
    for one in view["brokerSets"].values():
        as_array(as_object(one).get("syncStateSet"))
    return view


def _peers(address: str) -> Exchange[dict[str, str]]:
    """Where members are, by id, as a node dials them (1005).

    Their files count in this: the log has the addresses of the last change of the group, at which
    nobody may listen any more. It is all that is left where a node does not say.
    """
    request = RemotingCommand(RequestCode.CONTROLLER_GET_METADATA_INFO)
    try:
        answer = yield from ask(address, request)
    except (Refused, Unreachable):
        return {}
    named = split_addresses((answer.ext_fields or {}).get("peers", ""))
    pairs = (one.partition(":") for one in named)
    return {node: where for node, _, where in pairs if ":" in where}


def _names(views: dict[str, dict[str, Any]]) -> list[str]:
    return sorted({name for view in views.values() for name in view["brokerSets"]})


def _members(views: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Views that count: who was removed, or has never been one, keeps what it knew then."""
    return {
        node: view
        for node, view in views.items()
        if view["role"] != "removed" and any(one["id"] == node for one in view["members"])
    }


def _state_of(name: str, views: dict[str, dict[str, Any]], needed: int) -> str:
    """Whether all who answered agree about a set, if they are enough to say so."""
    counted = _members(views)
    seen = {fastjson.dumps(view["brokerSets"].get(name)) for view in counted.values()}
    if len(seen) > 1:
        return DIVERGENT
    return MATCHING if len(counted) >= needed else UNAVAILABLE


def _node_row(member: dict[str, Any], views: dict[str, dict[str, Any]]) -> tuple[object, ...]:
    view = views.get(member["id"])
    votes = "yes" if member["votes"] else "joins"
    if member["votes"] and view is not None and not view.get("mayVote", True):
        # A member whose store is not one that votes (ADR 0018) counts for nothing yet.
        votes = f"no ({view.get('standing', 'no vote')})"
    if view is None:
        return (member["id"], member["address"], UNAVAILABLE, None, None, None, votes, None)
    members = ",".join(one["id"] for one in view["members"])
    facts = (view["role"], view["term"], view["leaderId"], view["appliedIndex"])
    return (member["id"], member["address"], *facts, votes, members)


def _set_rows(name: str, state: str, views: dict[str, dict[str, Any]]) -> list[tuple[object, ...]]:
    """A row for each way in which the set is seen, with the nodes that see it so."""
    seen: dict[bytes, list[str]] = {}
    for node, view in sorted(_members(views).items()):
        seen.setdefault(fastjson.dumps(view["brokerSets"].get(name)), []).append(node)
    rows: list[tuple[object, ...]] = []
    for packed, nodes in seen.items():
        one = fastjson.loads(packed) or {}
        rows.append((
            name, state, one.get("masterBrokerId"), one.get("masterEpoch"),
            ",".join(map(str, one.get("syncStateSet") or ())), one.get("syncStateSetEpoch"),
            ",".join(nodes),
        ))  # fmt: skip
    return rows


def _options() -> list[click.Option]:
    return [controllers_option()]


SPEC = CommandSpec(
    "controllerViews", "Compare what every controller believes.", _options, run, repeats=True
)
