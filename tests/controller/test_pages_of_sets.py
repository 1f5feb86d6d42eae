"""What mqadmin asks controllers about many broker sets."""

from __future__ import annotations

import orjson
import pytest

from rmqha.admin import replicas_info
from rmqha.admin.replicas_info import replicas_infos
from rmqha.client.exchange import Call
from rmqha.remoting.command import RemotingCommand
from tests.admin.driving import drive
from tests.controller.metadata.driving import Driver
from tests.controller.metadata.test_sync_state_data import driver_of

LEADER = {"isLeader": "true", "controllerLeaderAddress": "n0:1"}


@pytest.mark.parametrize(
    ("names", "pages"),
    [
        (["s0", "s1", "s2", "s3", "nobody"], [2, 2, 1]),
        (["s0", "s1"], [2]),
        (["s3"], [1]),
    ],
)
def test_sets_when_they_are_many_then_they_are_asked_for_in_pages(
    names: list[str], pages: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An answer about 16,000 sets of ten fits into no frame."""
    monkeypatch.setattr(replicas_info, "NAMES_A_PAGE", 2)
    controller: Driver = driver_of([1, 2, 3, 4])
    asked: list[int] = []

    def answer(call: Call) -> RemotingCommand:
        command = call.command
        if command.code == 1005:
            return command.reply(0, None, LEADER)
        asked.append(len(orjson.loads(command.body)))
        said = controller.ask(command.code, 9, command.body)
        return command.reply(said.code, said.remark, said.ext_fields, said.body)

    (leader, found), _ = drive(replicas_infos(("n0:1",), names), answer)
    assert (leader, asked) == ("n0:1", pages)
    assert {name: len(info.not_in_sync_replicas) for name, info in found.items()} == {
        name: int(name[1:]) + 1 for name in names if name != "nobody"
    }
