"""Answers of controllers that succeed and say something else than they have to: an error in words."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from rmqha.base.errors import RemoteProtocolError
from rmqha.client.exchange import Call
from rmqha.remoting import fastjson
from rmqha.remoting.command import RemotingCommand
from tests.admin.driving import run
from tests.admin.test_election_commands import Controller

JUNK: tuple[Any, ...] = (None, -1, 2**70, "", "x", [], {}, [None], 1.5)
VIEW = {
    "nodeId": "n0", "role": "leader", "term": 3, "leaderId": "n0", "commitIndex": 9,
    "appliedIndex": 9, "members": [{"id": "n0", "address": "a:1", "votes": True}],
    "brokerSets": {"b": {"masterBrokerId": 1, "masterEpoch": 1, "syncStateSet": [1],
                         "syncStateSetEpoch": 1}},
}  # fmt: skip


def spoilt(value: Any) -> Iterator[Any]:
    """The value with one part of it replaced, or gone, in every way."""
    yield from JUNK
    if isinstance(value, dict):
        for key, part in value.items():
            yield {name: one for name, one in value.items() if name != key}
            for other in spoilt(part):
                yield {**value, key: other}
    elif isinstance(value, list):
        for at, part in enumerate(value):
            for other in spoilt(part):
                yield [*value[:at], other, *value[at + 1 :]]


def end_in_words(line: str, code: int, body: bytes, answer: Any) -> None:
    """Run a command for every spoilt answer to one question."""
    for value in [*spoilt(fastjson.loads(body)), b"", b"{", b"\xff"]:
        raw = value if isinstance(value, bytes) else json.dumps(value).encode()

        def spoiling(call: Call, raw: bytes = raw) -> RemotingCommand:
            if call.command.code == code:
                return call.command.reply(0, body=raw)
            found: RemotingCommand = answer(call)
            return found

        try:
            report, _ = run(line, spoiling)
        except RemoteProtocolError:
            continue
        assert report.plain


@pytest.mark.costly
@pytest.mark.parametrize(
    ("line", "code", "fields"),
    [
        ("electionHistory -a a:1", 60011, {"maxNums": 1}),
        ("electMaster -a a:1 -bn broker-a -b 2 -c DefaultCluster --dry-run", 60012,
         {"clusterName": "DefaultCluster", "brokerName": "broker-a", "brokerId": 2,
          "designateElect": "true"}),
    ],
)  # fmt: skip
def test_elections_when_an_answer_is_malformed_then_the_error_says_so(
    line: str, code: int, fields: dict[str, Any]
) -> None:
    controller = Controller()
    body = controller.driver.ask(code, 99, **fields).body
    assert len(body) > 100

    def answer(call: Call) -> RemotingCommand:
        return controller(call) if call.command.code != 1006 else call.command.reply(1)

    end_in_words(line, code, body, answer)


def test_views_when_one_is_malformed_then_the_error_says_so() -> None:
    def answer(call: Call) -> RemotingCommand:
        return call.command.reply(0, None, {})

    end_in_words("controllerViews -a a:1", 60022, fastjson.dumps(VIEW), answer)


def test_views_when_one_is_malformed_then_the_others_are_compared() -> None:
    """It is a failure of that node, by name."""

    def answer(call: Call) -> RemotingCommand:
        if call.command.code == 1005:
            return call.command.reply(0, None, {})
        body = VIEW if call.address == "a:1" else {**VIEW, "nodeId": "n1", "members": 7}
        return call.command.reply(0, body=fastjson.dumps(body))

    report, _ = run("controllerViews -a a:1;b:1", answer)
    assert [*report.data["views"]] == ["n0"]
    (failure,) = report.failures
    assert "the answer of b:1 cannot be understood" in str(failure)
