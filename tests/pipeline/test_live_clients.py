"""Clients that a worker keeps: one for all tasks with the same options, none that has failed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from rmqha.client.access import Access
from rmqha.client.aio.master_client import MasterClient
from rmqha.pipeline.live import clients
from rmqha.pipeline.live.clients import CLIENTS_MAX, Way, borrowed
from rmqha.pipeline.spark import worker

WAY = Way(("127.0.0.1:1",), 1000, 0, "g", Access())


@pytest.fixture(autouse=True)
def in_a_task(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[MasterClient]]:
    """As in a worker that has run nothing yet; gives what it closes."""
    monkeypatch.setattr(worker, "is_task", lambda: True)
    monkeypatch.setattr(clients, "_kept", [])
    closed: list[MasterClient] = []
    close = MasterClient.close

    def noted(client: MasterClient) -> None:
        closed.append(client)
        close(client)

    monkeypatch.setattr(MasterClient, "close", noted)
    yield closed
    for kept in clients._kept:
        close(kept.client)


def use(way: Way = WAY) -> MasterClient:
    """A task that does nothing."""
    with borrowed(way) as client:
        return client


def test_tasks_when_they_follow_each_other_then_one_client(in_a_task: list[MasterClient]) -> None:
    """Of other options there is another one; two tasks at once never share one."""
    first = use()
    other = use(WAY._replace(group="h"))
    assert other is not first
    with borrowed(WAY) as client:
        assert client is first
        assert use() is not first
    assert in_a_task == []


def test_task_when_it_takes_a_kept_client_then_masters_are_asked_for_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Minutes may lie between two tasks: the old master would be asked, and its silence waited for."""
    forgotten: list[MasterClient] = []

    def noted(client: MasterClient) -> None:
        forgotten.append(client)

    monkeypatch.setattr(MasterClient, "forget_masters", noted)
    first = use()
    assert forgotten == []
    with borrowed(WAY) as client:
        assert client is first
        assert forgotten == [first]


def test_task_when_it_fails_then_its_client_goes(in_a_task: list[MasterClient]) -> None:
    """Whoever wants no more rows has not failed."""

    def rows() -> Iterator[MasterClient]:
        with borrowed(WAY) as client:
            yield client

    some = rows()
    first = next(some)
    some.close()  # type: ignore[attr-defined]
    assert use() is first
    broken = rows()
    assert next(broken) is first
    with pytest.raises(ValueError, match="broken"):
        broken.throw(ValueError("broken"))  # type: ignore[attr-defined]
    assert in_a_task == [first]
    assert use() is not first


def test_clients_when_they_are_many_or_old_then_closed(
    in_a_task: list[MasterClient], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A certificate that was renewed is seen; a worker of many queries holds no hundreds of sockets."""
    made = [use(WAY._replace(group=f"g{number}")) for number in range(CLIENTS_MAX + 1)]
    assert in_a_task == made[:1]
    monkeypatch.setattr(clients, "CLIENT_AGE_MAX_MS", 0)
    newest = WAY._replace(group=f"g{CLIENTS_MAX}")
    assert use(newest) is not made[-1]
    assert in_a_task == [made[0], made[-1]]


def test_client_when_outside_of_spark_then_closed(
    in_a_task: list[MasterClient], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program of its own leaves nothing open."""
    monkeypatch.setattr(worker, "is_task", lambda: False)
    assert [use()] == in_a_task
