"""Changes of topics that people ask for (17, 18): fields, checks, and the attributes' little language.

Source: CreateTopicRequestHeader, AdminBrokerProcessor, AttributeParser, AttributeUtil and
TopicAttributes of RocketMQ 5.1.1 to 5.5.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from msgspec.structs import replace

from rmqha.base.errors import RemoteProtocolError
from rmqha.broker.common.refusal import Refusal
from rmqha.broker.topics.topic_table import (
    PRIORITY_TYPE,
    QUEUES_MAX,
    TopicConfig,
    unserved_attribute,
)
from rmqha.remoting import fastjson
from rmqha.remoting.codes import ResponseCode
from rmqha.remoting.headers import INT64_MAX, bool_field, int_field, parse_number, text_field
from rmqha.remoting.topic_names import PERM_READ, PERM_WRITE, topic_error

TOPICS_OF_REQUEST_MAX = 10_000
_PERM_MAX = 0xF
_MESSAGE_TYPES = frozenset(
    {"UNSPECIFIED", "NORMAL", "FIFO", "DELAY", "TRANSACTION", "MIXED", "LITE", PRIORITY_TYPE}
)


def _one_of(*values: str) -> Callable[[str], bool]:
    return lambda value: value in values


def _is_time(value: str) -> bool:
    number = parse_number(value, INT64_MAX)
    return number is not None and number >= -1


# Name: whether it can be changed later, and what is a good value.
_ATTRIBUTES: dict[str, tuple[bool, Callable[[str], bool]]] = {
    "queue.type": (False, _one_of("BatchCQ", "SimpleCQ")),
    "cleanup.policy": (False, _one_of("DELETE", "COMPACTION")),
    "message.type": (True, lambda value: value in _MESSAGE_TYPES),
    "reserve.time": (True, _is_time),
}


def parse_attributes(text: str) -> dict[str, str] | Refusal:
    """Read ``+name=value,-name``; the names keep their signs."""
    found: dict[str, str] = {}
    for part in text.split(",") if text else ():
        name, equals, value = part.partition("=")
        if name[:1] == "+" and equals and name[1:] and value.strip():
            found[name.strip()] = value.strip()
        elif name[:1] == "-" and name[1:] and not equals:
            found[name.strip()] = ""
        else:
            return Refusal(
                ResponseCode.SYSTEM_ERROR, f"attribute {part!r} is not +name=value or -name"
            )
    return found


def alter_attributes(
    old: Mapping[str, str] | None, changes: Mapping[str, str]
) -> dict[str, str] | Refusal:
    """The attributes after a change.

    Args:
        old: those of the topic; None for a topic that is being made.
        changes: as :func:`parse_attributes` reads them.
    """
    result = dict(old or {})
    seen: set[str] = set()
    for signed, value in changes.items():
        name = signed[1:]
        problem = _alter_problem(old, signed, value)
        if name in seen:
            problem = f"attribute {name} is changed twice"
        if problem:
            return Refusal(ResponseCode.SYSTEM_ERROR, problem)
        seen.add(name)
        if signed[0] == "-":
            del result[name]
        else:
            result[name] = value
    return result


def _alter_problem(old: Mapping[str, str] | None, signed: str, value: str) -> str:
    name = signed[1:]
    if signed[:1] not in ("+", "-") or not name:
        return f"attribute {signed!r} has neither + nor - before its name"
    known = _ATTRIBUTES.get(name)
    if known is None:
        return f"unsupported key: {name}"
    changeable, is_good = known
    if old is None and signed[0] == "-":
        return f"only add attribute is supported while creating topic. key: {name}"
    if old is not None and signed[0] == "-" and name not in old:
        return f"attempt to delete a nonexistent key: {name}"
    if old is not None and not changeable and old.get(name) != value:
        return f"attempt to update an unchangeable attribute. key: {name}"
    if signed[0] == "+" and not is_good(value):
        return f"value {value!r} of attribute {name} is not allowed"
    return ""


def check_name(name: str, is_protected: Callable[[str], bool]) -> Refusal | None:
    """Whether people may change a topic of this name.

    Args:
        is_protected: tells the names of the broker's own topics (``own_topics.py``).
    """
    error = topic_error(name)
    if error is None and is_protected(name):
        error = f"The topic[{name}] is conflict with system topic."
    return None if error is None else Refusal(ResponseCode.INVALID_PARAMETER, error)


def parse_topic(
    fields: Mapping[str, str] | None,
    old: Callable[[str], TopicConfig | None],
    is_protected: Callable[[str], bool],
    *,
    queues_min: int = 1,
) -> TopicConfig | Refusal:
    """The topic that request 17 asks for.

    Args:
        queues_min: a static topic (513) has none on broker sets without one of its logical queues.
    """
    name = text_field(fields, "topic", "")
    changes = parse_attributes(text_field(fields, "attributes", ""))
    refusal = check_name(name, is_protected)
    if refusal is not None:
        return refusal
    if isinstance(changes, Refusal):
        return changes
    wanted = TopicConfig(
        name,
        int_field(fields, "readQueueNums", 0),
        int_field(fields, "writeQueueNums", 0),
        perm=int_field(fields, "perm", PERM_READ | PERM_WRITE),
        topic_filter_type=text_field(fields, "topicFilterType", "SINGLE_TAG"),
        topic_sys_flag=int_field(fields, "topicSysFlag", 0),
        order=bool_field(fields, "order"),
        attributes=changes,
    )
    return checked_topic(wanted, old(name), queues_min)


def parse_topics(
    body: bytes, old: Callable[[str], TopicConfig | None], is_protected: Callable[[str], bool]
) -> list[TopicConfig] | Refusal:
    """The topics that request 18 asks for; nothing is done when one of them is wrong.

    Raises:
        RemoteProtocolError: the body is no list of topics.
    """
    value = fastjson.loads(bytes(body))
    items = value.get("topicConfigList") if isinstance(value, dict) else None
    if not isinstance(items, list) or len(items) > TOPICS_OF_REQUEST_MAX:
        raise RemoteProtocolError("topicConfigList is no array, or too long")
    found: list[TopicConfig] = []
    for item in items:
        wanted = TopicConfig.of(item)
        refusal = check_name(wanted.name, is_protected)
        topic = refusal or checked_topic(wanted, old(wanted.name))
        if isinstance(topic, Refusal):
            return topic
        found.append(topic)
    return found


def checked_topic(
    wanted: TopicConfig, old: TopicConfig | None, queues_min: int = 1
) -> TopicConfig | Refusal:
    """The topic after the change, or what is wrong with it."""
    counts = (wanted.read_queue_nums, wanted.write_queue_nums)
    if not all(queues_min <= count <= QUEUES_MAX for count in counts):
        return Refusal(
            ResponseCode.INVALID_PARAMETER,
            f"queue numbers must be from {queues_min} to {QUEUES_MAX}",
        )
    if not 0 <= wanted.perm <= _PERM_MAX:
        return Refusal(
            ResponseCode.INVALID_PARAMETER, f"perm {wanted.perm} is not from 0 to {_PERM_MAX}"
        )
    attributes = alter_attributes(None if old is None else old.attributes, wanted.attributes)
    if isinstance(attributes, Refusal):
        return attributes
    unserved = unserved_attribute(attributes)
    if unserved is not None and (old is None or unserved_attribute(old.attributes) is None):
        return Refusal(ResponseCode.SYSTEM_ERROR, f"this broker does not serve {unserved}")
    return replace(wanted, attributes=attributes)
