"""The broker as a process: flags, boot line, signals, exit codes."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from rmqha.runtime.properties import format_properties, parse_properties
from rmqha.testing.real import wire
from rmqha.testing.real.processes import Child, allocate_ports

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
CONFIG, STORE, PORT = 2, 3, 4
START_S = 30.0
COMMAND = [sys.executable, "-m", "rmqha.cli.mqbroker"]


def properties(folder: Path, port: int, **changes: str) -> dict[str, str]:
    """A broker whose controllers are not there: it boots, and stays fenced."""
    return {
        "enableControllerMode": "true",
        "brokerName": "broker-a",
        "brokerIP1": "127.0.0.1",
        "bindAddress": "127.0.0.1",
        "listenPort": str(port),
        "controllerAddr": "127.0.0.1:1",
        "storePathRootDir": str(folder / "store"),
        "mappedFileSizeCommitLog": "65536",
        **changes,
    }


def write(folder: Path, values: dict[str, str], name: str = "broker.conf") -> Path:
    """The properties file."""
    path = folder / name
    path.write_text(format_properties(values), encoding="utf-8")
    return path


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run it to its end."""
    return subprocess.run(
        [*COMMAND, *arguments], cwd=ROOT, capture_output=True, text=True, timeout=START_S,
        check=False,
    )  # fmt: skip


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[tuple[Child, int, Path]]:
    """A running broker, its port and its file."""
    port = allocate_ports()[2]
    config = write(tmp_path, properties(tmp_path, port, namesrvAddr="127.0.0.1:2"))
    child = Child("broker", [*COMMAND, "-c", str(config)], tmp_path / "out.log")
    child.start()
    child.wait_for_line("boot success", START_S)
    yield child, port, config
    child.kill()


def test_boot_when_it_listens_then_the_line_is_javas(
    broker: tuple[Child, int, Path],
) -> None:
    """Start scripts wait for this line. Before it has a role it stores nothing."""
    child, port, _ = broker
    line = (
        f"The broker[broker-a, 127.0.0.1:{port}] boot success. serializeType=JSON"
        " and name server is 127.0.0.1:2"
    )
    assert line in child.output()
    fields = {"b": "T", "c": "TBW102", "d": 4, "e": 0}
    for fenced in (port, port - 2):
        assert wire.invoke(f"127.0.0.1:{fenced}", 310, fields, b"x").code == 14


def test_file_when_it_is_a_link_then_a_change_is_written_behind_it(tmp_path: Path) -> None:
    """A configuration that is kept elsewhere, under version control, say: the link became a file."""
    port = allocate_ports()[2]
    target = write(tmp_path, properties(tmp_path, port), "kept-elsewhere.conf")
    config = tmp_path / "broker.conf"
    config.symlink_to(target)
    child = Child("broker", [*COMMAND, "-c", str(config)], tmp_path / "out.log")
    child.start()
    try:
        child.wait_for_line("boot success", START_S)
        assert wire.invoke(f"127.0.0.1:{port}", 25, {}, b"slaveReadEnable=true\n").code == 0
    finally:
        child.kill()
    assert config.is_symlink()
    assert parse_properties(target.read_text())["slaveReadEnable"] == "true"


def test_boot_when_a_name_is_looked_up_then_the_machines_resolver_is_asked(tmp_path: Path) -> None:
    """The resolver is the process's: without one each look-up would fail."""
    port = allocate_ports()[2]
    values = properties(
        tmp_path, port, namesrvAddr="localhost:2", fetchNameSrvAddrByDnsLookup="true"
    )
    child = Child("broker", [*COMMAND, "-c", str(write(tmp_path, values))], tmp_path / "out.log")
    child.start()
    try:
        child.wait_for_line("and name server is localhost:2", START_S)
        found = next(line for line in child.output().splitlines() if "addresses_found" in line)
        assert "127.0.0.1:2" in found or "[::1]:2" in found
        assert child.terminate()
    finally:
        child.kill()


def test_boot_when_a_key_is_unknown_then_it_is_a_warning(tmp_path: Path) -> None:
    """A misspelt key counts for nothing, and who reads warnings alone has to see it."""
    port = allocate_ports()[2]
    values = properties(tmp_path, port, flushDiskTyp="SYNC_FLUSH", logStyle="json")
    child = Child("broker", [*COMMAND, "-c", str(write(tmp_path, values))], tmp_path / "out.log")
    child.start()
    try:
        child.wait_for_line("boot success", START_S)
        (line,) = [one for one in child.output().splitlines() if "config_keys_unknown" in one]
        assert json.loads(line)["level"] == "warning"
        assert json.loads(line)["keys"] == ["flushDiskTyp"]
    finally:
        child.kill()


def test_sigterm_when_running_then_it_ends_with_a_clean_store(
    broker: tuple[Child, int, Path], tmp_path: Path
) -> None:
    """The abort file would make the next start walk through the whole log."""
    child, _, _ = broker
    assert (tmp_path / "store" / "abort").exists()
    assert child.terminate()
    assert not (tmp_path / "store" / "abort").exists()
    assert "Traceback" not in child.output()


def test_second_broker_when_the_store_is_in_use_then_it_ends_with_3(
    broker: tuple[Child, int, Path], tmp_path: Path
) -> None:
    """Two writers of one commit log would destroy it."""
    values = properties(tmp_path, allocate_ports()[2])
    ended = run("-c", str(write(tmp_path, values, "second.conf")))
    assert ended.returncode == STORE
    assert "locked by another process" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_start_when_the_store_is_another_brokers_then_it_ends_with_3(tmp_path: Path) -> None:
    """A renamed broker must not take over a log under a new name."""
    store = tmp_path / "store"
    store.mkdir()
    (store / "brokerIdentity").write_text("DefaultCluster#broker-b#1")
    ended = run("-c", str(write(tmp_path, properties(tmp_path, allocate_ports()[2]))))
    assert ended.returncode == STORE
    assert "broker-b" in ended.stderr
    assert (store / "brokerIdentity").read_text() == "DefaultCluster#broker-b#1"


def test_start_when_the_identity_is_damaged_then_it_ends_with_3(tmp_path: Path) -> None:
    """Java takes a damaged file for none, and applies for a second id."""
    store = tmp_path / "store"
    store.mkdir()
    (store / "brokerIdentity").write_text("DefaultCluster#bro")
    ended = run("-c", str(write(tmp_path, properties(tmp_path, allocate_ports()[2]))))
    assert ended.returncode == STORE
    assert "is not the identity of a broker" in ended.stderr


@pytest.mark.parametrize("key", ["storePathCommitLog", "storePathRootDir"])
def test_start_when_a_folder_cannot_be_made_then_it_ends_with_3(tmp_path: Path, key: str) -> None:
    """It said that it could not listen; and what cannot be made is named."""
    values = properties(tmp_path, allocate_ports()[2], **{key: "/proc/rmqha"})
    ended = run("-c", str(write(tmp_path, values)))
    assert (ended.returncode, "Traceback" in ended.stderr) == (STORE, False), ended.stderr
    assert "/proc/rmqha" in ended.stderr
    assert "cannot listen" not in ended.stderr


def test_start_when_the_port_is_taken_then_it_ends_with_4(tmp_path: Path) -> None:
    """And says which."""
    port = allocate_ports()[2]
    with socket.create_server(("127.0.0.1", port)):
        ended = run("-c", str(write(tmp_path, properties(tmp_path, port))))
    assert ended.returncode == PORT
    assert str(port) in ended.stderr
    assert "Traceback" not in ended.stderr


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"listenPort": "x"}, "listenPort=x is not a number"),
        ({"enableControllerMode": "false", "brokerRole": "SLAVE"}, "brokerRole=SLAVE"),
        ({"controllerAddr": " "}, "controllerAddr is missing"),
    ],
)
def test_start_when_the_file_is_wrong_then_it_ends_with_2(
    tmp_path: Path, changes: dict[str, str], says: str
) -> None:
    """The file and the key are named."""
    config = write(tmp_path, properties(tmp_path, 20911) | changes)
    ended = run("-c", str(config))
    assert ended.returncode == CONFIG
    assert f"{config}: {says}" in ended.stderr


def test_flags_when_given_then_files_and_items_are_shown(tmp_path: Path) -> None:
    """-p and -m print and end; -n replaces the file's name servers."""
    config = write(tmp_path, properties(tmp_path, 20911, oddKey="1"))
    everything = run("-c", str(config), "-p", "-n", "1.2.3.4:9876")
    shown = parse_properties(everything.stdout)
    assert everything.returncode == 0
    assert (shown["namesrvAddr"], shown["haListenPort"]) == ("1.2.3.4:9876", "20912")
    assert shown["oddKey"] == "1"
    few = parse_properties(run("-c", str(config), "-m").stdout)
    assert "brokerName" in few
    assert len(few) < len(shown) / 2
    assert run().returncode == CONFIG
    assert run("-c", str(tmp_path / "none")).returncode == CONFIG


def test_kill_when_it_comes_then_the_next_start_recovers(
    broker: tuple[Child, int, Path],
) -> None:
    """kill -9 leaves the abort file and the lock's file; neither may stand in the way."""
    child, _, _ = broker
    child.kill()
    child.start()
    child.wait_for_line('"clean":false', START_S)
    assert child.terminate()
