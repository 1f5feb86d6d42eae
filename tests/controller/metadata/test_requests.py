"""Each request's answers: codes, remarks, ext fields and bodies as Java 5.3.3 gives them."""

from __future__ import annotations

import json
from pathlib import Path

import orjson
import pytest

from rmqha.controller.machine import LeadershipChanged, MachineSettings
from tests.controller.metadata.driving import CLUSTER, NAME, Driver

EQUAL = "The newSyncStateSet is equal with oldSyncStateSet, no needed to update syncStateSet"
REJECT = "Rejecting alter syncStateSet request because the "


def test_conformance_when_a_pair_starts_then_java_s_answers() -> None:
    """The start of a 5.3.x pair, value by value; brokers cannot start when this breaks."""
    driver = Driver()
    ext = {"clusterName": CLUSTER, "brokerName": NAME}
    following = driver.ask(1012, 1, **ext)
    assert (following.code, following.ext_fields) == (0, {**ext, "nextBrokerId": "1"})
    driver.register(1)
    first = driver.ask(1003, 1, **ext, brokerId=1, brokerAddress="h:1", invokeTime=5)
    assert first.ext_fields == ext
    assert first.body == b'{"syncStateSet":[],"syncStateSetEpoch":0}'
    elected = driver.elect(1)
    assert (elected.code, elected.remark) == (0, None)
    assert elected.ext_fields == {
        "masterBrokerId": "1", "masterAddress": "h:1", "masterEpoch": "1", "syncStateSetEpoch": "1",
    }  # fmt: skip
    assert driver.told() == ["h:1"]
    driver.beat(1)
    driver.register(2)
    second = driver.ask(1003, 2, **ext, brokerId=2, brokerAddress="h:2")
    assert second.ext_fields == {**ext, **elected.ext_fields}
    assert second.body == b'{"syncStateSet":[1],"syncStateSetEpoch":1}'
    driver.beat(2)
    altered = driver.alter(1, 1, [1, 2], 1)
    assert (altered.code, altered.ext_fields) == (0, {"newSyncStateSetEpoch": "2"})
    assert altered.body == b'{"syncStateSet":[1,2],"syncStateSetEpoch":2}'
    info = driver.ask(1004, 1, brokerName=NAME)
    assert info.ext_fields == {"masterBrokerId": "1", "masterAddress": "h:1", "masterEpoch": "1"}
    assert info.body == altered.body


def test_get_sync_state_data_when_the_slave_died_then_byte_for_byte_java_s_body() -> None:
    """mqadmin and dashboards parse this by Java's field names."""
    driver = Driver()
    driver.pair()
    driver.close(2)
    driver.pass_time(200)
    answer = driver.ask(1006, 9, b'["broker-a","nobody"]')
    assert answer.ext_fields == {}
    assert answer.body == (
        b'{"replicasInfoTable":{"broker-a":{"inSyncReplicas":['
        b'{"alive":true,"brokerAddress":"h:1","brokerId":1,"brokerName":"broker-a"},'
        b'{"alive":false,"brokerAddress":"h:2","brokerId":2,"brokerName":"broker-a"}],'
        b'"masterAddress":"h:1","masterBrokerId":1,"masterEpoch":1,'
        b'"notInSyncReplicas":[],"syncStateSetEpoch":2}}}'
    )


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b"nonsense"])
def test_get_sync_state_data_when_no_names_then_java_s_default_answer(body: bytes) -> None:
    """Java leaves its default code in place."""
    answer = Driver().ask(1006, 9, body)
    assert (answer.code, answer.remark) == (1, "not set any response code")


def test_get_replica_info_when_unknown_then_2008() -> None:
    """Brokers register again on exactly this code."""
    answer = Driver().ask(1004, 1, brokerName="x")
    assert (answer.code, answer.remark) == (2008, "Broker metadata is not existed")
    assert (answer.ext_fields, answer.body) == ({}, b"")


def test_every_request_when_not_leader_then_2007() -> None:
    """Clients learn the leader again by 1005."""
    driver = Driver()
    driver.pair()
    driver.step(LeadershipChanged(False, 2))
    for code in (1001, 1002, 1003, 1004, 1006, 1011, 1012, 1013):
        answer = driver.ask(code, 1, brokerName=NAME)
        assert (answer.code, answer.remark) == (2007, "The controller is not in leader state")
        assert (answer.ext_fields, answer.body) == ({}, b"")


def test_unknown_code_when_asked_then_3_with_leading_blank() -> None:
    """Java's own wording, leading blank included."""
    answer = Driver().ask(1014, 1)
    assert (answer.code, answer.remark) == (3, " request type 1014 not supported")


def test_heartbeat_when_sent_as_a_request_then_answered_on_any_node() -> None:
    """Tools send it so; the broker itself sends it one-way."""
    driver = Driver()
    driver.step(LeadershipChanged(False, 2))
    empty = driver.ask(904, 1, clusterName=CLUSTER, brokerName=NAME)
    assert (empty.code, empty.remark) == (2005, "Heart beat with empty brokerId")
    fine = driver.ask(904, 1, clusterName=CLUSTER, brokerName=NAME, brokerId=1)
    assert (fine.code, fine.remark) == (0, "Heart beat success")


def test_apply_broker_id_when_refused_then_2014_and_the_names() -> None:
    """The loser of a race for an id asks 1012 again."""
    driver = Driver()
    ext = {"clusterName": CLUSTER, "brokerName": NAME}
    fresh = driver.ask(1013, 1, **ext, appliedBrokerId=2, registerCheckCode="h:2;1")
    assert fresh.code == 2014
    assert fresh.remark == (
        "Broker-set: broker-a hasn't been registered in controller,"
        " but broker try to apply brokerId: 2"
    )
    assert fresh.ext_fields == ext
    driver.register(1)
    taken = driver.ask(1013, 2, **ext, appliedBrokerId=1, registerCheckCode="h:2;1")
    assert (taken.code, taken.remark) == (2014, "Fail to apply brokerId: 1 in broker-set: broker-a")
    again = driver.ask(1013, 1, **ext, appliedBrokerId=1, registerCheckCode="h:1;1")
    assert (again.code, again.ext_fields) == (0, ext)
    ahead = driver.ask(1013, 5, **ext, appliedBrokerId=5, registerCheckCode="h:5;1")
    assert ahead.code == 0
    # #7414: Java counts adds and would hand out 3, 4 and then 5 again.
    assert driver.ask(1012, 9, **ext).ext_fields["nextBrokerId"] == "6"


def test_apply_broker_id_when_the_id_was_cleaned_then_nobody_gets_it() -> None:
    """#7704: an id that comes twice mixes two brokers' data."""
    driver = Driver()
    driver.pair()
    driver.close(2)
    driver.pass_time(200)
    cleaned = driver.ask(
        1011, 9, clusterName=CLUSTER, brokerName=NAME, brokerControllerIdsToClean="2"
    )
    assert cleaned.code == 0
    ext = {"clusterName": CLUSTER, "brokerName": NAME}
    assert driver.ask(1012, 3, **ext).ext_fields["nextBrokerId"] == "3"
    refused = driver.ask(1013, 3, **ext, appliedBrokerId=2, registerCheckCode="h:3;1")
    assert refused.code == 2014


def test_register_broker_when_unknown_then_2010() -> None:
    """Two remarks, the set's before the id's."""
    driver = Driver()
    ext = {"clusterName": CLUSTER, "brokerName": NAME, "brokerAddress": "h:7"}
    unknown = driver.ask(1003, 7, **ext, brokerId=7)
    assert unknown.code == 2010
    assert unknown.remark == "Broker-set: broker-a hasn't been registered in controller"
    driver.register(1)
    stranger = driver.ask(1003, 7, **ext, brokerId=7)
    assert stranger.code == 2010
    assert stranger.remark == "BrokerId: 7 hasn't been registered in broker-set: broker-a"


@pytest.mark.parametrize(
    "address",
    ["h", "h:0", "h:65536", " h:1", "h:1\n", "k=v:1", "slaveReadEnable=true\n#", "[::1:1"],
)
def test_register_broker_when_its_address_is_none_then_it_is_refused(address: str) -> None:
    """1008 carries it to the other brokers, and the shell dials it."""
    driver = Driver(MachineSettings(adopt_unknown_brokers=True))
    ext = {"clusterName": CLUSTER, "brokerName": NAME}
    words = "is not host:port with a port of 1 to 65535"
    taken = driver.ask(1013, 1, **ext, appliedBrokerId=1, registerCheckCode=f"{address};1")
    assert (taken.code, taken.remark) == (2005, f"the broker's address {words}")
    adopted = driver.ask(1003, 1, **ext, brokerId=1, brokerAddress=address)
    assert adopted.code == 2010
    old = driver.ask(1003, 1, **ext, brokerAddress=address)
    assert (old.code, old.remark) == (2005, f"the broker's address {words}")
    driver.register(1)
    moved = driver.ask(1003, 1, **ext, brokerId=1, brokerAddress=address)
    assert (moved.code, moved.remark) == (2005, f"brokerAddress {words}")
    assert driver.ask(1003, 1, **ext, brokerId=1, brokerAddress="[::1]:10911").code == 0


def test_register_broker_when_adoption_is_on_then_the_id_is_taken_in() -> None:
    """#6586: after a controller lost its data, brokers never apply for an id again."""
    driver = Driver(MachineSettings(adopt_unknown_brokers=True))
    ext = {"clusterName": CLUSTER, "brokerName": NAME}
    for broker_id in (2, 1):
        adopted = driver.ask(1003, broker_id, **ext, brokerId=broker_id, brokerAddress="h:1")
        assert (adopted.code, adopted.ext_fields) == (0, ext)
        assert adopted.body == b'{"syncStateSet":[],"syncStateSetEpoch":0}'
        driver.beat(broker_id, epoch=5, maxOffset=100 + broker_id)
    elected = driver.elect(1)
    # The one with the newest log, above every epoch in the brokers' files.
    assert elected.ext_fields["masterBrokerId"] == "2"
    assert elected.ext_fields["masterEpoch"] == "6"
    assert driver.ask(1012, 9, **ext).ext_fields["nextBrokerId"] == "3"


def test_register_broker_when_the_master_moved_then_the_new_address() -> None:
    """Java answers a moved master its old address, from before the update."""
    driver = Driver()
    driver.pair()
    moved = driver.ask(
        1003, 1, clusterName=CLUSTER, brokerName=NAME, brokerId=1, brokerAddress="new:1"
    )
    assert moved.ext_fields["masterAddress"] == "new:1"
    assert driver.ask(1004, 1, brokerName=NAME).ext_fields["masterAddress"] == "new:1"


def test_alter_when_refused_then_java_s_order_and_remarks() -> None:
    """Each later check needs all earlier ones to pass."""
    driver = Driver()
    assert driver.alter(1, 1, [1], 0).remark == "Broker metadata is not existed"
    driver.pair()
    driver.register(3)
    driver.beat(3)
    driver.close(3)
    driver.pass_time(200)
    asked = [
        (driver.alter(2, 9, [1, 2], 9), 2013, EQUAL),
        (driver.alter(2, 9, [9], 9), 2002, f"{REJECT}current leader is:{{1}}, not {{2}}"),
        (driver.alter(1, 9, [9], 9), 2000, f"{REJECT}current master epoch is:{{1}}, not {{9}}"),
        (driver.alter(1, 1, [9], 9), 2001, f"{REJECT}current syncStateSet epoch is:{{2}}, not {{9}}"),
        (driver.alter(1, 1, [2, 9], 2), 2003, f"{REJECT}replicas {{9}} don't exist"),
        (driver.alter(1, 1, [1, 3], 2), 2006, f"{REJECT}replicas {{3}} don't alive"),
        (driver.alter(1, 1, [2], 2), 2013, f"{REJECT}newSyncStateSet don't contains origin leader {{1}}"),
    ]  # fmt: skip
    for answer, code, remark in asked:
        assert (answer.code, answer.remark) == (code, remark)
        assert (answer.ext_fields, answer.body) == ({"newSyncStateSetEpoch": "0"}, b"")
    missing = driver.ask(
        1001, 1, b'{"syncStateSet":[1],"syncStateSetEpoch":2}', brokerName=NAME, masterBrokerId=1
    )
    assert (missing.code, missing.remark) == (1, "masterEpoch is missing or not an integer")
    assert driver.ask(1001, 1, b"no", brokerName=NAME).code == 1


def test_alter_when_there_is_no_master_then_2002_with_null() -> None:
    """#7293: 5.1.1 to 5.1.3 answered a NullPointerException."""
    driver = Driver()
    driver.register(1)
    answer = driver.alter(1, 1, [1], 0)
    assert answer.code == 2002
    assert answer.remark == f"{REJECT}current leader is:{{null}}, not {{1}}"


def test_elect_when_the_master_lives_then_2011_and_no_new_epoch() -> None:
    """#6505, #9689: an election that changes nothing must not change the epoch."""
    driver = Driver()
    driver.pair()
    events = len(driver.log)
    answer = driver.elect(2)
    assert answer.code == 2011
    assert answer.remark == (
        "The old master 1 is still alive, not need to elect new master for broker broker-a"
    )
    assert answer.ext_fields == {
        "masterBrokerId": "1", "masterAddress": "h:1", "masterEpoch": "1", "syncStateSetEpoch": "2",
    }  # fmt: skip
    assert answer.body == b'{"syncStateSet":[1,2]}'
    assert len(driver.log) == events


def test_elect_when_designated_then_moved_and_mqadmin_can_print_it() -> None:
    """The body also has the group at top level, where mqadmin looks for it."""
    driver = Driver()
    driver.pair()
    answer = driver.elect(2, designate=True)
    assert answer.code == 0
    addresses = {"1": "h:1", "2": "h:2"}
    group = {"brokerAddrs": addresses, "brokerName": NAME, "cluster": CLUSTER}
    assert orjson.loads(answer.body) == {
        "brokerMemberGroup": group, "syncStateSet": [2], **group,
    }  # fmt: skip
    assert driver.master() == (2, 2)


@pytest.mark.parametrize(("broker_id", "code"), [(-1, 2004), (7, 2010), (1, 2012)])
def test_elect_when_first_and_nobody_fits_then_refused_without_an_epoch(
    broker_id: int, code: int
) -> None:
    """#10013 and its kin: Java elects unknown ids, and -1 bricks the set for ever."""
    driver = Driver()
    driver.register(1)
    driver.close(1)
    driver.pass_time(20_000)
    assert driver.elect(broker_id, designate=True).code == code
    assert driver.master() == (None, 0)
    assert driver.elect(1).code == 0


def test_elect_when_mqadmin_gives_minus_one_then_a_healthy_master_stays() -> None:
    """Java takes -1 as a preference nobody meets, and drops the master."""
    driver = Driver()
    driver.pair()
    assert driver.elect(-1, designate=True).code == 2011


def test_elect_when_unknown_then_2010() -> None:
    """The set's remark of 1002 differs from 1003's."""
    answer = Driver().elect(1)
    assert (answer.code, answer.remark) == (2010, "Broker hasn't been registered")


def test_elect_when_offsets_are_2_31_apart_then_the_longer_log_wins() -> None:
    """#10578: Java compares the difference as an int and elects the replica with less data."""
    driver = Driver()
    driver.pair()
    driver.register(3)
    driver.beat(2, epoch=1, maxOffset=0)
    driver.beat(3, epoch=1, maxOffset=2**31 + 1)
    assert driver.alter(1, 1, [1, 2, 3], 2).code == 0
    driver.close(1)
    driver.pass_time(200)
    assert driver.master() == (3, 2)


def test_elect_when_the_longest_log_is_on_a_disk_that_stalls_then_another_reigns() -> None:
    """All in sync hold what was acknowledged; a master that stands still would hand over again."""
    driver = Driver()
    driver.pair()
    driver.register(3)
    driver.beat(2, epoch=1, maxOffset=500, stalledMs=2_500)
    driver.beat(3, epoch=1, maxOffset=400)
    assert driver.alter(1, 1, [1, 2, 3], 2).code == 0
    driver.close(1)
    driver.pass_time(200)
    assert driver.master() == (3, 2)


def test_elect_when_the_heartbeat_comes_late_then_the_asker_counts_as_alive() -> None:
    """Java loses a 5 s round when 1002 overtakes the heartbeat."""
    driver = Driver()
    driver.pair()
    driver.close(1)
    driver.close(2)
    driver.pass_time(300)
    assert driver.master()[0] is None
    assert driver.elect(2, connection=12).code == 0
    assert driver.master()[0] == 2


def test_clean_when_refused_then_java_s_remarks() -> None:
    """Two blanks and a missing one are Java's own."""
    driver = Driver()
    missing = driver.ask(1011, 9, brokerName=NAME)
    assert (missing.code, missing.remark) == (
        2009, "Broker broker-a is not existed,clean broker data failure.",
    )  # fmt: skip
    driver.pair()
    whole = driver.ask(1011, 9, brokerName=NAME)
    assert whole.remark == "Broker broker-a is still alive, clean up failure"
    one = driver.ask(1011, 9, brokerName=NAME, clusterName="typo", brokerControllerIdsToClean="2")
    assert one.remark == "Broker [broker-a,  2] is still alive, clean up failure"
    bad = driver.ask(1011, 9, brokerName=NAME, brokerControllerIdsToClean="x")
    assert bad.remark == (
        "Please set the option <brokerControllerIdsToClean> according to the format,"
        ' exception: java.lang.NumberFormatException: For input string: "x"'
    )
    assert {one.code for one in (missing, whole, one, bad)} == {2009}


def test_clean_when_a_living_master_is_named_then_only_it_goes_and_the_epoch_grows() -> None:
    """Java drops the whole set; without ids cleared, 1004 names a master without address."""
    driver = Driver(MachineSettings(notify_broker_role_changed=False))
    driver.pair()
    answer = driver.ask(
        1011, 9, brokerName=NAME, brokerControllerIdsToClean="1", isCleanLivingBroker="true"
    )
    assert (answer.code, answer.ext_fields, answer.body) == (0, {}, b"")
    assert driver.master() == (None, 2)
    assert sorted(driver.machine.state.sets[NAME].replicas) == [2]
    assert driver.machine.state.sets[NAME].sync_state_set_epoch == 3


def _golden() -> list[dict[str, object]]:
    for place in Path(__file__).resolve().parents:
        found = place / "tests" / "golden" / "5.3.3" / "remoting.jsonl"
        if found.exists():
            return [json.loads(line) for line in found.read_text().splitlines()]
    return []


def test_answers_when_replaying_a_recorded_java_session_then_equal() -> None:
    """Requests that real brokers sent to a real controller, and the answers it gave."""
    frames = _golden()
    assert frames, "tests/golden/5.3.3/remoting.jsonl is missing"
    driver = Driver()
    expected: dict[tuple[object, object], int] = {}
    compared = 0
    # The recording goes on through kills whose moments it does not show; the start suffices.
    for frame in (one for one in frames if float(str(one["t"])) < 50.0):
        header = frame["header"]
        assert isinstance(header, dict)
        code = int(str(frame["request_code"]))
        key = (frame["conn"], header["opaque"])
        body = _body(str(frame["hex"]))
        if code not in (904, 1001, 1002, 1003, 1004, 1006, 1011, 1012, 1013):
            continue
        driver.pass_time(int(1000 * float(str(frame["t"]))) + 1_000_000 - driver.now_ms)
        if not frame["response"]:
            ext = dict(header.get("extFields") or {})
            expected[key] = driver.send(code, int(str(frame["conn"])), body, **ext)
        else:
            answer = driver.replies[expected[key]]
            assert answer.code == header["code"]
            assert answer.remark == header.get("remark")
            assert answer.ext_fields == (header.get("extFields") or {})
            if code != 1002:
                assert answer.body == body
            compared += 1
    assert compared > 10


def _body(text: str) -> bytes:
    frame = bytes.fromhex(text)
    return frame[8 + (int.from_bytes(frame[4:8], "big") & 0xFFFFFF) :]
