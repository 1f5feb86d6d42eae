"""What a supervisor such as systemd hears of a process."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from rmqha.runtime.aio.supervisor import Supervisor
from rmqha.runtime.logs import Logger
from rmqha.testing.real.processes import allocate_ports

HEARD_S = 20.0
SILENT_S = 0.5


@pytest.fixture
def heard(tmp_path: Path) -> Iterator[socket.socket]:
    """The supervisor's end."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as one:
        one.bind(str(tmp_path / "notify"))
        one.settimeout(HEARD_S)
        yield one


async def test_process_when_it_is_up_then_it_says_so_lives_and_ends(heard: socket.socket) -> None:
    """A third of the time after which it would be missed lies between two signs of life."""
    environment = {"NOTIFY_SOCKET": heard.getsockname(), "WATCHDOG_USEC": "60000", "HOME": "/"}
    supervisor = Supervisor.of(environment, Logger())
    assert environment == {"HOME": "/"}, "children would speak for this process"
    loop = asyncio.get_running_loop()
    heard.setblocking(False)
    supervisor.up()
    assert [await loop.sock_recv(heard, 99) for _ in range(4)] == [b"READY=1", *[b"WATCHDOG=1"] * 3]
    supervisor.ending()
    assert await loop.sock_recv(heard, 99) == b"STOPPING=1"
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(loop.sock_recv(heard, 99), 0.1)


async def test_sign_of_life_when_it_is_due_then_there_is_time_for_two_more(
    heard: socket.socket,
) -> None:
    """One that comes at the last moment is too late on a busy machine."""
    environment = {"NOTIFY_SOCKET": heard.getsockname(), "WATCHDOG_USEC": "90000000"}
    supervisor = Supervisor.of(environment, Logger())
    begun_s = asyncio.get_running_loop().time()
    supervisor.up()
    assert supervisor._timer is not None
    assert supervisor._timer.when() - begun_s == pytest.approx(30, abs=5)
    supervisor.ending()


async def test_socket_without_a_file_is_told(tmp_path: Path) -> None:
    """Its name begins with a zero byte, which the environment writes as @."""
    name = f"rmqha-{os.getpid()}-{tmp_path.name}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as one:
        one.bind(f"\0{name}")
        one.settimeout(HEARD_S)
        Supervisor.of({"NOTIFY_SOCKET": f"@{name}"}, Logger()).up()
        assert one.recv(99) == b"READY=1"


@pytest.mark.parametrize(
    "environment",
    [
        {"WATCHDOG_USEC": "60000", "WATCHDOG_PID": "1"},
        {"WATCHDOG_USEC": "soon"},
        {"WATCHDOG_USEC": "-5"},
        {},
    ],
)
async def test_process_when_no_sign_of_life_is_wanted_of_it_then_it_gives_none(
    heard: socket.socket, environment: dict[str, str]
) -> None:
    """Another process is watched, or nobody."""
    Supervisor.of({**environment, "NOTIFY_SOCKET": heard.getsockname()}, Logger()).up()
    assert heard.recv(99) == b"READY=1"
    heard.setblocking(False)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(asyncio.get_running_loop().sock_recv(heard, 99), 0.1)


async def test_supervisor_when_it_is_not_there_then_that_is_told_once(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """And the process goes on; without a supervisor nothing is said at all."""
    supervisor = Supervisor(str(tmp_path / "nobody"), 0, Logger())
    supervisor.up()
    supervisor.ending()
    Supervisor.of({}, Logger()).up()
    assert "".join(capsys.readouterr()).count("supervisor_not_told") == 1


def said_to(heard: socket.socket) -> bytes | None:
    """What comes next; None when nothing does in time."""
    try:
        return heard.recv(99)
    except TimeoutError:
        return None


@pytest.mark.slow
def test_server_when_it_hangs_then_it_gives_no_sign_of_life(
    heard: socket.socket, tmp_path: Path
) -> None:
    """A name server as systemd would start it: up, alive, stopped and so silent, and at its end."""
    config = tmp_path / "namesrv.conf"
    config.write_text(
        f"listenPort={allocate_ports()[0]}\nbindAddress=127.0.0.1\nkvConfigPath={tmp_path}/kv.json\n"
    )
    environment = {
        **os.environ, "NOTIFY_SOCKET": heard.getsockname(), "WATCHDOG_USEC": "150000",
    }  # fmt: skip
    command = [sys.executable, "-m", "rmqha.cli.mqnamesrv", "-c", str(config)]
    with (tmp_path / "out").open("wb") as out:
        server = subprocess.Popen(command, env=environment, stdout=out, stderr=out)
    try:
        assert [heard.recv(99) for _ in range(3)] == [b"READY=1", b"WATCHDOG=1", b"WATCHDOG=1"]
        server.send_signal(signal.SIGSTOP)
        heard.settimeout(SILENT_S)
        assert set(iter(lambda: said_to(heard), None)) <= {b"WATCHDOG=1"}
        server.send_signal(signal.SIGCONT)
        heard.settimeout(HEARD_S)
        assert heard.recv(99) == b"WATCHDOG=1"
        server.send_signal(signal.SIGTERM)
        while (said := heard.recv(99)) != b"STOPPING=1":
            assert said == b"WATCHDOG=1"
        assert server.wait(HEARD_S) == 0
    finally:
        server.kill()
        server.wait()
