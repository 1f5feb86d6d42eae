"""1011 CLEAN_BROKER_DATA: an operator removes replicas, or a whole set.

Unlike Java, ``isCleanLivingBroker`` with ids removes only those ids, and liveness is looked up
under the set's stored cluster, so that a mistyped cluster name cannot clean living brokers.
Source: Java 5.3.3 ReplicasInfoManager#cleanBrokerData.
"""

from __future__ import annotations

from collections.abc import Mapping

from rmqha.base.ids import BrokerId
from rmqha.controller.metadata.decision import Context, Decision
from rmqha.controller.metadata.events import BrokerDataCleaned
from rmqha.controller.metadata.fields import flag_field
from rmqha.controller.metadata.state import BrokerSet, MetadataState
from rmqha.remoting.codes import ResponseCode
from rmqha.remoting.headers import INT64_MAX, parse_number

IDS_PER_REPLICA = 2
"""So many ids are looked at, by the replicas that a set may have: some were cleaned before."""


def decide_clean_broker_data(
    state: MetadataState, context: Context, ext_fields: Mapping[str, str], body: bytes
) -> Decision:
    """Remove the given ids, or all when none are given; living brokers only on request."""
    name = ext_fields.get("brokerName", "")
    named = ext_fields.get("brokerControllerIdsToClean", "")
    if named.count(";") > IDS_PER_REPLICA * context.replicas_per_set_max:
        most = IDS_PER_REPLICA * context.replicas_per_set_max
        return _refused(f"<brokerControllerIdsToClean> may name {most} ids at most")
    texts = _split(named)
    living_too = flag_field(ext_fields, "isCleanLivingBroker")
    broker_set = state.sets.get(name)
    ids: list[BrokerId] = []
    if not texts and not living_too and _has_master(broker_set):
        return _refused(f"Broker {name} is still alive, clean up failure")
    for text in texts:
        number = parse_number(text, INT64_MAX)
        if number is None:
            return _refused(
                "Please set the option <brokerControllerIdsToClean> according to the format,"
                f' exception: java.lang.NumberFormatException: For input string: "{text}"'
            )
        broker_id = BrokerId(number)
        if not living_too and _alive(broker_set, context, broker_id):
            return _refused(f"Broker [{name},  {broker_id}] is still alive, clean up failure")
        ids.append(broker_id)
    if broker_set is None:
        return _refused(f"Broker {name} is not existed,clean broker data failure.")
    event = BrokerDataCleaned(name, tuple(sorted(set(ids))) if texts else None)
    nothing_to_do = texts and not any(broker_id in broker_set.replicas for broker_id in ids)
    return Decision(ResponseCode.SUCCESS, event=None if nothing_to_do else event)


def _split(text: str) -> list[str]:
    # String#split of Java drops empty pieces at the end, not those between.
    return text.rstrip(";").split(";") if text.strip(" \t\r\n;") else []


def _has_master(broker_set: BrokerSet | None) -> bool:
    return broker_set is not None and broker_set.master_broker_id is not None


def _alive(broker_set: BrokerSet | None, context: Context, broker_id: BrokerId) -> bool:
    return broker_set is not None and context.live.alive(
        context.now_ms, broker_set.cluster_name, broker_set.broker_name, broker_id
    )


def _refused(remark: str) -> Decision:
    return Decision(ResponseCode.CONTROLLER_INVALID_CLEAN_BROKER_METADATA, remark)
