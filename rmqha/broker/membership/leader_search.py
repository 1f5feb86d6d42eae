"""Which controller leads: asked of all at once, believed most from the leader itself.

Source: RIP-44, "Controller"; RocketMQ's protocol as observed.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping

from rmqha.base.machine import Note

_JITTER_STEPS = 256
WARN_EVERY_MS = 30_000


def backoff_ms(attempt: int, first_ms: int, limit_ms: int, salt: str) -> int:
    """Wait before an attempt, ms: doubles up to the limit, spread so that brokers do not march.

    Args:
        attempt: how many failed before, from 0.
        salt: names who waits; the same one waits the same, which a replay needs.
    """
    delay_ms = min(limit_ms, first_ms << min(attempt, 16))
    spread = zlib.crc32(f"{salt}{attempt}".encode()) % _JITTER_STEPS
    return delay_ms // 2 + delay_ms * spread // (2 * _JITTER_STEPS) + 1


class LeaderSearch:
    """What the controllers say about their leader.

    Args:
        controllers: all addresses.
        salt: names who asks, see :func:`backoff_ms`.

    Attributes:
        leader: where requests go; None while nobody is known.
        failures: requests to a leader in a row that brought nothing.
    """

    def __init__(self, controllers: tuple[str, ...], salt: str) -> None:
        self.controllers = controllers
        self._salt = salt
        self.leader: str | None = None
        self.failures = 0
        self._open: set[int] = set()
        self._heard = 0
        self._warned_ms: int | None = None

    @property
    def is_open(self) -> bool:
        """A round of questions is under way."""
        return bool(self._open)

    def asked(self, token: int) -> None:
        """A question was sent."""
        self._heard = self._heard if self._open else 0
        self._open.add(token)

    def silent(self, token: int) -> None:
        """A question got no answer."""
        self._open.discard(token)

    def ended(self, now_ms: int) -> list[Note]:
        """A round has found no leader: what to tell people, at once and every half a minute."""
        if self._warned_ms is not None and now_ms - self._warned_ms < WARN_EVERY_MS:
            return []
        self._warned_ms = now_ms
        event = "controllers_without_leader" if self._heard else "controllers_unreachable"
        return [Note(event, "warning", {"controllers": list(self.controllers)})]

    def answered(self, token: int, fields: Mapping[str, str] | None) -> bool:
        """Take one controller's answer to 1005.

        The leader's own word counts always, others' only while nobody is known: a follower may
        name one that has gone.

        Returns:
            Whether there is a leader now and was none, or another.
        """
        self._open.discard(token)
        self._heard += 1
        found = (fields or {}).get("controllerLeaderAddress", "").strip()
        is_leader = (fields or {}).get("isLeader", "").lower() == "true"
        if not found or found == self.leader or not (is_leader or self.leader is None):
            return False
        self.leader = found
        self._warned_ms = None
        return True

    def lost(self) -> None:
        """The leader did not answer, or says that it leads no more."""
        self.leader = None
        self.failures += 1

    def pause_ms(self, first_ms: int, limit_ms: int) -> int:
        """How long to wait after the latest failure before anybody is asked again."""
        return backoff_ms(max(0, self.failures - 1), first_ms, limit_ms, self._salt)

    def worked(self) -> None:
        """The leader answered as one."""
        self.failures = 0
