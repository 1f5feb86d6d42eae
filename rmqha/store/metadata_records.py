"""Records of the internal topic that carries changes of topics and groups (ADR 0022).

The store knows two things of them: where they are, and which topics end with one. What they say
else is the broker's matter.
"""

from __future__ import annotations

from collections.abc import Iterable

from rmqha.store import properties as props

METADATA_TOPIC = "rmq_sys_METADATA"
"""One queue, number 0. No client writes to it, and no route names it."""

METADATA_KEY = METADATA_TOPIC.encode()
_ENDED = b"TOPICS_ENDED"
_SEPARATOR = ","


def ended_property(topics: Iterable[str]) -> bytes:
    """The property of a record with which ``topics`` end: their queues, and their offsets."""
    joined = _SEPARATOR.join(topics)
    return props.encode({_ENDED.decode(): joined}) if joined else b""


def ended_topics(properties: bytes) -> list[bytes]:
    """The topics that end with a record, as records name them; none for another property."""
    value = props.find(properties, _ENDED)
    return [name for name in value.split(_SEPARATOR.encode()) if name] if value else []
