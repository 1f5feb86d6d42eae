"""Seeds of replicas to which more is sent than their disks take (ADR 0048), and bugs put in on purpose.

None of these bugs is met in stories in which no write ever waits: nobody makes room there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from rmqha.base.errors import RmqhaError
from rmqha.broker.deferred.aio.delay_delivery import DelayDelivery
from rmqha.broker.deferred.aio.timer_service import TimerService
from rmqha.broker.pop.aio.revive import ReviveService
from rmqha.broker.pop.check_points import Due
from rmqha.broker.send.aio.roomy_sends import RoomySends
from rmqha.remoting.aio.connection import Connection
from rmqha.remoting.codes import ResponseCode
from rmqha.remoting.command import RemotingCommand
from rmqha.sim.pressed_swarm import PRESSED_WANTED, run_pressed_seed
from rmqha.sim.service_swarm import SERVED, run_service_seed
from rmqha.store.aio.room import Stretch
from rmqha.store.record import Record

SEEDS = range(1, 11)
# Seeds that once found a bug: 40 (a master that lost power was started twice before it found a controller,
# and went on in its epoch).
REGRESSIONS = (40,)
Patch = Callable[[pytest.MonkeyPatch], None]


@pytest.mark.sim
@pytest.mark.slow
def test_faults_when_writes_wait_then_nothing_acknowledged_is_lost_and_services_keep_their_word() -> (
    None
):
    happened: Counter[str] = Counter()
    for seed in SEEDS:
        happened.update(run_pressed_seed(seed).counts)
    assert [what for what in (*PRESSED_WANTED, *SERVED) if not happened[what]] == []
    assert happened["room for sends"] > 10 * len(SEEDS)
    assert happened["room for services"] > 10 * len(SEEDS)


@pytest.mark.sim
@pytest.mark.slow
@pytest.mark.parametrize("seed", REGRESSIONS)
def test_pressed_seeds_that_once_failed_pass(seed: int) -> None:
    """Each found a bug; see the list above."""
    run_pressed_seed(seed)


def delays_pass_over_what_has_no_room(patch: pytest.MonkeyPatch) -> None:
    """Whatever is due counts as delivered once it was looked at."""
    look = DelayDelivery._due

    def due(self: Any, level: int, delay_ms: int) -> Record | None:
        record = look(self, level, delay_ms)
        if record is not None:
            self._file.offsets.passed(level, record.queue_offset + 1)
        return record

    patch.setattr(DelayDelivery, "_due", due)


def timers_pass_over_what_has_no_room(patch: pytest.MonkeyPatch) -> None:
    """The one that was refused is taken for delivered."""
    deliver = TimerService._deliver

    def some(self: Any, stretch: Stretch) -> tuple[int, bool]:
        found = deliver(self, stretch)
        if stretch.refused:
            self._taken.popleft()
        return found

    patch.setattr(TimerService, "_deliver", some)


def revivals_pass_over_what_has_no_room(patch: pytest.MonkeyPatch) -> None:
    """A check point is done with whose messages were refused."""
    revive = ReviveService._revive_some

    def some(self: Any, found: list[Due], written: list[Due], stretch: Stretch) -> tuple[int, bool]:
        end, more = revive(self, found, written, stretch)
        written += found[len(written) :][:more]
        return end, more

    patch.setattr(ReviveService, "_revive_some", some)


def sends_are_answered_in_the_row(patch: pytest.MonkeyPatch) -> None:
    """Before they are written."""
    take = RoomySends.take

    def early(self: Any, connection: Connection, request: RemotingCommand, *more: Any) -> Any:
        take(self, connection, request, *more)
        fields = {"msgId": "0" * 32, "queueId": "0", "queueOffset": "0"}
        return request.reply(ResponseCode.SUCCESS, None, fields)

    patch.setattr(RoomySends, "take", early)


MUTANTS = (
    (delays_pass_over_what_has_no_room, 1, "a delayed message is late"),
    (timers_pass_over_what_has_no_room, 1, "a timer is late"),
    (revivals_pass_over_what_has_no_room, 2, "that nobody acknowledged is popped no more"),
    (sends_are_answered_in_the_row, 1, "two records were acknowledged at one offset"),
)


@pytest.mark.sim
@pytest.mark.slow
@pytest.mark.turns(3)
@pytest.mark.parametrize(
    ("mutant", "seed", "rule"), MUTANTS, ids=lambda m: getattr(m, "__name__", "")
)
def test_the_simulator_finds_a_bug_put_in_on_purpose(
    mutant: Patch, seed: int, rule: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the rule that it breaks, at a seed that is known to find it; where no write waits, never."""
    mutant(monkeypatch)
    run_service_seed(seed)
    with pytest.raises(RmqhaError, match=rule):
        run_pressed_seed(seed)
