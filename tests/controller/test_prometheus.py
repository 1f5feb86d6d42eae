"""Each series of a controller shows its own fact: all are given another figure, and read back."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from rmqha.cli.mqcontroller import controller_collector
from rmqha.controller.aio.metrics import ControllerMetrics
from rmqha.controller.aio.prometheus import Collector
from rmqha.controller.metadata.status import Status
from rmqha.controller.probing import ProbeCounts
from rmqha.controller.settings import load_config


def status(*, is_leader: bool = True) -> Status:
    """Of two sets: one with a master, whose elections were counted, and one without."""
    led = {"cluster": "C", "broker_name": "a", "active_brokers": 2, "master_broker_id": 1}
    lost = {"cluster": "C", "broker_name": "b", "active_brokers": 0, "master_broker_id": None}
    counted = {"cluster": "C", "broker_set": "a", "election_result": "new_master_elected"}
    return cast(
        "Status",
        {
            "is_leader": is_leader,
            "broker_sets": [led, lost],
            "elections": [{**counted, "count": 3}],
        },
    )


def metrics() -> ControllerMetrics:
    """All figures different."""
    one = ControllerMetrics()
    one.role = "leader"
    one.leader_changes, one.may_vote, one.members, one.voters, one.unproven = 11, 12, 13, 14, 15
    one.election_timeout_ms, one.no_space, one.appends_failed = 16, 17, 18
    one.probes = ProbeCounts(sent=19, unanswered=21, elections=22, held=23)
    for elapsed_ms in (24, 25):
        one.appended(elapsed_ms)
    one.latency(1005, 26)
    one.count(1005)
    return one


def shown(collector: Collector) -> dict[str, float]:
    """By name, and by the labels of sets: the samples but for buckets."""
    found: dict[str, float] = {}
    for family in collector.collect():
        for sample in family.samples:
            if sample.name.endswith("_bucket"):
                continue
            own = (v for k, v in sample.labels.items() if k not in ("peer_id", "request_type"))
            found["/".join([sample.name, *own])] = sample.value
    return found


FIGURES = {
    "role": 3,
    "rmqha_raft_leader_changes_total": 11,
    "rmqha_raft_voter": 12,
    "rmqha_raft_members": 13,
    "rmqha_raft_voters": 14,
    "rmqha_raft_unproven_peers_total": 15,
    "rmqha_raft_election_timeout_milliseconds": 16,
    "rmqha_raft_no_space": 17,
    "rmqha_probes_sent_total": 19,
    "rmqha_probes_unanswered_total": 21,
    "rmqha_probes_elections_total": 22,
    "rmqha_probes_held_total": 23,
    "dledger_disk_usage_bytes": 27,
    "active_broker_num/C/a": 2,
    "active_broker_num/C/b": 0,
    "request_total/success": 1,
    "request_latency_us_count": 1,
    "request_latency_us_sum": 26_000,
    "dledger_op_total/append/success": 2,
    "dledger_op_total/append/failed": 18,
    "dledger_op_latency_us_count/append": 2,
    "dledger_op_latency_us_sum/append": 49_000,
    **{f"election_total/C/{name}/no_master_elected": 0 for name in "ab"},
    "election_total/C/a/new_master_elected": 3,
}
OF_LEADER = {"rmqha_set_has_master/C/a": 1, "rmqha_set_has_master/C/b": 0}


def test_series_when_facts_differ_then_each_shows_its_own() -> None:
    """And elections that never were are 0: an alert on the first one looks for what has grown."""
    collector = Collector(metrics(), {"peer_id": "n0"}, status, lambda: 27)
    assert shown(collector) == FIGURES | OF_LEADER


def test_masters_when_a_node_does_not_lead_then_it_says_nothing_of_them() -> None:
    """Whoever is cut off knows the master of before."""
    collector = Collector(metrics(), {"peer_id": "n0"}, lambda: status(is_leader=False), lambda: 27)
    assert shown(collector) == FIGURES


@pytest.mark.parametrize(
    ("role", "number"),
    [("stopped", 0), ("pre_candidate", 1), ("candidate", 1), ("follower", 2), ("leader", 3)],
)
def test_role_when_shown_then_it_is_javas_number(role: str, number: int) -> None:
    """Dashboards for Java count them; and who is no member has none, whatever it was."""
    one = metrics()
    one.role = role
    assert shown(Collector(one, {}, status, lambda: 0))["role"] == number
    assert shown(Collector(one, {}, status, lambda: 0, lambda: True))["role"] == 0


@pytest.mark.parametrize(
    ("core", "number"),
    [
        (None, 3),
        (SimpleNamespace(node=SimpleNamespace(is_removed=False)), 3),
        (SimpleNamespace(node=SimpleNamespace(is_removed=True)), 0),
    ],
    ids=["still reading its store", "member", "removed"],
)
async def test_process_when_its_node_was_removed_then_its_series_say_so(
    core: Any, number: int
) -> None:
    """It counted as one of its group for as long as nobody stopped it."""
    config = load_config(
        {"controllerDLegerGroup": "g", "controllerDLegerPeers": "n0-h:1",
         "controllerDLegerSelfId": "n0", "controllerStorePath": "/nowhere"},
        home="", user_home="/",
    )  # fmt: skip

    async def look() -> Status:
        return status()

    service = cast(
        "Any",
        SimpleNamespace(metrics=metrics(), status=look, raft=SimpleNamespace(core=core)),
    )
    collector = controller_collector(config, service)
    families = await asyncio.to_thread(lambda: {one.name: one for one in collector.collect()})
    assert families["role"].samples[0].value == number
