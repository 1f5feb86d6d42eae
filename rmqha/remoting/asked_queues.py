"""Which queues of a topic a question is about, where it need not be all.

A static topic has a physical queue for every segment that a logical queue ever had. Who remaps asks
where a few of them end (202), while producers wait. Java's brokers pass over the field, and tell all.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from rmqha.remoting.headers import parse_number

ASKED_QUEUES = "rmqhaQueueIds"
_TEXT_MAX = 64 << 10
"""A header has a bound, and all queues are not asked for much more slowly than so many."""


def asked_fields(queue_ids: Collection[int]) -> dict[str, str]:
    """The fields of a question about these queues; none, which is about all, for very many."""
    text = ",".join(map(str, sorted(queue_ids)))
    return {ASKED_QUEUES: text} if 0 < len(text) <= _TEXT_MAX else {}


def asked_queues(fields: Mapping[str, str] | None, count: int) -> Iterable[int]:
    """The queues that a question is about: of ``count`` those that it names, or all."""
    text = (fields or {}).get(ASKED_QUEUES)
    if text is None:
        return range(count)
    found = {parse_number(one, count - 1) for one in text.split(",")}
    return sorted(one for one in found if one is not None and one >= 0)
