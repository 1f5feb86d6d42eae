"""From a request's code to the function that decides it: pure, on the applied state.

One function a request, all of the shape ``(state, context, ext_fields, body) -> Decision``;
checks in Java's order, Java's remarks. Source: RIP-44; Java 5.3.3 ReplicasInfoManager.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from rmqha.controller.metadata import by_address
from rmqha.controller.metadata.decide_alter import decide_alter_sync_state_set
from rmqha.controller.metadata.decide_clean import decide_clean_broker_data
from rmqha.controller.metadata.decide_elect import decide_elect_master
from rmqha.controller.metadata.decide_history import (
    decide_explain_election,
    decide_get_election_history,
)
from rmqha.controller.metadata.decide_import import decide_import_broker_set
from rmqha.controller.metadata.decide_query import (
    decide_get_next_broker_id,
    decide_get_replica_info,
)
from rmqha.controller.metadata.decide_register import (
    decide_apply_broker_id,
    decide_register_broker,
)
from rmqha.controller.metadata.decision import Context, Decision
from rmqha.controller.metadata.state import MetadataState
from rmqha.controller.metadata.sync_state_data import decide_get_sync_state_data
from rmqha.remoting.codes import RequestCode, ResponseCode

Decider = Callable[[MetadataState, Context, Mapping[str, str], bytes], Decision]

READS: dict[int, Decider] = {
    RequestCode.CONTROLLER_GET_REPLICA_INFO: decide_get_replica_info,
    RequestCode.CONTROLLER_GET_SYNC_STATE_DATA: decide_get_sync_state_data,
    RequestCode.CONTROLLER_GET_NEXT_BROKER_ID: decide_get_next_broker_id,
    RequestCode.GET_ELECTION_HISTORY: decide_get_election_history,
    RequestCode.EXPLAIN_ELECTION: decide_explain_election,
}
"""Requests that never change anything, so they need not wait for another one's commit."""

WRITES: dict[int, Decider] = {
    RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET: decide_alter_sync_state_set,
    RequestCode.CONTROLLER_ELECT_MASTER: decide_elect_master,
    RequestCode.CONTROLLER_REGISTER_BROKER: decide_register_broker,
    RequestCode.CLEAN_BROKER_DATA: decide_clean_broker_data,
    RequestCode.CONTROLLER_APPLY_BROKER_ID: decide_apply_broker_id,
    RequestCode.IMPORT_BROKER_SET: decide_import_broker_set,
}
"""Requests that may append an event; one at a time for each broker set."""

NOT_LEADER = Decision(ResponseCode.CONTROLLER_NOT_LEADER, "The controller is not in leader state")


def decide(
    state: MetadataState,
    context: Context,
    code: int,
    ext_fields: Mapping[str, str],
    body: bytes,
) -> Decision:
    """Decide a request of READS or WRITES; any other code gets 3, with Java's leading blank."""
    if by_address.is_by_address(code, ext_fields):
        return by_address.DECIDERS[code](state, context, ext_fields, body)
    decider = WRITES.get(code) or READS.get(code)
    if decider is None:
        return not_supported(code)
    return decider(state, context, ext_fields, body)


def not_supported(code: int) -> Decision:
    """The answer to a code that no handler knows."""
    return Decision(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, f" request type {code} not supported")
