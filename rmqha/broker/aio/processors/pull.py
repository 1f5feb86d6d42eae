"""Requests 11 and 361 (pull), 29 to 31 (offsets of a queue). Consumers see confirmed messages only.

A pull that finds nothing is held until a message comes or its time is over; held pulls are looked
at by one timer, whatever their number.
"""

from __future__ import annotations

from typing import NamedTuple

from rmqha.broker.aio.processors import Broker, Handlers
from rmqha.broker.pull import (
    BYTES_MAX,
    COUNT_MAX,
    FLAG_SUBSCRIPTION,
    FLAG_SUSPEND,
    PULL_NOT_FOUND,
    SCAN_MAX,
    SUBSCRIPTION_NOT_EXIST,
    PullRequest,
    parse_pull,
    status_code,
    tag_hashes,
)
from rmqha.broker.send import (
    INVALID_PARAMETER,
    NO_PERMISSION,
    SERVICE_NOT_AVAILABLE,
    TOPIC_NOT_EXIST,
    Refusal,
)
from rmqha.broker.topics import PERM_READ
from rmqha.ha.events import Role
from rmqha.remoting.aio.connection import Connection
from rmqha.remoting.codes import RequestCode, ResponseCode
from rmqha.remoting.command import RemotingCommand
from rmqha.remoting.headers import ext_fields, int_field, long_field, text_field
from rmqha.runtime.ports import TimerHandle
from rmqha.store import properties as props
from rmqha.store.aio.reader import GetResult
from rmqha.store.record import check_record

LITE_PULL_MESSAGE = 361
SEARCH_OFFSET_BY_TIMESTAMP, GET_MAX_OFFSET, GET_MIN_OFFSET = 29, 30, 31
HELD_MAX = 20_000
LOOK_MS = 20
SHORT_POLL_MS = 1_000
PHYSICAL_OFFSET_AT = 28


class Held(NamedTuple):
    """A pull that waits for a message, until ``until_ms``."""

    connection: Connection
    request: RemotingCommand
    pull: PullRequest
    until_ms: int


class Collected(NamedTuple):
    """What a pull found, filtered."""

    result: GetResult
    messages: list[memoryview]
    next_offset: int


class PullProcessor:
    """Serves consumers from the queues."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._held: list[Held] = []
        self._timer: TimerHandle | None = None
        self._slave_reads = broker.config.boolean("slaveReadEnable")
        self._long_polling = broker.config.boolean("longPollingEnable")

    def handlers(self) -> Handlers:
        """By request code."""
        return {
            RequestCode.PULL_MESSAGE: self.pull,
            LITE_PULL_MESSAGE: self.pull,
            SEARCH_OFFSET_BY_TIMESTAMP: self.offset_by_time,
            GET_MAX_OFFSET: self.max_offset,
            GET_MIN_OFFSET: self.min_offset,
        }

    def close(self) -> None:
        """Forget held pulls; their connections are closing."""
        self._held.clear()
        if self._timer is not None:
            self._timer.cancel()

    def _closed(self) -> Refusal | None:
        role = self._broker.role
        if role is None:
            return Refusal(SERVICE_NOT_AVAILABLE, "this broker does not know its role yet")
        if role is Role.SLAVE and not self._slave_reads:
            return Refusal(ResponseCode.SYSTEM_BUSY, "[REJECTREQUEST] slaveReadEnable is false")
        return None

    def pull(self, connection: Connection, request: RemotingCommand) -> RemotingCommand | None:
        """Take a pull."""
        pull = parse_pull(request.ext_fields)
        refusal = self._closed() or self._refusal(pull)
        if refusal is not None:
            return request.reply(refusal.code, refusal.remark)
        collected = self._collect(pull)
        answer = self._answer(request, pull, collected)
        if answer.code == PULL_NOT_FOUND and pull.sys_flag & FLAG_SUSPEND:
            limit_ms = pull.suspend_timeout_ms if self._long_polling else SHORT_POLL_MS
            if limit_ms > 0 and len(self._held) < HELD_MAX:
                until_ms = self._broker.clock.now_ms() + limit_ms
                self._held.append(Held(connection, request, pull, until_ms))
                self._look_later()
                return None
        return answer

    def _refusal(self, pull: PullRequest) -> Refusal | None:
        topic = self._broker.topics.table.get(pull.topic)
        if topic is None:
            return Refusal(TOPIC_NOT_EXIST, f"topic {pull.topic} does not exist")
        if not topic.perm & PERM_READ:
            return Refusal(NO_PERMISSION, f"topic {pull.topic} cannot be read")
        if not 0 <= pull.queue_id < topic.read_queue_nums:
            return Refusal(INVALID_PARAMETER, f"queue {pull.queue_id} does not exist")
        if not pull.sys_flag & FLAG_SUBSCRIPTION:
            return Refusal(SUBSCRIPTION_NOT_EXIST, "the request must carry its subscription")
        if pull.expression_type != "TAG":
            return Refusal(ResponseCode.SYSTEM_ERROR, f"no filter {pull.expression_type} here")
        return None

    def _collect(self, pull: PullRequest) -> Collected:
        """Read until enough messages pass the filter, or enough were looked at."""
        wanted = max(1, min(pull.max_msg_nums, COUNT_MAX))
        bytes_max = max(1, min(pull.max_msg_bytes, BYTES_MAX))
        hashes = tag_hashes(pull.subscription)
        reader = self._broker.store.reader
        first = result = reader.get(
            pull.topic, pull.queue_id, pull.queue_offset, count_max=wanted, bytes_max=bytes_max
        )
        found: list[memoryview] = []
        scanned = 0
        while True:
            found += [one for one in result.records if hashes is None or _tag(one) in hashes]
            scanned += len(result.records)
            following = result.next_begin_offset
            if found or not result.records or scanned >= SCAN_MAX:
                return Collected(first, found, following)
            result = reader.get(
                pull.topic, pull.queue_id, following, count_max=wanted, bytes_max=bytes_max
            )

    def _answer(
        self, request: RemotingCommand, pull: PullRequest, collected: Collected
    ) -> RemotingCommand:
        result = collected.result
        code = status_code(
            result.status,
            found=bool(collected.messages),
            offset=pull.queue_offset,
            max_offset=result.max_offset,
        )
        fields = ext_fields(
            suggestWhichBrokerId=0,
            nextBeginOffset=collected.next_offset,
            minOffset=result.min_offset,
            maxOffset=result.max_offset,
        )
        return request.reply(code, result.status, fields, b"".join(collected.messages))

    # -- held pulls --------------------------------------------------------------------------------

    def _look_later(self) -> None:
        if self._timer is None:
            self._timer = self._broker.clock.call_later(LOOK_MS, self._look)

    def _look(self) -> None:
        """Answer the pulls whose queue has grown, or whose time is over."""
        self._timer = None
        now_ms = self._broker.clock.now_ms()
        held, self._held = self._held, []
        for one in held:
            if one.connection.is_closing:
                continue
            over = now_ms >= one.until_ms or self._closed() is not None
            high = self._broker.store.reader.max_offset(one.pull.topic, one.pull.queue_id)
            if not over and high <= one.pull.queue_offset:
                self._held.append(one)
                continue
            answer = self._answer(one.request, one.pull, self._collect(one.pull))
            if answer.code == PULL_NOT_FOUND and not over:
                self._held.append(one)
            else:
                one.connection.send(answer)
        if self._held:
            self._look_later()

    # -- offsets -----------------------------------------------------------------------------------

    def max_offset(self, _: Connection, request: RemotingCommand) -> RemotingCommand:
        """30."""
        topic, queue_id = _queue(request)
        return _offset(request, self._broker.store.reader.max_offset(topic, queue_id))

    def min_offset(self, _: Connection, request: RemotingCommand) -> RemotingCommand:
        """31."""
        topic, queue_id = _queue(request)
        return _offset(request, self._broker.store.reader.min_offset(topic, queue_id))

    def offset_by_time(self, _: Connection, request: RemotingCommand) -> RemotingCommand:
        """29."""
        topic, queue_id = _queue(request)
        moment = long_field(request.ext_fields, "timestamp", 0)
        return _offset(request, self._broker.store.reader.offset_by_time(topic, queue_id, moment))


def _queue(request: RemotingCommand) -> tuple[str, int]:
    fields = request.ext_fields
    return text_field(fields, "topic", ""), int_field(fields, "queueId", -1)


def _offset(request: RemotingCommand, offset: int) -> RemotingCommand:
    return request.reply(ResponseCode.SUCCESS, None, ext_fields(offset=offset))


def _tag(message: memoryview) -> int:
    """The tag's hash of a whole record; 0 without a tag."""
    offset = int.from_bytes(message[PHYSICAL_OFFSET_AT : PHYSICAL_OFFSET_AT + 8])
    head = check_record(message, 0, len(message), offset, check_crc=False)
    start = head.properties_at
    found = props.find(bytes(message[start : start + head.properties_size]), b"TAGS")
    return 0 if found is None else props.java_hash(found.decode("utf-8", "replace"))
