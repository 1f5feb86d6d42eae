"""What the machine's resolver and an HTTP server say, and what they may not do to a process."""

from __future__ import annotations

import asyncio
import gc
import socket
import threading
from collections.abc import Awaitable, Callable
from typing import cast

import pytest
from aiohttp import web

from rmqha.base.errors import LookupFailed
from rmqha.runtime.aio.names import BODY_BYTES_MAX, SystemNames

HOST = "127.0.0.1"


class Loop(asyncio.SelectorEventLoop):
    """A loop whose resolver says what a test wants."""

    answer: Callable[[str], Awaitable[list[str]]]

    async def getaddrinfo(self, host: str, *_: object, **__: object) -> list[tuple[object, ...]]:  # type: ignore[override]
        """Every address twice, as for two kinds of sockets."""
        found = await type(self).answer(host)
        return [(socket.AF_INET, 0, 0, "", (one, 0)) for one in found for _ in range(2)]


def ask(
    answer: Callable[[str], Awaitable[list[str]]], work: Callable[[], Awaitable[list[str]]]
) -> list[str]:
    """Run a test's work in such a loop."""

    class Own(Loop):
        pass

    Own.answer = staticmethod(answer)  # type: ignore[assignment]

    async def run() -> list[str]:
        return await work()

    with asyncio.Runner(loop_factory=Own) as runner:
        return runner.run(run())


def test_localhost_when_resolved_then_it_is_this_machine() -> None:
    """By the system itself."""
    found = asyncio.run(SystemNames().resolve("localhost", timeout_ms=5_000))
    assert set(found) & {HOST, "::1"}


def test_name_when_it_has_addresses_then_all_of_them_once() -> None:
    """A resolver names each for every kind of socket."""

    async def answer(host: str) -> list[str]:
        return ["10.0.0.2", "10.0.0.1"] if host == "namesrv" else []

    names = SystemNames()
    found = ask(answer, lambda: names.resolve("namesrv", timeout_ms=1_000))
    assert found == ["10.0.0.2", "10.0.0.1"]


@pytest.mark.parametrize(
    "error", [socket.gaierror(-2, "Name or service not known"), UnicodeError("label too long")]
)
def test_name_when_it_has_none_then_that_is_said(error: Exception) -> None:
    """Whatever a resolver throws, the task that asks goes on."""

    async def answer(_: str) -> list[str]:
        raise error

    with pytest.raises(LookupFailed, match=r"not known|too long"):
        ask(answer, lambda: SystemNames().resolve("x", timeout_ms=1_000))


def test_name_when_the_resolver_hangs_then_it_is_asked_once_and_its_late_answer_counts() -> None:
    """Each question would hold one more of the few threads that resolve, for as long as it likes."""
    gate, asked = asyncio.Event(), list[str]()

    async def answer(host: str) -> list[str]:
        asked.append(host)
        await gate.wait()
        return ["10.0.0.1"]

    async def work() -> list[str]:
        names = SystemNames()
        for _ in range(3):
            with pytest.raises(LookupFailed, match="has not answered within 5 ms"):
                await names.resolve("namesrv", timeout_ms=5)
        assert asked == ["namesrv"]
        gate.set()
        found = await names.resolve("namesrv", timeout_ms=1_000)
        assert await names.resolve("namesrv", timeout_ms=1_000) == found
        return found

    assert ask(answer, work) == ["10.0.0.1"]
    assert asked == ["namesrv", "namesrv"], "an answer is not kept"


def test_answer_when_it_comes_after_everybody_has_gone_then_it_is_not_taken_for_a_new_one() -> None:
    """Kept without end, it was the answer of hours later: of pods that are gone."""
    gate, said = asyncio.Event(), ["10.0.0.1"]

    async def answer(_: str) -> list[str]:
        found = list(said)
        await gate.wait()
        return found

    async def work() -> list[str]:
        names = SystemNames()
        with pytest.raises(LookupFailed, match="has not answered"):
            await names.resolve("namesrv", timeout_ms=1)
        gate.set()
        for _ in range(5):
            await asyncio.sleep(0)
        said[0] = "10.0.0.2"
        return await names.resolve("namesrv", timeout_ms=1_000)

    assert ask(answer, work) == ["10.0.0.2"]


def test_failure_when_it_comes_after_everybody_has_gone_then_nobody_is_alarmed() -> None:
    """The loop's handler had it as a task's exception that was never retrieved: an error in the log."""
    gate, alarms = asyncio.Event(), list[str]()

    async def answer(_: str) -> list[str]:
        await gate.wait()
        raise socket.gaierror(-2, "Name or service not known")

    async def work() -> list[str]:
        asyncio.get_running_loop().set_exception_handler(
            lambda _, context: alarms.append(context["message"])
        )
        names = SystemNames()
        with pytest.raises(LookupFailed, match="has not answered"):
            await names.resolve("namesrv", timeout_ms=1)
        gate.set()
        for _ in range(5):
            await asyncio.sleep(0)
        del names
        gc.collect()
        return alarms

    assert ask(answer, work) == []


def test_name_when_two_wait_for_it_then_the_second_forgets_no_newer_question() -> None:
    """It took the question that the first one had begun meanwhile away: one more thread each time."""
    gate, asked = asyncio.Event(), list[str]()

    async def answer(host: str) -> list[str]:
        asked.append(host)
        await (gate if len(asked) == 1 else asyncio.Event()).wait()
        return ["10.0.0.1"]

    async def work() -> list[str]:
        names = SystemNames()

        async def first() -> None:
            await names.resolve("namesrv", timeout_ms=1_000)
            with pytest.raises(LookupFailed):
                await names.resolve("namesrv", timeout_ms=20)

        async with asyncio.TaskGroup() as both:
            both.create_task(first())
            second = both.create_task(names.resolve("namesrv", timeout_ms=1_000))
            await asyncio.sleep(0)
            gate.set()
        assert second.result() == ["10.0.0.1"]
        with pytest.raises(LookupFailed):
            await names.resolve("namesrv", timeout_ms=1)
        return asked

    assert ask(answer, work) == ["namesrv"] * 2


async def get(handler: Callable[[web.Request], Awaitable[web.Response]], timeout_ms: int) -> str:
    """What a server of our own says."""
    app = web.Application()
    app.router.add_get("/rocketmq/nsaddr", handler)
    runner = web.AppRunner(app, shutdown_timeout=0.01)
    await runner.setup()
    site = web.TCPSite(runner, HOST, 0)
    await site.start()
    port = cast(asyncio.Server, site._server).sockets[0].getsockname()[1]
    try:
        url = f"http://{HOST}:{port}/rocketmq/nsaddr"
        return await SystemNames().get(url, timeout_ms=timeout_ms)
    finally:
        await runner.cleanup()


def test_url_when_it_answers_then_its_text() -> None:
    async def handler(_: web.Request) -> web.Response:
        return web.Response(text="a:1;b:2")

    assert asyncio.run(get(handler, 5_000)) == "a:1;b:2"


def test_url_when_it_is_asked_then_what_that_takes_is_loaded_beside_the_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A fifth of a second, in which a broker that serves by now would stand still."""
    loaded = list[tuple[str, bool]]()

    def load(name: str) -> None:
        loaded.append((name, threading.current_thread() is threading.main_thread()))

    monkeypatch.setattr("rmqha.runtime.aio.names.import_module", load)

    async def handler(_: web.Request) -> web.Response:
        return web.Response(text="a:1")

    assert asyncio.run(get(handler, 5_000)) == "a:1"
    assert loaded == [("aiohttp", False)]


@pytest.mark.parametrize(
    ("body", "status", "says"),
    [
        (b"a:1", 404, "the answer is 404"),
        (b"\xff\xfe", 200, "the answer is no text"),
        (b"x" * (BODY_BYTES_MAX + 1), 200, f"more than {BODY_BYTES_MAX} bytes"),
    ],
)
def test_url_when_its_answer_is_no_use_then_that_is_said(
    body: bytes, status: int, says: str
) -> None:
    """A page of an error is no list, and nobody fills a broker's memory."""

    async def handler(_: web.Request) -> web.Response:
        return web.Response(body=body, status=status)

    with pytest.raises(LookupFailed, match=says):
        asyncio.run(get(handler, 5_000))


def test_url_when_the_server_is_silent_or_away_then_that_is_said() -> None:
    """The next question comes all the same."""

    async def handler(_: web.Request) -> web.Response:
        await asyncio.sleep(60)
        return web.Response()

    with pytest.raises(LookupFailed, match="no answer within 20 ms"):
        asyncio.run(asyncio.wait_for(get(handler, 20), 0.7))
    with socket.create_server((HOST, 0)) as free:
        port = free.getsockname()[1]
    with pytest.raises(LookupFailed, match="annot connect"):
        asyncio.run(SystemNames().get(f"http://{HOST}:{port}/", timeout_ms=1_000))
