"""What people ask a broker about itself: 25 and 26 (configuration), 28 (runtime information)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from rmqha.base.errors import DiskFailed
from rmqha.broker.admin.aio.config_text import ConfigText
from rmqha.broker.admin.aio.oldest_message import OldestMessage
from rmqha.broker.admin.config_changes import UNCHANGED, ConfigRefused, read_update
from rmqha.broker.admin.runtime_info import Facts, runtime_table
from rmqha.broker.admin.scrape import Scrape, lags_of
from rmqha.broker.common.aio.cold_answers import patient
from rmqha.broker.common.aio.ports import Handlers
from rmqha.broker.deferred.aio.master_services import MasterServices
from rmqha.broker.pull.aio.ports import Broker
from rmqha.broker.sync.aio.scrubbing import Scrub
from rmqha.ha.events import Role
from rmqha.remoting import fastjson
from rmqha.remoting.aio.connection import Connection
from rmqha.remoting.codes import RequestCode, ResponseCode
from rmqha.remoting.command import RemotingCommand
from rmqha.remoting.headers import ext_fields
from rmqha.runtime.aio.turns import in_turns
from rmqha.runtime.logs import Logger
from rmqha.runtime.ports import DiskUse
from rmqha.runtime.properties import format_properties, shown_properties

BY_HAND = "change it by hand and have the broker read its file again (SIGHUP, systemctl reload)"
"""Where a broker may read its file and not write it, as below root's /etc or of a ConfigMap."""


class Asked(Broker, Protocol):
    """A broker that people ask about itself."""

    scrub: Scrub

    @property
    def lease_facts(self) -> tuple[bool, int] | None:
        """Whether the write lease is held, and how often it was lost; None without one."""

    @property
    def peers_unproven(self) -> int:
        """Connections of replication that were taken although the other end proved nothing."""

    @property
    def busy_waits(self) -> Mapping[str, int]:
        """Waits of replication without sleep, by their ends."""

    def topics_changed(self) -> None:
        """Keep the topics, and tell the name servers."""


class AdminProcessor:
    """Answers the requests of mqadmin.

    Args:
        file: keeps what 25 changes.
        disk_use: of the store's disk; None where nobody can tell.
        services: tell how far timers and delays are.
        held_pulls: how many there are now.
        waiting_sends: how many there are, and for how long the oldest waits, in ms.
        named: told of other controllers.
    """

    def __init__(
        self,
        broker: Asked,
        log: Logger,
        file: ConfigText,
        *,
        disk_use: DiskUse | None,
        services: MasterServices,
        held_pulls: Callable[[], int],
        waiting_sends: Callable[[], tuple[int, int]],
        named: Callable[[tuple[str, ...]], None],
    ) -> None:
        self._broker = broker
        self._log = log
        self._file = file
        self._disk_use = disk_use
        self._services = services
        self._held_pulls = held_pulls
        self._waiting_sends = waiting_sends
        self._named = named
        self._boot_ms = broker.clock.wall_ms()
        self.status_page = ""
        self._oldest = OldestMessage(broker.store, broker.tasks)

    def handlers(self) -> Handlers:
        """By request code."""
        return {
            RequestCode.UPDATE_BROKER_CONFIG: self.update_config,
            RequestCode.GET_BROKER_CONFIG: self.config,
            RequestCode.GET_BROKER_RUNTIME_INFO: patient(self._broker, self.runtime_info),
        }

    def config(self, _: Connection, request: RemotingCommand) -> RemotingCommand:
        """Answer with the configuration (26)."""
        broker = self._broker
        version = fastjson.dumps(broker.topics.table.version.members()).decode()
        body = shown_properties(broker.config.values)
        return request.reply(ResponseCode.SUCCESS, None, ext_fields(version=version), body)

    def update_config(
        self, connection: Connection, request: RemotingCommand
    ) -> RemotingCommand | None:
        """25: first the file, then the broker, then the answer."""
        found = read_update(request.body, self._broker.config.values)
        if isinstance(found, ConfigRefused):
            return request.reply(found.code, found.remark)
        if not found:
            return request.reply(ResponseCode.SUCCESS, UNCHANGED)
        work = self._change(connection, request, found)
        self._broker.answers.start(work, connection, request, name="config")
        return None

    async def _change(
        self, connection: Connection, request: RemotingCommand, changed: dict[str, str]
    ) -> None:
        code, remark = int(ResponseCode.SUCCESS), None
        try:
            await self._file.change(changed)
        except (DiskFailed, OSError) as error:
            code, remark = int(ResponseCode.SYSTEM_ERROR), f"nothing is changed: {error}; {BY_HAND}"
        else:
            self._changed(changed)
        self._log.log(
            "warning", "config_changed", by=connection.peer, changed=changed, code=code,
            reason=remark,
        )  # fmt: skip
        if not request.is_oneway:
            connection.send(request.reply(code, remark))

    def change_config(self, changed: Mapping[str, str]) -> str | None:
        """Take other values of keys that may change, and leave the file alone.

        Returns:
            Why nothing was changed; None when all was.
        """
        config = self._broker.config
        if not config.boolean("enableControllerMode"):
            # The file of a broker alone may name some; it does not look at them at its start either.
            changed = {key: value for key, value in changed.items() if key != "controllerAddr"}
        found = read_update(format_properties(changed).encode(), config.values)
        if isinstance(found, ConfigRefused):
            return found.remark
        self._changed(found)
        return None

    def _changed(self, changed: Mapping[str, str]) -> None:
        """Other values count from now on."""
        broker = self._broker
        broker.config.change(changed)
        if "brokerPermission" in changed:
            # Only a newer version makes name servers look at the permissions again.
            epoch = broker.topics.table.version.state_version
            broker.topics.table.advance(epoch, broker.clock.wall_ms())
            broker.topics_changed()
        if "controllerAddr" in changed:
            self._named(broker.config.controllers)
        if not broker.config.boolean("useServerSideResetOffset"):
            broker.offsets.table.forget_resets()

    def runtime_info(self, _: Connection, request: RemotingCommand) -> RemotingCommand:
        """Answer with the runtime figures (28)."""
        facts = self._facts(self._oldest.stored_ms())
        table = runtime_table(facts, self._broker.statistics)
        return request.reply(ResponseCode.SUCCESS, body=fastjson.dumps({"table": table}))

    async def scrape(self) -> Scrape:
        """What metrics show now; others have their turns meanwhile."""
        broker = self._broker
        work = lags_of(broker.offsets.table.each(), broker.store.reader.max_offset)
        lags, left_out = await in_turns(work)
        return Scrape(
            self._facts(self._oldest.last_known_ms()), broker.config.integer("brokerPermission"),
            len(broker.topics.table.topics), len(broker.groups.table.groups),
            broker.statistics.written(), broker.statistics.read(), lags, left_out,
            broker.statistics.records_skipped + broker.store.queues.skipped,
            broker.statistics.planned_switches, broker.statistics.sends_passed_on,
            broker.peers_unproven, broker.busy_waits,
        )  # fmt: skip

    def _facts(self, earliest_ms: int) -> Facts:
        broker = self._broker
        store = broker.store
        waiting, oldest_ms = self._waiting_sends()
        return Facts(
            active=broker.role is Role.MASTER,
            boot_ms=self._boot_ms,
            now_ms=broker.clock.wall_ms(),
            min_offset=store.min_offset,
            max_offset=store.max_offset,
            flushed_offset=store.flushed_offset,
            dispatched_offset=store.dispatched_offset,
            confirm_offset=store.confirm_offset,
            used_ratio=-1.0 if self._disk_use is None else self._disk_use(),
            queues_ratio=-1.0 if self._disk_use is None else self._disk_use.of_queues(),
            disk_space=None if self._disk_use is None else self._disk_use.space(),
            earliest_ms=earliest_ms,
            sends_waiting=waiting,
            sends_waiting_max=broker.config.integer("sendsInFlightMax"),
            oldest_send_ms=oldest_ms,
            pulls_held=self._held_pulls(),
            pulls_held_max=broker.config.integer("heldPullsMax"),
            timers=self._services.timers,
            delays=self._services.delays,
            store_path=store.settings.store_path_commit_log,
            lease=broker.lease_facts,
            files_unwritten=len(broker.troubles.reasons),
            oldest_write_ms=broker.store.writes.oldest_ms,
            writes_wait=store.room.is_short,
            writes_waited=store.room.waited,
            disk_full=store.expiring.is_disk_full,
            dispatch_lacks_space=store.dispatcher.lacks_space,
            index_skipped_bytes=store.indexes.skipped_bytes,
            records_damaged=len(store.mending.damaged),
            records_mended=store.mending.mended,
            records_differing=len(broker.scrub.differing),
            blocks_differing=len(store.proving.summing.differing),
            scrubbed_bytes=broker.scrub.read_bytes,
            compared_bytes=broker.scrub.compared_bytes,
            status_page=self.status_page,
        )
