"""Brokers of 5.0.0 and 5.1.0: one request for everything, and addresses in place of ids."""

from __future__ import annotations

import json

import orjson
import pytest

from rmqha.controller.machine import Reply
from tests.controller.metadata.driving import CLUSTER, NAME, Driver


class Old:
    """Brokers ``h:1``, ``h:2`` ... on connections 1, 2 ..."""

    def __init__(self) -> None:
        self.driver = Driver()

    def fields(self, broker: int) -> dict[str, object]:
        """Whom a broker calls itself."""
        return {"clusterName": CLUSTER, "brokerName": NAME, "brokerAddress": f"h:{broker}"}

    def register(self, broker: int) -> Reply:
        """1003, as 5.0.0 sends it."""
        return self.driver.ask(
            1003,
            broker,
            **self.fields(broker),
            epoch=-1,
            maxOffset=0,
            heartbeatTimeoutMillis=10_000,
        )

    def beat(self, broker: int, **more: object) -> None:
        """904 without an id (5.0.0); 5.1.0 says ``brokerId=0`` as a master."""
        self.driver.beat(
            0, broker, brokerAddr=f"h:{broker}", brokerName=NAME, clusterName=CLUSTER, **more
        )

    def alter(self, master: int, epoch: int, members: list[int], set_epoch: int) -> Reply:
        """1001 with addresses."""
        body = orjson.dumps(
            {"syncStateSet": [f"h:{one}" for one in members], "syncStateSetEpoch": set_epoch}
        )
        return self.driver.ask(
            1001, master, body, brokerName=NAME, masterAddress=f"h:{master}", masterEpoch=epoch
        )

    def info(self, broker: int) -> Reply:
        """1004 with the asker's address."""
        return self.driver.ask(1004, broker, brokerName=NAME, brokerAddress=f"h:{broker}")

    def pass_time(self, *beating: int) -> None:
        """Twenty seconds, in which only some are heard."""
        for _ in range(20):
            for broker in beating:
                self.beat(broker, maxOffset=9)
            self.driver.pass_time(1_000)

    def pair(self) -> None:
        """Two in sync, ``h:1`` the master in epoch 1."""
        self.register(1)
        self.beat(1, epoch=1)
        self.register(2)
        self.beat(2)
        assert self.alter(1, 1, [1, 2], 1).code == 0


def members(answer: Reply) -> tuple[list[str], int]:
    found = json.loads(answer.body)
    return found["syncStateSet"], found["syncStateSetEpoch"]


def test_first_broker_when_it_registers_then_it_has_an_id_and_is_elected() -> None:
    """Two events follow each other in the log, and the request is answered once."""
    old = Old()
    answer = old.register(1)
    assert (answer.code, answer.remark) == (0, None)
    assert answer.ext_fields == {
        "masterAddress": "h:1", "masterEpoch": "1", "syncStateSetEpoch": "1", "brokerId": "1",
    }  # fmt: skip
    assert len(old.driver.log) == 2
    assert old.register(1).ext_fields == answer.ext_fields
    assert len(old.driver.log) == 2


def test_second_broker_when_it_registers_then_it_hears_of_the_master() -> None:
    """It takes its id at the name server from the answer; the master comes with epoch and address."""
    old = Old()
    old.register(1)
    old.beat(1)
    answer = old.register(2)
    assert (answer.code, answer.ext_fields["brokerId"]) == (0, "2")
    assert answer.ext_fields["masterAddress"] == "h:1"
    assert old.driver.machine.state.sets[NAME].sync_state_set == (1,)


def test_members_when_altered_then_addresses_all_the_way() -> None:
    """What later brokers say with ids."""
    old = Old()
    old.pair()
    told = old.info(2)
    assert told.ext_fields == {"masterAddress": "h:1", "masterEpoch": "1", "brokerId": "2"}
    assert members(told) == (["h:1", "h:2"], 2)
    assert old.info(7).ext_fields["brokerId"] == "-1"
    shrunk = old.alter(1, 1, [1], 2)
    assert shrunk.ext_fields == {"newSyncStateSetEpoch": "3"}
    assert members(shrunk) == (["h:1"], 3)


@pytest.mark.parametrize(
    ("master", "epoch", "wanted", "set_epoch", "code"),
    [
        (1, 1, [1, 2], 2, 2010),
        (2, 1, [1], 2, 2002),
        (9, 1, [1], 2, 2002),
        (1, 0, [1], 2, 2000),
        (1, 1, [1], 1, 2001),
        (1, 1, [1, 2, 9], 2, 2003),
        (1, 1, [2], 2, 2010),
    ],
)
def test_members_when_they_cannot_be_altered_then_the_codes_of_then(
    master: int, epoch: int, wanted: list[int], set_epoch: int, code: int
) -> None:
    """2013 of today was 2010 then; the others are the same."""
    old = Old()
    old.pair()
    answer = old.alter(master, epoch, wanted, set_epoch)
    assert (answer.code, answer.ext_fields) == (code, {"newSyncStateSetEpoch": "0"})


def test_body_when_it_names_no_addresses_then_refused() -> None:
    """Any bytes may come."""
    old = Old()
    old.pair()
    for body in (b"", b"[]", b"{}", b'{"syncStateSet":[1]}', b"\xff"):
        answer = old.driver.ask(1001, 1, body, brokerName=NAME, masterAddress="h:1", masterEpoch=1)
        assert answer.code == 1, body


def test_master_when_it_dies_then_the_slave_is_told_in_its_own_words() -> None:
    """1008 has the id that a broker is to take, 0 for the master, beside today's fields."""
    old = Old()
    old.pair()
    old.register(3)
    old.beat(3)
    assert old.alter(1, 1, [1, 2, 3], 2).code == 0
    old.driver.notified.clear()
    old.driver.close(1)
    old.pass_time(2, 3)
    told = {one.address: one.ext_fields for one in old.driver.notified}
    assert told["h:2"]["masterAddress"] == "h:2"
    assert (told["h:2"]["brokerId"], told["h:3"]["brokerId"]) == ("0", "3")
    assert {one["masterEpoch"] for one in told.values()} == {"2"}
    back = old.register(1)
    assert (back.ext_fields["masterAddress"], back.ext_fields["brokerId"]) == ("h:2", "1")


def test_broker_when_it_hangs_up_before_it_has_its_id_then_it_is_not_elected() -> None:
    """The second half of its request would make a master of who is gone."""
    old = Old()
    old.driver.hold = True
    old.driver.send(1003, 1, **old.fields(1))
    old.driver.close(1)
    old.driver.hold = False
    old.driver.commit_one()
    assert old.driver.master() == (None, 0)
    assert len(old.driver.log) == 1
    assert old.register(1).ext_fields["masterAddress"] == "h:1"


def test_request_when_it_names_an_address_then_it_is_a_sign_of_life() -> None:
    """As one with an id is: a lost heartbeat or two are no reason for an election."""
    old = Old()
    old.pair()
    for _ in range(4):
        old.driver.pass_time(8_000)
        old.beat(2)
        assert old.register(1).ext_fields["masterAddress"] == "h:1"
    assert old.driver.master() == (1, 1)


def test_broker_out_of_sync_when_nobody_else_lives_then_it_is_refused() -> None:
    """With the code of then; it asks again."""
    old = Old()
    old.pair()
    assert old.alter(1, 1, [1], 2).code == 0
    old.driver.close(1)
    old.pass_time(2)
    answer = old.register(2)
    assert (answer.code, answer.ext_fields["masterAddress"]) == (2012, "")
    assert old.register(1).ext_fields["masterAddress"] == "h:1"


def test_brokers_of_today_when_beside_them_then_nothing_is_new_for_them() -> None:
    """A request that has an id is never read by its address."""
    old = Old()
    old.driver.register(1)
    assert old.driver.elect(1).code == 0
    old.driver.beat(1)
    assert "brokerId" not in old.driver.notified[-1].ext_fields
    answer = old.driver.ask(1004, 1, brokerName=NAME)
    assert json.loads(answer.body)["syncStateSet"] == [1]
