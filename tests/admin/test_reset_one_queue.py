"""resetOffsetByTime of one queue, at brokers whose members are told to reset, and at Java's of 5.2."""

from __future__ import annotations

from typing import Any

import pytest

from rmqha.admin.commands.reset_offset_by_time import WholeGroups
from rmqha.client.exchange import Call, NotFound, Refused
from rmqha.remoting import fastjson
from rmqha.remoting.command import RemotingCommand
from tests.admin.driving import Answer, by_code, run
from tests.admin.test_cluster_commands import reply
from tests.admin.test_down_brokers import ONLINE

LINE = "resetOffsetByTime -g G -t T -s now -b a:1 -q 1"
END = 100


def keyed(**values: Any) -> bytes:
    """A table by queues of set a, which stand behind a letter."""
    rows = [
        fastjson.dumps({"brokerName": "a", "queueId": int(key[1:]), "topic": "T"})
        + b":"
        + fastjson.dumps(value)
        for key, value in values.items()
    ]
    return b'{"offsetTable":{' + b",".join(rows) + b"}}"


def ends(count: int) -> bytes:
    """202's body."""
    return keyed(**{f"q{one}": {"minOffset": 0, "maxOffset": END} for one in range(count)})


class Java514:
    """Broker2Client of 5.1.4, with a member online; the group is at 50 in each queue.

    Attributes:
        told: where members were told to go on, by queue.
    """

    def __init__(self, count: int = 4) -> None:
        self.consumed = dict.fromkeys(range(count), 50)
        self.told: list[dict[int, int]] = []

    def answer(self, call: Call) -> RemotingCommand:
        fields = call.command.ext_fields or {}
        match call.command.code:
            case 14:
                return reply(offset=self.consumed[int(fields["queueId"])])(call)
            case 202:
                return reply(0, ends(len(self.consumed)))(call)
        assert call.command.code == 222
        at = {-1: END, 0: 0}.get(int(fields["timestamp"]), 70)
        force = fields["isForce"] == "true"
        table = {
            queue: at if force or at < consumed else consumed
            for queue, consumed in self.consumed.items()
        }
        self.told.append(table)
        return reply(0, keyed(**{f"q{queue}": offset for queue, offset in table.items()}))(call)


@pytest.mark.parametrize("force", ["true", "false"])
def test_reset_when_the_broker_resets_all_queues_then_members_stay_and_it_is_an_error(
    force: str,
) -> None:
    """All were sent to 0, and success was reported."""
    broker = Java514()
    with pytest.raises(WholeGroups, match=r"resets whole groups only .* stop the members"):
        run(f"{LINE} -o 40 -f {force}", broker.answer)
    assert broker.told == [broker.consumed]


@pytest.mark.parametrize("offset", [40, 50])
def test_reset_when_the_topic_has_one_queue_then_the_answer_says_whether_it_was_set(
    offset: int,
) -> None:
    broker = Java514(1)
    line = f"resetOffsetByTime -g G -t T -s now -b a:1 -q 0 -o {offset}"
    if offset == 50:
        report, _ = run(line, broker.answer)
        assert report.data["queues"][0]["offset"] == offset
        return
    with pytest.raises(WholeGroups):
        run(line, broker.answer)


def test_reset_when_the_broker_sets_one_queue_then_it_is_given_where() -> None:
    """Time and force are for brokers that look at nothing else."""
    table = {202: reply(0, ends(2)), 222: reply(0, keyed(q1=40))}
    report, calls = run(f"{LINE} -o 40", by_code(table))
    assert report.data["queues"] == [{"brokerAddr": "a:1", "queueId": 1, "offset": 40}]
    fields = calls[-1].command.ext_fields or {}
    assert {name: fields[name] for name in ("queueId", "offset", "timestamp", "isForce")} == {
        "queueId": "1", "offset": "40", "timestamp": "-1", "isForce": "false",
    }  # fmt: skip


@pytest.mark.parametrize("more", ["-q 99", "-q 1 -o 101", "-q 1 -o 101 -f false"])
def test_reset_when_javas_broker_does_not_have_it_then_it_is_not_asked_to(more: str) -> None:
    """It takes the offset after the end, and small ones of queues that there are not."""
    line = f"resetOffsetByTime -g G -t T -s now -b a:1 {more}"
    with pytest.raises(NotFound):
        run(line, by_code({29: reply(offset=0), 202: reply(0, ends(2))}))


def before_5_2(members: Answer, remark: str = "THe consumer group <G> not exist") -> Answer:
    """A group without an offset in some queue: that is refused before members are looked for."""
    table = {202: reply(0, ends(2)), 222: reply(1, remark=remark), 203: members, 15: reply()}
    return by_code(table)


@pytest.mark.parametrize("members", [reply(206), reply(0, {"connectionSet": []})])
def test_reset_when_a_queue_has_no_offset_yet_and_nobody_is_online_then_it_is_stored(
    members: Answer,
) -> None:
    _, calls = run(f"{LINE} -o 40", before_5_2(members))
    assert [call.command.code for call in calls] == [202, 222, 203, 15]
    assert (calls[-1].command.ext_fields or {})["commitOffset"] == "40"


@pytest.mark.parametrize(
    ("members", "remark"),
    [
        (reply(0, ONLINE), "THe consumer group <G> not exist"),
        (reply(1, remark="busy"), "THe consumer group <G> not exist"),
        (reply(206), "Can not reset offset in slave broker"),
    ],
)
def test_reset_when_a_queue_has_no_offset_and_members_may_be_online_then_it_is_refused(
    members: Answer, remark: str
) -> None:
    """They would commit another one."""
    with pytest.raises(Refused, match=remark):
        run(f"{LINE} -o 40", before_5_2(members, remark))
