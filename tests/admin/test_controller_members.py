"""mqadmin and the controllers' own group: what is asked of whom, and what views come to."""

from __future__ import annotations

from typing import Any

import pytest

from rmqha.admin.commands import controller_members, controller_views
from rmqha.admin.report import Report
from rmqha.client.exchange import Call, Refused, Unreachable
from rmqha.remoting import fastjson
from rmqha.remoting.command import RemotingCommand
from tests.admin.driving import Answer, drive

NODES = ("n0", "n1", "n2")


def view(node: str, *, applied: int = 9, role: str = "follower", **sets: int) -> dict[str, Any]:
    """What a node believes: sets by their master epoch."""
    return {
        "nodeId": node, "role": role, "term": 3, "leaderId": "n0", "appliedIndex": applied,
        "commitIndex": applied,
        "members": [{"id": one, "address": f"{one}:1", "votes": True} for one in NODES],
        "brokerSets": {name: {"masterBrokerId": 1, "masterEpoch": epoch, "syncStateSet": [1]}
                       for name, epoch in sets.items()},
    }  # fmt: skip


def answered(views: dict[str, Any]) -> Answer:
    """Each node by its own view, or by the next of several; who has none is down."""

    def answer(call: Call) -> RemotingCommand:
        if call.command.code == 1005:
            fields = {"isLeader": "true" if call.address == "n0:1" else "false",
                      "controllerLeaderAddress": "n0:1", "peers": views.get("peers", "")}  # fmt: skip
            return call.command.reply(0, None, fields)
        found = views.get(call.address.partition(":")[0])
        if isinstance(found, list):
            found = found.pop(0) if len(found) > 1 else found[0]
        if found is None:
            raise Unreachable(f"{call.address}: nobody")
        if isinstance(found, tuple):
            return call.command.reply(*found)
        return call.command.reply(0, body=fastjson.dumps(found))

    return answer


def views_of(given: dict[str, Any]) -> tuple[Report, list[Call]]:
    return drive(controller_views.run(("n1:1",)), answered(given))


def test_views_when_one_address_is_given_then_all_members_are_asked() -> None:
    report, calls = views_of({node: view(node, a=2) for node in NODES})
    assert {call.address for call in calls} == {"n0:1", "n1:1", "n2:1"}
    assert report.data["brokerSets"] == {"a": controller_views.MATCHING}
    assert report.plain == "a\tMATCHING\n"


def test_views_when_a_store_was_lost_then_its_member_is_not_said_to_vote() -> None:
    lost = {**view("n2", a=2), "mayVote": False, "standing": "recovering"}
    report, _ = views_of({"n0": view("n0", a=2), "n1": view("n1", a=2), "n2": lost})
    assert [row[6] for row in report.tables[0].rows] == ["yes", "yes", "no (recovering)"]


def test_views_when_a_node_is_behind_then_it_is_looked_at_again() -> None:
    """It applies the same log a moment later; that is no divergence."""
    late = [view("n2", applied=8, a=1), view("n2", a=2)]
    report, _ = views_of({"n0": view("n0", a=2), "n1": view("n1", a=2), "n2": late})
    assert report.data["brokerSets"] == {"a": controller_views.MATCHING}


def test_views_when_a_node_keeps_another_state_then_divergent() -> None:
    report, _ = views_of(
        {"n0": view("n0", a=2, b=1), "n1": view("n1", a=2, b=1), "n2": view("n2", a=7)}
    )
    assert report.data["brokerSets"] == {"a": "DIVERGENT", "b": "DIVERGENT"}
    rows = {row[-1]: row[3] for row in report.tables[1].rows if row[0] == "a"}
    assert rows == {"n0,n1": 2, "n2": 7}


def test_views_when_fewer_than_a_majority_answer_then_unavailable() -> None:
    """What one of three believes may be old."""
    report, _ = views_of({"n1": view("n1", a=2)})
    assert report.data["brokerSets"] == {"a": controller_views.UNAVAILABLE}
    assert len(report.failures) == 2
    assert [row[2] for row in report.tables[0].rows] == ["UNAVAILABLE", "follower", "UNAVAILABLE"]


def test_views_when_a_removed_node_is_asked_then_it_is_not_counted() -> None:
    """It keeps what it knew when it left."""
    gone = view("n9", role="removed", a=1)
    given = {"n9": gone, **{node: view(node, a=2) for node in NODES}}
    report, _ = drive(controller_views.run(("n9:1",)), answered(given))
    assert report.data["brokerSets"] == {"a": controller_views.MATCHING}


def test_views_when_the_files_have_other_addresses_than_the_log_then_those_are_asked() -> None:
    """After a change of addresses the log's are those of the last change of the group."""
    members = [{"id": one, "address": f"old-{one}:1", "votes": True} for one in NODES]
    given = {node: {**view(node, a=2), "members": members} for node in NODES}
    where = {"peers": "".join(f"{node}:{node}:1;" for node in NODES)}
    report, calls = views_of({**given, **where})
    assert {call.address for call in calls} == {"n0:1", "n1:1", "n2:1"}
    assert (report.failures, report.data["brokerSets"]) == ((), {"a": controller_views.MATCHING})
    assert [row[1] for row in report.tables[0].rows] == ["n0:1", "n1:1", "n2:1"]
    assert [one["address"] for one in report.data["members"]] == ["n0:1", "n1:1", "n2:1"]


def test_views_when_a_node_names_ids_alone_then_the_log_has_the_addresses() -> None:
    """1005 of a JRaft group, or of an older release, has no addresses by id."""
    given = {node: view(node, a=2) for node in NODES}
    report, calls = views_of({**given, "peers": "n0;n1;n2;"})
    assert {call.address for call in calls} == {"n0:1", "n1:1", "n2:1"}
    assert report.failures == ()


def test_views_when_no_set_is_known_then_the_text_says_so() -> None:
    """Nothing at all looked like an answer that was lost."""
    report, _ = views_of({node: view(node) for node in NODES})
    assert report.plain == "no broker set is known\n"


def test_views_when_nobody_answers_then_unreachable() -> None:
    with pytest.raises(Unreachable):
        views_of({})


def test_addition_when_it_is_done_then_the_leader_was_asked_with_time_to_wait() -> None:
    given = {"n0": [view("n0"), (0, None)], "n1": view("n1")}
    report, calls = drive(controller_members.add(("n1:1",), "n9", "n9:1", 30), answered(given))
    last = calls[-1]
    assert (last.address, last.command.code, last.timeout_ms) == ("n0:1", 60020, 33_000)
    assert last.command.ext_fields == {
        "action": "add", "nodeId": "n9", "address": "n9:1", "waitMs": "30000",
    }  # fmt: skip
    assert report.data["done"] == "joined"
    assert report.failures == ()


@pytest.mark.parametrize(("wait_s", "failures"), [(3, ["n9 has no vote after 3 s"]), (0, [])])
def test_addition_when_there_is_no_vote_then_only_who_waited_is_told_of_a_failure(
    wait_s: int, failures: list[str]
) -> None:
    """Else ``addController && removeController`` goes on with a node that never came."""
    given = {"n0": [view("n0"), (0, "it joins, and votes when it has caught up")]}
    exchange = controller_members.add(("n0:1",), "n9", "n9:1", wait_s)
    report, _ = drive(exchange, answered(given))
    assert report.data["done"] == "joins"
    assert report.data["remark"] == "it joins, and votes when it has caught up"
    assert [str(failure) for failure in report.failures] == failures


def test_removal_when_it_is_refused_then_the_reason_is_told() -> None:
    given = {"n0": [view("n0"), (1, "n1 is the last member that votes")]}
    with pytest.raises(Refused, match="last member"):
        drive(controller_members.remove(("n0:1",), "n1", 5), answered(given))


def test_removal_when_there_is_no_such_member_then_nothing_may_be_stopped() -> None:
    """Whoever mistypes an id would stop a voter."""
    given = {"n0": [view("n0"), (0, "n9 is no member: the group is n0, n1")]}
    report, _ = drive(controller_members.remove(("n0:1",), "n9", 5), answered(given))
    assert report.data["done"] == "nothing to do"
    assert report.data["remark"] == "n9 is no member: the group is n0, n1"
    assert "stopped" not in report.plain
    assert [str(failure) for failure in report.failures] == [report.data["remark"]]


def test_change_when_the_leader_has_changed_meanwhile_then_the_next_has_the_same_time() -> None:
    """Else it is given up after three seconds, while the change goes on."""
    given = {"n0": [view("n0"), (2007, "not here"), view("n0"), (0, None)]}
    report, calls = drive(controller_members.remove(("n0:1",), "n1", 5), answered(given))
    asked = [call.timeout_ms for call in calls if call.command.code == 60020]
    assert asked == [8_000, 8_000]
    assert report.data["done"] == "removed"


def test_removal_when_the_old_leader_did_it_and_told_nobody_then_it_is_done() -> None:
    """The next leader knows no such member, but there was one a moment ago."""
    after = {**view("n0"), "members": view("n0")["members"][::2]}
    given = {"n0": [view("n0"), (2007, "not here"), after, (0, "n1 is no member")]}
    report, _ = drive(controller_members.remove(("n0:1",), "n1", 5), answered(given))
    assert report.data["done"] == "removed"
    assert report.failures == ()


def test_change_when_one_leader_after_the_other_is_lost_then_refused() -> None:
    given = {"n0": [view("n0"), (2007, "not here")] * 3}
    with pytest.raises(Refused, match="not here"):
        drive(controller_members.remove(("n0:1",), "n1", 5), answered(given))


def test_transfer_when_no_node_is_named_then_any() -> None:
    report, calls = drive(controller_members.transfer(("n0:1",), None), answered({"n0": (0, None)}))
    assert calls[-1].command.code == 60021
    assert "nodeId" not in (calls[-1].command.ext_fields or {})
    assert report.data["nodeId"] == "any"
