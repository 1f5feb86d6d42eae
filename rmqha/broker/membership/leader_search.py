"""Which controller leads, and which there are: asked of all at once, believed most from the leader itself.

A group of controllers changes while it works. Asked, and told of this broker, are those of
``controllerAddr`` and the members that the leader names: a member that the configuration lacks would
take this broker for dead as soon as it leads.

Source: RIP-44, "Controller"; RocketMQ's protocol as observed.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping

from rmqha.base.errors import ConfigInvalid
from rmqha.base.machine import Note
from rmqha.remoting.address import parse_address, split_addresses

MEMBERS_NAMED_MAX = 100
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


def members_of(fields: Mapping[str, str], leader: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Who votes in the group, and who joins it, by an answer to 1005 that names this leader.

    The leader alone where it names no addresses, as with JRaft. The form is ``n0:10.0.0.1:9878;n1:..``.
    """
    named = [one.partition(":")[::2] for one in split_addresses(fields.get("peers", ""))]
    ids = split_addresses(fields.get("voters", "")) or [name for name, _ in named]
    voters = tuple(dict.fromkeys(address for name, address in named if name in ids))
    if leader not in voters or len(named) > MEMBERS_NAMED_MAX:
        return (leader,), ()
    try:
        for _, address in named:
            parse_address(address)
    except ConfigInvalid:
        return (leader,), ()
    return voters, tuple(address for name, address in named if name not in ids)


class LeaderSearch:
    """What the controllers say about themselves.

    Args:
        configured: the addresses of ``controllerAddr``.
        salt: names who asks, see :func:`backoff_ms`.

    Attributes:
        members: who votes, by the leader's word; empty while nobody has named a leader.
        joining: who does not vote yet, by the same.
        leader: where requests go; None while nobody is known.
        failures: requests to a leader in a row that brought nothing.
    """

    def __init__(self, configured: tuple[str, ...], salt: str) -> None:
        self.configured = configured
        self.members: tuple[str, ...] = ()
        self.joining: tuple[str, ...] = ()
        self._salt = salt
        self.leader: str | None = None
        self.failures = 0
        self._open: dict[int, str] = {}
        self._heard = 0
        self._warned_ms: int | None = None

    @property
    def controllers(self) -> tuple[str, ...]:
        """All who are to be asked, and to hear of this broker."""
        return tuple(dict.fromkeys(self.configured + self.members + self.joining))

    def named(self, configured: tuple[str, ...], *, same_group: bool = False) -> None:
        """Others are configured from here on; whoever was asked before is not listened to.

        Where not one of them is a known member, they are another group, unless they are the
        ``same_group`` by addresses that a resolver gave: its members have other names for each other,
        and to forget them would leave the write lease to whoever is in a list that may lack most.
        If they are another one all the same, :meth:`answered` hears of it.
        """
        self.configured = configured
        self._open.clear()
        if not same_group and not set(configured) & set(self.members):
            self.members, self.joining, self.leader = (), (), None

    @property
    def is_open(self) -> bool:
        """A round of questions is under way."""
        return bool(self._open)

    def asked(self, token: int, address: str) -> None:
        """A question was sent to one of ``controllers``."""
        self._heard = self._heard if self._open else 0
        self._open[token] = address

    def silent(self, token: int) -> None:
        """A question got no answer."""
        self._open.pop(token, None)

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
        name one that has gone. Where one that is configured leads a group without any of the known
        members, those are another group's, and nobody of this round is listened to any more: their
        leader may be among them.

        Returns:
            Whether there is a leader now and was none, or another.
        """
        asked = self._open.pop(token, None)
        if asked is None:
            return False
        self._heard += 1
        found = (fields or {}).get("controllerLeaderAddress", "").strip()
        is_leader = (fields or {}).get("isLeader", "").lower() == "true"
        if not found or not (is_leader or self.leader is None):
            return False
        voters, joining = members_of(fields or {}, found)
        # One alone may be all that a leader names, as with JRaft, and says nothing of the others.
        several = min(len(voters), len(self.members)) > 1
        if several and asked in self.configured and not set(voters) & set(self.members):
            self._open.clear()
        self.members, self.joining = voters, joining
        is_new = found != self.leader
        self.leader = found
        self._warned_ms = None
        return is_new

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
