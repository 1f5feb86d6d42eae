"""rescueControllers: nothing is written before the loss is accepted, and then what the newest store has."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from msgspec.structs import replace

from rmqha.admin.commands.rescue_controllers import ID_LEAP, NotAccepted, NotLost
from rmqha.admin.controller_state import ControllerState
from rmqha.admin.report import Report
from rmqha.base.errors import ConfigInvalid, StoreCorrupted
from rmqha.base.ids import BrokerId
from rmqha.client.exchange import Call, NotFound, Unreachable
from rmqha.controller.metadata import events as ev
from rmqha.controller.raft import wal_layout as layout
from rmqha.controller.raft.events import HardState
from rmqha.remoting.command import RemotingCommand
from tests.admin.driving import HERE, drive, run

ELECTED = (
    ev.BrokerIdTaken("C", "broker-a", "b1:1", BrokerId(1), "b1:1;1"),
    ev.BrokerIdTaken("C", "broker-a", "b2:1", BrokerId(2), "b2:1;1"),
    ev.MasterElected("broker-a", BrokerId(1), 1, "broker", "asked", False),
    ev.SyncStateSetAltered("broker-a", (BrokerId(1), BrokerId(2)), 2),
)
NEXT = ev.MasterElected("broker-a", BrokerId(2), 2, "controller", "scan", False)


def store(*events: ev.Event, group: str = "g", node: str = "n0", term: int = 1) -> dict[str, bytes]:
    """A log of these events."""
    records: list[layout.Record] = [layout.open_record(group, node, HardState(term, None))]
    records += [
        (layout.ENTRY, index, term, ev.to_proposal(term, index, event))
        for index, event in enumerate(events, 1)
    ]
    payload = layout.encode_records(records)
    return {f"{1:020d}.wal": layout.encode_frame(layout.WAL_MAGIC, 1, payload)}


def silent(call: Call) -> RemotingCommand:
    """Nobody of the group runs."""
    raise Unreachable(f"{call.address}: nobody there")


def rescue(
    stores: Mapping[str, Mapping[str, bytes]], *more: str, answer: object = silent
) -> tuple[Report, ControllerState | None]:
    """Run the command; what it wrote, and what it told then."""
    line = ["rescueControllers", "-a", "c:1;c:2;c:3", "-o", "state.json", *more]
    for path in stores:
        line += ["-s", path]
    here = replace(HERE, read_folder=lambda path: stores[path])
    report, calls = run(line, answer, here)  # type: ignore[arg-type]  # an Answer
    assert [call.address for call in calls] == ["c:1", "c:2", "c:3"]
    if report.then is None:
        assert report.files == {}
        return report, None
    told, _ = drive(report.then, silent)
    return told, ControllerState.decode(report.files["state.json"])


def test_rescue_when_the_loss_is_not_accepted_then_it_is_said_and_nothing_written() -> None:
    """Whoever reads it may still find a better store."""
    report, state = rescue({"/s": store(*ELECTED)})
    assert state is None
    (failure,) = report.failures
    assert isinstance(failure, NotAccepted)
    said = "/s is the newest store that is left: it ends with entry 4 of term 1"
    assert said in str(failure)
    assert "is gone: elections, SyncStateSets" in str(failure)
    assert "--accept-loss writes state.json" in str(failure)
    assert report.plain.startswith(said)
    assert [table.title for table in report.tables] == ["Stores", "Broker sets"]
    assert report.tables[0].rows == [("/s", "g", "n0", "voter", 1, 4, 1, 1)]


def test_rescue_when_accepted_then_the_file_has_all_that_the_store_has() -> None:
    """And names the group that nobody may be of any more."""
    report, state = rescue({"/s": store(*ELECTED)}, "--accept-loss")
    assert state is not None
    assert state.rescued_group == "g"
    assert state.controllers == ("c:1", "c:2", "c:3")
    (one,) = state.broker_sets
    assert (one.cluster_name, one.broker_name) == ("C", "broker-a")
    assert (one.master_broker_id, one.master_epoch) == (1, 1)
    assert (one.sync_state_set, one.sync_state_set_epoch) == ((1, 2), 2)
    assert [each.broker_address for each in one.replicas] == ["b1:1", "b2:1"]
    assert one.next_broker_id == 3 + ID_LEAP, "the lost nodes may have given out some"
    assert state.remarks["broker-a"] == ("as of entry 4 of term 1: a newer one may be lost",)
    assert "entry 4 of term 1" in report.data["mayBeLost"]
    assert report.failures == ()


@pytest.mark.parametrize("order", [1, -1])
def test_rescue_when_several_stores_are_left_then_the_newest_by_rafts_rule(order: int) -> None:
    """The later term wins over the longer log: it alone can hold what was committed (Raft 5.4.1)."""
    stores = {
        "/long": store(*ELECTED, *[NEXT] * 3, term=1),
        "/late": store(*ELECTED, NEXT, node="n1", term=4),
    }
    report, state = rescue(dict([*stores.items()][::order]), "--accept-loss")
    assert state is not None
    assert state.broker_sets[0].master_broker_id == 2
    assert "/late is the newest store that is left: it ends with entry 5 of term 4" in report.plain
    assert len(report.tables[0].rows) == 2


def test_rescue_when_a_node_of_the_group_answers_then_refused() -> None:
    """It may vote yet; also one that refuses to answer this runs."""
    for code in (0, 16):
        with pytest.raises(NotLost, match="the controller at c:1 runs"):
            rescue({"/s": store()}, answer=lambda call, code=code: call.command.reply(code))


def test_rescue_when_stores_are_of_two_groups_then_refused() -> None:
    """The wrong disk."""
    with pytest.raises(ConfigInvalid, match="g, other"):
        rescue({"/a": store(), "/b": store(group="other")}, "--accept-loss")


def test_rescue_when_a_store_is_damaged_then_refused_unless_forgiven() -> None:
    """The operator says so once more."""
    good = store(*ELECTED)
    (name,) = good
    more = layout.encode_frame(layout.WAL_MAGIC, 2, layout.encode_records([(layout.HARD, 1, None)]))
    damaged = {name: good[name] + more[:34] + bytes([more[34] ^ 1]) + more[35:]}
    with pytest.raises(StoreCorrupted, match="damaged, not torn"):
        rescue({"/s": damaged}, "--accept-loss")
    _, state = rescue({"/s": damaged}, "--accept-loss", "--forgive-damage")
    assert state is not None
    assert state.broker_sets[0].master_epoch == 1


def test_rescue_when_no_folder_can_be_read_then_not_found() -> None:
    """A ``Here`` of a caller that has no disk."""
    line = "rescueControllers -a c:1 -o f -s /s"
    with pytest.raises(NotFound):
        run(line, silent)
