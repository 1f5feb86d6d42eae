"""Messages that are not for now: delay levels, timers, and what becomes of them when they are due.

A delayed message is stored under a topic of the broker's own with its real topic and queue among
its properties, and written once more when it is due. The second record keeps the properties of
the first: Java's consumers find DELAY, REAL_TOPIC and REAL_QID there, too.

Source: HookUtils, ScheduleMessageService, TimerMessageStore and RecallMessageHandle of RocketMQ 5.0 to 5.5.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from rmqha.broker.common.refusal import Refusal
from rmqha.broker.topics.topic_table import QUEUES_MAX
from rmqha.remoting.codes import ResponseCode
from rmqha.remoting.headers import INT32_MAX, INT64_MAX, parse_number
from rmqha.remoting.topic_names import CLOSED_TOPICS, RETRY_PREFIX
from rmqha.remoting.topic_names import TIMER_TOPIC as TIMER_TOPIC  # rooms above take it from here
from rmqha.store import properties as props
from rmqha.store.record import Message, Record

SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"
TIMER_QUEUE = 0
OUT_MS = b"TIMER_OUT_MS"
DELETE_KEY = b"TIMER_DEL_UNIQKEY"
RECALL_TAG = "_RECALL_TAG_"

_DELAY = b"DELAY"
_DELAY_SEC, _DELAY_MS, _DELIVER_MS = b"TIMER_DELAY_SEC", b"TIMER_DELAY_MS", b"TIMER_DELIVER_MS"
_REAL_TOPIC, _REAL_QUEUE = b"REAL_TOPIC", b"REAL_QID"
_HANDLE_VERSION = "v1"
_HANDLE_PARTS = 5


class DelayRules(NamedTuple):
    """What a broker does about delays.

    Attributes:
        levels_ms: how long each delay level is, the first one's first.
        timers: ``timerWheelEnable``.
        precision_ms: ``timerPrecisionMs``: delivery times are rounded down to it.
        delay_max_ms: how far ahead a timer may be.
    """

    levels_ms: tuple[int, ...]
    timers: bool
    precision_ms: int
    delay_max_ms: int

    @property
    def levels(self) -> int:
        """How many delay levels there are."""
        return len(self.levels_ms)

    def level_of(self, least_ms: int) -> int:
        """The first level that is so long, else the longest one."""
        for level, delay_ms in enumerate(self.levels_ms, 1):
            if delay_ms >= least_ms:
                return level
        return 1 + self.levels_ms.index(max(self.levels_ms)) if self.levels_ms else 1


def delay_level(named: Mapping[bytes, bytes]) -> int:
    """DELAY of properties by name, as a number; 0 without one, and for what is no number."""
    value = named.get(_DELAY)
    if value is None:
        return 0
    return parse_number(value.decode("utf-8", "replace"), INT32_MAX) or 0


def place(
    message: Message, rules: DelayRules, wall_ms: int, named: Mapping[bytes, bytes] | None = None
) -> Message | Refusal:
    """The message as it is stored: itself, or the one that waits for its time.

    A delay level wins over a timer, and a time that has passed means now.

    Args:
        named: the message's properties by name, where they have been read already.
    """
    if named is None:
        named = props.by_name(message.properties)
    level = delay_level(named)
    if level > 0:
        return _scheduled(message, level, rules)
    if message.topic == TIMER_TOPIC or b"TIMER_D" not in message.properties:
        return message
    return _timed(message, rules, wall_ms, named)


def _scheduled(message: Message, level: int, rules: DelayRules) -> Message:
    properties = message.properties
    if b"TIMER_D" in properties:
        for name in (_DELAY_SEC, _DELAY_MS, _DELIVER_MS):
            properties = props.drop(properties, name)
    pairs = _real_place_pairs(message)
    if level > rules.levels:
        level = max(1, rules.levels)
        pairs = {_DELAY: b"%d" % level, **pairs}
    return message._replace(
        topic=SCHEDULE_TOPIC, queue_id=level - 1, properties=props.put_all(properties, pairs)
    )


def postponed(message: Message, level: int, rules: DelayRules) -> Message:
    """A message that is due, but waits once more under a delay level."""
    properties = props.put(message.properties, _DELAY, b"%d" % level)
    return _scheduled(message._replace(properties=properties), level, rules)


def _real_place_pairs(message: Message) -> dict[bytes, bytes]:
    """Where the message really belongs."""
    return {_REAL_TOPIC: message.topic.encode(), _REAL_QUEUE: b"%d" % message.queue_id}


def _timed(
    message: Message, rules: DelayRules, wall_ms: int, named: Mapping[bytes, bytes]
) -> Message | Refusal:
    if OUT_MS in named:
        return message
    wanted = _deliver_ms(named, wall_ms)
    if wanted is None:
        return message
    if not rules.timers:
        return Refusal(ResponseCode.SYSTEM_ERROR, "timers are switched off: timerWheelEnable=false")
    if wanted - wall_ms > rules.delay_max_ms:
        return Refusal(
            ResponseCode.MESSAGE_ILLEGAL,
            f"a timer may be at most {rules.delay_max_ms} ms ahead, and must be a number",
        )
    if wanted <= wall_ms:
        if DELETE_KEY in named:
            return Refusal(ResponseCode.MESSAGE_ILLEGAL, "what is to be recalled is due already")
        return message
    step = rules.precision_ms
    out = wanted - step if wanted % step == 0 else wanted - wanted % step
    pairs = {OUT_MS: b"%d" % out, **_real_place_pairs(message)}
    return message._replace(
        topic=TIMER_TOPIC,
        queue_id=TIMER_QUEUE,
        properties=props.put_all(message.properties, pairs),
    )


def _deliver_ms(named: Mapping[bytes, bytes], wall_ms: int) -> int | None:
    """When the producer wants it delivered: never when that is no number, None without a word."""
    for name, unit_ms in ((_DELAY_SEC, 1000), (_DELAY_MS, 1), (_DELIVER_MS, 0)):
        value = named.get(name)
        if value is not None:
            number = parse_number(value.decode("utf-8", "replace"), INT64_MAX)
            if number is None:
                return INT64_MAX
            return number if not unit_ms else wall_ms + number * unit_ms
    return None


# -- when they are due


def real_place(properties: bytes) -> tuple[str, int] | None:
    """Real topic and queue of a message that waited; None when it does not say, or says nonsense.

    Check points of pops wait for the revive topic; nothing waits for the other topics of services,
    which would act on it once more, for ever.
    """
    topic = props.find(properties, _REAL_TOPIC)
    queue = props.find_integer(properties, _REAL_QUEUE)
    if topic is None or queue is None or queue >= QUEUES_MAX:
        return None
    name = topic.decode("utf-8", "replace")
    return None if name == TIMER_TOPIC or name in CLOSED_TOPICS else (name, queue)


def due_message(record: Record) -> Message | None:
    """A message that waited, as it is delivered; None for a record that says not where to."""
    found = real_place(record.properties)
    if found is None:
        return None
    return record.message()._replace(
        topic=found[0], queue_id=found[1], prepared_transaction_offset=0
    )


def due_ms(tags_code: int, wall_ms: int, delay_ms: int) -> int:
    """When the unit of a delayed message is due: what it says, but never beyond its level.

    A clock that was set back must not hold messages for longer than their delay.
    """
    return wall_ms if tags_code > wall_ms + delay_ms else tags_code


def timer_out_ms(properties: bytes) -> int | None:
    """When a stored timer is due; None for a record that does not say."""
    return props.find_integer(properties, OUT_MS)


def timer_key(record: Record) -> str | None:
    """How a recall names a stored timer; None for one that cannot be recalled."""
    found, key = real_place(record.properties), props.find(record.properties, b"UNIQ_KEY")
    if found is None or key is None:
        return None
    return delete_key(found[0], key.decode("utf-8", "replace"))


def recalled_key(record: Record) -> str:
    """Which stored timer this one takes back; empty for none.

    Who may write to one topic takes back timers of that topic only. Brokers up to 5.3.3 write the
    topic before the message's UNIQ_KEY, those of 5.5.0 the latter alone, unless
    ``appendTopicForTimerDeleteKey`` is set there.
    """
    found, key = real_place(record.properties), props.find(record.properties, DELETE_KEY)
    if found is None or key is None:
        return ""
    text, before = key.decode("utf-8", "replace"), delete_key(found[0], "")
    return text if text.startswith(before) else before + text


def delete_key(topic: str, unique_key: str) -> str:
    """What a recall says of the message that it recalls."""
    return f"{topic}+{unique_key}"


# -- recall handles


class RecallHandle(NamedTuple):
    """What a producer gives back to recall a timer."""

    topic: str
    broker_name: str
    deliver_ms: int
    unique_key: str


def encode_handle(handle: RecallHandle) -> str:
    """The handle as text."""
    parts = (
        _HANDLE_VERSION, handle.topic, handle.broker_name, str(handle.deliver_ms),
        handle.unique_key,
    )  # fmt: skip
    return base64.urlsafe_b64encode(" ".join(parts).encode()).decode()


def decode_handle(text: str) -> RecallHandle | Refusal:
    """Read a handle."""
    wrong = Refusal(ResponseCode.ILLEGAL_OPERATION, "recall handle is invalid")
    try:
        raw = base64.b64decode(text.encode(), altchars=b"-_", validate=True)
        parts = raw.decode().split(" ")
    except (binascii.Error, UnicodeError):
        return wrong
    if len(parts) < _HANDLE_PARTS or parts[0] != _HANDLE_VERSION:
        return wrong
    return RecallHandle(parts[1], parts[2], parse_number(parts[3], INT64_MAX) or -1, parts[4])


def handle_of(
    message: Message, placed: Message, named: Mapping[bytes, bytes], broker_name: str
) -> str | None:
    """The handle that the producer of a timer is given; None for any other message.

    Args:
        message, placed: as it came, and as :func:`place` has it stored.
        named: properties of ``message`` by name.
    """
    if placed.topic != TIMER_TOPIC or message.topic.startswith(RETRY_PREFIX):
        return None
    out, key = timer_out_ms(placed.properties), named.get(b"UNIQ_KEY")
    if out is None or key is None:
        return None
    # One more, so that rounding down leads to the same time again.
    return encode_handle(
        RecallHandle(message.topic, broker_name, out + 1, key.decode("utf-8", "replace"))
    )


def check_recall(
    handle: RecallHandle, topic: str, broker_name: str, rules: DelayRules, wall_ms: int
) -> Refusal | None:
    """Whether a handle can still be used here."""
    if handle.topic != topic:
        return Refusal(ResponseCode.ILLEGAL_OPERATION, "recall failed, topic not match")
    if handle.broker_name != broker_name:
        return Refusal(
            ResponseCode.ILLEGAL_OPERATION, "recall failed, broker service not available"
        )
    if not 0 < handle.deliver_ms - wall_ms < rules.delay_max_ms:
        return Refusal(ResponseCode.ILLEGAL_OPERATION, "recall failed, timestamp invalid")
    return None


def recall_messages(
    handle: RecallHandle, group: str, wall_ms: int, born_host: bytes, store_host: bytes
) -> Iterator[Message]:
    """The messages that take another one back when all are due.

    One for each form of the key: a broker of Java's that is master by then knows one of them only.
    """
    for key in (delete_key(handle.topic, handle.unique_key), handle.unique_key):
        yield _recall_message(key, handle, group, wall_ms, born_host, store_host)


def _recall_message(
    key: str, handle: RecallHandle, group: str, wall_ms: int, born_host: bytes, store_host: bytes
) -> Message:
    pairs = {
        "TAGS": RECALL_TAG,
        "TIMER_DEL_UNIQKEY": key,
        "UNIQ_KEY": handle.unique_key,
        "TIMER_DELIVER_MS": str(handle.deliver_ms),
        "BORN_TIMESTAMP": str(wall_ms),
        "PGROUP": group,
    }
    properties = props.encode({name: value for name, value in pairs.items() if value})
    return Message(handle.topic, 0, b"0", properties, wall_ms, born_host, store_host)
