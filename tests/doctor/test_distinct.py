"""One node under two addresses: seen as two, it was two leaders or two masters."""

from __future__ import annotations

import asyncio

from msgspec.structs import replace

from rmqha.doctor.aio.looking import Target, look
from rmqha.doctor.distinct import (
    controllers_of_one_group,
    distinct_brokers,
    distinct_controllers,
)
from rmqha.doctor.facts import BrokerFacts, ControllerFacts, Facts
from rmqha.testing.sockets import LOOPBACK
from tests.doctor.healthy import CONTROLLERS, HEALTHY, NAME, cache
from tests.doctor.test_diagnoses_of_controllers import view
from tests.doctor.test_reading import asker, good

LEADER = HEALTHY.controllers[0]


def test_controllers_when_a_name_is_one_of_the_members_then_it_is_asked_for_once() -> None:
    named = replace(LEADER, address="c0:9878")
    found = distinct_controllers((named, *HEALTHY.controllers), {"c0": ("10.0.0.1",)})
    assert found == HEALTHY.controllers
    assert len(distinct_controllers((named, *HEALTHY.controllers[1:]), {})) == 3, "none is lost"
    gone = ControllerFacts("c9:9878")
    assert distinct_controllers((gone, named), {"c0": (), "c9": ()}) == (gone, named)


def test_controllers_when_a_way_is_not_known_to_the_resolver_then_its_own_word_counts() -> None:
    """A forwarded port. Its log may have gone on between the two questions."""
    later = view(0, applied_index=95, commit_index=95)
    forwarded = replace(LEADER, address="127.0.0.1:19878", view=later)
    assert distinct_controllers((forwarded, *HEALTHY.controllers), {}) == HEALTHY.controllers


def test_controllers_when_two_are_alike_and_not_one_then_both_stay() -> None:
    """Two groups whose nodes have equal names, and a node of another term."""
    other = replace(LEADER, address="10.0.9.1:9878", peers={"n0": "10.0.9.1:9878"})
    assert len(distinct_controllers((other, *HEALTHY.controllers), {})) == 4
    old = replace(LEADER, address="10.0.9.1:9878", view=view(0, term=3))
    assert len(distinct_controllers((old, *HEALTHY.controllers), {})) == 4
    java = replace(LEADER, address="10.0.9.1:9878", view=None)
    assert len(distinct_controllers((java, *HEALTHY.controllers), {})) == 4


def test_brokers_when_two_addresses_are_of_one_process_then_the_first_stays() -> None:
    """broker.conf without brokerIP1 on a machine of several addresses."""
    one, other = (
        BrokerFacts(at, NAME, runtime={"bootTimestamp": "5"}, epochs=cache(2))
        for at in ("10.0.1.2:10911", "10.9.1.2:10911")
    )
    assert distinct_brokers((one, other)) == (one,)
    copied = replace(other, runtime={"bootTimestamp": "6"})
    assert distinct_brokers((one, copied)) == (one, copied), "a store that was copied"
    blank = BrokerFacts("a:1", NAME), BrokerFacts("b:1", NAME)
    assert distinct_brokers(blank) == blank


def test_look_when_controllers_are_given_by_name_then_nobody_leads_twice() -> None:
    meta = good(isLeader="true", controllerLeaderAddress=f"{LOOPBACK}:1", peers=f"n0:{LOOPBACK}:1")
    ask, _ = asker({("localhost:1", 1005): meta, (f"{LOOPBACK}:1", 1005): meta})
    facts = asyncio.run(look(ask, Target(("localhost:1",))))
    assert [one.address for one in facts.controllers] == [f"{LOOPBACK}:1"]
    assert len(facts.leaders) == 1
    assert CONTROLLERS[0] not in facts.resolved


def test_groups_when_brokers_name_several_then_none_of_them_is_meant() -> None:
    """Lists that have a member in common are of one group, in whatever order they are met."""

    def named(*lists: str) -> tuple[str, ...]:
        config = {"enableControllerMode": "True"}
        brokers = tuple(
            BrokerFacts(f"10.0.1.{at}:1", NAME, config={**config, "controllerAddr": one})
            for at, one in enumerate(lists)
        )
        return controllers_of_one_group(Facts(brokers=brokers, resolved={"c0": ("10.0.0.1",)}))

    assert named() == named("") == ()
    assert named("10.0.0.1:1;b:1") == ("10.0.0.1:1", "b:1")
    assert set(named("a:1", "b:1;d:1", "a:1;b:1", "")) == {"a:1", "b:1", "d:1"}
    assert set(named("c0:1", "10.0.0.1:1;b:1")) == {"c0:1", "10.0.0.1:1", "b:1"}
    assert named("a:1", "b:1") == named("c0:1", "10.0.0.1:2") == ()
