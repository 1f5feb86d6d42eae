"""mqdoctor and real controllers of which none may lead: not founded yet, and a majority emptied."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

from rmqha.cli.mqdoctor import main
from rmqha.testing.real.processes import wait_until
from tests.cli.nodes import Group, Node

FOUND_S = 20.0


def codes(one: Group) -> set[str]:
    """What mqdoctor finds of the whole group."""
    addresses = ";".join(node.address for node in one.nodes)
    line = ["check", "-a", addresses, "--json", "--timeout", "0.5", "--pause", "0.1"]
    rows = CliRunner().invoke(main, line).stdout.splitlines()
    return {json.loads(row)["code"] for row in rows}


def empty(node: Node, folder: Path) -> None:
    """A new disk in its machine, while it is down."""
    node.kill()
    shutil.rmtree(folder / f"store{node.name[1:]}")


@pytest.mark.slow
def test_check_when_a_group_is_founded_and_then_loses_its_stores_then_both_are_told(
    tmp_path: Path,
) -> None:
    one = Group(tmp_path)
    try:
        one.nodes[0].start().wait_boot()
        wait_until(
            lambda: codes(one) == {"controllers-not-founded", "controller-unreachable"},
            FOUND_S, "the group that waits for two members",
        )  # fmt: skip
        for node in one.nodes[1:]:
            node.start()
        one.wait_leader()
        wait_until(lambda: codes(one) == set(), FOUND_S, "nothing to be wrong")
        for node in one.nodes[1:]:
            empty(node, tmp_path)
        for node in one.nodes[1:]:
            node.start().wait_boot()
        wait_until(
            lambda: codes(one) == {"controllers-lost-majority"}, FOUND_S, "the majority's loss"
        )
    finally:
        one.kill()
