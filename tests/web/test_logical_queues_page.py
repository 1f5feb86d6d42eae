"""A broker's page after the walk of docs/logical-queues.md: chains, states, what is known where.

The picture of that document was taken by it, with ``RMQHA_PICTURES``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from selenium import webdriver

from rmqha.testing.real import wire
from rmqha.testing.real.java import JavaBroker
from rmqha.testing.real.processes import wait_until
from tests.interop.alone import AloneBroker
from tests.pipeline.static import NAMES, StaticTopics
from tests.web.test_page import errors, picture, texts, wait

pytestmark = pytest.mark.slow

TOPIC = "Orders"
THIRD = "broker-c"
ARROW = "\u2192"


class PagedBroker(AloneBroker):
    """A broker with a status page."""

    def __init__(self, home: Path, name_server: str, broker_name: str) -> None:
        super().__init__(home, name_server, broker_name, statusPagePort=0)


@pytest.fixture(scope="module")
def sets(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StaticTopics]:
    """Three sets after the walk; only queue 4 had no messages before it moved."""
    folder = tmp_path_factory.mktemp("walked")
    with StaticTopics.opened(folder, makers=(PagedBroker, PagedBroker)) as two:
        third = PagedBroker(folder / THIRD, two.server.address, THIRD)
        brokers: dict[str, JavaBroker] = {**two.brokers, THIRD: third}
        made = StaticTopics(two.server, brokers)
        try:
            made.admin("updateStaticTopic", "-t", TOPIC, "-qn", "6", "-b", ",".join(NAMES))
            wait_until(lambda: len(made.leaders(TOPIC)) == 6, 20.0, TOPIC)
            _send(made, [0, 1, 2, 3, 5], 6)
            third.start()
            third.wait_ready()
            with wire.Connection(two.server.address) as connection:
                wait_until(lambda: wire.broker_addresses(connection, THIRD, THIRD), 20.0, THIRD)
            made.admin("remappingStaticTopic", "-t", TOPIC, "-c", "DefaultCluster")
            _send(made, range(6), 4)
            made.admin("migrateLogicalQueue", "-t", TOPIC, "-fb", NAMES[0], "-c", "DefaultCluster")
            wait_until(lambda: NAMES[0] not in made.leaders(TOPIC).values(), 20.0, "the move")
            _send(made, range(6), 5)
            yield made
        finally:
            third.child.kill()


def _send(sets: StaticTopics, queues: range | list[int], count: int) -> None:
    for queue in queues:
        for number in range(count):
            sets.send(TOPIC, queue, b"%d" % number)


def chains(browser: webdriver.Chrome, sets: StaticTopics, name: str) -> dict[int, list[str]]:
    """The segments of each logical queue on a set's page, as people read them."""
    found = re.findall(r"http://127\.0\.0\.1:\d+/", sets.brokers[name].child.output())
    browser.get(found[0])
    wait(browser, lambda text: "Logical queues" in text and "segments, oldest first" in text)
    rows = [one.split("\t") for one in texts(browser, "#static-chains tr")][1:]
    return {
        int(queue): [" ".join(one.split()) for one in cell.split(ARROW)] for queue, cell in rows
    }


def test_retired_set_when_opened_then_it_tells_what_it_still_has_and_where_queues_went(
    browser: webdriver.Chrome, sets: StaticTopics
) -> None:
    """What has messages is read-only, what had none is expired; the last segment is another set's."""
    shown = chains(browser, sets, NAMES[0])
    assert {queue: shown[queue][0] for queue in (0, 2, 4)} == {
        0: "broker-a queue 0 0 \u2013 9 ReadOnly",
        2: "broker-a queue 1 0 \u2013 9 ReadOnly",
        4: "broker-a queue 2 empty at 0 Expired",
    }
    led = sets.leaders(TOPIC)
    for queue in (0, 2, 4):
        assert len(shown[queue]) == 2
        assert shown[queue][1].startswith(led[queue])
        assert shown[queue][1].endswith("10,000 \u2026 Normal")
    picture(browser, "status-logical-queues")
    assert errors(browser) == []


def test_leading_set_when_opened_then_its_segments_are_normal_and_others_tell_of_theirs(
    browser: webdriver.Chrome, sets: StaticTopics
) -> None:
    """Of a segment elsewhere this set knows the place and the beginning, and no state."""
    shown = chains(browser, sets, THIRD)
    assert [*shown] == [queue for queue, name in sets.leaders(TOPIC).items() if name == THIRD]
    old, new = shown[4]
    assert old == "broker-a queue 2 0 \u2026 state: on its own page"
    assert re.fullmatch(r"broker-c queue \d 10,000 \u2013 10,008 Normal", new)
    assert errors(browser) == []
