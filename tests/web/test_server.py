"""The page's server: what it serves, live, to how many, and to whom it says no."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from typing import Any, cast

import aiohttp
import pytest
from aiohttp import web

from rmqha.base.errors import ConfigInvalid
from rmqha.web.aio import server as server_module
from rmqha.web.aio.server import StatusServer
from rmqha.web.document import (
    BrokerSetView,
    ControllerView,
    ElectionView,
    NodeView,
    ReplicaView,
    StatusDocument,
    gaps,
)
from rmqha.web.history import History
from rmqha.web.settings import DEFAULTS, status_address
from rmqha.web.verdict import judge

NODE = NodeView("controller", "127.0.0.1:9878", "0.1.0", 1000, "leader", {"term": 3})
TIMEOUT_S = 10


class Source:
    """Counts how often it was asked."""

    def __init__(self) -> None:
        self.asked = 0
        self.was_asked_thrice = asyncio.Event()

    async def __call__(self) -> StatusDocument:
        """The next document; its time is its number."""
        self.asked += 1
        if self.asked == 3:
            self.was_asked_thrice.set()
        return StatusDocument(self.asked, NODE)


@pytest.fixture
async def source() -> Source:
    """A fresh source."""
    return Source()


@pytest.fixture
async def server(source: Source) -> AsyncIterator[StatusServer]:
    """A server that makes a document every 20 ms, for three watchers."""
    one = StatusServer(source, period_ms=20, watchers_max=3)
    await one.start("127.0.0.1", 0)
    yield one
    await one.close()


@pytest.fixture
async def client(server: StatusServer) -> AsyncIterator[aiohttp.ClientSession]:
    """A browser's requests."""
    timeout = aiohttp.ClientTimeout(total=TIMEOUT_S)
    async with aiohttp.ClientSession(f"http://127.0.0.1:{server.port}", timeout=timeout) as one:
        yield one


async def next_event(response: aiohttp.ClientResponse) -> dict[str, object]:
    """The next document of an event stream."""
    async for line in response.content:
        if line.startswith(b"data: "):
            return dict(json.loads(line[6:]))
    raise AssertionError("the stream ended")


async def test_page_when_asked_for_then_it_may_load_nothing_from_elsewhere(
    client: aiohttp.ClientSession,
) -> None:
    """One file, and a policy under which a broker's name cannot become a script from elsewhere."""
    async with client.get("/") as answer:
        text = await answer.text()
        assert answer.status == 200
        assert "default-src 'none'" in answer.headers["Content-Security-Policy"]
    assert "innerHTML" not in text
    assert "http://" not in text
    assert "https://" not in text


async def test_status_when_asked_for_then_the_document(client: aiohttp.ClientSession) -> None:
    """``/status.json`` for scripts."""
    async with client.get("/status.json") as answer:
        assert answer.headers["Content-Type"].startswith("application/json")
        assert await answer.json() == {
            "time_ms": 1,
            "node": {
                "kind": "controller", "address": "127.0.0.1:9878", "version": "0.1.0",
                "started_ms": 1000, "role": "leader", "facts": {"term": 3}, "troubles": [],
            },
            "controllers": [], "broker_sets": [], "elections": [],
            "static_topics": [], "open_doors": [], "others": [],
            "verdict": {
                "level": "good",
                "sentences": [
                    {
                        "level": "good", "text": "No broker has registered here yet.", "key": "",
                        "since_ms": None,
                    }
                ],
            },
        }  # fmt: skip


async def test_status_when_brokers_have_left_since_it_was_asked_for_then_it_says_so() -> None:
    """What the documents before had comes from the history that the server keeps."""
    node = NodeView("name server", "127.0.0.1:9876", "0.1.0", 1000)
    sets = [(BrokerSetView("C", "a", (ReplicaView(0, "a:1", "master", alive=True),)),), ()]
    times_ms = iter((1, 2))

    async def source() -> StatusDocument:
        return StatusDocument(next(times_ms), node, broker_sets=sets.pop(0))

    server = StatusServer(source)
    await server.start("127.0.0.1", 0)
    levels = []
    async with aiohttp.ClientSession() as client, asyncio.timeout(TIMEOUT_S):
        for _ in range(2):
            async with client.get(f"http://127.0.0.1:{server.port}/status.json") as answer:
                levels.append((await answer.json())["verdict"]["level"])
    await server.close()
    assert levels == ["good", "bad"]


async def test_history_when_nobody_watches_then_it_is_kept_all_the_same(source: Source) -> None:
    """Who opens the page after a failover wants to see what was before."""
    server = StatusServer(source, history_ms=1)
    await server.start("127.0.0.1", 0)
    timeout = aiohttp.ClientTimeout(total=TIMEOUT_S)
    async with aiohttp.ClientSession(timeout=timeout) as client, asyncio.timeout(TIMEOUT_S):
        await source.was_asked_thrice.wait()
        async with client.get(f"http://127.0.0.1:{server.port}/history.json") as answer:
            assert await answer.json() == [{"time_ms": 1, "sets": []}]
        async with client.post(f"http://127.0.0.1:{server.port}/history.json") as answer:
            assert answer.status == 405
    await server.close()


async def test_document_when_it_is_made_then_others_have_their_turns_between_its_steps(
    source: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 10,000 broker sets to keep it, to judge it and to write it take some 20 ms each."""
    done: list[str] = []
    keep, write = History.add, StatusDocument.encode

    def noted(name: str, step: Callable[..., Any]) -> Callable[..., Any]:
        def take(*args: Any) -> Any:
            done.append(name)
            asyncio.get_running_loop().call_soon(done.append, "others")
            return step(*args)

        return take

    monkeypatch.setattr(History, "add", noted("keep", keep))
    monkeypatch.setattr(server_module, "judge", noted("judge", judge))
    monkeypatch.setattr(StatusDocument, "encode", noted("write", write))
    one = StatusServer(source)
    await one._get_status(cast(web.Request, None))
    await asyncio.sleep(0)
    assert done == ["keep", "others", "judge", "others", "write", "others"]


async def test_elections_when_asked_for_then_those_of_a_set_or_of_all(source: Source) -> None:
    """``/elections.json`` for scripts; a name server has none."""
    asked: list[tuple[str | None, int]] = []

    def elections(name: str | None, count: int) -> bytes | None:
        asked.append((name, count))
        return None if name == "gone" else b'{"elections":[]}'

    server = StatusServer(source, elections=elections)
    await server.start("127.0.0.1", 0)
    other = StatusServer(source)
    await other.start("127.0.0.1", 0)
    timeout = aiohttp.ClientTimeout(total=TIMEOUT_S)
    async with aiohttp.ClientSession(timeout=timeout) as client:
        here = f"http://127.0.0.1:{server.port}/elections.json"
        async with client.get(here) as answer:
            assert answer.headers["Content-Type"].startswith("application/json")
            assert await answer.json() == {"elections": []}
        async with client.get(f"{here}?brokerName=broker-a&count=3") as answer:
            assert answer.status == 200
        assert asked == [(None, 50), ("broker-a", 3)]
        for query, status in (("brokerName=gone", 404), ("count=-1", 400), ("count=\u0663", 400)):
            async with client.get(f"{here}?{query}") as answer:
                assert answer.status == status
        async with client.get(f"http://127.0.0.1:{other.port}/elections.json") as answer:
            assert answer.status == 404
    await server.close()
    await other.close()


async def test_events_when_two_watch_then_one_document_serves_both(
    client: aiohttp.ClientSession, source: Source, server: StatusServer
) -> None:
    """And nobody is asked when nobody watches."""
    assert source.asked == 0
    async with client.get("/events") as first, client.get("/events") as second:
        times = [
            {(await next_event(stream))["time_ms"] for _ in range(5)} for stream in (first, second)
        ]
        assert times[0] & times[1]
        assert source.asked < 10
    feeder = server._feeder
    assert feeder is not None
    async with asyncio.timeout(TIMEOUT_S):
        await feeder
    assert len(server._watchers) == 0


async def test_documents_when_one_cannot_be_made_then_the_next_ones_come() -> None:
    """One exception ended them for good: pages that were open said "no answer", and the history stood still."""
    told: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context))
    asked, enough = 0, asyncio.Event()

    async def source() -> StatusDocument:
        nonlocal asked
        asked += 1
        if asked % 3 == 2:
            raise ValueError(f"number {asked}")
        if asked > 6:
            enough.set()
        return StatusDocument(asked, NODE)

    server = StatusServer(source, period_ms=1, history_ms=1)
    port = await server.start("127.0.0.1", 0)
    async with asyncio.timeout(TIMEOUT_S):
        await enough.wait()
        assert [str(one["exception"]) for one in told] == ["number 2", "number 5"]
        assert {one["message"] for one in told} == {"no document for the status page"}
        before = asked
        async with (
            aiohttp.ClientSession() as session,
            session.get(f"http://127.0.0.1:{port}/events") as stream,
        ):
            while cast(int, (await next_event(stream))["time_ms"]) < before + 7:
                pass
    await server.close()


async def test_events_when_too_many_watch_then_503_and_the_others_go_on(
    client: aiohttp.ClientSession, server: StatusServer
) -> None:
    """Three are taken; a fourth has to wait for one of them."""
    async with client.get("/events") as one, client.get("/events"), client.get("/events"):
        await next_event(one)
        async with client.get("/events") as refused:
            assert refused.status == 503
        await next_event(one)


async def test_close_when_pages_are_open_then_it_does_not_wait_for_them(
    source: Source,
) -> None:
    """A server that stops must not hang on whoever looks at it."""
    server = StatusServer(source, period_ms=10_000)
    port = await server.start("127.0.0.1", 0)
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"http://127.0.0.1:{port}/events") as watching,
    ):
        await next_event(watching)
        async with asyncio.timeout(TIMEOUT_S):
            await server.close()


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE"])
async def test_page_when_something_would_change_then_405(
    client: aiohttp.ClientSession, method: str
) -> None:
    """It only tells."""
    async with client.request(method, "/status.json") as answer:
        assert answer.status == 405


async def test_start_when_the_port_is_taken_then_an_error(server: StatusServer) -> None:
    """The process says which port and ends; see the tests of the programs."""
    with pytest.raises(OSError, match="address already in use"):
        await StatusServer(Source()).start("127.0.0.1", server.port)


def test_settings_when_no_port_is_given_then_there_is_no_page() -> None:
    """Loopback is the default, off as well."""
    assert status_address(DEFAULTS) is None
    assert status_address({**DEFAULTS, "statusPagePort": "0"}) == ("127.0.0.1", 0)


@pytest.mark.parametrize("port", ["x", "-1", "65536", "1.5", "\u0663"])
def test_settings_when_the_port_is_no_port_then_refused(port: str) -> None:
    """At the start, with the key's name."""
    with pytest.raises(ConfigInvalid, match="statusPagePort="):
        status_address({**DEFAULTS, "statusPagePort": port})


def test_gaps_when_an_end_is_unknown_then_it_has_no_gap() -> None:
    """The furthest known log is the measure."""
    assert gaps([100, 40, None, -1]) == [0, 60, None, None]
    assert gaps([]) == []
    assert gaps([None]) == [None]


def test_document_when_encoded_then_the_members_are_the_attributes() -> None:
    """The page's script reads these names."""
    replica = ReplicaView(1, "127.0.0.1:1", "master", alive=True)
    document = StatusDocument(
        5,
        NODE,
        (ControllerView("n0", "127.0.0.1:9878", True, True),),
        (BrokerSetView("c", "b", (replica,), 1, 2, (1,)),),
        (ElectionView(None, "b", None, 1, 1, "controller", "elected"),),
    )
    plain = json.loads(document.encode())
    assert plain["broker_sets"][0]["replicas"][0]["gap_bytes"] is None
    assert plain["broker_sets"][0]["sync_state_set"] == [1]
    assert plain["elections"][0]["time_ms"] is None
