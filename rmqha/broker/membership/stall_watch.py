"""Whether a broker stands still, and what is done in its place until it goes on.

An event loop that waits for a disk can send no heartbeat and give no mastership up. Somebody else does
(``aio/stall_watcher.py``, another process): it goes on with the heartbeats, and has another member of the
SyncStateSet elected if the controllers take this broker for the master. Before it asks for that it raises
a fence, behind which the broker has no write lease, however long ago it looked at its clock; the fence
falls when the broker goes on and no such question can be acted upon any more. See ADR 0024.

A disk may also stall where only worker threads wait for it. Then the loop goes on, and the age of the
oldest write tells it.
"""

from __future__ import annotations

from typing import NamedTuple, assert_never

from msgspec import Struct

from rmqha.auth.signature import Credentials
from rmqha.base.errors import RemoteProtocolError
from rmqha.base.machine import Note
from rmqha.broker.common.replicas_settings import ReplicasSettings
from rmqha.broker.membership.controller_requests import heartbeat_fields, master_of, who_fields
from rmqha.broker.membership.events import Answered, Ask, Beat, Unanswered
from rmqha.broker.membership.leader_search import LeaderSearch
from rmqha.broker.membership.stall_page import Facts
from rmqha.remoting.bodies import SyncStateSet
from rmqha.remoting.codes import RequestCode, ResponseCode
from rmqha.remoting.headers import ext_fields

LOOK_MS = 50
"""Between two looks, and between two signs of life."""

SELF_LATE_MS = 250
"""A look that comes so long after the one before: the watcher stood still itself, with the machine."""

ASK_MS = 250
POLL_MS = 1_000
FORGET_MS = 10_000
"""A question that was not answered is not acted upon later than that."""

BEAT_FOR_MS = 60_000
"""Whoever stands still for longer may be missed: nobody knows whether it will go on."""


_WHO_LEADS = int(RequestCode.CONTROLLER_GET_METADATA_INFO)


class WatchSettings(Struct, frozen=True):
    """Whom to watch.

    Attributes:
        replicas: the broker's own.
        stall_ms: so long a sign of life, or a write, may take.
        credentials: what its requests are signed with; None for nothing.
    """

    replicas: ReplicasSettings
    stall_ms: int
    credentials: Credentials | None = None


class Looked(Struct, frozen=True):
    """It is time to look.

    Attributes:
        facts: what the broker said last.
        is_fenced: the fence is up, perhaps since the time of a watcher that has ended.
        is_fence_seen: the broker knows.
        controllers: who they are, as the broker said last; empty for those of the settings.
    """

    facts: Facts
    is_fenced: bool
    is_fence_seen: bool
    controllers: tuple[str, ...] = ()


WatchEvent = Looked | Answered | Unanswered


class RaiseFence(NamedTuple):
    """Before anything that comes after it in the list."""


class LowerFence(NamedTuple):
    """The broker may have its lease again, once the controllers say that it is master."""


WatchEffect = RaiseFence | LowerFence | Beat | Ask | Note


class StallWatch:
    """Watches one broker.

    Attributes:
        is_stalled: it stands still, or its disk does.
        moved: an election in this stall has moved mastership, or it was somewhere else.
    """

    def __init__(self, settings: WatchSettings) -> None:
        self.settings = settings
        self.is_stalled = False
        self.moved = False
        replicas = settings.replicas
        self._search = LeaderSearch(replicas.controllers, f"{replicas.broker_address}watch")
        self._facts = Facts(0, 0, 0, -1, -1, -1)
        self._looked_ms = self._since_ms = -SELF_LATE_MS
        self._beat_ms = self._ask_ms = 0
        self._asked: dict[int, int] = {}
        self._token = 0
        self._heirs = 0
        self._is_raised = False
        self._closed_until_ms = 0
        self._stalled_ms = 0

    def step(self, now_ms: int, event: WatchEvent) -> list[WatchEffect]:
        """Take one event and return what is to be done, in order."""
        match event:
            case Looked():
                return self._looked(now_ms, event)
            case Answered():
                return self._answered(now_ms, event)
            case Unanswered(token, sent, _):
                return self._unanswered(now_ms, token, sent=sent)
            case _:
                assert_never(event)

    # -- looking

    def _looked(self, now_ms: int, look: Looked) -> list[WatchEffect]:
        if now_ms - self._looked_ms >= SELF_LATE_MS:
            self._since_ms = now_ms
        self._looked_ms = now_ms
        if look.controllers and look.controllers != self._search.configured:
            self._search.named(look.controllers)
        if look.is_fenced and not self._is_raised:
            self._is_raised, self._closed_until_ms = True, now_ms + FORGET_MS
        facts = self._facts = look.facts
        silent_ms, write_ms = self._age_ms(now_ms, facts.sign_ms), 0
        if facts.write_begun_ms:
            write_ms = self._age_ms(now_ms, facts.write_begun_ms)
        age_ms = max(silent_ms, write_ms)
        if not self.is_stalled and facts.broker_id and age_ms >= self.settings.stall_ms:
            return self._begin(now_ms, silent_ms, write_ms)
        if self.is_stalled and age_ms < self.settings.stall_ms:
            return self._end(now_ms)
        if self.is_stalled:
            return self._go_on(now_ms, silent_ms)
        if look.is_fenced and look.is_fence_seen and self._is_quiet(now_ms):
            self._is_raised, self._closed_until_ms = False, 0
            return [LowerFence()]
        return []

    def _age_ms(self, now_ms: int, since_ms: int) -> int:
        """For how long, as far as this watcher was awake to see it."""
        return now_ms - max(since_ms, self._since_ms)

    def _is_quiet(self, now_ms: int) -> bool:
        codes = self._asked.values()
        return RequestCode.CONTROLLER_ELECT_MASTER not in codes and now_ms >= self._closed_until_ms

    def _begin(self, now_ms: int, silent_ms: int, write_ms: int) -> list[WatchEffect]:
        self.is_stalled, self.moved, self._is_raised = True, False, True
        self._stalled_ms = now_ms
        self._beat_ms = self._ask_ms = now_ms
        facts = {"silent_ms": silent_ms, "write_ms": write_ms}
        begun: list[WatchEffect] = [RaiseFence(), Note("broker_stalled", "error", facts)]
        return begun + self._go_on(now_ms, silent_ms)

    def _end(self, now_ms: int) -> list[WatchEffect]:
        self.is_stalled = False
        took_ms = now_ms - self._stalled_ms + self.settings.stall_ms
        return [Note("broker_goes_on", "warning", {"after_ms": took_ms, "moved": self.moved})]

    def _go_on(self, now_ms: int, silent_ms: int) -> list[WatchEffect]:
        done: list[WatchEffect] = []
        replicas = self.settings.replicas
        # A loop that runs beats by itself.
        silent = replicas.broker_heartbeat_interval_ms <= silent_ms < BEAT_FOR_MS
        if silent and now_ms >= self._beat_ms:
            self._beat_ms = now_ms + replicas.broker_heartbeat_interval_ms
            done.append(Beat(self._search.controllers, self._heartbeat(silent_ms)))
        if now_ms >= self._ask_ms and not self._is_asking:
            self._ask_ms = now_ms + (POLL_MS if self.moved else ASK_MS)
            done += self._ask_next()
        return done

    def _heartbeat(self, silent_ms: int) -> dict[str, str]:
        facts = self._facts
        return heartbeat_fields(self.settings.replicas, facts.broker_id) | ext_fields(
            epoch=facts.log_epoch,
            maxOffset=facts.max_offset,
            confirmOffset=facts.confirm_offset,
            stalledMs=silent_ms,
        )

    # -- asking

    @property
    def _is_asking(self) -> bool:
        """Whether an answer may change what is asked next; a dead controller's never comes."""
        if self._search.leader is None:
            return self._search.is_open
        return any(code != _WHO_LEADS for code in self._asked.values())

    def _ask_next(self) -> list[WatchEffect]:
        leader = self._search.leader
        if leader is not None:
            fields = ext_fields(brokerName=self.settings.replicas.broker_name)
            return [self._ask(leader, RequestCode.CONTROLLER_GET_REPLICA_INFO, fields)]
        asks: list[WatchEffect] = []
        for address in self._search.controllers:
            ask = self._ask(address, _WHO_LEADS, {})
            self._search.asked(ask.token, address)
            asks.append(ask)
        return asks

    def _ask(self, address: str, code: int, fields: dict[str, str]) -> Ask:
        self._token += 1
        self._asked[self._token] = code
        timeout_ms = self.settings.replicas.invoke_timeout_ms
        return Ask(self._token, address, code, fields, b"", timeout_ms)

    def _answered(self, now_ms: int, answer: Answered) -> list[WatchEffect]:
        code = self._asked.pop(answer.token, None)
        if code == _WHO_LEADS:
            if self._search.answered(answer.token, answer.fields):
                self._ask_ms = now_ms
            return []
        if answer.code == ResponseCode.CONTROLLER_NOT_LEADER:
            self._search.lost()
            self._ask_ms = now_ms
            return []
        if not self.is_stalled or answer.code not in (
            ResponseCode.SUCCESS, ResponseCode.CONTROLLER_MASTER_STILL_EXIST
        ):  # fmt: skip
            return []
        return self._told(answer, is_election=code == RequestCode.CONTROLLER_ELECT_MASTER)

    def _told(self, answer: Answered, *, is_election: bool) -> list[WatchEffect]:
        """Who is master; ask for an election if it is the broker that stands still."""
        master_id, epoch, _ = master_of(answer.fields)
        own_id = self._facts.broker_id
        if master_id != own_id:
            moved, self.moved = self.moved, True
            if moved or not is_election:
                return []
            facts = {"to": master_id, "epoch": epoch}
            return [Note("mastership_handed_over", "warning", facts)]
        self.moved = False
        try:
            heirs = sorted(set(SyncStateSet.decode(answer.body).broker_ids) - {own_id})
        except RemoteProtocolError as error:
            return [Note("controller_answer_malformed", "warning", {"reason": str(error)})]
        leader = self._search.leader
        if is_election or not heirs or leader is None:
            return []
        heir = heirs[self._heirs % len(heirs)]
        self._heirs += 1
        replicas = self.settings.replicas
        fields = who_fields(
            replicas, heir, self._facts.sign_ms, designateElect=True, completeOnly=True
        )
        return [self._ask(leader, RequestCode.CONTROLLER_ELECT_MASTER, fields)]

    def _unanswered(self, now_ms: int, token: int, *, sent: bool) -> list[WatchEffect]:
        code = self._asked.pop(token, None)
        if code == _WHO_LEADS:
            self._search.silent(token)
            return []
        if code == RequestCode.CONTROLLER_ELECT_MASTER and sent:
            self._closed_until_ms = now_ms + FORGET_MS
        self._search.lost()
        return []
