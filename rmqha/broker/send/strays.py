"""What clients that know no static topics name by a place in the log, and which log that is.

They send a message back (36), and end a transaction (37), at the broker set that they take for the
queue's own. Of a static topic the message lies at the leader of its queue, or at one of before: the
same place in this log is another message, or none.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import NamedTuple

from rmqha.store import properties as props
from rmqha.store.record import Record

HALVES_KEPT_MAX = 10_000
"""Half messages of which it is remembered where they went; of others their own set asks (39)."""


def is_named(record: Record | None, message_id: str) -> bool:
    """Whether a record is the message of an id: its UNIQ_KEY, or its place with its host."""
    if record is None or not message_id:
        return False
    # The key may be the broker's, of a client so old that it has none.
    key = props.find(record.properties, b"UNIQ_KEY") or b""
    return message_id in (key.decode("utf-8", "replace"), record.message_id)


class PassedHalf(NamedTuple):
    """A half message that another broker set has taken."""

    broker_name: str
    topic: str


class PassedHalves:
    """Half messages that were passed on, by UNIQ_KEY; the oldest go first."""

    def __init__(self) -> None:
        self._passed: OrderedDict[str, PassedHalf] = OrderedDict()

    def passed_on(self, unique_key: str, broker_name: str, topic: str) -> None:
        """A half message was taken by a set."""
        self._passed[unique_key] = PassedHalf(broker_name, topic)
        if len(self._passed) > HALVES_KEPT_MAX:
            self._passed.popitem(last=False)

    def find(self, unique_key: str) -> PassedHalf | None:
        """Where a half message is."""
        return self._passed.get(unique_key)

    def forget(self, unique_key: str) -> None:
        """It is ended, once."""
        self._passed.pop(unique_key, None)
