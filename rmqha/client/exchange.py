"""How a command talks without waiting: a generator that yields calls and is sent their answers.

The command decides whom to ask next; ``aio/exchanges.py`` does the asking and throws ``Unreachable``
into the generator when nobody answered, so that the command can go on with another address.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable
from typing import TypeVar

from msgspec import Struct

from rmqha.base.errors import RemoteProtocolError, RmqhaError
from rmqha.remoting import fastjson
from rmqha.remoting.codes import RequestCode, ResponseCode, asked_kind, response_name
from rmqha.remoting.command import RemotingCommand
from rmqha.remoting.headers import FieldValue, ext_fields

TIMEOUT_MS = 3_000
CONFIG_TIMEOUT_MS = 5_000
_LEADER_ROUNDS = 3
LOOK_ELSEWHERE_MS = 1_000
"""A name server may take so long where another one has said that a topic is nowhere. The others may
be dead, and topics that are nowhere are asked for all the time."""
NOT_READY = "name server not ready"
"""What one says that was just started with ``needWaitForService``, by SYSTEM_ERROR."""
_ELSEWHERE: frozenset[int] = frozenset(
    {ResponseCode.SYSTEM_ERROR, ResponseCode.SYSTEM_BUSY, ResponseCode.TOPIC_NOT_EXIST}
)
_LISTS: dict[int, str] = {
    RequestCode.GET_BROKER_CLUSTER_INFO: "brokerAddrTable",
    RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: "topicList",
    RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS: "topicList",
}
"""What a name server to which no broker has registered yet leaves empty, by request code."""
_EMPTY_BYTES_MAX = 256
"""No longer is an answer in which that is empty."""

ResultT = TypeVar("ResultT")


class Unreachable(RmqhaError):
    """Nobody answered at an address, or at any of several."""


class NotFound(RmqhaError):
    """What was named does not exist at the peer that was asked."""


class Refused(RmqhaError):
    """A peer answered with another code than SUCCESS.

    Attributes:
        address: who refused.
        code: the response code.
        remark: the peer's words; may be empty.

    Args:
        hint: follows the peer's words.
    """

    def __init__(self, address: str, code: int, remark: str, hint: str = "") -> None:
        # "CODE: n  DESC: text" is what scripts around the Java tool look for. A remark may be a
        # text of several lines, or a stack trace; one line must do.
        words = " ".join(remark.split())
        super().__init__(f"{address}: CODE: {code}  DESC: {words} ({response_name(code)}){hint}")
        self.address = address
        self.code = code
        self.remark = remark

    @property
    def is_for_now(self) -> bool:
        """Whether a name server may soon say something else: it has just started, or much to do.

        By SYSTEM_ERROR it also says what stays, as ``disable`` of a list that it is not to give.
        """
        if self.code == ResponseCode.SYSTEM_ERROR:
            return NOT_READY in self.remark
        return self.code == ResponseCode.SYSTEM_BUSY


class Call(Struct, frozen=True):
    """A request to one address.

    Attributes:
        address: ``host:port``.
        command: the request.
        timeout_ms: how long an answer may take, connecting included.
        delay_ms: it is asked so long from now, because nothing will have changed before.
    """

    address: str
    command: RemotingCommand
    timeout_ms: int = TIMEOUT_MS
    delay_ms: int = 0


Exchange = Generator[Call, RemotingCommand, ResultT]


def ask(
    address: str, command: RemotingCommand, timeout_ms: int = TIMEOUT_MS, *, delay_ms: int = 0
) -> Exchange[RemotingCommand]:
    """Send one request, ``delay_ms`` from now, and return its successful answer.

    Raises:
        Refused: any code but SUCCESS.
        Unreachable: thrown in by the driver.
    """
    answer = yield Call(address, command, timeout_ms, delay_ms)
    if answer.code != ResponseCode.SUCCESS:
        raise Refused(address, answer.code, answer.remark or "", _hint(address, command, answer))
    return answer


def _hint(address: str, asked: RemotingCommand, answer: RemotingCommand) -> str:
    """Who does not know a request may be no server of the kind that answers it."""
    if answer.code != ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
        return ""
    return f"; perhaps {address} is no {asked_kind(asked.code)}"


def ask_any(
    addresses: Iterable[str],
    code: RequestCode,
    timeout_ms: int = TIMEOUT_MS,
    **fields: FieldValue,
) -> Exchange[tuple[str, RemotingCommand]]:
    """Send a request to each address in turn until one answers.

    Name servers do not know of each other, and one that was just started knows nothing: what it
    refuses, or answers with an empty list, another one may tell.

    Returns:
        The address that answered, and its answer; an empty one where no other was given.

    Raises:
        Refused: one refused with a code that another one would answer with as well. Where nobody told
            anything, that a topic is nowhere if one said so, whatever the others said; else what is
            so for now alone; else what the first one said.
        Unreachable: none of them answered.
    """
    failures: list[str] = []
    refusals: list[Refused] = []
    empty: tuple[str, RemotingCommand] | None = None
    for address in addresses:
        try:
            command = RemotingCommand(code, ext_fields=ext_fields(**fields) or None)
            answer = yield from ask(address, command, timeout_ms)
        except Unreachable as error:
            failures.append(str(error))
        except Refused as error:
            if error.code not in _ELSEWHERE:
                raise
            refusals.append(error)
            if error.code == ResponseCode.TOPIC_NOT_EXIST:
                timeout_ms = min(timeout_ms, LOOK_ELSEWHERE_MS)
        else:
            if not _is_empty(code, answer):
                return address, answer
            empty = address, answer
    # Who refuses may know more than who has an empty list.
    if refusals:
        raise max(refusals, key=_weight)
    if empty is not None:
        return empty
    raise Unreachable("; ".join(failures) or "no address was given")


def _weight(error: Refused) -> int:
    """Which of several refusals counts, whatever their order."""
    if error.code == ResponseCode.TOPIC_NOT_EXIST:
        return 2
    return 1 if error.is_for_now else 0


def _is_empty(code: int, answer: RemotingCommand) -> bool:
    name = _LISTS.get(code)
    if name is None or len(answer.body) > _EMPTY_BYTES_MAX:
        return False
    try:
        members = fastjson.loads(answer.body)
    except RemoteProtocolError:
        return False  # who asks says what is wrong with it
    return isinstance(members, dict) and not members.get(name)


def ask_each(
    addresses: Iterable[str], code: RequestCode, body: bytes = b"", /, **fields: FieldValue
) -> Exchange[tuple[list[tuple[str, RemotingCommand]], list[RmqhaError]]]:
    """Send a request to every address; one that refuses or is down hides no other.

    Returns:
        Who answered, with the answers; and the failures.
    """
    found: list[tuple[str, RemotingCommand]] = []
    failures: list[RmqhaError] = []
    for address in addresses:
        command = RemotingCommand(code, ext_fields=ext_fields(**fields) or None, body=body)
        try:
            answer = yield from ask(address, command)
        except (Refused, Unreachable) as error:
            failures.append(error)
            continue
        found.append((address, answer))
    return found, failures


def ask_leader(
    addresses: Iterable[str], command: RemotingCommand
) -> Exchange[tuple[str, RemotingCommand]]:
    """Find the controllers' leader and send it a request.

    When the node asked has lost the leadership meanwhile, the leader is looked for again.

    Returns:
        The leader's address, and its answer.

    Raises:
        Refused: the leader refused.
        Unreachable: no controller answered, or none knows a leader.
    """
    listed = tuple(addresses)
    for last in (*[False] * (_LEADER_ROUNDS - 1), True):
        leader = yield from _find_leader(listed)
        try:
            return leader, (yield from ask(leader, command))
        except Refused as error:
            if last or error.code != ResponseCode.CONTROLLER_NOT_LEADER:
                raise
        except Unreachable:
            if last:
                raise
    raise AssertionError("the last round returns or raises")


def _find_leader(addresses: tuple[str, ...]) -> Exchange[str]:
    failures: list[str] = []
    refused: Refused | None = None
    for address in addresses:
        try:
            request = RemotingCommand(RequestCode.CONTROLLER_GET_METADATA_INFO)
            answer = yield from ask(address, request)
        except (Unreachable, Refused) as error:
            refused = error if isinstance(error, Refused) else refused
            failures.append(str(error))
            continue
        fields = answer.ext_fields or {}
        # A leader that was reached need not be reached once more by the name it has for itself.
        if fields.get("isLeader") == "true":
            return address
        # Java's JRaft flavour gives an empty text instead of no field.
        if leader := fields.get("controllerLeaderAddress"):
            return leader
        failures.append(f"{address} knows no leader")
    # The only one that was asked is there, and is no controller.
    if refused is not None and len(failures) == 1:
        raise refused
    raise Unreachable("; ".join(failures) or "no controller address was given")
