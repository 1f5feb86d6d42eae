"""``/livez`` and ``/readyz`` of controllers and brokers as processes, through deaths and a hang."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from urllib.error import HTTPError, URLError
from urllib.request import urlopen

import pytest

from rmqha.testing.cluster import RmqCluster
from rmqha.testing.nodes import Node
from rmqha.testing.real.processes import wait_until

pytestmark = pytest.mark.slow

PAGE = {"statusPagePort": 0}
SEEN_S = 20.0
HANGS_S = 1.0


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[RmqCluster]:
    """Three controllers and two replicas with pages on free ports."""
    settings = {**PAGE, "controllerHeartBeatTimeoutMills": 3_000}
    with RmqCluster(
        tmp_path, processes=True, controllers=3, replicas=2, controller_settings=PAGE,
        broker_settings=settings,
    ) as made:  # fmt: skip
        yield made


def asked(node: Node, path: str, timeout_s: float = 10.0) -> tuple[int, str]:
    """Status and text of a node's newest page; 0 and why when it does not answer."""
    lines = [json.loads(line) for line in node.log.read_text().splitlines() if line[:1] == "{"]
    *_, url = [one["url"] for one in lines if one["event"] == "status_page_started"]
    try:
        with urlopen(f"{url}{path}", timeout=timeout_s) as answer:
            return answer.status, answer.read().decode().strip()
    except HTTPError as error:
        return error.code, error.read().decode().strip()
    except (URLError, TimeoutError) as error:
        return 0, str(error)


def wait_for(node: Node, status: int, part: str) -> None:
    """Until a node says so of its readiness."""

    def says() -> bool:
        found, text = asked(node, "readyz")
        return found == status and part in text

    wait_until(says, SEEN_S, f"{node.name} to answer {status} with {part!r}")


def test_nodes_when_others_die_or_they_hang_then_their_health_says_so(cluster: RmqCluster) -> None:
    """Ready, ready again after a restart, and neither without a majority nor without a lease."""
    cluster.wait_in_sync()
    for node in (*cluster.controllers, *cluster.brokers):
        wait_for(node, 200, "ready")
        assert asked(node, "livez") == (200, "live")
    master = cluster.wait_for_master()
    slave = next(node for node in cluster.brokers if node is not master)

    cluster.kill(slave)
    assert asked(slave, "livez")[0] == 0
    cluster.produce(10)
    cluster.restart(slave)
    wait_for(slave, 200, "ready")

    cluster.stop(slave)
    assert asked(slave, "livez", HANGS_S)[0] == 0
    cluster.cont(slave)
    wait_for(slave, 200, "ready")

    first, second, third = cluster.controllers
    cluster.kill(first)
    cluster.kill(second)
    wait_for(third, 503, "no leader is known")
    wait_for(master, 503, "write lease has ended")
    # Its page said that all was well: the slave is in sync, and who leads is not on it.
    verdict = json.loads(asked(master, "status.json")[1])["verdict"]
    assert verdict["level"] == "bad"
    assert verdict["sentences"][0]["text"].startswith("This master is not ready: its write lease")
    assert asked(third, "livez") == (200, "live")
    cluster.restart(first)
    wait_for(third, 200, "ready")
    wait_for(first, 200, "ready")
    wait_for(cluster.wait_for_master(), 200, "ready")
