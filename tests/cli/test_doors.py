"""What processes say of their doors, who may read their files, and mqadmin by TLS."""

from __future__ import annotations

import asyncio
import os
import stat
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import aiohttp
import pytest
from prometheus_client import CollectorRegistry, generate_latest

from rmqha.cli import mqnamesrv
from rmqha.cli import tls as tls_module
from rmqha.cli.process import EXIT_CONFIG, set_umask, tell_open_doors
from rmqha.cli.status_page import start_status_page
from rmqha.cli.tls import DoorWatch, rejected_collector, tls_collector
from rmqha.runtime.aio.tls import Tls
from rmqha.runtime.logs import Logger
from rmqha.runtime.tls_settings import read_tls
from rmqha.testing.certificates import Authority, tls_properties
from rmqha.testing.plugin import Factory
from rmqha.testing.real.processes import allocate_ports
from rmqha.testing.settings import CLUSTER_NAME
from rmqha.web.document import NodeView, StatusDocument
from tests.cli.nodes import Group

OPEN = {"bindAddress": "0.0.0.0", "fileUmask": "077"}


@pytest.fixture
def umask() -> Iterator[None]:
    """The tests' own umask is what it was."""
    before = os.umask(0o022)
    yield
    os.umask(before)


class Lines:
    """A log that keeps what it is told."""

    def __init__(self) -> None:
        self.events: list[tuple[str, str]] = []

    def log(self, level: str, event: str, **facts: Any) -> None:
        """Keep the event, and what it is about."""
        self.events.append((event, str(facts.get("what", ""))))


@pytest.mark.usefixtures("umask")
def test_process_when_it_starts_then_its_files_are_its_owners_alone(tmp_path: Path) -> None:
    """Logs hold messages; they were readable for all users of the machine."""
    set_umask(OPEN)
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").touch()
    modes = [stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("folder", "file")]
    assert modes == [0o700, 0o600]


def test_process_when_strangers_reach_it_then_each_open_door_is_a_line() -> None:
    """And none of it where nobody does."""
    lines = Lines()
    tls = read_tls({})
    tell_open_doors("controller", OPEN, tls, cast(Logger, lines))
    assert [event for event, _ in lines.events] == ["door_open", "door_open"]
    assert "raftSecret" in lines.events[1][1]
    lines.events.clear()
    tell_open_doors("controller", {**OPEN, "bindAddress": "::1"}, tls, cast(Logger, lines))
    assert lines.events == []


@pytest.mark.usefixtures("umask")
@pytest.mark.parametrize("has_controller", [True, False])
async def test_name_server_when_a_controller_is_in_it_then_the_controller_s_doors_are_told_too(
    tmp_path: Path, has_controller: bool
) -> None:
    """Its file says whose they are; each kind of server has doors of its own."""
    port, peer = allocate_ports()[:2]
    config = tmp_path / "namesrv.conf"
    config.write_text(
        f"listenPort={port}\nbindAddress=0.0.0.0\n"
        f"enableControllerInNamesrv={str(has_controller).lower()}\n"
        f"controllerDLegerGroup=g\ncontrollerDLegerPeers=n0-127.0.0.1:{peer}\n"
        f"controllerDLegerSelfId=n0\ncontrollerStorePath={tmp_path / 'store'}\n"
    )
    lines = Lines()
    mqnamesrv._Node(mqnamesrv.read_configs(str(config)), cast(Logger, lines), lambda: None)
    doors = [what for event, what in lines.events if event == "door_open"]
    assert any("raftSecret" in one for one in doors) is has_controller
    assert len(doors) == (3 if has_controller else 1)


@pytest.mark.usefixtures("umask")
@pytest.mark.parametrize("text", ["", "89", "rwx", "7777"])
def test_process_when_its_umask_is_none_then_it_does_not_start(
    text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """It would be taken for another number."""
    with pytest.raises(SystemExit) as ended:
        set_umask({**OPEN, "fileUmask": text})
    assert ended.value.code == EXIT_CONFIG
    assert "fileUmask" in capsys.readouterr().err


@pytest.mark.costly
def test_controller_process_when_it_has_run_then_its_store_is_its_owners_alone(
    tmp_path: Path,
) -> None:
    """The real process, with the umask that it inherits."""
    group = Group(tmp_path, 1).start()
    (node,) = group.nodes
    try:
        made = [node.store, *node.store.rglob("*")]
        modes = {stat.S_IMODE(path.stat().st_mode) & 0o077 for path in made}
        assert len(made) > 1
        assert modes == {0}
    finally:
        node.kill()


async def test_status_page_says_which_doors_stand_open(tmp_path: Path) -> None:
    """With the kind of process that it serves, and at every look: a file of TLS may close them."""

    class OfOne:
        async def document(self) -> StatusDocument:
            return StatusDocument(1, NodeView("controller", "a:1", "0", 0))

        async def close(self) -> None:
            pass

    port = allocate_ports()[0]
    tls_file = tmp_path / "tls.properties"
    tls = Tls({"tls.config.file": str(tls_file)}, Logger())
    values = {
        **OPEN, "statusPageHost": "127.0.0.1", "statusPagePort": str(port), "httpAllowedHosts": "",
    }  # fmt: skip
    stop = await start_status_page(
        "controller", values, tls, OfOne, Logger(), Counter(), lambda: None
    )
    async with aiohttp.ClientSession() as session:

        async def doors() -> list[str]:
            async with session.get(f"http://127.0.0.1:{port}/status.json") as answer:
                return cast(list[str], (await answer.json())["open_doors"])

        open_at_first = await doors()
        keys = tls_properties(Authority(tmp_path), mutual=True, mode="enforcing")
        tls_file.write_text("".join(f"{key}={value}\n" for key, value in keys.items()))
        assert await tls.check()
        closed = await doors()
    await stop()
    assert len(open_at_first) == 2
    assert "raftSecret" in open_at_first[1]
    assert closed == []


def test_series_tell_of_certificates_and_of_the_door(tmp_path: Path) -> None:
    """What an alert for a certificate that ends is made of."""
    values = {"tls.config.file": "", **tls_properties(Authority(tmp_path))}
    tls = Tls(values, Logger())
    tls.reloads += 2
    collected = CollectorRegistry()
    collected.register(tls_collector(tls, {"address": "a:1"}))
    text = generate_latest(collected).decode()
    assert 'rmqha_tls_reloads_total{address="a:1",result="used"} 2.0' in text
    (ends,) = [
        float(line.split()[-1]) for line in text.splitlines()
        if line.startswith("rmqha_tls_certificate_expires_timestamp_seconds{")
    ]  # fmt: skip
    assert tls.expires_ms is not None
    assert ends * 1000 == tls.expires_ms


def test_series_tell_what_each_node_of_a_process_rejected() -> None:
    """One family, for a name server and the controller inside have different labels."""
    collected = CollectorRegistry()
    counts = [
        ({"address": "a:1"}, Counter({"plain": 1, "unsigned": 2})),
        ({"address": "a:2", "group": "g"}, Counter({"plain": 3})),
    ]
    collected.register(rejected_collector(counts))
    text = generate_latest(collected).decode()
    assert text.count("# TYPE rmqha_rejected_total counter") == 1
    assert 'rmqha_rejected_total{address="a:1",reason="plain"} 1.0' in text
    assert 'rmqha_rejected_total{address="a:1",reason="unsigned"} 2.0' in text
    assert 'rmqha_rejected_total{address="a:2",group="g",reason="plain"} 3.0' in text


class Told(Logger):
    """Keeps the lines."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: asyncio.Queue[tuple[str, dict[str, object]]] = asyncio.Queue()

    def log(self, level: str, event: str, **facts: object) -> None:
        self.lines.put_nowait((event, facts))


async def test_what_was_rejected_is_told_once_in_a_while_and_only_what_is_new(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A flood of strangers is one line a minute that says how many of which kind."""
    monkeypatch.setattr(tls_module, "TELL_EVERY_S", 0.01)
    log, one, other = Told(), Counter({"plain": 1}), Counter({"plain": 1, "room": 2})
    watch = DoorWatch(Tls({"tls.config.file": ""}, Logger()), [one, other], log)
    event, facts = await log.lines.get()
    assert (event, facts["by_reason"]) == ("rejected", {"plain": 2, "room": 2})
    one["unread"] += 5
    event, facts = await log.lines.get()
    assert facts["by_reason"] == {"unread": 5}
    await watch.stop()
    assert log.lines.empty()


def mqadmin(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """The real process."""
    return subprocess.run(
        [sys.executable, "-m", "rmqha.cli.mqadmin", *arguments], env={**os.environ, **environment},
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip


@pytest.mark.slow
def test_mqadmin_when_given_a_tls_file_then_it_shows_its_certificate(
    rmq_cluster_factory: Factory, tmp_path: Path
) -> None:
    """By an option or by the environment; without a certificate nobody talks to it."""
    cluster = rmq_cluster_factory(tls=True, controllers=1, replicas=1)
    path = tmp_path / "tls.properties"
    keys = {key: value for key, value in cluster.tls_keys.items() if key.startswith("tls.client")}
    path.write_text("".join(f"{key}={value}\n" for key, value in keys.items()))
    asked = ("clusterList", "-n", cluster.namesrv_addr)
    assert CLUSTER_NAME in mqadmin("--tlsConfig", str(path), *asked).stdout
    assert CLUSTER_NAME in mqadmin(*asked, RMQHA_TLS_CONFIG=str(path)).stdout
    for without in ((), ("--tls",)):
        done = mqadmin(*without, *asked)
        assert done.returncode == 3, done.stderr
    missing = mqadmin("--tlsConfig", str(tmp_path / "none"), *asked)
    assert missing.returncode == 2
    assert "no such file" in missing.stderr
