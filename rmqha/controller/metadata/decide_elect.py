"""1002 ELECT_MASTER, from a broker, an operator or the controller itself.

Differs from Java 5.3.3 ReplicasInfoManager#electMaster where that harms:
the first election takes the asker only when it is registered (Java elects unknown ids and -1),
an empty SyncStateSet counts as "first", an operator's -1 means "no preference", a lost master is
lost once (Java adds an epoch with each of three retries), and the new epoch is above every epoch
that heartbeats told of (a controller that lost its data would else hand out epochs that the
brokers' epoch files refuse, #6586). While a set that has lived elsewhere comes together, a first
election waits for a newer log that is heard and not registered yet.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import orjson
from msgspec import Struct
from msgspec.structs import replace

from rmqha.base.ids import BrokerId, MasterEpoch
from rmqha.controller.metadata.decide_query import master_fields
from rmqha.controller.metadata.decision import Context, Decision, LiveInfo
from rmqha.controller.metadata.elect import elect, held_back, is_master_best
from rmqha.controller.metadata.election_records import Why
from rmqha.controller.metadata.events import MasterElected
from rmqha.controller.metadata.fields import broker_id_field, flag_field
from rmqha.controller.metadata.state import BrokerSet, MetadataState
from rmqha.controller.metadata.why_elected import CAME_BACK, Ballot, candidates
from rmqha.remoting.codes import ResponseCode

HEARTBEAT_EPOCH_MAX = 2**30
"""A heartbeat epoch above this is not believed: the next ones must still fit Java's int."""

EPOCH_LEAP_MAX = 1_000
"""Nor, once this group has elected for the set, one that is so far ahead of it: a replica that knows
a newer epoch from controllers before them is a few failovers ahead, a stranger as far as it likes."""


class ElectRequest(Struct, frozen=True):
    """Who asks for a master.

    Attributes:
        asker: the broker that asks or that an operator designates; None for the controller.
        designate: only ``asker`` will do.
        complete_only: and not if it came back with less than it had confirmed; a broker that names
            another does not know that, an operator may.
        anew: the asker reigns and must not go on in its epoch; if it is the best, its reign ends, and it
            may be elected again.
        trigger: ``broker``, ``admin`` or ``controller``.
        reason: for the log.
    """

    broker_name: str
    asker: BrokerId | None
    designate: bool
    trigger: str
    reason: str
    complete_only: bool = False
    anew: bool = False


def decide_elect_master(
    state: MetadataState, context: Context, ext_fields: Mapping[str, str], body: bytes
) -> Decision:
    """1002 as it comes over the wire."""
    asker = broker_id_field(ext_fields, "brokerId")
    designated = flag_field(ext_fields, "designateElect")
    request = ElectRequest(
        broker_name=ext_fields.get("brokerName", ""),
        asker=asker,
        designate=designated and asker is not None,
        trigger="admin" if designated else "broker",
        reason="designated" if designated else "asked",
        complete_only=flag_field(ext_fields, "completeOnly"),
        anew=flag_field(ext_fields, "anew"),
    )
    return elect_master(state, context, request)


def elect_master(state: MetadataState, context: Context, request: ElectRequest) -> Decision:
    """Elect, keep (2011), lose (2004) or leave without (2012) a master."""
    broker_set = state.sets.get(request.broker_name)
    if broker_set is None:
        return Decision(
            ResponseCode.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED, "Broker hasn't been registered"
        )
    first = broker_set.master_epoch == 0 or not broker_set.sync_state_set
    if first and request.asker is not None:
        if request.asker not in broker_set.replicas:
            return Decision(
                ResponseCode.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED,
                f"BrokerId: {request.asker} hasn't been registered"
                f" in broker-set: {broker_set.broker_name}",
            )
        elected = _first_master(broker_set, context, request, request.asker)
    else:
        elected = _next_master(broker_set, context, request)
    if elected is None:
        decision = _nobody(broker_set, context, request)
    elif elected == broker_set.master_broker_id and request.anew and _is_best(broker_set, context):
        elected, decision = None, _lost(broker_set, request)
    elif elected == broker_set.master_broker_id:
        decision = _kept(broker_set)
    else:
        # Only who has never had a master has nothing to lose: an operator may have cleaned whoever
        # was in sync, and those who are left were not.
        unclean = broker_set.master_epoch > 0 and elected not in broker_set.sync_state_set
        decision = _elected(broker_set, context, request, elected, unclean)
    return _explained(decision, context, _ballot(broker_set, context, request, elected, first))


def _ballot(
    broker_set: BrokerSet,
    context: Context,
    request: ElectRequest,
    elected: BrokerId | None,
    first: bool,
) -> Ballot:
    asks = None if request.designate else request.asker
    never_lived = first and _highest_heartbeat_epoch(broker_set, context) < 1
    return Ballot(
        replicas=tuple(sorted(broker_set.replicas)),
        sync_state_set=broker_set.sync_state_set,
        any_replica=first,
        elected=elected,
        old_master=broker_set.master_broker_id,
        prefer=request.asker if request.designate else None,
        asked_first=never_lived and asks is not None,
        alive=lambda broker_id: _alive(broker_set, context, asks, broker_id),
        info=lambda broker_id: _info(broker_set, context, broker_id),
    )


def _explained(decision: Decision, context: Context, ballot: Ballot) -> Decision:
    found, left_out = candidates(context.now_ms, ballot)
    if decision.code == ResponseCode.CONTROLLER_ELECT_MASTER_FAILED:
        back = [str(one.broker_id) for one in found if one.verdict == CAME_BACK]
        if back:
            decision = replace(decision, remark=f"{decision.remark}: {', '.join(back)} {CAME_BACK}")
    event, offset_ms = decision.event, context.wall_offset_ms
    if isinstance(event, MasterElected) and context.elections_per_set and context.elections_in_all:
        arrived_ms = context.now_ms if context.arrived_ms is None else context.arrived_ms
        decided_ms = None if offset_ms is None else context.now_ms + offset_ms
        why = Why(
            context.elections_per_set, context.elections_in_all, decided_ms,
            context.now_ms - arrived_ms, found, left_out,
        )  # fmt: skip
        event = replace(event, why=why)
    return replace(decision, event=event, ballot=(found, left_out))


def _first_master(
    broker_set: BrokerSet, context: Context, request: ElectRequest, asker: BrokerId
) -> BrokerId | None:
    if request.designate:
        return asker if _alive(broker_set, context, None, asker) else None
    if _is_learner(broker_set, context, asker):
        return None
    if _highest_heartbeat_epoch(broker_set, context) < 1:
        return asker
    # The set has lived under a controller whose data is gone: the asker may be the one that
    # lacks messages, so the replica with the newest log is taken.
    newest = _policy(broker_set, context, tuple(broker_set.replicas), None, None, asker)
    return None if newest is None or _awaits_newer(broker_set, context, newest) else newest


def _awaits_newer(broker_set: BrokerSet, context: Context, newest: BrokerId) -> bool:
    """Whether a newer log than any registered one is heard, and may still be registered.

    Brokers ask again; the wait ends with the grace, for that broker may never come.
    """
    cluster, name = broker_set.cluster_name, broker_set.broker_name
    first_ms = context.live.first_heard_ms(cluster, name)
    if first_ms is None or context.now_ms - first_ms >= context.cold_start_grace_ms:
        return False
    said = _info(broker_set, context, newest)
    position = (-1, -1) if said is None else (said.epoch, said.max_offset)
    return any(
        (one.epoch, one.max_offset) > position
        and broker_id not in broker_set.replicas
        and not one.learner
        and context.live.alive(context.now_ms, cluster, name, broker_id)
        for broker_id, one in _believed(broker_set, context)
    )


def _next_master(broker_set: BrokerSet, context: Context, request: ElectRequest) -> BrokerId | None:
    # An operator's choice is not thereby heard of; a broker that asks for itself is.
    itself = None if request.designate else request.asker
    prefer = request.asker if request.designate else None
    members = broker_set.sync_state_set
    if prefer is None or request.complete_only:
        held = held_back(
            members,
            alive=lambda broker_id: _alive(broker_set, context, itself, broker_id),
            info=lambda broker_id: _info(broker_set, context, broker_id),
        )
        members = tuple(
            one for one in members if one not in held or _only_silent(broker_set, context, one)
        )
    return _policy(
        broker_set,
        context,
        members,
        tuple(broker_set.replicas) if context.enable_elect_unclean_master else None,
        prefer,
        itself,
    )


def _only_silent(broker_set: BrokerSet, context: Context, broker_id: BrokerId) -> bool:
    """Who reigns, and has not beaten over its new connection yet, is not deposed for that."""
    said = _info(broker_set, context, broker_id)
    return broker_id == broker_set.master_broker_id and said is not None and said.lacks_to < 0


def _is_best(broker_set: BrokerSet, context: Context) -> bool:
    return is_master_best(
        broker_set.sync_state_set,
        broker_set.master_broker_id,
        alive=lambda broker_id: _alive(broker_set, context, None, broker_id),
        info=lambda broker_id: _info(broker_set, context, broker_id),
    )


def _policy(
    broker_set: BrokerSet,
    context: Context,
    first_choice: tuple[BrokerId, ...],
    second_choice: tuple[BrokerId, ...] | None,
    prefer: BrokerId | None,
    asker: BrokerId | None,
) -> BrokerId | None:
    return elect(
        first_choice,
        second_choice,
        old_master=broker_set.master_broker_id,
        prefer=prefer,
        alive=lambda broker_id: _alive(broker_set, context, asker, broker_id),
        info=lambda broker_id: _info(broker_set, context, broker_id),
    )


def _alive(
    broker_set: BrokerSet, context: Context, asker: BrokerId | None, broker_id: BrokerId
) -> bool:
    if _is_learner(broker_set, context, broker_id):
        return False
    return broker_id in broker_set.replicas and (
        broker_id == asker
        or context.live.alive(
            context.now_ms, broker_set.cluster_name, broker_set.broker_name, broker_id
        )
    )


def _is_learner(broker_set: BrokerSet, context: Context, broker_id: BrokerId) -> bool:
    """Java's learners do not say so, and are kept out by never being in a SyncStateSet."""
    said = _info(broker_set, context, broker_id)
    return said is not None and said.learner


def _info(broker_set: BrokerSet, context: Context, broker_id: BrokerId) -> LiveInfo | None:
    return context.live.info(broker_set.cluster_name, broker_set.broker_name, broker_id)


def _highest_heartbeat_epoch(broker_set: BrokerSet, context: Context) -> int:
    return max((one.epoch for _, one in _believed(broker_set, context)), default=-1)


def _believed(broker_set: BrokerSet, context: Context) -> Iterator[tuple[BrokerId, LiveInfo]]:
    """What everyone of the set said that is heard, registered or not, alive or not."""
    known = broker_set.master_epoch
    limit = min(HEARTBEAT_EPOCH_MAX, known + EPOCH_LEAP_MAX) if known else HEARTBEAT_EPOCH_MAX
    for broker_id, said in context.live.heard_in(broker_set.cluster_name, broker_set.broker_name):
        if said.epoch <= limit:
            yield broker_id, said


def _nobody(broker_set: BrokerSet, context: Context, request: ElectRequest) -> Decision:
    if request.asker is not None:
        best = _is_best(broker_set, context)
        return Decision(
            ResponseCode.CONTROLLER_ELECT_MASTER_FAILED,
            "Failed to elect a new master",
            {"masterIsBest": "true"} if best else {},
        )
    return _lost(broker_set, request)


def _lost(broker_set: BrokerSet, request: ElectRequest) -> Decision:
    lost = MasterElected(
        broker_name=broker_set.broker_name,
        new_master_broker_id=None,
        master_epoch=MasterEpoch(broker_set.master_epoch + 1),
        trigger=request.trigger,
        reason=request.reason,
        unclean=False,
    )
    return Decision(
        ResponseCode.CONTROLLER_MASTER_NOT_AVAILABLE,
        "Old master has down and failed to elect a new broker master",
        event=None if broker_set.master_broker_id is None else lost,
    )


def _kept(broker_set: BrokerSet) -> Decision:
    return Decision(
        ResponseCode.CONTROLLER_MASTER_STILL_EXIST,
        f"The old master {broker_set.master_broker_id} is still alive,"
        f" not need to elect new master for broker {broker_set.broker_name}",
        master_fields(broker_set),
        orjson.dumps({"syncStateSet": list(broker_set.sync_state_set)}),
    )


def _elected(
    broker_set: BrokerSet,
    context: Context,
    request: ElectRequest,
    elected: BrokerId,
    unclean: bool,
) -> Decision:
    known = max(broker_set.master_epoch, _highest_heartbeat_epoch(broker_set, context))
    event = MasterElected(
        broker_name=broker_set.broker_name,
        new_master_broker_id=elected,
        master_epoch=MasterEpoch(known + 1),
        trigger=request.trigger,
        reason=request.reason,
        unclean=unclean,
    )
    return Decision(
        ResponseCode.SUCCESS,
        ext_fields={
            "masterBrokerId": str(elected),
            "masterAddress": broker_set.replicas[elected].address,
            "masterEpoch": str(event.master_epoch),
            "syncStateSetEpoch": str(broker_set.sync_state_set_epoch + 1),
        },
        body=_elect_body(broker_set, elected),
        event=event,
    )


def _elect_body(broker_set: BrokerSet, elected: BrokerId) -> bytes:
    addresses = {
        str(broker_id): broker_set.replicas[broker_id].address
        for broker_id in sorted(broker_set.replicas)
    }
    group = {
        "brokerAddrs": addresses,
        "brokerName": broker_set.broker_name,
        "cluster": broker_set.cluster_name,
    }
    # mqadmin reads the group from the top level, where it was before 5.1.1; brokers ignore it.
    return orjson.dumps({**group, "brokerMemberGroup": group, "syncStateSet": [elected]})
