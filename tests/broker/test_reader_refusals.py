"""Who is shown nothing here, and why: the rules alone, in Java's order."""

from __future__ import annotations

import pytest

from rmqha.broker.pop.refusals import pop_refusal
from rmqha.broker.pull.refusals import read_refusal
from rmqha.ha.events import Role
from rmqha.remoting.codes import ResponseCode

OPEN = {"may_read": True, "has_timers": True, "may_write": True}


@pytest.mark.parametrize(
    ("role", "may_read", "slave_reads", "code"),
    [
        (Role.MASTER, True, False, None),
        (Role.SLAVE, True, True, None),
        (Role.SLAVE, True, False, ResponseCode.SYSTEM_BUSY),
        (None, True, True, ResponseCode.SERVICE_NOT_AVAILABLE),
        (None, False, True, ResponseCode.NO_PERMISSION),
        (Role.SLAVE, False, False, ResponseCode.NO_PERMISSION),
    ],
)
def test_read_when_it_is_asked_for_then_role_and_permission_decide(
    role: Role | None, may_read: bool, slave_reads: bool, code: int | None
) -> None:
    """A fenced broker's log may lose its tail; a slave may be forbidden to serve readers."""
    found = read_refusal(role, "pulling", may_read=may_read, slave_reads=slave_reads)
    assert (None if found is None else found.code) == code


@pytest.mark.parametrize(
    ("role", "lacks", "code"),
    [
        (Role.MASTER, (), None),
        (Role.SLAVE, (), ResponseCode.SYSTEM_BUSY),
        (None, (), ResponseCode.SERVICE_NOT_AVAILABLE),
        (Role.MASTER, ("may_read",), ResponseCode.NO_PERMISSION),
        (Role.MASTER, ("has_timers",), ResponseCode.SYSTEM_ERROR),
        (Role.MASTER, ("may_write",), ResponseCode.SERVICE_NOT_AVAILABLE),
        (Role.MASTER, ("may_read", "may_write"), ResponseCode.NO_PERMISSION),
        (Role.SLAVE, ("may_read",), ResponseCode.SYSTEM_BUSY),
    ],
)
def test_pop_when_it_is_asked_for_then_only_a_master_that_can_take_it_back_hands_out(
    role: Role | None, lacks: tuple[str, ...], code: int | None
) -> None:
    """What goes out without a check point that comes back is lost if its consumer dies."""
    found = pop_refusal(role, **{name: name not in lacks for name in OPEN})
    assert (None if found is None else found.code) == code
