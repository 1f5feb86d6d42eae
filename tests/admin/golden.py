"""Answers of the real RocketMQ 5.3.3 and what its mqadmin printed for them."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import NamedTuple

from rmqha.remoting.command import FLAG_RESPONSE, RemotingCommand
from rmqha.remoting.frame import FrameDecoder

_FOLDER = Path(__file__).resolve().parent.parent / "golden" / "5.3.3"
PRINTED: dict[str, str] = json.loads((_FOLDER / "mqadmin.json").read_text())

CONTROLLER = "127.0.0.1:19878"
NAME_SERVER = "127.0.0.1:19876"


class Captured(NamedTuple):
    """One command of the real mqadmin, with the answers that it is made from.

    Attributes:
        line: its words, the name first.
        printed: what the Java tool printed.
        now_ms: when.
        answers: address, request code and answer of each request, in order.
    """

    line: list[str]
    printed: str
    now_ms: int
    answers: list[tuple[str, int, RemotingCommand]]


def _load_cluster() -> list[Captured]:
    found = []
    for text in (_FOLDER / "mqadmin_cluster.jsonl").read_text().splitlines():
        one = json.loads(text)
        answers = [
            (
                answer["address"],
                answer["request"],
                RemotingCommand(
                    answer["code"], flag=FLAG_RESPONSE, remark=answer["remark"],
                    ext_fields=answer["ext"], body=base64.b64decode(answer["body"]),
                ),
            )
            for answer in one["answers"]
        ]  # fmt: skip
        found.append(Captured(one["line"], one["printed"], one["here"], answers))
    return found


def _load() -> dict[tuple[str, int], list[RemotingCommand]]:
    found: dict[tuple[str, int], list[RemotingCommand]] = {}
    for line in (_FOLDER / "remoting.jsonl").read_text().splitlines():
        frame = json.loads(line)
        if frame["response"] and frame["header"]["code"] == 0:
            (answer,) = FrameDecoder().feed(bytes.fromhex(frame["hex"]))
            key = (f"127.0.0.1:{frame['port']}", frame["request_code"])
            found.setdefault(key, []).append(answer)
    return found


CLUSTER = _load_cluster()
"""The commands of a cluster, in order of time."""

ANSWERS = _load()
"""Successful answers by address and request code, in order of time."""


def last_answer(address: str, code: int) -> RemotingCommand:
    """The answer that the captured mqadmin output was made from."""
    return ANSWERS[address, code][-1]


def printed(prefix: str) -> str:
    """What the Java tool printed for the command line that starts so."""
    (text,) = [text for line, text in PRINTED.items() if line.startswith(prefix)]
    return text
