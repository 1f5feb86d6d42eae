"""exportControllerState: ask running controllers, Java's or ours, for all that they keep.

Not in the Java tool. What is asked is what every controller of 5.1.1 and later answers (1005, 1006,
1012), and 1007 of the brokers; nothing is changed. ``importControllerState`` takes the file in.
"""

from __future__ import annotations

from collections.abc import Iterable

import click
import msgspec

from rmqha.admin.controller_state import FORMAT, ControllerState
from rmqha.admin.replicas_info import replicas_infos
from rmqha.admin.report import Report, Table
from rmqha.admin.set_comparison import last_epoch
from rmqha.admin.spec import (
    CommandSpec,
    Here,
    controllers_option,
    name_servers_option,
    names_option,
    text_option,
)
from rmqha.client.brokers import cluster_info
from rmqha.client.exchange import (
    Exchange,
    NotFound,
    Refused,
    Unreachable,
    ask,
    ask_any,
    ask_leader,
)
from rmqha.remoting.bodies import (
    EpochEntryCache,
    ReplicasInfo,
)
from rmqha.remoting.broker_set_state import BrokerSetState, RegisteredReplica
from rmqha.remoting.codes import RequestCode
from rmqha.remoting.command import RemotingCommand
from rmqha.remoting.headers import INT64_MAX, ext_fields, parse_number

COLUMNS = (
    "Broker set", "Cluster", "Replicas", "Next id", "Master", "Epoch", "SyncStateSet", "Set epoch",
    "Remarks",
)  # fmt: skip


def run(
    controllers: tuple[str, ...],
    name_servers: tuple[str, ...] | None,
    broker_names: tuple[str, ...],
    output: str,
    here: Here,
) -> Exchange[Report]:
    """Ask the leader for every set that the name servers list, and for those that are named.

    Controllers have no question for the names of all sets.

    Raises:
        click.UsageError: neither a name server nor a name.
        NotFound: the controllers do not know a set that was named, or none at all.
    """
    clusters = yield from _clusters(name_servers, broker_names)
    _, told = yield from ask_any(controllers, RequestCode.CONTROLLER_GET_METADATA_INFO)
    group = group_addresses(controllers, (told.ext_fields or {}).get("peers", ""))
    names = tuple(sorted({*clusters, *broker_names}))
    leader, table = yield from replicas_infos(controllers, names)
    unknown = [name for name in (broker_names or names) if name not in table]
    if unknown and (broker_names or not table):
        raise NotFound(f"{leader}: broker set {', '.join(unknown)} is not known to the controllers")
    sets: list[BrokerSetState] = []
    remarks: dict[str, tuple[str, ...]] = {}
    for name, info in sorted(table.items()):
        one, doubts = yield from _set(controllers, name, info, clusters.get(name))
        sets.append(one)
        if doubts:
            remarks[name] = tuple(doubts)
    left = {name: "the controllers do not know it" for name in names if name not in table}
    state = ControllerState(FORMAT, here.now_ms, group, tuple(sets), remarks, left)
    return Report("", {}, (), files={output: state.encode()}, then=_written(state, output))


def _clusters(
    name_servers: tuple[str, ...] | None, broker_names: tuple[str, ...]
) -> Exchange[dict[str, str]]:
    """Cluster by broker set, as the name servers have it."""
    if not name_servers:
        if not broker_names:
            raise click.UsageError("give a name server with -n or NAMESRV_ADDR, or names with -b")
        return {}
    found = yield from cluster_info(name_servers)
    return {name: group.cluster for name, group in found.broker_addr_table.items()}


def group_addresses(asked: Iterable[str], peers: str) -> tuple[str, ...]:
    """Every controller that was asked or that 1005 names: ``n0:host:port;`` or ``host:port;``."""
    named = (":".join(peer.split(":")[-2:]) for peer in peers.split(";") if peer)
    return tuple(sorted({*asked, *named}))


def _set(
    controllers: tuple[str, ...], name: str, info: ReplicasInfo, listed: str | None
) -> Exchange[tuple[BrokerSetState, list[str]]]:
    replicas = sorted(
        (*info.in_sync_replicas, *info.not_in_sync_replicas), key=lambda one: one.broker_id
    )
    doubts: list[str] = []
    clusters: set[str] = set()
    for one in replicas:
        try:
            request = RemotingCommand(RequestCode.GET_BROKER_EPOCH_CACHE)
            answer = yield from ask(one.broker_address, request)
        except (Refused, Unreachable) as error:
            doubts.append(f"broker {one.broker_id} did not answer: {error}")
            continue
        cache = EpochEntryCache.decode(answer.body)
        if cache.broker_name != name:
            doubts.append(
                f"behind {one.broker_address} of broker {one.broker_id} there is one of"
                f" {cache.broker_name}"
            )
            continue
        clusters.add(cache.cluster_name)
        newest = last_epoch(cache)
        if newest > info.master_epoch:
            doubts.append(f"broker {one.broker_id} knows epoch {newest}: a newer one")
    if not clusters and listed:
        clusters.add(listed)
        doubts.append(f"no broker told its cluster: {listed} is the name servers' word")
    cluster = clusters.pop() if len(clusters) == 1 else None
    if cluster is None:
        doubts.append("its cluster is not known: write it into the file")
    next_id = yield from _next_id(controllers, cluster or listed or "", name)
    state = BrokerSetState(
        cluster_name=cluster,
        broker_name=name,
        next_broker_id=next_id,
        master_broker_id=info.master_broker_id,
        master_epoch=info.master_epoch,
        sync_state_set=tuple(sorted(one.broker_id for one in info.in_sync_replicas)),
        sync_state_set_epoch=info.sync_state_set_epoch,
        replicas=tuple(RegisteredReplica(one.broker_id, one.broker_address) for one in replicas),
    )
    return state, doubts


def _next_id(controllers: tuple[str, ...], cluster: str, name: str) -> Exchange[int]:
    fields = ext_fields(clusterName=cluster, brokerName=name)
    request = RemotingCommand(RequestCode.CONTROLLER_GET_NEXT_BROKER_ID, ext_fields=fields)
    _, answer = yield from ask_leader(controllers, request)
    return parse_number((answer.ext_fields or {}).get("nextBrokerId", ""), INT64_MAX) or 0


def _written(state: ControllerState, output: str) -> Exchange[Report]:
    """What is told when the file is there; it asks nobody any more."""
    yield from ()
    rows: list[tuple[object, ...]] = [
        set_row(one, "; ".join(state.remarks.get(one.broker_name, ()))) for one in state.broker_sets
    ]
    rows += [(name, *[None] * 7, why) for name, why in sorted(state.not_exported.items())]
    plain = "".join(
        f"{one.broker_name}\tmaster {one.master_broker_id}\tepoch {one.master_epoch}\t"
        + "; ".join(state.remarks.get(one.broker_name, ("-",)))
        + "\n"
        for one in state.broker_sets
    )
    data = {"file": output, **msgspec.to_builtins(state)}
    table = Table(f"Exported to {output}", COLUMNS, rows)
    return Report(plain, data, (table,))


def set_row(one: BrokerSetState, last: str) -> tuple[object, ...]:
    """A set for people, with something to say of it in the last column."""
    return (
        one.broker_name, one.cluster_name, ",".join(str(each.broker_id) for each in one.replicas),
        one.next_broker_id, one.master_broker_id, one.master_epoch,
        ",".join(map(str, one.sync_state_set)), one.sync_state_set_epoch, last or None,
    )  # fmt: skip


def _options() -> list[click.Option]:
    return [
        controllers_option(),
        name_servers_option(),
        names_option("-b", "--brokerNames", "broker_names", help="Further broker sets."),
        text_option("-o", "--output", "output", required=True, help="The file to be written."),
    ]


SPEC = CommandSpec(
    "exportControllerState", "Write what controllers keep into a file.", _options, run,
    needs_here=True,
)  # fmt: skip
