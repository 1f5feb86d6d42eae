"""One name server: its port, its files, its timer, and the notifications it sends.

bytes -> Connection -> here -> NamesrvMachine, and its effects are carried out. Nothing is decided
here.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Iterator, Mapping

from rmqha.auth.aio.guard import Refusals
from rmqha.auth.aio.server_guard import guarded
from rmqha.auth.aio.server_users import ServerUsers
from rmqha.auth.registered import ProvenAddresses, address_trouble
from rmqha.base.errors import DiskFailed, RmqhaError, StoreCorrupted
from rmqha.base.invariants import unknown_effect
from rmqha.base.machine import Note
from rmqha.namesrv import messages as nm
from rmqha.namesrv.aio.registering import CODES, Registering
from rmqha.namesrv.aio.stored_files import StoredFile
from rmqha.namesrv.figures import Scrape, figures
from rmqha.namesrv.machine import NamesrvMachine, Request
from rmqha.namesrv.settings import NamesrvConfig
from rmqha.remoting.aio.client import RemotingClient
from rmqha.remoting.aio.connection import Connection
from rmqha.remoting.aio.server import CONNECTION_IDS, RemotingServer, unsupported
from rmqha.remoting.codes import RequestCode, ResponseCode
from rmqha.remoting.command import RemotingCommand
from rmqha.remoting.settings import RemotingSettings
from rmqha.runtime.aio.driver import Driver
from rmqha.runtime.aio.properties_file import PropertiesFile
from rmqha.runtime.aio.tasks import Tasks
from rmqha.runtime.aio.turns import in_turns
from rmqha.runtime.logs import Logger
from rmqha.runtime.ports import Clock, Disk, Network, TimerHandle
from rmqha.runtime.properties import format_properties

NOTIFY_TIMEOUT_MS = 300
NOTIFICATIONS_MAX = 1_000
CLOSE_GRACE_MS = 100
NO_FIELDS: dict[str, str] = {}


class NameServer:
    """Everything of one name server but its process.

    Args:
        config: checked configuration; 318 changes it.
        clock, disk, network: the ports.
        log: bound to this name server.
        masters: what an embedded controller knows; None without one.
        connection_ids: numbers for connections; never two equal ones in a process.
        config_file: that an embedded controller writes; when this name server writes the same,
            they take turns.

    Attributes:
        machine: the core; its tables are for looking at only.
        requests: how many of each code were taken.
        protocol_errors: connections that were closed for what they sent.
        notifications_lost: 905s that were not sent: nobody there, or too many under way.
    """

    def __init__(
        self,
        config: NamesrvConfig,
        *,
        clock: Clock,
        disk: Disk,
        network: Network,
        log: Logger,
        masters: nm.ElectedMasters | None = None,
        connection_ids: Iterator[int] = CONNECTION_IDS,
        connections_max: int | None = None,
        config_file: PropertiesFile | None = None,
    ) -> None:
        self.config = config
        self._clock = clock
        self._disk = disk
        self._log = log
        remoting = RemotingSettings(
            connections_max=connections_max or config.integer("connectionsMax"),
            held_bytes_max=config.integer("heldBytesMax"),
            idle_timeout_ms=config.integer("serverChannelMaxIdleTimeSeconds") * 1000,
        )
        self.machine = NamesrvMachine(config, clock.now_ms(), masters)
        self._driver: Driver[nm.NamesrvEvent, nm.NamesrvEffect] = Driver(
            self.machine, clock, self._carry_out
        )
        self._registering = Registering(clock, self.machine, self._done)
        self.requests: dict[int, int] = {}
        self.protocol_errors = self.notifications_lost = 0
        self._tasks = Tasks(log)
        # It signs nothing by itself: brokers say where to, and anybody may be one.
        self._client = RemotingClient(network, clock, remoting, connection_ids=connection_ids)
        self._proven = ProvenAddresses(config.auth.credentials)
        self._users = ServerUsers(
            config.auth.named, disk, clock, log, path=config.values["authUsersPath"],
            reload_ms=config.integer("authUsersReloadMs"),
        )  # fmt: skip
        refusals = Refusals(log)
        self.rejected = refusals.counts
        handler = guarded(
            self, config.auth, self._users, refusals, self._proven,
            has_users=bool(config.auth.named or config.values["authUsersPath"]),
        )  # fmt: skip
        self._server = RemotingServer(
            network, clock, remoting, handler, on_protocol_error=self._protocol_error,
            connection_ids=connection_ids, rejected=self.rejected,
        )  # fmt: skip
        self._config_file = _config_file(config, disk, config_file)
        self._files = {
            nm.Stored.KV_CONFIG: self._file(config.kv_path, self._write_kv),
            nm.Stored.CONFIG: self._file(config.config_path, self._write_config),
        }
        self._notifying = 0
        self._timer: TimerHandle | None = None
        self._closing = False

    def _file(self, path: str, write: Callable[[], Awaitable[None]]) -> StoredFile:
        waiting_max = self.config.integer("defaultThreadPoolQueueCapacity")
        return StoredFile(self._tasks, self._log, path, write, waiting_max)

    async def _write_kv(self) -> None:
        path = self.config.kv_path
        await self._disk.make_dirs(os.path.dirname(path))
        await self._disk.write_atomic(path, self.machine.kv.content())

    async def _write_config(self) -> None:
        await self._config_file.write(lambda: self.config.to_store)

    # -- life --------------------------------------------------------------------------------

    @property
    def port(self) -> int:
        """The port in use, also when 0 was asked for."""
        return self._server.port

    def change_config(self, changed: Mapping[str, str]) -> str | None:
        """Take other values of keys that may change, and do not store them.

        Returns:
            Why nothing was changed; None when all was.
        """
        answer = self.machine.change_config(format_properties(changed).encode())
        self._config_file.forget(answer.changed)
        return answer.remark

    def not_ready(self) -> str | None:
        """Why routes are refused still, in a sentence; None when they are not."""
        if self.machine.waits_for_brokers(self._clock.now_ms()):
            return "it waits for brokers to register (needWaitForService)"
        return None

    async def scrape(self) -> Scrape:
        """What metrics show now."""
        return Scrape(
            await in_turns(figures(self.machine, self._clock.now_ms())), dict(self.requests),
            len(self._server.connections), self.protocol_errors, self.notifications_lost,
        )  # fmt: skip

    async def start(self, host: str | None = None, port: int | None = None) -> int:
        """Read the KV configuration and listen; returns the port.

        Args:
            host: instead of ``bindAddress``.
            port: instead of ``listenPort``; 0 takes any.

        Raises:
            ConfigInvalid: the file of users cannot be used.
            StoreCorrupted, DiskFailed: the KV configuration cannot be used; it is left alone.
            OSError: the port cannot be used.
        """
        try:
            self.machine.kv.load(await self._disk.read(self.config.kv_path))
        except FileNotFoundError:
            pass
        except StoreCorrupted as error:
            raise StoreCorrupted(f"{self.config.kv_path}: {error}") from error
        await self._users.load()
        host = self.config.values["bindAddress"] if host is None else host
        port = self.config.integer("listenPort") if port is None else port
        await self._server.start(host, port)
        self._arm()
        if self.config.values["authUsersPath"]:
            self._tasks.start(self._users.run(), name="users")
        self._log.log("info", "name_server_started", host=host, port=self.port)
        return self.port

    async def stop(self) -> None:
        """Stop serving; what was asked to be stored is stored."""
        self._closing = True
        if self._timer is not None:
            self._timer.cancel()
        await self._server.close(CLOSE_GRACE_MS)
        for file in self._files.values():
            await file.drain()
        await self._tasks.close()
        await self._client.close()

    # -- requests ----------------------------------------------------------------------------

    def on_commands(self, connection: Connection, commands: list[RemotingCommand]) -> None:
        """Handle one chunk's commands; the connection gathers the answers into one write."""
        now_ms = self._clock.now_ms()
        for at, command in enumerate(commands):
            if command.is_response:
                continue
            request = Request(
                now_ms, connection.id, command.version, command.ext_fields or NO_FIELDS,
                command.body,
            )  # fmt: skip
            answer = self._refusal(command)
            if answer is None and command.code in CODES:
                answer = self._registering.take(connection, command, request, commands[at + 1 :])
                if answer is None:
                    return  # this connection's other commands come behind its answer
            elif answer is None:
                answer = self.machine.request(command.code, request)
            if answer is not None:
                self._done(connection, command, answer)
            elif not command.is_oneway:
                connection.send(unsupported(command))

    def _done(self, connection: Connection, command: RemotingCommand, answer: nm.Answer) -> None:
        self.requests[command.code] = self.requests.get(command.code, 0) + 1
        if answer.effects:
            self._driver.carry_out(self._clock.now_ms(), answer.effects)
        if answer.stored is not None:
            self._config_file.take(answer.changed)
            self._store(connection, command, answer, answer.stored)
        elif not command.is_oneway:
            connection.answer(command, _reply(command, answer))

    def _refusal(self, command: RemotingCommand) -> nm.Answer | None:
        """Why a request does not come before the core; None when it does."""
        if command.code == RequestCode.REGISTER_BROKER:
            trouble = _addresses_trouble(command.ext_fields or NO_FIELDS)
            return None if trouble is None else nm.Answer(ResponseCode.SYSTEM_ERROR, trouble)
        file = self._file_of(command.code)
        if file is not None and file.is_full:
            return nm.Answer(ResponseCode.SYSTEM_BUSY, f"too many wait for {file.path}")
        return None

    def _file_of(self, code: int) -> StoredFile | None:
        if code in (RequestCode.PUT_KV_CONFIG, RequestCode.DELETE_KV_CONFIG):
            return self._files[nm.Stored.KV_CONFIG]
        if code == RequestCode.UPDATE_NAMESRV_CONFIG:
            return self._files[nm.Stored.CONFIG]
        return None

    def _store(
        self,
        connection: Connection,
        command: RemotingCommand,
        answer: nm.Answer,
        stored: nm.Stored,
    ) -> None:
        def done(error: DiskFailed | None) -> None:
            if command.is_oneway:
                return
            if error is None:
                connection.answer(command, _reply(command, answer))
            else:
                remark = f"changed, but not stored: {error}"
                connection.send(command.reply(ResponseCode.SYSTEM_ERROR, remark))

        self._files[stored].store(stored, done)

    def on_closed(self, connection: Connection, error: Exception | None) -> None:
        """A connection ended; its brokers leave at once."""
        self._registering.closed(connection)
        self._give(nm.ConnectionClosed(connection.id))

    def _give(self, event: nm.NamesrvEvent) -> None:
        if not self._closing:
            self._driver.give(event)

    def _protocol_error(self, connection: Connection, error: Exception) -> None:
        self.protocol_errors += 1
        self._log.log("warning", "frame_refused", address=connection.peer, reason=str(error))

    # -- effects -----------------------------------------------------------------------------

    def _carry_out(self, effect: nm.NamesrvEffect) -> None:
        match effect:
            case nm.NotifyMinBrokerId(addresses, fields):
                for address in addresses:
                    self._notify(address, fields)
            case nm.CloseConnection(connection_id):
                self._close_connection(connection_id)
            case nm.Again(event, after_ms):
                self._clock.call_later(after_ms, lambda: self._give(event))
            case Note():
                self._log.note(effect)
            case _:
                unknown_effect(effect)

    def _close_connection(self, connection_id: int) -> None:
        connection = self._server.connection(connection_id)
        if connection is not None:
            connection.close()

    def _notify(self, address: str, fields: dict[str, str]) -> None:
        if self._notifying >= NOTIFICATIONS_MAX:
            self.notifications_lost += 1
            self._log.log("warning", "notification_left_out", address=address)
            return
        self._notifying += 1
        self._tasks.start(self._send_notification(address, fields), name=f"notify {address}")

    async def _send_notification(self, address: str, fields: dict[str, str]) -> None:
        command = RemotingCommand(RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE, ext_fields=dict(fields))
        self._proven.sign(address, command)
        try:
            await self._client.invoke_oneway(address, command, NOTIFY_TIMEOUT_MS)
        except RmqhaError as error:
            self.notifications_lost += 1
            self._log.log("warning", "notification_failed", address=address, reason=str(error))
        finally:
            self._notifying -= 1

    # -- time --------------------------------------------------------------------------------

    def _arm(self) -> None:
        period_ms = self.config.integer("scanNotActiveBrokerInterval")
        due_ms = self._clock.now_ms() + period_ms
        self._timer = self._clock.call_later(period_ms, lambda: self._on_timer(due_ms))

    def _on_timer(self, due_ms: int) -> None:
        if self._closing:
            return
        self._arm()
        self._driver.give(nm.TimerRang(due_ms))


def _config_file(config: NamesrvConfig, disk: Disk, other: PropertiesFile | None) -> PropertiesFile:
    path = config.config_path
    if other is None or os.path.realpath(other.path) != os.path.realpath(path):
        return PropertiesFile(disk, path, is_edited=config.is_own_file)
    other.is_edited = True  # neither knows what the other has changed
    return other


def _addresses_trouble(fields: Mapping[str, str]) -> str | None:
    """Why a broker cannot be registered at its addresses; those that are missing are left to Java's words."""
    for name in ("brokerAddr", "haServerAddr"):
        trouble = address_trouble(fields[name], name) if fields.get(name) else None
        if trouble is not None:
            return trouble
    return None


def _reply(command: RemotingCommand, answer: nm.Answer) -> RemotingCommand:
    return command.reply(answer.code, answer.remark, answer.ext_fields, answer.body)
