"""Pages of real processes link to each other; who has no page gets no link."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any
from urllib.request import urlopen

import pytest
from selenium import webdriver
from selenium.webdriver.support.ui import WebDriverWait

from rmqha.testing.cluster import RmqCluster
from rmqha.testing.real.processes import wait_until
from tests.web.test_page import errors, texts, url, wait

pytestmark = pytest.mark.slow

SHOWN_S = 20.0
WITHOUT = "broker-1"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RmqCluster]:
    """Everybody has a page on a free port, but for one replica."""
    on = {"statusPagePort": "0"}
    with RmqCluster(
        tmp_path_factory.mktemp("links"), processes=True, replicas=3, controller_settings=on,
        namesrv_settings=on, broker_settings=on, node_settings={WITHOUT: {"statusPagePort": ""}},
    ) as one:  # fmt: skip
        yield one


def linked(
    cluster: RmqCluster, name: str, wanted: Callable[[dict[str, Any]], dict[str, str | None]]
) -> Callable[[], dict[str, str | None] | None]:
    """What a node's document links to, by the names of nodes; None while some are not known yet."""
    names = {node.address: node.name for node in cluster.nodes}

    def look() -> dict[str, str | None] | None:
        with urlopen(url(cluster, name) + "status.json", timeout=5) as answer:
            found = wanted(json.load(answer))
        by_name = {names[address]: page for address, page in found.items() if address in names}
        missing = [one for one, page in by_name.items() if page is None]
        return by_name if set(missing) <= {name, WITHOUT} else None

    return look


def controllers(document: dict[str, Any]) -> dict[str, str | None]:
    """Links to controllers."""
    return {one["address"]: one["page"] for one in document["controllers"]}


def replicas(document: dict[str, Any]) -> dict[str, str | None]:
    """Links to replicas."""
    return {o["address"]: o["page"] for a in document["broker_sets"] for o in a["replicas"]}


def others(document: dict[str, Any]) -> dict[str, str | None]:
    """Links to what a broker works with."""
    return {one["address"]: one["page"] for one in document["others"]}


def expected(cluster: RmqCluster, kind: str, but: str = "") -> dict[str, str | None]:
    """Where the nodes of a kind are, as their logs say."""
    named = [node.name for node in cluster.nodes if node.place.kind == kind]
    return {one: None if one in (but, WITHOUT) else url(cluster, one) for one in named}


def test_pages_when_others_have_one_then_they_link_to_each_other(cluster: RmqCluster) -> None:
    """In trouble one goes from the controllers to the broker that they speak of, and back."""
    first = cluster.controllers[0].name
    for name, part, wanted in (
        (first, controllers, expected(cluster, "controller", but=first)),
        (first, replicas, expected(cluster, "broker")),
        ("namesrv-0", replicas, expected(cluster, "broker")),
    ):
        assert wait_until(linked(cluster, name, part), SHOWN_S, f"links of {name}") == wanted
    master = cluster.master()
    assert master is not None
    everybody = {**expected(cluster, "controller"), **expected(cluster, "namesrv")}
    for node in (one for one in cluster.brokers if one.name != WITHOUT):
        look = linked(cluster, node.name, others)
        assert wait_until(look, SHOWN_S, f"links of {node.name}") == everybody
        if node is not master and master.name != WITHOUT:
            look = linked(cluster, node.name, replicas)
            assert wait_until(look, SHOWN_S, "the master")[master.name] == url(cluster, master.name)


def click(browser: webdriver.Chrome, selector: str) -> None:
    """Click on the first one, at one moment: the page makes them anew every second."""
    browser.execute_script("document.querySelector(arguments[0]).click()", selector)


def test_link_when_clicked_then_the_other_page_opens(
    browser: webdriver.Chrome, cluster: RmqCluster
) -> None:
    """From a controller to a broker, from there to the name server."""
    browser.get(url(cluster, cluster.wait_for_leader().name))
    wait(browser, lambda _: len(texts(browser, "#sets td a")) == 2)
    assert len(texts(browser, "#controllers a")) == 2
    click(browser, "#sets td a")
    WebDriverWait(browser, SHOWN_S).until(lambda one: one.title.startswith("broker "))
    wait(browser, lambda _: len(texts(browser, "#others a")) == 4)
    lines = texts(browser, "#others p")
    assert [one.partition(":")[0] for one in lines] == ["controllers", "name servers"]
    click(browser, "#others p:last-child a")
    WebDriverWait(browser, SHOWN_S).until(lambda one: one.title.startswith("name server "))
    wait(browser, lambda _: len(texts(browser, "#sets td a")) == 2)
    assert errors(browser) == []
