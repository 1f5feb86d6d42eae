"""What ``rmqha up`` writes of a cluster for its next start, and what it makes of failures."""

from __future__ import annotations

import os
import stat
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from rmqha.cli import up, whole_file
from rmqha.cli.process import EXIT_FAILED
from rmqha.cli.up import _remember, _stay, remembered_in
from rmqha.cli.up_plan import Shape, plan_of
from rmqha.testing.nodes import NodeFailed

SHAPE = Shape(1, 2, sets={"haSecret": "a secret of brokers"})
Stay = Callable[[Exception | None], Awaitable[int]]


def full(*_: object) -> None:
    """Stands for a call of the system while the disk is full."""
    raise OSError(28, "No space left on device")


def test_file_when_it_cannot_be_written_whole_then_the_one_before_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was emptied while the cluster was up, and no run began any more."""
    _remember(tmp_path, SHAPE)
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        _remember(tmp_path, Shape(1, 3))
    assert remembered_in(tmp_path) == SHAPE
    assert [one.name for one in tmp_path.iterdir()] == ["cluster.json"]


def test_file_when_it_says_the_same_then_it_is_not_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full disk is no reason not to start."""
    _remember(tmp_path, SHAPE)
    monkeypatch.setattr(os, "fsync", full)
    _remember(tmp_path, SHAPE)


def test_file_when_it_is_written_then_its_name_is_on_the_disk_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A power cut would leave the folder with the file before, or with none."""
    synced: list[tuple[str, bool]] = []
    path = tmp_path / "cluster.json"
    monkeypatch.setattr(
        whole_file, "sync_dir", lambda folder: synced.append((folder, path.exists()))
    )
    _remember(tmp_path, SHAPE)
    assert synced == [(str(tmp_path), True)]


def test_file_when_a_property_is_a_secret_then_its_owner_alone_may_read_it(tmp_path: Path) -> None:
    """Also one that an older release has written."""
    path = tmp_path / "cluster.json"
    _remember(tmp_path, SHAPE)
    path.chmod(0o644)
    _remember(tmp_path, SHAPE)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert remembered_in(tmp_path) == SHAPE
    assert [one.name for one in tmp_path.iterdir()] == ["cluster.json"]


@pytest.fixture
def stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stay:
    """Runs a cluster that starts by a word, or fails by an exception."""

    def made(problem: Exception | None) -> Awaitable[int]:
        class Cluster:
            def __init__(self, *_: object) -> None:
                pass

            async def start(self) -> None:
                if problem is not None:
                    raise problem

        async def nothing(*_: object) -> None:
            pass

        async def ended(*_: object) -> bool:
            return True

        monkeypatch.setattr(up, "AioCluster", Cluster)
        monkeypatch.setattr(up, "_tell", nothing)
        monkeypatch.setattr(up, "_end", nothing)
        monkeypatch.setattr(up, "_watch", ended)
        return _stay(plan_of(tmp_path, SHAPE), tmp_path, SHAPE, opens=False)

    return made


async def test_cluster_when_it_is_up_then_its_properties_are_remembered(
    stay: Stay, tmp_path: Path
) -> None:
    assert await stay(None) == 0
    assert remembered_in(tmp_path) == SHAPE


async def test_cluster_when_its_properties_cannot_be_written_then_it_stays_and_that_is_said(
    stay: Stay, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It ended, though all was well with it."""
    monkeypatch.setattr(os, "fsync", full)
    assert await stay(None) == 0
    assert "No space left on device; the next start needs the same --set" in capsys.readouterr().err


@pytest.mark.parametrize(
    "problem", [NodeFailed("a node"), AssertionError("no master"), OSError(24, "too many files")]
)
async def test_cluster_when_it_does_not_come_up_then_its_words_and_an_exit_code(
    stay: Stay, tmp_path: Path, capsys: pytest.CaptureFixture[str], problem: Exception
) -> None:
    """No traceback; and what it was to be is not remembered."""
    assert await stay(problem) == EXIT_FAILED
    said = capsys.readouterr().err
    assert str(problem) in said
    assert "The logs are" in said
    assert remembered_in(tmp_path) is None
