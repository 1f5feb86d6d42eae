"""1009 on a node whose disk does not do what is asked of it."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from typing import cast

import pytest

from rmqha.base.errors import DiskFailed
from rmqha.cli.mqcontroller import read_config
from rmqha.cli.mqnamesrv import read_configs
from rmqha.controller.aio.config_changes import ConfigChanges
from rmqha.controller.settings import load_config
from rmqha.remoting.aio.connection import Connection
from rmqha.remoting.command import RemotingCommand
from rmqha.runtime.aio.machine import MACHINE
from rmqha.runtime.aio.tasks import Tasks
from rmqha.runtime.logs import Logger
from rmqha.runtime.properties import parse_properties
from rmqha.sim.disk import SimDisk

UPDATE_CONFIG, SYSTEM_ERROR = 1009, 1


class Broken(SimDisk):
    """A disk whose writes raise an error."""

    def __init__(self, error: Exception) -> None:
        super().__init__(random.Random(1))
        self.error = error

    async def write_atomic(self, path: str, data: bytes) -> None:
        """Never done."""
        raise self.error


class Kept(SimDisk):
    """A disk that has each file at once."""

    def __init__(self) -> None:
        super().__init__(random.Random(1))
        self.text = ""

    async def write_atomic(self, path: str, data: bytes) -> None:
        """Kept as it is."""
        self.text = data.decode()


class Asker:
    """A connection that keeps what it is sent."""

    peer = "10.0.0.1:1"

    def __init__(self) -> None:
        self.answers: list[RemotingCommand] = []

    def send(self, answer: RemotingCommand) -> None:
        """Keep it."""
        self.answers.append(answer)


@pytest.mark.parametrize(
    "error", [DiskFailed("full"), FileNotFoundError("gone"), ValueError("odd")]
)
async def test_update_when_the_file_cannot_be_stored_then_whoever_asked_is_told(
    error: Exception,
) -> None:
    """Without an answer mqadmin waits until it gives up, and does not know that it counts."""
    config = load_config(
        {"controllerDLegerGroup": "g", "controllerDLegerPeers": "n0-h:1",
         "controllerDLegerSelfId": "n0"}, home="/opt", user_home="/home",
    )  # fmt: skip
    tasks, asker = Tasks(Logger()), Asker()
    changes = ConfigChanges(
        config, disk=Broken(error), tasks=tasks, log=Logger(), on_changed=lambda: None
    )
    body = b"enableElectUncleanMaster=true\n"
    changes.answer(cast("Connection", asker), RemotingCommand(UPDATE_CONFIG, body=body))
    (storing,) = asyncio.all_tasks() - {asyncio.current_task()}
    await asyncio.gather(storing, return_exceptions=True)
    (answer,) = asker.answers
    assert answer.code == SYSTEM_ERROR
    assert (answer.remark or "").startswith("changed, but not stored: ")


SECRETS = {
    "raftSecret": "from-the-environment-0123456789",
    "tls.server.keyPassword": "from-the-environment-too",
}


@pytest.mark.parametrize("embedded", [False, True], ids=["controller", "in a name server"])
async def test_update_when_the_environment_has_said_some_then_the_file_keeps_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, embedded: bool
) -> None:
    """Secrets are given by variables so that they stand in no file; the first 1009 wrote them."""
    path = tmp_path / "controller.conf"
    path.write_text(
        f"controllerDLegerGroup=g\ncontrollerDLegerPeers=n0-pod-0.svc:9878\nlogLevel=info\n"
        f"enableControllerInNamesrv={str(embedded).lower()}\nconfigStorePath={path}\n"
    )
    variables = {**SECRETS, "logLevel": "error", "MY_POD_NAME": "pod-0"}
    for key, value in variables.items():
        monkeypatch.setenv(key, value)
    config = read_configs(str(path)).controller if embedded else read_config(str(path))
    assert config is not None
    assert config.self_id == "n0"
    assert {key: config.values[key] for key in SECRETS} == SECRETS
    disk, tasks, asker = Kept(), Tasks(Logger()), Asker()
    changes = ConfigChanges(config, disk=disk, tasks=tasks, log=Logger(), on_changed=lambda: None)
    body = b"electMasterMaxRetryCount=4\n"
    changes.answer(cast("Connection", asker), RemotingCommand(UPDATE_CONFIG, body=body))
    await asyncio.gather(*(asyncio.all_tasks() - {asyncio.current_task()}))
    stored = parse_properties(disk.text)
    assert asker.answers[0].code == 0
    assert stored["electMasterMaxRetryCount"] == "4"
    assert stored["logLevel"] == "info"
    assert not {"raftSecret", "tls.server.keyPassword", "controllerDLegerSelfId"} & set(stored)


async def test_update_when_the_file_is_the_one_that_was_read_then_the_rest_of_it_stays(
    tmp_path: Path,
) -> None:
    """Remarks were lost, and what an operator had prepared for the next start."""
    path = tmp_path / "controller.conf"
    said = f"controllerDLegerGroup=g\ncontrollerDLegerPeers=n0-h:1\nconfigStorePath={path}\n"
    path.write_text(f"# mine\n{said}controllerDLegerSelfId=n0\n")
    config = read_config(str(path))
    prepared = f"# mine, too\n{said}controllerDLegerSelfId=n0\ntraceFile=t\n"
    path.write_text(prepared)
    tasks, asker = Tasks(Logger()), Asker()
    changes = ConfigChanges(
        config, disk=MACHINE.disk(), tasks=tasks, log=Logger(), on_changed=lambda: None
    )
    body = b"electMasterMaxRetryCount=4\n"
    changes.answer(cast("Connection", asker), RemotingCommand(UPDATE_CONFIG, body=body))
    await asyncio.gather(*(asyncio.all_tasks() - {asyncio.current_task()}))
    assert asker.answers[0].code == 0
    assert path.read_text() == f"{prepared}electMasterMaxRetryCount=4\n"


async def test_reload_when_a_change_was_not_stored_then_the_next_one_does_not_bring_it_back(
    tmp_path: Path,
) -> None:
    """The operator has written another value by hand, and told the process to read it."""
    path = tmp_path / "controller.conf"
    said = f"controllerDLegerGroup=g\ncontrollerDLegerPeers=n0-h:1\nconfigStorePath={path}\n"
    path.write_text(f"{said}controllerDLegerSelfId=n0\nelectMasterMaxRetryCount=6\n")
    changes = ConfigChanges(
        read_config(str(path)), disk=MACHINE.disk(), tasks=Tasks(Logger()), log=Logger(),
        on_changed=lambda: None,
    )  # fmt: skip
    changes.file.take({"electMasterMaxRetryCount": "5"})
    assert changes.change({"electMasterMaxRetryCount": "7"}) is None
    await changes.file.write(dict)
    assert parse_properties(path.read_text())["electMasterMaxRetryCount"] == "6"
