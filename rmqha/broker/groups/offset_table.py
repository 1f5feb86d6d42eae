"""How far each group has consumed each queue, kept in ``config/consumerOffset.json``.

Besides what is stored there are two tables in memory: where the last pull of a group ended (for
people), and the offsets that an operator has reset and the next pull will be told.

Source: ConsumerOffsetManager of RocketMQ 5.1.1 to 5.5.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping
from typing import Any, NamedTuple

from rmqha.base.errors import RemoteProtocolError
from rmqha.broker.common.change_order import ChangeOrder, Key
from rmqha.broker.common.json_members import INT64_LIMIT, json_object
from rmqha.broker.topics.topic_table import DataVersion
from rmqha.remoting import fastjson

SEPARATOR = "@"
VERSION_STEP = 500
"""Commits between two changes of the version, as Java's consumerOffsetUpdateVersionStep."""

SLICE_OFFSETS = 2_000
"""Worked on before others get their turn: some two milliseconds."""

Table = dict[Key, dict[int, int]]


class Page(NamedTuple):
    """Some of what has changed.

    Attributes:
        members: of the answer to 43.
        changes: what was changed up to then is in this page or in one before.
        is_last: nothing has changed since.
    """

    members: dict[str, Any]
    changes: int
    is_last: bool


class Merged(NamedTuple):
    """What came of a slice of a master's table.

    Attributes:
        changed: offsets that are others now.
        left_out: pairs of topic and group that may be of a life that has ended since, or of the next.
    """

    changed: int
    left_out: int


class ConsumerOffsets:
    """Offsets by (topic, group) and queue id.

    Args:
        offsets_max: of all groups together; further queues are refused.

    Attributes:
        version: for slaves; moves every ``VERSION_STEP`` commits.
        changes: counts changes; what was written at the same count is up to date.
    """

    def __init__(self, offsets_max: int) -> None:
        self._max = offsets_max
        self._table: Table = {}
        self._topics: dict[str, set[str]] = {}  # by group
        self._groups: dict[str, set[str]] = {}  # by topic
        self._count = 0
        self._pulled: Table = {}
        self._reset: Table = {}
        self._changed = ChangeOrder()
        self._commits = 0
        self.version = DataVersion()
        self.changes = 0

    def __len__(self) -> int:
        return self._count

    def query(self, group: str, topic: str, queue_id: int) -> int | None:
        """What a group has stored for a queue; a reset that is under way counts."""
        reset = self.pending_reset(group, topic, queue_id)
        if reset is not None:
            return reset
        return self._table.get((topic, group), {}).get(queue_id)

    def stored(self, group: str, topic: str) -> dict[int, int]:
        """What a group has stored for a topic, by queue, as :meth:`query`."""
        key = topic, group
        return {**self._table.get(key, {}), **self._reset.get(key, {})}

    def commit(self, group: str, topic: str, queue_id: int, offset: int, wall_ms: int) -> bool:
        """Store an offset, back or forth; False when there is no room for one more queue.

        While a reset waits for its pull, what a member commits is about the place that it was
        moved away from, and is dropped.
        """
        if queue_id in self._reset.get((topic, group), {}):
            return True
        return self._store(group, topic, queue_id, offset, wall_ms)

    def _store(self, group: str, topic: str, queue_id: int, offset: int, wall_ms: int) -> bool:
        queues = self._table.get((topic, group))
        if queues is None or queue_id not in queues:
            if self._count >= self._max:
                return False
            self._count += 1
            if queues is None:
                queues = self._table[topic, group] = {}
                self._list(topic, group)
        elif queues[queue_id] == offset:
            return True
        queues[queue_id] = offset
        self._note((topic, group))
        self._commits += 1
        if self._commits % VERSION_STEP == 0:
            self.version = self.version.next(wall_ms, self.version.state_version)
        return True

    def _note(self, key: Key) -> None:
        self.changes += 1
        self._changed.note(key, self.changes)

    def _list(self, topic: str, group: str) -> None:
        self._topics.setdefault(group, set()).add(topic)
        self._groups.setdefault(topic, set()).add(group)

    def pulled(self, group: str, topic: str, queue_id: int, next_offset: int) -> None:
        """A pull has ended there."""
        if queue_id in self._table.get((topic, group), {}):
            self._pulled.setdefault((topic, group), {})[queue_id] = next_offset

    def pull_offset(self, group: str, topic: str, queue_id: int) -> int | None:
        """Where the last pull of a group ended; None when it has not stored anything yet."""
        return self._pulled.get((topic, group), {}).get(queue_id)

    def reset(self, group: str, topic: str, queue_id: int, offset: int, wall_ms: int) -> bool:
        """Move a group; its next pull is sent there. False when there is no room."""
        if not self._store(group, topic, queue_id, offset, wall_ms):
            return False
        self._reset.setdefault((topic, group), {})[queue_id] = offset
        return True

    def pending_reset(self, group: str, topic: str, queue_id: int) -> int | None:
        """The offset that a reset waits to tell, and goes on waiting."""
        return self._reset.get((topic, group), {}).get(queue_id)

    def forget_resets(self) -> None:
        """Nobody is sent anywhere any more; where groups were moved to is stored."""
        self._reset.clear()

    def take_reset(self, group: str, topic: str, queue_id: int) -> int | None:
        """The offset that a reset waits to tell; it is told once."""
        queues = self._reset.get((topic, group))
        if queues is None or queue_id not in queues:
            return None
        offset = queues.pop(queue_id)
        if not queues:
            del self._reset[topic, group]
        return offset

    def each(self) -> Iterator[tuple[str, str, Mapping[int, int]]]:
        """Topic, group and offsets by queue, of all; what is forgotten meanwhile is left out."""
        for key in list(self._table):
            queues = self._table.get(key)
            if queues is not None:
                yield *key, queues

    def topics_of(self, group: str) -> list[str]:
        """Topics for which a group has stored anything, sorted."""
        return sorted(self._topics.get(group, ()))

    def groups_of(self, topic: str) -> list[str]:
        """Groups that have stored anything for a topic, sorted."""
        return sorted(self._groups.get(topic, ()))

    def forget_group(self, group: str) -> int:
        """A group was deleted with its offsets; how many there were."""
        return self._forget([(topic, group) for topic in self.topics_of(group)])

    def forget_topic(self, topic: str) -> int:
        """A topic was deleted; how many offsets there were."""
        return self._forget([(topic, group) for group in self.groups_of(topic)])

    def _forget(self, gone: list[Key]) -> int:
        count = 0
        for key in gone:
            count += len(self._table.pop(key))
            self._changed.forget(key)
            for index, name, other in ((self._topics, key[1], key[0]), (self._groups, *key)):
                index[name].discard(other)
                if not index[name]:
                    del index[name]
            self._pulled.pop(key, None)
            self._reset.pop(key, None)
        self._count -= count
        self.changes += count
        return count

    def cut(
        self, end_of: Callable[[str, int], int | None]
    ) -> Iterator[list[tuple[str, str, int, int, int]]]:
        """Bring back offsets beyond their queue's end, after the log's tail was truncated.

        Args:
            end_of: the end of a queue; None for one that this store does not have.

        Yields:
            Of a slice: group, topic, queue id, old offset, new offset.
        """
        found, left = [], SLICE_OFFSETS
        for key in list(self._table):
            topic, group = key
            queues = self._table.get(key, {})
            for queue_id, offset in queues.items():
                end = end_of(topic, queue_id)
                if end is not None and offset > end:
                    found.append((group, topic, queue_id, offset, end))
                    queues[queue_id] = end
                    self._note(key)
            left -= len(queues)
            if left <= 0:
                yield found
                found, left = [], SLICE_OFFSETS
        yield found

    # -- the file, and slaves --------------------------------------------------------------------

    def encoded(self, more: Mapping[str, Any]) -> Iterator[bytes]:
        """Parts of ``config/consumerOffset.json``, and of the answer to 43.

        Each offset is as it is when its part is made. What begins to be stored meanwhile may be
        left out, and what is forgotten meanwhile may be in it.

        Args:
            more: members beside the table.
        """
        head = {"dataVersion": self.version.members(), **more}
        yield fastjson.dumps(head)[:-1] + b',\n"offsetTable":{'
        lines: list[bytes] = []
        left, joint = SLICE_OFFSETS, b"\n"
        for key in list(self._table):
            queues = self._table.get(key)
            if queues is None:
                continue
            lines.append(fastjson.dumps(SEPARATOR.join(key)) + b":" + fastjson.dumps(queues))
            left -= len(queues)
            if left <= 0:
                yield joint + b",\n".join(lines)
                lines, left, joint = [], SLICE_OFFSETS, b",\n"
        yield (joint + b",\n".join(lines) if lines else b"") + b"\n}}"

    def page(self, since: int, offsets_max: int = SLICE_OFFSETS) -> Page:
        """What was last changed after so many changes, the oldest change first.

        What was forgotten is not told: a topic or group that goes is a record of the log, which
        slaves have without this.

        Args:
            offsets_max: a page ends with the topic and group that reaches it.
        """
        table: dict[str, dict[str, int]] = {}
        count = 0
        for key, change in self._changed.after(since):
            if count >= offsets_max:
                return Page(self._members(table), since, is_last=False)
            queues = self._table[key]
            table[SEPARATOR.join(key)] = {str(one): offset for one, offset in queues.items()}
            count += len(queues)
            since = change
        return Page(self._members(table), self.changes, is_last=True)

    def _members(self, table: dict[str, dict[str, int]]) -> dict[str, Any]:
        return {"dataVersion": self.version.members(), "offsetTable": table}

    def load(self, value: Mapping[str, Any]) -> None:
        """Take the content of the file in place of everything; raises RemoteProtocolError."""
        table = read_table(value, self._max)
        self.version = DataVersion.of(value.get("dataVersion") or {})
        self._table = table
        self._topics, self._groups, self._changed = {}, {}, ChangeOrder()
        for topic, group in table:
            self._list(topic, group)
            self._note((topic, group))
        self._count = sum(map(len, table.values()))

    def merge(
        self,
        value: Mapping[str, Any],
        ended_topics: Container[str] = (),
        ended_groups: Container[str] = (),
    ) -> Merged:
        """Take what a master stores, or a slice of it, queue by queue.

        What the master does not name stays: it may have been committed here while this replica
        was master itself.

        Args:
            ended_topics, ended_groups: these have been forgotten here since the master was asked.

        Raises:
            RemoteProtocolError: not such a table; nothing was taken.
        """
        table, left_out = read_table(value, self._max), 0
        named = value.get("dataVersion")
        version = DataVersion.of(named) if named else self.version
        before = self.changes
        for (topic, group), queues in table.items():
            if topic in ended_topics or group in ended_groups:
                left_out += 1
                continue
            for queue_id, offset in queues.items():
                self._store(group, topic, queue_id, offset, version.timestamp)
        self.version = version
        return Merged(self.changes - before, left_out)


def read_table(value: Mapping[str, Any], offsets_max: int) -> Table:
    """Read ``offsetTable``; raises RemoteProtocolError."""
    table: Table = {}
    count = 0
    for name, queues in json_object(value.get("offsetTable") or {}, "offsetTable").items():
        topic, separator, group = name.rpartition(SEPARATOR)
        if not separator:
            raise RemoteProtocolError(f"{name!r} in offsetTable is no topic@group")
        offsets: dict[int, int] = {}
        for key, offset in json_object(queues, name).items():
            digits = key.isascii() and key.isdigit() and len(key) <= len(str(1 << 31))
            if not digits or not isinstance(offset, int) or isinstance(offset, bool):
                raise RemoteProtocolError(f"{name!r} in offsetTable holds {key!r}: {offset!r}")
            if not -INT64_LIMIT <= offset < INT64_LIMIT:
                raise RemoteProtocolError(f"{name!r} in offsetTable: {offset} has over 64 bits")
            offsets[int(key)] = offset
        table[topic, group] = offsets
        count += len(offsets)
    if count > offsets_max:
        raise RemoteProtocolError(f"more than {offsets_max} consumer offsets")
    return table
