"""electMaster: make a given broker the master of its set, or say who would win and why."""

from __future__ import annotations

from typing import Any

import click

from rmqha.admin.bodies import understood
from rmqha.admin.commands.election_history import candidate_line, master_change
from rmqha.admin.commands.switch_master import need_cluster
from rmqha.admin.report import Report, Table
from rmqha.admin.spec import CommandSpec, broker_name_option, cluster_option, controllers_option
from rmqha.base.errors import RemoteProtocolError
from rmqha.client.exchange import Exchange, Refused, Unreachable, ask_leader
from rmqha.remoting import fastjson
from rmqha.remoting.bodies import (
    BrokerMemberGroup,
    BrokerReplicasInfo,
    ElectMasterResponseBody,
    encode_names,
)
from rmqha.remoting.codes import RequestCode, ResponseCode
from rmqha.remoting.command import RemotingCommand
from rmqha.remoting.headers import ext_fields


def run(
    controllers: tuple[str, ...],
    broker_id: int,
    broker_name: str,
    cluster_name: str,
    dry_run: bool = False,
) -> Exchange[Report]:
    """Ask the leader (1002) to prefer this broker; it refuses when the broker may not be master.

    Raises:
        NotFound: the set is of another cluster, by the word of a broker that is alive. Controllers
            know sets by their names alone, and would elect.
    """
    alive = yield from _living(controllers, broker_name, broker_id)
    yield from need_cluster(alive, broker_name, cluster_name)
    fields = ext_fields(
        clusterName=cluster_name, brokerName=broker_name, brokerId=broker_id, designateElect=True
    )
    if dry_run:
        return (yield from _would_elect(controllers, fields))
    request = RemotingCommand(RequestCode.CONTROLLER_ELECT_MASTER, ext_fields=fields)
    try:
        _, answer = yield from ask_leader(controllers, request)
    except Refused as refused:
        if refused.code != ResponseCode.CONTROLLER_ELECT_MASTER_FAILED:
            raise
        why = yield from _why_not(controllers, fields, broker_id)
        raise Refused(refused.address, refused.code, f"{refused.remark}{why}") from None
    elected = answer.ext_fields or {}
    body = ElectMasterResponseBody.decode(answer.body or b"{}")
    group = body.broker_member_group or BrokerMemberGroup(cluster_name, broker_name, {})
    epochs = (elected.get("masterEpoch"), elected.get("syncStateSetEpoch"))
    master_address = elected.get("masterAddress")
    data = {
        "clusterName": cluster_name,
        "brokerName": broker_name,
        "masterBrokerId": _number(elected.get("masterBrokerId")),
        "masterAddress": master_address,
        "masterEpoch": _number(epochs[0]),
        "syncStateSetEpoch": _number(epochs[1]),
        "syncStateSet": body.sync_state_set,
        "brokerAddrs": dict(group.broker_addrs),
    }
    plain = (
        f"\n#ClusterName\t{cluster_name}\n#BrokerName\t{broker_name}"
        f"\n#BrokerMasterAddr\t{master_address}\n#MasterEpoch\t{epochs[0]}"
        f"\n#SyncStateSetEpoch\t{epochs[1]}\n" + _plain_members(answer.body)
    )
    rows: list[tuple[object, ...]] = [
        (
            broker_name,
            broker_id,
            address,
            "master" if address == master_address else "slave",
            *epochs,
        )
        for broker_id, address in group.broker_addrs.items()
    ] or [(broker_name, elected.get("masterBrokerId"), master_address, "master", *epochs)]
    columns = ("Broker set", "Broker id", "Address", "Role", "Master epoch", "Set epoch")
    return Report(plain, data, (Table("Elected", columns, rows),))


def _living(controllers: tuple[str, ...], broker_name: str, broker_id: int) -> Exchange[list[str]]:
    """Addresses of the set's brokers that are alive, the one that shall be master first; none where
    the controllers do not tell: what follows says why."""
    request = RemotingCommand(
        RequestCode.CONTROLLER_GET_SYNC_STATE_DATA, body=encode_names((broker_name,))
    )
    try:
        _, answer = yield from ask_leader(controllers, request)
    except Refused:
        return []
    info = BrokerReplicasInfo.decode(answer.body).replicas_info_table.get(broker_name)
    if info is None:
        return []
    found = [one for one in (*info.in_sync_replicas, *info.not_in_sync_replicas) if one.alive]
    return [one.broker_address for one in sorted(found, key=lambda one: one.broker_id != broker_id)]


def _why_not(controllers: tuple[str, ...], fields: dict[str, str], broker_id: int) -> Exchange[str]:
    """What speaks against this broker, to stand behind the refusal; empty when nobody can say."""
    request = RemotingCommand(RequestCode.EXPLAIN_ELECTION, ext_fields=fields)
    try:
        leader, answer = yield from ask_leader(controllers, request)
        with understood(leader):
            candidates: list[dict[str, Any]] = fastjson.loads(answer.body).get("candidates", [])
            said = {int(one["brokerId"]): str(one["verdict"]) for one in candidates}
    # A Java controller does not know the question.
    except (Refused, Unreachable, RemoteProtocolError):
        return ""
    if broker_id in said:
        return f": broker {broker_id}: {said[broker_id]}"
    known = ", ".join(map(str, sorted(said)))
    return f": the set has no broker {broker_id}, it has {known}" if known else ""


def _would_elect(controllers: tuple[str, ...], fields: dict[str, str]) -> Exchange[Report]:
    """Ask 60012, which changes nothing; a Java controller does not know it and refuses."""
    request = RemotingCommand(RequestCode.EXPLAIN_ELECTION, ext_fields=fields)
    leader, answer = yield from ask_leader(controllers, request)
    with understood(leader):
        return _would_report(fastjson.loads(answer.body))


def _would_report(said: dict[str, Any]) -> Report:
    candidates: list[dict[str, Any]] = said.get("candidates", [])
    outcome = _OUTCOMES.get(said["code"], said["remark"])
    change = f"#Master\t{master_change(said)}\n" if candidates else ""
    plain = f"\n#Would\t{outcome}\n{change}" + "".join(map(candidate_line, candidates))
    columns = ("Broker id", "Verdict", "Epoch", "Log end", "Priority", "In sync", "Alive")
    keys = ("brokerId", "verdict", "epoch", "maxOffset", "priority", "inSyncStateSet", "alive")
    rows: list[tuple[object, ...]] = [tuple(one[key] for key in keys) for one in candidates]
    return Report(plain, said, (Table(f"Nothing was changed: {outcome}", columns, rows),))


_OUTCOMES = {
    int(ResponseCode.SUCCESS): "this broker would become the master",
    int(ResponseCode.CONTROLLER_MASTER_STILL_EXIST): "this broker is the master already",
    int(ResponseCode.CONTROLLER_ELECT_MASTER_FAILED): "this broker would not be elected",
}


def _plain_members(body: bytes) -> str:
    """The Java tool looks for the members at the body's top level, where Java controllers do not
    put them; with the same answer this prints the same lines as it."""
    group = BrokerMemberGroup.of(fastjson.loads(body or b"{}"))
    return "".join(
        f"\t#Broker\t{broker_id}\t{address}\n" for broker_id, address in group.broker_addrs.items()
    )


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.isascii() and text.isdigit() else None


def _options() -> list[click.Option]:
    return [
        controllers_option(),
        click.Option(
            ["-b", "--brokerId", "broker_id"],
            type=int,
            required=True,
            help="Controller id of the broker that shall be master.",
        ),
        broker_name_option("-bn", required=True),
        cluster_option(required=True),
        click.Option(
            ["--dry-run", "dry_run"], is_flag=True,
            help="Only say who would win and why the others would not.",
        ),
    ]  # fmt: skip


SPEC = CommandSpec("electMaster", "Make a broker the master of its set.", _options, run)
