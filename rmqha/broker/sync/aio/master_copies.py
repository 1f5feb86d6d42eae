"""What a slave takes from its master beside the log, put together: tables and positions."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from rmqha.broker.deferred.aio.master_services import MasterServices
from rmqha.broker.groups.aio.ports import Broker
from rmqha.broker.sync.aio.first_copy import FirstCopy
from rmqha.broker.sync.aio.master_questions import MasterQuestions
from rmqha.broker.sync.aio.metadata_log import MetadataLog
from rmqha.broker.sync.aio.positions import PositionSync
from rmqha.broker.sync.aio.tables import SlaveSync
from rmqha.broker.topics.aio.rights import slave_credentials
from rmqha.remoting.aio.client import RemotingClient
from rmqha.remoting.codes import RequestCode
from rmqha.runtime.logs import Logger


class MasterCopies:
    """Of one broker.

    Args:
        followed: the service address of the master that this broker follows.
        take_modes: takes a master's request modes.
        connect, save: see ``FirstCopy``.

    Attributes:
        questions: asks the master.
        tables: copies topics, groups and what else has a file.
        first: holds a slave back while its tables are unknown.
        positions: copies how far groups, delays and timers are.
    """

    def __init__(
        self, broker: Broker, metadata: MetadataLog, services: MasterServices,
        client: RemotingClient, log: Logger, *,
        followed: Callable[[], str | None],
        take_modes: Callable[[dict[str, Any]], int],
        connect: Callable[[str], None],
        save: Callable[[], Awaitable[None]],
    ) -> None:  # fmt: skip
        period_ms = broker.config.integer("syncSlaveMetadataPeriod")
        config, signs = broker.config, None
        if config.auth.credentials is None:
            signs = slave_credentials(config.values["haSecret"])
        self.questions = MasterQuestions(client, log, followed, signs)
        self.tables = SlaveSync(
            broker=broker, metadata=metadata, questions=self.questions, log=log,
            period_ms=period_ms,
            more=((RequestCode.GET_ALL_MESSAGE_REQUEST_MODE, "request modes", take_modes),),
        )  # fmt: skip
        self.first = FirstCopy(
            broker, metadata, self.tables, tasks=broker.tasks, connect=connect, save=save
        )
        metadata.on_lost = self.first.again
        self.positions = PositionSync(
            questions=self.questions, clock=broker.clock, log=log, store=broker.store,
            offsets=broker.offsets, ended=metadata, services=services, period_ms=period_ms,
        )  # fmt: skip
