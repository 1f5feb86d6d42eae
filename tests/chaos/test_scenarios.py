"""Which hosts and links a fault takes: properties over drawn rounds."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqha.chaos.scenarios import (
    ARTICLE,
    BY_NAME,
    KNOWN,
    LOSS_PERCENT,
    Fault,
    Kind,
    Members,
    Scenario,
    Scope,
    Shape,
    draw,
)  # fmt: skip

SEEDS = st.integers(0, 2**32)
THREE = Members(("b0", "b1", "b2"), ("c0", "c1", "c2"), master="b1", leader="c2")
FIVE = Members(tuple(f"b{i}" for i in range(5)), tuple(f"c{i}" for i in range(5)), "b0", "c0")
GROUPS = st.sampled_from((THREE, FIVE))


def drawn(scenario: Scenario, seed: int, members: Members = THREE) -> Fault:
    """A round's fault."""
    fault = draw(scenario, random.Random(seed), members)
    assert fault is not None
    return fault


def test_article_when_counted_then_its_twelve_scenarios_are_there() -> None:
    """Four kinds of faults at brokers, at controllers, and at both."""
    assert len({one.name for one in ARTICLE}) == 12
    assert set(BY_NAME) == {one.name for one in (*ARTICLE, *KNOWN)}


@given(SEEDS, st.sampled_from(ARTICLE), GROUPS)
def test_fault_when_drawn_then_one_broker_runs_and_more_than_half_are_taken(
    seed: int, scenario: Scenario, members: Members
) -> None:
    """As in the article; a round that takes nobody would show nothing."""
    fault = drawn(scenario, seed, members)
    everybody = {*members.brokers, *members.controllers}
    assert set(fault.hosts) <= everybody
    assert {host for link in fault.links for host in link} <= everybody
    assert bool(fault.hosts) != bool(fault.links)
    assert fault.count > 0
    assert set(members.brokers) - set(fault.hosts)
    scoped = {
        Scope.BROKERS: members.brokers,
        Scope.CONTROLLERS: members.controllers,
        Scope.BOTH: (*members.brokers, *members.controllers),
    }[scenario.scope]
    assert set(fault.hosts) <= set(scoped)
    if fault.hosts:
        assert len(fault.hosts) > len(scoped) / 2


def test_controllers_when_many_are_drawn_then_all_are_taken_sometimes() -> None:
    sizes = {len(drawn(BY_NAME["crash-controllers"], seed).hosts) for seed in range(50)}
    assert sizes == {2, 3}


@given(SEEDS, GROUPS)
def test_loss_when_drawn_then_both_directions_of_whole_hosts_lose_some(
    seed: int, members: Members
) -> None:
    fault = drawn(BY_NAME["loss-both"], seed, members)
    assert fault.loss_percent == LOSS_PERCENT
    assert {(b, a) for a, b in fault.links} == fault.links
    everybody = {*members.brokers, *members.controllers}
    lossy = {h for h in everybody if all((h, o) in fault.links for o in everybody - {h})}
    assert lossy


@given(
    SEEDS, GROUPS, st.sampled_from(("partition-brokers", "partition-controllers", "partition-both"))
)
def test_partition_when_drawn_then_its_links_have_its_shape(
    seed: int, members: Members, name: str
) -> None:
    fault = drawn(BY_NAME[name], seed, members)
    hosts = {host for link in fault.links for host in link}
    back = {(b, a) for a, b in fault.links}
    match fault.shape:
        case Shape.ONE_WAY:
            assert not back & fault.links
        case Shape.SYMMETRIC | Shape.BRIDGE:
            assert back == fault.links
        case Shape.RING:
            assert back == fault.links
            everybody = [h for h in (*members.brokers, *members.controllers) if h in hosts]
            hears = {a: {b for b in everybody if (b, a) not in fault.links} for a in everybody}
            assert all(len(some) > len(everybody) / 2 for some in hears.values())
            assert len({frozenset(some) for some in hears.values()}) == len(everybody)
        case _:
            raise AssertionError(fault)


def test_partitions_when_many_are_drawn_then_every_shape_occurs() -> None:
    shapes = Counter(drawn(BY_NAME["partition-both"], seed).shape for seed in range(200))
    assert set(shapes) == set(Shape)


@pytest.mark.parametrize(
    ("name", "hosts"),
    [("crash-master", {"b1"}), ("hang-leader", {"c2"}), ("crash-leader-and-master", {"b1", "c2"})],
)
def test_known_victim_when_it_is_there_then_it_alone_is_taken(name: str, hosts: set[str]) -> None:
    assert set(drawn(BY_NAME[name], 1).hosts) == hosts


def test_master_when_it_is_cut_off_and_killed_then_its_slaves_hear_each_other() -> None:
    fault = drawn(BY_NAME["cut-and-crash-master"], 1)
    assert fault.hosts == ("b1",)
    assert fault.links == {("b1", "b0"), ("b0", "b1"), ("b1", "b2"), ("b2", "b1")}


def test_known_victim_when_nobody_is_master_then_nothing_is_drawn() -> None:
    """A round without the victim that it names would be another scenario."""
    nobody = Members(THREE.brokers, THREE.controllers, None, "c0")
    assert draw(BY_NAME["crash-master"], random.Random(1), nobody) is None
    assert draw(BY_NAME["crash-leader-and-master"], random.Random(1), nobody) is None


def test_fault_when_told_then_people_read_what_was_broken() -> None:
    assert Fault(Kind.CRASH, ("b1", "c0")).text == "crash b1 c0"
    lossy = Fault(Kind.LOSS, links=frozenset({("a", "b"), ("b", "a")}), loss_percent=80)
    assert (lossy.text, lossy.count) == ("80 % loss a-b", 1)
