"""What the command refuses before it starts anything, and what a cell finds that is planted."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from click.testing import CliRunner

from rmqha.base.errors import ConnectFailed
from rmqha.chaos.aio.cell import begun
from rmqha.chaos.aio.hosts import HostsUnavailable
from rmqha.chaos.aio.nodes import Kinds
from rmqha.chaos.aio.services import Services
from rmqha.chaos.course import Course
from rmqha.chaos.outcome import Cell, Round
from rmqha.chaos.report import from_json, to_json
from rmqha.cli import chaos
from rmqha.cli.chaos import main
from rmqha.remoting.codes import RequestCode, ResponseCode
from rmqha.remoting.command import RemotingCommand
from rmqha.runtime.aio.clock import SystemClock
from rmqha.sim.service_swarm import SERVED
from rmqha.testing.ledger import Ledger
from rmqha.testing.real.maven import JavaUnavailable
from rmqha.verify.services import DELAYED, Promise

NO_MESSAGES = {
    "nextBeginOffset": "0",
    "minOffset": "0",
    "maxOffset": "0",
    "suggestWhichBrokerId": "0",
}


def test_ledger_when_a_message_is_read_after_a_later_one_then_it_is_out_of_order() -> None:
    """One that is read twice is not: its answer was lost, and it was sent again."""
    ledger = Ledger()
    for number in (0, 8, 4, 8, 12):
        ledger.read(number, 0, number)
    ledger.read(1, 1, 0)
    assert (ledger.out_of_order, ledger.duplicates) == (1, 1)


def test_mixed_set_when_made_then_one_of_three_is_javas() -> None:
    assert [Kinds(brokers="mixed").broker_kind(i) for i in range(3)] == ["java", "py", "py"]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ([], "name a scenario"),
        (["crash-all"], "crash-all: there are crash-brokers, crash-controllers"),
        (["crash-both", "--controllers", "py,go"], "go: one of py, java, jraft"),
        (["crash-both", "--brokers", "jraft"], "jraft: one of py, java, mixed"),
        (["crash-both", "--set", "fast"], "'fast' is not KEY=VALUE"),
        (["crash-both", "hang-both", "--history", "x"], "--history takes one scenario"),
        (
            ["crash-both", "--services", "--brokers", "py,mixed"],
            "what Java's brokers do not promise",
        ),
    ],
)
def test_command_when_asked_for_what_there_is_not_then_it_says_what_there_is(
    arguments: list[str], told: str
) -> None:
    """Before anything is started."""
    done = CliRunner().invoke(main, arguments)
    assert done.exit_code == 2
    assert told in " ".join(done.output.split())


@pytest.mark.parametrize("links", ["auto", "proxies"])
@pytest.mark.parametrize("kinds", [("--brokers", "py,java"), ("--controllers", "jraft")])
def test_command_when_there_are_only_proxies_for_java_then_it_says_so_before_a_cell_is_played(
    monkeypatch: pytest.MonkeyPatch, links: str, kinds: tuple[str, ...]
) -> None:
    """The cells of ours took minutes before the one of Java's was refused."""

    def nowhere(*_: object) -> None:
        raise HostsUnavailable("missing programs: nft")

    resolved: list[str] = []
    monkeypatch.setattr(chaos, "classpath", lambda: resolved.append("jars"))
    monkeypatch.setattr(chaos, "enter", nowhere)
    monkeypatch.setattr(chaos, "_run", lambda *_: pytest.fail("a cell was begun"))
    done = CliRunner().invoke(main, ["crash-both", "--links", links, *kinds])
    assert done.exit_code == 1
    assert "nodes of Java need network namespaces" in done.output
    assert ("nft" in done.output) == (links == "auto")
    assert resolved == ["jars"] * (links == "auto"), "before a network without Maven's was entered"


def test_command_when_there_are_no_jars_then_it_says_so_in_the_network_where_maven_has_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def none() -> None:
        raise JavaUnavailable("no mvn on the PATH")

    monkeypatch.setattr(chaos, "classpath", none)
    monkeypatch.setattr(chaos, "enter", lambda *_: pytest.fail("it left that network"))
    done = CliRunner().invoke(main, ["crash-both", "--brokers", "java"])
    assert done.exit_code == 1
    assert "RocketMQ's own jars: no mvn on the PATH" in done.output


def test_folder_when_it_has_nodes_of_another_run_then_it_is_refused_and_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also the second cell's, before the first one takes its minutes."""
    monkeypatch.setattr(chaos, "enter", lambda *_: None)
    used = tmp_path / "2-hang-both" / "broker-0"
    used.mkdir(parents=True)
    asked = ["crash-both", "hang-both", "--folder", str(tmp_path)]
    done = CliRunner().invoke(main, asked)
    assert done.exit_code == 2, done.output
    assert "2-hang-both holds nodes of another run" in " ".join(done.output.split())
    assert used.exists()


def test_folder_when_its_cell_is_kept_by_the_report_then_the_rest_is_played(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chaos, "enter", lambda *_: None)
    (tmp_path / "1-crash-both").mkdir()
    course = Course(5, 8_000, 4_000)
    kept = begun("crash-both", Kinds(), 1, course)
    (tmp_path / "cells.json").write_bytes(to_json([kept]))
    played: list[str] = []

    async def play(name: str, *_: object) -> Cell:
        played.append(name)
        return kept

    monkeypatch.setattr(chaos, "play", play)
    asked = ["crash-both", "hang-both", "--fault-s", "8", "--pause-s", "4", "--resume"]
    folders = ["--folder", str(tmp_path), "--out", str(tmp_path)]
    done = CliRunner().invoke(main, [*asked, *folders])
    assert played == ["hang-both"], done.output


def test_cell_when_it_ends_with_a_bug_then_it_is_not_good_and_the_rest_is_played(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A traceback was all that a night's matrix left, and what came behind the cell was not played."""
    played: list[str] = []

    async def play(name: str, *_: object) -> Cell:
        played.append(name)
        if name == "hang-both":
            raise ZeroDivisionError("by 0")
        return Cell(name, "py", "py", 1, acknowledged=1, rounds=[Round(0, "", 1, 0, 1, whole_ms=1)])

    monkeypatch.setattr(chaos, "play", play)
    monkeypatch.setattr(chaos, "_links", lambda *_, **__: None)
    out = ["--out", str(tmp_path / "report")]
    done = CliRunner().invoke(main, ["hang-both", "crash-both", *out])
    assert played == ["hang-both", "crash-both"]
    assert done.exit_code == 1
    cells = from_json((tmp_path / "report" / "cells.json").read_bytes())
    assert [one.is_good for one in cells] == [False, True]
    assert cells[0].broken == ["the cell was not played to its end: ZeroDivisionError('by 0')"]
    assert 'raise ZeroDivisionError("by 0")' in done.output


def test_resume_when_there_is_nothing_to_go_on_with_then_it_says_so(tmp_path: Path) -> None:
    """Hours of another file are not written over."""
    done = CliRunner().invoke(main, ["--matrix", "--resume"])
    assert (done.exit_code, "--out" in done.output) == (2, True)
    (tmp_path / "cells.json").write_text("[{")
    done = CliRunner().invoke(main, ["--matrix", "--resume", "--out", str(tmp_path)])
    assert (done.exit_code, "cells.json" in done.output) == (2, True)
    assert (tmp_path / "cells.json").read_text() == "[{"


async def test_services_when_nobody_answers_then_what_was_promised_is_missed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A reader that finds nothing must not take that for nothing being owed."""

    class Nobody:
        async def master(self) -> None:
            return None

    monkeypatch.setattr("rmqha.sim.service_lives.LIMIT_S", 0.0)
    services = Services(cast(Any, Nobody()), cast(Any, None), SystemClock(), lambda address: 0, 1)
    services._lives.promises.promised[b"D1"] = Promise(DELAYED, 0)
    await services.finish()
    assert len(services.broken) == 2
    assert "an acknowledged delayed message never came" in services.broken[0]


@pytest.mark.costly
async def test_services_when_nobody_serves_them_then_each_of_them_is_named() -> None:
    """Everything was refused all along, so nothing was promised: that looked as if all was well."""

    class Refuses:
        async def master(self) -> str:
            return "here:1"

        async def ask(self, address: str, code: int, *_: object) -> RemotingCommand:
            if code == RequestCode.PULL_MESSAGE:
                return RemotingCommand(ResponseCode.PULL_NOT_FOUND, ext_fields=NO_MESSAGES)
            known = code == RequestCode.QUERY_CONSUMER_OFFSET
            return RemotingCommand(ResponseCode.QUERY_NOT_FOUND if known else 2)

    network = cast(Any, SimpleNamespace(connect=_refused))
    services = Services(cast(Any, Refuses()), network, SystemClock(), lambda address: 1, 1)
    services.start()
    await services.finish(0.3)
    assert len(services.broken) == 1, services.broken
    (told,) = services.broken
    assert told.startswith("services of which nothing came: ")
    names = told.partition(": ")[2].split(", ")
    assert names == [one for one in SERVED if one != "services checked"]


async def _refused(*_: object, **__: object) -> None:
    raise ConnectFailed("nobody listens")


async def test_services_when_a_client_of_them_breaks_then_that_is_told() -> None:
    """The one who waits to be asked ended with an error that nobody looked at."""

    class Nobody:
        async def master(self) -> None:
            return None

    services = Services(cast(Any, Nobody()), cast(Any, None), SystemClock(), lambda address: 0, 1)

    async def breaks() -> None:
        raise KeyError("producerGroup")

    services._tasks = [asyncio.get_running_loop().create_task(breaks())]
    await asyncio.sleep(0)
    await services.close()
    await services.close()
    assert services.broken == ["a client broke: KeyError('producerGroup')"]
