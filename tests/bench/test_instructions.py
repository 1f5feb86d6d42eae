"""What ``bin/bench instructions`` counts is made for real, and what valgrind says is read rightly."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from tests.bench.bench_instructions import FEW, MORE, WORKS, by_request, main, work


@pytest.mark.costly
@pytest.mark.few
@pytest.mark.parametrize("name", WORKS)
def test_work_when_it_is_made_in_the_simulator_then_nobody_refuses_it(name: str) -> None:
    work(name, 2)


def test_work_when_it_is_refused_then_the_count_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """A refusal costs little, and would look like a version that became quick."""
    monkeypatch.setitem(WORKS, "refused", (1, lambda _: lambda _: 17))
    with pytest.raises(SystemExit, match="refused: refused with 17"):
        work("refused", 1)


def test_count_when_valgrind_has_counted_both_then_it_is_the_difference_by_request(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What a process needs to begin is in neither."""

    def run(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        times = int(command[-1])
        said = f"==7== \n==7== I   refs:      {4_000_000_000 + 1_500 * times:,}\n"
        return subprocess.CompletedProcess(command, 0, "", said)

    monkeypatch.setattr(subprocess, "run", run)
    assert by_request("1005") == 1_500
    assert MORE > FEW


@pytest.mark.parametrize(("code", "said"), [(1, "I refs: 7"), (0, "nothing was counted")])
def test_count_when_the_process_failed_or_nothing_was_counted_then_that_is_said(
    monkeypatch: pytest.MonkeyPatch, code: int, said: str
) -> None:
    def run(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        return subprocess.CompletedProcess(command, code, "", said)

    monkeypatch.setattr(subprocess, "run", run)
    with pytest.raises(SystemExit, match=f"1005: {said}"):
        by_request("1005")


def test_bench_when_there_is_no_valgrind_then_it_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(shutil, "which", lambda _: None)
    with pytest.raises(SystemExit, match="apt-get install valgrind"):
        main([])


def test_bench_when_nothing_begins_so_then_it_names_what_there_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(shutil, "which", lambda _: "/usr/bin/valgrind")
    with pytest.raises(SystemExit, match=r"'nonsense' begins none of: .*1005"):
        main(["--only", "nonsense"])
