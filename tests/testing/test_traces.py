"""Traces of a real cluster, played: the same cores say the same, a mutant is found out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from rmqha.cli.replay import EXIT_DIFFERS, EXIT_UNREADABLE, KINDS, main
from rmqha.controller.machine import ControllerMachine
from rmqha.controller.metadata.messages import Notify
from rmqha.ha.events import SetConfirmOffset
from rmqha.ha.ha_core import HaCore
from rmqha.runtime.trace import Kind, Replayed, read_records, replay
from rmqha.testing.cluster import RmqCluster
from rmqha.testing.plugin import Factory

TRACE = {"traceFile": "cores.trace"}


def recorded_by(cluster: RmqCluster) -> list[Path]:
    """Every trace of a cluster, those of earlier lives too; it is ended in order.

    What a node that is killed gathered last is gone.
    """
    for node in reversed(cluster.nodes):
        cluster.shut_down(node)
    return sorted(cluster.folder.rglob("cores.trace*"))


def play(path: Path, **altered: Kind) -> Replayed:
    """Play one trace."""
    return replay(read_records(path.read_bytes()), KINDS | altered)


@pytest.fixture
def traces(rmq_cluster_factory: Factory) -> list[Path]:
    """The traces of a cluster that has failed over: a controller's and two replicas'."""
    cluster = rmq_cluster_factory(
        controllers=1, replicas=2, controller_settings=TRACE, broker_settings=TRACE
    )
    cluster.produce(20)
    old = cluster.kill(cluster.wait_for_master())
    cluster.wait_for_master(other_than=old)
    cluster.produce(5)
    cluster.restart(old)
    cluster.wait_in_sync(2)
    return recorded_by(cluster)


def played_events(traces: list[Path]) -> dict[str, int]:
    """How many events of each core were played; none of them differs."""
    counts: dict[str, int] = {}
    for path in traces:
        played = play(path)
        assert played.difference is None, (path, played.difference)
        for kind, count in played.events.items():
            counts[kind] = counts.get(kind, 0) + count
    return counts


@pytest.mark.costly
def test_replay_when_a_cluster_failed_over_then_every_core_does_the_same_again(
    traces: list[Path],
) -> None:
    """A core that does not repeat itself has a clock, a random number or an unsorted set in it."""
    counts = played_events(traces)
    assert len(traces) == 4, "a controller, two replicas, and the first life of one of them"
    assert set(counts) == set(KINDS)
    assert min(counts.values()) >= 10, counts


class Silent(ControllerMachine):
    """A mutant: it tells nobody of an election."""

    def step(self, now_ms: int, event: Any) -> list[Any]:
        """Without notifications."""
        return [one for one in super().step(now_ms, event) if not isinstance(one, Notify)]


class Hasty(HaCore):
    """A mutant: it lets consumers see a byte more than is safe."""

    def step(self, now_ms: int, event: Any) -> list[Any]:
        """A byte too far."""
        return [
            SetConfirmOffset(one.offset + 1) if isinstance(one, SetConfirmOffset) else one
            for one in super().step(now_ms, event)
        ]


def hasty(start: Any) -> Hasty:
    """The mutant of a start."""
    made = start.make()
    made.__class__ = Hasty
    return made  # type: ignore[no-any-return]  # its class was just changed


@pytest.mark.costly
def test_replay_when_a_core_is_altered_then_the_first_other_effect_is_named(
    traces: list[Path],
) -> None:
    """Whoever bisects a production trace relies on the event that it names."""
    found = [
        played.difference
        for path in traces
        for played in (
            play(path, controller=KINDS["controller"]._replace(make=Silent)),
            play(path, ha=KINDS["ha"]._replace(make=hasty)),
        )
        if played.difference is not None
    ]
    controller = [one for one in found if one.kind == "controller"]
    replication = [one for one in found if one.kind == "ha"]
    assert controller
    assert replication
    assert any("Notify" in line for line in controller[0].recorded)
    assert not any("Notify" in line for line in controller[0].replayed)
    for one in replication:
        assert any("SetConfirmOffset" in line for line in one.recorded)
        assert one.recorded != one.replayed


@pytest.mark.costly
def test_command_when_a_trace_is_played_then_its_exit_code_says_what_became_of_it(
    traces: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Scripts look at the exit code, people at the lines."""
    path = next(one for one in traces if "controller" in str(one))
    same = CliRunner().invoke(main, [str(path)])
    assert (same.exit_code, same.output.splitlines()[-1]) == (0, "all effects are the same")
    monkeypatch.setitem(KINDS, "controller", KINDS["controller"]._replace(make=Silent))
    other = CliRunner().invoke(main, [str(path)])
    assert other.exit_code == EXIT_DIFFERS
    assert "Notify" in other.output
    torn = tmp_path / "no.trace"
    torn.write_bytes(b"\0\0\0\3abc")
    assert CliRunner().invoke(main, [str(torn)]).exit_code == EXIT_UNREADABLE


@pytest.mark.parametrize("bytes_max", [0, 4_000])
def test_recording_when_the_maximum_is_reached_then_the_cluster_goes_on_and_the_trace_says_so(
    rmq_cluster_factory: Factory, bytes_max: int
) -> None:
    """A trace that fills the disk would do the harm that it is to explain."""
    settings = TRACE | {"traceBytesMax": bytes_max}
    cluster = rmq_cluster_factory(
        controllers=1, replicas=1, controller_settings=settings, broker_settings=settings
    )
    cluster.produce(50)
    cluster.assert_nothing_lost()
    for path in recorded_by(cluster):
        assert path.stat().st_size < bytes_max + 200
        played = play(path)
        assert played.difference is None
        assert played.ended == "traceBytesMax is reached"
