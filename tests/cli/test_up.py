"""``rmqha up`` as a user has it: one command, Ctrl-C, and everything is there the next time."""

from __future__ import annotations

import random
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from urllib.request import urlopen

import psutil
import pytest

from rmqha.cli.up import remembered_in, taken
from rmqha.cli.up_plan import Shape, plan_of
from rmqha.testing.real import wire
from rmqha.testing.real.processes import wait_until
from rmqha.testing.real.producer import Producer, missing, read_back

pytestmark = pytest.mark.slow
READY_S = 60.0
END_S = 30
SMALL = ("--controllers", "1", "--replicas", "2")


@pytest.fixture(scope="module")
def port() -> int:
    """One of which all ports that follow are free; no other test takes any of this range."""
    for _ in range(100):
        found = random.randrange(11_000, 17_000)
        plan = plan_of(Path("/"), Shape(port=found))
        if taken(plan, "127.0.0.1") is None:
            return found
    raise AssertionError("no free ports")


def command(folder: Path, *arguments: str) -> list[str]:
    """The command line."""
    return [sys.executable, "-m", "rmqha.cli.up", "--folder", str(folder), *arguments]


@contextmanager
def up(
    folder: Path, out: Path, arguments: Sequence[str], end: signal.Signals = signal.SIGINT,
    code: int = 0,
) -> Iterator[str]:  # fmt: skip
    """A cluster that is ready, and what it said; it is ended by a signal, with an exit code."""
    with out.open("wb") as file:
        process = subprocess.Popen(
            command(folder, *arguments), stdout=file, stderr=subprocess.STDOUT
        )
    try:

        def ready() -> bool:
            assert process.poll() is None, out.read_text()
            return "Ready after" in out.read_text()

        wait_until(ready, READY_S, "the cluster to be ready")
        yield out.read_text()
        process.send_signal(end)
        assert process.wait(END_S) == code, out.read_text()
    finally:
        process.kill()
        process.wait()


def test_cluster_when_it_is_ended_and_started_again_then_its_messages_are_there(
    tmp_path: Path, port: int
) -> None:
    """The second time without an option: the folder remembers."""
    folder, server = tmp_path / "data", f"127.0.0.1:{port}"
    with up(folder, tmp_path / "first", ["--port", str(port), *SMALL]) as said:
        assert server in said
        page = next(one.split()[-1] for one in said.splitlines() if "status page" in one)
        with urlopen(page, timeout=5) as answer:
            assert b"<!doctype html>" in answer.read()
        with Producer(server, "Kept") as producer:
            producer.wait_for_acks(50)
    assert taken(plan_of(folder, Shape(1, 2, port)), "127.0.0.1") is None, "a node is left"
    with up(folder, tmp_path / "second", []), wire.Connection(server) as names:
        master = wire.broker_addresses(names, "broker-a", "broker-a")[0]

        def lost() -> int:
            return len(missing(producer.acked, read_back(master, "Kept")))

        wait_until(lambda: not lost(), 10, "what was sent before")
        with Producer(server, "Kept") as more:
            more.wait_for_acks(10)


def test_node_when_it_ends_by_itself_then_it_is_said_and_so_does_the_exit_code(
    tmp_path: Path, port: int
) -> None:
    """The others go on, and SIGTERM ends them as Ctrl-C does."""
    out = tmp_path / "out"
    with up(tmp_path / "data", out, ["--port", str(port), *SMALL], signal.SIGTERM, code=1):
        victim = node_at(port + 1045)
        victim.kill()
        wait_until(lambda: "ended by itself" in out.read_text(), 10, "its end to be told")
        assert "broker-1 ended by itself with exit code -9" in out.read_text()
        with wire.Connection(f"127.0.0.1:{port}") as names:
            assert wire.broker_addresses(names, "broker-a", "broker-a")
    assert taken(plan_of(tmp_path, Shape(1, 2, port)), "127.0.0.1") is None


def node_at(port: int) -> psutil.Process:
    """Who listens at a port of ours."""
    for one in psutil.net_connections("tcp"):
        if one.status == psutil.CONN_LISTEN and one.laddr.port == port and one.pid:
            return psutil.Process(one.pid)
    raise AssertionError(f"nobody listens at {port}")


def refused(folder: Path, *arguments: str) -> tuple[int, str]:
    """Exit code and what was said of a run that must not begin."""
    done = subprocess.run(
        command(folder, *arguments), capture_output=True, text=True, timeout=30, check=False
    )
    return done.returncode, done.stderr


def test_a_taken_port_is_named_with_its_owner(tmp_path: Path, port: int) -> None:
    """And nothing is made."""
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.bind(("127.0.0.1", port + 1035))
        other.listen()
        code, said = refused(tmp_path / "data", "--port", str(port))
    assert code == 4
    assert f"127.0.0.1:{port + 1035}, of broker-0: Address already in use" in said
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--set", "flushDiskType"], "KEY=VALUE"),
        (["--set", "flushDiskTyp=x"], "'flushDiskType'"),
        (["--controllers", "0"], "0 controllers"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(
    tmp_path: Path, arguments: list[str], words: str
) -> None:
    """Before anything is made."""
    code, said = refused(tmp_path / "data", *arguments)
    assert code == 2
    assert said.count("\n") == 1
    assert words in said
    assert not (tmp_path / "data").exists()


def test_a_folder_of_something_else_is_refused(tmp_path: Path) -> None:
    """Its file is not ours."""
    (tmp_path / "cluster.json").write_text("[]")
    code, said = refused(tmp_path)
    assert code == 2
    assert "cluster.json" in said


def test_a_property_that_a_broker_refuses_ends_it_with_the_broker_s_words(
    tmp_path: Path, port: int
) -> None:
    """No node is left behind."""
    done = subprocess.run(
        command(tmp_path / "data", "--port", str(port), *SMALL, "--set", "flushDiskType=NEVER"),
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    assert "flushDiskType" in done.stderr
    assert taken(plan_of(tmp_path, Shape(1, 2, port)), "127.0.0.1") is None


def test_property_when_the_cluster_has_come_up_with_it_then_the_next_start_has_it_too(
    tmp_path: Path, port: int
) -> None:
    """Stores are of one size of files: the next start failed, with lines of the former one's log."""
    folder, sized = tmp_path / "data", "mappedFileSizeCommitLog"
    given = ["--port", str(port), *SMALL, "--set", f"{sized}=1048576"]
    with up(folder, tmp_path / "first", given):
        pass
    log = folder / "broker-0" / "log.json"
    before = log.read_text().splitlines()
    done = subprocess.run(
        command(folder, "--set", "flushDiskType=NEVER"), capture_output=True, text=True,
        timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    assert "flushDiskType" in done.stderr
    assert before
    assert not {*before} & {*done.stderr.splitlines()}, "lines of the run before"
    with up(folder, tmp_path / "second", []):
        assert remembered_in(folder) == Shape(1, 2, port, sets={sized: "1048576"})
        assert f"{sized}=1048576" in (folder / "broker-0" / "broker.properties").read_text()


def test_cluster_when_it_is_started_twice_then_the_second_says_that_it_runs(
    tmp_path: Path, port: int
) -> None:
    """The advice was another --port, which the folder then refused."""
    folder = tmp_path / "data"
    with up(folder, tmp_path / "out", ["--port", str(port), *SMALL]):
        for more in ([], ["--port", str(port + 100)]):
            code, said = refused(folder, *more)
            assert code == 3
            assert said == (
                f"rmqha up: the cluster of {folder} runs already, its name server at"
                f" 127.0.0.1:{port}; another one needs another --folder and --port\n"
            )
