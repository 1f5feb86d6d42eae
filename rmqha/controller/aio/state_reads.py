"""Questions about the applied state, answered at once: the shell knows that it may be read."""

from __future__ import annotations

from rmqha.controller.aio.long_answers import LongAnswers
from rmqha.controller.aio.replies import RepeatedReplies, answer_frame
from rmqha.controller.machine import (
    ControllerEffect,
    ControllerEvent,
    ControllerMachine,
    RequestReceived,
)
from rmqha.controller.metadata.answers import reply
from rmqha.controller.metadata.decision import Decision
from rmqha.controller.metadata.sync_state_data import parts_of, put_together
from rmqha.remoting.aio.connection import Connection
from rmqha.remoting.codes import RequestCode
from rmqha.remoting.command import FLAG_ONEWAY, RemotingCommand
from rmqha.runtime.aio.driver import Driver
from rmqha.runtime.ports import Clock

NO_FIELDS: dict[str, str] = {}
GET_REPLICA_INFO = int(RequestCode.CONTROLLER_GET_REPLICA_INFO)
GET_SYNC_STATE_DATA = int(RequestCode.CONTROLLER_GET_SYNC_STATE_DATA)


class StateReads:
    """Answers them for one node.

    Args:
        machine: knows the answers.
        driver: its recorder is told of them.
        repeated: frames of answers that are often the same.
        long: answers what takes its time.
    """

    def __init__(
        self,
        machine: ControllerMachine,
        driver: Driver[ControllerEvent, ControllerEffect],
        repeated: RepeatedReplies,
        long: LongAnswers,
        clock: Clock,
    ) -> None:
        self._machine = machine
        self._driver = driver
        self._repeated = repeated
        self._long = long
        self._clock = clock

    def read(
        self, now_ms: int, connection: Connection, command: RemotingCommand, frames: list[bytes]
    ) -> None:
        """Add the answer to the frames of this chunk, unless it will come later."""
        if command.code == GET_REPLICA_INFO:
            decision = self._look(now_ms, connection, command, command.body)
            if not command.flag & FLAG_ONEWAY:
                frames.append(self._repeated.frame(command, decision))
            return
        answer = self.decision(now_ms, connection, command)
        if answer is not None and not command.is_oneway:
            frames.append(answer_frame(command, answer))

    def decision(
        self, now_ms: int, connection: Connection, command: RemotingCommand
    ) -> Decision | None:
        """The answer; None for one that will come later."""
        if command.code == GET_SYNC_STATE_DATA and self._takes_long(connection, command):
            return None
        return self._look(now_ms, connection, command, command.body)

    def _takes_long(self, connection: Connection, command: RemotingCommand) -> bool:
        """Answer a 1006 of many sets in turns: the state, once it may be read, gets only newer."""
        machine = self._machine
        parts = parts_of(machine.state, command.body, machine.settings.broker_sets_max)
        if not parts:
            return False

        def ask(part: bytes) -> Decision:
            return self._look(self._clock.now_ms(), connection, command, part)

        self._long.add(connection, command, put_together(ask, parts))
        return True

    def _look(
        self, now_ms: int, connection: Connection, command: RemotingCommand, body: bytes
    ) -> Decision:
        code, fields = command.code, command.ext_fields or NO_FIELDS
        decision = self._machine.read(now_ms, connection.id, code, fields, body)
        if self._driver.recorder is not None:
            asked = RequestReceived(0, connection.id, code, fields, body)
            self._driver.recorder.stepped(now_ms, asked, [reply(0, decision)])
        return decision
