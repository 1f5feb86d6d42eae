"""A cell's judge finds a log that lost its end, a set that fell apart, and a node that died."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from rmqha.chaos.aio import judge as judge_module
from rmqha.chaos.aio.cell import _Player
from rmqha.chaos.aio.judge import Clients, Judge
from rmqha.chaos.aio.reread import Again
from rmqha.chaos.outcome import Cell, Round
from rmqha.chaos.scenarios import Fault, Kind
from rmqha.testing.asker import Asker, NotYet

LOG = b"m" * 70
FILE = 100


class Clock:
    """Time passes only when somebody sleeps."""

    def __init__(self) -> None:
        self.ms = 0

    def now_ms(self) -> int:
        """The time."""
        return self.ms

    async def sleep(self, ms: float) -> None:
        """Have it pass."""
        self.ms += int(ms)


class Cluster:
    """Brokers that have these logs, and the controllers' word that they are in sync, or not.

    Args:
        ends: where brokers say that their logs end; None for brokers of ours, of which files tell.
    """

    def __init__(
        self, folder: Path, logs: Sequence[bytes], ends: Mapping[str, int] | None = None
    ) -> None:
        self.folder, self.clock, self._ends = folder, Clock(), ends
        self.erase_what_they_cut = ends is None
        self.brokers = [SimpleNamespace(name=f"b{i}", address=f"b{i}") for i in range(len(logs))]
        self.children = {one.name: self for one in self.brokers}
        self.in_sync, self.since, self.terminated = True, [0], 0
        for one, content in zip(self.brokers, logs, strict=True):
            self.write(one.name, content)

    def write(self, name: str, content: bytes) -> None:
        """Have a broker's log hold this."""
        self.commit_log(name).mkdir(exist_ok=True)
        file = self.commit_log(name) / f"{0:020d}"
        file.write_bytes(content.ljust(FILE, b"\0"))

    def commit_log(self, name: str) -> Path:
        """Of a broker."""
        return self.folder / name

    def terminate(self) -> None:
        """End a broker; the last one writes something when it is alone."""
        self.terminated += 1
        self.write("b2", LOG + b"alone") if self.terminated == 2 else None

    def ends(self) -> list[str]:
        """Of controller 0, which has died."""
        return ["c0 ended by itself with 70: "]

    async def ask(self, address: str, _: int) -> Any:
        """Where its log ends."""
        assert self._ends is not None
        end = self._ends.get(address)
        figures = "" if end is None else f'"commitLogMaxOffset":"{end}"'
        return SimpleNamespace(body=b'{"table":{%s}}' % figures.encode())

    async def until(self, found: Any, what: str, _: float) -> None:
        """Wait for it no longer than a moment."""
        if not await found():
            raise NotYet(f"no {what}")

    async def master(self) -> str:
        """Whoever it is."""
        return "b0"

    def is_in_sync(self, since_ms: int) -> Any:
        """Whether the set is; and what was asked for."""
        self.since.append(since_ms)

        async def asked() -> bool:
            return self.in_sync

        return asked


async def judged(cluster: Cluster, whole_ms: int | None = 1, loads: Sequence[Any] = ()) -> Cell:
    """A cell with nothing but these logs, and what was sent, to be judged by."""
    cell = Cell("crash-both", "py", "py", 1)
    cell.rounds.append(Round(0, "crash", 1, 0, 1, whole_ms=whole_ms))
    around = cast(Any, cluster)
    clients = Clients(around, around, loads, None)
    await Judge(cell, around, clients, cluster.is_in_sync, print).judge()
    cell.broken.remove("c0 ended by itself with 70: ")
    return cell


async def test_cell_when_all_logs_are_the_same_then_their_length_is_told(tmp_path: Path) -> None:
    """What the last broker wrote when it was alone is nobody's fault."""
    cell = await judged(Cluster(tmp_path, [LOG, LOG, LOG]))
    assert (cell.broken, cell.bytes_equal) == ([], len(LOG))


async def test_cell_when_a_replica_in_sync_has_lost_the_end_then_it_is_not_good(
    tmp_path: Path,
) -> None:
    cell = await judged(Cluster(tmp_path, [LOG, LOG[:9], LOG]))
    assert cell.broken == ["the logs of replicas in sync end at {'b0': 70, 'b1': 9, 'b2': 70}"]
    assert cell.bytes_equal is None


async def test_cell_when_a_log_breaks_while_its_broker_ends_then_that_is_found(
    tmp_path: Path,
) -> None:
    cluster = Cluster(tmp_path, [LOG, LOG, LOG])
    cluster.terminate = lambda: cluster.write("b0", b"n")  # type: ignore[method-assign]
    cell = await judged(cluster)
    assert "after the brokers' end: logs differ in" in cell.broken[0]


async def test_cell_when_a_replica_gets_the_rest_in_time_then_that_is_waited_for(
    tmp_path: Path,
) -> None:
    cluster = Cluster(tmp_path, [LOG, LOG[:9], LOG])

    async def sleep(ms: float) -> None:
        cluster.write("b1", LOG)

    cluster.clock.sleep = sleep  # type: ignore[method-assign]
    assert (await judged(cluster)).broken == []


@pytest.mark.parametrize(
    ("ends", "told"),
    [
        ({"b0": 70, "b1": 70, "b2": 70}, ""),
        ({"b0": 70, "b1": 69, "b2": 70}, "in sync end at {'b0': 70, 'b1': 69, 'b2': 70}"),
        ({"b0": 72, "b1": 72, "b2": 72}, f"differ in {0:020d} at 70"),
        ({"b0": 70, "b2": 70}, "b1 does not say where its log ends"),
    ],
)
async def test_cell_when_there_are_brokers_of_java_then_they_say_where_their_logs_end(
    tmp_path: Path, ends: dict[str, int], told: str
) -> None:
    """Behind it they have what they cut."""
    cell = await judged(Cluster(tmp_path, [LOG, LOG + b"old", LOG], ends))
    assert told in (cell.broken or [""])[0]
    assert cell.bytes_equal == (None if told else 70)


async def test_cell_when_the_set_fell_apart_after_its_last_round_then_it_is_not_good(
    tmp_path: Path,
) -> None:
    cluster = Cluster(tmp_path, [LOG, LOG, LOG])
    cluster.in_sync = False
    assert (await judged(cluster)).broken == ["no set in sync at the end"]


async def test_cell_when_it_was_never_whole_again_then_its_logs_are_not_compared(
    tmp_path: Path,
) -> None:
    """Not in sync they may end anywhere, and the round has told it."""
    cell = await judged(Cluster(tmp_path, [LOG, b"m", LOG]), whole_ms=None)
    assert (cell.broken, cell.bytes_equal) == ([], None)


async def test_cell_when_the_broker_deleted_messages_then_it_says_why_they_are_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They look lost, and whoever reads it looks for a fault of replication."""
    found = Again(whole={2}, deleted=2)

    async def read_again(*_: object) -> Again:
        return found

    async def stop_all(*_: object) -> list[str]:
        return []

    monkeypatch.setattr(judge_module, "read_again", read_again)
    monkeypatch.setattr(judge_module, "stop_all", stop_all)
    ledger = SimpleNamespace(
        acknowledged=3, refused=0, duplicates=0, consumed=0, damaged=0, lost=[], ends=(3,)
    )
    load = SimpleNamespace(ledger=ledger, topic="T", broken=list)
    cell = await judged(Cluster(tmp_path, [LOG, LOG, LOG]), loads=[load])
    assert cell.lost == ["T 0", "T 1"]
    assert [one[:47] for one in cell.broken] == ["T: the broker deleted its 2 oldest messages, wh"]
    found.deleted = 0
    again = Cluster(tmp_path, [LOG, LOG, LOG])
    assert (await judged(again, loads=[load])).broken == []


async def test_round_when_it_is_healed_then_only_what_was_asked_later_says_that_it_is_whole() -> (
    None
):
    """Healing takes a moment, in which somebody may still say what was so before the fault."""
    clock, since = Clock(), list[int]()

    class Breaker:
        flipped = 0

        def inject(self, _: Fault) -> None:
            pass

        def heal(self, _: Fault) -> None:
            clock.ms += 50

    def is_in_sync(replicas: int, since_ms: int) -> bool:
        since.append(since_ms)
        return True

    player = cast(Any, _Player.__new__(_Player))
    player._clock, player._breaker, player._say = clock, Breaker(), pytest.fail
    player._course = SimpleNamespace(fault_ms=1_000)
    player._watch = SimpleNamespace(elected=[], routed=[], is_in_sync=is_in_sync)
    player._nodes = SimpleNamespace(brokers=[1, 2, 3])
    ack = SimpleNamespace(acked_ms=1_000)
    player._loads = [SimpleNamespace(first_ack_after=lambda *_: ack, acks_since=lambda _: [ack])]
    player._outsider = Asker.__new__(Asker)
    player._outsider.clock = clock
    found = await player._round(0, Fault(Kind.HANG, ("b0",)), 0)
    assert (since, found.whole_ms) == ([1_050], 50)
