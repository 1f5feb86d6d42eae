"""Signals that come while a process still imports what it consists of, or while it starts."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from rmqha.cli.process import AGAIN_S
from rmqha.cli.reload import Part, Reloader
from rmqha.cli.scripts import COMMANDS
from rmqha.runtime.logs import Logger
from rmqha.runtime.properties import format_properties
from rmqha.testing.real.processes import Child, allocate_ports, wait_until

ROOT = Path(__file__).resolve().parents[2]
START_S = 30.0
SIGNAL_AT_AN_IMPORT = """
import os, sys
class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == os.environ["AT_IMPORT"]:
            sys.meta_path.remove(self)
            os.kill(os.getpid(), int(os.environ["SIGNAL"]))
sys.meta_path.insert(0, Finder())
"""
"""Python imports a module of this name before anything else."""


def environment(folder: Path, number: signal.Signals, module: str) -> dict[str, str]:
    """Of a process that gets a signal when it imports a module."""
    (folder / "sitecustomize.py").write_text(SIGNAL_AT_AN_IMPORT)
    own = {"AT_IMPORT": module, "SIGNAL": str(int(number)), "HOME": str(folder)}
    return {**os.environ, **own, "PYTHONPATH": f"{folder}:{ROOT}"}


MODULES = sorted({place.module for place in COMMANDS.values()})
SCRIPTS = ("mqcontroller", "mqbroker", "mqnamesrv", "mqadmin", "demo")
WAYS = {
    **{f"module-{one.rpartition('.')[2]}": ("-m", one, "--help") for one in MODULES},
    **{
        f"script-{one}": ("-c", f"from rmqha.cli.scripts import {one}; {one}()", "--help")
        for one in SCRIPTS
    },
    **{
        f"rmqha-{one}": ("-c", "from rmqha.cli.scripts import everything; everything()", one, "-h")
        for one in ("broker", "mqadmin")
    },
}


@pytest.mark.few
@pytest.mark.costly
@pytest.mark.parametrize("way", WAYS)
def test_imports_when_interrupted_then_nothing_is_said_and_the_code_is_130(
    tmp_path: Path, way: str
) -> None:
    """A traceback of imports says nothing to anybody; the code is that of every other Ctrl-C."""
    done = subprocess.run(
        [sys.executable, *WAYS[way]], capture_output=True, text=True, timeout=START_S, check=False,
        cwd=tmp_path, env=environment(tmp_path, signal.SIGINT, "rmqha.base"),
    )  # fmt: skip
    assert (done.returncode, done.stderr, done.stdout) == (130, "", "")


def started(folder: Path, number: signal.Signals, module: str) -> Child:
    """A name server that gets a signal when it imports a module."""
    ports = allocate_ports()
    config = folder / "namesrv.conf"
    config.write_text(format_properties({
        "listenPort": str(ports[0]), "bindAddress": "127.0.0.1", "metricsExporterType": "PROM",
        "metricsPromExporterHost": "127.0.0.1", "metricsPromExporterPort": str(ports[1]),
        "kvConfigPath": str(folder / "kvConfig.json"),
    }))  # fmt: skip
    child = Child(
        "namesrv", [sys.executable, "-m", "rmqha.cli.mqnamesrv", "-c", str(config)],
        folder / "out.log", env=environment(folder, number, module),
    )  # fmt: skip
    child.start()
    return child


@pytest.mark.costly
@pytest.mark.parametrize("module", ["rmqha.base", "rmqha.runtime.aio.disk", "prometheus_client"])
def test_server_when_told_to_read_its_file_before_it_is_up_then_it_does_so_once(
    tmp_path: Path, module: str
) -> None:
    """SIGHUP at its imports, or at what it imports late, when its main port is open: it ended."""
    child = started(tmp_path, signal.SIGHUP, module)
    try:
        child.wait_for_line("config_reloaded", START_S)
        lines = [json.loads(one) for one in child.output().splitlines() if one.startswith("{")]
        assert [one["changed"] for one in lines if one["event"] == "config_reloaded"] == [{}]
        assert child.terminate()
    finally:
        child.kill()


@pytest.mark.costly
@pytest.mark.parametrize("module", ["rmqha.base", "rmqha.runtime.aio.disk"])
def test_server_when_told_to_end_before_it_is_up_then_it_ends_in_order(
    tmp_path: Path, module: str
) -> None:
    """The first process of a container has no default for SIGTERM: what it did not wait for was lost,
    and 30 s later the container was killed."""
    child = started(tmp_path, signal.SIGTERM, module)
    try:
        child.wait_for_line("name_server_stopped", START_S)
        wait_until(lambda: not child.alive, START_S, "its end")
        assert child._process is not None
        assert child._process.returncode == 0
    finally:
        child.kill()


@pytest.mark.costly
def test_tool_when_told_to_end_while_it_imports_then_it_ends(tmp_path: Path) -> None:
    """Nobody there takes the signal; it ends by default once all is imported."""
    done = subprocess.run(
        [sys.executable, "-m", "rmqha.cli.mqadmin", "--help"], capture_output=True, timeout=START_S,
        check=False, cwd=tmp_path, env=environment(tmp_path, signal.SIGTERM, "rmqha.base"),
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (-signal.SIGTERM, b"")


class Told(Logger):
    """Keeps what it is told."""

    def __init__(self) -> None:
        super().__init__()
        self.told: list[dict[str, Any]] = []

    def log(self, level: str, event: str, **facts: object) -> None:
        """One line."""
        self.told.append({"event": event, **facts})


@pytest.fixture
async def log() -> AsyncIterator[Told]:
    """Of a process in whose place this one takes SIGHUP; afterwards it does so no more."""
    yield Told()
    for number in (signal.SIGHUP, signal.SIGUSR1):
        asyncio.get_running_loop().remove_signal_handler(number)


async def hang_up() -> None:
    """Send this process a SIGHUP, and wait until the loop has heard of it."""
    heard = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, heard.set)
    for number in (signal.SIGHUP, signal.SIGUSR1):  # taken in this order
        os.kill(os.getpid(), number)
    await heard.wait()


class Limits:
    """A part of a process: it may change its limit and not its port.

    Attributes:
        taken: the changes.
    """

    def __init__(self) -> None:
        self.taken: list[Mapping[str, str]] = []
        values = {"port": "1", "limit": "1", "logLevel": "info"}
        self.part = Part(values, {"limit"}, self._change)

    def _change(self, values: Mapping[str, str]) -> None:
        self.taken.append(values)


async def test_file_when_it_changed_while_the_process_started_then_what_needs_a_restart_is_named(
    tmp_path: Path, log: Told
) -> None:
    """What was read at the start is what to compare with; and nothing is read before all is up."""
    path, limits = tmp_path / "server.conf", Limits()
    path.write_text("port=1\nlimit=1\n")
    reloader = Reloader(str(path), log)
    path.write_text("port=2\nlimit=2\n")
    await hang_up()
    assert (log.told, limits.taken) == ([], [])
    reloader.begin([limits.part])
    ((line, taken),) = zip(log.told, limits.taken, strict=True)
    assert (line["event"], taken, line["needs_restart"]) == (
        "config_reloaded", {"limit": "2"}, ["port"],
    )  # fmt: skip


async def test_environment_when_the_file_is_read_again_then_it_still_counts_more(
    tmp_path: Path, log: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither at the start nor later does the file bring back what the environment replaces."""
    path, limits = tmp_path / "server.conf", Limits()
    path.write_text("port=9\nlimit=9\n")
    monkeypatch.setenv("port", "1")
    monkeypatch.setenv("limit", "1")
    Reloader(str(path), log).begin([limits.part])
    path.write_text("port=8\nlimit=8\n")
    await hang_up()
    (line,) = log.told
    assert (limits.taken, line["changed"], line["needs_restart"]) == ([], {}, [])
    monkeypatch.setenv("limit", "5")
    await hang_up()
    assert limits.taken == [{"limit": "5"}]


HANGS = """
import asyncio, os
from rmqha.cli.process import Ending
from rmqha.runtime.aio.loop import run
from rmqha.runtime.logs import Logger

async def main():
    ending = Ending(Logger())
    print("up", flush=True)
    print(await ending.wait(), flush=True)
    if os.environ["BLOCKED"]:
        import time
        time.sleep(60)
    await asyncio.sleep(60)

run(main())
"""
"""A server whose ordered end does not come."""


@pytest.mark.slow
@pytest.mark.parametrize("blocked", ["", "yes"], ids=["waits", "blocked"])
def test_server_when_its_end_hangs_then_another_ctrl_c_ends_it(blocked: str) -> None:
    """Also where its loop is blocked. One that comes twice, by the terminal and by who passes it on,
    is one."""
    with subprocess.Popen(
        [sys.executable, "-c", HANGS], stdout=subprocess.PIPE, text=True, cwd=ROOT,
        env={**os.environ, "BLOCKED": blocked},
    ) as server:  # fmt: skip
        assert server.stdout is not None
        assert server.stdout.readline() == "up\n"
        begun = time.monotonic()
        server.send_signal(signal.SIGINT)
        assert server.stdout.readline() == "0\n"
        while server.poll() is None and time.monotonic() - begun < START_S:
            server.send_signal(signal.SIGINT)
            time.sleep(0.02)
        taken_s = time.monotonic() - begun
        server.kill()
    assert server.returncode == -signal.SIGINT
    assert taken_s >= AGAIN_S
