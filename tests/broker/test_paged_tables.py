"""Tables that masters of Java's give in pages: a slave has the whole one, or none."""

from __future__ import annotations

import json
from collections.abc import Mapping

import pytest

from rmqha.base.errors import RequestTimeout
from rmqha.broker.sync.aio.master_questions import MasterQuestions
from rmqha.broker.sync.aio.tables import GROUPS_PAGED, TOPICS_PAGED, _groups, _topics
from rmqha.remoting.codes import RequestCode
from rmqha.remoting.command import RemotingCommand
from rmqha.runtime.logs import Logger

MASTER = "10.0.0.1:10911"
NAMES = ("A", "B", "C")


class Client:
    """Answers as a broker of Java's.

    Attributes:
        page: how many topics it gives at a time where it is asked for a page; None for a release
            that knows no pages.
        asked: the fields of each request.
    """

    def __init__(self, page: int | None) -> None:
        self.page = page
        self.asked: list[Mapping[str, str] | None] = []
        self.fails = False

    async def invoke(self, address: str, command: RemotingCommand) -> RemotingCommand:
        """Answer 21 and 201."""
        self.asked.append(command.ext_fields)
        if self.fails:
            raise RequestTimeout("no answer")
        assert address == "10.0.0.1:10909"
        fields = command.ext_fields or {}
        is_topics = command.code == RequestCode.GET_ALL_TOPIC_CONFIG
        what, more = ("topic", "topicSeq") if is_topics else ("group", "groupSeq")
        first = self.page is not None and fields.get(more) == "0"
        names = NAMES[: self.page] if first else NAMES
        member = {"topic": "topicName", "group": "groupName"}[what]
        table = {name: {member: name} for name in names}
        key = {"topic": "topicConfigTable", "group": "subscriptionGroupTable"}[what]
        version = {"counter": 1, "stateVersion": 0, "timestamp": 1}
        body = json.dumps({key: table, "dataVersion": version}).encode()
        said = {} if self.page is None else {f"total{what.capitalize()}Num": str(len(NAMES))}
        answer = command.reply(0, None, said)
        answer.body = body
        return answer


def questions(client: Client) -> MasterQuestions:
    """A slave's."""
    return MasterQuestions(client, Logger(), lambda: MASTER)  # type: ignore[arg-type]  # a client in its place


@pytest.mark.parametrize(("page", "times"), [(None, 1), (3, 1), (2_000, 1), (2, 2)])
@pytest.mark.parametrize("what", ["topics", "groups"])
async def test_table_when_the_master_gives_pages_then_it_is_whole(
    page: int | None, times: int, what: str
) -> None:
    """Brokers of 5.5 log two errors with their stacks for who does not ask for a page; what a page
    lacks would be taken for deleted."""
    client = Client(page)
    ask = questions(client).ask
    if what == "topics":
        topics = await ask(
            MASTER, RequestCode.GET_ALL_TOPIC_CONFIG, _topics, {"x": "y"}, TOPICS_PAGED
        )
        assert topics is not None
        assert sorted(topics.table.items) == [*NAMES]
    else:
        code = RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG
        groups = await ask(MASTER, code, _groups, {"x": "y"}, GROUPS_PAGED)
        assert groups is not None
        assert sorted(groups.table.items) == [*NAMES]
    paged = {
        f"{what[:-1]}Seq": "0", f"max{what[:-1].capitalize()}Num": "2147483647", "dataVersion": "",
    }  # fmt: skip
    assert client.asked == [{"x": "y", **paged}, {"x": "y"}][:times]


async def test_table_when_nobody_answers_then_it_is_asked_for_once() -> None:
    """The next look comes soon enough."""
    client = Client(2)
    client.fails = True
    code = RequestCode.GET_ALL_TOPIC_CONFIG
    assert await questions(client).ask(MASTER, code, _topics, None, TOPICS_PAGED) is None
    assert len(client.asked) == 1
