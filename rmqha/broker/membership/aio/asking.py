"""Carries out ``Ask``: one request to a controller or a replica, and the event that it ends in."""

from __future__ import annotations

from rmqha.base.errors import ConnectFailed, LocalProtocolError, RmqhaError
from rmqha.broker.membership.events import Answered, Ask, Unanswered
from rmqha.remoting.aio.client import RemotingClient
from rmqha.remoting.command import RemotingCommand


async def ask(client: RemotingClient, effect: Ask) -> Answered | Unanswered:
    """Send the request and wait for what becomes of it; no error of the network is raised."""
    command = RemotingCommand(effect.code, ext_fields=effect.fields or None, body=effect.body)
    try:
        answer = await client.invoke(effect.address, command, effect.timeout_ms)
    except (ConnectFailed, LocalProtocolError) as error:
        return Unanswered(effect.token, sent=False, reason=str(error))
    except RmqhaError as error:
        return Unanswered(effect.token, sent=True, reason=str(error))
    return Answered(effect.token, answer.code, answer.ext_fields, answer.body, answer.remark or "")
