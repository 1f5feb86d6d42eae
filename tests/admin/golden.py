"""Answers of the real RocketMQ 5.3.3 and what its mqadmin printed for them."""

from __future__ import annotations

import json
from pathlib import Path

from rmqha.remoting.command import RemotingCommand
from rmqha.remoting.frame import FrameDecoder

_FOLDER = Path(__file__).resolve().parent.parent / "golden" / "5.3.3"
PRINTED: dict[str, str] = json.loads((_FOLDER / "mqadmin.json").read_text())

CONTROLLER = "127.0.0.1:19878"
NAME_SERVER = "127.0.0.1:19876"


def _load() -> dict[tuple[str, int], list[RemotingCommand]]:
    found: dict[tuple[str, int], list[RemotingCommand]] = {}
    for line in (_FOLDER / "remoting.jsonl").read_text().splitlines():
        frame = json.loads(line)
        if frame["response"] and frame["header"]["code"] == 0:
            (answer,) = FrameDecoder().feed(bytes.fromhex(frame["hex"]))
            key = (f"127.0.0.1:{frame['port']}", frame["request_code"])
            found.setdefault(key, []).append(answer)
    return found


ANSWERS = _load()
"""Successful answers by address and request code, in order of time."""


def last_answer(address: str, code: int) -> RemotingCommand:
    """The answer that the captured mqadmin output was made from."""
    return ANSWERS[address, code][-1]


def printed(prefix: str) -> str:
    """What the Java tool printed for the command line that starts so."""
    (text,) = [text for line, text in PRINTED.items() if line.startswith(prefix)]
    return text
