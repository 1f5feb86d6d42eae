"""Which controller of its group a pod is."""

from __future__ import annotations

import pytest

from rmqha.controller.pods import named_by_pod
from rmqha.controller.settings import load_config

# As rocketmq-operator 0.4 writes it for a Controller called "controller" of size 3.
PEERS = ";".join(f"controller{n}-controller-{n}.controller-hs:9878" for n in range(3))
OF_OPERATOR = {
    "controllerDLegerGroup": "ControllerGroup-controller",
    "controllerDLegerPeers": PEERS,
    "controllerStorePath": "/root/store",
}


@pytest.mark.parametrize("number", range(3))
def test_pod_when_its_id_is_not_told_then_it_is_the_peer_of_its_name(number: int) -> None:
    """The operator tells every pod the same, and its name."""
    found = named_by_pod(OF_OPERATOR, {"MY_POD_NAME": f"controller-{number}"})
    config = load_config(found, home="", user_home="/root")
    assert config.self_id == f"controller{number}"
    assert config.this.address == f"controller-{number}.controller-hs:9878"
    assert (config.group, config.store_path) == (
        "ControllerGroup-controller", "/root/store/rmqha",
    )  # fmt: skip


def test_id_when_it_is_told_then_the_name_changes_nothing() -> None:
    """Who writes it down means it."""
    found = named_by_pod(
        {**OF_OPERATOR, "controllerDLegerSelfId": "controller2"}, {"MY_POD_NAME": "controller-0"}
    )
    assert found["controllerDLegerSelfId"] == "controller2"


@pytest.mark.parametrize("environment", [{}, {"MY_POD_NAME": ""}, {"MY_POD_NAME": "controller-1x"}])
def test_pod_when_no_peer_has_its_name_then_nothing_is_guessed(environment: dict[str, str]) -> None:
    """Two nodes with one id could vote twice."""
    assert named_by_pod(OF_OPERATOR, environment) == OF_OPERATOR


def test_pod_when_a_peer_is_damaged_then_the_check_of_the_file_says_so() -> None:
    """This is no place for messages."""
    broken = {"controllerDLegerPeers": "n0;;-x:1;n1-"}
    assert named_by_pod(broken, {"MY_POD_NAME": "x"})["controllerDLegerPeers"] == "n0;;-x:1;n1-"
