"""``bin/chaos``: faults on the real processes of a whole cluster, on this machine."""

from __future__ import annotations

import asyncio
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import click
import msgspec

from rmqha.chaos.aio.cell import begun, play
from rmqha.chaos.aio.hosts import Hosts, HostsUnavailable, enter
from rmqha.chaos.aio.java_clock import library
from rmqha.chaos.aio.links import Links
from rmqha.chaos.aio.nodes import NO_JAVA, Kinds
from rmqha.chaos.aio.proxies import Proxies
from rmqha.chaos.course import SEND_MESSAGES_MAX, TOPICS, Course
from rmqha.chaos.outcome import Cell
from rmqha.chaos.report import from_json, markdown, page, to_json
from rmqha.chaos.scenarios import ARTICLE, BY_NAME, Kind, Scenario
from rmqha.cli.options import SecondsRange
from rmqha.cli.output import run_command
from rmqha.cli.version import version_option
from rmqha.testing.client import NotYet
from rmqha.testing.real.maven import JavaUnavailable, classpath

MODULE = "rmqha.cli.chaos"
CELLS = "cells.json"
ROUNDS = 5
CONTROLLERS = ("py", "java", "jraft")
BROKERS = ("py", "java", "mixed")
LINKS = ("auto", "namespaces", "proxies")


def _pairs(values: tuple[str, ...]) -> dict[str, object]:
    pairs: dict[str, object] = {}
    for value in values:
        key, equals, text = value.partition("=")
        if not equals or not key:
            raise click.BadParameter(f"{value!r} is not KEY=VALUE", param_hint="--set")
        pairs[key] = text
    return pairs


TOUR = "tour"


def _scenarios(names: tuple[str, ...], *, matrix: bool, tour: bool) -> dict[str, list[Scenario]]:
    """The scenarios of each cell, by its name."""
    if matrix:
        names = tuple(one.name for one in ARTICLE)
    elif tour:
        return {TOUR: list(ARTICLE)}
    unknown = [name for name in names if name not in BY_NAME]
    if unknown:
        known = ", ".join(BY_NAME)
        raise click.BadParameter(f"{', '.join(unknown)}: there are {known}", param_hint="SCENARIO")
    if not names:
        raise click.UsageError(
            "name a scenario, or --matrix or --tour for the twelve of the article"
        )
    return {name: [BY_NAME[name]] for name in names}


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@version_option("rmqha chaos")
@click.argument("scenario", nargs=-1)
@click.option("--matrix", is_flag=True, help="The twelve scenarios of the article.")
@click.option(
    "--tour", is_flag=True, help="The twelve in turn on one cluster; a round each by default."
)
@click.option(
    "--controllers", default="py", show_default=True, help="py, java, jraft; some with commas."
)
@click.option(
    "--brokers", default="py", show_default=True, help="py, java, mixed; some with commas."
)
@click.option("--rounds", type=click.IntRange(min=1), help="Rounds a cell.  [default: 5]")
@click.option(
    "--fault-s",
    default=10.0,
    show_default=True,
    type=SecondsRange(min=0),
    help="How long each holds.",
)
@click.option(
    "--pause-s", default=2.0, show_default=True, type=SecondsRange(min=0), help="Between two."
)
@click.option(
    "--seed", default=1, show_default=True, type=int, help="The same seed draws the same faults."
)
@click.option(
    "--replicas", default=3, show_default=True, type=click.IntRange(2, 9), help="Brokers."
)
@click.option(
    "--links",
    type=click.Choice(LINKS),
    default="auto",
    show_default=True,
    help="What breaks links; auto takes proxies where there are no namespaces to have.",
)
@click.option("--short", is_flag=True, help="Shorter periods until replicas are in sync again.")
@click.option(
    "--services",
    is_flag=True,
    help="Use delays, timers, transactions, pops and locks as well (brokers of ours).",
)
@click.option(
    "--topics",
    default=TOPICS,
    show_default=True,
    type=click.IntRange(min=1),
    help="A producer each, with one send in flight.",
)
@click.option(
    "--batch",
    default=1,
    show_default=True,
    type=click.IntRange(min=1, max=SEND_MESSAGES_MAX),
    help="Messages of one send (request 320).",
)
@click.option(
    "--messages",
    default=0,
    type=click.IntRange(min=0),
    help="So many are acknowledged when the last fault comes; each round waits for its share.",
)
@click.option(
    "--set", "settings", multiple=True, metavar="KEY=VALUE", help="A property of all brokers."
)
@click.option(
    "--set-controller", multiple=True, metavar="KEY=VALUE", help="A property of all controllers."
)
@click.option(
    "--history",
    type=click.Path(dir_okay=False, path_type=Path),
    help="What clients did, for history-check.",
)
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    help="A folder for report.md, report.html, cells.json; written after each cell.",
)
@click.option(
    "--resume", is_flag=True, help="Play what --out does not hold yet: the last run was ended."
)
@click.option(
    "--folder",
    type=click.Path(file_okay=False, path_type=Path),
    help="Where nodes live; kept at the end.",
)
def main(
    scenario: tuple[str, ...], *, matrix: bool, tour: bool, controllers: str, brokers: str, rounds: int | None,
    fault_s: float, pause_s: float, seed: int, replicas: int, links: str, short: bool, services: bool, topics: int, batch: int, messages: int,
    settings: tuple[str, ...], set_controller: tuple[str, ...], history: Path | None, out: Path | None, resume: bool,
    folder: Path | None,
) -> None:  # fmt: skip
    """Break a cluster of three controllers, a name server and brokers, again and again, under
    clients; tell what was lost (nothing) and for how long writes were out."""
    cells_asked = _scenarios(scenario, matrix=matrix, tour=tour)
    asked = [one for found in cells_asked.values() for one in found]
    _refuse(asked, controllers, brokers, services=services)
    kinds = [
        Kinds(c, b, _pairs(settings), _pairs(set_controller), short, replicas)
        for c in controllers.split(",") for b in brokers.split(",")
    ]  # fmt: skip
    if history is not None and len(cells_asked) * len(kinds) > 1:
        raise click.UsageError("--history takes one scenario on one cluster")
    kept = _kept(out) if resume else []
    try:
        made = _links(links, java=any(one.has_java for one in kinds))
        rounds = rounds or (len(ARTICLE) if tour else ROUNDS)
        course = Course(
            rounds, int(fault_s * 1000), int(pause_s * 1000), services, history, topics, messages, batch
        )  # fmt: skip
        cells = _run(cells_asked, kinds, seed, course, folder, kept, out, made)
    except HostsUnavailable as error:
        raise click.ClickException(f"chaos needs hosts of its own: {error}") from error
    print(markdown(cells))
    sys.exit(0 if all(cell.is_good for cell in cells) else 1)


def _refuse(asked: list[Scenario], controllers: str, brokers: str, *, services: bool) -> None:
    """What cannot be played, before anything is started; raises click.UsageError."""
    for given, known, hint in (
        (controllers, CONTROLLERS, "--controllers"), (brokers, BROKERS, "--brokers"),
    ):  # fmt: skip
        if wrong := set(given.split(",")) - set(known):
            raise click.BadParameter(
                f"{', '.join(sorted(wrong))}: one of {', '.join(known)}", param_hint=hint
            )
    if services and brokers != "py":
        raise click.UsageError(
            "--services asks for what Java's brokers do not promise: --brokers py"
        )
    jumps = any(one.kind is Kind.CLOCK_JUMP for one in asked)
    if jumps and services:
        raise click.UsageError("clock-jump moves the clocks by which delays and timers go")
    if jumps and {controllers, brokers} != {"py"}:
        try:
            library()
        except HostsUnavailable as error:
            raise click.UsageError(str(error)) from error


def _resolve_java() -> None:
    """Have what Maven fetches while there is a network: namespaces of our own have none."""
    try:
        classpath()
    except JavaUnavailable as error:
        raise click.ClickException(f"nodes of Java need RocketMQ's own jars: {error}") from error


def _links(wanted: str, *, java: bool) -> Callable[[], Links]:
    """What makes hosts: this command goes on in namespaces of its own, where it can.

    Raises:
        HostsUnavailable: there are no such hosts as are wanted, or as nodes of Java need.
    """
    if wanted == "proxies" and java:
        raise HostsUnavailable(NO_JAVA)
    if wanted != "proxies":
        if java:
            _resolve_java()
        try:
            enter(sys.argv[1:], MODULE)
        except HostsUnavailable as error:
            if wanted == "namespaces":
                raise
            if java:
                raise HostsUnavailable(f"{NO_JAVA}: {error}") from error
            _say(f"proxies break links here, for there are no namespaces: {error}")
        else:
            return Hosts
    # What this process started must end with it: by SIGTERM as by Ctrl-C.
    signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))
    return Proxies


def _kept(out: Path | None) -> list[Cell]:
    """The cells of a run that was ended before its last one."""
    if out is None:
        raise click.UsageError("--resume goes on with the cells that --out holds")
    file = out / CELLS
    if not file.exists():
        return []
    try:
        return from_json(file.read_bytes())
    except msgspec.MsgspecError as error:
        raise click.BadParameter(f"{file}: {error}", param_hint="--out") from error


def _write(out: Path, cells: list[Cell]) -> None:
    """The report so far; of a file that is replaced either text is whole."""
    out.mkdir(parents=True, exist_ok=True)
    texts = {
        "report.md": markdown(cells) + "\n", "report.html": page(cells), CELLS: to_json(cells).decode()
    }  # fmt: skip
    for name, text in texts.items():
        beside = out / f"{name}.tmp"
        beside.write_text(text, encoding="utf-8")
        beside.replace(out / name)


def _run(
    asked: dict[str, list[Scenario]],
    kinds: list[Kinds],
    seed: int,
    course: Course,
    folder: Path | None,
    kept: list[Cell],
    out: Path | None,
    links: Callable[[], Links],
) -> list[Cell]:
    cells: list[Cell] = []
    whole = [
        (f"{number}-{name}", name, kind, begun(name, kind, seed, course))
        for number, (name, kind) in enumerate(((n, k) for n in asked for k in kinds), 1)
    ]
    had = [next((one for one in kept if one.is_of(new)), None) for *_, new in whole]
    _refuse_used(folder, [cell for (cell, *_), known in zip(whole, had, strict=True) if not known])
    for number, ((cell_folder, name, kind, new), known) in enumerate(
        zip(whole, had, strict=True), 1
    ):
        head = f"{name} on {kind.controllers} controllers, {kind.brokers} brokers"
        if known is not None:
            _say(f"[{number}/{len(whole)}] {head}: kept")
            cells.append(known)
            continue
        _say(f"[{number}/{len(whole)}] {head}")
        with tempfile.TemporaryDirectory(prefix="rmqha-chaos-") as made:
            place = Path(made) / "cell" if folder is None else folder / cell_folder
            cell = _outcome(play(name, asked[name], kind, seed, course, place, _say, links), new)
        cells.append(cell)
        if out is not None:
            _write(out, cells)
        bad = f"LOST {len(cell.lost)}, DAMAGED {cell.damaged}, BROKEN {cell.broken}"
        verdict = "nothing lost" if cell.is_good else bad
        _say(f"  {cell.acknowledged} acknowledged, {cell.faults} faults: {verdict}")
    return cells


def _outcome(playing: Coroutine[Any, Any, Cell], new: Cell) -> Cell:
    """Play a cell; one that was not played to its end is not good, and those behind it may be.

    Raises:
        HostsUnavailable: there are none for any cell.
    """
    try:
        return asyncio.run(playing)
    except HostsUnavailable:
        raise
    except NotYet as error:
        new.broken.append(str(error))
    except Exception as error:  # noqa: BLE001  # a bug ends this cell, and not the others
        _say(traceback.format_exc().rstrip())
        new.broken.append(f"the cell was not played to its end: {error!r}")
    return new


def _refuse_used(folder: Path | None, cells: list[str]) -> None:
    """Nodes begin with empty disks; raises click.BadParameter."""
    for used in () if folder is None else (folder / cell for cell in cells):
        if used.exists():
            raise click.BadParameter(f"{used} holds nodes of another run", param_hint="--folder")


def _say(text: str) -> None:
    click.echo(text, err=True)


if __name__ == "__main__":
    run_command("chaos", main)
