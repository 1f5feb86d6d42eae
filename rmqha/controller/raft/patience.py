"""How long silence must last before it means something: longer where everything is slow.

A machine that has ten times the work it can do lets a process wait for its turn, a leader as well
as a follower. Timeouts made for a quiet network then elect a new leader every few seconds, and
each election costs more of what is short. So each node keeps the longest silence it has seen
lately (decaying, so that one bad moment is forgotten in a minute), and waits for a multiple of it.
The vote guard and the lease, on which safety rests, do not change; a closed connection is believed
as quickly as ever; and who has begun to ask for votes asks again as often as is set.

Source: the idea of Raft 9.3 (timeouts well above the broadcast time), measured instead of set.
"""

from __future__ import annotations

from rmqha.controller.raft.settings import RaftSettings

SILENCES = 2
"""Times the longest silence seen: it may last this long before it is one."""

DECAY = 1 / 256
"""Of the longest silence is forgotten with each heartbeat; half of it in about nine seconds."""

WIDEN_MAX = 10
"""No timeout becomes longer than so many times what is set."""


class Patience:
    """What one node has seen of the group's delays; all times are milliseconds.

    Attributes:
        election_min_ms: the shortest silence after which this node asks for votes, or gives its
            own.
        election_max_ms: the longest.
        is_widened: whether silence must last longer than the settings say.
    """

    def __init__(self, settings: RaftSettings) -> None:
        self._settings = settings
        self._ceiling_ms = settings.election_min_ms * WIDEN_MAX
        self._silence_ms = 0.0
        self._round_ms = 0.0
        self.election_min_ms = settings.election_min_ms
        self.election_max_ms = settings.election_max_ms
        self.is_widened = False

    def heard_after(self, silence_ms: int) -> bool:
        """The leader was heard, so long after the time before; whether patience has begun to grow.

        Every message of a leader comes here, so nearly all of them change nothing.
        """
        self._silence_ms = _longest(self._silence_ms, silence_ms, self._ceiling_ms)
        wanted, least = int(self._silence_ms * SILENCES), self._settings.election_min_ms
        if wanted <= least and not self.is_widened:
            return False
        before, self.is_widened = self.is_widened, wanted > least
        self.election_min_ms = min(max(least, wanted), self._ceiling_ms)
        self.election_max_ms = self.election_min_ms * self._settings.election_max_ms // least
        return self.is_widened and not before

    def was_only_late(self, silence_ms: int) -> None:
        """A leader that had been replaced was heard again, so long after the time before.

        What lasted longer than any timeout is an outage or a partition, and says nothing of slowness.
        """
        if silence_ms <= self._ceiling_ms:
            self.heard_after(silence_ms)

    def round_took(self, round_ms: int) -> None:
        """A quorum answered a round of this leader, so long after it was opened."""
        self._round_ms = _longest(self._round_ms, round_ms, self._ceiling_ms)

    @property
    def quorum_ms(self) -> int:
        """How long a leader goes on without an answer of a quorum."""
        wanted = int(max(self._round_ms, self._silence_ms) * SILENCES)
        limit = self._settings.election_max_ms
        return min(max(limit, wanted), limit * WIDEN_MAX)


def _longest(before: float, seen: int, ceiling_ms: int) -> float:
    return max(before * (1 - DECAY), min(float(seen), float(ceiling_ms)))
