"""switchMaster: move the mastership when the target has caught up, so that no send fails.

A master of ours does it all, and answers when the new one takes sends. One of an older release only
holds sends, and the election is asked for here. Java's cannot hold any; with ``--hold-java`` it
refuses them from before the election on.
"""

from __future__ import annotations

from collections.abc import Iterable

import click

from rmqha.admin.commands import java_hold
from rmqha.admin.report import Report, Table
from rmqha.admin.spec import (
    CommandSpec,
    broker_name_option,
    cluster_option,
    controllers_option,
    number_option,
)
from rmqha.base.errors import RmqhaError
from rmqha.client.exchange import Exchange, NotFound, Refused, Unreachable, ask, ask_leader
from rmqha.remoting.bodies import (
    BrokerReplicasInfo,
    EpochEntryCache,
    ReplicasInfo,
    encode_names,
)
from rmqha.remoting.codes import RequestCode, ResponseCode
from rmqha.remoting.command import RemotingCommand
from rmqha.remoting.headers import ext_fields

ANSWER_MS = 3_000
HELD = "sends are held until the new master takes them"
NOT_HELD = "the master is not rmqha's: sends fail until clients ask for the route"
REFUSED = "the master is not rmqha's: it refused sends until its slaves had all that it took"


class NotReady(RmqhaError):
    """The mastership stays where it is."""


def run(
    controllers: tuple[str, ...],
    broker_id: int,
    broker_name: str,
    cluster_name: str,
    wait_s: int,
    hold_ms: int,
    *,
    hold_java: bool,
) -> Exchange[Report]:
    """Have the master hold sends once the target is near, and have it elected (60041).

    Raises:
        NotFound: the controllers do not know the set, or the target, or it is of another cluster.
        NotReady: there is no master, or the target is dead or not in sync.
        BehindMaster: slaves of a master of Java did not catch up with it in time; it goes on.
        Refused: the master or the controllers refused; the master goes on.
    """
    known = yield from _known(controllers, broker_name)
    if known.master_address is not None:
        yield from need_cluster((known.master_address,), broker_name, cluster_name)
    if known.master_broker_id == broker_id:
        return _report(broker_name, broker_id, known, known, "it was the master already")
    master = _checked(known, broker_name, broker_id)
    fields = ext_fields(brokerId=broker_id, waitMs=wait_s * 1000, holdMs=hold_ms, elect=True)
    request = RemotingCommand(RequestCode.HAND_OVER, ext_fields=fields)
    try:
        answer = yield from ask(master, request, wait_s * 1000 + hold_ms + ANSWER_MS)
        how, elected = HELD, (answer.ext_fields or {}).get("elected") == "true"
    except Refused as error:
        if error.code != ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
            raise
        how, elected = NOT_HELD, False
        if broker_id not in (one.broker_id for one in known.in_sync_replicas):
            raise NotReady(f"broker {broker_id} is not in the SyncStateSet") from None
    if not elected:
        elect = _elect(controllers, broker_id, broker_name, cluster_name, master, how)
        if how == NOT_HELD and hold_java:
            how = REFUSED
            elect = _hold_and(elect, master, len(known.in_sync_replicas) - 1, wait_s, hold_ms)
        yield from elect
    return _report(
        broker_name, broker_id, known, (yield from _known(controllers, broker_name)), how
    )


def _hold_and(
    elect: Exchange[None], master: str, slaves: int, wait_s: int, hold_ms: int
) -> Exchange[None]:
    """Elect while a master of Java takes no sends and its slaves in sync have its whole log."""
    yield from java_hold.wait_near(master, slaves, wait_s * 1000)
    held = yield from java_hold.hold(master, hold_ms)
    try:
        yield from java_hold.wait_equal(master, slaves, hold_ms)
        yield from elect
    except RmqhaError:
        yield from java_hold.release(held)
        raise
    yield from java_hold.wait_demoted(master, hold_ms)
    yield from java_hold.release(held)


def _elect(
    controllers: tuple[str, ...], broker_id: int, broker_name: str, cluster_name: str,
    master: str, how: str,
) -> Exchange[None]:  # fmt: skip
    fields = ext_fields(
        clusterName=cluster_name, brokerName=broker_name, brokerId=broker_id, designateElect=True
    )
    request = RemotingCommand(RequestCode.CONTROLLER_ELECT_MASTER, ext_fields=fields)
    try:
        yield from ask_leader(controllers, request)
    except Refused as error:
        # Asked twice, for the first answer was lost.
        if error.code == ResponseCode.CONTROLLER_MASTER_STILL_EXIST:
            now = yield from _known(controllers, broker_name)
            if now.master_broker_id == broker_id:
                return
        if how == HELD:
            yield from _withdraw(master)
        raise


def _withdraw(master: str) -> Exchange[None]:
    """Nobody was elected: the master need not wait for its deadline. Where it cannot be told, it
    goes on by itself a moment later. It is not told when an answer was lost: somebody may have
    been elected."""
    request = RemotingCommand(RequestCode.HAND_OVER, ext_fields=ext_fields(brokerId=0))
    try:
        yield from ask(master, request)
    except (Refused, Unreachable):
        return


def _known(controllers: tuple[str, ...], broker_name: str) -> Exchange[ReplicasInfo]:
    body = encode_names((broker_name,))
    request = RemotingCommand(RequestCode.CONTROLLER_GET_SYNC_STATE_DATA, body=body)
    leader, answer = yield from ask_leader(controllers, request)
    table = BrokerReplicasInfo.decode(answer.body).replicas_info_table
    if broker_name not in table:
        raise NotFound(f"{leader}: broker set {broker_name} is not known to the controllers")
    return table[broker_name]


def need_cluster(brokers: Iterable[str], broker_name: str, cluster_name: str) -> Exchange[None]:
    """Refuse a set of another cluster than the one that is meant: a broker of it says which (1007).

    Where none tells, or nobody is there, whoever asks is believed: what follows asks anew.

    Args:
        brokers: addresses; the first that tells counts.

    Raises:
        NotFound: it is of another cluster.
    """
    for address in brokers:
        try:
            answer = yield from ask(address, RemotingCommand(RequestCode.GET_BROKER_EPOCH_CACHE))
        except (Refused, Unreachable):
            continue
        told = EpochEntryCache.decode(answer.body).cluster_name
        if told not in ("", cluster_name):
            raise NotFound(f"broker set {broker_name} is of cluster {told}, not of {cluster_name}")
        if told:
            return


def _checked(known: ReplicasInfo, broker_name: str, broker_id: int) -> str:
    """The master's address."""
    replicas = {
        one.broker_id: one for one in (*known.in_sync_replicas, *known.not_in_sync_replicas)
    }
    if broker_id not in replicas:
        raise NotFound(f"broker {broker_id} is not registered in broker set {broker_name}")
    if known.master_broker_id is None or not known.master_address:
        raise NotReady(f"broker set {broker_name} has no master: use electMaster")
    if not replicas[broker_id].alive:
        raise NotReady(f"broker {broker_id} is not alive")
    return known.master_address


def _report(
    broker_name: str, broker_id: int, before: ReplicasInfo, now: ReplicasInfo, how: str
) -> Report:
    data = {
        "brokerName": broker_name,
        "oldMaster": before.master_broker_id,
        "newMaster": now.master_broker_id,
        "masterEpoch": now.master_epoch,
        "how": how,
    }
    plain = (
        f"\n#BrokerName\t{broker_name}\n#Master\t{before.master_broker_id} -> "
        f"{now.master_broker_id}\n#MasterEpoch\t{now.master_epoch}\n#How\t{how}\n"
    )
    row = (broker_name, before.master_broker_id, now.master_broker_id, now.master_epoch, how)
    columns = ("Broker set", "Old master", "New master", "Master epoch", "How")
    return Report(plain, data, (Table("Switched", columns, [row]),))


def _options() -> list[click.Option]:
    return [
        controllers_option(),
        click.Option(
            ["-b", "--brokerId", "broker_id"],
            type=click.IntRange(1),
            required=True,
            help="Controller id of the broker that shall be master.",
        ),
        broker_name_option("-bn", required=True),
        cluster_option(required=True),
        number_option(
            "-w", "--wait", "wait_s", high=300, default=30,
            help="Seconds that the target may take to come near (30).",
        ),
        number_option(
            "--hold", "hold_ms", low=1, high=2_000, default=1_000,
            help="Milliseconds for which the master holds sends at most (1000).",
        ),
        click.Option(
            ["--hold-java"], is_flag=True,
            help="A master of Java refuses sends until its slaves have all that it took, for --hold"
            " and a second at most. It writes its configuration file anew.",
        ),
    ]  # fmt: skip


SPEC = CommandSpec(
    "switchMaster", "Move the mastership when the target has caught up.", _options, run
)
