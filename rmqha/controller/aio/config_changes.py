"""1009 and 1010: an operator reads this node's configuration, and changes some of it.

What may change, and the answer, is decided by ``config_requests.py``; here the file is written.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping

from rmqha.base.errors import DiskFailed
from rmqha.controller.aio.replies import tell
from rmqha.controller.config_requests import config_text, update_config
from rmqha.controller.settings import ControllerConfig
from rmqha.remoting.aio.connection import Connection
from rmqha.remoting.codes import RequestCode, ResponseCode
from rmqha.remoting.command import RemotingCommand
from rmqha.runtime.aio.properties_file import PropertiesFile
from rmqha.runtime.aio.tasks import Tasks
from rmqha.runtime.logs import Logger
from rmqha.runtime.ports import Disk
from rmqha.runtime.properties import format_properties

CODES = frozenset(
    {int(RequestCode.GET_CONTROLLER_CONFIG), int(RequestCode.UPDATE_CONTROLLER_CONFIG)}
)


class ConfigChanges:
    """Answers them for one node.

    Args:
        on_changed: called when other values count from now on.
        tasks: what waits for the disk is started here.

    Attributes:
        file: that keeps what was changed.
    """

    def __init__(
        self,
        config: ControllerConfig,
        *,
        disk: Disk,
        tasks: Tasks,
        log: Logger,
        on_changed: Callable[[], None],
    ) -> None:
        self._config = config
        path = config.config_path
        self.file = PropertiesFile(disk, path, is_edited=os.path.realpath(path) == config.own_path)
        self._tasks = tasks
        self._log = log
        self._on_changed = on_changed

    def answer(self, connection: Connection, command: RemotingCommand) -> None:
        """Answer one of :data:`CODES`, now or when the file is written."""
        if command.code == RequestCode.GET_CONTROLLER_CONFIG:
            text = config_text(self._config)
            tell(connection, command, command.reply(ResponseCode.SUCCESS, body=text))
            return
        answer = update_config(self._config, command.body)
        self._log.log(
            "warning", "config_update_asked", address=connection.peer, code=answer.code,
            changed=answer.changed, remark=answer.remark,
        )  # fmt: skip
        if not answer.changed:
            tell(connection, command, command.reply(answer.code, answer.remark))
            return
        self._on_changed()
        self.file.take(answer.changed)
        self._tasks.start(self._store(connection, command), name="store config")

    def change(self, changed: Mapping[str, str]) -> str | None:
        """Take other values of keys that may change, and do not store them.

        Returns:
            Why nothing was changed; None when all was.
        """
        answer = update_config(self._config, format_properties(changed).encode())
        self.file.forget(answer.changed)
        if answer.changed:
            self._on_changed()
        return answer.remark

    async def _store(self, connection: Connection, command: RemotingCommand) -> None:
        # Whatever happens, who asked is told: it waits for an answer.
        remark = f"changed, but not stored: {self.file.path}"
        answer = command.reply(ResponseCode.SYSTEM_ERROR, remark)
        try:
            await self.file.write(lambda: self._config.to_store)
        except DiskFailed as error:
            remark = f"changed, but not stored: {error}"
            answer = command.reply(ResponseCode.SYSTEM_ERROR, remark)
        else:
            answer = command.reply(ResponseCode.SUCCESS)
        finally:
            tell(connection, command, answer)
