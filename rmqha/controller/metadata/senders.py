"""Who sends a request: any valid one is a sign of life of the broker it names (#10812)."""

from __future__ import annotations

from collections.abc import Mapping

from rmqha.base.ids import BrokerId
from rmqha.controller.metadata.by_address import address_in, id_at, is_by_address
from rmqha.controller.metadata.fields import broker_id_field, flag_field
from rmqha.controller.metadata.state import MetadataState
from rmqha.remoting.codes import RequestCode

_ID_FIELDS: dict[int, str] = {
    RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET: "masterBrokerId",
    RequestCode.CONTROLLER_ELECT_MASTER: "brokerId",
    RequestCode.CONTROLLER_REGISTER_BROKER: "brokerId",
    RequestCode.CONTROLLER_APPLY_BROKER_ID: "appliedBrokerId",
}


def sender(
    state: MetadataState, code: int, ext_fields: Mapping[str, str]
) -> tuple[str, str, BrokerId] | None:
    """The registered broker that sent this, as (stored cluster, name, id).

    An operator's 1002 (``designateElect``) names somebody else and gives None.
    """
    id_field = _ID_FIELDS.get(code)
    if id_field is None or flag_field(ext_fields, "designateElect"):
        return None
    broker_set = state.sets.get(ext_fields.get("brokerName", ""))
    broker_id = broker_id_field(ext_fields, id_field)
    if is_by_address(code, ext_fields):
        broker_id = id_at(broker_set, address_in(code, ext_fields))
    if broker_set is None or broker_id is None or broker_id not in broker_set.replicas:
        return None
    if code == RequestCode.CONTROLLER_APPLY_BROKER_ID:
        # Two that start together may apply for one id: the loser is not who has it.
        code_of_owner = broker_set.replicas[broker_id].register_check_code
        if ext_fields.get("registerCheckCode") != code_of_owner:
            return None
    return broker_set.cluster_name, broker_set.broker_name, broker_id
