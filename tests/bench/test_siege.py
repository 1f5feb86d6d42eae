"""The siege's verdict: each goal is missed when its fault is planted, and met without one."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import psutil
import pytest

from rmqha.testing.real import wire
from tests.attacks.attacker import Target
from tests.bench.attackers import Attackers
from tests.bench.honest import KINDS, Account, Honest, Samples, body_of, lost
from tests.bench.observed import (
    CPU_S,
    DESCRIPTORS,
    FILE_MIB,
    FILES,
    MEMORY,
    Observer,
    Series,
    files_of,
    grows,
)
from tests.bench.siege_verdict import Goal, Spans, judge

SPANS = Spans(0.0, 60.0, 60.0, 660.0)
WHO = "broker1"
RULERS = "leader n0, master 1 in epoch 1"
MOMENTS = [float(second) for second in range(660)]


class World:
    """Figures of a run in which all went well; tests change one."""

    def __init__(self) -> None:
        self.account = Account(
            samples={kind: Samples(list(MOMENTS), [1.0] * 660) for kind in KINDS},
            acked=[(0, number, number) for number in range(100)],
        )
        self.lost: list[int] = []
        self.tallies: dict[str, dict[str, object] | None] = {"routes": {"sent": 5}}
        self.seen = Observer({}, {}, lambda: None)
        self.seen.rulers = [(moment, RULERS) for moment in MOMENTS]
        for what in (MEMORY, DESCRIPTORS, FILES, FILE_MIB, CPU_S):
            self.seen.series[WHO, what] = Series(list(MOMENTS), [50.0] * 660)

    def change(self, what: str, value: Callable[[float], float]) -> None:
        series = self.seen.series[WHO, what]
        series.values = [value(moment) for moment in series.at]

    def missed(self, spans: Spans = SPANS) -> list[Goal]:
        goals = judge(spans, self.account, self.lost, self.seen, self.tallies)
        return [one for one in goals if not one.is_met]


def _slow(world: World) -> None:
    world.account.samples["send"].took_ms[100:120] = [11.0] * 20


def _failed(world: World) -> None:
    world.account.samples["105"].took_ms[100:120] = [-10_000.0] * 20


def _silent(world: World) -> None:
    world.account.samples["pull"] = Samples()


def _another_master(world: World) -> None:
    world.seen.rulers[300] = (300.0, "leader n0, master 2 in epoch 2")


def _idle_attack(world: World) -> None:
    world.tallies["raft"] = {"sent": 0}


def _no_attack(world: World) -> None:
    world.tallies = {}


def _grown(what: str) -> Callable[[World], None]:
    return lambda world: world.change(what, lambda moment: 50.0 + moment)


FAULTS: dict[str, tuple[str, Callable[[World], None]]] = {
    "lost": ("acknowledged messages lost", lambda world: world.lost.append(7)),
    "nothing acknowledged": ("acknowledged messages lost", lambda world: world.account.acked.clear()),
    "ended": ("processes that ended", lambda world: world.seen.ended.update({WHO: 100.0})),
    "another master": ("changes of leader, master or epoch", _another_master),
    "nobody ruled": ("changes of leader, master or epoch", lambda world: world.seen.rulers.clear()),
    "slow": ("p99 of send", _slow),
    "failed": ("p99 of 105", _failed),
    "silent": ("p99 of pull", _silent),
    "attack sent nothing": ("attacks that attacked", _idle_attack),
    "attack failed": ("attacks that attacked", lambda world: world.tallies.update(raft=None)),
    "no attack": ("attacks that attacked", _no_attack),
    "memory grows": ("memory, MiB", _grown(MEMORY)),
    "descriptors leak": ("descriptors", _grown(DESCRIPTORS)),
    "files pile up": ("files but the log's", _grown(FILES)),
    "files are written": ("MiB a minute of files but the log's", _grown(FILE_MIB)),
    "memory is large": (
        "memory, MiB",
        lambda world: world.change(MEMORY, lambda moment: 50.0 if moment < 60 else 900.0),
    ),
}  # fmt: skip


def test_verdict_when_all_went_well_then_every_goal_is_met() -> None:
    """Otherwise what follows shows nothing."""
    assert World().missed() == []


@pytest.mark.parametrize("name", FAULTS)
def test_verdict_when_one_thing_went_wrong_then_that_goal_is_missed(name: str) -> None:
    """And no other."""
    what, plant = FAULTS[name]
    world = World()
    plant(world)
    assert [goal.what for goal in world.missed()] == [what]


def test_growth_is_not_judged_while_attacks_still_fill_what_they_fill() -> None:
    """A siege of two minutes shows peaks, not trends."""
    world = World()
    world.change(MEMORY, lambda moment: 50.0 + moment / 2)
    assert world.missed(Spans(0.0, 60.0, 60.0, 180.0)) == []


def test_growth_is_seen_through_noise_and_not_in_noise() -> None:
    """A tenth and a spare are none; a value that doubles in the run is."""
    noise = [100.0 + (number * 37 % 17) for number in range(200)]
    assert not grows(noise, 16.0)
    assert grows([value + number / 2 for number, value in enumerate(noise)], 16.0)
    assert not grows([1.0], 0.0)


def test_messages_that_are_not_where_they_were_said_to_be_are_lost() -> None:
    """Another body in their place is no message either."""
    found = {(0, 0): body_of(1), (0, 1): body_of(9)}
    assert lost([(0, 0, 1), (0, 1, 2), (1, 0, 3)], found) == [2, 3]


def test_files_of_the_log_are_not_counted(tmp_path: Path) -> None:
    """What is stored may grow; what strangers cause may not."""
    for name in ("commitlog/1", "config/topics.json", "out.log", "consumequeue/T/0/1"):
        path = tmp_path / "store" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x" * 10_000)
    count, size = files_of(tmp_path)
    assert count == 2
    assert 20_000 <= size <= 40_000


@pytest.mark.slow
def test_observer_when_a_process_ends_then_it_is_named() -> None:
    """A zombie of a child that nobody has waited for has ended, too."""
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    try:
        with Observer({"child": child.pid}, {}, lambda: RULERS) as seen:
            _until(lambda: len(seen.of("child", MEMORY).values) > 0)
            assert seen.ended == {}
            psutil.Process(child.pid).send_signal(signal.SIGKILL)
            _until(lambda: "child" in seen.ended)
    finally:
        child.kill()
        child.wait()
    assert seen.rulers


@pytest.mark.costly
def test_attack_that_hits_nobody_has_no_tally(tmp_path: Path) -> None:
    """So that a siege without attackers is not taken for one that was borne."""
    file = tmp_path / "target.json"
    file.write_bytes(msgspec.json.encode(_target("127.0.0.1:9")))
    with Attackers([("one", "routes", file, 50.0)], 0.3, tmp_path / "out") as attackers:
        assert attackers.tallies() == {"one": None}


@pytest.mark.slow
def test_honest_calls_that_are_not_answered_have_failed() -> None:
    """They count with the time for which they waited."""
    door = socket.create_server(("127.0.0.1", 0))
    honest = Honest(_target(f"127.0.0.1:{door.getsockname()[1]}"), call_s=0.3)
    begun = time.monotonic()
    honest.start()
    _until(lambda: all(one.took_ms for one in honest.account.samples.values()))
    account = honest.stop()
    door.close()
    for kind in KINDS:
        samples = account.samples[kind]
        assert samples.failures(begun, begun + 60) == len(samples.took_ms)
        assert samples.between(begun, begun + 60)[0] >= 290
    assert account.acked == []
    assert account.reasons


@pytest.mark.costly
def test_honest_calls_that_are_refused_have_failed() -> None:
    """An answer is not enough."""
    door = socket.create_server(("127.0.0.1", 0))
    refused = wire.encode(16, {}, flag=1)

    def serve() -> None:
        while True:
            try:
                one, _ = door.accept()
                with one:
                    while data := one.recv(1 << 16):
                        # The opaque of the request is that of its answer.
                        number = data.split(b'"opaque":')[1].split(b",")[0]
                        one.sendall(refused.replace(b'"opaque":0', b'"opaque":' + number))
            except OSError:
                return

    threading.Thread(target=serve, daemon=True).start()
    honest = Honest(_target(f"127.0.0.1:{door.getsockname()[1]}"), call_s=0.5)
    honest.start()
    _until(lambda: all(one.took_ms for one in honest.account.samples.values()))
    account = honest.stop()
    door.shutdown(socket.SHUT_RDWR)
    door.close()
    assert all(took < 0 for one in account.samples.values() for took in one.took_ms)
    assert account.acked == []


def _target(address: str) -> Target:
    at = (address,)
    return Target(at, at, at, at, at, at, "b", "C", "g", address, "T", "O", "G")


def _until(holds: Callable[[], object]) -> None:
    deadline = time.monotonic() + 20
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.02)
