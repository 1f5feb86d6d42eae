"""How far each delay level has been delivered: ``config/delayOffset.json`` and request 45.

What is read may run ahead of what is kept: a position is kept, and shown to slaves, only when the
delivered messages before it are as safe as an acknowledged one. So neither a crash nor a failover
can lose a message; it can only deliver the last few once more.

Source: ScheduleMessageService and DelayOffsetSerializeWrapper of RocketMQ 5.1.1 to 5.5.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from rmqha.base.errors import RemoteProtocolError
from rmqha.broker.topics.topic_table import DataVersion


class DelayOffsets:
    """Queue offsets of SCHEDULE_TOPIC_XXXX by delay level, 1 and up.

    Attributes:
        kept: the next message of each level, as far as it is safe to say so.
        version: of ``kept``.
    """

    def __init__(
        self, kept: Mapping[int, int] | None = None, version: DataVersion | None = None
    ) -> None:
        self.kept = dict(kept or {})
        self.version = version or DataVersion()
        self._reading: dict[int, int] = {}

    def begin(self, level: int, low: int, high: int) -> int:
        """Where to begin reading a level whose queue holds [low, high)."""
        at = min(max(self.kept.get(level, low), low), high)
        self._reading[level] = at
        return at

    def next(self, level: int) -> int:
        """The queue offset to read next."""
        return self._reading.get(level, 0)

    def passed(self, level: int, next_offset: int) -> None:
        """Everything before ``next_offset`` is written, or is nothing to deliver."""
        self._reading[level] = next_offset

    def keep(self, wall_ms: int, state_version: int) -> bool:
        """All that was passed is safe now; whether anything is new."""
        changed = {
            level: offset for level, offset in self._reading.items()
            if self.kept.get(level) != offset
        }  # fmt: skip
        if not changed:
            return False
        self.kept.update(changed)
        self.version = self.version.next(wall_ms, state_version)
        return True

    def cut(self, end_of: Callable[[int], int]) -> bool:
        """The log has lost its tail; whether any level went further than what is left.

        Args:
            end_of: where a level's queue ends now.
        """
        kept = {level: min(offset, end_of(level)) for level, offset in self.kept.items()}
        changed, self.kept = kept != self.kept, kept
        return changed

    def members(self) -> dict[str, Any]:
        """The JSON members."""
        return {
            "dataVersion": self.version.members(),
            "offsetTable": {str(level): offset for level, offset in sorted(self.kept.items())},
        }

    @classmethod
    def of(cls, value: Mapping[str, Any]) -> DelayOffsets:
        """Read the JSON members.

        Raises:
            RemoteProtocolError: not such an object.
        """
        table = value.get("offsetTable") or {}
        if not isinstance(table, dict):
            raise RemoteProtocolError("the table of delay offsets is no object")
        kept = {}
        for level, offset in table.items():
            good = str(level).isdecimal() and len(str(level)) < 6
            if not good or type(offset) is not int or offset < 0:
                raise RemoteProtocolError(f"delay level {level!r} has no offset: {offset!r}")
            kept[int(level)] = offset
        return cls(kept, DataVersion.of(value.get("dataVersion") or {}))
