"""Whether the brokers of a set are as a file says that their controllers left them.

Once the old controllers are stopped nobody can change a broker's role or a SyncStateSet any more, so
what the brokers say then is how it stays. Where file and brokers differ, the brokers are right; what
can be known from them alone is less: who is master, and from which epoch on nobody was.
"""

from __future__ import annotations

from msgspec.structs import replace

from rmqha.base.errors import RmqhaError
from rmqha.base.ids import MASTER_ID
from rmqha.client.exchange import Exchange, Refused, Unreachable, ask
from rmqha.client.ha_status import ask_ha_status
from rmqha.remoting.bodies import EpochEntryCache
from rmqha.remoting.broker_set_state import BrokerSetState
from rmqha.remoting.codes import RequestCode
from rmqha.remoting.command import RemotingCommand

AGAIN = (
    "Start the old controllers, export again, and stop them; or have the set taken as its brokers"
    " are with --from-brokers {}"
)

EPOCH_LEAP = 10
"""So far above every epoch that the brokers have written goes that of a master that was found by
asking them: Java's file leaves out epochs in which nothing was written, so their newest may be higher
than it says."""


class NotAsExported(RmqhaError):
    """The brokers of a set are not as the file says, or cannot be asked."""


def compare(one: BrokerSetState, *, unverified: bool) -> Exchange[None]:
    """Compare a set with its brokers.

    The master is asked before the others: what its in-sync slaves had then, they must have now.

    Raises:
        NotAsExported: it is another one now, or its master does not answer.
    """
    need_cluster(one)
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
                f" file {one.master_epoch}: somebody was elected after the export. {AGAIN.format(one.broker_name)}"
            )
        if each.broker_id in one.sync_state_set and cache.max_offset < acknowledged:
            raise NotAsExported(
                f"{one.broker_name}: broker {each.broker_id} is in the file's SyncStateSet, and"
                f" its log ends at {cache.max_offset}, before {acknowledged}. {AGAIN.format(one.broker_name)}"
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
    is_master, in_sync, acknowledged, _ = yield from _role(one, master, one.address(master) or "")
    if not is_master:
        raise NotAsExported(
            f"{one.broker_name}: broker {master} is no master now. {AGAIN.format(one.broker_name)}"
        )
    if in_sync != len(one.sync_state_set) - 1:
        raise NotAsExported(
            f"{one.broker_name}: its master has {in_sync} slaves in sync, the file"
            f" {len(one.sync_state_set) - 1}. {AGAIN.format(one.broker_name)}"
        )
    return acknowledged


def from_brokers(one: BrokerSetState) -> Exchange[BrokerSetState]:
    """The set with the master that its brokers have, which is alone in sync until it takes the others
    in again.

    Raises:
        NotAsExported: not every replica answers, not exactly one is master, or another one has an
            epoch above the master's.
    """
    need_cluster(one)
    masters: list[int] = []
    epochs: dict[int, int] = {}
    for each in one.replicas:
        try:
            is_master, _, _, newest = yield from _role(one, each.broker_id, each.broker_address)
        except Unreachable as error:
            raise NotAsExported(
                f"{one.broker_name}: broker {each.broker_id} does not answer, and may be a newer"
                f" master: {error}"
            ) from error
        epochs[each.broker_id] = newest
        if is_master:
            masters.append(each.broker_id)
    if len(masters) != 1:
        raise NotAsExported(
            f"{one.broker_name}: its brokers have {len(masters)} masters, and not one"
        )
    (master,) = masters
    if max(epochs.values()) > epochs[master]:
        raise NotAsExported(
            f"{one.broker_name}: broker {master} is master, and another knows a newer epoch than its"
            f" {epochs[master]}"
        )
    return replace(
        one,
        master_broker_id=master,
        master_epoch=max(one.master_epoch, epochs[master]) + EPOCH_LEAP,
        sync_state_set=(master,),
    )


def need_cluster(one: BrokerSetState) -> None:
    """Refuse a set whose cluster is left open; raises NotAsExported."""
    if one.cluster_name is None:
        raise NotAsExported(f"{one.broker_name}: the file does not know its cluster")


def _role(
    one: BrokerSetState, broker_id: int, address: str
) -> Exchange[tuple[bool, int, int, int]]:
    """Whether a broker is master, how many slaves it has in sync, how far these have come, and its
    newest epoch."""
    cache = yield from _epochs(one, broker_id, address)
    try:
        status = yield from ask_ha_status(address)
    except Refused as error:
        raise NotAsExported(f"{one.broker_name}: broker {broker_id} refuses: {error}") from error
    is_master = status.is_master and cache.broker_id == MASTER_ID
    ends = [slave.ack_offset for slave in status.slaves if slave.is_in_sync]
    return is_master, status.in_sync_slaves, min(ends, default=0), last_epoch(cache)


def last_epoch(cache: EpochEntryCache) -> int:
    """The newest epoch that a broker has in its file; -1 when there is none."""
    return max((one.epoch for one in cache.epoch_list), default=-1)
