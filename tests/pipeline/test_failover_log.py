"""Lines of logs that tell of failovers: without Spark."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rmqha.base.errors import ConfigInvalid
from rmqha.pipeline.histories.failover_log import LINE_BYTES_MAX, Mark, check_log, read_log

ONE, TWO, THREE = "127.0.0.1:35191", "127.0.0.1:50607", "127.0.0.1:50371"
Line = dict[str, Any]


def at(ms: int, event: str, **facts: Any) -> Line:
    """A line of the second 22:57:24 and ``ms``."""
    second, rest = divmod(ms, 1000)
    return {**facts, "event": event, "timestamp": f"2026-11-21T22:57:{24 + second}.{rest:03d}Z"}


ELECTED: Line = {
    "broker_name": "broker-a", "old_master_broker_id": 1, "new_master_broker_id": 3,
    "master_address": THREE, "old_master_epoch": 1, "master_epoch": 2,
    "old_sync_state_set": [1, 2, 3], "trigger": "controller", "reason": "master_inactive",
    "waited_ms": 0, "commit_ms": 4, "log_index": 8, "term": 1,
}  # fmt: skip
NOTIFIED: Line = {
    "masterBrokerId": "3", "masterAddress": THREE, "masterEpoch": "2", "syncStateSetEpoch": "4"
}  # fmt: skip
LOST: Line = {"cluster": "c", "broker_name": "broker-a", "broker_id": 1, "was_master": True}
GROWN: Line = {
    "broker_name": "broker-a", "old_sync_state_set": [3], "new_sync_state_set": [2, 3],
    "master_epoch": 2,
}  # fmt: skip
CONTROLLER = [
    at(1, "broker_inactive", **LOST),
    at(5, "master_elected", **ELECTED),
    at(6, "broker_notified", address=THREE, **NOTIFIED),
    at(42, "master_route_seen", broker_name="broker-a", master_epoch=2, waited_ms=37),
    at(43, "broker_notified", address=TWO, **NOTIFIED),
    at(203, "sync_state_set_changed", **GROWN),
]
MASTER = [
    at(0, "ha_master_lost", address="127.0.0.1:42397", reason="closed by the master"),
    at(6, "role_assigned", master_id=3, master=THREE, epoch=2),
    at(23, "role_taken_up", role="master", epoch=2),
    at(26, "registered", name_server="127.0.0.1:1", broker_id=0),
]
SLAVE = [
    at(43, "role_assigned", master_id=3, master=THREE, epoch=2),
    at(44, "role_taken_up", role="slave", epoch=2),
    at(193, "ha_transfer_started", address="127.0.0.1:52557", offset=47602),
]
RETURNED = [
    at(866, "store_opened", clean=False, max_offset=47602),
    at(1205, "role_assigned", master_id=3, master=THREE, epoch=2),
    at(1206, "role_taken_up", role="slave", epoch=2),
    at(1349, "ha_transfer_started", address="127.0.0.1:52557", offset=47602),
]
NAME_SERVER = [
    at(25, "broker_role_changed", broker="broker-a", broker_id=0, address=THREE, epoch=2),
    at(1213, "broker_registered", broker="broker-a", broker_id=1, address=ONE, epoch=2),
]


def write_log(path: Path, lines: list[Line]) -> Path:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def marks(path: Path) -> list[Mark]:
    return list(read_log(str(path), "log"))


def seen(path: Path) -> list[tuple[str | None, int | None, int]]:
    """Mark, epoch, milliseconds of the second."""
    return [(one.mark, one.epoch, (one.ms or 0) % 10_000 - 4000) for one in marks(path)]


def test_controllers_log_when_read_then_each_stage_is_a_mark(tmp_path: Path) -> None:
    """With the set, the epoch and the address that join them."""
    path = write_log(tmp_path / "log", CONTROLLER)
    assert seen(path) == [
        ("lost", None, 1), ("elected", 2, 5), ("notified", 2, 6), ("routed", 2, 42),
        ("notified", 2, 43), ("joined", 2, 203),
    ]  # fmt: skip
    lost, elected, notified, *_ = marks(path)
    assert (lost.broker_set, lost.broker_id) == ("broker-a", 1)
    assert (elected.broker_id, elected.master_address) == (3, THREE)
    assert json.loads(elected.detail or "") == {
        "oldMaster": 1, "oldEpoch": 1, "trigger": "controller", "reason": "master_inactive",
        "unclean": False, "waitedMs": 0, "commitMs": 4, "logIndex": 8,
    }  # fmt: skip
    assert (notified.address, notified.master_address) == (THREE, THREE)


def test_brokers_log_when_read_then_its_lines_belong_to_the_role_it_was_given(
    tmp_path: Path,
) -> None:
    """Its own lines name no set; what stands before any role belongs to nothing."""
    path = write_log(tmp_path / "log", [*SLAVE[1:], *MASTER, *RETURNED])
    assert seen(path) == [("active", 2, 23), ("registered", 2, 26), ("connected", 2, 1349)]
    assert {one.master_address for one in marks(path)} == {THREE}
    assert [one.fresh for one in marks(path)] == [False, False, True]


def test_name_servers_log_when_read_then_only_masters_count(tmp_path: Path) -> None:
    """A slave's registration is no stage."""
    assert seen(write_log(tmp_path / "log", NAME_SERVER)) == [("listed", 2, 25)]


def test_sync_state_set_when_it_shrinks_or_another_broker_is_lost_then_no_stage(
    tmp_path: Path,
) -> None:
    """Nor what a controller says of the master as such."""
    lines = [
        at(1, "broker_inactive", **{**LOST, "was_master": False}),
        at(2, "sync_state_set_changed", **{**GROWN, "new_sync_state_set": []}),
    ]
    assert seen(write_log(tmp_path / "log", lines)) == []


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b'{"event": "master_elected", "timest\n', "no JSON object"),
        (b"Traceback (most recent call last):\n", "no line of the log: Traceback"),
        (b"\xff\xfe\x00\n", "no line of the log"),
        (b'{"event":"x","timestamp":"yesterday"}\n', "no JSON object with event and timestamp"),
        (b'{"event":"x","timestamp":"2026-11-21T22:57:24.001"}\n', "no JSON object with"),
        (json.dumps(at(1, "master_elected", broker_name="b")).encode() + b"\n", "without"),
        (json.dumps(at(1, "role_assigned", master="m", epoch=[])).encode() + b"\n", "without"),
        (b"{" * (LINE_BYTES_MAX + 9) + b"\n", "no JSON object"),
    ],
)
def test_line_when_damaged_then_told_and_the_others_count(
    tmp_path: Path, line: bytes, reason: str
) -> None:
    """Missing fields, other times, other programs' lines."""
    path = write_log(tmp_path / "log", CONTROLLER)
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([lines[0], line, *lines[1:], b"\n"]))
    found = marks(path)
    bad = [one for one in found if one.corrupt]
    assert bad
    assert reason in (bad[0].corrupt or "")
    assert bad[0].line == 2
    assert len(found) - len(bad) == len(CONTROLLER)


def test_lines_when_the_log_left_some_out_then_told(tmp_path: Path) -> None:
    """A stage may be among them."""
    path = write_log(tmp_path / "log", [{**CONTROLLER[0], "lines_left_out": 7}])
    assert [(one.mark, one.detail) for one in marks(path)] == [
        ("left_out", "7 lines broker_inactive"), ("lost", None),
    ]  # fmt: skip


@pytest.mark.parametrize("content", [None, b"", b"not JSON\n", b'{"op":"history","version":1}\n'])
def test_file_when_no_log_then_said(tmp_path: Path, content: bytes | None) -> None:
    """Before Spark is started."""
    path = tmp_path / "log"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ConfigInvalid):
        check_log(str(path))


def test_brokers_log_when_its_store_was_opened_anew_then_its_role_of_before_is_over(
    tmp_path: Path,
) -> None:
    """Until the controller gives it one again: it was no second registration of that reign."""
    lines = [*MASTER, RETURNED[0], at(900, "registered", name_server="127.0.0.1:1", broker_id=0)]
    path = write_log(tmp_path / "log", lines)
    assert seen(path) == [("active", 2, 23), ("registered", 2, 26)]
