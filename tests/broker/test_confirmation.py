"""What a master takes from the leader's word on whether it still reigns."""

from __future__ import annotations

import pytest

from rmqha.base.errors import RemoteProtocolError
from rmqha.broker.membership.confirmation import is_told, namesake, other_master
from rmqha.remoting.bodies import SyncStateSet
from rmqha.remoting.codes import ResponseCode

BODY = b'{"syncStateSet":[1,2]}'
OURS = {"masterBrokerId": "1", "masterEpoch": "3", "masterAddress": "a:1", "syncStateSetEpoch": "5"}


def test_answer_when_it_names_this_master_in_its_epoch_then_nobody_else_reigns() -> None:
    """Its lease goes on by this alone."""
    assert other_master(OURS, BODY, broker_id=1, master_epoch=3) is None


@pytest.mark.parametrize(
    "said", [{"masterBrokerId": "2"}, {"masterEpoch": "4"}, {"masterBrokerId": ""}]
)
def test_answer_when_it_names_another_master_or_epoch_then_the_core_is_told(
    said: dict[str, str],
) -> None:
    """The set's epoch stands in the header, and the core looks for it in the body."""
    fields = OURS | said
    told = other_master(fields, BODY, broker_id=1, master_epoch=3)
    assert told is not None
    assert told.fields == fields
    assert SyncStateSet.decode(told.body) == SyncStateSet((1, 2), 5)


def test_answer_when_it_is_malformed_then_it_is_an_error_of_the_peer() -> None:
    """Raised where it is caught, or one garbled answer would end the broker."""
    for body in (b"", b"[1]"):
        with pytest.raises(RemoteProtocolError):
            other_master(OURS, body, broker_id=1, master_epoch=3)


def test_codes_when_they_name_a_master_then_they_are_two() -> None:
    """Whoever does not lead, or knows no set, says nothing about who reigns."""
    assert is_told(ResponseCode.SUCCESS)
    assert is_told(ResponseCode.CONTROLLER_MASTER_STILL_EXIST)
    assert not is_told(ResponseCode.CONTROLLER_NOT_LEADER)


def test_answer_when_its_id_is_at_another_address_then_that_is_no_proof_for_this_one() -> None:
    """Two brokers with one identity both held the lease, and each acknowledged what the other lacked."""
    assert namesake(OURS, "b:1") == "a:1"
    assert namesake(OURS, "a:1") is None
    assert namesake({**OURS, "masterAddress": ""}, "b:1") is None
