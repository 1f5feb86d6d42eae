"""Answers that are always the same, and small conversions on the machine's way out."""

from __future__ import annotations

from rmqha.base.machine import Note
from rmqha.controller.metadata.decision import Decision
from rmqha.controller.metadata.lanes import Work
from rmqha.controller.metadata.messages import ControllerEffect, Reply
from rmqha.controller.metadata.registrations import Identity
from rmqha.remoting.codes import ResponseCode
from rmqha.remoting.heartbeat import Heartbeat

HEARTBEAT_OK = Decision(ResponseCode.SUCCESS, "Heart beat success")
HEARTBEAT_NO_ID = Decision(
    ResponseCode.CONTROLLER_INVALID_REQUEST, "Heart beat with empty brokerId"
)
BUSY = Decision(ResponseCode.SYSTEM_BUSY, "[OVERLOAD]system busy, start flow control for a while")
ANNOUNCING = Decision(
    ResponseCode.SYSTEM_BUSY, "an election is being announced, the new master first; ask again"
)
OVERTAKEN = Decision(ResponseCode.SYSTEM_ERROR, "the broker-set changed in the meantime")
GONE = Decision(ResponseCode.SYSTEM_ERROR, "the connection was closed")

ELECTION_RESULTS: dict[int, str] = {
    ResponseCode.SUCCESS: "new_master_elected",
    ResponseCode.CONTROLLER_MASTER_STILL_EXIST: "keep_current_master",
    ResponseCode.CONTROLLER_MASTER_NOT_AVAILABLE: "no_master_elected",
    ResponseCode.CONTROLLER_ELECT_MASTER_FAILED: "no_master_elected",
}


def heartbeat_answer(beat: Heartbeat) -> Decision:
    """What somebody hears who sends 904 as a normal request; brokers send it one way."""
    return HEARTBEAT_NO_ID if beat.broker_id < 1 else HEARTBEAT_OK


def reply(token: int, decision: Decision) -> Reply:
    """The effect that sends a decision."""
    return Reply(token, decision.code, decision.remark, decision.ext_fields, decision.body)


def answer_to(work: Work, decision: Decision) -> list[ControllerEffect]:
    """The reply to a request; the controller's own elections have nobody to answer."""
    return [] if work.request is None else [reply(work.request.token, decision)]


def quiet(note: Note | None) -> list[ControllerEffect]:
    """Another node's transition: people read the leader's line."""
    if note is None:
        return []
    return [Note(note.event, "debug", note.facts) if note.level == "info" else note]


def broker_facts(identity: Identity) -> dict[str, object]:
    """The keys that name a broker in a note."""
    cluster, name, broker_id = identity
    return {"cluster": cluster, "broker_name": name, "broker_id": broker_id}
