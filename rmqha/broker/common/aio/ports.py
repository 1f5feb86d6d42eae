"""What every room may see of the broker around it.

Each floor of rooms adds its own things (``topics/aio/ports.py``, ``groups/aio/ports.py``,
``pull/aio/ports.py``); a handler names the lowest floor that has what it needs.

A handler answers at once by returning a response, or later by sending it on the connection and
returning None. It makes no decision that a pure file next to it could make.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from rmqha.broker.common.aio.answers import Answers
from rmqha.broker.common.aio.config_file import FileTroubles
from rmqha.broker.common.settings import BrokerConfig
from rmqha.broker.common.statistics import Statistics
from rmqha.ha.aio.service import HaService
from rmqha.ha.events import Role
from rmqha.ha.ha_core import HaCore
from rmqha.remoting.aio.connection import Connection
from rmqha.remoting.codes import ResponseCode
from rmqha.remoting.command import RemotingCommand
from rmqha.runtime.aio.tasks import Tasks
from rmqha.runtime.ports import Clock
from rmqha.store.aio.message_store import MessageStore

Handler = Callable[[Connection, RemotingCommand], RemotingCommand | None]
Handlers = Mapping[int, Handler]


class Broker(Protocol):
    """The lowest floor.

    Attributes:
        ha, ha_core: None before the broker has its id.
        statistics: what was written and read.
        troubles: files that cannot be written now.
        answers: requests whose answers take time.
    """

    config: BrokerConfig
    clock: Clock
    store: MessageStore
    ha: HaService | None
    ha_core: HaCore | None
    statistics: Statistics
    troubles: FileTroubles
    answers: Answers
    tasks: Tasks

    @property
    def role(self) -> Role | None:
        """The complete role; None while the broker is fenced."""

    @property
    def name_servers(self) -> tuple[str, ...]:
        """The name servers that are known now."""

    @property
    def near_bytes(self) -> int:
        """How far behind the log's end a message still counts as being in memory."""


def unwritable(broker: Broker, request: RemotingCommand) -> RemotingCommand | None:
    """The answer to a change while a file of the configuration cannot be written; None if all can.

    A change that only memory holds is gone with the process.
    """
    for path, reason in sorted(broker.troubles.reasons.items()):
        return request.reply(
            ResponseCode.SYSTEM_ERROR, f"nothing is changed: {path} cannot be written: {reason}"
        )
    return None
