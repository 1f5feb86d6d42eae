"""Records what brokers and operators ask of controllers and hear, for ``verify.linearizable``.

From wire to model: requests and answers as ``verify.controller_calls`` has them, with times by one
clock for all clients of a run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping

import orjson

from rmqha.remoting.codes import RequestCode, ResponseCode
from rmqha.remoting.command import RemotingCommand
from rmqha.sim.coverage import GIVEN_UP, SEARCHES
from rmqha.verify.controller_calls import (
    Alter,
    ApplyId,
    Call,
    Clean,
    Elect,
    NextId,
    Read,
    SetState,
    View,
    after,
)
from rmqha.verify.linearizable import Tally, Timed, check

CALLS_PER_SET_MAX = 5_000
"""Calls that are kept of one broker set; the history ends when there are so many."""


class Asked:
    """One request under way."""

    __slots__ = ("body", "code", "fields", "started")

    def __init__(self, code: int, fields: Mapping[str, str], body: bytes, started: float) -> None:
        self.code = code
        self.fields = fields
        self.body = body
        self.started = started


class CallLog:
    """What all clients of one run have asked.

    Args:
        now: the time, by one clock for all of them.
        calls_max: calls that are kept of one set.
        counts: told of searches, and of those that were given up.

    Attributes:
        tally: searches made, and how many were given up.
    """

    def __init__(
        self,
        now: Callable[[], float],
        calls_max: int = CALLS_PER_SET_MAX,
        counts: Counter[str] | None = None,
    ) -> None:
        self._now = now
        self._calls_max = calls_max
        self._counts: Counter[str] = Counter() if counts is None else counts
        self.tally = Tally()
        self._histories: dict[str, list[Timed[Call]]] = {}
        self._open: dict[str, list[Asked]] = {}
        # When a set's history ended: who asks from then on is not in it.
        self._cut: dict[str, float] = {}

    def asked(self, code: int, fields: Mapping[str, str], body: bytes) -> Asked:
        """A request leaves."""
        one = Asked(code, fields, body, self._now())
        self._open.setdefault(fields.get("brokerName", ""), []).append(one)
        return one

    def answered(self, one: Asked, answer: RemotingCommand | None) -> None:
        """Its answer came, or will never come (None)."""
        name = one.fields.get("brokerName", "")
        self._open[name].remove(one)
        call = unseen(one) if answer is None else heard(one, answer)
        if call is None:
            return
        now = self._now()
        history = self._histories.setdefault(name, [])
        if len(history) >= self._calls_max:
            self._cut.setdefault(name, now)
        if not self._is_before_cut(name, one):
            return
        ended = None if call == unseen(one) else now
        if name in self._cut:
            if unseen(one) is None:
                return
            # What it did may stand in answers from before the cut; but what others did before it may
            # be missing, so nobody asks that it fits.
            ended = None
        history.append(Timed(call, one.started, ended))

    def _is_before_cut(self, name: str, one: Asked) -> bool:
        cut = self._cut.get(name)
        return cut is None or one.started < cut

    def history(self, name: str) -> list[Timed[Call]]:
        """The calls about one set; what is still under way has no end."""
        found = list(self._histories.get(name, ()))
        for one in self._open.get(name, ()):
            call = unseen(one)
            if call is not None and self._is_before_cut(name, one):
                found.append(Timed(call, one.started))
        return found

    def check(self) -> None:
        """Look for an order of each set's calls.

        Raises:
            InvariantBroken: there is none.
        """
        for name in sorted({*self._histories, *self._open}):
            history = self.history(name)
            given_up = self.tally.given_up
            self.tally.take(name, len(history), check(history, SetState(), after))
            self._counts[SEARCHES] += 1
            if self.tally.given_up > given_up:
                self._counts[GIVEN_UP] += 1


def unseen(one: Asked) -> Call | None:
    """A request whose answer nobody saw; None when it changes nothing that the model knows."""
    fields = one.fields
    match one.code:
        case RequestCode.CONTROLLER_APPLY_BROKER_ID:
            return ApplyId(int(fields["appliedBrokerId"]), fields["registerCheckCode"])
        case RequestCode.CONTROLLER_ELECT_MASTER:
            return Elect(int(fields["brokerId"]), fields.get("designateElect") == "true")
        case RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET:
            asked = orjson.loads(one.body)
            return Alter(
                int(fields["masterBrokerId"]),
                int(fields["masterEpoch"]),
                tuple(sorted(asked["syncStateSet"])),
                int(asked["syncStateSetEpoch"]),
            )
        case RequestCode.CLEAN_BROKER_DATA:
            return Clean(_cleaned_ids(fields), done=False)
        case _:
            return None


def heard(one: Asked, answer: RemotingCommand) -> Call | None:
    """A request and its answer; None when that proves nothing."""
    code = answer.code
    if code == ResponseCode.CONTROLLER_NOT_LEADER:
        return unseen(one)  # a leader that lost office cannot know what becomes of it
    fields = dict(answer.ext_fields or {})
    match one.code:
        case RequestCode.CONTROLLER_APPLY_BROKER_ID:
            return _applied(one, code)
        case RequestCode.CONTROLLER_GET_NEXT_BROKER_ID:
            return NextId(int(fields["nextBrokerId"])) if code == ResponseCode.SUCCESS else None
        case RequestCode.CONTROLLER_GET_REPLICA_INFO | RequestCode.CONTROLLER_REGISTER_BROKER:
            return _read(one, code, fields, answer.body)
        case RequestCode.CONTROLLER_ELECT_MASTER:
            kept = code == ResponseCode.CONTROLLER_MASTER_STILL_EXIST
            if code != ResponseCode.SUCCESS and not kept:
                return None
            view = _view(fields, orjson.loads(answer.body), fields["syncStateSetEpoch"])
            return Elect(int(one.fields["brokerId"]), one.fields.get("designateElect") == "true",
                         view, kept)  # fmt: skip
        case RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET:
            asked = unseen(one)
            if code != ResponseCode.SUCCESS or not isinstance(asked, Alter):
                return None
            epoch_after = int(fields["newSyncStateSetEpoch"])
            return Alter(asked.master, asked.master_epoch, asked.members, asked.members_epoch,
                         epoch_after)  # fmt: skip
        case RequestCode.CLEAN_BROKER_DATA:
            return Clean(_cleaned_ids(one.fields)) if code == ResponseCode.SUCCESS else None
        case _:
            return None


def _cleaned_ids(fields: Mapping[str, str]) -> tuple[int, ...] | None:
    named = fields.get("brokerControllerIdsToClean", "")
    return tuple(sorted(int(one) for one in named.split(";"))) if named else None


def _applied(one: Asked, code: int) -> Call | None:
    broker_id, check_code = int(one.fields["appliedBrokerId"]), one.fields["registerCheckCode"]
    if code == ResponseCode.SUCCESS:
        return ApplyId(broker_id, check_code, granted=True)
    if code == ResponseCode.CONTROLLER_BROKER_ID_INVALID:
        return ApplyId(broker_id, check_code, granted=False)
    return None


def _read(one: Asked, code: int, fields: Mapping[str, str], body: bytes) -> Call | None:
    broker_id = None
    if one.code == RequestCode.CONTROLLER_REGISTER_BROKER:
        broker_id = int(one.fields["brokerId"])
    unknown = (
        ResponseCode.CONTROLLER_BROKER_METADATA_NOT_EXIST,
        ResponseCode.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED,
    )
    if code in unknown:
        return Read(None, broker_id)
    if code != ResponseCode.SUCCESS:
        return None
    parsed = orjson.loads(body)
    return Read(_view(fields, parsed, parsed["syncStateSetEpoch"]), broker_id)


def _view(
    fields: Mapping[str, str], parsed: Mapping[str, list[int]], members_epoch: object
) -> View:
    master, epoch = fields.get("masterBrokerId"), fields.get("masterEpoch")
    return View(
        None if master is None else int(master),
        None if epoch is None else int(epoch),
        tuple(sorted(parsed.get("syncStateSet") or ())),
        int(str(members_epoch)),
    )
