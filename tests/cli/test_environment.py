"""Servers that are configured by their environment, as in a container."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from rmqha.runtime.properties import format_properties, parse_properties
from rmqha.testing.real.processes import Child, allocate_ports

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
START_S = 30.0


def _printed(server: str, *arguments: str, **environment: str) -> dict[str, str]:
    done = subprocess.run(
        [sys.executable, "-m", f"rmqha.cli.{server}", *arguments, "-p"],
        capture_output=True, text=True, timeout=START_S, check=True, cwd=ROOT,
        env={**os.environ, **environment},
    )  # fmt: skip
    return parse_properties(done.stdout)


def _file(folder: Path, values: dict[str, str]) -> str:
    path = folder / "server.conf"
    path.write_text(format_properties(values))
    return str(path)


def test_controller_when_the_operator_starts_it_then_it_boots_without_a_file(
    tmp_path: Path,
) -> None:
    """The variables that a Controller resource of rocketmq-operator sets, and no others."""
    port = allocate_ports()[0]
    # The operator's host is "controller-0.controller-hs"; here it must lead to this machine.
    environment = {
        "MY_POD_NAME": "localhost",
        "controllerDLegerGroup": "ControllerGroup-controller",
        "controllerDLegerPeers": f"controller0-localhost:{port}",
        "controllerStorePath": str(tmp_path / "store"),
    }
    child = Child(
        "controller", [sys.executable, "-m", "rmqha.cli.mqcontroller"], tmp_path / "out.log",
        env={**environment, "HOME": str(tmp_path), "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    child.start()
    try:
        child.wait_for_line("The Controller Server boot success", START_S)
        assert (tmp_path / "store" / "rmqha").is_dir()
        # The reason for the signal's line is that there is no file: it must not end the process.
        os.kill(child.pid, signal.SIGHUP)
        child.wait_for_line("config_not_reloaded", START_S)
    finally:
        child.kill()


def test_file_when_read_again_then_the_environment_still_counts_more(tmp_path: Path) -> None:
    """A reload must not bring back what the environment replaced at the start."""
    port = allocate_ports()[0]
    path = _file(
        tmp_path,
        {
            "controllerDLegerGroup": "g", "controllerDLegerSelfId": "n0",
            "controllerDLegerPeers": f"n0-127.0.0.1:{port}", "enableElectUncleanMaster": "false",
            "controllerStorePath": str(tmp_path / "store"), "bindAddress": "127.0.0.1",
        },
    )  # fmt: skip
    child = Child(
        "controller", [sys.executable, "-m", "rmqha.cli.mqcontroller", "-c", path],
        tmp_path / "out.log",
        env={"enableElectUncleanMaster": "true", "HOME": str(tmp_path), "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    child.start()
    try:
        child.wait_for_line("The Controller Server boot success", START_S)
        os.kill(child.pid, signal.SIGHUP)
        child.wait_for_line("config_reloaded", START_S)
        told = next(one for one in child.log.read_text().splitlines() if "config_reloaded" in one)
        assert json.loads(told)["changed"] == {}
    finally:
        child.kill()


@pytest.mark.parametrize(
    ("server", "values"),
    [
        ("mqbroker", {"brokerName": "a", "brokerIP1": "10.0.0.1", "controllerAddr": "c:1",
                      "enableControllerMode": "true"}),
        ("mqnamesrv", {"listenPort": "1"}),
        ("mqcontroller", {"controllerDLegerGroup": "g", "controllerDLegerPeers": "n0-h:1",
                          "controllerDLegerSelfId": "n0"}),
    ],
)  # fmt: skip
def test_server_when_the_environment_has_a_setting_then_it_counts_more_than_the_file(
    tmp_path: Path, server: str, values: dict[str, str]
) -> None:
    """One file for all pods, and what differs by the variables of each."""
    path = _file(tmp_path, {**values, "logLevel": "error"})
    assert _printed(server, "-c", path)["logLevel"] == "error"
    assert _printed(server, "-c", path, logLevel="debug")["logLevel"] == "debug"


@pytest.mark.parametrize("server", ["mqbroker", "mqcontroller"])
def test_server_when_neither_file_nor_environment_place_it_then_it_ends_with_2(
    server: str,
) -> None:
    """A server without a place in a cluster has nothing to do."""
    done = subprocess.run(
        [sys.executable, "-m", f"rmqha.cli.{server}"], capture_output=True, text=True,
        timeout=START_S, check=False, cwd=ROOT,
    )  # fmt: skip
    assert (done.returncode, "give a properties file with -c" in done.stderr) == (2, True)
