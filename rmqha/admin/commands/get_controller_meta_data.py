"""getControllerMetaData: the controllers' group, leader and peers, as one node sees them."""

from __future__ import annotations

import click

from rmqha.admin.report import Report, Table
from rmqha.admin.spec import CommandSpec, controllers_option
from rmqha.client.exchange import Exchange, ask_any
from rmqha.remoting.codes import RequestCode


def run(controllers: tuple[str, ...]) -> Exchange[Report]:
    """Ask the first controller that answers (1005)."""
    _, answer = yield from ask_any(controllers, RequestCode.CONTROLLER_GET_METADATA_INFO)
    fields = answer.ext_fields or {}
    group = fields.get("group")
    # No leader: DLedger leaves the fields out, JRaft sends an empty text.
    leader_id = fields.get("controllerLeaderId")
    leader_address = fields.get("controllerLeaderAddress")
    peers = [peer for peer in fields.get("peers", "").split(";") if peer]
    plain = (
        f"\n#ControllerGroup\t{_java(group)}"
        f"\n#ControllerLeaderId\t{_java(leader_id)}"
        f"\n#ControllerLeaderAddress\t{_java(leader_address)}"
        + "".join(f"\n#Peer:\t{peer}" for peer in peers)
        + "\n"
    )
    data = {
        "group": group,
        "controllerLeaderId": leader_id or None,
        "controllerLeaderAddress": leader_address or None,
        "peers": peers,
    }
    rows = [(group, leader_id, leader_address, "\n".join(peers))]
    table = Table("Controllers", ("Group", "Leader id", "Leader address", "Peers"), rows)
    return Report(plain, data, (table,))


def _java(value: str | None) -> str:
    return "null" if value is None else value


def _options() -> list[click.Option]:
    return [controllers_option()]


SPEC = CommandSpec(
    "getControllerMetaData", "Show the controllers' group, leader and peers.", _options, run
)
