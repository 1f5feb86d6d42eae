"""1006: the replicas of all named broker sets, in and out of sync.

mqadmin may ask for all sets of a cluster at once, which takes longer than followers wait for their
leader: such a question is taken apart into smaller ones of the same kind, and their answers are put
together. Each set is of one moment, and two sets may be of different ones: no rule binds a set to
another, and each moment is later than the question. Source: Java 5.3.3 ReplicasInfoManager.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence

import orjson

from rmqha.base.ids import BrokerId
from rmqha.controller.metadata.decision import Context, Decision
from rmqha.controller.metadata.state import BrokerSet, MetadataState
from rmqha.remoting.codes import ResponseCode
from rmqha.remoting.settings import FRAME_BYTES_MAX

NAMES_BYTES_MAX = 2 * 1024 * 1024
"""Of the question: 20,000 names of 100 characters."""
REPLICAS_A_PART = 256
"""About a millisecond."""

NOT_SET = Decision(ResponseCode.SYSTEM_ERROR, "not set any response code")
TOO_LARGE = Decision(
    ResponseCode.SYSTEM_ERROR,
    f"the answer is over {FRAME_BYTES_MAX} bytes: ask for fewer broker-sets at a time",
)

_HEAD, _TAIL = b'{"replicasInfoTable":{', b"}}"


def decide_get_sync_state_data(
    state: MetadataState, context: Context, ext_fields: Mapping[str, str], body: bytes
) -> Decision:
    """1006: replicas in and out of sync of each named set; unknown names are left out."""
    names = _known_names(state, body, context.broker_sets_max)
    if isinstance(names, Decision):
        return names
    table = {name: _replicas_info(state.sets[name], context) for name in names}
    return Decision(ResponseCode.SUCCESS, body=orjson.dumps({"replicasInfoTable": table}))


def parts_of(state: MetadataState, body: bytes, names_max: int) -> list[bytes]:
    """The bodies of smaller questions that ask for the same; none where one answer takes no time."""
    names = _known_names(state, body, names_max)
    if isinstance(names, Decision):
        return []
    parts: list[list[str]] = []
    replicas = REPLICAS_A_PART
    for name in names:
        if replicas >= REPLICAS_A_PART:
            parts.append([])
            replicas = 0
        parts[-1].append(name)
        replicas += len(state.sets[name].replicas)
    is_quick = len(parts) <= 1 and replicas <= REPLICAS_A_PART
    return [] if is_quick else list(map(orjson.dumps, parts))


def put_together(
    ask: Callable[[bytes], Decision], parts: Sequence[bytes]
) -> Generator[None, None, Decision | list[bytes]]:
    """Ask the smaller questions one after another, and answer the large one.

    Returns:
        The body in pieces, for copying it whole takes long; a decision where there is none.
    """
    pieces = [_HEAD]
    size = len(_HEAD)
    for part in parts:
        answer = ask(part)
        if answer.code != ResponseCode.SUCCESS:
            return answer
        table = answer.body[len(_HEAD) : -len(_TAIL)]
        if table:
            pieces.append(table if len(pieces) == 1 else b"," + table)
        size += len(table) + 1
        if size > FRAME_BYTES_MAX:
            return TOO_LARGE
        yield
    pieces.append(_TAIL)
    return pieces


def _known_names(state: MetadataState, body: bytes, names_max: int) -> list[str] | Decision:
    """The names of sets in a body, each once and ascending, or why it is not looked at."""
    # A name may hold commas, too: who has such ones asks for fewer sets at a time.
    if len(body) > NAMES_BYTES_MAX or body.count(b",") >= names_max:
        return Decision(
            ResponseCode.CONTROLLER_INVALID_REQUEST,
            f"{names_max} broker-sets and {NAMES_BYTES_MAX} bytes at most: ask for fewer at a time",
        )
    try:
        names = orjson.loads(body)
    except orjson.JSONDecodeError:
        return NOT_SET
    if not isinstance(names, list) or not names:
        return NOT_SET
    return sorted({name for name in names if isinstance(name, str) and name in state.sets})


def _replicas_info(broker_set: BrokerSet, context: Context) -> dict[str, object]:
    in_sync: list[dict[str, object]] = []
    not_in_sync: list[dict[str, object]] = []
    members = frozenset(broker_set.sync_state_set)
    for broker_id in sorted(broker_set.replicas):
        group = in_sync if broker_id in members else not_in_sync
        group.append(_replica_identity(broker_set, context, broker_id))
    info: dict[str, object] = {"inSyncReplicas": in_sync}
    address = broker_set.address(broker_set.master_broker_id)
    if address is not None:
        info["masterAddress"] = address
    if broker_set.master_broker_id is not None:
        info["masterBrokerId"] = broker_set.master_broker_id
    info["masterEpoch"] = broker_set.master_epoch
    info["notInSyncReplicas"] = not_in_sync
    info["syncStateSetEpoch"] = broker_set.sync_state_set_epoch
    return info


def _replica_identity(
    broker_set: BrokerSet, context: Context, broker_id: BrokerId
) -> dict[str, object]:
    name = broker_set.broker_name
    return {
        "alive": context.live.alive(context.now_ms, broker_set.cluster_name, name, broker_id),
        "brokerAddress": broker_set.replicas[broker_id].address,
        "brokerId": broker_id,
        "brokerName": name,
    }
