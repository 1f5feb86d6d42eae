"""When a slave may throw its log away and begin at its master's first file, as a new replica does.

It has to when the master's oldest files have expired beyond the end of its log: nothing in the
protocol tells where a master's log begins, but a master that has the next byte sends it. So one
that sends only heartbeats at this log's end, for as long as two of them take, while its
confirmOffset lies beyond, does not have it any more. A Java master behaves like this by itself.

It may only when nothing can be lost by it: the epochs show that all of the log is in the master's
history, and the controllers cannot elect this replica, since it is not in the SyncStateSet. That
it does not get in meanwhile is sure: its acknowledgement is below confirmOffset.
"""

from __future__ import annotations

from enum import Enum

from rmqha.ha.frames import TransferHeader
from rmqha.ha.settings import HaSettings
from rmqha.ha.state import LogFacts

HEARTBEATS_WAITED = 2
"""Periods of the master's heartbeat: flow control holds data back for one second at most."""


class Refused(Enum):
    """Why a slave that must does not start over, with what an operator may do; ``NO``: it does."""

    NO = ""
    OFF = (
        "what this slave lacks has expired at the master: it copies nothing until it starts over; "
        "set slaveStartOverEnable=true and restart it, or see docs/OPERATIONS.md"
    )
    UNPROVEN = (
        "what this slave lacks has expired at the master, and without epochs of its own nothing "
        "shows that the master ever had what is in this log: see docs/OPERATIONS.md"
    )
    IN_SET = (
        "what this slave lacks has expired at the master, but it is in the SyncStateSet and may be "
        "elected: it keeps its log until the master has taken it out"
    )


Verdict = Refused | None
"""None: there is no need, or nobody knows yet."""


class StartOver:
    """What one slave session knows of it.

    Args:
        own_id: of this replica.
        settings: of this replica.

    Attributes:
        is_proven: the last handshake compared epochs, or there was no log to take on trust.
    """

    def __init__(self, own_id: int, settings: HaSettings) -> None:
        self._own_id = own_id
        self._settings = settings
        self.is_proven = False
        self._since_ms = 0
        self._heard_ms: int | None = None
        self._is_member = True

    def waits_since(self, now_ms: int) -> None:
        """The next byte is asked for: at the beginning of a transfer, and after each body."""
        self._since_ms = now_ms

    def set_heard(self, now_ms: int, ids: frozenset[int]) -> None:
        """The controllers' word; see ``events.SetHeard``."""
        self._heard_ms, self._is_member = now_ms, self._own_id in ids

    def judge(self, now_ms: int, header: TransferHeader, log: LogFacts) -> Verdict:
        """Whether to start over, at a heartbeat of the master at the end of this log."""
        if log.is_empty or header.confirm_offset <= log.max_offset:
            return None
        half_ms = self._settings.ha_send_heartbeat_interval_ms
        if now_ms - self._since_ms < HEARTBEATS_WAITED * half_ms:
            return None
        if not self._settings.slave_start_over_enable:
            return Refused.OFF
        if not self.is_proven:
            return Refused.UNPROVEN
        # An answer of before may be of a time when this slave was no member yet.
        if self._heard_ms is None or self._heard_ms < self._since_ms + half_ms:
            return None
        return Refused.IN_SET if self._is_member else Refused.NO
