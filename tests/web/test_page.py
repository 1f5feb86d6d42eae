"""The page in a real browser, over a cluster of real processes that loses its master.

Needs Debian's ``chromium`` and ``chromium-driver``; skipped without them, except in CI.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from selenium import webdriver
from selenium.common.exceptions import TimeoutException
from selenium.webdriver.support.ui import WebDriverWait

from rmqha.testing.cluster import RmqCluster
from rmqha.testing.real import wire
from tests.namesrv.node import broker_fields, mapping_info, registration_body, topic

pytestmark = pytest.mark.slow

TIMEOUT_S = 20.0
PICTURES = os.environ.get("RMQHA_PICTURES", "")
"""A folder for screenshots; the ones in the docs were taken with it."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RmqCluster]:
    """Three controllers, a name server and three replicas, each with a page on a free port."""
    on = {"statusPagePort": "0"}
    with RmqCluster(
        tmp_path_factory.mktemp("pages"),
        processes=True,
        controller_settings=on,
        namesrv_settings=on,
        broker_settings=on,
    ) as one:
        one.start()
        one.wait_in_sync()
        one.produce(100)
        yield one


def url(cluster: RmqCluster, name: str) -> str:
    """Where a node's page is, as its log says."""
    lines = cluster.node(name).log.read_text().splitlines()
    line = [one for one in lines if "status_page_started" in one][-1]
    return re.findall(r"http://127\.0\.0\.1:\d+/", line)[0]


def wait(browser: webdriver.Chrome, what: Callable[[str], bool]) -> str:
    """The page's text, once it is as it should be."""
    shown = ""

    def looks_right(_: object) -> bool:
        nonlocal shown
        (shown,) = texts(browser, "body")
        return what(shown)

    try:
        WebDriverWait(browser, TIMEOUT_S).until(looks_right)
    except TimeoutException:
        picture(browser, "failed")
        pytest.fail(f"the page says: {shown}")
    return shown


def texts(browser: webdriver.Chrome, selector: str) -> list[str]:
    """The texts of all elements, read at one moment: the page makes them anew every second."""
    script = "return Array.from(document.querySelectorAll(arguments[0]), (one) => one.innerText)"
    return list(browser.execute_script(script, selector))


def cells(browser: webdriver.Chrome, address: str) -> list[str]:
    """A replica's row."""
    rows = [one.split("\t") for one in texts(browser, "#sets tr")]
    return next((row for row in rows if address in row), [])


def picture(browser: webdriver.Chrome, name: str) -> None:
    """Keep a screenshot if somebody wants them."""
    if PICTURES:
        browser.save_screenshot(str(Path(PICTURES) / f"{name}.png"))


def errors(browser: webdriver.Chrome) -> list[object]:
    """What the page's scripts complained of; a lost connection is none."""
    return [
        line
        for line in browser.get_log("browser")
        if line["level"] == "SEVERE" and "net::ERR" not in line["message"]
    ]


def test_controller_when_the_master_dies_then_its_page_tells_without_a_reload(
    browser: webdriver.Chrome, cluster: RmqCluster
) -> None:
    """Roles, epochs, SyncStateSet, gaps, and the election with its reason."""
    leader = cluster.wait_for_leader()
    browser.get(url(cluster, leader.name))
    before = wait(browser, lambda text: "epoch 1 \u00b7 SyncStateSet [1, 2, 3]" in text)
    assert texts(browser, "#title") == ["controller, leader"]
    (leads,) = texts(browser, ".chip.leads")
    assert leads.endswith("this node"), before
    assert len(texts(browser, "#controllers .chip")) == 3
    browser.execute_script("document.body.dataset.loaded = 'once'")
    old = cluster.master()
    assert old is not None
    cluster.kill(old)
    new = cluster.wait_for_master()
    text = wait(browser, lambda text: "epoch 2" in text and "dead" in text)
    row = next(line for line in text.splitlines() if "master_inactive" in line)
    assert "elected" in row
    masters = [one for one in texts(browser, "#sets tr") if "\tmaster\t" in one]
    assert len(masters) == 1
    assert new.address in masters[0]
    assert browser.execute_script("return document.body.dataset.loaded") == "once"
    cluster.produce(400)
    # Rates and the newest positions are the brokers' own words (request 28).
    alive = [one.address for one in cluster.brokers if one.is_alive]
    wait(browser, lambda _: [cells(browser, one)[9] for one in alive] == ["0.0", "0.0"])
    assert cells(browser, old.address)[3:5] == ["dead", "no"]
    picture(browser, "status-controller")
    assert errors(browser) == []


def test_verdict_when_a_replica_is_down_then_it_says_since_when_and_the_charts_show_it(
    browser: webdriver.Chrome, cluster: RmqCluster
) -> None:
    """What somebody who was woken up reads first, and then what was before."""
    cluster.heal()
    leader = cluster.wait_for_leader()
    browser.get(url(cluster, leader.name))
    well = "All is well: all 3 replicas of broker-a are alive and in sync."
    wait(browser, lambda _: texts(browser, "#verdict p") == [well])
    assert browser.execute_script("return document.getElementById('verdict').className") == (
        "card good"
    )
    slave = next(one for one in cluster.brokers if one is not cluster.master())
    with closing_workload(cluster):
        cluster.kill(slave)
        down = r"1 of 3 replicas of broker-a is down; writes go on\. Since \d\d:\d\d:\d\d\."
        wait(
            browser,
            lambda _: re.fullmatch(down, " ".join(texts(browser, "#verdict p"))) is not None,
        )
        titles = (
            "messages written a second",
            "bytes that the last replica lacks",
            "replicas in sync",
        )
        wait(browser, lambda _: len(texts(browser, ".chart")) == 3)
        for title, chart in zip(titles, texts(browser, ".chart"), strict=True):
            assert chart.startswith(title)
        drawn = "return Array.from(document.querySelectorAll('.chart path'), (p) => p.getAttribute('d'))"
        # Each line has more than one point, so it was drawn and not only set down.
        wait(browser, lambda _: all("L" in one for one in browser.execute_script(drawn)))
        for name, width, scheme in LOOKS:
            look(browser, width, scheme)
            wait(browser, lambda _: len(texts(browser, ".chart")) == 3)
            wide = browser.execute_script("return document.documentElement.scrollWidth")
            assert wide <= width, f"{name}: {wide} pixels"
            assert browser.execute_script(OFF_SCREEN) == [], name
            picture(browser, f"status-{name}")
        look(browser, 1200, "light")
    assert errors(browser) == []
    cluster.heal()
    wait(browser, lambda _: texts(browser, "#verdict p") == [well])


LOOKS = (
    ("1400-light", 1400, "light"), ("1400-dark", 1400, "dark"),
    ("390-light", 390, "light"), ("390-dark", 390, "dark"),
)  # fmt: skip
OFF_SCREEN = """
return Array.from(document.querySelectorAll('#sets td'))
  .filter((one) => one.getBoundingClientRect().right > innerWidth).map((one) => one.dataset.label)
"""
"""Cells that somebody would have to scroll sideways for."""


def look(browser: webdriver.Chrome, width: int, scheme: str) -> None:
    """A window of this width, for somebody who has set their machine to light or dark."""
    metrics = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    feature = {"name": "prefers-color-scheme", "value": scheme}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})


@contextmanager
def closing_workload(cluster: RmqCluster) -> Iterator[None]:
    """Messages are written meanwhile."""
    workload = cluster.workload("Charts", pause_ms=5)
    try:
        yield
    finally:
        assert workload.stop().lost == []


def test_name_server_and_broker_when_opened_then_each_shows_its_own_view(
    browser: webdriver.Chrome, cluster: RmqCluster
) -> None:
    """The registered brokers; the slaves a master feeds."""
    cluster.heal()
    cluster.wait_in_sync(3)
    browser.get(url(cluster, "namesrv-0"))
    wait(browser, lambda text: text.count("heard") == 3 and "brokers 3" in text)
    assert "id in routes" in texts(browser, "#sets th")
    picture(browser, "status-namesrv")
    master = cluster.master()
    assert master is not None
    browser.get(url(cluster, master.name))
    text = wait(browser, lambda text: text.count("yes") == 3)
    assert "broker, master" in text
    picture(browser, "status-broker")
    assert errors(browser) == []


def test_name_server_when_a_topic_is_static_then_its_logical_queues_have_their_leaders(
    browser: webdriver.Chrome, cluster: RmqCluster
) -> None:
    """As a set registers them, over a connection of its own."""
    info = mapping_info("Orders", "set-b", leads={0: 4})
    fields = broker_fields(brokerName="set-b", brokerAddr="127.0.0.1:1")
    body = registration_body([topic("Orders"), topic("Other")], mappings={"Orders": info})
    browser.get(url(cluster, "namesrv-0"))
    with wire.Connection(cluster.namesrv_addr) as connection:
        assert connection.invoke(103, fields, body).code == 0
        wait(browser, lambda text: "Logical queues" in text and "static topics 1" in text)
        rows = [one.split("\t") for one in texts(browser, "#static tr")]
        assert rows[1:] == [["Orders", "7", "2", "set-b: 0\u21924 \u00b7 nobody: 1"]]
    wait(browser, lambda text: "Logical queues" not in text)
    assert errors(browser) == []


def test_page_when_its_node_is_gone_then_it_says_so_and_comes_back(
    browser: webdriver.Chrome, cluster: RmqCluster
) -> None:
    """An old picture must not pass for a live one."""
    browser.get(url(cluster, "namesrv-0"))
    wait(browser, lambda text: "\nlive" in text)
    cluster.stop("namesrv-0")
    stopped = time.monotonic()
    wait(browser, lambda text: "no answer for" in text)
    assert time.monotonic() - stopped < TIMEOUT_S
    cluster.cont("namesrv-0")
    wait(browser, lambda text: "\nlive" in text)
