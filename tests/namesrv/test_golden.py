"""A recorded session of real 5.3.3 brokers with a real name server, played to ours."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from rmqha.remoting.command import RemotingCommand
from rmqha.remoting.frame import FrameDecoder
from tests.namesrv.node import Node

GOLDEN = Path(__file__).resolve().parent.parent / "golden" / "5.3.3" / "namesrv.jsonl"


def frames() -> list[dict[str, Any]]:
    """What went to and from the name server, in order."""
    return [json.loads(line) for line in GOLDEN.read_text().splitlines()]


def command_of(frame: dict[str, Any]) -> RemotingCommand:
    """The one command of a captured frame."""
    (command,) = FrameDecoder().feed(bytes.fromhex(frame["hex"]))
    return command


def test_answers_when_replaying_a_recorded_java_session_then_equal_to_the_byte() -> None:
    """Registrations of a controller-mode pair through a failover, 105 and 106 in between."""
    node, waiting = Node(), {}
    counts: dict[int, int] = {}
    played = frames()
    last = {frame["conn"]: index for index, frame in enumerate(played)}
    for index, frame in enumerate(played):
        command = command_of(frame)
        key = frame["conn"], command.opaque
        if frame["dir"] == "c2s":
            waiting[key] = node.ask(
                command.code, command.ext_fields, command.body, version=command.version,
                connection=frame["conn"],
            )  # fmt: skip
        else:
            answer = waiting.pop(key)
            assert command.code == answer.code, frame
            assert (command.ext_fields or {}) == (answer.ext_fields or {}), frame
            assert command.body == answer.body, frame
            counts[frame["request_code"]] = counts.get(frame["request_code"], 0) + 1
        if index == last[frame["conn"]]:
            node.close(frame["conn"])
    assert counts[103] >= 10
    assert counts[105] >= 1
    assert counts[106] >= 10
