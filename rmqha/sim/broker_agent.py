"""A scripted broker: everything a Java broker says to a controller, and no messages.

It registers, heartbeats, asks for elections, follows notifications, and as master keeps the
SyncStateSet by what its slaves report, over whatever ports it is given: in the simulator, in the
demo where there is no Java, and in the benchmarks. Source: section "broker side" of RIP-44 as
shipped in 5.3.3 (ReplicasManager).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

import orjson
from msgspec import Struct

from rmqha.base.errors import InvariantBroken, RmqhaError
from rmqha.remoting.aio.client import RemotingClient
from rmqha.remoting.aio.connection import Connection
from rmqha.remoting.aio.server import CONNECTION_IDS, RemotingServer, unsupported
from rmqha.remoting.codes import RequestCode, ResponseCode
from rmqha.remoting.command import FLAG_ONEWAY, RemotingCommand
from rmqha.remoting.settings import RemotingSettings
from rmqha.runtime.aio.tasks import Tasks
from rmqha.runtime.logs import Logger
from rmqha.runtime.ports import Clock, Disk, Network, Rng
from rmqha.sim.calls import CallLog
from rmqha.verify.history import EpochHistory

SYNC_CODE = 59_001
"""Private to agents: a slave tells its master that it follows (stands for HA replication)."""


class AgentSettings(Struct, frozen=True):
    """Periods in milliseconds; the defaults are Java's where Java has such a period."""

    heartbeat_ms: int = 1000
    heartbeat_timeout_ms: int = 10_000
    find_leader_ms: int = 2000
    poll_ms: int = 5000
    sync_ms: int = 300
    sync_lost_ms: int = 2000
    retry_ms: int = 1000
    invoke_ms: int = 3000


class BrokerAgent:
    """One replica of a broker set.

    Args:
        cluster, name: of the broker set.
        host, port: where it listens; also the address it registers.
        controllers: addresses of all controllers.
        store: directory of its identity file.
        on_role: told (address, role, epoch) at every change of role.
        history: checks that no answer is older than one already given.
        calls: records every request and its answer.
        on_error: told what ended a task that should have gone on.
    """

    def __init__(
        self,
        *,
        cluster: str,
        name: str,
        host: str,
        port: int,
        controllers: tuple[str, ...],
        store: str,
        clock: Clock,
        rng: Rng,
        disk: Disk,
        network: Network,
        log: Logger,
        settings: AgentSettings | None = None,
        on_role: Callable[[str, str, int], None] | None = None,
        history: EpochHistory | None = None,
        calls: CallLog | None = None,
        on_error: Callable[[BaseException], None] | None = None,
        connection_ids: Iterator[int] = CONNECTION_IDS,
    ) -> None:
        self.cluster = cluster
        self.name = name
        self.host = host
        self.port = port
        self.address = f"{host}:{port}"
        self._controllers = controllers
        self._identity_path = os.path.join(store, "brokerIdentity")
        self._clock = clock
        self._rng = rng
        self._disk = disk
        self._log = log
        self._settings = settings or AgentSettings()
        self._on_role = on_role
        remoting = RemotingSettings(invoke_timeout_ms=self._settings.invoke_ms)
        self._history = history or EpochHistory()
        self._calls = calls
        self._client = RemotingClient(network, clock, remoting, connection_ids=connection_ids)
        self._server = RemotingServer(network, clock, remoting, self, connection_ids=connection_ids)
        self._tasks = Tasks(log, on_error)
        self._leader: str | None = None
        self.broker_id: int | None = None
        self.role = "starting"
        self.master_epoch = 0
        self.master_address: str | None = None
        self.sync_state_set: tuple[int, ...] = ()
        self.sync_state_set_epoch = 0
        self.log_epoch = -1
        self.max_offset = 0
        self._followers: dict[int, int] = {}
        self._altering = False

    # -- life ------------------------------------------------------------------------------

    async def start(self) -> None:
        """Listen, then register and take part in the background."""
        await self._disk.make_dirs(os.path.dirname(self._identity_path))
        await self._server.start(self.host, self.port)
        self._tasks.start(self._live(), name=f"agent {self.address}")

    async def stop(self) -> None:
        """End in order."""
        await self._tasks.close()
        await self._server.close()
        await self._client.close()

    async def _live(self) -> None:
        await self._until(self._find_identity)
        self._tasks.start(self._every(self._settings.heartbeat_ms, self._heartbeat), name="beat")
        await self._until(self._register)
        await self._until(self._ask_for_master)
        for period_ms, work in (
            (self._settings.find_leader_ms, self._find_leader),
            (self._settings.poll_ms, self._poll),
            (self._settings.sync_ms, self._sync),
        ):
            self._tasks.start(self._every(period_ms, work), name=work.__name__)

    async def _every(self, period_ms: int, work: Callable[[], object]) -> None:
        while True:
            await self._guarded(work)
            await self._clock.sleep(period_ms)

    async def _until(self, work: Callable[[], object]) -> None:
        while not await self._guarded(work):
            pause_ms = self._settings.retry_ms
            await self._clock.sleep(pause_ms + self._rng.randint(0, pause_ms))

    async def _guarded(self, work: Callable[[], object]) -> bool:
        try:
            return bool(await work())  # type: ignore[misc]  # every work is a coroutine function
        except InvariantBroken:
            raise
        except RmqhaError as error:
            self._log.log("debug", "agent_retries", address=self.address, reason=str(error))
            return False

    # -- the controller ----------------------------------------------------------------------

    async def _find_leader(self) -> bool:
        for address in self._controllers:
            try:
                answer = await self._client.invoke(
                    address, RemotingCommand(RequestCode.CONTROLLER_GET_METADATA_INFO)
                )
            except RmqhaError:
                continue
            leader = (answer.ext_fields or {}).get("controllerLeaderAddress")
            if leader:
                self._leader = leader
                return True
        self._leader = None
        return False

    async def ask(
        self, code: RequestCode, ext_fields: dict[str, str], body: bytes = b""
    ) -> RemotingCommand:
        """Ask the leader.

        Raises:
            RmqhaError: there is none, or it does not answer.
        """
        if self._leader is None and not await self._find_leader():
            raise RmqhaError("no controller leader is known")
        floor = self._history.invoked(self.name)
        command = RemotingCommand(code, ext_fields=ext_fields, body=body)
        asked = self._calls.asked(code, ext_fields, body) if self._calls is not None else None
        try:
            answer = await self._client.invoke(str(self._leader), command)
        except RmqhaError:
            self._leader = None
            if self._calls is not None and asked is not None:
                self._calls.answered(asked, None)
            raise
        if self._calls is not None and asked is not None:
            self._calls.answered(asked, answer)
        if "masterEpoch" in (answer.ext_fields or {}):
            self._history.returned(self.name, floor, int((answer.ext_fields or {})["masterEpoch"]))
        if answer.code == ResponseCode.CONTROLLER_NOT_LEADER:
            self._leader = None
        return answer

    async def _find_identity(self) -> bool:
        try:
            text = (await self._disk.read(self._identity_path)).decode()
            self.broker_id = int(text.split("#")[2])
            return True
        except FileNotFoundError:
            pass
        names = {"clusterName": self.cluster, "brokerName": self.name}
        answer = await self.ask(RequestCode.CONTROLLER_GET_NEXT_BROKER_ID, names)
        if answer.code != ResponseCode.SUCCESS:
            return False
        wanted = (answer.ext_fields or {})["nextBrokerId"]
        check = f"{self.address};{self._clock.wall_ms()}"
        answer = await self.ask(
            RequestCode.CONTROLLER_APPLY_BROKER_ID,
            {**names, "appliedBrokerId": wanted, "registerCheckCode": check},
        )
        if answer.code != ResponseCode.SUCCESS:
            return False
        identity = f"{self.cluster}#{self.name}#{wanted}"
        await self._disk.write_atomic(self._identity_path, identity.encode())
        self.broker_id = int(wanted)
        return True

    def _who(self) -> dict[str, str]:
        return {
            "clusterName": self.cluster,
            "brokerName": self.name,
            "brokerId": str(self.broker_id),
            "invokeTime": str(self._clock.wall_ms()),
        }

    async def _register(self) -> bool:
        answer = await self.ask(
            RequestCode.CONTROLLER_REGISTER_BROKER, {**self._who(), "brokerAddress": self.address}
        )
        if answer.code != ResponseCode.SUCCESS:
            return False
        self._adopt(answer.ext_fields or {}, answer.body)
        return True

    async def _ask_for_master(self) -> bool:
        if self.role != "starting":
            return True
        answer = await self.ask(
            RequestCode.CONTROLLER_ELECT_MASTER, {**self._who(), "designateElect": "false"}
        )
        if answer.code in (ResponseCode.SUCCESS, ResponseCode.CONTROLLER_MASTER_STILL_EXIST):
            self._adopt(answer.ext_fields or {}, answer.body)
        return self.role != "starting"

    async def _heartbeat(self) -> bool:
        fields = {
            **self._who(),
            "brokerAddr": self.address,
            "epoch": str(self.log_epoch),
            "maxOffset": str(self.max_offset),
            "confirmOffset": str(self.max_offset),
            "heartbeatTimeoutMills": str(self._settings.heartbeat_timeout_ms),
            "electionPriority": "2147483647",
        }
        for address in self._controllers:
            self._tasks.start(self._beat(address, fields), name="heartbeat")
        return True

    async def _beat(self, address: str, fields: dict[str, str]) -> None:
        command = RemotingCommand(RequestCode.BROKER_HEARTBEAT, flag=FLAG_ONEWAY, ext_fields=fields)
        try:
            await self._client.invoke_oneway(address, command, self._settings.heartbeat_ms)
        except RmqhaError:
            return

    async def _poll(self) -> bool:
        answer = await self.ask(RequestCode.CONTROLLER_GET_REPLICA_INFO, {"brokerName": self.name})
        fields = answer.ext_fields or {}
        if answer.code != ResponseCode.SUCCESS:
            return False
        epoch = int(fields["masterEpoch"])
        if epoch > self.master_epoch and "masterBrokerId" not in fields:
            await self.ask(
                RequestCode.CONTROLLER_ELECT_MASTER, {**self._who(), "designateElect": "false"}
            )
        else:
            self._adopt(fields, answer.body)
        return True

    # -- roles -------------------------------------------------------------------------------

    def _adopt(self, fields: dict[str, str], body: bytes) -> None:
        """Take over what a response or a 1008 says, if it is newer."""
        if "masterBrokerId" not in fields:
            return
        parsed = orjson.loads(body) if body else {}
        epoch = int(fields["masterEpoch"])
        set_epoch = int(parsed.get("syncStateSetEpoch", fields.get("syncStateSetEpoch", 0)))
        if epoch == self.master_epoch and set_epoch > self.sync_state_set_epoch:
            self._adopt_set(parsed, set_epoch)
        if epoch == self.master_epoch:
            # It may have moved since.
            self.master_address = fields.get("masterAddress", self.master_address)
        if epoch <= self.master_epoch:
            return
        self.master_epoch = epoch
        self.master_address = fields.get("masterAddress")
        self.sync_state_set_epoch = 0
        self._adopt_set(parsed, set_epoch)
        is_master = int(fields["masterBrokerId"]) == self.broker_id
        self.role = "master" if is_master else "slave"
        self._followers.clear()
        if is_master:
            self.log_epoch = epoch
        if self._on_role is not None:
            self._on_role(self.address, self.role, epoch)
        if is_master:
            self._tasks.start(self._guarded(self._heartbeat), name="beat at once")

    def _adopt_set(self, parsed: dict[str, list[int]], set_epoch: int) -> None:
        self.sync_state_set = tuple(sorted(parsed.get("syncStateSet", ())))
        self.sync_state_set_epoch = set_epoch

    async def _sync(self) -> bool:
        if self.role == "slave" and self.master_address is not None:
            answer = await self._client.invoke(
                self.master_address,
                RemotingCommand(SYNC_CODE, ext_fields={"brokerId": str(self.broker_id)}),
                self._settings.sync_ms * 2,
            )
            if answer.code == ResponseCode.SUCCESS:
                fields = answer.ext_fields or {}
                self.log_epoch = int(fields["epoch"])
                self.max_offset = int(fields["maxOffset"])
        elif self.role == "master":
            self.max_offset += self._rng.randint(0, 1000)
            await self._keep_sync_state_set()
        return True

    async def _keep_sync_state_set(self) -> None:
        limit_ms = self._clock.now_ms() - self._settings.sync_lost_ms
        following = {one for one, heard in self._followers.items() if heard >= limit_ms}
        wanted = tuple(sorted({int(self.broker_id or 0), *following}))
        if wanted == self.sync_state_set or self._altering:
            return
        self._altering = True
        try:
            epoch = self.master_epoch
            answer = await self.ask(
                RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET,
                {
                    "brokerName": self.name,
                    "masterBrokerId": str(self.broker_id),
                    "masterEpoch": str(epoch),
                    "invokeTime": str(self._clock.wall_ms()),
                },
                orjson.dumps(
                    {"syncStateSet": list(wanted), "syncStateSetEpoch": self.sync_state_set_epoch}
                ),
            )
        finally:
            self._altering = False
        if answer.code == ResponseCode.SUCCESS and epoch == self.master_epoch:
            parsed = orjson.loads(answer.body)
            self._adopt_set(parsed, int(parsed["syncStateSetEpoch"]))

    # -- requests to us ------------------------------------------------------------------------

    def on_commands(self, connection: Connection, commands: list[RemotingCommand]) -> None:
        """Notifications of controllers, reports of slaves."""
        for command in commands:
            fields = command.ext_fields or {}
            if command.code == RequestCode.NOTIFY_BROKER_ROLE_CHANGED:
                if self.broker_id is not None:
                    self._adopt(fields, command.body)
            elif command.code == SYNC_CODE and self.role == "master":
                self._followers[int(fields["brokerId"])] = self._clock.now_ms()
                said = {"epoch": str(self.log_epoch), "maxOffset": str(self.max_offset)}
                connection.send(command.reply(ResponseCode.SUCCESS, None, said))
            elif not command.is_oneway:
                connection.send(unsupported(command))

    def on_closed(self, connection: Connection, error: Exception | None) -> None:
        """Nothing to forget."""
