"""The files of a broker's ``config`` folder that every replica keeps: topics, their mappings, groups,
accounts and offsets."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

from rmqha.auth.accounts import Account
from rmqha.broker.common.aio.config_file import FileTroubles
from rmqha.broker.common.settings import BrokerConfig
from rmqha.broker.groups.aio.offset_file import OffsetFile
from rmqha.broker.topics.aio.account_file import AccountFile
from rmqha.broker.topics.aio.group_file import GroupFile
from rmqha.broker.topics.aio.mapping_file import MappingFile
from rmqha.broker.topics.aio.topic_file import TopicFile
from rmqha.broker.topics.group_table import GroupConfig
from rmqha.broker.topics.own_topics import given_topics
from rmqha.runtime.aio.tasks import Tasks
from rmqha.runtime.logs import Logger
from rmqha.runtime.ports import Clock, Disk


class BrokerFiles:
    """Of one broker.

    Args:
        log_flushed: has the log on the disk, for files that tell how far it was used.
        make_group: writes a new group to the log; whether it is there.
        named: users that the settings name.

    Attributes:
        troubles: which files cannot be written now, those of other parts included.
        topics, mappings, groups, accounts, offsets: the tables and their files.
    """

    def __init__(
        self,
        config: BrokerConfig,
        disk: Disk,
        clock: Clock,
        log: Logger,
        *,
        log_flushed: Callable[[], Awaitable[object]],
        make_group: Callable[[GroupConfig], bool],
        named: Mapping[str, Account],
    ) -> None:
        path = config.store.path
        self._config = config
        self.troubles = FileTroubles(log)
        self.topics = TopicFile(disk, clock, path("config", "topics.json"), self.troubles)
        self.mappings = MappingFile(
            disk, clock, path("config", "topicQueueMapping.json"), self.troubles
        )
        self.groups = GroupFile(
            disk, clock, path("config", "subscriptionGroup.json"), self.troubles,
            auto_create=lambda: config.boolean("autoCreateSubscriptionGroup"), make=make_group,
        )  # fmt: skip
        self.accounts = AccountFile(
            disk, clock, path("config", "accounts.json"), self.troubles, named
        )
        self.offsets = OffsetFile(
            disk, clock, path("config", "consumerOffset.json"), self.troubles,
            offsets_max=config.integer("consumerOffsetsMax"),
            period_ms=config.integer("flushConsumerOffsetInterval"), after=log_flushed,
        )  # fmt: skip

    async def load(self) -> None:
        """Read the files of all tables.

        Raises:
            StoreCorrupted: a file and its backup cannot be read.
            DiskFailed: the disk cannot.
        """
        await self.topics.load()
        self.topics.add(given_topics(self._config))
        await self.mappings.load()
        await self.groups.load()
        await self.accounts.load()
        await self.offsets.load()

    def run(self, tasks: Tasks) -> None:
        """Write them after changes, for as long as ``tasks`` go on."""
        tasks.start(self.topics.file.run(), name="topics file")
        tasks.start(self.mappings.file.run(), name="mappings file")
        tasks.start(self.groups.file.run(), name="groups file")
        tasks.start(self.accounts.file.run(), name="accounts file")
        tasks.start(self.offsets.file.run(), name="offsets file")

    async def save(self) -> None:
        """Write now what has changed; raises DiskFailed."""
        await self.topics.save()
        await self.mappings.file.save()
        await self.groups.file.save()
        await self.accounts.file.save()
        await self.offsets.file.save()
