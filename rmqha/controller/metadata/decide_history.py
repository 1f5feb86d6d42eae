"""Questions about elections, in codes of our own: those that were, and one that would be.

Java controllers answer both with 3, so that a question never elects anybody: an unknown field of
1002 would be skipped there, and the election held.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice

import orjson

from rmqha.controller.metadata.decide_elect import decide_elect_master
from rmqha.controller.metadata.decision import Context, Decision
from rmqha.controller.metadata.election_records import Candidate, ElectionRecord
from rmqha.controller.metadata.election_stages import ElectionStages
from rmqha.controller.metadata.fields import int_field
from rmqha.controller.metadata.state import MetadataState
from rmqha.remoting.codes import ResponseCode

NEWEST_DEFAULT = 50
NEWEST_MAX = 1_000


def decide_get_election_history(
    state: MetadataState, context: Context, ext_fields: Mapping[str, str], body: bytes
) -> Decision:
    """60011: the newest elections, of ``brokerName`` or of all; ``maxNums`` of them, 50 unless told."""
    name = ext_fields.get("brokerName") or None
    if name is not None and name not in state.sets:
        return Decision(
            ResponseCode.CONTROLLER_BROKER_METADATA_NOT_EXIST, f"broker set {name} is not known"
        )
    count = int_field(ext_fields, "maxNums") or NEWEST_DEFAULT
    return Decision(ResponseCode.SUCCESS, body=history_json(state, context.stages, name, count))


def history_json(
    state: MetadataState, stages: ElectionStages | None, name: str | None, count: int
) -> bytes:
    """``{"elections": [...]}``, the newest first."""
    newest = islice(_newest(state, name), min(max(count, 1), NEWEST_MAX))
    return orjson.dumps({"elections": [_election(name, one, stages) for name, one in newest]})


def _newest(state: MetadataState, name: str | None) -> Iterator[tuple[str, ElectionRecord]]:
    if name is not None:
        for one in reversed(state.sets[name].elections):
            yield name, one
        return
    at: dict[str, int] = {}
    for number, owner in state.election_order.newest():
        at[owner] = at.get(owner, 0) - 1
        found = state.sets[owner].elections[at[owner]]
        assert found.number == number, "a set's elections stand in the order of their numbers"
        yield owner, found


def decide_explain_election(
    state: MetadataState, context: Context, ext_fields: Mapping[str, str], body: bytes
) -> Decision:
    """60012: what 1002 with the same fields would do now, and why; changes nothing."""
    would = decide_elect_master(state, context, ext_fields, b"")
    plain: dict[str, object] = {"code": int(would.code), "remark": would.remark}
    known = state.sets.get(ext_fields.get("brokerName", ""))
    if known is not None:
        plain |= {
            "brokerName": known.broker_name,
            "oldMaster": known.master_broker_id,
            "newMaster": None,
            "masterEpoch": known.master_epoch,
        }
    if would.ballot is not None:
        found, left_out = would.ballot
        plain |= {
            "newMaster": next((c.broker_id for c in found if c.verdict == "elected"), None),
            "candidates": [_candidate(one) for one in found],
            "candidatesLeftOut": left_out,
        }
    return Decision(ResponseCode.SUCCESS, body=orjson.dumps(plain))


def _election(name: str, one: ElectionRecord, stages: ElectionStages | None) -> dict[str, object]:
    after = None if stages is None else stages.of(name, one.master_epoch)
    why = one.why
    silent = {seen.broker_id: seen.silent_ms for seen in why.candidates}
    return {
        "brokerName": name,
        "number": one.number,
        "oldMaster": one.old_master,
        "newMaster": one.new_master,
        "masterEpoch": one.master_epoch,
        "trigger": one.trigger,
        "reason": one.reason,
        "unclean": one.unclean,
        "decidedMs": why.decided_ms,
        "oldMasterSilentMs": None if one.old_master is None else silent.get(one.old_master),
        "waitedMs": why.waited_ms,
        "commitMs": None if after is None else after.commit_ms,
        "toldMs": None if after is None else after.told_ms,
        "slavesToldMs": None if after is None else after.slaves_told_ms,
        "firstHeartbeatMs": None if after is None else after.first_heartbeat_ms,
        "candidates": [_candidate(seen) for seen in why.candidates],
        "candidatesLeftOut": why.left_out,
    }


def _candidate(one: Candidate) -> dict[str, object]:
    return {
        "brokerId": one.broker_id,
        "epoch": one.epoch,
        "maxOffset": one.max_offset,
        "priority": one.priority,
        "alive": one.alive,
        "inSyncStateSet": one.in_sync,
        "silentMs": one.silent_ms,
        "stalledMs": one.stalled_ms,
        "verdict": one.verdict,
    }
