"""Answers that are given often are encoded once; each time only the opaque is written anew."""

from __future__ import annotations

from rmqha.base.errors import LocalProtocolError
from rmqha.controller.metadata.decision import Decision
from rmqha.controller.metadata.messages import Reply
from rmqha.remoting.aio.connection import Connection
from rmqha.remoting.codes import ResponseCode
from rmqha.remoting.command import SERIALIZE_JSON, RemotingCommand
from rmqha.remoting.frame import encode
from rmqha.remoting.repeats import ReplyTemplate

TEMPLATES_MAX = 4096


def reply_to(command: RemotingCommand, decision: Decision | Reply) -> RemotingCommand:
    """The response that carries a decision."""
    return command.reply(decision.code, decision.remark, decision.ext_fields, decision.body)


def tell(connection: Connection, command: RemotingCommand, answer: RemotingCommand) -> None:
    """Answer a request, unless it was sent one-way: nobody waits then, and Java logs a warning."""
    if not command.is_oneway:
        connection.send(answer)


def answer_frame(command: RemotingCommand, decision: Decision) -> bytes:
    """The whole frame of the response; of one that makes no frame, of 1 and the reason."""
    try:
        return encode(reply_to(command, decision))
    except LocalProtocolError as error:
        return encode(command.reply(ResponseCode.SYSTEM_ERROR, str(error)))


class RepeatedReplies:
    """Encoded responses by the decision they carry; for decisions that live long."""

    def __init__(self, templates_max: int = TEMPLATES_MAX) -> None:
        self._templates_max = templates_max
        self._templates: dict[int, tuple[Decision, ReplyTemplate]] = {}

    def frame(self, command: RemotingCommand, decision: Decision) -> bytes:
        """The whole frame of the response to ``command``."""
        if command.serialize_type != SERIALIZE_JSON:
            return answer_frame(command, decision)
        known = self._templates.get(id(decision))
        if known is None or known[0] is not decision:
            if len(self._templates) >= self._templates_max:
                self._templates.clear()
            template = ReplyTemplate(
                decision.code, decision.remark, decision.ext_fields, decision.body
            )
            # The decision is kept, so that its id cannot become another one's.
            known = self._templates[id(decision)] = (decision, template)
        return known[1].frame(command.opaque)
