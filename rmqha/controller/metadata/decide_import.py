"""60013: a set that has lived under other controllers is taken in as they left it.

Only while the set is not known here: what these controllers have decided is never overwritten. Not
when a broker of the set has been heard to know a newer epoch: the export is older than the truth.
"""

from __future__ import annotations

from collections.abc import Mapping

from rmqha.base.errors import RemoteProtocolError
from rmqha.controller.metadata.decide_elect import HEARTBEAT_EPOCH_MAX
from rmqha.controller.metadata.decide_register import ADDRESS_LENGTH_MAX, NAME_LENGTH_MAX
from rmqha.controller.metadata.decision import Context, Decision
from rmqha.controller.metadata.imported import imported_set, to_event
from rmqha.controller.metadata.state import MetadataState
from rmqha.remoting.broker_set_state import BrokerSetState
from rmqha.remoting.codes import ResponseCode
from rmqha.remoting.headers import INT64_MAX

_HEAD_BYTES_MAX = 8 * 1024
_REPLICA_BYTES_MAX = ADDRESS_LENGTH_MAX + 128
"""Of the state as JSON: two names and some numbers; and each replica, with its id among those in sync."""

_COMMAS_MAX = 4
"""Three are a replica's, and eight those of the rest."""


def decide_import_broker_set(
    state: MetadataState, context: Context, ext_fields: Mapping[str, str], body: bytes
) -> Decision:
    """Take the set of the body in; ``brokerName`` names it, too."""
    most = context.replicas_per_set_max
    size_max = _HEAD_BYTES_MAX + _REPLICA_BYTES_MAX * most
    if len(body) > size_max or body.count(b",") > _COMMAS_MAX * (most + 8):
        return _refused(f"the state is too long: a broker-set has {most} replicas at most")
    try:
        said = BrokerSetState.decode(body)
    except RemoteProtocolError as error:
        return _refused(str(error))
    name, cluster = said.broker_name, said.cluster_name or ""
    problem = _malformed(said, context)
    if name != ext_fields.get("brokerName"):
        problem = "brokerName is another one than the body's"
    if problem is not None:
        return _refused(problem)
    event = to_event(said, cluster)
    known = state.sets.get(name)
    if known is not None:
        if known == imported_set(event):
            return Decision(ResponseCode.SUCCESS)  # the answer of before was lost
        return _refused(
            f"Broker-set: {name} is known already, with master epoch {known.master_epoch}:"
            " it is not overwritten"
        )
    if len(state.sets) >= context.broker_sets_max:
        return _refused(f"the controller keeps {context.broker_sets_max} broker-sets at most")
    for broker_id, heard in context.live.heard_in(cluster, name):
        if said.master_epoch < heard.epoch <= HEARTBEAT_EPOCH_MAX:
            return _refused(
                f"broker {broker_id} of {name} knows epoch {heard.epoch}, and the export ends with"
                f" {said.master_epoch}: it is older than an election of the old controllers"
            )
    return Decision(ResponseCode.SUCCESS, event=event)


def _malformed(said: BrokerSetState, context: Context) -> str | None:
    """Why a set cannot be taken in as it is told; everything stored is bounded."""
    name, cluster = said.broker_name, said.cluster_name or ""
    ids = {one.broker_id for one in said.replicas}
    members = set(said.sync_state_set)
    master, most = said.master_broker_id, context.replicas_per_set_max
    numbers = (*ids, said.next_broker_id)
    lengths = [len(one.broker_address) for one in said.replicas]
    epochs = (said.master_epoch, said.sync_state_set_epoch)
    problems = (
        (not name or not cluster, "clusterName and brokerName must be known"),
        (
            max(len(name), len(cluster)) > NAME_LENGTH_MAX,
            f"brokerName and clusterName may have {NAME_LENGTH_MAX} characters",
        ),
        (not 0 < len(lengths) <= most, f"a broker-set has 1 to {most} replicas"),
        (
            (len(ids), len(members)) != (len(lengths), len(said.sync_state_set)),
            "an id is named twice",
        ),
        (not all(1 <= one <= INT64_MAX for one in numbers), "ids are numbers from 1 on"),
        (
            not all(0 < one <= ADDRESS_LENGTH_MAX for one in lengths),
            f"an address has 1 to {ADDRESS_LENGTH_MAX} characters",
        ),
        (not members <= ids, f"of the SyncStateSet {sorted(members - ids)} are no replicas"),
        (
            master is not None and master not in members,
            f"the master {master} is not in its SyncStateSet",
        ),
        (
            not all(0 <= one <= HEARTBEAT_EPOCH_MAX for one in epochs),
            f"epochs are numbers from 0 to {HEARTBEAT_EPOCH_MAX}",
        ),
        (
            bool(members) and said.master_epoch == 0,
            "a set that never had a master has no SyncStateSet",
        ),
    )
    return next((words for is_so, words in problems if is_so), None)


def _refused(remark: str) -> Decision:
    return Decision(ResponseCode.CONTROLLER_INVALID_REQUEST, remark)
