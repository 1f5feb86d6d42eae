"""Names of topics that mean something, what a name may be, permissions, and message models.

Source: TopicValidator, PermName and MixAll of RocketMQ 5.1.1 to 5.5.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

PERM_INHERIT, PERM_WRITE, PERM_READ = 1, 2, 4
PERM_ALL = PERM_INHERIT | PERM_WRITE | PERM_READ
UNIT_FLAG, UNIT_SUB_FLAG = 1, 2
"""topicSysFlag: a unit's producer made it; a unit's consumer subscribes to it (retry topics)."""
AUTO_CREATE_TOPIC = "TBW102"
TEMPLATE_QUEUES = 4
"""Queues that clients ask for of a topic that a send makes."""
RETRY_PREFIX = "%RETRY%"
DLQ_PREFIX = "%DLQ%"
LIGHT_PREFIX = "%LMQ%"
"""Of the queues of Java's multi dispatch, which belong to no topic."""
TOPIC_LENGTH_MAX = 127
GROUP_TOPIC_LENGTH_MAX = 255
BROADCASTING = "BROADCASTING"
"""The message model of a group each of whose members gets every message."""

NOT_FOR_PRODUCERS = frozenset(
    {
        "SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC",
        "TRANS_CHECK_MAX_TIME_TOPIC", "SELF_TEST_TOPIC", "OFFSET_MOVED_EVENT",
    }
)  # fmt: skip
"""The broker writes these itself."""

ROCKSDB_HALF_TOPIC = "RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC"
ROCKSDB_OP_TOPIC = "RMQ_SYS_ROCKSDB_TRANS_OP_HALF_TOPIC"
OF_NEWER_BROKERS = frozenset({ROCKSDB_HALF_TOPIC, ROCKSDB_OP_TOPIC})
"""Those of 5.5 write these themselves. They are told to nobody (305), as by those of 5.3.3."""

CLOSED_TOPICS = NOT_FOR_PRODUCERS | OF_NEWER_BROKERS
"""Brokers write these, of whichever release, and no client."""

TIMER_TOPIC = "rmq_sys_wheel_timer"
REVIVE_TOPIC = "rmq_sys_REVIVE_LOG_"
"""With the cluster's name behind it."""

SYSTEM_TOPICS = frozenset(
    {
        *NOT_FOR_PRODUCERS, AUTO_CREATE_TOPIC, "BenchmarkTest", "RMQ_SYS_TRACE_TOPIC",
        "CHECKPOINT_TOPIC",
    }
)  # fmt: skip
"""Nobody but the broker may make, change or delete these, nor those of ``SYSTEM_PREFIX``."""

SYSTEM_PREFIX = "rmq_sys_"

_TOPIC = re.compile(r"[%|a-zA-Z0-9_-]+")


def is_system_topic(topic: str) -> bool:
    """Whether a topic is the broker's own."""
    return (
        topic in SYSTEM_TOPICS or topic in OF_NEWER_BROKERS or topic.startswith(SYSTEM_PREFIX)
    )  # fmt: skip


def topic_error(topic: str) -> str | None:
    """Why no topic can have this name; None when one can."""
    if not topic.strip():
        return "the topic is blank"
    if not _TOPIC.fullmatch(topic):
        return f"topic {topic!r} holds other than letters, digits and %|_-"
    group = topic.startswith((RETRY_PREFIX, DLQ_PREFIX))
    limit = GROUP_TOPIC_LENGTH_MAX if group else TOPIC_LENGTH_MAX
    if len(topic) > limit:
        return f"the topic is longer than {limit}"
    return None


def retry_topic_of(topic: str, group: str) -> str:
    """Where a group gets messages of a topic once more; the first of Java's two forms."""
    return topic if topic.startswith(RETRY_PREFIX) else f"{RETRY_PREFIX}{group}_{topic}"


def retry_topics_of(topic: str, group: str) -> tuple[str, ...]:
    """Both forms; the second is of a Java broker with ``enableRetryTopicV2``."""
    if topic.startswith(RETRY_PREFIX):
        return (topic,)
    return retry_topic_of(topic, group), f"{RETRY_PREFIX}{group}+{topic}"


def topics_listed(fields: Mapping[str, str] | None) -> list[str]:
    """The topics of ``topicList``, a field of 208: semicolons stand between them; each once."""
    names = ((fields or {}).get("topicList") or "").split(";")
    return list(dict.fromkeys(name for name in names if name.strip()))
