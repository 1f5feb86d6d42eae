"""Every attack of the catalogue on the processes of a closed cluster, beside honest clients.

``bin/bench attacks`` asks the same of Java's cluster and of ours as it comes, for longer, and
``bin/bench siege`` sends all attacks at once. Here each has to achieve nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.attacks.catalog import ATTACKS
from tests.bench.attack_outcome import ASKED, Outcome, harm, taken
from tests.bench.bench_attacks import attack_once
from tests.bench.fortress import CLOSED, OPEN, Fortress

pytestmark = [pytest.mark.alone, pytest.mark.slow, pytest.mark.timeout(300)]
ATTACK_S = 2.5
AROUND_S = 1.0
SILENCE_S_MAX = 3.0
"""Clients that are answered within it have lost nothing but time, on a machine that does more."""


@pytest.fixture(scope="module")
def closed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fortress]:
    """Three controllers, a name server and two replicas, closed as docs/SECURITY.md advises."""
    with Fortress(tmp_path_factory.mktemp("closed"), CLOSED, replicas=2) as made:
        yield made


def attacked(fortress: Fortress, name: str) -> Outcome:
    """What an attack has done; it has reached somebody, or it proves nothing."""
    found = attack_once(fortress, name, ATTACK_S, AROUND_S, AROUND_S)
    assert found.tally is not None, "the attack has sent nothing"
    assert found.routes[0], "nobody has looked at the route"
    assert found.lost[1], "honest clients had nothing acknowledged"
    return found


@pytest.mark.parametrize("name", ATTACKS)
def test_attack_when_the_cluster_is_closed_then_it_achieves_nothing(
    closed: Fortress, name: str
) -> None:
    """No process ends, nobody reigns in another's place, nothing is lost, given away or granted."""
    found = attacked(closed, name)
    assert harm(found) == []
    assert found.tally is not None
    assert taken(name, found.tally) == []
    silent = {kind: found.silence_s[kind] for kind in ASKED}
    assert max(silent.values()) < SILENCE_S_MAX, silent


def test_attack_when_the_cluster_is_open_then_it_is_seen(tmp_path: Path) -> None:
    """What closes the door is what the test above would miss."""
    with Fortress(tmp_path, OPEN, replicas=2) as fortress:
        found = attacked(fortress, "routes")
        assert found.tally is not None
        assert harm(found)
        assert taken("routes", found.tally)
