"""What goes onto the page: figures that brokers tell, elections, and what is not known."""

from __future__ import annotations

import pytest

from rmqha.base.errors import RemoteProtocolError
from rmqha.base.machine import Note
from rmqha.controller.metadata.elections import ELECTIONS_KEPT, Elections
from rmqha.controller.metadata.status import BrokerSetStatus, ReplicaStatus, Status
from rmqha.controller.settings import load_config
from rmqha.controller.status_document import NodeFacts, addresses, document
from rmqha.remoting.broker_figures import UNKNOWN, Figures, read_figures
from tests.controller.metadata.driving import whole

FACTS = {
    "broker_name": "b", "old_master_broker_id": 1, "new_master_broker_id": 2, "master_epoch": 4,
    "trigger": "controller", "reason": "master_inactive",
}  # fmt: skip


def test_figures_when_a_broker_tells_then_the_newest_rate_counts() -> None:
    """Java writes three rates: ten seconds, a minute, ten minutes."""
    body = b'{"table":{"putTps":"12.5 7 3","getTransferredTps":"4 2 1","commitLogMaxOffset":"99"}}'
    assert read_figures(body) == Figures(12.5, 4.0, 99)


@pytest.mark.parametrize(
    "body",
    [
        b"{}", b"[]", b"null", b'{"table":5}', b'{"table":{}}',
        b'{"table":{"putTps":"","getTransferredTps":"x","commitLogMaxOffset":"nan"}}',
        b'{"table":{"putTps":"inf","commitLogMaxOffset":"-inf"}}',
    ],
)  # fmt: skip
def test_figures_when_odd_then_unknown(body: bytes) -> None:
    """Whatever a broker says, the page shows a dash at worst."""
    assert read_figures(body) == UNKNOWN


def test_figures_when_no_json_then_an_error() -> None:
    """Whoever asked keeps what was heard before."""
    with pytest.raises(RemoteProtocolError):
        read_figures(b"{")


def test_elections_when_noted_then_newest_first_and_bounded() -> None:
    """Other notes are none; a replayed one has no time; a loss has no new master."""
    elections = Elections()
    elections.noted(Note("broker_active", facts={"broker_name": "b"}), 5)
    assert elections.newest() == ()
    elections.noted(Note("master_elected", facts={**FACTS, "commit_ms": 3}), None)
    lost = {**FACTS, "new_master_broker_id": None, "master_epoch": 5}
    elections.noted(Note("master_lost", "error", lost), 7)
    newest, older = elections.newest()
    assert (newest.result, newest.new_master, newest.time_ms) == ("no master", None, 7)
    assert newest.commit_ms is None
    assert (older.result, older.reason) == ("elected", "controller, master_inactive")
    assert (older.time_ms, older.commit_ms) == (None, 3)
    for number in range(ELECTIONS_KEPT + 5):
        elections.noted(Note("master_elected", facts={**FACTS, "master_epoch": number}), number)
    assert len(elections.newest()) == ELECTIONS_KEPT
    assert elections.newest()[0].master_epoch == ELECTIONS_KEPT + 4


def replica(broker_id: int, *, alive: bool, max_offset: int | None) -> ReplicaStatus:
    """One replica as the controller's machine tells it."""
    return {
        "broker_id": broker_id, "address": f"h:{broker_id}", "role": "slave", "in_sync": alive,
        "alive": alive, "heard_ms_ago": 5, "epoch": -1, "max_offset": max_offset,
        "confirm_offset": -1, "priority": 1,
    }  # fmt: skip


def test_controller_when_shown_then_the_furthest_log_is_the_measure_and_the_dead_have_no_rates(
) -> None:  # fmt: skip
    """-1 in a heartbeat is "not known"; of two stale positions the larger one counts."""
    replicas = [
        replica(1, alive=True, max_offset=100),
        replica(2, alive=False, max_offset=40),
        replica(3, alive=True, max_offset=-1),
    ]
    broker_set: BrokerSetStatus = {
        "cluster": "c", "broker_name": "b", "master_broker_id": None, "master_epoch": 2,
        "sync_state_set_epoch": 3, "sync_state_set": [1], "active_brokers": 2,
        "replicas": replicas,
    }  # fmt: skip
    status: Status = {
        "is_leader": True, "term": 1, "applied_index": 9, "work_queued": 0,
        "broker_sets": [broker_set], "elections": [],
    }  # fmt: skip
    assert list(addresses(status)) == ["h:1", "h:3"]
    config = load_config(
        {
            "controllerDLegerGroup": "g",
            "controllerDLegerPeers": "n0-127.0.0.1:1;n1-127.0.0.1:2",
            "controllerDLegerSelfId": "n1",
        },
        home="",
        user_home="/home/u",
    )
    figures = {"h:1": Figures(5.0, 6.0, 120), "h:2": Figures(1.0, 1.0, 30)}
    facts = NodeFacts("leader", 1, "n0", 9, "v", 10, 1, config.peers)
    shown = whole(document(config, facts, status, (), figures, {"127.0.0.1:1": "0.0.0.0:80"}))
    assert shown.node.troubles == ()
    lame = facts._replace(no_space=True, may_vote=False)
    told = whole(document(config, lame, status, (), figures, {})).node.troubles
    assert [(one.level, one.key) for one in told] == [("bad", "own/disk"), ("warn", "own/vote")]
    (view,) = shown.broker_sets
    assert [one.max_offset for one in view.replicas] == [120, 40, None]
    assert [one.gap_bytes for one in view.replicas] == [0, 80, None]
    assert [one.put_tps for one in view.replicas] == [5.0, None, None]
    assert [one.epoch for one in view.replicas] == [None, None, None]
    assert [one.page for one in shown.controllers] == ["http://127.0.0.1:80/", None]
    assert [(one.id, one.leads, one.here) for one in shown.controllers] == [
        ("n0", True, False), ("n1", False, True),
    ]  # fmt: skip
