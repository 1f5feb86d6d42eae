"""What ``rmqha up`` decides before it starts anything."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqha.base.errors import ConfigInvalid
from rmqha.broker.common.settings import load_config as load_broker
from rmqha.cli.up_plan import PORT_MAX, Shape, all_ports, decided, plan_of
from rmqha.controller.settings import load_config as load_controller

FOLDER = Path("/data/cluster")


def test_plan_of_a_new_folder_has_the_ports_that_rocketmq_has() -> None:
    """Clients that know nothing else find it at 9876; brokers are at 10911 and following."""
    plan = plan_of(FOLDER, decided(None, {}, {}))
    assert [one.address for one in plan.name_servers] == ["127.0.0.1:9876"]
    assert [one.port for one in plan.controllers] == [9878, 9879, 9880]
    assert [one.ports for one in plan.brokers] == [
        (10911, 10909, 10912), (10921, 10919, 10922), (10931, 10929, 10932),
    ]  # fmt: skip


@given(
    controllers=st.integers(1, 10), replicas=st.integers(1, 9),
    port=st.integers(1, PORT_MAX - 2_000),
)  # fmt: skip
def test_ports_of_any_shape_are_all_different(controllers: int, replicas: int, port: int) -> None:
    """Three for each broker, two for each controller, one for the name server."""
    plan = plan_of(FOLDER, decided(None, {"controllers": controllers, "replicas": replicas, "port": port}, {}))  # fmt: skip
    ports = all_ports(plan)
    assert len(ports) == 3 * replicas + 2 * controllers + 1
    assert max(ports) <= PORT_MAX


def test_files_of_a_plan_are_what_the_servers_take() -> None:
    """By their own loaders; what a user sets counts more than what a small cluster has."""
    plan = plan_of(FOLDER, Shape(sets={"brokerHeartbeatInterval": "333"}))
    for place in plan.controllers:
        load_controller(plan.properties(place), home="", user_home="/home/x")
    for place in plan.brokers:
        properties = plan.properties(place)
        config = load_broker(
            properties, host_name="h", local_address="127.0.0.1", user_home="/home/x"
        )
        assert config.cluster_name == "DefaultCluster"
        assert properties["brokerHeartbeatInterval"] == "333"


@pytest.mark.parametrize("name", ["controllers", "port", "host"])
def test_remembered_cluster_when_another_is_asked_for_then_it_is_refused(name: str) -> None:
    """Its stores know each other by these; the message names what was and what is asked for."""
    other = {"controllers": 1, "port": 9000, "host": "0.0.0.0"}[name]
    with pytest.raises(ConfigInvalid, match=f"with {name} .* not {other}"):
        decided(Shape(), {name: other}, {})


def test_remembered_cluster_when_nothing_is_asked_for_then_it_goes_on_as_it_was() -> None:
    """Also with options that say the same, and with more replicas."""
    was = Shape(1, 2, 5000, "127.0.0.2")
    assert decided(was, {}, {}) == was
    assert decided(was, {"port": 5000, "controllers": 1}, {}) == was
    assert decided(was, {"replicas": 4}, {}).replicas == 4


def test_remembered_cluster_when_properties_are_given_then_they_join_those_of_before() -> None:
    """The newer word counts for each; what a cluster began with is how its stores are made."""
    was = decided(None, {}, {"a": "1", "b": "2"})
    assert was.sets == {"a": "1", "b": "2"}
    assert decided(was, {}, {}).sets == was.sets
    assert decided(was, {}, {"b": "3", "c": "4"}).sets == {"a": "1", "b": "3", "c": "4"}


@pytest.mark.parametrize(
    "given_", [{"controllers": 0}, {"controllers": 11}, {"replicas": 0}, {"replicas": 10},
               {"port": 0}, {"port": 64_900}],
)  # fmt: skip
def test_shapes_that_cannot_be_are_refused(given_: dict[str, int]) -> None:
    """Before a folder is made."""
    with pytest.raises(ConfigInvalid, match=str(next(iter(given_.values())))):
        decided(None, given_, {})
