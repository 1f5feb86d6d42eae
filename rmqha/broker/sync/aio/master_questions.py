"""What a slave asks its master for, beside the log."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Generic, NamedTuple, TypeVar

from rmqha.auth.signature import Credentials
from rmqha.base.errors import RmqhaError
from rmqha.broker.common.settings import FAST_PORT_DISTANCE
from rmqha.remoting.address import format_address, parse_address
from rmqha.remoting.aio.client import RemotingClient
from rmqha.remoting.codes import RequestCode, ResponseCode
from rmqha.remoting.command import RemotingCommand
from rmqha.remoting.headers import int_field
from rmqha.runtime.logs import Logger

FoundT = TypeVar("FoundT")


def fast_address(address: str) -> str:
    """The second port of a broker, two below the one that it is known by.

    Raises:
        ConfigInvalid: not an address.
    """
    host, port = parse_address(address)
    return format_address(host, port - FAST_PORT_DISTANCE)


class Paged(NamedTuple, Generic[FoundT]):
    """How a table is asked of brokers of 5.5, which give it in pages and log an error without these.

    Attributes:
        fields: for the first page, as long as may be.
        total: the field of the answer that says how many entries there are.
        count: how many an answer holds.
    """

    fields: Mapping[str, str]
    total: str
    count: Callable[[FoundT], int]

    def is_whole(self, found: FoundT, said: Mapping[str, str]) -> bool:
        """Whether an answer is the whole table; brokers that know no pages say nothing of it."""
        return int_field(said, self.total, 0) <= self.count(found)


class MasterQuestions:
    """The way to the master that a slave follows.

    Args:
        followed: its service address; None when this broker follows none.
        signs: proves that this is a slave, where no user signs all that this broker asks.
    """

    def __init__(
        self, client: RemotingClient, log: Logger, followed: Callable[[], str | None],
        signs: Credentials | None = None,
    ) -> None:  # fmt: skip
        self._signs = signs
        self._client = client
        self._log = log
        self._followed = followed

    @property
    def master(self) -> str | None:
        """The service address of the master that this broker follows now."""
        return self._followed()

    async def ask(
        self,
        master: str,
        code: RequestCode,
        read: Callable[[bytes], FoundT],
        fields: Mapping[str, str] | None = None,
        paged: Paged[FoundT] | None = None,
    ) -> FoundT | None:
        """What a master answers, as ``read`` makes it of the body.

        Args:
            paged: the answer may be a page. A table of more than one is asked for as a whole: it
                could change from page to page.

        Returns:
            None, after a line in the log, when it cannot be used; and when another master is
            followed meanwhile.
        """
        more = {} if paged is None else paged.fields
        try:
            answer = await self._answer(master, code, {**(fields or {}), **more})
            if self.master != master:
                return None
            found = read(bytes(answer.body))
            if paged is None or paged.is_whole(found, answer.ext_fields or {}):
                return found
        except RmqhaError as error:
            self._log.log("warning", "not_copied", what=code.name, master=master, reason=str(error))
            return None
        return await self.ask(master, code, read, fields)

    async def _answer(
        self, master: str, code: RequestCode, fields: Mapping[str, str]
    ) -> RemotingCommand:
        command = RemotingCommand(code, ext_fields=dict(fields) or None)
        if self._signs is not None:
            self._signs.sign(command)
        answer = await self._client.invoke(fast_address(master), command)
        if answer.code != ResponseCode.SUCCESS:
            raise RmqhaError(f"answered {answer.code}: {answer.remark}")
        return answer
