"""What a machine has that is nothing to a test: another user's ports, variables of a shell."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from rmqha.testing import launcher_handle
from rmqha.testing.launcher_handle import PROGRAMS, LauncherHandle, node_environment
from rmqha.testing.real.processes import allocate_ports, free_ports

ROOT = Path(__file__).resolve().parents[2]
NOBODY = 65534


def test_ports_when_another_user_was_here_first_then_each_has_a_folder_and_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second user on a machine could start no process at all."""
    monkeypatch.setattr(tempfile, "gettempdir", lambda: str(tmp_path))
    blocks = []
    for user in (1000, 1001):
        monkeypatch.setattr(os, "getuid", lambda user=user: user)
        blocks.append(allocate_ports())
    for block in blocks:
        free_ports(block)
    assert blocks[0] != blocks[1]
    assert sorted(one.name for one in tmp_path.iterdir()) == [
        "rmqha-ports-1000",
        "rmqha-ports-1001",
    ]


@pytest.mark.costly
@pytest.mark.skipif(os.getuid() != 0, reason="only root can be somebody else")
def test_ports_when_they_are_another_users_then_he_gets_them(tmp_path: Path) -> None:
    """With the permissions that folders really get."""
    program = (
        "import os, sys\nfrom rmqha.testing.real.processes import allocate_ports\n"
        "print(allocate_ports())\nos.setgid(int(sys.argv[1])); os.setuid(int(sys.argv[1]))\n"
        "print(allocate_ports())\n"
    )
    tmp_path.chmod(0o1777)
    for above in list(tmp_path.parents)[:3]:
        above.chmod(above.stat().st_mode | 0o011)
    got = subprocess.run(
        [sys.executable, "-c", program, str(NOBODY)], cwd=ROOT, capture_output=True, text=True,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )  # fmt: skip
    assert got.returncode == 0, got.stderr
    first, second = got.stdout.splitlines()
    assert first != second


def test_environment_when_a_shell_has_settings_in_it_then_nodes_do_not_see_them() -> None:
    """A broker of the name that was exported never joined the test's broker set."""
    kept = {"PATH": "/bin", "HOME": "/root", "PYTHONPATH": "/here"}
    strange = dict.fromkeys(
        (
            "NAMESRV_ADDR", "ROCKETMQ_HOME", "brokerName", "listenPort", "tls.enable",
            "controllerDLegerPeers", "kvConfigPath", "flushDiskType",
        ),
        "orders",
    )  # fmt: skip
    assert node_environment({**kept, **strange}) == kept


@pytest.mark.slow
def test_processes_when_a_setting_is_exported_then_the_cluster_forms(tmp_path: Path) -> None:
    """The whole way: a variable of the test's process, the launcher, and a node."""
    program = (
        "import sys\nfrom pathlib import Path\nfrom rmqha.testing.cluster import RmqCluster\n"
        "c = RmqCluster(Path(sys.argv[1]), controllers=1, replicas=1, processes=True)\n"
        "try:\n    print(c.start(timeout_s=12).produce(b'x'))\nfinally:\n    c.close()\n"
    )
    got = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)], cwd=ROOT, capture_output=True, text=True,
        env={**os.environ, "brokerName": "orders"},
    )  # fmt: skip
    assert got.returncode == 0, got.stderr
    assert "<acked b'x'" in got.stdout


@pytest.mark.slow
def test_launcher_when_a_module_of_the_folder_has_a_name_of_the_library_then_it_is_not_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An application with a ``queue.py``: its tests run where it stands."""
    for name in ("queue", "msgspec", "uvloop"):
        (tmp_path / f"{name}.py").write_text("raise ImportError('this is the application')\n")
    monkeypatch.chdir(tmp_path)
    handle = LauncherHandle()
    try:
        assert handle.request(do="load", program=PROGRAMS["namesrv"]) == {"loaded": 1}
    finally:
        handle.close()


@pytest.mark.slow
@pytest.mark.parametrize("source", [None, Path("checkout")])
def test_launcher_when_the_package_is_in_one_folder_alone_then_it_runs_that_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: Path | None
) -> None:
    """A checkout that is not installed, on the path of pytest alone; or another release's."""
    package = tmp_path / "checkout" / "rmqha" / "testing"
    package.mkdir(parents=True)
    for folder in (package, package.parent):
        (folder / "__init__.py").touch()
    (package / "launcher.py").write_text(
        "import socket\ndef main():\n    socket.socket(fileno=0).send(b'{\"ours\": 1}')\n"
    )
    monkeypatch.chdir(tmp_path)
    if source is None:
        monkeypatch.setattr(launcher_handle, "HERE", tmp_path / "checkout")
    handle = LauncherHandle(source)
    try:
        assert handle.request(do="load") == {"ours": 1}
    finally:
        handle.close()
