"""A process that ends by itself is noticed, whatever is done to it afterwards."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any, cast

import pytest

from rmqha.chaos.aio.breaker import Breaker
from rmqha.chaos.aio.lives import End, Life
from rmqha.chaos.scenarios import Fault, Kind
from rmqha.testing.real.processes import wait_until

SLEEPS = "trap 'exit 0' TERM; echo up; while :; do sleep 0.05; done"


def life(folder: Path, script: str) -> Life:
    """A node of a shell's script."""
    return Life("b1", ["sh", "-c", script], folder / "b1.log")


def ended(one: Life) -> Life:
    """Have it run until it ends by itself."""
    one.start()
    wait_until(lambda: not one.alive, 10.0, "its end")
    return one


class Around:
    """Nodes, links and disks of one process, to which nothing is done but to itself."""

    def __init__(self, one: Life) -> None:
        self.children = {"b1": one}

    def __getattr__(self, name: str) -> Any:
        return lambda *_, **__: None


def breaker(one: Life) -> Breaker:
    """Of that one process."""
    around = cast(Any, Around(one))
    return Breaker(around, around, around)


@pytest.mark.parametrize("kind", [Kind.DELAY, Kind.CLOCK_JUMP, Kind.HANG, Kind.CRASH])
def test_process_when_it_ended_by_itself_then_no_healing_hides_it(
    tmp_path: Path, kind: Kind
) -> None:
    """Controllers that ended with 70 gave a cell that was good, for healing started them again."""
    one = ended(life(tmp_path, "echo why; exit 70"))
    breaking = breaker(one)
    if kind is Kind.CRASH:
        breaking.inject(Fault(kind, ("b1",)))
    breaking.heal(Fault(kind, ("b1",)))
    assert one.ends[0] == End("b1", 70, "why")
    assert one.ends[0].text == "b1 ended by itself with 70: why"
    one.kill()


def test_process_when_it_is_dead_at_the_end_then_a_look_tells_it_once(tmp_path: Path) -> None:
    one = ended(life(tmp_path, "exit 0"))
    one.look()
    one.look()
    one.terminate()
    assert one.ends == [End("b1", 0, "")]


@pytest.mark.parametrize("how", ["kill", "terminate"])
def test_process_when_its_end_was_ordered_then_it_is_not_told(tmp_path: Path, how: str) -> None:
    """Also of one that hung."""
    one = life(tmp_path, SLEEPS)
    one.start()
    one.wait_for_line("up", 10.0)
    one.stop()
    getattr(one, how)()
    one.look()
    one.start()
    one.look()
    one.kill()
    assert one.ends == []


@pytest.mark.parametrize(("code", "told"), [(0, []), (143, []), (1, [1])])
def test_process_when_it_breaks_while_it_is_asked_to_end_then_its_code_is_told(
    tmp_path: Path, code: int, told: list[int]
) -> None:
    """143 is Java's word for an end by SIGTERM."""
    one = life(tmp_path, SLEEPS.replace("exit 0", f"exit {code}"))
    one.start()
    one.wait_for_line("up", 10.0)
    one.terminate()
    assert [end.code for end in one.ends] == told


def test_process_when_a_signal_of_nobody_ends_it_then_it_is_told(tmp_path: Path) -> None:
    """The kernel's killer sends the same signal as a cell."""
    one = life(tmp_path, SLEEPS)
    one.start()
    subprocess.run(["kill", "-9", str(one.pid)], check=True)
    wait_until(lambda: not one.alive, 10.0, "its end")
    one.kill()
    assert [end.code for end in one.ends] == [-9]


@pytest.mark.parametrize(
    ("kind", "says", "told"),
    [
        (Kind.FULL_DISK, "abort: No space left on device", 0),
        (Kind.FULL_DISK, "InvariantBroken", 1),
        (Kind.FROZEN_DISK, "abort: No space left on device", 1),
    ],
)
def test_process_when_its_disk_was_full_then_that_explains_an_end_that_says_so(
    tmp_path: Path, kind: Kind, says: str, told: int
) -> None:
    one = life(tmp_path, f"echo up; read -r _ < {tmp_path / 'go'}; echo {says}; exit 3")
    subprocess.run(["mkfifo", tmp_path / "go"], check=True)
    one.start()
    one.wait_for_line("up", 10.0)
    fault = Fault(kind, ("b1",))
    breaking = breaker(one)
    breaking.inject(fault)
    (tmp_path / "go").write_text("\n")
    wait_until(lambda: not one.alive, 10.0, "its end")
    breaking.heal(fault)
    assert len(one.ends) == told
    one.kill()
    assert not one.is_full, "the next life begins with room"
